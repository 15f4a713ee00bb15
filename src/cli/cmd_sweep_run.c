/* levin sweep run DIR, worker DIR and trial DIR I: options, the devices of each slot, and where a
 * worker begins to look. The work itself is src/sweep/sweep_work.c. */
#include "cli/cli.h"
#include "cli/sweep.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/hash.h"
#include "core/machine.h"
#include "launch/device_spec.h"
#include "launch/env_vars.h"
#include "launch/launch_machine.h"
#include "run/error_record.h"
#include "sweep/sweep_work.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SLOTS = 1024 };

static const lvni_core_option rows[] = {
    {.name = "parallel",
     .type = LVNI_OPT_INT,
     .flags = LVNI_OPT_AUTO,
     .fallback = "auto",
     .range = LVNI_BETWEEN(1, MOST_SLOTS),
     .help = "Trials at once; auto: one for each set of GPUs, on the CPU and in `worker` one."},
    {.name = "devices_per_trial",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_BETWEEN(1, MOST_SLOTS),
     .help = "GPUs of each trial: the visible ones are cut into sets of so many."},
    {.name = "gpu_sets",
     .type = LVNI_OPT_STRING,
     .help = "These sets in their place, as CUDA_VISIBLE_DEVICES has them: \"0;1,3\" is two trials "
             "at once, the second one with two GPUs; \"0;0\" shares one."},
    {.name = "retries",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1000),
     .help = "How often a trial that failed is tried again."},
    {.name = "fail_fast",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "The first failure stops the sweep; trials that run are interrupted."},
    {.name = "quiet",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "No lines about trials but those that failed."},
};
const lvni_core_option_table lvni_cli_sweep_run_table = LVNI_OPTION_TABLE("running", rows);
static const lvni_core_option_table *const keys[] = {&lvni_cli_sweep_run_table, NULL};

typedef enum how { RUN, WORKER, TRIAL } how;

typedef struct job {
    how how;
    lvni_core_config *config;
    const char *dir, *trial; /* the arguments without a key */
    lvni_sweep_plan plan;
    char **sets, **words;
    char levin[PATH_MAX];
    lvni_sweep_work_options o;
} job;

/* ---- devices ---- */

static bool is_on_cpu(const lvni_sweep_plan *plan)
{
    for (int i = 0; plan->command[i] != NULL; i++) {
        if (strcmp(plan->command[i], "accelerator=cpu") == 0 ||
            strcmp(plan->command[i], "--accelerator=cpu") == 0) {
            return true;
        }
    }
    return false;
}

/* "0;1,3" */
static lvn_status split_sets(const char *text, char ***out)
{
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ";");
        if (n == 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "gpu_sets=%s: a set is empty; separate sets by ; and GPUs of a set by commas",
                     text);
        }
        LVN_TRY(lvni_sweep_texts_add(out, at, n));
        at += n;
        if (*at == '\0') {
            return LVN_OK;
        }
    }
}

/* The visible GPUs, cut into sets of `each`. */
static lvn_status cut_sets(int64_t each, char ***out)
{
    lvni_launch_gpu *gpus = NULL;
    lvni_launch_visible visible = {.n = 0};
    lvni_core_str set = {0};
    int n = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_launch_gpus_find("", &gpus, &n));
    if (n > 0) {
        LVNI_TRY_DONE(s,
                      lvni_launch_visible_make(lvni_launch_env_raw(environ, "CUDA_VISIBLE_DEVICES"),
                                               n, NULL, &visible));
    }
    if (visible.n > 0 && visible.n < each) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "devices_per_trial=%" PRId64 ": only %d GPU%s visible here", each,
                          visible.n, lvni_core_plural(visible.n, " is", "s are"));
        goto done;
    }
    for (int i = 0; i < visible.n; i++) {
        lvni_core_str_printf(&set, "%s%s", set.len > 0 ? "," : "", visible.device[i].name);
        if ((i + 1) % each == 0) {
            LVNI_TRY_DONE(s, lvni_core_str_status(&set));
            LVNI_TRY_DONE(s, lvni_sweep_texts_add(out, set.data, set.len));
            lvni_core_str_clear(&set);
        }
    }
