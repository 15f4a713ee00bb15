/* The numbers and directives of a job (slurm_job.h). */
#include "slurm/slurm_job.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "launch/env_vars.h"
#include "slurm/slurm_check.h"
#include "slurm/slurm_cluster_check.h"

#include <stdio.h>
#include <string.h>

/* ---- numbers ---- */

static bool is(const lvni_slurm_job *job, const char *key, const char *value)
{
    const char *text = lvni_slurm_text(job->options, key);
    return text != NULL && strcmp(text, value) == 0;
}

static bool is_program(const lvni_slurm_job *job, const char *name)
{
    const char *slash = job->n_words > 0 ? strrchr(job->words[0], '/') : NULL;
    return job->n_words > 0 && strcmp(slash != NULL ? slash + 1 : job->words[0], name) == 0;
}

bool lvni_slurm_job_node_is_task(const lvni_slurm_job *job)
{
    return lvni_slurm_is_on(job->options, "no_srun") || is_program(job, "torchrun") ||
           is(job, "mode", "launcher") || is(job, "strategy", "dp") || is(job, "strategy", "ddp2");
}

static bool given(const lvni_slurm_job *job, const char *key)
{
    return lvni_slurm_text(job->options, key) != NULL;
}

/* Tasks of a node by the devices; 0: nothing is known. */
static int64_t usual_tasks(const lvni_slurm_job *job)
{
    if (lvni_slurm_job_node_is_task(job)) {
        return 1;
    }
    const char *type, *gpus = lvni_slurm_text(job->options, "gpus");
    size_t n_type;
    int64_t all;
    if (job->devices == 0 && gpus != NULL && lvni_slurm_gpus_read(gpus, &all, &type, &n_type)) {
        return all % job->nodes == 0 ? all / job->nodes : 0;
    }
    return job->devices;
}

static void count_tasks(lvni_slurm_job *job, lvni_slurm_findings *f)
{
    const lvni_slurm_options *o = job->options;
    const int64_t usual = usual_tasks(job), asked = lvni_slurm_number(o, "ntasks_per_node", 0);
    job->per_node = asked > 0 ? asked : usual;
    if (given(job, "independent_tasks")) {
        if (asked > 0) {
            lvni_slurm_error(f, "V03",
                             "independent_tasks and ntasks_per_node: give one of them  (%s)",
                             lvni_slurm_origin(o, "independent_tasks"));
        }
        job->per_node = 0;
        return;
    }
    if (usual > 0 && asked > 0 && asked != usual) {
        const bool one = lvni_slurm_job_node_is_task(job);
        (lvni_slurm_is_on(o, "force") ? lvni_slurm_warn : lvni_slurm_error)(
            f, "V02", "ntasks_per_node %lld, but %lld: %s; remove it, or force=true  (%s)",
            (long long)asked, (long long)usual,
            one ? "a node is one task with mode=launcher, strategy=dp or ddp2, torchrun and no_srun"
                : "every device of a node has a task",
            lvni_slurm_origin(o, "ntasks_per_node"));
    }
    if (job->per_node == 0 && f->errors == 0) { /* else it may be what follows from another */
        lvni_slurm_error(f, "V02",
                         "how many ranks has a node? devices=2: two GPUs and a rank for each, with "
                         "accelerator=cpu two ranks without GPUs; ntasks_per_node=1: one program, "
                         "without GPUs");
    }
}

static void count(lvni_slurm_job *job, lvni_slurm_findings *f)
{
    const lvni_slurm_options *o = job->options;
    job->nodes = lvni_slurm_number(o, "nodes", 1);
    job->nodes = job->nodes > 0 ? job->nodes : 1;
    job->devices = lvni_slurm_number(o, "devices", 0);
    job->workers = lvni_slurm_number(o, "workers", -1);
    job->cpus = lvni_slurm_number(o, "cpus_per_task", job->workers >= 0 ? job->workers + 1 : 0);
    count_tasks(job, f);
    if (job->cpus > 0 && job->workers >= job->cpus) {
        lvni_slurm_warn(f, "V05",
                        "cpus_per_task %lld with %lld workers: the rank itself needs a core, so "
                        "cpus_per_task=%lld  (%s)",
                        (long long)job->cpus, (long long)job->workers, (long long)job->workers + 1,
                        lvni_slurm_origin(o, "cpus_per_task"));
    }
}

