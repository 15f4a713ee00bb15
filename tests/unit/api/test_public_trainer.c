/* lvn_trainer in a host program: a loop of steps has the bits of fit and of lvn_job_train, on every
 * layout; several trainers in one process have the bits of each alone; and the process keeps its
 * screen, its signals and its files. */
#include "trainer_job.h"
#include "support/test.h"

#include <ctype.h>
#include <fcntl.h>
#include <ftw.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VALUES = 512, WORDS = 12, LAYOUTS = 7 };

static char dir[64];

typedef struct words {
    int n;
    const char *word[WORDS];
} words;

static const words layouts[LAYOUTS] = {
    {1, {"lanes=1"}},
    {2, {"lanes=2", "num_workers=0"}},
    {1, {"devices=2"}},
    {2, {"devices=3", "lanes=2"}},
    {2, {"accelerator=sim", "lanes=1"}},
    {2, {"accelerator=sim", "lanes=2"}},
    {2, {"accelerator=sim", "devices=2"}},
};

static void must(lvn_status s)
{
    if (s != LVN_OK) {
        fail_msg("%s: %s", lvn_status_name(s), lvn_last_error()->message);
    }
}

static lvn_trainer *make(const words *w)
{
    lvn_trainer *t = NULL;
    must(lvn_trainer_create(&POINT_JOB, &t, .n_args = w->n, .args = w->word));
    assert_non_null(t);
    return t;
}

/* Parameters and buffers, one after the other; returns how many numbers. */
static int read_values(const lvn_trainer *t, float values[VALUES])
{
    int n = 0;
    const char *name;
    for (int i = 0; (name = lvn_trainer_tensor_name(t, i)) != NULL; i++) {
        lvn_tensor *here = lvn_to_device(lvn_trainer_tensor(t, name), LVN_CPU);
        assert_non_null(here);
        assert_true(n + lvn_numel(here) <= VALUES);
        memcpy(values + n, lvn_const_data(here), (size_t)lvn_numel(here) * sizeof(float));
        n += (int)lvn_numel(here);
        lvn_release(here);
    }
    return n;
}

