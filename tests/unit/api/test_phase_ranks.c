/* A rank that fails between two phases of a step, as a process and as a thread: the others learn
 * who and where, and nothing is saved that is half of a step. This program is its own rank when it
 * is started with words. */
#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/vfs.h"
#include "support/line_job.h"
#include "support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILS_AT = 5, TEXT = 8192, PATIENCE_S = 30 };

static char dir[40];

/* ---- a rank ---- */

static bool is_process_one;
static pthread_t thread_zero;
static char begun[96]; /* a file: rank 0 is in the second phase of the step */

static bool fails_in_the_second_phase(const lvn_step *step)
{
    const bool there = step->step == FAILS_AT && step->phase == 1;
    if (there && !is_process_one && pthread_equal(pthread_self(), thread_zero)) {
        close(open(begun, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
        return false;
    }
    /* rank 0 may have failed before: then this one must end, too */
    const uint64_t from = lvni_core_now_ns();
    while (there && access(begun, F_OK) != 0 && lvni_core_seconds_since(from) < PATIENCE_S) {
        usleep(1000);
    }
    return there;
}

static int be_rank(int argc, char **argv)
{
    const char *rank = getenv("PMI_RANK"), *folder = getenv("LEVIN_TEST_DIR");
    is_process_one = rank != NULL && strcmp(rank, "1") == 0;
    thread_zero = pthread_self();
    snprintf(begun, sizeof begun, "%s/begun", folder == NULL ? "." : folder);
    line_two_fails = fails_in_the_second_phase;
    return lvn_main(argc, argv, &(lvn_job){.module = &line_two_class, .train = &line_points});
}

/* ---- starting them ---- */

typedef struct rank {
    pid_t pid;
    char log[96], message[TEXT];
    int code;
} rank;

static void start(rank *r, int number)
{
    char out[96];
    posix_spawn_file_actions_t actions;
    snprintf(out, sizeof out, "out=%s/run", dir);
    snprintf(r->log, sizeof r->log, "%s/output-%d", dir, number);
    char *const words[] = {(char[]){"test_phase_ranks"}, out,
                           (char[]){"devices=2"},        (char[]){"quiet=true"},
                           (char[]){"max_steps=8"},      (char[]){"batch_size=2"},
                           (char[]){"micro_batches=2"},  (char[]){"lanes=1"},
                           (char[]){"num_workers=0"},    NULL};
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(
        posix_spawn_file_actions_addopen(&actions, 2, r->log, O_WRONLY | O_CREAT | O_TRUNC, 0666),
        0);
    assert_int_equal(posix_spawn(&r->pid, "/proc/self/exe", &actions, NULL, words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
}

static void wait_for(rank *r)
{
    int status;
    char *text;
    size_t n;
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    assert_int_equal(lvni_core_file_read(r->log, TEXT, &text, &n), LVN_OK);
    snprintf(r->message, sizeof r->message, "%s", text);
    lvni_core_free(text);
}

static void assert_text_has(const rank *r, const char *piece)
{
    if (strstr(r->message, piece) == NULL) {
        fail_msg("`%s` is not in: %s", piece, r->message);
    }
}

/* The checkpoint of the end of an epoch, and no other file beside it. */
static void assert_whole(void)
{
    char path[128];
    lvni_ckpt *ckpt;
    snprintf(path, sizeof path, "%s/run/checkpoints/last.safetensors", dir);
    assert_int_equal(lvni_ckpt_load(path, &ckpt), LVN_OK);
    if (ckpt != NULL) {
        assert_int_equal(ckpt->at.step, FAILS_AT - 1);
    }
    lvni_ckpt_free(ckpt);
    snprintf(path, sizeof path, "%s/run/checkpoints", dir);
    DIR *d = opendir(path);
    if (d == NULL) {
        fail_msg("there is no %s", path);
        return;
    }
    for (const struct dirent *e = NULL; (e = readdir(d)) != NULL;) {
        assert_null(strstr(e->d_name, ".tmp"));
    }
    closedir(d);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/levin-phase-ranks-XXXXXX");
    return mkdtemp(dir) == NULL || setenv("LEVIN_TEST_DIR", dir, 1) != 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TEST_EACH(make_folder, remove_folder);

/* ---- the tests ---- */

TEST(as_processes)
{
    rank r[2];
    setenv("PMI_SIZE", "2", 1);
    for (int i = 0; i < 2; i++) {
        setenv("PMI_RANK", i == 0 ? "0" : "1", 1);
        start(&r[i], i);
    }
    unsetenv("PMI_SIZE");
    unsetenv("PMI_RANK");
    for (int i = 0; i < 2; i++) {
        wait_for(&r[i]);
    }
    assert_text_has(&r[1], "cannot be broadcast");
    assert_text_has(&r[1], "in step 5, second, micro-batch 1");
    assert_int_equal(r[1].code, LVNI_EXIT_FAILURE);
    assert_text_has(&r[0], "error: rank 1 (");
    assert_text_has(&r[0], "failed first at step 5: add: (1, 2) and (7, 7) cannot be broadcast");
    assert_text_has(
        &r[0],
        " (in step 5, second, micro-batch 1); between two phases of a step nothing can be saved: ");
    assert_text_has(&r[0], "keeps step 4");
    assert_int_equal(r[0].code, LVNI_EXIT_PEER);
    assert_whole();
}

TEST(as_threads)
{
    rank one;
    start(&one, 0);
    wait_for(&one);
    assert_text_has(&one, "error: add: (1, 2) and (7, 7) cannot be broadcast");
    assert_text_has(&one, "; between two phases of a step nothing can be saved: ");
    assert_text_has(&one, "in step 5, second, micro-batch 1");
    assert_text_has(&one, "in rank 1 of 2");
    assert_int_equal(one.code, LVNI_EXIT_FAILURE);
    assert_whole();
}

/* The tests' own surroundings must not count. */
static void forget_identity(void)
{
    static const char *const begins[] = {
        "RANK=",  "WORLD_SIZE=", "LOCAL_", "GROUP_", "MASTER_", "CUDA_VISIBLE_DEVICES=",
        "SLURM_", "OMPI_",       "PMI",    "MPI_",   "LEVIN_"};
    for (char **e = environ; *e != NULL;) {
        bool ours = false;
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
            ours = ours || strncmp(*e, begins[i], strlen(begins[i])) == 0;
        }
        char name[128];
        if (ours &&
            snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e) < (int)sizeof name &&
            unsetenv(name) == 0) {
            e = environ; /* what follows has moved */
        } else {
            e++;
        }
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