done:
    lvni_core_str_free(&set);
    lvni_launch_visible_free(&visible);
    lvni_core_free(gpus);
    return s;
}

static int64_t number_of(const char *name, int64_t otherwise)
{
    uint64_t value;
    const char *text = lvni_launch_env_get(environ, name);
    return text != NULL && lvni_launch_env_digits(text, INT32_MAX, &value) ? (int64_t)value
                                                                           : otherwise;
}

/* Of the workers of a step each has the sets of its own, in the order of its number on the node,
 * unless Slurm shows it no others. */
static lvn_status choose_slots(job *j)
{
    const lvni_core_config *c = j->config;
    const char *given = lvni_core_config_str(c, "gpu_sets");
    const bool set = lvni_core_config_is_set(c, "parallel");
    if (given != NULL) {
        LVN_TRY(split_sets(given, &j->sets));
    } else if (!is_on_cpu(&j->plan)) {
        LVN_TRY(cut_sets(lvni_core_config_int(c, "devices_per_trial"), &j->sets));
    }
    const int64_t n = lvni_sweep_texts_count(j->sets);
    const int64_t parallel = set                         ? lvni_core_config_int(c, "parallel")
                             : n > 0 && j->how != WORKER ? n
                                                         : 1;
    const int64_t skip =
        j->how == WORKER && n > parallel ? parallel * number_of("SLURM_LOCALID", 0) : 0;
    j->o.parallel = (int)parallel;
    if (n == 0) {
        return LVN_OK;
    }
    if (skip + parallel > n) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "parallel=%" PRId64 "%s: there %s only %" PRId64 " set%s of GPUs; give gpu_sets= "
                 "to share GPUs (\"0;0\"), or fewer trials at once",
                 parallel, skip > 0 ? " in each worker of this node" : "",
                 lvni_core_plural(n, "is", "are"), n, lvni_core_plural(n, "", "s"));
    }
    j->o.gpu_sets = j->sets + skip;
    return LVN_OK;
}

/* Workers begin at different places, so that they seldom want the same trial. */
static int64_t choose_first(const job *j)
{
    char host[256];
    const int64_t worker = number_of("SLURM_PROCID", -1);
    const int64_t workers = number_of("SLURM_STEP_NUM_TASKS", number_of("SLURM_NTASKS", 0));
    if (j->how != WORKER || j->plan.n_trials == 0) {
        return 0;
    }
    if (worker >= 0 && worker < workers) {
        return j->plan.n_trials * worker / workers;
    }
    lvni_core_host_name(host, sizeof host);
    const uint64_t hash = lvni_core_hash_text(LVNI_CORE_HASH, host) + (uint64_t)getpid();
    return (int64_t)((hash * 11400714819323198485u >> 33) % (uint64_t)j->plan.n_trials);
}

/* ---- arguments ---- */

static const char *const words[] = {[RUN] = "run", [WORKER] = "worker", [TRIAL] = "trial"};

/* `levin sweep trial DIR N -- srun -N 2 {command}`, and the trial's words in place of {command}, as
 * in the scripts of levin sweep submit, where they can be seen. */
static lvn_status take_words(job *j, int n, const char *const *args)
{
    if (n == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "levin sweep trial: a command is missing behind --: "
                                "-- srun -N 2 {command}");
    }
    for (int i = 0; i < n; i++) {
        LVN_TRY(lvni_sweep_texts_add(&j->words, args[i], strlen(args[i])));
    }
    j->o.words = j->words;
    return LVN_OK;
}