static void assert_same(const float *a, const lvn_trainer *t)
{
    float b[VALUES];
    const int n = read_values(t, b);
    assert_true(n > 150);
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

static void steps(lvn_trainer *t, int n)
{
    for (int i = 0; i < n; i++) {
        must(lvn_trainer_step(t, NULL));
    }
}

static void run_to_end(const words *w, float values[VALUES])
{
    lvn_trainer *t = make(w);
    must(lvn_trainer_fit(t));
    assert_int_equal(lvn_trainer_steps(t), 6);
    assert_true(lvn_trainer_finished(t));
    read_values(t, values);
    lvn_trainer_destroy(t);
}

/* ---- the process ---- */

static void actions_of(struct sigaction all[65])
{
    memset(all, 0, 65 * sizeof *all);
    for (int i = 1; i < 65; i++) {
        (void)sigaction(i, NULL, &all[i]);
    }
}

static off_t size_of(int fd)
{
    return lseek(fd, 0, SEEK_END);
}

TEST(the_process_keeps_screen_signals_and_files)
{
    struct sigaction before[65], after[65];
    char here[4096], file[96];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(file, sizeof file, "%s/empty", dir);
    assert_int_equal(mkdir(file, 0777), 0);
    assert_int_equal(chdir(file), 0);
    snprintf(file, sizeof file, "%s/screen", dir);
    const int screen = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    fflush(stdout);
    const int out = dup(1), err = dup(2);
    assert_true(screen >= 0 && dup2(screen, 1) == 1 && dup2(screen, 2) == 2);
    /* a launcher's variables: this process is nevertheless alone */
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LEVIN_RANK", "1", 1);
    actions_of(before);
    float values[VALUES];
    run_to_end(&layouts[2], values);
    const lvn_status refused =
        lvn_trainer_create(&POINT_JOB, &(lvn_trainer *){NULL}, .n_args = 2,
                           .args = (const char *const[]){"devices=0", "accelerator=gpu"});
    actions_of(after);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LEVIN_RANK");
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    assert_true(refused != LVN_OK);
    assert_int_equal(size_of(screen), 0);
    close(screen);
    for (int i = 1; i < 65; i++) {
        assert_true(before[i].sa_handler == after[i].sa_handler &&
                    before[i].sa_flags == after[i].sa_flags);
    }
    assert_int_equal(chdir(here), 0);
    snprintf(file, sizeof file, "%s/empty", dir);
    assert_int_equal(rmdir(file), 0); /* nothing was written there */
}

/* ---- bits ---- */

TEST(steps_have_the_bits_of_fit_on_every_layout)
{
    float want[VALUES] = {0}, fresh[VALUES];
    run_to_end(&layouts[0], want);
    lvn_trainer *t = make(&layouts[0]);
    read_values(t, fresh);
    assert_true(memcmp(fresh, want, sizeof(float) * 150) != 0); /* something was learned */
    lvn_trainer_destroy(t);
    for (int i = 0; i < LAYOUTS; i++) {
        float fitted[VALUES];
        run_to_end(&layouts[i], fitted);
        t = make(&layouts[i]);
        assert_same(fitted, (steps(t, 6), t));
        assert_same(want, t);
        assert_true(lvn_trainer_finished(t));
        lvn_trainer_destroy(t);
    }
}

/* Its rate follows epochs, which a loop of steps ends, too. */
TEST(steps_move_a_plateau)
{
    const char *args[] = {"scheduler=plateau",    "scheduler.monitor=train/loss",
                          "scheduler.patience=0", "scheduler.threshold=0.9999",
                          "max_epochs=4",         "max_steps=-1"};
    const words w = {6, {args[0], args[1], args[2], args[3], args[4], args[5]}};
    lvn_trainer *fitted = make(&w), *stepped = make(&w);
    must(lvn_trainer_fit(fitted));
    const lvn_trainer_report *report = NULL;
    double first = 0.0, last = 0.0;
    while (!lvn_trainer_finished(stepped)) {
        must(lvn_trainer_step(stepped, &report));
        first = first == 0.0 ? report->lr : first;
        last = report->lr;
    }
    assert_true(last < 0.5 * first);
    float values[VALUES];
    read_values(fitted, values);
    assert_same(values, stepped);
    lvn_trainer_destroy(fitted);
    lvn_trainer_destroy(stepped);
    const words val = {2, {"scheduler=plateau", "scheduler.monitor=val/loss"}};
    lvn_trainer *t = make(&val);
    assert_int_equal(lvn_trainer_step(t, NULL), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "scheduler.monitor=val/loss"));
    lvn_trainer_destroy(t);
}

TEST(a_job_has_the_bits_of_a_trainer)
{
    char out[96], path[128];
    float want[VALUES];
    run_to_end(&layouts[0], want);
    snprintf(out, sizeof out, "out=%s/job", dir);
    snprintf(path, sizeof path, "%s/job/checkpoints/last.safetensors", dir);
    const char *args[] = {out, "quiet=true"};
    must(lvn_job_train(&POINT_JOB, 2, args));
    lvn_trainer *t = make(&layouts[1]);
    must(lvn_trainer_load(t, path));
    assert_int_equal(lvn_trainer_steps(t), 6);
    assert_same(want, t);
    lvn_trainer_destroy(t);
}

TEST(a_trainer_goes_on_from_a_checkpoint)
{
    char path[96];
    float want[VALUES];
    snprintf(path, sizeof path, "%s/middle.safetensors", dir);
    run_to_end(&layouts[0], want);
    for (int at = 1; at <= 5; at++) {
        const words *w = &layouts[at % LAYOUTS], *v = &layouts[(at + 3) % LAYOUTS];
        lvn_trainer *t = make(w);
        steps(t, at);
        must(lvn_trainer_save(t, path));
        steps(t, 6 - at);
        assert_same(want, t);
        must(lvn_trainer_load(t, path)); /* back */
        assert_int_equal(lvn_trainer_steps(t), at);
        assert_false(lvn_trainer_finished(t));
        must(lvn_trainer_fit(t));
        assert_same(want, t);
        lvn_trainer_destroy(t);
        t = make(v);
        must(lvn_trainer_load(t, path));
        steps(t, 6 - at);
        assert_same(want, t);
        lvn_trainer_destroy(t);
    }
}

