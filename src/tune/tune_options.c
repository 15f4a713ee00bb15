/* Keys of the finders (tune.h). */
#include "core/option.h"
#include "tune/tune.h"

static const lvni_core_option rows[] = {
    {.name = "tune.json",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "Print the answer as one JSON object."},
};
static const lvni_core_option_table both = LVNI_OPTION_TABLE("tune", rows);

const lvni_core_option_table *const lvni_tune_own_keys[] = {&both, &lvni_tune_size_options,
                                                            &lvni_tune_lr_options, NULL};

lvni_core_option_list lvni_tune_keys(const lvni_run_recipe *recipe,
                                     const lvni_core_option_table *finder, lvni_tune_key_list *out)
{
    size_t n = 0;
    for (lvni_core_option_list t = recipe->keys; *t != NULL && n + 3 < LVNI_TUNE_TABLES; t++) {
        out->table[n++] = *t;
    }
    out->table[n++] = &both;
    out->table[n++] = finder;
    out->table[n] = NULL;
    return out->table;
}
