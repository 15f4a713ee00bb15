/* levin sweep submit DIR: the trials of a sweep as jobs of Slurm: arrays, a job for each, or
 * workers in one allocation. The script comes from the options and rules of `levin slurm script`;
 * in front of its srun stands `levin sweep trial`, which claims the trial and writes its result. */
#include "cli/cli.h"
#include "cli/slurm_found.h"
#include "cli/slurm_plan.h"
#include "cli/slurm_submit.h"
#include "cli/sweep.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "recipes/registry.h"
#include "run/error_record.h"
#include "run/recipe.h"
#include "slurm/slurm_script.h"
#include "sweep/sweep_jobs.h"
#include "sweep/sweep_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const lvni_core_option rows[] = {
    {.name = "as",
     .type = LVNI_OPT_CHOICE,
     .choices = "array|jobs|tasks",
     .fallback = "array",
     .help = "submit: a trial is an element of a job array; or a job for each trial; or one job, "
             "whose tasks are workers that take trials until none is left."},
    {.name = "throttle",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "submit: time between two calls of sbatch."}};
const lvni_core_option_table lvni_cli_sweep_submit_table = LVNI_OPTION_TABLE("Slurm", rows);

/* Those that other sub-commands have, too. */
static const lvni_core_option more_rows[] = {
    {.name = "parallel",
     .type = LVNI_OPT_INT,
     .range = LVNI_AT_LEAST(1),
     .help = "as=array: so many elements run at once. Default: as many as Slurm starts."},
    {.name = "dry_run",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Print all scripts and commands, and nothing else."},
    {.name = "retry_failed",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Trials that failed, too."}};
static const lvni_core_option_table more_table = LVNI_OPTION_TABLE("submit", more_rows);
const lvni_core_option_table *const lvni_cli_sweep_submit_keys[] = {&lvni_cli_sweep_submit_table,
                                                                    &more_table, NULL};

enum {
    ARRAY_MOST = 1001, /* Slurm's own MaxArraySize, where that of the cluster is not known */
};

/* Keys that a job and a training share. */
static const char *const shared[] = {"devices", "num_nodes", "strategy", "accelerator",
                                     "num_workers"};
enum { SHARED = sizeof shared / sizeof *shared };

typedef struct submission {
    int n_args;
    const char *const *args;
    const char *dir;
    lvni_core_str folder; /* absolute: the job may begin elsewhere */
    lvni_core_config *config;
    const char **words; /* of the job's options; borrowed */
    int n_words;
    lvni_sweep_plan plan;
    lvni_slurm_options options;
    lvni_slurm_findings findings;
    lvni_slurm_cluster cluster; /* asked once for all jobs */
    bool has_asked;
    lvni_core_str name; /* of the jobs */
    int64_t *pending;   /* trials, ascending */
    int64_t n_pending, n_in, n_jobs;
    bool has_workers;           /* a job of workers is in the queue */
    lvni_core_config *training; /* of a trial; NULL: another program */
    char *ours[SHARED];         /* the job's own values of the keys that both share; NULL: none */
    char **more;                /* those that the command has not, which it gets */
    lvni_cli_slurm_submission how;
    int code;
} submission;

/* ---- arguments ---- */

static lvn_status read_arguments(submission *s, int n, const char *const *args)
{
    lvni_core_config *job;
    const char *name, *text;
    const lvni_slurm_row *row;
    lvn_status status = LVN_OK;
    LVN_TRY(lvni_core_config_create(lvni_cli_sweep_submit_keys, &s->config));
    LVN_TRY(lvni_core_config_create(lvni_slurm_keys, &job));
    for (int i = 0, taken; i < n && status == LVN_OK; i += taken) {
        taken = lvni_core_config_arguments_of(s->config, n - i, args + i, &name, &text);
        if (taken > 0 && name != NULL) {
            status = lvni_core_config_load_arguments(s->config, taken, args + i);
            continue;
        }
        taken = lvni_slurm_option_at(job, n - i, args + i, &row, &text);
        if (taken == 0 && s->dir == NULL && args[i][0] != '-' && args[i][0] != '\0' &&
            (strchr(args[i], '=') == NULL || lvni_core_path_is_folder(args[i]))) {
            s->dir = args[i];
            taken = 1;
            continue;
        }
        for (int k = 0; k < taken || k == 0; k++) { /* what is unknown is worded there */
            s->words[s->n_words++] = args[i + k];
        }
        taken = taken > 0 ? taken : 1;
    }
    lvni_core_config_destroy(job);
    LVN_TRY(status);
    if (s->dir == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "levin sweep submit: the folder of a sweep is missing: levin sweep "
                                "submit DIR [options of levin slurm script]");
    }
    LVN_TRY(lvni_core_config_finish(s->config));
    s->how.dry_run = lvni_core_config_bool(s->config, "dry_run");
    lvni_core_path_absolute(s->dir, &s->folder);
    LVN_TRY(lvni_core_str_status(&s->folder));
    return lvni_sweep_plan_read(lvni_core_str_text(&s->folder), &s->plan);
}

static bool is_as(const submission *s, const char *what)
{
    return strcmp(lvni_core_config_str(s->config, "as"), what) == 0;
}

/* ---- which trials ---- */

lvn_status lvni_cli_sweep_queue(const lvni_sweep_plan *plan, lvni_core_str *out)
{
    char user[24];
    int code = 0;
    snprintf(user, sizeof user, "%lld", (long long)geteuid());
    const char *const argv[] = {"squeue", "-h", "-r", "-o", "%i", "-u", user, NULL};
    LVN_TRY(lvni_cli_slurm_call(argv, out, &code));
    if (code != 0) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "squeue does not list which jobs of %s/jobs.tsv are in the queue: %s", plan->dir,
                 lvni_core_str_text(out));
    }
    return LVN_OK;
}