TEST(validation_changes_nothing)
{
    float want[VALUES];
    for (int i = 0; i < LAYOUTS; i += 2) {
        const lvn_trainer_report *r = NULL;
        double before = 0.0, acc = -1.0;
        run_to_end(&layouts[i], want);
        lvn_trainer *t = make(&layouts[i]);
        for (int k = 0; k < 6; k++) {
            must(lvn_trainer_validate(t, &r));
            assert_int_equal(r->step, k);
            assert_int_equal(r->n_metrics, 2);
            assert_string_equal(r->metric[0].name, "loss");
            before = k == 0 ? r->loss : before;
            must(lvn_trainer_step(t, &r));
            assert_int_equal(r->step, k + 1);
            assert_int_equal(r->epoch, k / 3 + 1);
            assert_int_equal(r->step_in_epoch, k % 3 + 1);
            assert_int_equal(r->samples, 8);
            assert_true(r->last_of_epoch == (k % 3 == 2) && r->last == (k == 5));
            assert_true(r->lr > 0.0 && isfinite(r->loss));
        }
        must(lvn_trainer_validate(t, &r));
        acc = r->metric[1].value;
        assert_true(r->loss < before && acc >= 0.0 && acc <= 1.0);
        assert_int_equal(r->epoch, 2);
        assert_same(want, t);
        lvn_trainer_destroy(t);
    }
}

/* ---- several ---- */

TEST(trainers_in_turn_do_not_meet)
{
    for (int i = 0; i < LAYOUTS; i += 2) {
        const words a = layouts[i];
        words b = layouts[(i + 4) % LAYOUTS];
        b.word[b.n++] = "seed=7";
        float want_a[VALUES], want_b[VALUES];
        run_to_end(&a, want_a);
        run_to_end(&b, want_b);
        assert_true(memcmp(want_a, want_b, sizeof(float) * 150) != 0);
        lvn_trainer *one = make(&a), *two = make(&b);
        for (int k = 0; k < 6; k++) {
            steps(one, 1);
            must(lvn_trainer_validate(two, NULL));
            steps(two, 1);
        }
        assert_same(want_a, one);
        lvn_trainer_destroy(one);
        assert_same(want_b, two);
        lvn_trainer_destroy(two);
    }
}

typedef struct member {
    words w;
    bool by_steps;
    float values[VALUES];
    int n;
    lvn_status status;
} member;

static void *train_member(void *argument)
{
    member *m = argument;
    lvn_trainer *t = NULL;
    m->status = lvn_trainer_create(&POINT_JOB, &t, .n_args = m->w.n, .args = m->w.word);
    for (int i = 0; i < 6 && m->by_steps && m->status == LVN_OK; i++) {
        m->status = lvn_trainer_step(t, NULL);
    }
    if (m->status == LVN_OK) {
        m->status = lvn_trainer_fit(t); /* by_steps: nothing is left */
    }
    if (m->status == LVN_OK) {
        m->n = read_values(t, m->values);
    }
    lvn_trainer_destroy(t);
    return NULL;
}

