/* Rungs: each decision of random histories is computed again from the stored records, by another
 * way than the one that made it; numbers without gaps when several processes report at once. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"
#include "sweep/sweep_asha.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIALS = 40, PROCESSES = 6, TRIALS_EACH = 8 };

static char dir[64], strategy[] = "asha", metric[] = "val/loss";
static lvni_sweep_plan plan;
static lvni_sweep_owner self;

static void make_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
}

static void make_trials(int64_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/trials", dir);
    make_folder(path);
    for (int64_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/trials/%06lld", dir, (long long)i);
        make_folder(path);
    }
}

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-asha-XXXXXX");
    assert_non_null(mkdtemp(dir));
    plan = (lvni_sweep_plan){.dir = dir,
                             .strategy = strategy,
                             .metric = metric,
                             .n_trials = TRIALS,
                             .dead_after_s = 300,
                             .asha = {.eta = 3, .min = 1, .max = 27}};
    lvni_sweep_owner_self(&self);
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    lvni_core_vfs_fail_at("open", 0, 0);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

TEST_EACH(begin, end);

static bool stops(int64_t trial, int64_t attempt, int64_t epoch, double value)
{
    bool stop;
    assert_int_equal(lvni_sweep_asha_report(
                         &plan,
                         &(lvni_sweep_report){
                             .trial = trial, .attempt = attempt, .epoch = epoch, .value = value},
                         &self, &stop),
                     LVN_OK);
    return stop;
}

static bool is_pruned(int64_t trial, int64_t attempt)
{
    char path[128];
    snprintf(path, sizeof path, "%s/trials/%06lld", dir, (long long)trial);
    return lvni_sweep_was_pruned(path, attempt);
}

/* ---- computed again ---- */

/* The best first; equal ones by their number, what is not a number last. */
static bool is_behind(const lvni_sweep_record *a, const lvni_sweep_record *b)
{
    const double x = plan.maximize ? -a->of.value : a->of.value,
                 y = plan.maximize ? -b->of.value : b->of.value;
    if (!isfinite(x) || !isfinite(y)) {
        return isfinite(y) || (!isfinite(x) && a->saw > b->saw);
    }
    return x > y || (x == y && a->saw > b->saw);
}

/* All records of a rung: those up to each one are sorted, and the best of them go on. */
static int64_t check_rung(int64_t rung, int64_t *stopped)
{
    lvni_sweep_record *records, sorted[TRIALS + PROCESSES * TRIALS_EACH];
    int64_t n;
    assert_int_equal(lvni_sweep_rung_read(&plan, rung, &records, &n), LVN_OK);
    assert_true(n <= (int64_t)(sizeof sorted / sizeof *sorted));
    for (int64_t i = 0; i < n; i++) {
        const lvni_sweep_record *own = &records[i];
        int64_t at = i; /* sorted by insertion */
        for (; at > 0 && is_behind(&sorted[at - 1], own); at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = *own;
        const int64_t m = i + 1;
        const bool among = m < plan.asha.eta || at * plan.asha.eta < m;
        assert_int_equal(own->saw, m);
        assert_int_equal(own->verdict.place, at + 1);
        assert_int_equal(own->verdict.stop, !among || !isfinite(own->of.value));
        *stopped += own->verdict.stop;
        for (int64_t k = 0; k < i; k++) {
            assert_true(records[k].of.trial != own->of.trial);
        }
    }
    lvni_core_free(records);
    return n;
}

TEST(rungs)
{
    static const struct {
        int64_t epoch, rung;
    } cases[] = {{0, 0}, {1, 1}, {2, 1}, {3, 3}, {8, 3}, {9, 9}, {26, 9}, {27, 9}, {1000, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(lvni_sweep_rung_of(&plan.asha, cases[i].epoch), cases[i].rung);
    }
}

/* T112: nine values that come in ascending order of the loss. */
TEST(nine_that_get_worse)
{
    static const bool stop[] = {false, false, true, true, true, true, true, true, true};
    make_trials(9);
    for (int64_t i = 0; i < 9; i++) {
        assert_int_equal(stops(i, 1, 1, (double)(i + 1)), stop[i]);
        assert_int_equal(is_pruned(i, 1), stop[i]);
    }
    int64_t stopped = 0;
    assert_int_equal(check_rung(1, &stopped), 9);
    assert_int_equal(stopped, 7);
}

static void run_history(uint64_t seed)
{
    int64_t epochs[TRIALS] = {0}, left = TRIALS, stopped = 0, recorded = 0;
    srand((unsigned)seed);
    plan.maximize = seed % 2 == 1;
    plan.asha = (lvni_sweep_asha){
        .eta = 2 + (int64_t)(seed % 3), .min = 1 + (int64_t)(seed % 2), .max = 20};
    make_trials(TRIALS);
    while (left > 0) {
        const int64_t trial = rand() % TRIALS;
        if (epochs[trial] < 0) {
            continue;
        }
        const int kind = rand() % 12;
        const double value = kind == 0   ? (double)NAN
                             : kind == 1 ? (double)INFINITY
                             : kind == 2 ? -(double)INFINITY
                                         : (double)(rand() % 8) / 8; /* many are equal */
        const bool stop = stops(trial, 1, ++epochs[trial], value);
        if (stop) {
            assert_int_equal(is_pruned(trial, 1), epochs[trial] < plan.asha.max);
            epochs[trial] = -1;
            left--;
        }
    }
    for (int64_t rung = plan.asha.min; rung < plan.asha.max; rung *= plan.asha.eta) {
        recorded += check_rung(rung, &stopped);
    }
    assert_true(recorded >= TRIALS && stopped > 0 && stopped <= TRIALS);
}

TEST(random_histories)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        run_history(seed);
        end(NULL);
        begin(NULL);
    }
}