/* On for levin's own trainings, which write a checkpoint and go on. Without auto_requeue no signal
 * is sent, which ends a program that does not expect it. */
static void take_requeue(lvni_slurm_job *job)
{
    const lvni_slurm_options *o = job->options;
    const int automatic = lvni_core_config_switch(o->config, "auto_requeue"),
              asked = lvni_core_config_switch(o->config, "requeue");
    job->requeue = asked >= 0 ? asked == 1 : automatic >= 0 ? automatic == 1 : job->trains;
    const char *text = lvni_slurm_text(o, "signal");
    const bool hidden = lvni_slurm_comment(o, "signal") != NULL;
    if (text != NULL) {
        job->has_signal = lvni_slurm_signal_read(text, &job->signal);
    } else if (job->requeue && !hidden && (automatic >= 0 ? automatic == 1 : job->trains)) {
        job->has_signal = lvni_slurm_signal_read("USR1@90", &job->signal);
    }
}

/* ---- directives ---- */

static void add_gpus(lvni_slurm_job *job, const lvni_slurm_row *row)
{
    char text[256];
    const lvni_slurm_options *o = job->options;
    const char *type = lvni_slurm_text(o, "gpu_type"), *where = lvni_slurm_origin(o, row->key),
               *comment = lvni_slurm_comment(o, row->key),
               *number = comment != NULL ? comment : lvni_slurm_text(o, row->key);
    const bool gres = is(job, "gpu_syntax", "gres");
    if (number == NULL || is(job, "accelerator", "cpu")) {
        return;
    }
    snprintf(text, sizeof text, "%s%.150s%s%.40s", gres ? "gpu:" : "", type != NULL ? type : "",
             type != NULL ? ":" : "", number);
    lvni_slurm_directive_add(&job->directives, gres ? "gres" : row->name, text, where,
                             comment != NULL);
}

/* "8:a100", as the option has it, is a100:8 of Slurm. */
static const char *gpus_text(const char *value, char *room, size_t size)
{
    int64_t n;
    const char *type;
    size_t n_type;
    if (lvni_slurm_gpus_read(value, &n, &type, &n_type) && type != value) {
        snprintf(room, size, "%.*s:%lld", (int)n_type, type, (long long)n);
        return room;
    }
    return value;
}

static void add_number(lvni_slurm_job *job, const lvni_slurm_row *row, int64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)n);
    if (n > 0) {
        lvni_slurm_directive_add(&job->directives, row->name, text,
                                 lvni_slurm_origin(job->options, row->key), false);
    }
}

static void add_requeue(lvni_slurm_job *job, const lvni_slurm_row *row)
{
    const char *where = lvni_slurm_origin(job->options, row->key);
    if (job->requeue) {
        lvni_slurm_directive_add(&job->directives, "requeue", NULL, where, false);
        lvni_slurm_directive_add(&job->directives, "open-mode", "append", where, false);
    } else if (lvni_core_config_switch(job->options->config, row->key) == 0) {
        lvni_slurm_directive_add(&job->directives, "no-requeue", NULL, where, false);
    }
}

static lvn_status add_output(lvni_slurm_job *job, const lvni_slurm_row *row)
{
    const lvni_slurm_options *o = job->options;
    const char *own = lvni_slurm_text(o, row->key), *comment = lvni_slurm_comment(o, row->key);
    lvni_core_str path = {0};
    if (own != NULL || comment != NULL) {
        lvni_slurm_directive_add(&job->directives, row->name, own != NULL ? own : comment,
                                 lvni_slurm_origin(o, row->key), own == NULL);
    }
    if (own == NULL) {
        const char *folder = lvni_slurm_text(o, "log_dir");
        lvni_core_str_printf(&path, "%s/%s", folder != NULL ? folder : ".",
                             given(job, "array") ? "%x-%A_%a.out" : "%x-%j.out");
        lvni_slurm_directive_add(&job->directives, row->name, lvni_core_str_text(&path),
                                 lvni_slurm_origin(o, "log_dir"), false);
    }
    const lvn_status s = lvni_core_str_status(&path);
    lvni_core_str_free(&path);
    return s;
}