TEST(trainers_in_threads_do_not_meet)
{
    enum { THREADS = 4 };
    static const int layout[THREADS] = {1, 2, 4, 6};
    static const char *const seed[THREADS] = {"seed=1", "seed=2", "seed=3", "seed=4"};
    static member m[THREADS];
    float want[THREADS][VALUES];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        m[i] = (member){.w = layouts[layout[i]], .by_steps = i % 2 == 0};
        m[i].w.word[m[i].w.n++] = seed[i];
        run_to_end(&m[i].w, want[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, train_member, &m[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(m[i].status, LVN_OK);
        assert_memory_equal(m[i].values, want[i], (size_t)m[i].n * sizeof(float));
    }
}

/* ---- callbacks ---- */

typedef struct seen {
    lvn_trainer *trainer;
    pthread_t thread;
    int steps, validations, epochs, checkpoints, lines, warnings, refused;
    int stop_at;
    double last_loss;
    char first_line[128];
} seen;

static bool on_step(void *user, const lvn_trainer_report *r)
{
    seen *s = user;
    s->steps++;
    assert_true(pthread_equal(s->thread, pthread_self()));
    assert_int_equal(r->step, s->steps);
    assert_int_equal(lvn_trainer_steps(s->trainer), s->steps);
    assert_non_null(lvn_trainer_tensor(s->trainer, "head.weight"));
    s->refused += lvn_trainer_step(s->trainer, NULL) == LVN_ERR_USAGE;
    s->refused += lvn_trainer_save(s->trainer, "/nowhere") == LVN_ERR_USAGE;
    lvn_trainer_destroy(s->trainer); /* stays */
    s->last_loss = r->loss;
    return s->steps == s->stop_at;
}

static bool on_validation(void *user, const lvn_trainer_report *r)
{
    seen *s = user;
    s->validations++;
    assert_true(r->last_of_epoch && r->step == s->epochs * 3 + 3 && isfinite(r->loss));
    return false;
}

static bool on_epoch(void *user, const lvn_trainer_report *r)
{
    seen *s = user;
    s->epochs++;
    assert_int_equal(r->epoch, s->epochs);
    assert_true(isfinite(r->loss) && r->loss != s->last_loss);
    return false;
}

static bool on_checkpoint(void *user, const lvn_trainer_report *r)
{
    seen *s = user;
    s->checkpoints++;
    assert_true(r->step > 0 && r->step % 2 == 1);
    return false;
}

static void on_line(void *user, lvn_log_level level, const char *text)
{
    seen *s = user;
    assert_true(level >= LVN_LOG_DETAIL && level <= LVN_LOG_ERROR && strlen(text) > 0);
    if (s->lines++ == 0) {
        snprintf(s->first_line, sizeof s->first_line, "%s", text);
    }
    s->warnings += level == LVN_LOG_WARNING && strncmp(text, "W206: 2 ranks run on", 20) == 0;
}

TEST(fit_shows_what_it_does_and_stops_when_asked)
{
    float want[VALUES];
    run_to_end(&layouts[0], want);
    for (int i = 0; i < LAYOUTS; i += 2) {
        seen s = {.thread = pthread_self(), .stop_at = 2};
        char out[96];
        snprintf(out, sizeof out, "out=%s/shown-%d", dir, i);
        const char *args[] = {out, "checkpoint.every_n_steps=3", layouts[i].word[0],
                              layouts[i].n > 1 ? layouts[i].word[1] : "verbose=false"};
        must(lvn_trainer_create(&POINT_JOB, &s.trainer, .n_args = 4, .args = args, .log = on_line,
                                .on_step = on_step, .on_validation = on_validation,
                                .on_epoch = on_epoch, .user = &s));
        assert_true(s.lines > 0);
        must(lvn_trainer_fit(s.trainer));
        /* ranks agree on it with the next step; a device had begun one */
        assert_true(s.steps == 2 || (i > 0 && s.steps <= 4));
        assert_int_equal(lvn_trainer_steps(s.trainer), s.steps);
        assert_false(lvn_trainer_finished(s.trainer));
        must(lvn_trainer_fit(s.trainer));
        assert_same(want, s.trainer);
        assert_true(s.steps == 6 && s.validations == 2 && s.epochs == 2);
        assert_int_equal(s.refused, 12);
        assert_int_equal(s.warnings, i == 2); /* ranks of the CPU that were not asked for by name */
        lvn_trainer_destroy(s.trainer);
    }
}

TEST(checkpoints_are_shown)
{
    seen s = {0};
    char out[96], path[128];
    snprintf(out, sizeof out, "out=%s/kept", dir);
    const char *args[] = {out, "max_epochs=1"};
    must(lvn_trainer_create(&POINT_JOB, &s.trainer, .n_args = 2, .args = args,
                            .on_checkpoint = on_checkpoint, .user = &s));
    must(lvn_trainer_fit(s.trainer));
    assert_int_equal(s.checkpoints, 1); /* of step 3 */
    lvn_trainer_destroy(s.trainer);
    snprintf(path, sizeof path, "%s/kept/checkpoints/best.safetensors", dir);
    assert_int_equal(access(path, R_OK), 0);
    snprintf(path, sizeof path, "%s/kept/metrics.jsonl", dir);
    assert_int_equal(access(path, R_OK), 0);
    /* and the run can be resumed by others */
    float want[VALUES];
    run_to_end(&layouts[0], want);
    const char *resumed[] = {out, "resume=true", "max_epochs=2"};
    must(lvn_trainer_create(&POINT_JOB, &s.trainer, .n_args = 3, .args = resumed));
    assert_int_equal(lvn_trainer_steps(s.trainer), 3);
    steps(s.trainer, 3);
    assert_same(want, s.trainer);
    lvn_trainer_destroy(s.trainer);
}

/* ---- the order of callbacks ---- */

typedef struct callbacks {
    char text[64];
    size_t n;
    int written;
} callbacks;

static bool note_one(callbacks *t, char what)
{
    assert_true(t->n + 1 < sizeof t->text);
    t->text[t->n++] = what;
    return false;
}

static bool note_step(void *user, const lvn_trainer_report *r)
{
    (void)r;
    return note_one(user, 's');
}

static bool note_validation(void *user, const lvn_trainer_report *r)
{
    (void)r;
    return note_one(user, 'v');
}

static bool note_epoch(void *user, const lvn_trainer_report *r)
{
    (void)r;
    return note_one(user, 'e');
}

/* It is written while the run goes on: after its step, and no more is fixed. */
static bool count_written(void *user, const lvn_trainer_report *r)
{
    callbacks *t = user;
    (void)r;
    assert_true(t->n > 0 && ++t->written > 0);
    return false;
}

/* A validation after the step that it is due at, and before the end of the epoch. The sanity check
 * calls nothing. */
TEST(callbacks_come_in_a_fixed_order)
{
    static const char *const layout[] = {"lanes=1", "devices=2"}, *const interval[] = {
                                                                      "val_check_interval=2",
                                                                      "val_check_interval=0.34"};
    for (int i = 0; i < 2; i++) {
        lvn_trainer *t = NULL;
        callbacks order = {.n = 0};
        char out[96];
        snprintf(out, sizeof out, "out=%s/order-%d", dir, i);
        const char *args[] = {out, "num_sanity_val_steps=2", interval[i],
                              "checkpoint.every_n_steps=1", layout[i]};
        must(lvn_trainer_create(&POINT_JOB, &t, .n_args = 5, .args = args, .on_step = note_step,
                                .on_validation = note_validation, .on_epoch = note_epoch,
                                .on_checkpoint = count_written, .user = &order));
        must(lvn_trainer_fit(t));
        lvn_trainer_destroy(t);
        assert_string_equal(order.text, i == 0 ? "ssvsessvse" : "svsvsvesvsvsve");
    }
}

static void *stop_soon(void *argument)
{
    usleep(20000);
    lvn_trainer_stop(argument);
    return NULL;
}

TEST(another_thread_stops_a_fit)
{
    static const char *const args[] = {"max_epochs=-1", "max_steps=-1"};
    lvn_trainer *t;
    pthread_t thread;
    must(lvn_trainer_create(&POINT_JOB, &t, .n_args = 2, .args = args));
    lvn_trainer_stop(t);
    must(lvn_trainer_fit(t)); /* at once */
    assert_int_equal(lvn_trainer_steps(t), 0);
    must(lvn_trainer_validate(t, NULL));
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, t), 0);
    must(lvn_trainer_fit(t)); /* without end, else */
    pthread_join(thread, NULL);
    const int64_t at = lvn_trainer_steps(t);
    assert_true(at > 0);
    steps(t, 1);
    assert_int_equal(lvn_trainer_steps(t), at + 1);
    lvn_trainer_destroy(t);
}