/* Of one that runs by a job that is gone, the next job finds out for certain. */
static bool is_open(const submission *s, const lvni_sweep_look *look, const char *queue)
{
    switch (look->state) {
    case LVNI_SWEEP_PENDING:
    case LVNI_SWEEP_LOST:
    case LVNI_SWEEP_INTERRUPTED: return true;
    case LVNI_SWEEP_FAILED: return lvni_core_config_bool(s->config, "retry_failed");
    case LVNI_SWEEP_RUNNING:
        return queue != NULL && look->owner.job[0] != '\0' &&
               !lvni_sweep_queue_has(queue, look->owner.job);
    default: return false;
    }
}

static lvn_status choose(submission *s, const lvni_sweep_table *t, const lvni_sweep_jobs *jobs,
                         const char *queue)
{
    const lvni_sweep_job *workers = NULL;
    int64_t waiting = 0;
    bool *queued = lvni_core_calloc(LVNI_TAG_CORE, (size_t)t->n, sizeof *queued);
    s->pending = lvni_core_calloc(LVNI_TAG_CORE, (size_t)t->n, sizeof *s->pending);
    lvn_status status = queued == NULL || s->pending == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (status == LVN_OK && queue != NULL) {
        status = lvni_sweep_jobs_match(jobs, queue, t->n, queued, &workers);
    }
    for (int64_t i = 0; status == LVN_OK && i < t->n; i++) {
        const bool open = is_open(s, &t->rows[i].look, queue);
        if (open && !queued[i] && workers == NULL) {
            s->pending[s->n_pending++] = i;
        }
        waiting += open && (queued[i] || workers != NULL);
    }
    if (status == LVN_OK && waiting > 0) {
        lvni_core_print(stderr, "levin: note: %s: %lld trial%s in the queue already%s%s\n",
                        s->plan.name, (long long)waiting, lvni_core_plural(waiting, " is", "s are"),
                        workers != NULL ? ", with the workers of job " : "",
                        workers != NULL ? workers->id : "");
    }
    s->has_workers = workers != NULL;
    lvni_core_free(queued);
    return status;
}

