/* The records of a trial: what a reader makes of them, of damaged ones too, and what a disk or
 * memory that fails leaves. Orders of calls are in test_sweep_model.c. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/vfs.h"
#include "support/test.h"
#include "sweep/sweep_alive.h"
#include "sweep/sweep_records_impl.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], trial[96];
static char metric[] = "val/loss";
static lvni_sweep_plan plan;
static lvni_sweep_owner self;

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-records-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(trial, sizeof trial, "%s/trials", dir);
    assert_int_equal(mkdir(trial, 0777), 0);
    snprintf(trial, sizeof trial, "%s/trials/000000", dir);
    assert_int_equal(mkdir(trial, 0777), 0);
    plan = (lvni_sweep_plan){.dir = dir, .n_trials = 1, .metric = metric, .dead_after_s = 300};
    lvni_sweep_owner_self(&self);
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    lvni_core_vfs_fail_at("open", 0, 0);
    lvni_core_alloc_fail_at(0);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

TEST_EACH(begin, end);

static void path_of(char out[160], const char *name)
{
    snprintf(out, 160, "%s/%s", trial, name);
}

static void put(const char *name, const char *text)
{
    char path[160];
    path_of(path, name);
    assert_int_equal(lvni_core_file_write(path, text, strlen(text)), LVN_OK);
}

static bool is_there(const char *name)
{
    char path[160];
    path_of(path, name);
    return access(path, F_OK) == 0;
}

static lvn_status look_once(lvni_sweep_look *out)
{
    lvni_sweep_reader *reader;
    const lvn_status s = lvni_sweep_reader_create(&plan, lvni_sweep_ask_host, NULL, NULL, &reader);
    if (s != LVN_OK) {
        return s;
    }
    const lvn_status t = lvni_sweep_reader_look(reader, 0, out);
    lvni_sweep_reader_destroy(reader);
    return t;
}

static lvni_sweep_look look(void)
{
    lvni_sweep_look out;
    assert_int_equal(look_once(&out), LVN_OK);
    return out;
}

static void claim(int64_t attempt)
{
    bool won;
    assert_int_equal(lvni_sweep_claim(trial, attempt, &self, &won), LVN_OK);
    assert_true(won);
    assert_int_equal(lvni_sweep_claim(trial, attempt, &self, &won), LVN_OK);
    assert_false(won);
}

static bool leave(int64_t attempt, lvni_sweep_end why, const lvni_sweep_result *result)
{
    bool won;
    assert_int_equal(lvni_sweep_leave(trial, attempt, why, &self, result, &won), LVN_OK);
    return won;
}

TEST(states_of_a_trial)
{
    const lvni_sweep_result good = {.state = LVNI_SWEEP_DIVERGED,
                                    .error = "one \"line\"",
                                    .has_value = true,
                                    .value = 0.25,
                                    .last = (double)NAN,
                                    .step = 12,
                                    .epoch = 3,
                                    .epochs = 4,
                                    .seconds = 1.5,
                                    .checkpoint = "run/checkpoints/best.safetensors"};
    const lvni_sweep_result bad = {.state = LVNI_SWEEP_FAILED, .exit_code = 3};
    assert_int_equal(look().state, LVNI_SWEEP_PENDING);
    claim(1);
    assert_int_equal(look().state, LVNI_SWEEP_RUNNING);
    assert_true(look().there);
    assert_true(leave(1, LVNI_SWEEP_END_INTERRUPTED, NULL));
    assert_int_equal(look().state, LVNI_SWEEP_INTERRUPTED);
    claim(2);
    assert_true(leave(2, LVNI_SWEEP_END_RETRY, &bad));
    assert_int_equal(look().state, LVNI_SWEEP_PENDING);
    assert_int_equal(look().failed, 1);
    assert_false(is_there("result"));
    claim(3);
    assert_true(leave(3, LVNI_SWEEP_END_ENDED, &good));
    assert_false(leave(3, LVNI_SWEEP_END_ENDED, &bad)); /* refused */
    for (int i = 0; i < 2; i++) { /* with `result`, and without it: left.3 counts */
        const lvni_sweep_look found = look();
        assert_int_equal(found.state, LVNI_SWEEP_DIVERGED);
        assert_int_equal(found.attempt, 3);
        assert_int_equal(found.result.attempt, 3);
        assert_string_equal(found.result.error, good.error);
        assert_string_equal(found.result.checkpoint, good.checkpoint);
        assert_true(found.result.value == 0.25 && isnan(found.result.last));
        assert_int_equal(found.result.step + found.result.epoch * 100 + found.result.epochs * 10000,
                         40312);
        char path[160];
        path_of(path, "result");
        assert_int_equal(unlink(path), i == 0 ? 0 : -1);
    }
}