/* Clusters have options of their own, too. */
static void check_known(const char *text, const char *where, lvni_slurm_findings *f)
{
    char name[64];
    const char *key = text + (strncmp(text, "--", 2) == 0 ? 2 : 0), *near;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "= "), key);
    if (!lvni_slurm_sbatch_knows(name, &near)) {
        lvni_slurm_warn(
            f, "V01",
            "sbatch `%.60s` is not a known option of sbatch%s%s%s; it is passed on as it "
            "is  (%s)",
            name, near != NULL ? ": did you mean " : "", near != NULL ? near : "",
            near != NULL ? "?" : "", where);
    }
}

static lvn_status add_made(lvni_slurm_job *job, const lvni_slurm_row *row, lvni_slurm_findings *f)
{
    const lvni_slurm_options *o = job->options;
    const char *key = row->key, *where = lvni_slurm_origin(o, key), *text;
    if (strcmp(key, "devices") == 0) {
        add_gpus(job, row);
    } else if (strcmp(key, "ntasks_per_node") == 0) {
        add_number(job, row, job->per_node);
    } else if (strcmp(key, "independent_tasks") == 0) {
        add_number(job, row, lvni_slurm_number(o, key, 0));
    } else if (strcmp(key, "cpus_per_task") == 0) {
        add_number(job, row, job->cpus);
    } else if (strcmp(key, "requeue") == 0) {
        add_requeue(job, row);
    } else if (strcmp(key, "output") == 0) {
        return add_output(job, row);
    } else if (strcmp(key, "signal") == 0 && !given(job, key) && job->has_signal) {
        lvni_slurm_directive_add(&job->directives, row->name, "USR1@90", "requeue", false);
    } else if (strcmp(key, "sbatch") == 0) {
        for (size_t i = 0; (text = lvni_slurm_item_at(o, key, i)) != NULL; i++) {
            if (!lvni_slurm_directive_put(&job->directives, text, where)) {
                lvni_slurm_error(f, "V01",
                                 "sbatch `%.80s`: expected KEY, KEY=VALUE or KEY=VALUE # "
                                 "comment  (%s)",
                                 text, where);
            } else {
                check_known(text, where, f);
            }
        }
    } else if (row->type == LVNI_OPT_STRING && (text = lvni_slurm_text(o, key)) != NULL) {
        lvni_slurm_directive_add(&job->directives, row->name, text, where, false);
    }
    const bool done = strcmp(key, "devices") == 0 || strcmp(key, "output") == 0;
    if (row->type == LVNI_OPT_STRING && !done && lvni_slurm_comment(o, key) != NULL) {
        lvni_slurm_directive_add(&job->directives, row->name, lvni_slurm_comment(o, key), where,
                                 true);
    }
    return LVN_OK;
}

static void add_plain(lvni_slurm_job *job, const lvni_slurm_row *row)
{
    const lvni_slurm_options *o = job->options;
    char room[256];
    int64_t seconds;
    const char *text = lvni_slurm_text(o, row->key), *hidden = lvni_slurm_comment(o, row->key),
               *value = text != NULL ? text : hidden;
    if (value == NULL) {
        return;
    }
    if (row->grammar == LVNI_SLURM_TIME && lvni_slurm_time_read(value, &seconds)) {
        lvni_slurm_time_write(seconds, room);
        value = room;
    } else if (row->grammar == LVNI_SLURM_GPUS) {
        value = gpus_text(value, room, sizeof room);
    }
    const bool bare = row->emission == LVNI_SLURM_OPTIONAL && strcmp(value, "true") == 0;
    lvni_slurm_directive_add(&job->directives, row->name, bare ? NULL : value,
                             lvni_slurm_origin(o, row->key), text == NULL);
}

