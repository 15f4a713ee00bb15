/* Keys of the finders (tune.h). */
#include "core/option.h"
#include "tune/tune.h"

#include <string.h>

enum { MOST_TABLES = 16 };

static const lvni_core_option rows[] = {
    {.name = "tune.json",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "Print the answer as one JSON object."},
};
static const lvni_core_option_table both = LVNI_OPTION_TABLE("tune", rows);

const lvni_core_option_table *lvni_tune_own_tables(size_t *n)
{
    static lvni_core_option_table all[3];
    all[0] = both;
    all[1] = lvni_tune_size_options;
    all[2] = lvni_tune_lr_options;
    *n = sizeof all / sizeof *all;
    return all;
}

const lvni_core_option_table *lvni_tune_tables(const lvni_run_recipe *recipe,
                                               const lvni_core_option_table *finder, size_t *n)
{
    static lvni_core_option_table all[MOST_TABLES];
    const lvni_core_option_table *tables = recipe->train_tables(n);
    memcpy(all, tables, *n * sizeof *all);
    all[(*n)++] = both;
    all[(*n)++] = *finder;
    return all;
}
