/* The start block (fit.h): data, model, batch, device, and the line that reproduces the run.
 * verbose=true shows the rest, which train.log always has. */
#include "core/str.h"
#include "kernels/kernels.h"
#include "launch/env_vars.h"
#include "log/run_log.h"
#include "recipes/devices.h"
#include "recipes/fit_impl.h"
#include "trainer/phases.h"

#include <levin/version.h>
#include <string.h>
#include <unistd.h>

static void print_lines(lvni_log_level level, lvni_core_str *text)
{
    for (const char *line = lvni_core_str_text(text); *line != '\0';) {
        const size_t n = strcspn(line, "\n");
        lvni_log_line(level, "%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
    lvni_core_str_free(text);
}

/* A directory that was given is known. */
static void print_run(const lvni_recipes_fit_run *r)
{
    const bool chosen = lvni_core_config_str(r->request->config, "out") == NULL ||
                        lvni_launch_env_get(environ, "LEVIN_OUT_CHOSEN") != NULL;
    lvni_log_line(LVNI_LOG_DETAIL, "levin %s, %s", LEVIN_VERSION, r->request->recipe);
    lvni_log_line(chosen ? LVNI_LOG_INFO : LVNI_LOG_DETAIL, "run directory: %s", r->dir);
}

static void print_device(const lvni_recipes_fit_run *r)
{
    lvni_core_str device = {0};
    const int cores = r->rank.world > 1 ? r->rank.cores_all : r->plan.cores;
    lvni_recipes_accelerator_describe(&device);
    lvni_log_line(LVNI_LOG_DETAIL, "kernels: %s", lvni_cpu_describe());
    lvni_log_line(device.len > 0 ? LVNI_LOG_DETAIL : LVNI_LOG_INFO, "device cpu: %d core%s", cores,
                  lvni_core_plural(cores, "", "s"));
    print_lines(LVNI_LOG_INFO, &device);
    if (r->rank.world > 1) {
        lvni_recipes_fit_report_ranks(r);
    }
}

void lvni_recipes_fit_banner(const lvni_recipes_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    lvni_core_str batch = {0}, work = {0}, pin = {0};
    print_run(r);
    if (r->request->note != NULL) {
        lvni_log_line(LVNI_LOG_INFO, "%s", r->request->note);
    }
    if (r->request->ignored != NULL && r->request->ignored[0] != '\0') {
        lvni_log_line(LVNI_LOG_INFO, "%s", r->request->ignored);
    }
    lvni_log_line(LVNI_LOG_INFO,
                  "model %s: %lld parameter%s in %d tensor%s, seed %lld, precision %s",
                  r->request->cls->name, (long long)lvni_nn_model_count(r->model),
                  lvni_core_plural(lvni_nn_model_count(r->model), "", "s"), r->model->n_parameters,
                  lvni_core_plural(r->model->n_parameters, "", "s"),
                  (long long)lvni_core_config_int(c, "seed"), lvni_core_config_str(c, "precision"));
    lvni_recipes_fit_report_phases(r);
    lvni_plan_describe_batch(&r->plan, &batch);
    print_lines(LVNI_LOG_INFO, &batch);
    lvni_plan_describe_work(&r->plan, &work);
    print_lines(LVNI_LOG_DETAIL, &work);
    print_device(r);
    lvni_plan_describe_pin(&r->plan, &pin);
    print_lines(LVNI_LOG_INFO, &pin);
}