static lvn_status add_directives(lvni_slurm_job *job, lvni_slurm_findings *f)
{
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *row = &lvni_slurm_rows[i];
        if (row->emission == LVNI_SLURM_MADE) {
            LVN_TRY(add_made(job, row, f));
        } else if (row->emission == LVNI_SLURM_SWITCH && lvni_slurm_is_on(job->options, row->key)) {
            lvni_slurm_directive_add(&job->directives, row->name, NULL,
                                     lvni_slurm_origin(job->options, row->key), false);
        } else if (row->emission == LVNI_SLURM_DIRECTIVE || row->emission == LVNI_SLURM_OPTIONAL) {
            add_plain(job, row);
        }
    }
    return lvni_slurm_directives_status(&job->directives);
}

/* ---- rules ---- */

/* A variable of the program that Slurm sets, or that NCCL does not know. */
static void check_variable(const lvni_slurm_job *job, const char *key, const char *text,
                           lvni_slurm_findings *f)
{
    char name[128];
    size_t n;
    const char *near, *where = lvni_slurm_origin(job->options, key);
    if (!lvni_slurm_variable_read(text, &n) || n + 6 > sizeof name) {
        return;
    }
    const bool prefix = strcmp(key, "nccl") == 0 && strncmp(text, "NCCL_", 5) != 0;
    snprintf(name, sizeof name, "%s%.*s", prefix ? "NCCL_" : "", (int)n, text);
    if (strcmp(name, "CUDA_VISIBLE_DEVICES") == 0) {
        lvni_slurm_warn(f, "V15", "%s: Slurm sets it for each task; remove it  (%s)", text, where);
    } else if (lvni_launch_nccl_is_unknown(name, &near)) {
        lvni_slurm_warn(f, "W214",
                        "%s is not a known variable of NCCL%s%s%s; it is passed on as it is  (%s)",
                        name, near != NULL ? ": did you mean NCCL_" : "", near != NULL ? near : "",
                        near != NULL ? "?" : "", where);
    }
}

static void check_variables(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    static const char *const keys[] = {"export", "nccl"};
    for (size_t k = 0; k < 2; k++) {
        const char *text;
        for (size_t i = 0; (text = lvni_slurm_item_at(job->options, keys[k], i)) != NULL; i++) {
            check_variable(job, keys[k], text + (text[0] == '?'), f);
        }
    }
    const char *debug = lvni_slurm_text(job->options, "nccl_debug");
    static const char levels[] = "VERSION|WARN|INFO|TRACE";
    if (debug != NULL && lvni_core_option_choice_index(levels, debug, strlen(debug)) < 0) {
        lvni_slurm_error(f, "V01",
                         "nccl_debug `%.60s`: expected VERSION, WARN, INFO or TRACE  (%s)", debug,
                         lvni_slurm_origin(job->options, "nccl_debug"));
    }
}

static void check_port(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    const bool fixed = lvni_slurm_number(job->options, "master_port", 0) > 0;
    if (fixed && lvni_slurm_directive_find(&job->directives, "exclusive") == NULL) {
        lvni_slurm_warn(f, "V14",
                        "master_port %s is fixed, and another job on the same node may have it: "
                        "exclusive=true, or master_port=random  (%s)",
                        lvni_slurm_text(job->options, "master_port"),
                        lvni_slurm_origin(job->options, "master_port"));
    }
}