/* Those that have to run, and no job yet. */
static lvn_status find_pending(submission *s)
{
    lvni_sweep_table t = {.n = 0};
    lvni_sweep_jobs jobs = {.n = 0};
    lvni_core_str queue = {0};
    bool known = false;
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_sweep_table_read(&s->plan, false, lvni_sweep_ask_host, NULL, &t));
    LVNI_TRY_DONE(status, s->how.dry_run ? LVN_OK : lvni_cli_slurm_recover(s->plan.dir));
    LVNI_TRY_DONE(status, lvni_sweep_jobs_read(&s->plan, &jobs));
    if (jobs.n > 0) {
        status = lvni_cli_sweep_queue(&s->plan, &queue);
        known = status == LVN_OK;
        if (status == LVN_ERR_RESOURCE && s->how.dry_run) {
            lvni_core_print(stderr, "levin: note: %s\n", lvn_last_error()->message);
            lvn_clear_error();
            status = LVN_OK;
        }
        LVNI_TRY_DONE(status, status);
    }
    status = choose(s, &t, &jobs, known ? lvni_core_str_text(&queue) : NULL);
done:
    lvni_sweep_table_free(&t);
    lvni_sweep_jobs_free(&jobs);
    lvni_core_str_free(&queue);
    return status;
}

/* ---- the options of the jobs ---- */

static lvn_status set(submission *s, const char *key, const char *text)
{
    return lvni_core_config_set(s->options.config, key, text, "levin sweep submit");
}

static bool is_given(const submission *s, const char *key)
{
    return strcmp(lvni_slurm_origin(&s->options, key), "default") != 0;
}

