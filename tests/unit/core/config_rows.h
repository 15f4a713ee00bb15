/* The option tables the configuration's tests use: one row of each kind. */
#ifndef LEVIN_TESTS_CORE_CONFIG_ROWS_H
#define LEVIN_TESTS_CORE_CONFIG_ROWS_H

#include "core/config.h"

#include <string.h>

static lvn_status one_device(const lvni_core_option *row, const lvni_core_value *value,
                             const char *origin)
{
    return strcmp(value->text, "1") == 0 ? LVN_OK : lvni_core_option_fail_later(row, value, origin);
}

static const lvni_core_option run_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .help = "A file of keys.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "overwrite",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Replace out.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "data", .type = LVNI_OPT_PATH, .help = "Folder of images."},
    {.name = "data.count",
     .type = LVNI_OPT_INT,
     .fallback = "1000",
     .unit = "images",
     .range = LVNI_AT_LEAST(1)},
    {.name = "seed", .type = LVNI_OPT_INT, .fallback = "0", .help = "Start of all random numbers."},
    {.name = "max_epochs",
     .type = LVNI_OPT_INT,
     .fallback = "10",
     .unit = "epochs",
     .range = LVNI_AT_LEAST(1)},
    {.name = "batch_size",
     .type = LVNI_OPT_INT,
     .fallback = "128",
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .help = "Samples of one step over all devices."},
    {.name = "num_workers",
     .type = LVNI_OPT_INT,
     .fallback = "auto",
     .flags = LVNI_OPT_AUTO,
     .range = LVNI_AT_LEAST(0)},
    {.name = "val_split",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.2",
     .range = LVNI_FROM_TO_BELOW(0, 1)},
    {.name = "drop_last", .type = LVNI_OPT_BOOL, .fallback = "no"},
    {.name = "title", .type = LVNI_OPT_STRING},
    {.name = "names", .type = LVNI_OPT_STRING_LIST},
    {.name = "views", .type = LVNI_OPT_STRING, .fallback = "none", .flags = LVNI_OPT_JSON},
    {.name = "other", .type = LVNI_OPT_STRING, .flags = LVNI_OPT_JSON | LVNI_OPT_LITERAL},
    {.name = "milestones", .type = LVNI_OPT_INT_LIST, .fallback = "[]"},
    {.name = "devices",
     .type = LVNI_OPT_STRING,
     .fallback = "auto",
     .flags = LVNI_OPT_AUTO,
     .check = one_device,
     .later_note =
         "several devices come with a later version; this one trains on one device (devices=1)"},
    {.name = "gpus", .alias_of = "devices"},
    {.name = "num_nodes", .type = LVNI_OPT_INT, .fallback = "1", .flags = LVNI_OPT_LATER},
    {.name = "precision",
     .type = LVNI_OPT_CHOICE,
     .fallback = "32",
     .choices = "32|64",
     .later = "bf16-mixed|16-mixed",
     .spellings = "float32=32"},
    {.name = "strategy",
     .type = LVNI_OPT_CHOICE,
     .fallback = "single",
     .choices = "single|dp|ddp",
     .spellings = "none=single"},
    {.name = "lanes", .type = LVNI_OPT_INT, .fallback = "1", .flags = LVNI_OPT_LAYOUT},
    {.name = "on_error", .type = LVNI_OPT_CHOICE, .fallback = "stop", .choices = "stop|skip"},
    {.name = "scheduler.name",
     .type = LVNI_OPT_CHOICE,
     .fallback = "none",
     .choices = "none|cosine"},
    {.name = "scheduler", .alias_of = "scheduler.name"},
    {.name = "wait",
     .type = LVNI_OPT_FLOAT,
     .fallback = "inf",
     .flags = LVNI_OPT_INF,
     .range = LVNI_ABOVE(0),
     .unit = "s"},
};

static const lvni_core_option optim_rows[] = {
    {.name = "optim.name",
     .type = LVNI_OPT_CHOICE,
     .fallback = "sgd",
     .choices = "sgd|adamw",
     .help = "The optimizer."},
    {.name = "optim", .alias_of = "optim.name"},
    {.name = "optim.lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_ABOVE(0),
     .help = "Learning rate."},
    {.name = "optim.betas",
     .type = LVNI_OPT_FLOAT_LIST,
     .fallback = "[0.9, 0.999]",
     .count = 2,
     .range = LVNI_FROM_TO_BELOW(0, 1)},
};

static const lvni_core_option_table run_table = LVNI_OPTION_TABLE("run", run_rows),
                                    optim_table = LVNI_OPTION_TABLE("optimizer", optim_rows);
static const lvni_core_option_table *const test_keys[] = {&run_table, &optim_table, NULL};

static inline lvn_status make_config(lvni_core_config **out)
{
    return lvni_core_config_create(test_keys, out);
}

#endif