TEST(failed_one_is_asked_for_again)
{
    const lvni_sweep_result bad = {.state = LVNI_SWEEP_FAILED, .exit_code = 3};
    char from[160], to[160];
    claim(1);
    assert_true(leave(1, LVNI_SWEEP_END_RETRY, &bad));
    claim(2);
    assert_true(leave(2, LVNI_SWEEP_END_ENDED, &bad));
    assert_int_equal(look().state, LVNI_SWEEP_FAILED);
    path_of(from, "result");
    path_of(to, "failed.2");
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(look().state, LVNI_SWEEP_PENDING);
    assert_int_equal(look().attempt, 2);
    claim(3);
    assert_true(leave(3, LVNI_SWEEP_END_RETRY, &bad));
    assert_int_equal(look().failed, 1); /* since then */
}

/* ---- who is alive ---- */

static uint64_t now_s;

static uint64_t now(void)
{
    return now_s * 1000000000u;
}

static lvni_sweep_alive answer;

static lvni_sweep_alive ask(const lvni_sweep_owner *owner, void *user)
{
    (void)owner;
    (void)user;
    return answer;
}

static lvni_sweep_state look_at(lvni_sweep_reader *r, uint64_t seconds)
{
    lvni_sweep_look found;
    now_s = seconds;
    assert_int_equal(lvni_sweep_reader_look(r, 0, &found), LVN_OK);
    return found.state;
}

TEST(silence_is_counted_on_the_readers_clock)
{
    lvni_sweep_reader *r;
    bool left;
    assert_int_equal(lvni_sweep_reader_create(&plan, ask, NULL, now, &r), LVN_OK);
    claim(1);
    answer = LVNI_SWEEP_GONE;
    assert_int_equal(look_at(r, 1000), LVNI_SWEEP_RUNNING); /* seen for the first time */
    assert_int_equal(look_at(r, 1299), LVNI_SWEEP_RUNNING);
    assert_int_equal(lvni_sweep_beat(trial, 1, &left), LVN_OK);
    assert_false(left);
    assert_int_equal(look_at(r, 1301), LVNI_SWEEP_RUNNING);
    assert_int_equal(look_at(r, 1600), LVNI_SWEEP_RUNNING);
    assert_int_equal(look_at(r, 1601), LVNI_SWEEP_LOST);
    answer = LVNI_SWEEP_UNKNOWN;
    assert_int_equal(look_at(r, 1602), LVNI_SWEEP_RUNNING);
    assert_int_equal(look_at(r, 1301 + 899), LVNI_SWEEP_RUNNING);
    assert_int_equal(look_at(r, 1301 + 900), LVNI_SWEEP_LOST);
    answer = LVNI_SWEEP_THERE;
    assert_int_equal(look_at(r, 100000), LVNI_SWEEP_RUNNING);
    answer = LVNI_SWEEP_DEAD;
    assert_int_equal(lvni_sweep_beat(trial, 1, &left), LVN_OK);
    assert_int_equal(look_at(r, 100000), LVNI_SWEEP_LOST);
    assert_true(leave(1, LVNI_SWEEP_END_LOST, NULL));
    assert_int_equal(look_at(r, 100000), LVNI_SWEEP_PENDING);
    assert_int_equal(lvni_sweep_beat(trial, 1, &left), LVN_OK);
    assert_true(left);
    lvni_sweep_reader_destroy(r);
}

