/* What a pretraining chose itself, and why (pretrain.h): the line "auto: ..." at its start. */
#include "recipes/pretrain/pretrain.h"

#include "core/str.h"
#include "images/view_presets.h"
#include "launch/env_vars.h"
#include "run/ranks.h"

#include <string.h>

/* Neither given nor of a run that is resumed. */
static bool is_chosen(const lvni_core_config *c, const char *key)
{
    const lvni_core_layer layer = lvni_core_config_layer(c, key);
    return layer == LVNI_LAYER_DEFAULT || layer == LVNI_LAYER_JOB || layer == LVNI_LAYER_RESOLVED;
}

static void begin_choice(lvni_core_str *out)
{
    lvni_core_str_append(out, out->len == 0 ? "auto: " : ", ");
}

static void print_value(const lvni_core_config *c, const char *key, const char *why,
                        lvni_core_str *out)
{
    if (is_chosen(c, key)) {
        begin_choice(out);
        lvni_core_str_printf(out, "%s ", key);
        const lvni_core_option_type type = lvni_core_config_row(c, key)->type;
        if (type == LVNI_OPT_INT) {
            lvni_core_str_printf(out, "%lld", (long long)lvni_core_config_int(c, key));
        } else if (type == LVNI_OPT_FLOAT) {
            lvni_core_str_printf(out, "%g", lvni_core_config_float(c, key));
        } else {
            lvni_core_str_append(out, lvni_core_config_str(c, key));
        }
        lvni_core_str_printf(out, " (%s)", why);
    }
}

static void print_size(const lvni_core_config *c, const char *method, lvni_core_str *out)
{
    static const char key[] = "transform_args.image_size";
    size_t n;
    const int64_t *size = lvni_core_config_int_list(c, key, &n);
    const int usual =
        lvni_images_view_preset(lvni_pretrain_method_find(lvni_core_config_str(c, "method"))->views)
            ->size[0];
    if (is_chosen(c, key) && n > 0) {
        begin_choice(out);
        lvni_core_str_printf(out, "%s %lld (%s)", key, (long long)size[0],
                             size[0] == usual ? method : "that of the images");
    }
}

static void print_devices(const lvni_core_config *c, int world, lvni_core_str *out)
{
    const bool slurm = lvni_launch_env_get(lvni_run_environment(), "SLURM_PROCID") != NULL;
    if (is_chosen(c, "devices")) {
        begin_choice(out);
        lvni_core_str_printf(out, "devices %d (%s)", world,
                             slurm && world > 1 ? "the tasks of Slurm"
                             : strcmp(lvni_core_config_str(c, "accelerator"), "cpu") == 0
                                 ? "the CPU"
                                 : "all that are visible");
    }
}

static void print_workers(const lvni_core_config *c, const lvni_run_rank *rank, lvni_core_str *out)
{
    const char *given = lvni_launch_env_get(lvni_run_environment(), "SLURM_CPUS_PER_TASK");
    if (lvni_core_config_is_set(c, "num_workers")) {
        return;
    }
    begin_choice(out);
    lvni_core_str_printf(out, "num_workers %d (", rank->workers);
    if (given != NULL) {
        lvni_core_str_printf(out, "SLURM_CPUS_PER_TASK=%s, of which %d can be used, less one)",
                             given, rank->workers + 1);
    } else {
        lvni_core_str_printf(out, "%d core%s%s)", rank->cores,
                             lvni_core_plural(rank->cores, "", "s"),
                             rank->cores > rank->workers + 1 ? ", 8 at most" : " less one");
    }
}

lvn_status lvni_pretrain_print_choices(const lvni_run_job *job, lvni_core_str *out)
{
    const lvni_core_config *c = job->config;
    lvni_run_rank estimated;
    const lvni_run_rank *rank = job->ranks != NULL ? job->ranks->rank : &estimated;
    LVN_TRY(job->ranks != NULL ? LVN_OK : lvni_run_ranks_estimate(job->config, &estimated));
    lvni_core_str method = {0}, device = {0};
    lvni_core_str_printf(&method, "method=%s", lvni_core_config_str(c, "method"));
    lvni_core_str_printf(&device, "accelerator=%s", lvni_core_config_str(c, "accelerator"));
    const char *of_method = lvni_core_str_text(&method);
    print_size(c, of_method, out);
    print_value(c, "max_epochs", of_method, out);
    print_value(c, "precision", lvni_core_str_text(&device), out);
    print_devices(c, rank->world, out);
    if (lvni_core_config_is_set(c, "batch_size")) {
        const bool limited = lvni_core_config_layer(c, "batch_size") == LVNI_LAYER_RESOLVED;
        print_value(c, "batch_size", limited ? "all images" : "the default", out);
    }
    print_workers(c, rank, out);
    if (lvni_nn_zoo_has_paths(lvni_core_config_str(c, "model.name"))) {
        print_value(c, "model.drop_path", "that of the network", out);
    }
    print_value(c, "optim.name", of_method, out);
    const char *decay = lvni_core_config_str(c, "optim.decay_of");
    if (decay != NULL && strcmp(decay, "weights") == 0) { /* else the method's own rule */
        print_value(c, "optim.decay_of", "tokens, positions and scales have none", out);
    }
    print_value(c, "method", "the default", out);
    out->failed |= method.failed || device.failed;
    lvni_core_str_free(&method);
    lvni_core_str_free(&device);
    return lvni_core_str_status(out);
}