static lvn_status take_arguments(job *j, int n, const char *const *args)
{
    for (int i = 0; i < n;) {
        const char *name, *text;
        if (j->how == TRIAL && strcmp(args[i], "--") == 0) {
            return take_words(j, n - i - 1, args + i + 1);
        }
        const int used = lvni_core_config_arguments_of(j->config, n - i, args + i, &name, &text);
        const bool bare = used == 0 && args[i][0] != '-' && strchr(args[i], '=') == NULL;
        if (bare && j->dir == NULL) {
            j->dir = args[i++];
        } else if (bare && j->how == TRIAL && j->trial == NULL) {
            j->trial = args[i++];
        } else {
            LVN_TRY(lvni_core_config_load_arguments(j->config, used > 0 ? used : 1, args + i));
            i += used > 0 ? used : 1;
        }
    }
    return LVN_OK;
}

static lvn_status check_dir(const job *j)
{
    if (j->dir == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "levin sweep %s: which sweep? give its folder, in which sweep.json "
                 "is: levin sweep %s DIR%s",
                 words[j->how], words[j->how], j->how == TRIAL ? " 17" : "");
    }
    return LVN_OK;
}

static lvn_status choose_trial(job *j)
{
    uint64_t number;
    j->o.only = -1;
    if (j->how != TRIAL) {
        return LVN_OK;
    }
    if (j->trial == NULL || !lvni_launch_env_digits(j->trial, INT64_MAX, &number) ||
        (int64_t)number >= j->plan.n_trials) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "levin sweep trial: %s: expected the number of a trial, 0 to %" PRId64,
                 j->trial != NULL ? j->trial : "which one?", j->plan.n_trials - 1);
    }
    j->o.only = (int64_t)number;
    return LVN_OK;
}

static lvn_status prepare(job *j, int n, const char *const *args)
{
    LVN_TRY(lvni_core_config_create(keys, &j->config));
    lvni_core_config_set_help(j->config, "levin help sweep");
    lvni_core_config_collect(j->config);
    LVN_TRY(take_arguments(j, n, args));
    LVN_TRY(check_dir(j));
    LVN_TRY(lvni_core_config_check(j->config));
    LVN_TRY(lvni_sweep_plan_read(j->dir, &j->plan));
    LVN_TRY(choose_trial(j));
    LVN_TRY(choose_slots(j));
    const ssize_t length = readlink("/proc/self/exe", j->levin, sizeof j->levin - 1);
    if (length <= 0) {
        LVN_FAIL(LVN_ERR_INTERNAL, "which program is this? /proc/self/exe cannot be read");
    }
    j->o.levin = j->levin;
    j->o.retries = (int)lvni_core_config_int(j->config, "retries");
    j->o.fail_fast = lvni_core_config_bool(j->config, "fail_fast");
    j->o.quiet = lvni_core_config_bool(j->config, "quiet");
    j->o.first = choose_first(j);
    /* the numbers that srun gave the workers are not those of ranks */
    j->o.single = j->how == WORKER && number_of("SLURM_PROCID", -1) >= 0;
    return LVN_OK;
}

static int work(how kind, int n, const char *const *args)
{
    job j = {.how = kind};
    int code = LVNI_EXIT_OK;
    lvn_status s = prepare(&j, n, args);
    if (s == LVN_OK) {
        s = lvni_sweep_work(&j.plan, &j.o, &code);
    }
    lvni_sweep_texts_free(j.sets);
    lvni_sweep_texts_free(j.words);
    lvni_sweep_plan_free(&j.plan);
    lvni_core_config_destroy(j.config);
    return s == LVN_OK ? code : lvni_run_report_status(s);
}

int lvni_cli_sweep_run(int n, const char *const *args)
{
    return work(RUN, n, args);
}

int lvni_cli_sweep_worker(int n, const char *const *args)
{
    return work(WORKER, n, args);
}

int lvni_cli_sweep_trial(int n, const char *const *args)
{
    return work(TRIAL, n, args);
}
