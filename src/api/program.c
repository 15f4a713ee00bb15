/* lvn_main and lvn_job_train: a user's own module and datasets as a row like those of the
 * recipes. */
#include "core/escape.h"
#include "core/signals.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "run/error_record.h"
#include "run/recipe.h"
#include "tensor/ctx.h"

#include <levin/trainer.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The job is in recipe->user. */
static lvn_status open_job(lvni_run_job *request)
{
    return lvni_run_open_job(request->recipe->user, "a job", request);
}

static lvn_status train_job(const lvn_job *job, int n, const char *const *args)
{
    lvni_run_job checked = {0};
    LVN_TRY(lvni_run_open_job(job, "a job", &checked)); /* before ranks are started */
    const lvni_run_recipe recipe = {.name = job->module->name,
                                    .defaults.job = job->options,
                                    .keys = lvni_run_job_keys,
                                    .open = open_job,
                                    .user = job};
    static const char *const own_program[2] = {NULL, NULL};
    return lvni_run_train_with(&recipe, own_program, "PROGRAM help", n, args);
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
    lvni_run_close_job(job);
    return s;
}

/* With the defaults of the job. */
static lvn_status print_keys(const lvn_job *job)
{
    lvni_core_config *defaults;
    LVN_TRY(lvni_core_config_create(lvni_run_job_keys, &defaults));
    const lvn_status s = lvni_core_config_load_job(defaults, job->options);
    if (s == LVN_OK) {
        lvni_core_option_print_help(lvni_run_job_keys, defaults, stdout);
    }
    lvni_core_config_destroy(defaults);
    return s;
}

int lvn_main(int argc, char **argv, const lvn_job *job)
{
    if (argc > 1 && (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0)) {
        lvni_core_print(stdout, "usage: %s [key=value ...]\n\n", argv[0]);
        const lvn_status s = print_keys(job);
        lvni_run_close_job(job);
        return lvni_run_report_status(s);
    }
    lvni_core_signals_defer();
    lvni_cpu_clean_environment(argv);
    if (job->val == NULL && lvn_last_error()->code != LVN_OK) {
        /* LVN_IMAGE_FOLDER in the job failed: not a job without validation */
        lvni_run_close_job(job);
        return lvni_run_report_status(lvn_last_error()->code);
    }
    /* the program is this job alone; who calls lvn_job_train keeps handlers of their own until the
     * run begins */
    lvni_core_signals_install_early();
    return lvni_run_report_status(lvn_job_train(job, argc - 1, (const char *const *)argv + 1));
}