/* ---- values ---- */

TEST(a_value_is_written_on_all_ranks)
{
    float weight[3] = {0.5f, -1.0f, 2.0f}, want[VALUES] = {0};
    lvn_tensor *value = lvn_tensor_wrap(weight, LVN_F32, LVN_SHAPE(3)),
               *wrong = lvn_tensor_wrap(weight, LVN_F32, LVN_SHAPE(3, 1));
    for (int i = 0; i < LAYOUTS; i++) {
        lvn_trainer *t = make(&layouts[i]);
        steps(t, 2);
        must(lvn_trainer_write(t, "head.bias", value));
        lvn_tensor *now = lvn_to_device(lvn_trainer_tensor(t, "head.bias"), LVN_CPU);
        assert_memory_equal(lvn_const_data(now), weight, sizeof weight);
        lvn_release(now);
        steps(t, 4);
        if (i == 0) {
            read_values(t, want);
        }
        assert_same(want, t);
        assert_int_equal(lvn_trainer_write(t, "head.bias", wrong), LVN_ERR_SHAPE);
        assert_non_null(strstr(lvn_last_error()->message, "head.bias is f32 (3), the value f32"));
        assert_int_equal(lvn_trainer_write(t, "nothing", value), LVN_ERR_NOT_FOUND);
        assert_int_equal(lvn_trainer_write(t, "head.bias", NULL), LVN_ERR_INVALID);
        lvn_trainer_destroy(t);
    }
    lvn_release(value);
    lvn_release(wrong);
}

