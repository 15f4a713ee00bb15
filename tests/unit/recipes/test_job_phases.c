/* A job whose module has phases: what lvn_job_train refuses before there is a run directory, and what it trains. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <levin/levin.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct line {
    lvn_dataset base;
} line;

static int line_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"x", LVN_F32, 1, {2}};
    return 1;
}

static int64_t line_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return 4;
}

static lvn_status line_get(const lvn_dataset *dataset, const lvn_sample_key *key, void *const field[])
{
    (void)dataset;
    float *x = field[0];
    x[0] = (float)key->sample;
    x[1] = 1.0f;
    return LVN_OK;
}

static const lvn_dataset_class line_class = {.name = "line", .fields = line_fields, .length = line_length, .get = line_get};

typedef struct two {
    lvn_module base;
    lvn_module *net[2];
} two;

static lvn_status two_build(lvn_module *module, lvn_builder *b)
{
    two *m = (two *)module;
    m->net[0] = lvn_nn_linear(b, "first", 2, 1);
    m->net[1] = lvn_nn_linear(b, "second", 2, 1);
    return lvn_builder_status(b);
}

static lvn_tensor *two_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_forward(((const two *)module)->net[step->phase], batch->image)));
    lvn_log(step, step->phase == 0 ? "first" : "second", loss);
    return loss;
}

static char out[] = "/tmp/levin-job-phases-XXXXXX";

static lvn_status train(const lvn_module_class *cls, bool validates)
{
    line data = {.base = {.cls = &line_class}};
    char directory[96];
    snprintf(directory, sizeof directory, "out=%s/run", out);
    const char *words[] = {directory, "quiet=true", "max_steps=2", "batch_size=2", "shards=2", "num_workers=0"};
    return lvn_job_train(&(lvn_job){.module = cls, .train = &data.base, .val = validates ? &data.base : NULL}, (int)(sizeof words / sizeof *words), words);
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
    static const char *const both[] = {"first", "second", NULL}, *const half[] = {"first", NULL};
    lvn_module_class cls = {.name = "two", .size = sizeof(two), .build = two_build, .training_step = two_step, .phases = both};
    assert_int_equal(train(&cls, true), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "no validation_step"));
    cls.phases = half;
    assert_int_equal(train(&cls, false), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "the parameter second.weight is in no phase"));
    assert_false(there(""));
    cls.phases = both;
    lvn_clear_error();
    assert_int_equal(train(&cls, false), LVN_OK);
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