static void check_requeue(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    const lvni_slurm_options *o = job->options;
    if (job->requeue && !job->has_signal) {
        lvni_slurm_warn(f, "V16",
                        "requeue without signal: the job ends at its time limit without "
                        "a checkpoint; signal=USR1@90 where the program writes one at SIGUSR1");
    } else if (!job->trains && lvni_core_config_switch(o->config, "auto_requeue") == 1) {
        lvni_slurm_warn(f, "V16",
                        "auto_requeue of another program than levin train: at the signal it has to "
                        "write a checkpoint and to run `scontrol requeue $SLURM_JOB_ID` itself  "
                        "(%s)",
                        lvni_slurm_origin(o, "auto_requeue"));
    } else if (job->requeue && job->trains && !job->has_run_dir) {
        lvni_slurm_warn(f, "V16",
                        "requeue without a run directory: each start of the job would be "
                        "a new run; give the training out=DIR");
    }
    if (!job->trains && lvni_slurm_number(o, "max_requeues", 0) > 0) {
        lvni_slurm_error(f, "V16",
                         "max_requeues counts those of levin train, and this is another "
                         "program; remove it  (%s)",
                         lvni_slurm_origin(o, "max_requeues"));
    }
    if (job->has_signal && job->signal.batch && lvni_slurm_is_on(o, "no_srun")) {
        lvni_slurm_error(f, "V07",
                         "signal B:%s goes to the script, and without srun the program "
                         "is the script's own: remove B:  (%s)",
                         job->signal.name, lvni_slurm_origin(o, "signal"));
    }
    static const char deaf[] = "KILL|STOP|9|19";
    const char *name = job->signal.name;
    if (job->has_signal && job->signal.batch &&
        lvni_core_option_choice_index(deaf, name, strlen(name)) >= 0) {
        lvni_slurm_error(f, "V07",
                         "signal B:%s: no script can pass this one on; USR1, TERM or INT  (%s)",
                         name, lvni_slurm_origin(o, "signal"));
    }
}

/* ---- what the script needs where it runs ---- */

static bool is_variable_path(const lvni_slurm_job *job, const char *path)
{
    return path[0] == '?' || (lvni_slurm_is_on(job->options, "raw") && strchr(path, '$') != NULL);
}

/* V08: a folder of `key`, or `file` in it, that is not there. */
static lvn_status check_path(const lvni_slurm_job *job, const char *key, const char *file,
                             lvni_slurm_findings *f)
{
    const char *path = lvni_slurm_given(job->options, key),
               *chdir = lvni_slurm_text(job->options, "chdir");
    lvni_core_str all = {0};
    if (path == NULL || is_variable_path(job, path)) {
        return LVN_OK;
    }
    if (chdir != NULL && path[0] != '/' && strcmp(key, "chdir") != 0) {
        lvni_core_str_printf(&all, "%s/", chdir);
    }
    lvni_core_str_printf(&all, "%s%s", path, file);
    if (!all.failed && !lvni_core_path_exists(lvni_core_str_text(&all))) {
        lvni_slurm_warn(
            f, "V08",
            "%s `%.200s`: there is no %.300s here; without it on the nodes the job ends "
            "as it begins%s  (%s)",
            key, path, lvni_core_str_text(&all),
            strchr(path, '$') != NULL ? ", and $NAME in it is replaced with raw=true" : "",
            lvni_slurm_origin(job->options, key));
    }
    const lvn_status s = lvni_core_str_status(&all);
    lvni_core_str_free(&all);
    return s;
}

static lvn_status check_paths(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    LVN_TRY(check_path(job, "chdir", "", f));
    LVN_TRY(check_path(job, "venv", "/bin/activate", f));
    return check_path(job, "conda_base", "/etc/profile.d/conda.sh", f);
}

/* V12: programs that start tasks themselves, in tasks of srun. */
static void check_program(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    static const char *const starters[] = {"srun", "mpirun", "mpiexec"};
    const bool srun = !lvni_slurm_is_on(job->options, "no_srun");
    for (size_t i = 0; srun && i < sizeof starters / sizeof *starters; i++) {
        if (is_program(job, starters[i])) {
            lvni_slurm_warn(f, "V12",
                            "%s in each task of srun: the script starts the program with srun; "
                            "remove %s, or no_srun=true",
                            starters[i], starters[i]);
        }
    }
    if (!srun && job->nodes > 1) {
        lvni_slurm_warn(f, "V12",
                        "no_srun: the program runs once, on the first of %lld nodes  (%s)",
                        (long long)job->nodes, lvni_slurm_origin(job->options, "no_srun"));
    }
    for (int i = 0; srun && lvni_slurm_is_on(job->options, "raw") && i < job->n_words; i++) {
        const char *word = job->words[i];
        if (strstr(word, "SLURM_PROCID") != NULL || strstr(word, "SLURM_LOCALID") != NULL ||
            strstr(word, "$RANDOM") != NULL) {
            lvni_slurm_warn(f, "V14",
                            "raw: `%.100s` is replaced once, by the script, and is the same in all "
                            "tasks; bash -c '...' replaces it in each",
                            word);
        }
    }
}

