/* lvn_main and lvn_job_train: a user's own module and datasets through the same way as the
 * recipes. */
#include "core/escape.h"
#include "core/signals.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/fit.h"
#include "recipes/options.h"
#include "recipes/report_error.h"
#include "tensor/ctx.h"

#include <levin/trainer.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const lvni_core_option_table *tables(size_t *n)
{
    static lvni_core_option_table all[3];
    all[0] = lvni_recipes_run_options;
    all[1] = lvni_recipes_batch_options;
    all[2] = lvni_recipes_optim_table;
    *n = 3;
    return all;
}

typedef struct work {
    const lvn_job *job;
    lvni_core_config *config;
} work;

/* Called by lvni_recipes_ranks_run. */
static lvn_status train(void *user, lvni_recipes_ranks *ranks)
{
    const work *w = user;
    const lvni_recipes_fit_request request = {.config = w->config,
                                              .ranks = ranks,
                                              .recipe = w->job->module->name,
                                              .cls = w->job->module,
                                              .train = w->job->train,
                                              .val = w->job->val};
    return lvni_recipes_fit(&request);
}

static lvn_status train_on_ranks(const lvn_job *job, int n, const char *const *args)
{
    LVN_ARG(job->module != NULL, "a job needs a module class");
    LVN_ARG(job->module->training_step != NULL, "the module class %s has no training_step",
            job->module->name);
    if (job->train == NULL && lvn_last_error()->code != LVN_OK) {
        return lvn_last_error()->code; /* opening it failed */
    }
    LVN_ARG(job->train != NULL, "a job needs a training set");
    size_t n_tables;
    const lvni_core_option_table *t = tables(&n_tables);
    work w = {.job = job};
    LVN_TRY(
        lvni_recipes_read_config(t, n_tables, "PROGRAM help", job->options, n, args, &w.config));
    const lvni_recipes_ranks_command command = {
        .n = n, .args = args, .recipe = job->module->name, .run = train, .user = &w};
    const lvn_status s = lvni_recipes_fit_end(lvni_recipes_ranks_run(w.config, &command));
    lvni_core_config_destroy(w.config);
    return s;
}

lvn_status lvn_job_train(const lvn_job *job, int n_arguments, const char *const *args)
{
    lvni_log_set_report(STDOUT_FILENO);
    lvni_log_buffer();
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = train_on_ranks(job, n_arguments, args);
    lvni_tensor_fp_leave(before);
    lvni_core_signals_remove();
    lvni_log_close();
    lvni_log_set_report(STDERR_FILENO);
    lvn_dataset_destroy(job->train);
    lvn_dataset_destroy(job->val);
    return s;
}

int lvn_main(int argc, char **argv, const lvn_job *job)
{
    if (argc > 1 && (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0)) {
        size_t n;
        const lvni_core_option_table *t = tables(&n);
        lvni_core_print(stdout, "usage: %s [key=value ...]\n\n", argv[0]);
        lvni_core_option_print_help(t, n, stdout);
        lvn_dataset_destroy(job->train);
        lvn_dataset_destroy(job->val);
        return LVNI_EXIT_OK;
    }
    lvni_core_signals_defer();
    lvni_cpu_clean_environment(argv);
    if (job->val == NULL && lvn_last_error()->code != LVN_OK) {
        /* LVN_IMAGE_FOLDER in the job failed: not a job without validation */
        lvn_dataset_destroy(job->train);
        return lvni_recipes_report_status(lvn_last_error()->code);
    }
    /* the program is this job alone; who calls lvn_job_train keeps handlers of their own until the
     * run begins */
    lvni_core_signals_install_early();
    return lvni_recipes_report_status(lvn_job_train(job, argc - 1, (const char *const *)argv + 1));
}
