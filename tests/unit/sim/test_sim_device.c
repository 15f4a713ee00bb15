/* A simulated accelerator as a device: memory that runs out and comes back, addresses the host
 * cannot touch, errors that show later, several devices and threads at once. */
#include "sim_support.h"

#include <levin/linalg.h>
#include <levin/ops.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *program;

static lvn_tensor *ones(lvn_device device, int64_t rows, int64_t columns)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, LVN_SHAPE(rows, columns));
    for (int64_t i = 0; t != NULL && i < rows * columns; i++) {
        LVNI_F32(t)[i] = 1.0f;
    }
    lvn_tensor *there = lvn_to_device(t, device);
    lvn_release(t);
    return there;
}

static lvni_tensor_device *device(int index)
{
    lvni_tensor_device *d;
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, index, &d), LVN_OK);
    return d;
}

/* ---- the api ---- */

TEST(devices_are_found)
{
    assert_int_equal(lvn_device_count(LVN_DEVICE_CPU), 1);
    assert_int_equal(lvn_device_count(LVN_DEVICE_SIM), 3);
    assert_int_equal(lvn_device_use(LVN_SIM(3)), LVN_ERR_NOT_FOUND);
    assert_string_equal(
        lvn_last_error()->message,
        "there is no device sim:3; sim has 3 (LEVIN_SIM_DEVICES; sim:0 is the first)");
    assert_int_equal(lvn_device_in_use().kind, LVN_DEVICE_CPU);
    lvn_tensor *t = ones(LVN_SIM(1), 2, 2);
    assert_int_equal(lvn_tensor_device(t).kind, LVN_DEVICE_SIM);
    assert_int_equal(lvn_tensor_device(t).index, 1);
    lvn_tensor *u = lvn_to_device(t, LVN_SIM(2)), *v = lvn_to_device(u, LVN_CPU);
    assert_int_equal(lvn_tensor_device(u).index, 2);
    assert_int_equal(lvn_tensor_device(v).kind, LVN_DEVICE_CPU);
    assert_true(LVNI_F32(v)[3] == 1.0f);
    lvn_release(t);
    lvn_release(u);
    lvn_release(v);
}

/* Eigenvalues are the host's, whatever device the thread uses. */
TEST(factors_are_made_in_host_memory)
{
    lvn_tensor *there = ones(LVN_SIM(1), 2, 2), *here = lvn_to_device(there, LVN_CPU), *values,
               *vectors;
    assert_int_equal(lvn_eigh(there, &values, &vectors), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message,
                        "eigh: the matrix lies on sim:1, it must lie in host memory; lvn_to_device "
                        "copies it");
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    assert_int_equal(lvn_eigh(here, &values, &vectors), LVN_OK);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    assert_int_equal(lvn_tensor_device(vectors).kind, LVN_DEVICE_CPU);
    assert_true(((const double *)lvn_const_data(values))[0] > 1.999);
    lvn_release(there);
    lvn_release(here);
    lvn_release(values);
    lvn_release(vectors);
}

