/* A trained model as safetensors with the names and layouts of PyTorch (export.h). */
#include "recipes/export.h"

#include "core/escape.h"
#include "recipes/exported.h"
#include "recipes/fit.h"
#include "recipes/output_file.h"

#include <stdio.h>
#include <string.h>

static const lvni_core_option export_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .help = "YAML file with any of these keys.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "model",
     .type = LVNI_OPT_PATH,
     .help = "Run directory, checkpoint or exported .safetensors file."},
    LVNI_OPTION_ALIAS("run", "model"),
    {.name = "checkpoint",
     .type = LVNI_OPT_PATH,
     .help = "best or last of a run directory (unset: best), or the path of a checkpoint."},
    {.name = "use_ema",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "false: of a run with ema.decay, the weights themselves and not their average; needs "
             "the run directory or a checkpoint."},
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "model.safetensors",
     .help = "File to write (.safetensors), for load_state_dict of PyTorch; -: stdout."},
    {.name = "card",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "Keep in the file's metadata what levin predict needs: network, image size, "
             "classes, colours."},
};
static const lvni_core_option_table export_table = LVNI_OPTION_TABLE("export", export_rows);

const lvni_core_option_table *lvni_recipes_export_tables(size_t *n)
{
    *n = 1;
    return &export_table;
}

static lvn_status open_model(const lvni_core_config *c, lvni_recipes_exported **out)
{
    const char *model = lvni_core_config_str(c, "model"),
               *checkpoint = lvni_core_config_str(c, "checkpoint");
    const bool use_ema = lvni_core_config_bool(c, "use_ema");
    const bool named =
        checkpoint != NULL && (strcmp(checkpoint, "best") == 0 || strcmp(checkpoint, "last") == 0);
    if (checkpoint != NULL && !named) {
        if (model != NULL) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "model=%s and checkpoint=%s: which one? Of a run directory checkpoint= is "
                     "best or last",
                     model, checkpoint);
        }
        return lvni_recipes_exported_open(checkpoint, NULL, use_ema, out);
    }
    if (model == NULL) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "model= is missing: a run directory, a checkpoint or an exported .safetensors file");
    }
    return lvni_recipes_exported_open(model, checkpoint, use_ema, out);
}

static lvn_status write_file(const lvni_core_config *c)
{
    static const lvni_recipes_output_kind kind = {
        .what = "a model is exported as safetensors", .endings = ".safetensors", .binary = true};
    lvni_recipes_exported *e;
    const char *output = lvni_recipes_output_path(c);
    LVN_TRY(lvni_recipes_output_check(c, &kind));
    LVN_TRY(open_model(c, &e));
    const lvn_status s =
        lvni_recipes_export_model(e->model, e->model->weights,
                                  lvni_core_config_bool(c, "card") ? &e->card : NULL, -1, output);
    if (s == LVN_OK && !lvni_recipes_output_is_stdout(c)) {
        lvni_core_print(
            stdout, "%s: %s with %d class%s, %lld parameters, names and layouts of PyTorch\n",
            output, e->card.model, e->card.n_classes, lvni_core_plural(e->card.n_classes, "", "es"),
            (long long)lvni_nn_model_count(e->model));
    }
    lvni_recipes_exported_close(e);
    return s;
}

lvn_status lvni_recipes_export(int n, const char *const *words)
{
    lvni_core_config *c;
    LVN_TRY(lvni_recipes_read_config(&export_table, 1, "levin help export", NULL, n, words, &c));
    const lvn_status s = write_file(c);
    lvni_core_config_destroy(c);
    return s;
}