TEST(the_module_can_be_run)
{
    lvn_trainer *t = make(&layouts[0]);
    steps(t, 3);
    must(lvn_scope_open());
    lvn_tensor *y = lvn_forward(lvn_trainer_module(t), lvn_zeros(LVN_F32, LVN_SHAPE(5, 4)));
    assert_true(lvn_size(y, 0) == 5 && lvn_size(y, 1) == 3);
    must(lvn_scope_close());
    lvn_trainer_destroy(t);
}

/* ---- errors ---- */

static void refused(lvn_job job, lvn_status status, const char *part, const char *word)
{
    lvn_trainer *t = (lvn_trainer *)&job;
    const int before = points_destroyed;
    assert_int_equal(lvn_trainer_create(&job, &t, .n_args = 1, .args = &word), status);
    assert_null(t);
    if (strstr(lvn_last_error()->message, part) == NULL) {
        fail_msg("no \"%s\" in: %s", part, lvn_last_error()->message);
    }
    assert_int_equal(points_destroyed - before, (job.train != NULL) + (job.val != NULL));
    lvn_clear_error();
}

TEST(wrong_jobs_and_keys_are_refused)
{
    lvn_job job = POINT_JOB;
    refused(job, LVN_ERR_USAGE, "max_epochs", "max_epoch=3");
    refused(job, LVN_ERR_USAGE, "batch_size", "batch_size=0");
    refused(job, LVN_ERR_USAGE, "resume=true needs out=DIR", "resume=true");
    refused(job, LVN_ERR_USAGE, "freeze", "freeze=[nothing]");
    refused(job, LVN_ERR_USAGE, "cannot open", "weights=/nowhere.safetensors");
    job.train = NULL;
    refused(job, LVN_ERR_INVALID, "a job needs a training set", "max_epochs=1");
    job = POINT_JOB;
    job.module = NULL;
    refused(job, LVN_ERR_INVALID, "a job needs a module class", "max_epochs=1");
    lvn_trainer *t;
    assert_int_equal(lvn_trainer_create_with(&POINT_JOB, &t, &(lvn_trainer_options){0}),
                     LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "struct_size"));
    assert_int_equal(lvn_trainer_create(&POINT_JOB, &t, .n_args = 2), LVN_ERR_INVALID);
}

TEST(wrong_calls_are_refused)
{
    char path[96];
    lvn_job other = POINT_JOB;
    other.module = &other_net;
    other.val = NULL;
    lvn_trainer *t = make(&layouts[2]), *wide = NULL;
    must(lvn_trainer_create(&other, &wide));
    assert_int_equal(lvn_trainer_validate(wide, NULL), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "no validation set"));
    steps(t, 6);
    assert_int_equal(lvn_trainer_step(t, NULL), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "at its end, step 6"));
    must(lvn_trainer_fit(t)); /* nothing to do */
    assert_int_equal(lvn_trainer_load(t, "/nowhere/a.safetensors"), LVN_ERR_NOT_FOUND);
    assert_int_equal(lvn_trainer_save(t, "/nowhere/a.safetensors"), LVN_ERR_NOT_FOUND);
    assert_int_equal(lvn_trainer_save(t, NULL), LVN_ERR_INVALID);
    snprintf(path, sizeof path, "%s/other.safetensors", dir);
    must(lvn_trainer_save(wide, path));
    float before[VALUES];
    read_values(t, before);
    assert_int_equal(lvn_trainer_load(t, path), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "has another shape or type"));
    assert_same(before, t);
    must(lvn_trainer_validate(t, NULL)); /* it is as before */
    assert_null(lvn_trainer_tensor(t, "head"));
    assert_int_equal(lvn_last_error()->code, LVN_ERR_NOT_FOUND);
    lvn_trainer_destroy(wide);
    lvn_trainer_destroy(t);
    lvn_trainer_destroy(NULL);
}

TEST(a_failed_step_ends_a_trainer)
{
    for (int i = 0; i < LAYOUTS; i += 2) {
        lvn_trainer *t = make(&layouts[i]);
        points_end = 0;
        const lvn_status s = i % 4 == 0 ? lvn_trainer_fit(t) : lvn_trainer_step(t, NULL);
        points_end = -1;
        assert_int_equal(s, LVN_ERR_CORRUPT);
        assert_non_null(strstr(lvn_last_error()->message, "is damaged"));
        assert_int_equal(lvn_trainer_step(t, NULL), LVN_ERR_USAGE);
        assert_non_null(strstr(lvn_last_error()->message, "this trainer has failed"));
        assert_int_equal(lvn_trainer_save(t, "/nowhere"), LVN_ERR_USAGE);
        assert_int_equal(lvn_trainer_steps(t), 0);
        assert_non_null(lvn_trainer_tensor(t, "head.weight"));
        lvn_trainer_destroy(t);
    }
}

