/* Workers as processes, on real files: no trial is lost and none ends twice, whatever is killed,
 * stopped or late. The trials are functions that run in the workers themselves.
 *
 * LEVIN_TEST_SLOW=1: 10,000 trials by 32 workers with the time that claims take, and 200 kills
 * instead of 30. LEVIN_TEST_SEED=N: other moments. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/vfs.h"
#include "support/test.h"
#include "sweep/sweep_records_impl.h"
#include "sweep/sweep_work.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TRIALS = 10000, MAX_WORKERS = 32, SLEEP_US = 10000 };

static char dir[64];
static lvni_sweep_plan plan;

/* What the workers measure, in memory that all share. */
static struct measured {
    _Atomic int claims;
    float claim_ms[2 * MAX_TRIALS];
} * measured;

static bool slow(void)
{
    return getenv("LEVIN_TEST_SLOW") != NULL;
}

static char **list(const char *const *texts)
{
    char **out = NULL;
    for (; *texts != NULL; texts++) {
        assert_int_equal(lvni_sweep_texts_add(&out, *texts, strlen(*texts)), LVN_OK);
    }
    return out;
}

static char *copy(const char *text)
{
    char **one = list((const char *const[]){text, NULL}), *out = one[0];
    one[0] = NULL;
    lvni_sweep_texts_free(one);
    return out;
}

/* A sweep of n trials in a new folder. */
static void make_sweep(int64_t n, int64_t dead_after_s)
{
    strcpy(dir, "/tmp/levin-sweep-XXXXXX");
    assert_non_null(mkdtemp(dir));
    lvni_sweep_plan made = {.dir = copy(dir),
                            .name = copy("work"),
                            .strategy = copy("grid"),
                            .parameters = list((const char *const[]){"x", NULL}),
                            .command = list((const char *const[]){"true", "{x}", NULL}),
                            .metric = copy("loss"),
                            .dead_after_s = dead_after_s};
    lvni_sweep_points points = {.n = n, .n_parameters = 1};
    for (int64_t i = 0; i < n; i++) {
        char text[24];
        snprintf(text, sizeof text, "%" PRId64, i);
        assert_int_equal(lvni_sweep_texts_add(&points.values, text, strlen(text)), LVN_OK);
    }
    assert_int_equal(lvni_sweep_plan_write(&made, &points), LVN_OK);
    lvni_sweep_points_free(&points);
    lvni_sweep_plan_free(&made);
    assert_int_equal(lvni_sweep_plan_read(dir, &plan), LVN_OK);
    memset(measured, 0, sizeof *measured);
}