TEST(new_tensors_lie_where_the_thread_works)
{
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *z = lvn_zeros(LVN_F32, LVN_SHAPE(5));
    assert_int_equal(lvn_tensor_device(z).kind, LVN_DEVICE_SIM);
    assert_true(lvn_item(lvn_sum(lvn_add_scalar(z, 2.0))) == 10.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_tensor *host = lvn_tensor_create(LVN_F32, LVN_SHAPE(5));
    assert_int_equal(lvn_tensor_device(host).kind, LVN_DEVICE_CPU);
    lvn_release(host);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* ---- memory ---- */

enum { MIB = 262144 }; /* floats */

TEST(memory_runs_out_with_a_sentence_and_comes_back)
{
    lvn_tensor *big[16] = {NULL};
    int n = 0;
    while (n < 16 && (big[n] = ones(LVN_SIM(0), 5, MIB)) != NULL) {
        n++;
    }
    assert_int_equal(n, 6); /* 32 MiB in blocks of 5 */
    assert_int_equal(lvn_last_error()->code, LVN_ERR_DEVICE_MEMORY);
    assert_non_null(strstr(lvn_last_error()->message,
                           "sim:0 is out of memory: 5 MiB were asked for, and 30 MiB of its 32 MiB "
                           "are in use; smaller batches (batch_size"));
    assert_int_equal(lvni_tensor_device_get_stats(device(0)).in_use, (uint64_t)n * 5 << 20);
    while (n > 0) {
        lvn_release(big[--n]);
    }
    /* what was kept in blocks of 5 MiB is there in one piece again */
    lvn_tensor *whole = ones(LVN_SIM(0), 28, MIB);
    assert_non_null(whole);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_true(lvn_item(lvn_mean(whole)) == 1.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(whole);
    assert_int_equal(lvni_tensor_device_get_stats(device(0)).in_use, 0);
}

TEST(an_op_without_memory_fails_its_scope_alone)
{
    lvn_tensor *half = ones(LVN_SIM(0), 20, MIB);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_square(half));
    assert_int_equal(lvn_scope_close(), LVN_ERR_DEVICE_MEMORY);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_true(lvn_item(lvn_sum(half)) == 20.0 * MIB);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(half);
}

TEST(the_allocator_can_be_reported_to_fail)
{
    lvn_tensor *x = ones(LVN_SIM(0), 4, 4);
    lvni_tensor_device_fail_at(device(0), 2);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_non_null(lvn_square(x));
    assert_null(lvn_square(x));
    assert_int_equal(lvn_scope_close(), LVN_ERR_DEVICE_MEMORY);
    lvn_release(x);
}

/* A second round of the same work takes nothing new. */
TEST(blocks_are_used_again)
{
    lvn_tensor *x = ones(LVN_SIM(2), 300, 300);
    const void *last[3];
    uint64_t calls[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *y = x;
        for (int k = 0; k < 20; k++) {
            y = lvn_mul(y, x);
        }
        assert_true(lvn_item(lvn_mean(y)) == 1.0);
        last[i] = y->data;
        assert_int_equal(lvn_scope_close(), LVN_OK);
        calls[i] = lvni_core_alloc_get_total().calls;
    }
    assert_ptr_equal(last[1], last[0]);
    assert_ptr_equal(last[2], last[0]);
    assert_int_equal(calls[2], calls[1]);
    lvn_release(x);
}

/* ---- errors ---- */

TEST(errors_show_at_the_end_of_the_scope)
{
    lvn_tensor *logits = ones(LVN_SIM(0), 2, 3), *labels = lvn_tensor_create(LVN_I64, LVN_SHAPE(2));
    ((int64_t *)labels->data)[1] = 7;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *loss = lvn_cross_entropy(logits, labels);
    assert_true(loss != NULL || lvn_scope_status() != LVN_OK); /* on its way, or known already */
    lvn_cross_entropy(lvn_add(logits, logits), labels);        /* left out, or not even begun */
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message,
                        "cross_entropy: the label of row 1 is 7, but there are 3 classes (0 to 2)");
    assert_string_equal(lvn_last_error()->frames[0], "cross_entropy on sim:0");
    assert_int_equal(lvn_scope_open(), LVN_OK); /* the device works on */
    assert_true(lvn_item(lvn_sum(logits)) == 6.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    loss = lvn_cross_entropy(logits, labels); /* outside of all scopes */
    assert_true(lvn_item(loss) != lvn_item(loss));
    assert_int_equal(lvn_device_wait(), LVN_ERR_INVALID);
    assert_int_equal(lvn_device_wait(), LVN_OK);
    lvn_release(logits);
    lvn_release(labels);
}

/* ---- several at once ---- */

typedef struct worker {
    int index;
    double sum;
    lvn_status status;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    w->status = lvn_device_use(LVN_SIM(w->index));
    lvn_tensor *x = ones(LVN_SIM(w->index), 128, 64 + w->index);
    for (int i = 0; i < 30 && w->status == LVN_OK; i++) {
        lvn_scope_open();
        lvn_tensor *y = lvn_matmul(x, x, .trans_b = true);
        w->sum += lvn_item(lvn_mean(lvn_relu(y)));
        w->status = lvn_scope_close();
    }
    lvn_release(x);
    return NULL;
}

/* Six threads on three devices. */
TEST(threads_share_devices)
{
    pthread_t thread[6];
    worker w[6];
    uint64_t before[3];
    for (int i = 0; i < 3; i++) {
        before[i] = lvni_tensor_device_get_stats(device(i)).in_use;
    }
    for (int i = 0; i < 6; i++) {
        w[i] = (worker){.index = i % 3};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(w[i].status, LVN_OK);
        assert_true(w[i].sum == 30.0 * (64 + w[i].index));
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lvni_tensor_device_get_stats(device(i)).in_use, before[i]);
    }
}

/* ---- between devices ---- */

/* What a command waits for; addresses of semaphores are its payload. */
static lvn_status hold(void *payload)
{
    sem_t *const *s = payload;
    sem_post(s[0]);
    sem_wait(s[1]);
    return LVN_OK;
}

/* Work of another thread: the device is held, then x becomes zeros. */
typedef struct queued {
    lvn_tensor *x;
    sem_t *begun, *go;
    lvn_status status;
} queued;

static void *queue_zeros(void *argument)
{
    queued *q = argument;
    sem_t *s[] = {q->begun, q->go};
    q->status = lvni_sim_submit(lvni_tensor_device_stream(device(0)), "hold", hold, s, sizeof s);
    const lvn_status zeros =
        lvni_tensor_mem_zero(lvn_data(q->x), (size_t)lvn_numel(q->x) * sizeof(float));
    if (q->status == LVN_OK) {
        q->status = zeros;
    }
    sem_post(q->begun);
    lvn_device_wait();
    return NULL;
}

static void *let_go(void *argument)
{
    usleep(50000); /* a copy that does not wait is over by then */
    sem_post(argument);
    return NULL;
}

TEST(a_copy_waits_for_work_that_another_thread_gave_the_source)
{
    sem_t begun, go;
    pthread_t worker_thread, helper;
    sem_init(&begun, 0, 0);
    sem_init(&go, 0, 0);
    lvn_tensor *x = ones(LVN_SIM(0), 3, 4);
    queued q = {.x = x, .begun = &begun, .go = &go};
    assert_int_equal(pthread_create(&worker_thread, NULL, queue_zeros, &q), 0);
    sem_wait(&begun); /* both are queued, and the first one waits */
    sem_wait(&begun);
    assert_int_equal(pthread_create(&helper, NULL, let_go, &go), 0);
    lvn_tensor *there = lvn_to_device(x, LVN_SIM(1)), *here = lvn_to_device(there, LVN_CPU);
    pthread_join(helper, NULL);
    pthread_join(worker_thread, NULL);
    assert_int_equal(q.status, LVN_OK);
    for (int i = 0; i < 12; i++) {
        assert_true(LVNI_F32(here)[i] == 0.0f);
    }
    lvn_release(x);
    lvn_release(there);
    lvn_release(here);
    sem_destroy(&begun);
    sem_destroy(&go);
}

/* payload[2]: whose error it is. */
static lvn_status hold_and_fail(void *payload)
{
    sem_t *const *s = payload;
    hold(payload);
    LVN_FAIL(LVN_ERR_INVALID, "the error of %s", (const char *)s[2]);
}

/* Work of one thread on two devices, both under way when one fails. */
TEST(the_first_error_of_several_devices_stays)
{
    sem_t begun, go[2];
    char name[2][8] = {"first", "second"};
    sem_init(&begun, 0, 0);
    for (int i = 0; i < 2; i++) {
        sem_init(&go[i], 0, 0);
        void *const payload[] = {&begun, &go[i], name[i]};
        assert_int_equal(lvni_sim_submit(lvni_tensor_device_stream(device(i)), "test",
                                         hold_and_fail, payload, sizeof payload),
                         LVN_OK);
    }
    sem_wait(&begun);
    sem_wait(&begun);
    sem_post(&go[0]);
    while (!lvni_tensor_device_failed()) {
        usleep(1000);
    }
    sem_post(&go[1]);
    assert_int_equal(lvn_device_wait(), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message, "the error of first");
    assert_int_equal(lvn_device_wait(), LVN_OK);
    sem_destroy(&begun);
    sem_destroy(&go[0]);
    sem_destroy(&go[1]);
}

/* ---- errors and events ---- */

static lvn_status break_down(void *payload)
{
    (void)payload;
    LVN_FAIL(LVN_ERR_INTERNAL, "this copy was made to fail");
}

/* What follows an event behind an error of another stream is left out, with that error. */
TEST(an_error_goes_with_the_event)
{
    lvni_tensor_device *d = device(0);
    const lvn_backend *b = lvni_tensor_device_backend(d);
    void *of = lvni_tensor_device_state(d), *stream = lvni_tensor_device_stream(d), *copies, *event;
    lvn_tensor *x = ones(LVN_SIM(0), 2, 3);
    assert_int_equal(lvn_device_wait(), LVN_OK);
    assert_int_equal(b->stream_create(of, LVN_STREAM_COPY, &copies), LVN_OK);
    assert_int_equal(b->event_create(of, &event), LVN_OK);
    assert_int_equal(lvni_sim_submit(copies, "a copy", break_down, "", 1), LVN_OK);
    assert_int_equal(b->event_record(event, copies), LVN_OK);
    assert_int_equal(b->event_follow(stream, event), LVN_OK);
    assert_int_equal(b->zero(stream, lvn_data(x), 6 * sizeof(float)), LVN_OK);
    assert_int_equal(b->stream_wait(stream), LVN_ERR_INTERNAL);
    assert_non_null(strstr(lvn_last_error()->message, "this copy was made to fail"));
    assert_int_equal(b->stream_wait(copies), LVN_ERR_INTERNAL);
    b->stream_clear(copies);
    b->stream_clear(stream);
    const float *there = lvni_sim_alias(lvn_data(x));
    assert_true(there[0] == 1.0f);
    assert_int_equal(b->event_record(event, copies), LVN_OK); /* now of a stream that works */
    assert_int_equal(b->event_follow(stream, event), LVN_OK);
    assert_int_equal(b->zero(stream, lvn_data(x), 6 * sizeof(float)), LVN_OK);
    assert_int_equal(b->stream_wait(stream), LVN_OK);
    assert_true(there[0] == 0.0f);
    b->event_destroy(event);
    b->stream_destroy(copies);
    lvn_release(x);
}

/* ---- captured work ---- */

/* What is captured does not run; each replay runs all of it, at the same addresses. */
TEST(captured_work_runs_when_it_is_replayed)
{
    lvni_tensor_device *d = device(0);
    const lvn_backend *b = lvni_tensor_device_backend(d);
    lvn_tensor *x = ones(LVN_SIM(0), 2, 3), *y = ones(LVN_SIM(0), 2, 3);
    void *stream = lvni_tensor_device_stream(d), *graph, *event;
    assert_int_equal(b->event_create(lvni_tensor_device_state(d), &event), LVN_OK);
    assert_int_equal(b->capture_begin(stream), LVN_OK);
    assert_int_equal(b->flat.add(stream, lvn_data(x), lvn_data(y), 6), LVN_OK); /* x += y */
    assert_int_equal(b->flat.add(stream, lvn_data(y), lvn_data(x), 6), LVN_OK); /* y += x */
    assert_int_equal(b->event_record(event, stream), LVN_OK);
    assert_int_equal(b->capture_end(stream, &graph), LVN_OK);
    static const float want[] = {1, 3, 8, 21}, want_x[] = {2, 5, 13, 34}; /* y before, x after */
    for (int i = 0; i < 4; i++) {
        lvn_tensor *here = lvn_to_device(y, LVN_CPU);
        assert_true(LVNI_F32(here)[5] == want[i]);
        lvn_release(here);
        assert_int_equal(b->graph_replay(graph, stream), LVN_OK);
        assert_int_equal(b->event_wait(event), LVN_OK); /* of this replay */
        const float *there = lvni_sim_alias(lvn_data(x));
        assert_true(there[5] == want_x[i]);
    }
    assert_int_equal(lvn_device_wait(), LVN_OK);
    b->graph_destroy(graph);
    b->event_destroy(event);
    lvn_release(x);
    lvn_release(y);
}

/* ---- the host touches device memory ---- */

static int touch(const char *how)
{
    lvn_tensor *x = ones(LVN_SIM(1), 512, 512);
    if (strcmp(how, "busy") == 0) { /* the stream has work for a while */
        lvn_device_use(LVN_SIM(1));
        for (int i = 0; i < 20; i++) {
            lvn_matmul(x, x);
        }
    }
    LVNI_F32(x)[7] = 1.0f;
    return 0;
}

/* The program again, as a child that touches; its stderr comes back. */
static int run_child(const char *how, char *text, size_t size)
{
    char *const arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)how, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], status = 0;
    pid_t child;
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n + 1 < size; n += got > 0 ? (size_t)got : 0) {
        got = read(ends[0], text + n, size - 1 - n);
    }
    text[n] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

TEST(the_host_cannot_touch_device_memory)
{
    static const char *const ways[] = {"idle", "busy"};
    for (int i = 0; i < 2; i++) {
        char text[8192];
        const int status = run_child(ways[i], text, sizeof text);
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#if !defined(__SANITIZE_ADDRESS__) &&                                                              \
    !defined(__SANITIZE_THREAD__) /* they report the signal in their own way */
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#endif
        if (strstr(text, "levin: the host touched memory of sim:1") == NULL) {
            fail_msg("the message should name the device: %s", text);
        }
    }
}

int main(int argc, char **argv)
{
    program = argv[0];
    sim_start("3", "32MiB");
    if (argc > 1) {
        return touch(argv[1]);
    }
    return test_main(argc, argv);
}
