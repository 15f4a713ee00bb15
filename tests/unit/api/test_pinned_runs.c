/* Choices that a module records with lvn_pin_record: one value for all lanes and ranks, kept in
 * config.yaml and in checkpoints, and found again by the resumed run. This program is its own rank
 * when it is started with arguments. */
#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "run/options.h"
#include "support/line_job.h"
#include "tensor/device.h"
#include "support/test.h"

#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT = 16384, MOST = 16 };

static char dir[40];

/* ---- a rank: writes what it computes with into the file `seen` ---- */

static bool choose(const lvn_step *step)
{
    char mine[64], line[96], path[96];
    const char *counts = lvn_pin_get("test.algorithm");
    (void)step;
    /* every lane measures something else */
    snprintf(mine, sizeof mine, "%s-%d", getenv("LEVIN_TEST_CHOICE"), (int)gettid());
    if (lvni_tensor_device_dry_run()) { /* nothing computes, and nothing is kept */
        return counts != NULL || lvn_pin_record("test.algorithm", mine, &counts) != LVN_OK ||
               counts != mine || lvn_pin_get("test.algorithm") != NULL;
    }
    if (counts == NULL && lvn_pin_record("test.algorithm", mine, &counts) != LVN_OK) {
        return true;
    }
    snprintf(path, sizeof path, "%s/seen", getenv("LEVIN_TEST_DIR"));
    snprintf(line, sizeof line, "%s %d\n", counts, (int)getpid());
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const bool written = write(file, line, strlen(line)) == (ssize_t)strlen(line);
    close(file);
    return !written;
}

static int be_rank(int argc, char **argv)
{
    line_two_fails = choose;
    return lvn_main(argc, argv, &(lvn_job){.module = &line_two_class, .train = &line_points});
}

/* ---- starting them ---- */

static pid_t start(const char *choice, const char *const *more)
{
    char out[96], log[96], *arguments[MOST] = {(char[]){"test_pinned_runs"}};
    int n = 1;
    snprintf(out, sizeof out, "out=%s/run", dir);
    snprintf(log, sizeof log, "%s/log", dir);
    char *const usual[] = {out, (char[]){"quiet=true"}, (char[]){"batch_size=2"},
                           (char[]){"micro_batches=2"}, (char[]){"num_workers=0"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        arguments[n++] = usual[i];
    }
    for (int i = 0; more[i] != NULL; i++) {
        arguments[n] = lvni_core_strdup(LVNI_TAG_CONFIG, more[i]);
        assert_non_null(arguments[n++]);
    }
    posix_spawn_file_actions_t actions;
    pid_t pid;
    setenv("LEVIN_TEST_CHOICE", choice, 1);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(
        posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_APPEND, 0666), 0);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    for (int i = n - 1; i >= 0 && arguments[i] != usual[4]; i--) {
        lvni_core_free(arguments[i]);
    }
    return pid;
}

static int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run(const char *choice, const char *const *more)
{
    return wait_for(start(choice, more));
}

static void read_text(const char *name, char text[TEXT])
{
    char path[128], *bytes;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(lvni_core_file_read(path, TEXT - 1, &bytes, &n), LVN_OK);
    snprintf(text, TEXT, "%s", bytes);
    lvni_core_free(bytes);
}

/* All micro-batches of all ranks computed with one value; it, and how many processes there were. */
static int read_seen(char value[64], int *lines)
{
    static char text[TEXT];
    read_text("seen", text);
    int pids[2] = {0}, n = 0;
    value[0] = '\0';
    *lines = 0;
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        char one[64];
        int pid = 0;
        assert_int_equal(sscanf(at, "%63s %d", one, &pid), 2);
        if (value[0] == '\0') {
            snprintf(value, 64, "%s", one);
        }
        assert_string_equal(one, value);
        if (n == 0 || (pid != pids[0] && (n == 1 || pid != pids[1]))) {
            assert_int_in_range(n, 0, 1);
            pids[n++] = pid;
        }
        (*lines)++;
    }
    return n;
}