TEST(process_table_of_this_host)
{
    lvni_sweep_owner other = self;
    assert_int_equal(lvni_sweep_ask_host(&self, NULL), LVNI_SWEEP_THERE);
    other.started--; /* its number was given again */
    assert_int_equal(lvni_sweep_ask_host(&other, NULL), LVNI_SWEEP_DEAD);
    other = self;
    other.pid = fork();
    if (other.pid == 0) {
        _exit(0);
    }
    siginfo_t info;
    waitid(P_PID, (id_t)other.pid, &info, WEXITED | WNOWAIT);
    assert_int_equal(lvni_sweep_ask_host(&other, NULL), LVNI_SWEEP_DEAD); /* not waited for */
    waitpid((pid_t)other.pid, NULL, 0);
    other = self;
    strcpy(other.boot, "another");
    assert_int_equal(lvni_sweep_ask_host(&other, NULL), LVNI_SWEEP_GONE);
    other = self;
    other.space++; /* another container's table */
    assert_int_equal(lvni_sweep_ask_host(&other, NULL), LVNI_SWEEP_UNKNOWN);
    other = self;
    strcpy(other.host, "elsewhere");
    assert_int_equal(lvni_sweep_ask_host(&other, NULL), LVNI_SWEEP_UNKNOWN);
    assert_int_equal(lvni_sweep_ask_host(&(lvni_sweep_owner){.pid = 1}, NULL), LVNI_SWEEP_UNKNOWN);
}

TEST(jobs_of_slurm)
{
    static const char jobs[] =
        "12 RUNNING n[1-3]\n"
        "8_3 SUSPENDED n1\n8_4 PENDING \n8_5 COMPLETING n2\n123 RUNNING n9\n";
    static const struct {
        const char *job, *node;
        lvni_sweep_alive alive;
    } cases[] = {
        {"12", "n2", LVNI_SWEEP_UNKNOWN}, {"12", "", LVNI_SWEEP_UNKNOWN},
        {"12", "n4", LVNI_SWEEP_GONE},    {"8_3", "n1", LVNI_SWEEP_THERE},
        {"8_4", "n1", LVNI_SWEEP_GONE},   {"8_5", "n2", LVNI_SWEEP_UNKNOWN},
        {"8", "n1", LVNI_SWEEP_GONE},     {"1", "n1", LVNI_SWEEP_GONE},
        {"23", "n9", LVNI_SWEEP_GONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lvni_sweep_owner owner = {.pid = 1};
        snprintf(owner.job, sizeof owner.job, "%s", cases[i].job);
        snprintf(owner.node, sizeof owner.node, "%s", cases[i].node);
        assert_int_equal(lvni_sweep_alive_in(jobs, &owner), cases[i].alive);
    }
}

/* ---- what fails ---- */

/* The names of the folder: own files, when they stay. */
static int own_files(void)
{
    int n = 0;
    DIR *d = opendir(trial);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        n += strncmp(e->d_name, "own.", 4) == 0;
    }
    closedir(d);
    return n;
}