static int begin(void **state)
{
    (void)state;
    measured =
        mmap(NULL, sizeof *measured, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return measured == MAP_FAILED;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    lvni_sweep_plan_free(&plan);
    munmap(measured, sizeof *measured);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

TEST_EACH(begin, end);

/* ---- trials ---- */

static void path_in(char out[128], int64_t trial, const char *name)
{
    snprintf(out, 128, "%s/trials/%06" PRId64 "/%s", dir, trial, name);
}

/* A byte in the trial's file `ran` for each time that it ran to its end. */
static int trial_of_10_ms(const lvni_sweep_trial *trial, void *user)
{
    (void)user;
    char path[128];
    usleep(SLEEP_US);
    path_in(path, trial->index, "ran");
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    const bool written = fd >= 0 && write(fd, ".", 1) == 1;
    close(fd);
    return written ? 0 : 1;
}

static void claimed(double seconds, void *user)
{
    (void)user;
    const int i = measured->claims++;
    if (i < 2 * MAX_TRIALS) {
        measured->claim_ms[i] = (float)(1e3 * seconds);
    }
}

static pid_t start_worker(lvni_sweep_function *function, lvni_sweep_ask *question, int i, int n)
{
    const lvni_sweep_work_options options = {.function = function,
                                             .ask = question,
                                             .claimed = claimed,
                                             .parallel = 1,
                                             .only = -1,
                                             .first = plan.n_trials * i / n,
                                             .quiet = true};
    const pid_t pid = fork();
    if (pid == 0) {
        int code = 1;
        const lvn_status s = lvni_sweep_work(&plan, &options, &code);
        if (s != LVN_OK) {
            fprintf(stderr, "worker %d: %s\n", i, lvn_last_error()->message);
        }
        _exit(s != LVN_OK ? 2 : code);
    }
    assert_true(pid > 0);
    return pid;
}

static int exit_of(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int64_t size_of(int64_t trial, const char *name)
{
    char path[128];
    struct stat st;
    path_in(path, trial, name);
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* How many of a trial's attempts have ended it. */
static int ends_of(int64_t trial)
{
    int ends = 0;
    for (int k = 1;; k++) {
        char path[128], name[16], *text;
        size_t n;
        snprintf(name, sizeof name, "left.%d", k);
        path_in(path, trial, name);
        if (lvni_core_file_read(path, 1 << 16, &text, &n) != LVN_OK) {
            return ends;
        }
        ends += strstr(text, "\"ended\"") != NULL;
        lvni_core_free(text);
    }
}

static void check_all_done(void)
{
    lvni_sweep_reader *reader;
    assert_int_equal(lvni_sweep_reader_create(&plan, lvni_sweep_ask_host, NULL, NULL, &reader),
                     LVN_OK);
    for (int64_t i = 0; i < plan.n_trials; i++) {
        lvni_sweep_look look;
        assert_int_equal(lvni_sweep_reader_look(reader, i, &look), LVN_OK);
        assert_int_equal(look.state, LVNI_SWEEP_DONE);
        assert_int_equal(ends_of(i), 1);
        assert_true(size_of(i, "ran") >= 1);
    }
    lvni_sweep_reader_destroy(reader);
}

/* ---- tests ---- */

static void all_run_once(int64_t trials, int n)
{
    pid_t pids[MAX_WORKERS];
    const uint64_t from = lvni_core_now_ns();
    for (int i = 0; i < n; i++) {
        pids[i] = start_worker(trial_of_10_ms, NULL, i, n);
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(exit_of(pids[i]), 0);
    }
    const double seconds = lvni_core_seconds_since(from);
    for (int64_t i = 0; i < trials; i++) {
        assert_int_equal(size_of(i, "ran"), 1);
        assert_int_equal(size_of(i, "claim.2"), -1);
    }
    check_all_done();
    assert_int_equal(measured->claims, trials);
    print_message("%" PRId64 " trials, %d workers: %.1f s\n", trials, n, seconds);
}

TEST(each_trial_is_run_once)
{
    make_sweep(500, 300);
    all_run_once(500, 8);
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

TEST(ten_thousand_trials)
{
    if (!slow()) {
        print_message("only with LEVIN_TEST_SLOW=1\n");
        skip();
    }
    make_sweep(MAX_TRIALS, 300);
    const uint64_t from = lvni_core_now_ns();
    all_run_once(MAX_TRIALS, MAX_WORKERS);
    qsort(measured->claim_ms, MAX_TRIALS, sizeof(float), by_size);
    print_message("claims: median %.2f ms, 99 %% %.2f ms, longest %.1f ms; with checks %.1f s\n",
                  (double)measured->claim_ms[MAX_TRIALS / 2],
                  (double)measured->claim_ms[MAX_TRIALS * 99 / 100],
                  (double)measured->claim_ms[MAX_TRIALS - 1], lvni_core_seconds_since(from));
}

static uint64_t state_of_chance;

static uint64_t chance(uint64_t n)
{
    state_of_chance = state_of_chance * 6364136223846793005u + 1442695040888963407u;
    return (state_of_chance >> 33) % n;
}

/* Workers are killed wherever they are, and others begin. */
TEST(killed_workers_lose_nothing)
{
    const int n = slow() ? MAX_WORKERS : 8, kills = slow() ? 200 : 30;
    const char *seed = getenv("LEVIN_TEST_SEED");
    pid_t pids[MAX_WORKERS];
    make_sweep(slow() ? 4000 : 300, 300);
    state_of_chance = seed == NULL ? 1 : strtoull(seed, NULL, 10);
    for (int i = 0; i < n; i++) {
        pids[i] = start_worker(trial_of_10_ms, NULL, i, n);
    }
    int killed = 0;
    for (int k = 0; killed < kills && k < 2 * kills; k++) {
        const int i = (int)chance((uint64_t)n);
        usleep((useconds_t)chance(5000));
        kill(pids[i], SIGKILL);
        killed += exit_of(pids[i]) == 128 + SIGKILL;
        pids[i] = start_worker(trial_of_10_ms, NULL, i, n);
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(exit_of(pids[i]), 0);
    }
    assert_int_equal(killed, kills);
    int attempts = 0;
    for (int64_t i = 0; i < plan.n_trials; i++) {
        attempts += size_of(i, "claim.2") >= 0;
    }
    print_message("%d killed, %d trials taken over\n", killed, attempts);
    assert_true(attempts > 0);
    check_all_done();
}

/* ---- one that is late ---- */

static int stopped_trial(const lvni_sweep_trial *trial, void *user)
{
    (void)trial;
    (void)user;
    raise(SIGSTOP);
    return 0;
}

static lvni_sweep_alive gone(const lvni_sweep_owner *owner, void *user)
{
    (void)owner;
    (void)user;
    return LVNI_SWEEP_GONE;
}

/* Stopped for longer than dead_after, while the table of processes has it as gone. */
TEST(late_result_is_refused_and_logged)
{
    int status;
    make_sweep(1, 1);
    const pid_t late = start_worker(stopped_trial, NULL, 0, 1);
    assert_int_equal(waitpid(late, &status, WUNTRACED), late);
    assert_true(WIFSTOPPED(status));
    const uint64_t from = lvni_core_now_ns();
    assert_int_equal(exit_of(start_worker(trial_of_10_ms, gone, 0, 1)), 0);
    assert_true(lvni_core_seconds_since(from) >= 1.0);
    assert_int_equal(kill(late, SIGCONT), 0);
    assert_int_equal(exit_of(late), 0);
    char path[128], *text;
    size_t n;
    path_in(path, 0, "log.txt");
    assert_int_equal(lvni_core_file_read(path, 1 << 16, &text, &n), LVN_OK);
    assert_non_null(strstr(text, "attempt 1 was taken over"));
    assert_non_null(strstr(text, "its result is refused"));
    lvni_core_free(text);
    lvni_sweep_reader *reader;
    lvni_sweep_look look;
    assert_int_equal(lvni_sweep_reader_create(&plan, gone, NULL, NULL, &reader), LVN_OK);
    assert_int_equal(lvni_sweep_reader_look(reader, 0, &look), LVN_OK);
    assert_int_equal(look.state, LVNI_SWEEP_DONE);
    assert_int_equal(look.result.attempt, 2);
    lvni_sweep_reader_destroy(reader);
    assert_int_equal(ends_of(0), 1);
}
