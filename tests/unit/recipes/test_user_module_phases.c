/* A job whose module has phases: what lvn_job_train refuses before there is a run directory, and
 * what it trains. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/line_job.h"

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

static void phases_are_checked_before_the_run(void **state)
{
    (void)state;
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

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

int main(void)
{
    if (mkdtemp(out) == NULL) {
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(phases_are_checked_before_the_run)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(out, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return failed;
}