/* V21. What loads modules or makes a path of its own may have it later. */
static void check_levin(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    static const char *const makes[] = {"module", "setup", "export"};
    const lvni_slurm_options *o = job->options;
    bool other = given(job, "venv") || given(job, "conda") || given(job, "container");
    for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) {
        other = other || lvni_slurm_item_at(o, makes[i], 0) != NULL;
    }
    const bool starts = is(job, "mode", "launcher") || (job->trains && is_program(job, "levin") &&
                                                        strchr(job->words[0], '/') == NULL);
    if (starts && !other && job->levin_is_missing) {
        lvni_slurm_warn(f, "V21",
                        "PATH has no levin, and the job looks for it there: --setup 'export "
                        "PATH=FOLDER_OF_LEVIN:$PATH'");
    }
}

/* Types are the GPUs', and not their number. */
static void check_gpu_type(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    const char *type = lvni_slurm_text(job->options, "gpu_type");
    if (type != NULL && strchr(type, ':') != NULL) {
        lvni_slurm_error(f, "V04",
                         "gpu_type `%.80s`: the type alone, as the number is devices=D  (%s)", type,
                         lvni_slurm_origin(job->options, "gpu_type"));
    }
}

/* Elements of an array would meet in one run directory, and tasks of srun are one training. */
static void check_shared_run(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    const lvni_slurm_options *o = job->options;
    if (job->trains && given(job, "independent_tasks")) {
        lvni_slurm_error(f, "V22",
                         "independent_tasks of a training: tasks of srun are the ranks of one; "
                         "several trainings are an array, -a 0-3 with --raw and "
                         "'out=DIR/run_$SLURM_ARRAY_TASK_ID'  (%s)",
                         lvni_slurm_origin(o, "independent_tasks"));
    } else if (job->trains && given(job, "array") && job->fixed_run_dir != NULL) {
        lvni_slurm_error(f, "V22",
                         "all elements of array %.60s would train in one run directory: --raw "
                         "'out=%.200s_$SLURM_ARRAY_TASK_ID'; one long training needs no array, as "
                         "it is queued again (auto_requeue)  (%s)",
                         lvni_slurm_text(o, "array"), job->fixed_run_dir,
                         lvni_slurm_origin(o, "array"));
    }
}

/* Rows that another one makes useless. */
static void check_needs(const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    static const char *const needs[][2] = {
        {"gpu_type", "devices"}, {"conda_base", "conda"}, {"container_cmd", "container"}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const char *where = lvni_slurm_origin(job->options, needs[i][0]);
        if (lvni_core_config_is_set(job->options->config, needs[i][0]) &&
            strcmp(where, "default") != 0 &&
            !lvni_core_config_is_set(job->options->config, needs[i][1])) {
            lvni_slurm_error(f, "V01", "%s has no effect without %s  (%s)", needs[i][0],
                             needs[i][1], where);
        }
    }
}

lvn_status lvni_slurm_job_make(lvni_slurm_job *job, lvni_slurm_findings *f)
{
    count(job, f);
    take_requeue(job);
    LVN_TRY(add_directives(job, f));
    const bool checked = lvni_slurm_item_at(job->options, "sbatch", 0) == NULL;
    lvni_slurm_directives_check(&job->directives, checked,
                                job->cluster != NULL ? job->cluster->array_size : 0, f);
    lvni_slurm_output_check(&job->directives, job->makes_folders, f);
    check_variables(job, f);
    check_port(job, f);
    check_requeue(job, f);
    check_needs(job, f);
    check_program(job, f);
    check_levin(job, f);
    check_gpu_type(job, f);
    check_shared_run(job, f);
    LVN_TRY(check_paths(job, f));
    if (job->cluster != NULL) {
        LVN_TRY(lvni_slurm_cluster_check(job->cluster, &job->directives, f));
    }
    return lvni_core_str_status(&f->text);
}

void lvni_slurm_job_free(lvni_slurm_job *job)
{
    lvni_slurm_directives_free(&job->directives);
}