/* A claim and an end, with call k of that kind failing. false: there are fewer. */
static bool run_with_fault(const char *kind, int64_t k, int64_t attempt)
{
    static const lvni_sweep_result result = {.state = LVNI_SWEEP_FAILED};
    bool won = false, ended = false, left;
    char name[32];
    lvni_core_vfs_fail_at(kind, k, EIO);
    const lvn_status s = lvni_sweep_claim(trial, attempt, &self, &won);
    const lvn_status b = lvni_sweep_beat(trial, attempt, &left);
    const lvn_status e =
        !won ? LVN_OK
             : lvni_sweep_leave(trial, attempt, LVNI_SWEEP_END_RETRY, &self, &result, &ended);
    const bool is_room = strcmp(kind, "room") == 0; /* counts bytes that did fit */
    const bool came = lvni_core_vfs_calls(kind) >= k - is_room;
    lvni_core_vfs_fail_at(kind, 0, 0);
    snprintf(name, sizeof name, "claim.%" PRId64, attempt);
    assert_true(won == is_there(name) || s != LVN_OK);
    assert_true(won || s != LVN_OK);
    assert_int_equal(own_files(), 0);
    if (won && !ended) {
        assert_true(e != LVN_OK);
        (void)lvni_sweep_leave(trial, attempt, LVNI_SWEEP_END_RETRY, &self, &result, &ended);
    } else if (!won &&
               is_there(name)) { /* its owner does not know: its death is for others to see */
        assert_true(leave(attempt, LVNI_SWEEP_END_LOST, NULL));
    } else if (!won) {
        claim(attempt);
        assert_true(leave(attempt, LVNI_SWEEP_END_RETRY, &result));
    }
    (void)b;
    assert_int_equal(look().state, LVNI_SWEEP_PENDING);
    assert_int_equal(look().attempt, attempt);
    return came;
}

TEST(disk_that_fails)
{
    static const char *const kinds[] = {"open", "write", "short", "fsync", "close", "link", "room"};
    int64_t attempt = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t k = 1;
        while (run_with_fault(kinds[i], k, ++attempt)) {
            k += strcmp(kinds[i], "room") == 0 ? 50 : 1;
            assert_true(k < 5000);
        }
        if (k == 1) {
            fail_msg("no call of the kind %s", kinds[i]);
        }
    }
}

TEST(memory_that_fails)
{
    bool won = false;
    lvni_sweep_look found = {.state = LVNI_SWEEP_PENDING};
    int64_t k = 1;
    for (;; k++) {
        lvni_core_alloc_fail_at(k);
        const lvn_status s = lvni_sweep_claim(trial, 1, &self, &won);
        const int64_t left = lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || !won);
        if (left > 0) {
            break;
        }
    }
    assert_true(k > 2 && is_there("claim.1"));
    for (k = 1;; k++) {
        lvni_core_alloc_fail_at(k);
        const lvn_status s = look_once(&found);
        if (lvni_core_alloc_fail_at(0) > 0) {
            assert_int_equal(s, LVN_OK);
            break;
        }
    }
    assert_int_equal(found.state, LVNI_SWEEP_RUNNING);
}

/* Bytes changed anywhere: an answer or an error with the file's name, and no crash. */
TEST(damaged_records)
{
    static const char *const names[] = {"result", "left.1", "claim.1"};
    const lvni_sweep_result result = {.state = LVNI_SWEEP_DONE, .has_value = true, .value = 1.0};
    uint64_t chance = 1;
    claim(1);
    assert_true(leave(1, LVNI_SWEEP_END_ENDED, &result));
    for (size_t i = 0; i < 3; i++) {
        char path[160], *text;
        size_t n;
        path_of(path, names[i]);
        assert_int_equal(lvni_core_file_read(path, 1 << 16, &text, &n), LVN_OK);
        for (int round = 0; round < 100; round++) {
            chance = chance * 6364136223846793005u + 1442695040888963407u;
            const size_t at = (size_t)(chance >> 33) % n;
            char *changed = lvni_core_alloc(LVNI_TAG_CORE, n + 1);
            memcpy(changed, text, n + 1);
            changed[at] = (char)(chance >> 25);
            if (round % 3 == 0) {
                changed[at] = '\0';
            }
            put(names[i], changed);
            lvni_core_free(changed);
            lvni_sweep_look found;
            const lvn_status s = look_once(&found);
            assert_true(s == LVN_OK || s == LVN_ERR_CORRUPT);
            if (s != LVN_OK) {
                assert_non_null(strstr(lvn_last_error()->message, names[i]));
            }
        }
        assert_int_equal(unlink(path), 0); /* so that the one before it is read */
        lvni_core_free(text);
    }
}
