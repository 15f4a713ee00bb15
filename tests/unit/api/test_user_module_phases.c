/* A job whose module has phases: what lvn_job_train refuses before there is a run directory, and
 * what it trains. */
#include "support/line_job.h"
#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static char out[] = "/tmp/levin-job-phases-XXXXXX";

static lvn_status train(const lvn_module_class *cls, bool validates)
{
    char directory[96];
    snprintf(directory, sizeof directory, "out=%s/run", out);
    const char *words[] = {directory,      "quiet=true",      "max_steps=2",
                           "batch_size=2", "micro_batches=2", "num_workers=0"};
    const lvn_job job = {
        .module = cls, .train = &line_points, .val = validates ? &line_points : NULL};
#if defined(__x86_64__) /* the calling thread's floating-point state is as before, whether the job \
                           works or fails */
    static unsigned turn;
    const unsigned before = turn++ % 2 == 0 ? 0x1f80u : 0x9fc0u;
    _mm_setcsr(before);
#endif
    const lvn_status s = lvn_job_train(&job, (int)(sizeof words / sizeof *words), words);
#if defined(__x86_64__)
    assert_int_equal(_mm_getcsr() & ~0x3fu, before);
    _mm_setcsr(0x1f80u);
#endif
    return s;
}

static bool there(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/run%s", out, name);
    return access(path, F_OK) == 0;
}

TEST(phases_are_checked_before_the_run)
{
    static const char *const half[] = {"first", NULL};
    lvn_module_class cls = line_two_class;
    assert_int_equal(train(&cls, true), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "no validation_step"));
    cls.phases = half;
    assert_int_equal(train(&cls, false), LVN_ERR_USAGE);
    assert_non_null(
        strstr(lvn_last_error()->message, "the parameter second.weight is in no phase"));
    assert_false(there(""));
    lvn_clear_error();
    assert_int_equal(train(&line_two_class, false),
                     LVN_OK); /* from flushing; above from the default */
    assert_int_equal(train(&line_two_class, false),
                     LVN_ERR_USAGE); /* the run is there; from the default */
    assert_true(there("/checkpoints/last.safetensors"));
}

/* Of the job, as of a command line. */
TEST(optimizers_are_options_of_a_job)
{
    static const struct {
        const char *options, *message;
    } row[] = {
        {"optim.phases=[first:optimizer=rmsprop:momentum=0.5,second:optimizer=sgd]", NULL},
        {"optim=sgd optim.phases=[second:optimizer=lamb:beta1=0.5]", NULL},
        {"optim.phases=[second:optimizer=sgd:eps=1e-6]",
         "second:optimizer=sgd:eps=1e-6 gives a phase its own eps, and its optimizer, sgd, "
         "has none: it is a setting of adam, adamw, lars, rmsprop, lamb, adafactor"},
        {"optim.phases=[second:optimizer=no:optimizer=sgd]", "gives a phase the optimizer no:"},
        {"optim.phases=[second:optimizer=]", "gives a phase the optimizer "},
        {"optim.phases=[second:optimizer]", "is not PHASE:KEY=VALUE"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char directory[96];
        snprintf(directory, sizeof directory, "out=%s/options%d", out, (int)i);
        const char *words[] = {directory,      "quiet=true",      "max_steps=2",
                               "batch_size=2", "micro_batches=2", "num_workers=0"};
        const lvn_job job = {
            .module = &line_two_class, .train = &line_points, .options = row[i].options};
        const lvn_status s = lvn_job_train(&job, (int)(sizeof words / sizeof *words), words);
        assert_int_equal(s, row[i].message == NULL ? LVN_OK : LVN_ERR_USAGE);
        assert_true(row[i].message == NULL ||
                    strstr(lvn_last_error()->message, row[i].message) != NULL);
        lvn_clear_error();
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

int main(int argc, char **argv)
{
    if (mkdtemp(out) == NULL) {
        return 1;
    }
    const int failed = test_main(argc, argv);
    nftw(out, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return failed;
}