/* What a sweep decides itself is refused; what it knows better than the defaults is set. */
static lvn_status load_options(submission *s)
{
    lvni_core_str logs = {0};
    lvn_status status;
    LVNI_TRY_DONE(
        status, lvni_slurm_options_load(s->n_words, s->words, environ, &s->findings, &s->options));
    static const char *const own[][2] = {
        {"array", "the elements are the trials that are pending; at most so many at once: "
                  "parallel=4"},
        {"out", "the scripts are written into log_dir; dry_run=true prints them"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (lvni_slurm_given(&s->options, own[i][0]) != NULL) {
            lvni_slurm_error(&s->findings, "V01",
                             "%s has no effect with levin sweep submit: %s  (%s)", own[i][0],
                             own[i][1], lvni_slurm_origin(&s->options, own[i][0]));
        }
    }
    lvni_core_str_append(&s->name, is_given(s, "job_name")
                                       ? lvni_slurm_text(&s->options, "job_name")
                                       : s->plan.name);
    lvni_slurm_value_check(LVNI_SLURM_NAME, "job_name", lvni_core_str_text(&s->name),
                           "name of the sweep", &s->findings);
    if (!is_given(s, "log_dir")) {
        lvni_core_str_printf(&logs, "%s/jobs", s->plan.dir);
        LVNI_TRY_DONE(status, lvni_core_str_status(&logs));
        LVNI_TRY_DONE(status, set(s, "log_dir", lvni_core_str_text(&logs)));
    }
    status = lvni_core_str_status(&s->name);
done:
    lvni_core_str_free(&logs);
    return status;
}

/* ---- keys that a job and a training share ---- */

enum { RECIPE_AT = 2, KEYS_AT = 3 }; /* levin train RECIPE key=value ... */

/* What the training's own words or file give it; NULL: nothing. */
static const char *text_of(const lvni_core_config *c, const char *key, char room[24])
{
    if (!lvni_core_config_has(c, key) || !lvni_core_config_is_given(c, key) ||
        !lvni_core_config_is_set(c, key) || lvni_core_config_is_mistaken(c, key)) {
        return NULL;
    }
    if (lvni_core_config_row(c, key)->type != LVNI_OPT_INT) {
        return lvni_core_config_str(c, key);
    }
    snprintf(room, 24, "%lld", (long long)lvni_core_config_int(c, key));
    return room;
}

static lvn_status add_more(submission *s, const char *key, const char *value)
{
    lvni_core_str word = {0};
    lvni_core_str_printf(&word, "%s=%s", key, value);
    lvn_status status = lvni_core_str_status(&word);
    if (status == LVN_OK) {
        status = lvni_sweep_texts_add(&s->more, lvni_core_str_text(&word), word.len);
    }
    lvni_core_str_free(&word);
    return status;
}

/* Of an array and of workers, which have one job for all trials. */
static void check_shared(submission *s, const char *key)
{
    for (char *const *p = s->plan.parameters; !is_as(s, "jobs") && *p != NULL; p++) {
        const lvni_core_option *row = lvni_core_config_row(s->training, *p);
        if (row != NULL && strcmp(row->name, key) == 0) {
            lvni_slurm_error(&s->findings, "V01",
                             "%s differs between the trials, and an array has one for all: as=jobs",
                             *p);
        }
    }
}

/* What the trial has counts for the job, and the other way round. */
static lvn_status share(submission *s)
{
    lvni_sweep_texts_free(s->more);
    s->more = NULL;
    for (int i = 0; i < SHARED; i++) {
        const char *key = lvni_slurm_row_shared(shared[i])->key;
        char room[24];
        const char *theirs = text_of(s->training, shared[i], room),
                   *fallback = lvni_core_config_row(s->options.config, key)->fallback;
        check_shared(s, shared[i]);
        if (s->ours[i] == NULL) {
            LVN_TRY(set(s, key, theirs != NULL ? theirs : fallback != NULL ? fallback : "null"));
        } else if (theirs == NULL && lvni_core_config_has(s->training, shared[i])) {
            LVN_TRY(add_more(s, shared[i], s->ours[i]));
        }
    }
    return LVN_OK;
}

/* Mistakes in its keys were reported when the sweep was planned, and end the trial. */
static lvn_status load_training(submission *s, const lvni_sweep_trial *trial)
{
    const int n = (int)lvni_sweep_texts_count(trial->argv);
    const lvni_run_recipe *recipe =
        s->plan.training && n >= KEYS_AT ? lvni_recipes_find(trial->argv[RECIPE_AT]) : NULL;
    lvni_core_config_destroy(s->training);
    s->training = NULL;
    if (recipe == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_config_create(recipe->keys, &s->training));
    lvni_core_config_collect(s->training);
    if (lvni_core_config_load_arguments(s->training, n - KEYS_AT,
                                        (const char *const *)trial->argv + KEYS_AT) != LVN_OK) {
        lvn_clear_error();
    }
    return share(s);
}

/* What the command line, a file or a profile gives the job. */
static lvn_status keep_ours(submission *s)
{
    for (int i = 0; i < SHARED; i++) {
        const char *key = lvni_slurm_row_shared(shared[i])->key,
                   *text = is_given(s, key) ? lvni_slurm_text(&s->options, key) : NULL;
        s->ours[i] = text != NULL ? lvni_core_strdup(LVNI_TAG_CONFIG, text) : NULL;
        if (text != NULL && s->ours[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    return LVN_OK;
}

/* The first training as levin plan sees it with the ranks of the job. One that goes on has been
 * accepted before. */
static lvn_status plan(submission *s, const lvni_slurm_job *job)
{
    const char *accelerator = lvni_slurm_text(&s->options, "accelerator");
    const int64_t per_node = job->devices > 0 ? job->devices : job->per_node;
    lvni_core_str run = {0};
    if (s->n_pending == 0) { /* a program is asked for trials, and there is none yet */
        return LVN_OK;
    }
    lvni_sweep_trial_path(&s->plan, s->pending[0], &run);
    lvni_core_str_append(&run, "/run");
    lvn_status status = lvni_core_str_status(&run);
    if (status == LVN_OK && s->training != NULL && s->n_jobs == 0 && s->findings.errors == 0 &&
        per_node > 0 && lvni_slurm_is_on(&s->options, "plan") &&
        !lvni_core_path_exists(lvni_core_str_text(&run))) {
        status = lvni_cli_slurm_plan(
            &(lvni_cli_slurm_training){.n = job->n_words - RECIPE_AT,
                                       .words = job->words + RECIPE_AT,
                                       .config = s->training,
                                       .ranks = job->nodes * per_node,
                                       .chdir = lvni_slurm_text(&s->options, "chdir"),
                                       .on_cpu =
                                           accelerator != NULL && strcmp(accelerator, "cpu") == 0},
            &s->findings);
    }
    lvni_core_str_free(&run);
    return status;
}

/* ---- one job ---- */

/* "levin sweep trial DIR NUMBER --", the number in the words of the shell. */
static void add_front(const submission *s, const char *number, lvni_core_str *out)
{
    lvni_core_str_append(out, "levin sweep trial ");
    lvni_slurm_word(out, s->plan.dir, false);
    lvni_core_str_printf(out, " %s --", number);
}

/* words, and those that the command gets besides; a list of its own. */
static lvn_status join(char *const *words, char *const *more, char ***out)
{
    *out = NULL;
    for (int part = 0; part < 2; part++) {
        char *const *p = part == 0 ? words : more;
        for (; p != NULL && *p != NULL; p++) {
            LVN_TRY(lvni_sweep_texts_add(out, *p, strlen(*p)));
        }
    }
    return LVN_OK;
}

/* The job as sbatch will see it; its findings are printed. */
static lvn_status check(submission *s, lvni_slurm_job *job)
{
    LVN_TRY(lvni_slurm_job_make(job, &s->findings));
    LVN_TRY(plan(s, job));
    if (s->n_jobs > 0 && s->findings.errors == 0) {
        lvni_core_str_clear(&s->findings.text); /* warnings as of the first */
    }
    lvni_cli_slurm_print_findings(&s->findings);
    s->code = s->findings.errors > 0 ? LVNI_EXIT_USAGE : s->code;
    return LVN_OK;
}

/* To sbatch, or printed. command: of the trial, which the rules of the job are about; written: what
 * stands in the script for it. front NULL: it is not a trial. */
static lvn_status submit(submission *s, char *const *command, char *const *written,
                         const char *front)
{
    lvni_core_str script = {0};
    char **checked = NULL, **words = NULL;
    const bool trains = s->plan.training && front != NULL;
    lvni_slurm_job job = {.options = &s->options,
                          .trains = trains,
                          .has_run_dir = trains,
                          .levin_is_missing = !lvni_cli_slurm_is_in_path("levin"),
                          .makes_folders = true,
                          .front = front,
                          .made_by = "levin sweep submit",
                          .cluster = s->has_asked ? &s->cluster : NULL};
    lvn_status status;
    LVNI_TRY_DONE(status, join(command, s->more, &checked));
    LVNI_TRY_DONE(status, join(written, s->more, &words));
    job.words = (const char *const *)checked;
    job.n_words = (int)lvni_sweep_texts_count(checked);
    LVNI_TRY_DONE(status, check(s, &job));
    if (s->code != LVNI_EXIT_OK) {
        goto done;
    }
    if (s->n_jobs == 0 && !s->how.dry_run) {
        LVNI_TRY_DONE(status,
                      lvni_cli_sweep_prepare(
                          &s->plan, lvni_core_config_bool(s->config, "retry_failed"), NULL, 0));
    }
    job.words = (const char *const *)words;
    job.n_words = (int)lvni_sweep_texts_count(words);
    LVNI_TRY_DONE(status, lvni_slurm_script_write(&job, s->n_args, s->args, &script));
    status = lvni_cli_slurm_submit_job(&job, &script, &s->how, &s->code);
    s->n_jobs += status == LVN_OK && s->code == LVNI_EXIT_OK;
done:
    lvni_slurm_job_free(&job);
    lvni_core_str_free(&script);
    lvni_sweep_texts_free(checked);
    lvni_sweep_texts_free(words);
    return status;
}

/* Between two calls of sbatch. */
static void pause_between(const submission *s)
{
    const double seconds = lvni_core_config_float(s->config, "throttle");
    if (s->how.dry_run || s->n_jobs == 0 || !(seconds > 0)) {
        return;
    }
    const double whole = floor(seconds < 1e6 ? seconds : 1e6);
    struct timespec left = {.tv_sec = (time_t)whole,
                            .tv_nsec = (long)((fmin(seconds, 1e6) - whole) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* ---- array ---- */

/* The n trials, whose elements are their numbers less offset. */
static lvn_status submit_array(submission *s, const int64_t *trials, int64_t n, int64_t offset)
{
    static char command[] = "{command}", *const written[] = {command, NULL};
    lvni_core_str elements = {0}, list = {0}, front = {0}, number = {0};
    lvni_sweep_trial first = {.index = -1};
    char base[24];
    int64_t *numbers = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n, sizeof *numbers);
    lvn_status status = numbers == NULL ? LVN_ERR_MEMORY : LVN_OK;
    LVNI_TRY_DONE(status, status);
    for (int64_t i = 0; i < n; i++) {
        numbers[i] = trials[i] - offset;
    }
    lvni_sweep_list_print(numbers, n, &elements);
    lvni_sweep_list_print(trials, n, &list);
    if (lvni_core_config_is_set(s->config, "parallel")) {
        lvni_core_str_printf(&elements, "%%%lld",
                             (long long)lvni_core_config_int(s->config, "parallel"));
    }
    snprintf(base, sizeof base, "%lld", (long long)offset);
    if (offset == 0) {
        lvni_core_str_append(&number, "\"$SLURM_ARRAY_TASK_ID\"");
    } else {
        lvni_core_str_printf(&number, "\"$((SLURM_ARRAY_TASK_ID + %s))\"", base);
    }
    add_front(s, lvni_core_str_text(&number), &front);
    LVNI_TRY_DONE(status, lvni_core_str_status(&elements));
    LVNI_TRY_DONE(status, lvni_core_str_status(&list));
    LVNI_TRY_DONE(status, lvni_core_str_status(&front));
    LVNI_TRY_DONE(status, set(s, "array", lvni_core_str_text(&elements)));
    LVNI_TRY_DONE(status, lvni_sweep_trial_read(&s->plan, trials[0], &first));
    LVNI_TRY_DONE(status, load_training(s, &first));
    s->how.trials = lvni_core_str_text(&list);
    s->how.offset = base;
    status = submit(s, first.argv, written, lvni_core_str_text(&front));
    s->n_in += s->code == LVNI_EXIT_OK ? n : 0;
done:
    lvni_core_str_free(&elements);
    lvni_core_str_free(&list);
    lvni_core_str_free(&front);
    lvni_core_str_free(&number);
    lvni_sweep_trial_free(&first);
    lvni_core_free(numbers);
    return status;
}

static lvn_status submit_arrays(submission *s)
{
    const int64_t most = s->cluster.array_size > 0 ? s->cluster.array_size : ARRAY_MOST;
    LVN_TRY(set(s, "job_name", lvni_core_str_text(&s->name)));
    for (int64_t i = 0, n; i < s->n_pending && s->code == LVNI_EXIT_OK; i += n) {
        const int64_t offset = s->pending[i] / most * most;
        for (n = 1; i + n < s->n_pending && s->pending[i + n] < offset + most; n++) {
        }
        pause_between(s);
        LVN_TRY(submit_array(s, s->pending + i, n, offset));
    }
    return LVN_OK;
}

/* ---- jobs ---- */

static lvn_status submit_trial(submission *s, int64_t number)
{
    lvni_sweep_trial trial = {.index = -1};
    lvni_core_str name = {0}, front = {0};
    char text[24];
    lvn_status status;
    snprintf(text, sizeof text, "%lld", (long long)number);
    lvni_core_str_printf(&name, "%s-%s", lvni_core_str_text(&s->name), text);
    add_front(s, text, &front);
    LVNI_TRY_DONE(status, lvni_core_str_status(&name));
    LVNI_TRY_DONE(status, lvni_core_str_status(&front));
    LVNI_TRY_DONE(status, lvni_sweep_trial_read(&s->plan, number, &trial));
    LVNI_TRY_DONE(status, load_training(s, &trial));
    LVNI_TRY_DONE(status, set(s, "job_name", lvni_core_str_text(&name)));
    s->how.trials = text;
    s->how.offset = "";
    status = submit(s, trial.argv, trial.argv, lvni_core_str_text(&front));
    s->n_in += s->code == LVNI_EXIT_OK;
done:
    lvni_sweep_trial_free(&trial);
    lvni_core_str_free(&name);
    lvni_core_str_free(&front);
    return status;
}

static lvn_status submit_jobs(submission *s)
{
    for (int64_t i = 0; i < s->n_pending && s->code == LVNI_EXIT_OK; i++) {
        pause_between(s);
        LVN_TRY(submit_trial(s, s->pending[i]));
    }
    return LVN_OK;
}

/* ---- tasks ---- */

/* A worker for each device, or as many as are asked for. */
static lvn_status count_workers(submission *s)
{
    const int64_t nodes = lvni_slurm_number(&s->options, "nodes", 1),
                  devices = lvni_slurm_number(&s->options, "devices", 0);
    char text[24];
    if (lvni_slurm_given(&s->options, "independent_tasks") != NULL) {
        return LVN_OK;
    }
    if (devices == 0) {
        lvni_slurm_error(&s->findings, "V02",
                         "how many workers? independent_tasks=4, or devices=4: one for each device "
                         "of each node");
        return LVN_OK;
    }
    snprintf(text, sizeof text, "%lld", (long long)nodes * (long long)devices);
    return set(s, "independent_tasks", text);
}

static lvn_status submit_workers(submission *s)
{
    static char levin[] = "levin", sweep[] = "sweep", worker[] = "worker";
    char *const words[] = {levin, sweep, worker, s->plan.dir, NULL};
    LVN_TRY(set(s, "job_name", lvni_core_str_text(&s->name)));
    LVN_TRY(count_workers(s));
    s->how.trials = "*";
    s->how.offset = "";
    LVN_TRY(submit(s, words, words, NULL));
    s->n_in = s->code == LVNI_EXIT_OK ? s->n_pending : 0;
    return LVN_OK;
}

/* ---- the command ---- */

/* What is in, so that a user knows what a refusal has left. */
static void report(const submission *s)
{
    if (s->n_pending == 0 && s->n_jobs == 0 && s->code == LVNI_EXIT_OK) {
        lvni_core_print(stdout, "%s: none of its %lld trials has to be submitted\n", s->plan.name,
                        (long long)s->plan.n_trials);
    } else if (s->code == LVNI_EXIT_RESOURCE) {
        lvni_core_print(stderr,
                        "levin: %lld of %lld trials are submitted, in %lld job%s; the same command "
                        "submits the rest\n",
                        (long long)s->n_in, (long long)s->n_pending, (long long)s->n_jobs,
                        lvni_core_plural(s->n_jobs, "", "s"));
    }
}

static lvn_status run(submission *s, int n, const char *const *args)
{
    LVN_TRY(read_arguments(s, n, args));
    LVN_TRY(find_pending(s));
    const bool asks = lvni_sweep_plan_asks(&s->plan);
    if (asks && !is_as(s, "tasks")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "as=%s: %s has strategy %s, whose trials are made while it runs: as=tasks",
                 lvni_core_config_str(s->config, "as"), s->plan.name, s->plan.strategy);
    }
    if (s->n_pending == 0 && (!asks || s->has_workers)) {
        return LVN_OK;
    }
    LVN_TRY(load_options(s));
    LVN_TRY(keep_ours(s));
    if (lvni_slurm_is_on(&s->options, "ask_cluster")) {
        LVN_TRY(lvni_cli_slurm_ask_cluster(LVNI_CLI_SWEEP_TOOL_MS, &s->cluster, &s->findings));
        s->has_asked = true;
    }
    s->how.folder = s->plan.dir;
    return is_as(s, "array")  ? submit_arrays(s)
           : is_as(s, "jobs") ? submit_jobs(s)
                              : submit_workers(s);
}

int lvni_cli_sweep_submit(int n, const char *const *args)
{
    submission s = {.n_args = n, .args = args, .cluster = {.requeue = -1}, .code = LVNI_EXIT_OK};
    s.words = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 1, sizeof *s.words);
    lvn_status status = s.words == NULL ? LVN_ERR_MEMORY : run(&s, n, args);
    lvni_cli_slurm_print_findings(&s.findings);
    if (status == LVN_OK) {
        report(&s);
    }
    const int failed = lvni_run_report_status(status);
    lvni_core_config_destroy(s.config);
    lvni_core_config_destroy(s.training);
    lvni_sweep_texts_free(s.more);
    for (int i = 0; i < SHARED; i++) {
        lvni_core_free(s.ours[i]);
    }
    lvni_slurm_options_free(&s.options);
    lvni_slurm_findings_free(&s.findings);
    lvni_slurm_cluster_free(&s.cluster);
    lvni_sweep_plan_free(&s.plan);
    lvni_core_str_free(&s.folder);
    lvni_core_str_free(&s.name);
    lvni_core_free(s.words);
    lvni_core_free(s.pending);
    return status == LVN_OK ? s.code : failed;
}
