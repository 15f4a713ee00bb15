/* Samples that cannot be read, in whole runs: any number of loader threads and ranks, and a run
 * that is resumed, leave out the same ones, report them in the same lines, and end at the same
 * sample with the same message. */
#include "trainer_support.h"

#include "log/run_log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 240, BATCH = 24, EPOCH = N / BATCH, LIMIT = 10, SIDE = 6, MOST = 3, TEXT = 8192 };

static char folder[] = "/tmp/levin-unreadable-XXXXXX";

/* One run, and what it was on. */
typedef struct run {
    memory data, val; /* val.n 0: none */
    int ranks, workers, steps;
    const char *resume, *save; /* rank 0's checkpoint at its end; NULL: none */
    /* what came out */
    int done;
    lvn_status status; /* of the rank that failed first */
    char message[1024];
    uint64_t hash;
    char log[TEXT]; /* the lines about samples */
} run;

typedef struct member {
    run *r;
    lvni_dist_comm *comm;
    int rank, done;
    lvn_status status;
    char message[1024];
    uint64_t hash;
} member;

static void resume(bench *b, const char *path)
{
    lvni_ckpt *ckpt;
    if (lvni_ckpt_load(path, &ckpt) != LVN_OK || lvni_trainer_load(b->trainer, ckpt) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvni_ckpt_free(ckpt);
}

static lvn_status train(member *m, bench *b)
{
    const run *r = m->r;
    lvni_trainer_step_result result;
    if (r->resume != NULL) {
        resume(b, r->resume);
    }
    while (b->trainer->at.step < r->steps) {
        LVN_TRY(lvni_trainer_advance(b->trainer, &result));
        m->done = (int)b->trainer->at.step;
    }
    LVN_TRY(r->val.n > 0 ? lvni_trainer_validate(b->trainer) : LVN_OK);
    return r->save != NULL && m->rank == 0 ? lvni_trainer_save_as(b->trainer, r->save) : LVN_OK;
}

static void *member_main(void *argument)
{
    member *m = argument;
    const setting s = {.cls = lvni_nn_zoo_find("mlp"),
                       .batch_size = BATCH,
                       .micro_batches = 6,
                       .lanes = 1,
                       .workers = m->r->workers,
                       .optim = {.lr = 0.05},
                       .headers_read = true,
                       .val = m->r->val.n > 0 ? &m->r->val.base : NULL,
                       .comm = m->comm,
                       .devices = m->r->ranks,
                       .rank = m->rank};
    bench b;
    bench_open(&b, &m->r->data, &s);
    m->status = train(m, &b);
    if (m->status != LVN_OK) {
        snprintf(m->message, sizeof m->message, "%s", lvn_last_error()->message);
        if (m->comm != NULL) {
            lvni_dist_comm_abort(m->comm, m->message);
        }
    }
    m->hash = bench_hash(&b);
    bench_close(&b);
    return NULL;
}

/* The text of its lines about samples, without times. */
static void read_log(const char *path, char out[TEXT])
{
    char line[TEXT];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    out[0] = '\0';
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *at = strstr(line, "[WARNING] ");
        if (at != NULL && strstr(at, "unreadable") != NULL) {
            strncat(out, at, TEXT - 1 - strlen(out));
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    unlink(path);
}

/* Of several ranks the one that could not read the deciding sample fails, the others with it. */
static void take_results(run *r, const member m[MOST])
{
    const member *first = &m[0];
    for (int i = 1; i < r->ranks; i++) {
        first = first->status == LVN_ERR_PEER ? &m[i] : first;
    }
    r->status = first->status;
    r->done = first->done;
    r->hash = first->hash;
    snprintf(r->message, sizeof r->message, "%s", first->message);
    for (int i = 0; i < r->ranks; i++) {
        assert_int_equal(m[i].done, r->done);
        assert_true(m[i].hash == r->hash);
        assert_int_equal(m[i].status,
                         &m[i] == first || r->status == LVN_OK ? r->status : LVN_ERR_PEER);
        assert_non_null(strstr(m[i].message, r->message));
    }
}

static void do_run(run *r)
{
    char path[96];
    member m[MOST] = {0};
    lvni_dist_comm *comm[MOST] = {0};
    pthread_t thread[MOST];
    const int screen = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
    snprintf(path, sizeof path, "%s/log", folder);
    assert_int_equal(lvni_log_open(path, false), LVN_OK);
    dup2(nothing, STDERR_FILENO); /* the warnings of all runs */
    if (r->ranks > 1) {
        assert_int_equal(lvni_dist_comm_threads(r->ranks, true, comm), LVN_OK);
    }
    for (int i = 0; i < r->ranks; i++) {
        m[i] = (member){.r = r, .comm = comm[i], .rank = i};
        assert_int_equal(pthread_create(&thread[i], NULL, member_main, &m[i]), 0);
    }
    for (int i = 0; i < r->ranks; i++) {
        pthread_join(thread[i], NULL);
    }
    for (int i = 0; i < r->ranks; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
    lvni_log_close();
    dup2(screen, STDERR_FILENO);
    close(screen);
    close(nothing);
    read_log(path, r->log);
    take_results(r, m);
}

static void same(const run *a, const run *b, const char *what)
{
    if (a->status != b->status || a->done != b->done || a->hash != b->hash ||
        strcmp(a->message, b->message) != 0 || strcmp(a->log, b->log) != 0) {
        fail_msg("%s, ranks=%d workers=%d: %d steps, status %d, %s\n%s\nnot %d steps, status %d, "
                 "%s\n%s",
                 what, a->ranks, a->workers, a->done, (int)a->status, a->message, a->log, b->done,
                 (int)b->status, b->message, b->log);
    }
}

enum { ALL = 1, SOME = 4 };

/* In any layout, all nine or three of them; *r: what came out. */
static void same_everywhere(run *r, const char *what, int which)
{
    static const int workers[] = {0, 1, 4};
    const run asked = *r;
    for (int i = 0; i < 9; i += which) {
        run other = asked;
        run *now = i == 0 ? r : &other;
        now->workers = workers[i % 3];
        now->ranks = 1 + i / 3;
        do_run(now);
        same(now, r, what);
    }
}

/* Samples in the order of the first epoch. */
static void find_order(int64_t order[N])
{
    memory plain;
    bench b;
    memory_init(&plain, N, 0);
    bench_open(
        &b, &plain,
        &(setting){.batch_size = BATCH, .micro_batches = 6, .lanes = 1, .optim = {.lr = 0.1}});
    bench_steps(&b, EPOCH);
    bench_close(&b);
    for (int i = 0; i < N; i++) {
        order[i] = seen[i / BATCH].sample[i % BATCH];
    }
}

static run make_run(int steps)
{
    run r = {.steps = steps};
    memory_init(&r.data, N, SIDE);
    return r;
}

TEST(the_sample_after_the_limit_ends_the_run)
{
    static const struct {
        const char *what;
        int first, every, until,
            done; /* of the order: which cannot be read; steps before the end */
    } kind[] = {{"a batch full of them", 0, 1, BATCH, 0},
                {"in what is decoded ahead", BATCH, 1, 2 * BATCH, 1},
                {"everything", 0, 1, N, 0},
                {"two in each step", 5, 12, N, 5},
                {"the last sample of a step", 2 * BATCH - 1 - LIMIT, 1, 2 * BATCH, 1},
                {"in the last batch of the epoch", N - LIMIT - 1, 1, N, EPOCH - 1}};
    int64_t order[N];
    find_order(order);
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
        char last[64];
        run r = make_run(2 * EPOCH);
        int n = 0;
        int64_t sample = -1;
        for (int k = kind[i].first; k < kind[i].until; k += kind[i].every) {
            r.data.unreadable[order[k]] = true;
            sample = n++ == 3 ? order[k] : sample;
        }
        same_everywhere(&r, kind[i].what, i < 2 ? ALL : SOME);
        assert_int_equal(r.status, LVN_ERR_CORRUPT);
        assert_int_equal(r.done, kind[i].done);
        assert_non_null(strstr(r.message, "11 of 240 training samples could not be read, and a run "
                                          "leaves out 10 at most (on_error=skip: any number): "));
        snprintf(last, sizeof last, "sample %lld is damaged", (long long)sample);
        assert_non_null(strstr(r.message, last));
        assert_non_null(strstr(r.message, "; and 5 more"));
    }
}

/* Where the 11th is left out by a later epoch, too. */
TEST(each_sample_counts_once)
{
    int64_t order[N];
    find_order(order);
    run r = make_run(3 * EPOCH);
    for (int i = 0; i < LIMIT; i++) {
        r.data.unreadable[order[23 * i + 1]] = true;
    }
    same_everywhere(&r, "ten in three epochs", SOME);
    assert_int_equal(r.status, LVN_OK);
    assert_int_equal(r.done, 3 * EPOCH);
    int lines = 0;
    for (const char *at = r.log; (at = strstr(at, "unreadable training sample")) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines, LIMIT - 1); /* two are of one step */
    assert_non_null(strstr(r.log, "[WARNING] 1 unreadable training sample left out: sample"));
    assert_non_null(
        strstr(r.log, "[WARNING] 1 more unreadable training sample left out, 10 in all: sample"));
}

/* At any step, saved and gone on with by any layout: as if it had not been stopped. */
TEST(a_resumed_run_goes_on_counting)
{
    char path[96];
    int64_t order[N];
    find_order(order);
    snprintf(path, sizeof path, "%s/c.safetensors", folder);
    run whole = make_run(2 * EPOCH);
    for (int k = 5; k < N; k += 12) {
        whole.data.unreadable[order[k]] = true;
    }
    whole.ranks = 1;
    do_run(&whole);
    assert_int_equal(whole.done, 5);
    for (int at = 1; at <= 5; at++) {
        run first = whole;
        first.steps = at;
        first.save = path;
        first.ranks = 1 + at % MOST;
        first.workers = at % 2;
        do_run(&first);
        assert_int_equal(first.status, LVN_OK);
        run rest = whole;
        rest.resume = path;
        same_everywhere(&rest, "resumed", SOME);
        assert_int_equal(rest.status, whole.status);
        assert_int_equal(rest.done == 0 ? at : rest.done, whole.done);
        assert_true(rest.hash == whole.hash);
        assert_string_equal(rest.message, whole.message);
        strncat(first.log, rest.log, TEXT - 1 - strlen(first.log));
        assert_string_equal(first.log, whole.log); /* each line once */
    }
    unlink(path);
}

/* A file that was replaced before the resume may be whole now. */
TEST(other_data_begins_to_count)
{
    char path[96];
    int64_t order[N];
    find_order(order);
    snprintf(path, sizeof path, "%s/c.safetensors", folder);
    run r = make_run(EPOCH);
    for (int i = 0; i < LIMIT; i++) {
        r.data.unreadable[order[i]] = true;
    }
    r.ranks = 1;
    r.save = path;
    do_run(&r);
    assert_int_equal(r.status, LVN_OK);
    for (int files = 0; files < 2; files++) {
        lvni_ckpt *ckpt;
        bench b;
        bench_open(&b, &r.data,
                   &(setting){.cls = lvni_nn_zoo_find("mlp"),
                              .batch_size = BATCH,
                              .micro_batches = 6,
                              .lanes = 1,
                              .optim = {.lr = 0.05},
                              .headers_read = true});
        b.trainer->o.data_files = (uint64_t)files;
        assert_int_equal(lvni_ckpt_load(path, &ckpt), LVN_OK);
        assert_int_equal(lvni_trainer_load(b.trainer, ckpt), LVN_OK);
        lvni_ckpt_free(ckpt);
        assert_int_equal(lvni_data_unreadable_count(b.trainer->unreadable), files == 0 ? LIMIT : 0);
        bench_close(&b);
    }
    unlink(path);
}

TEST(a_validation_counts_alike)
{
    for (int more = 0; more < 2; more++) {
        run r = make_run(1);
        memory_init(&r.val, 60, SIDE);
        for (int i = 0; i < LIMIT + more; i++) {
            r.val.unreadable[7 + 5 * i] = true;
        }
        same_everywhere(&r, "validation", SOME);
        assert_int_equal(r.status, more == 0 ? LVN_OK : LVN_ERR_CORRUPT);
        const char *want =
            more == 0 ? "[WARNING] 10 unreadable validation samples left out: sample 7 is damaged; "
                        "sample 12 is "
                        "damaged; "
                      : "11 of 60 validation samples could not be read, and a run leaves out 10 at "
                        "most (on_error=skip: any number): sample 57 is damaged; before it "
                        "sample 7 is damaged; sample 12";
        assert_non_null(strstr(more == 0 ? r.log : r.message, want));
    }
}

BEFORE_ALL()
{
    return mkdtemp(folder) == NULL ? -1 : 0;
}

AFTER_ALL()
{
    return rmdir(folder);
}
