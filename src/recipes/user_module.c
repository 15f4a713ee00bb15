/* lvn_main and lvn_job_train: a user's own module and datasets as a row like those of the
 * registry. */
#include "core/escape.h"
#include "core/signals.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/options.h"
#include "recipes/recipe.h"
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

lvn_status lvni_recipes_open_job(const lvn_job *job, const char *of,
                                 lvni_recipes_fit_request *request)
{
    LVN_ARG(job->module != NULL, "%s needs a module class", of);
    LVN_ARG(job->module->training_step != NULL, "the module class %s has no training_step",
            job->module->name);
    if (job->train == NULL && lvn_last_error()->code != LVN_OK) {
        return lvn_last_error()->code; /* opening it failed */
    }
    LVN_ARG(job->train != NULL, "%s needs a training set", of);
    request->cls = job->module;
    request->arguments = job->arguments;
    request->train = job->train;
    request->val = job->val;
    return LVN_OK;
}

/* The job is in recipe->user. */
static lvn_status open_job(const lvni_recipes_recipe *recipe, lvni_recipes_fit_request *request,
                           void **state)
{
    (void)state;
    return lvni_recipes_open_job(recipe->user, "a job", request);
}

static lvn_status train_job(const lvn_job *job, int n, const char *const *args)
{
    lvni_recipes_fit_request checked = {0};
    LVN_TRY(lvni_recipes_open_job(job, "a job", &checked)); /* before ranks are started */
    const lvni_recipes_recipe recipe = {.name = job->module->name,
                                        .defaults = job->options,
                                        .train_tables = tables,
                                        .open = open_job,
                                        .user = job};
    static const char *const own_program[2] = {NULL, NULL};
    return lvni_recipes_train_with(&recipe, own_program, "PROGRAM help", n, args);
}

lvn_status lvn_job_train(const lvn_job *job, int n_arguments, const char *const *args)
{
    lvni_log_set_report(STDOUT_FILENO);
    lvni_log_buffer();
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = train_job(job, n_arguments, args);
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
