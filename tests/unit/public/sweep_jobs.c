/* Scenarios of the sweep: a whole training with lvn_job_train, and with lvn_main. */
#include "sweep.h"

#include "core/alloc.h"
#include "core/config.h"
#include "core/error.h"
#include "core/option.h"
#include "recipes/user/user_recipe.h"
#include "run/card.h"
#include "support/line_job.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char out[40];
static int kept_error, kept_output;

/* The run directory is new for every run, and what lvn_main prints of the error is not for the log
 * of the tests. */
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

#define WORDS                                                                                      \
    out, "overwrite=true", "quiet=true", "max_steps=2", "batch_size=2", "micro_batches=2",         \
        "lanes=1", "num_workers=0", "wgrad_threads=1"

static lvn_status train(const void *argument)
{
    (void)argument;
    const char *words[] = {WORDS};
    return lvn_job_train(
        &(lvn_job){.module = &line_fit_class, .train = &line_points, .val = &line_points},
        (int)(sizeof words / sizeof *words), words);
}

static lvn_status train_in_phases(const void *argument)
{
    (void)argument;
    const char *words[] = {WORDS};
    return lvn_job_train(&(lvn_job){.module = &line_two_class, .train = &line_points},
                         (int)(sizeof words / sizeof *words), words);
}

static lvn_status train_two_streams(const void *argument)
{
    (void)argument;
    const char *words[] = {WORDS};
    const lvn_stream more = {.name = "more", .dataset = &line_decoded};
    const lvn_status s = lvn_job_train(&(lvn_job){.module = &line_stream_class,
                                                  .train = &line_points,
                                                  .val = &line_points,
                                                  .streams = &more,
                                                  .n_streams = 1},
                                       (int)(sizeof words / sizeof *words), words);
    assert_int_equal(line_opened, line_closed);
    return s;
}

static bool go_on(void *user, const lvn_trainer_report *report)
{
    (void)user;
    return report->step < 0;
}

static lvn_status use_trainer(lvn_trainer *t)
{
    char path[64];
    const lvn_trainer_report *r = NULL;
    snprintf(path, sizeof path, "%s/own.safetensors", out + 4);
    LVN_TRY(lvn_trainer_step(t, &r));
    LVN_TRY(lvn_trainer_save(t, path));
    LVN_TRY(lvn_trainer_validate(t, &r));
    LVN_TRY(lvn_trainer_write(t, "head.weight", lvn_trainer_tensor(t, "head.weight")));
    LVN_TRY(lvn_trainer_fit(t));
    LVN_TRY(lvn_trainer_load(t, path));
    LVN_TRY(lvn_trainer_fit(t));
    lvn_trainer_stop(t);
    const bool good = lvn_trainer_finished(t) && lvn_trainer_steps(t) == 2 &&
                      lvn_trainer_module(t) != NULL && lvn_trainer_tensor_name(t, 0) != NULL &&
                      lvn_trainer_tensor_name(t, 2) == NULL;
    return good ? LVN_OK : LVN_ERR_INTERNAL;
}

static lvn_status run_trainer(const void *argument)
{
    (void)argument;
    const char *words[] = {WORDS};
    const lvn_job job = {.module = &line_fit_class, .train = &line_points, .val = &line_points};
    lvn_trainer *t;
    LVN_TRY(lvn_trainer_create(&job, &t, .n_args = (int)(sizeof words / sizeof *words),
                               .args = words, .on_step = go_on));
    const lvn_status s = use_trainer(t);
    lvn_trainer_destroy(t);
    return s;
}

static lvn_status run_main(const void *argument)
{
    (void)argument;
    char *words[] = {(char[]){"program"},        out,
                     (char[]){"overwrite=true"}, (char[]){"quiet=true"},
                     (char[]){"max_steps=1"},    (char[]){"batch_size=2"},
                     (char[]){"num_workers=1"},  NULL};
    const int code =
        lvn_main(7, words, &(lvn_job){.module = &line_fit_class, .train = &line_points});
    return code == LVNI_EXIT_OK         ? LVN_OK
           : code == LVNI_EXIT_RESOURCE ? LVN_ERR_MEMORY
                                        : LVN_ERR_INTERNAL;
}

