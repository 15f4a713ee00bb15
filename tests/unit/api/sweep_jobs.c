/* Scenarios of the sweep: a whole training with lvn_job_train, and with lvn_main. */
#include "sweep.h"

#include "core/exit_code.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
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

typedef struct fit {
    lvn_module base;
    lvn_module *head;
} fit;

static lvn_status fit_build(lvn_module *module, lvn_builder *b)
{
    ((fit *)module)->head = lvn_nn_linear(b, "head", 2, 1);
    return lvn_builder_status(b);
}

static lvn_tensor *fit_training_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_forward(((const fit *)module)->head, batch->image)));
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class fit_class = {
    .name = "fit", .size = sizeof(fit), .build = fit_build, .training_step = fit_training_step};

/* The same for two networks, one after the other in each step. */
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

static lvn_tensor *two_training_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_forward(((const two *)module)->net[step->phase], batch->image)));
    lvn_log(step, step->phase == 0 ? "first" : "second", loss);
    return loss;
}

static const char *const two_phases[] = {"first", "second", NULL};

static const lvn_module_class two_class = {
    .name = "two", .size = sizeof(two), .build = two_build, .training_step = two_training_step, .phases = two_phases};

static char out[40];
static int kept_error, kept_output;

/* The run directory is new for every run, and what lvn_main says of the error is not for the log of the tests. */
static void before(const void *argument)
{
    (void)argument;
    snprintf(out, sizeof out, "out=/tmp/levin-sweep-XXXXXX");
    assert_non_null(mkdtemp(out + 4));
    fflush(stdout);
    kept_output = dup(1);
    kept_error = dup(2);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(dup2(nowhere, 1) >= 0 && dup2(nowhere, 2) >= 0);
    close(nowhere);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static void after(const void *argument)
{
    (void)argument;
    fflush(stdout);
    dup2(kept_output, 1);
    dup2(kept_error, 2);
    close(kept_output);
    close(kept_error);
    nftw(out + 4, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#define WORDS out, "overwrite=true", "quiet=true", "max_steps=2", "batch_size=2", "shards=2", "lanes=1", "num_workers=0", "wgrad_threads=1"

static lvn_status train(const void *argument)
{
    (void)argument;
    line data = {.base = {.cls = &line_class}};
    const char *words[] = {WORDS};
    return lvn_job_train(&(lvn_job){.module = &fit_class, .train = &data.base, .val = &data.base},
                         (int)(sizeof words / sizeof *words), words);
}

static lvn_status train_in_phases(const void *argument)
{
    (void)argument;
    line data = {.base = {.cls = &line_class}};
    const char *words[] = {WORDS};
    return lvn_job_train(&(lvn_job){.module = &two_class, .train = &data.base}, (int)(sizeof words / sizeof *words), words);
}

static lvn_status run_main(const void *argument)
{
    (void)argument;
    line data = {.base = {.cls = &line_class}};
    char *words[] = {(char[]){"program"}, out, (char[]){"overwrite=true"}, (char[]){"quiet=true"}, (char[]){"max_steps=1"},
                     (char[]){"batch_size=2"}, (char[]){"num_workers=1"}, NULL};
    const int code = lvn_main(7, words, &(lvn_job){.module = &fit_class, .train = &data.base});
    return code == LVNI_EXIT_OK ? LVN_OK : code == LVNI_EXIT_RESOURCE ? LVN_ERR_MEMORY : LVN_ERR_INTERNAL;
}

static const scenario rows[] = {
    {.calls = "job_train", .run = train, .before = before, .after = after, .growth = 1.02, .goes_on = true},
    {.calls = "job_train", .run = train_in_phases, .before = before, .after = after, .growth = 1.02, .goes_on = true},
    {.calls = "main", .run = run_main, .before = before, .after = after, .growth = 1.2, .goes_on = true},
};

const scenario_table sweep_jobs = {rows, sizeof rows / sizeof *rows};