static void assert_kept(const char *value)
{
    static char text[TEXT];
    char expected[128], path[128];
    lvni_ckpt *ckpt = NULL;
    read_text("run/config.yaml", text);
    snprintf(expected, sizeof expected, "pins: [\"test.algorithm=%s\"]", value);
    if (strstr(text, expected) == NULL) {
        fail_msg("`%s` is not in: %s", expected, text);
    }
    snprintf(path, sizeof path, "%s/run/checkpoints/last.safetensors", dir);
    assert_int_equal(lvni_ckpt_load(path, &ckpt), LVN_OK);
    snprintf(expected, sizeof expected, "test.algorithm=%s", value);
    assert_string_equal(lvni_ckpt_st_meta_get(ckpt->file, "pins"), expected);
    lvni_ckpt_free(ckpt);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/levin-pinned-runs-XXXXXX");
    return mkdtemp(dir) == NULL || setenv("LEVIN_TEST_DIR", dir, 1) != 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- the tests ---- */

TEST_WITH(a_resumed_run_finds_its_choices, make_folder, remove_folder)
{
    static char text[TEXT];
    char first[64], value[64];
    int lines;
    assert_int_equal(run("5", ARGUMENTS("lanes=2", "max_steps=3")), 0);
    assert_int_equal(read_seen(first, &lines), 1);
    assert_int_equal(lines, 3 * 2 * 2); /* steps, phases, micro-batches */
    assert_int_equal(strncmp(first, "5-", 2), 0);
    assert_kept(first);
    /* the checkpoint has them also where the configuration does not */
    assert_int_equal(run("9", ARGUMENTS("resume=true", "lanes=1", "pins=null", "max_steps=5")), 0);
    assert_int_equal(read_seen(value, &lines), 2); /* one value, of two processes */
    assert_string_equal(value, first);
    assert_int_equal(lines, 5 * 2 * 2);
    assert_kept(first);
    /* within an epoch another choice would be another run */
    assert_int_equal(run("9", ARGUMENTS("resume=true", "pins=test.algorithm=7", "max_steps=7")),
                     LVNI_EXIT_USAGE);
    read_text("log", text);
    assert_non_null(strstr(text, "by a run with test.algorithm=5-"));
    assert_non_null(strstr(text, "and this one has test.algorithm=7: give pins=test.algorithm=5-"));
}

TEST_WITH(ranks_as_threads_have_one_value, make_folder, remove_folder)
{
    char value[64];
    int lines;
    assert_int_equal(run("t", ARGUMENTS("devices=2", "max_steps=2")), 0);
    assert_int_equal(read_seen(value, &lines), 1);
    assert_int_equal(lines, 2 * 2 * 2);
    assert_kept(value);
}

TEST_WITH(ranks_as_processes_have_one_value, make_folder, remove_folder)
{
    char value[64];
    int lines;
    pid_t pid[2];
    setenv("PMI_SIZE", "2", 1);
    for (int i = 0; i < 2; i++) {
        setenv("PMI_RANK", i == 0 ? "0" : "1", 1);
        pid[i] = start(i == 0 ? "zero" : "one", ARGUMENTS("devices=2", "max_steps=2"));
    }
    unsetenv("PMI_SIZE");
    unsetenv("PMI_RANK");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for(pid[i]), 0);
    }
    assert_int_equal(read_seen(value, &lines), 2);
    assert_int_equal(lines, 2 * 2 * 2);
    assert_kept(value);
    /* on another layout, too */
    assert_int_equal(run("two", ARGUMENTS("resume=true", "devices=1", "max_steps=4")), 0);
    assert_kept(value);
}

/* A field of the record is given and kept by an option of its name, with the limits of the table.
 */
TEST(every_field_has_an_option)
{
    const lvni_core_option_table *options = &lvni_run_batch_options;
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        const lvni_core_pin *pin = &lvni_core_pin_table[i];
        const lvni_core_option *row = NULL;
        for (size_t k = 0; k < options->n; k++) {
            row = strcmp(options->rows[k].name, pin->key) == 0 ? &options->rows[k] : row;
        }
        if (row == NULL) {
            fail_msg("%s has no option", pin->key);
            return;
        }
        assert_int_equal(row->type, LVNI_OPT_INT);
        assert_true((row->flags & LVNI_OPT_AUTO) != 0 && row->range.used && !row->range.above);
        assert_int_equal((int)row->range.min, pin->min);
        assert_int_equal((int)row->range.max, pin->max);
    }
}

/* The tests' own surroundings must not count. */
static void forget_identity(void)
{
    static const char *const names[] = {"RANK",       "WORLD_SIZE",  "LOCAL_RANK", "SLURM_JOB_ID",
                                        "PMI_RANK",   "PMI_SIZE",    "PMIX_RANK",  "SLURM_PROCID",
                                        "LEVIN_RANK", "SLURM_NTASKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsetenv(names[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return be_rank(argc, argv);
    }
    forget_identity();
    return test_main(argc, argv);
}