/* The keys of a recipe, as its open() reads them (recipes/user/user_recipe.c). */
static const lvni_core_option key_rows[] = {
    {.name = "data", .type = LVNI_OPT_PATH, .help = "a folder"},
    {.name = "depth", .type = LVNI_OPT_INT, .fallback = "2", .help = "layers"},
    {.name = "rate", .type = LVNI_OPT_FLOAT, .help = "a share"},
    {.name = "wide", .type = LVNI_OPT_BOOL, .fallback = "false", .help = "a switch"},
};

static lvn_status give_keys(lvni_core_config *c)
{
    static const char *const words[] = {"data=photos", "rate=0.5", "wide=yes"};
    LVN_TRY(lvni_core_config_load_arguments(c, 3, words));
    LVN_TRY(lvni_core_config_finish(c));
    const struct lvn_keys of_config = {.config = c}, *keys = &of_config;
    assert_true(lvn_key_is_set(keys, "depth"));
    assert_false(lvn_key_is_set(keys, "nothing"));
    assert_string_equal(lvn_key_text(keys, "data"), "photos");
    assert_null(lvn_key_text(keys, "depth")); /* of another type */
    assert_int_equal(lvn_key_int(keys, "depth"), 2);
    assert_true(lvn_key_float(keys, "rate") == 0.5);
    assert_true(lvn_key_bool(keys, "wide") && !lvn_key_bool(keys, "rate"));
    return LVN_OK;
}

static lvn_status read_keys(const void *argument)
{
    (void)argument;
    static const lvni_core_option_table table = LVNI_OPTION_TABLE("keys", key_rows);
    const lvni_core_option_table *const all[] = {&table, NULL};
    lvni_core_config *c;
    LVN_TRY(lvni_core_config_create(all, &c));
    const lvn_status s = give_keys(c);
    lvni_core_config_destroy(c);
    return s;
}

/* What a recipe keeps in the files of its models (run/card.c). */
static lvn_status keep_card(const void *argument)
{
    (void)argument;
    lvn_card facts = {0}, *card = &facts;
    lvn_status s = lvn_card_set(card, "classes", "cat dog");
    for (int i = 0; s == LVN_OK && i < 2; i++) { /* a new name, and another value */
        s = lvn_card_set(card, "mean", i == 0 ? "0.5" : "0.25");
    }
    if (s == LVN_OK) {
        assert_string_equal(lvn_card_text(card, "mean"), "0.25");
        assert_string_equal(lvn_card_text(card, "classes"), "cat dog");
        assert_null(lvn_card_text(card, "std"));
    }
    lvni_run_facts_free(card);
    return s;
}

static const scenario rows[] = {
    {.calls = "card_set card_text", .run = keep_card},
    {.calls = "key_is_set key_text key_int key_float key_bool", .run = read_keys},

    {.calls = "job_train",
     .run = train,
     .before = before,
     .after = after,
     .growth = 1.02,
     .goes_on = true},
    {.calls = "job_train",
     .run = train_in_phases,
     .before = before,
     .after = after,
     .growth = 1.02,
     .goes_on = true},
    {.calls = "batch_stream",
     .run = train_two_streams,
     .before = before,
     .after = after,
     .growth = 1.02,
     .goes_on = true},
    {.calls = "trainer_create_with trainer_destroy trainer_fit trainer_stop trainer_step "
              "trainer_validate trainer_save trainer_load trainer_finished trainer_steps "
              "trainer_module trainer_tensor_name trainer_tensor trainer_write",
     .run = run_trainer,
     .before = before,
     .after = after,
     .growth = 1.02,
     .goes_on = true},
    {.calls = "main",
     .run = run_main,
     .before = before,
     .after = after,
     .growth = 1.2,
     .goes_on = true},
};

const scenario_table sweep_jobs = {rows, sizeof rows / sizeof *rows};