/* After a kill it gets the same answer, whatever it brings; by hand it goes on from there. */
TEST(a_trial_that_reports_again)
{
    char result[128], failed[128];
    make_trials(3);
    assert_false(stops(0, 1, 1, 1));
    assert_false(stops(1, 1, 1, 2));
    assert_true(stops(2, 1, 2, 3)); /* between rungs: of the one below */
    assert_true(stops(2, 2, 1, 0));
    assert_true(is_pruned(2, 2));
    assert_false(stops(0, 2, 1, 9));
    int64_t stopped = 0;
    assert_int_equal(check_rung(1, &stopped), 3);
    snprintf(result, sizeof result, "%s/trials/000002/pruned.2", dir);
    snprintf(failed, sizeof failed, "%s/trials/000002/failed.2", dir);
    assert_int_equal(link(result, failed), 0); /* as levin sweep resume pruned=[2] leaves it */
    assert_false(stops(2, 3, 1, 3));
    assert_false(is_pruned(2, 3));
    assert_false(stops(2, 3, 3, 3)); /* the first of the next rung */
    assert_true(stops(2, 3, 27, 3)); /* its end */
    assert_false(is_pruned(2, 3));
}

TEST(processes_at_once)
{
    pid_t pids[PROCESSES];
    int64_t stopped = 0;
    make_trials((int64_t)PROCESSES * TRIALS_EACH);
    for (int p = 0; p < PROCESSES; p++) {
        pids[p] = fork();
        assert_true(pids[p] >= 0);
        if (pids[p] == 0) {
            lvni_sweep_owner own;
            bool stop, good = true;
            lvni_sweep_owner_self(&own);
            for (int i = 0; i < TRIALS_EACH && good; i++) {
                const lvni_sweep_report report = {.trial = (int64_t)p * TRIALS_EACH + i,
                                                  .attempt = 1,
                                                  .epoch = 1,
                                                  .value = (double)((p * 7 + i * 5) % 11)};
                good = lvni_sweep_asha_report(&plan, &report, &own, &stop) == LVN_OK;
            }
            _exit(good ? 0 : 1);
        }
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(check_rung(1, &stopped), (int64_t)PROCESSES * TRIALS_EACH);
}

TEST(a_damaged_record)
{
    char path[128];
    bool stop;
    make_trials(2);
    assert_false(stops(0, 1, 1, 1));
    snprintf(path, sizeof path, "%s/rungs/000001/record.1", dir);
    assert_int_equal(lvni_core_file_write(path, "{\"saw\": 2}", 10), LVN_OK);
    assert_int_equal(
        lvni_sweep_asha_report(&plan, &(lvni_sweep_report){.trial = 1, .attempt = 1, .epoch = 1},
                               &self, &stop),
        LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "record.1"));
}