TEST(two_trainers_do_not_share_a_directory)
{
    char out[2][96];
    lvn_trainer *t[2], *third;
    for (int i = 0; i < 2; i++) {
        snprintf(out[i], sizeof out[i], "out=%s/both-%d", dir, i);
        const char *args[] = {out[i]};
        must(lvn_trainer_create(&POINT_JOB, &t[i], .n_args = 1, .args = args));
    }
    const char *same[] = {out[0], "overwrite=true"};
    assert_int_equal(lvn_trainer_create(&POINT_JOB, &third, .n_args = 2, .args = same),
                     LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "is training in"));
    steps(t[0], 1);
    steps(t[1], 6);
    steps(t[0], 5);
    lvn_trainer_destroy(t[1]);
    lvn_trainer_destroy(t[0]);
    must(lvn_trainer_create(&POINT_JOB, &third, .n_args = 2, .args = same)); /* free now */
    lvn_trainer_destroy(third);
}

/* ---- */

/* Of a German locale, which writes 0,5; false: this system cannot make one. */
static bool make_locale(void)
{
    char command[320];
    snprintf(command, sizeof command,
             "mkdir -p %s/locale && localedef -i de_DE -f UTF-8 %s/locale/de_DE.UTF-8 "
             ">/dev/null 2>&1",
             dir, dir);
    if (system(command) != 0) { /* NOLINT(cert-env33-c): a test */
        return false;
    }
    snprintf(command, sizeof command, "%s/locale", dir);
    setenv("LOCPATH", command, 1);
    return true;
}

/* Is there a comma between digits? In JSON text none is. */
static bool has_decimal_comma(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", dir, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    bool found = false;
    int last[2] = {0, 0}, n = 0;
    for (int c; (c = fgetc(f)) != EOF; last[0] = last[1], last[1] = c, n++) {
        found = found || (isdigit(last[0]) && last[1] == ',' && isdigit(c));
    }
    fclose(f);
    assert_true(n > 200);
    return found;
}

/* The locale is the program's: it changes neither what is read nor what is written. */
TEST(numbers_have_a_point_in_every_locale)
{
    if (!make_locale()) {
        print_message("skipped: localedef cannot make de_DE.UTF-8 (Debian: locales)\n");
        skip();
    }
    static const char *const when[] = {"never", "before", "after"};
    float want[VALUES];
    for (int i = 0; i < 3; i++) {
        char out[96], file[96], text[16];
        snprintf(out, sizeof out, "out=%s/%s", dir, when[i]);
        snprintf(file, sizeof file, "%s/number-%d", dir, i);
        const char *args[] = {out, "optim.lr=2.5e-2", "precision=16-mixed", "log_every_n_steps=1",
                              "weight_decay=0.5"};
        assert_non_null(setlocale(LC_ALL, i == 1 ? "de_DE.UTF-8" : "C"));
        lvn_trainer *t = NULL;
        must(lvn_trainer_create(&POINT_JOB, &t, .n_args = 5, .args = args));
        assert_non_null(setlocale(LC_ALL, i == 0 ? "C" : "de_DE.UTF-8"));
        steps(t, 3);
        must(lvn_trainer_save(t, file));
        lvn_trainer_destroy(t);
        t = make(&(words){1, {"precision=16-mixed"}});
        must(lvn_trainer_load(t, file));
        if (i == 0) {
            read_values(t, want);
        }
        assert_same(want, t);
        lvn_trainer_destroy(t);
        (void)lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%.1f", 0.5);
        assert_string_equal(lvn_last_error()->message, "0.5");
        snprintf(text, sizeof text, "%.1f", 0.5);
        assert_string_equal(text, i == 0 ? "0.5" : "0,5"); /* the program's own is left alone */
        setlocale(LC_ALL, "C");
        assert_false(has_decimal_comma(when[i]));
    }
}

BEFORE_ALL()
{
    setenv("LEVIN_SIM_DEVICES", "2", 1);
    setenv("LEVIN_SIM_MEMORY", "64MiB", 1);
    snprintf(dir, sizeof dir, "/tmp/levin-trainer-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

AFTER_ALL()
{
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
