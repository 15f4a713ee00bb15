/* levin slurm script [options] -- PROGRAM..., and levin slurm script [options] train RECIPE
 * key=value ...: of the keys behind a recipe each goes to the job, to the training, or to both. */
#include "cli/cli.h"
#include "cli/slurm_plan.h"
#include "cli/slurm_submit.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "recipes/registry.h"
#include "recipes/user/user_recipe.h"
#include "run/error_record.h"
#include "slurm/slurm_check.h"
#include "slurm/slurm_profiles.h"
#include "slurm/slurm_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The arguments, sorted. */
typedef struct parts {
    const char **options; /* of the job */
    int n_options;
    const char **words; /* of the program */
    int n_words;
    const lvni_run_recipe *recipe; /* NULL: another program */
    lvni_core_config *training;    /* of its keys and its file; NULL: another program */
    bool trains, has_run_dir;
    const lvni_cli_slurm_submission *submission; /* NULL: the script is wanted */
    char **made; /* options and words that were put together; owned */
    int n_made;
} parts;

/* ---- a training's keys ---- */

static bool is_own_key(const char *arg)
{
    return strncmp(arg, LVNI_SLURM_PREFIX, strlen(LVNI_SLURM_PREFIX)) == 0 ||
           strncmp(arg, "--" LVNI_SLURM_PREFIX, strlen(LVNI_SLURM_PREFIX) + 2) == 0;
}

/* A key of both tables that means two things: the training's run directory, and a file. */
static void check_both(const lvni_slurm_row *row, const char *text, const char *recipe,
                       lvni_slurm_findings *f)
{
    const size_t n = text == NULL ? 0 : strlen(text);
    const bool run = strcmp(row->key, "out") == 0;
    if (!run || (n > 3 && strcmp(text + n - 3, ".sh") == 0)) {
        lvni_slurm_error(f, "V01",
                         "%s=%.100s: both levin slurm script and levin train %s have this key: "
                         "write slurm.%s for the script's%s",
                         row->key, text == NULL ? "" : text, recipe, row->key,
                         run ? "; the training's out is its run directory"
                             : ", and the training's into config=FILE");
    }
}

/* "key=value", owned by p. */
static lvn_status make_word(parts *p, const char *key, const char *value, const char **out)
{
    lvni_core_str word = {0};
    lvni_core_str_printf(&word, "%s=%s", key, value);
    LVN_TRY(lvni_core_str_status(&word));
    p->made[p->n_made] = lvni_core_str_take(&word);
    *out = p->made[p->n_made++];
    return LVN_OK;
}

/* A key that means the same to both, under the job's name (gpus= of a training is devices=); auto
 * leaves it to the job. */
static lvn_status share(parts *p, const lvni_slurm_row *row, const char *value)
{
    if (value != NULL && strcmp(value, "auto") == 0) {
        return LVN_OK;
    }
    return make_word(p, row->key, value == NULL ? "true" : value, &p->options[p->n_options++]);
}

static bool is_count(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* The argument at `at` of those behind a recipe; returns how many it takes. */
static lvn_status sort_key(parts *p, const lvni_core_config *job, lvni_core_config *training, int n,
                           const char *const *at, lvni_slurm_findings *f, int *i)
{
    const lvni_slurm_row *row;
    const char *text, *name, *value;
    int used = lvni_slurm_option_at(job, n, at, &row, &text);
    const int theirs = lvni_core_config_arguments_of(training, n, at, &name, &value);
    const lvni_slurm_row *shared = theirs > 0 ? lvni_slurm_row_shared(name) : NULL;
    if (is_own_key(at[0])) {
        p->options[p->n_options++] = at[0];
        *i += 1;
        return LVN_OK;
    }
    if (theirs == 2 && used == 2 && strcmp(at[0], "-c") == 0 && is_count(at[1])) {
        lvni_slurm_error(
            f, "V01",
            "-c %.20s: behind a recipe -c is the configuration; cpus_per_task=%.20s, or "
            "-c %.20s in front of `train`",
            at[1], at[1], at[1]);
        *i += 2;
        return make_word(p, "cpus_per_task", at[1], &p->options[p->n_options++]);
    }
    const bool trains = theirs > 0 || used == 0, both = theirs > 0 && used > 0 && shared == NULL;
    if (both) {
        check_both(row, text, p->recipe->name, f);
    }
    if (theirs == 0 && used == 0 && lvni_core_config_load_arguments(training, 1, at) != LVN_OK) {
        lvni_slurm_error(f, "V01", "%s", lvn_last_error()->message);
        lvn_clear_error();
    }
    used = trains ? theirs > 0 ? theirs : 1 : used;
    for (int k = 0; k < used; k++) {
        if (trains) {
            p->words[p->n_words++] = at[k];
        } else {
            p->options[p->n_options++] = at[k];
        }
    }
    p->has_run_dir = p->has_run_dir || (theirs > 0 && strcmp(name, "out") == 0);
    *i += used;
    return shared != NULL ? share(p, shared, value) : LVN_OK;
}

enum { VALUE = 64, SHARED = 7 };

/* Keys of a training that the job has, too. */
static const char *const shared_keys[SHARED] = {"devices",     "num_nodes",   "strategy",
                                                "accelerator", "num_workers", "auto_requeue",
                                                "max_requeues"};

/* The text of what a file has given; NULL: it is not from a file. */
static const char *text_of_file(const lvni_core_config *c, const char *name, char room[VALUE])
{
    if (!lvni_core_config_has(c, name) || lvni_core_config_layer(c, name) != LVNI_LAYER_FILE ||
        !lvni_core_config_is_set(c, name)) {
        return NULL;
    }
    switch (lvni_core_config_row(c, name)->type) {
    case LVNI_OPT_BOOL: return lvni_core_config_bool(c, name) ? "true" : "false";
    case LVNI_OPT_INT:
        snprintf(room, VALUE, "%lld", (long long)lvni_core_config_int(c, name));
        return room;
    default: return lvni_core_config_str(c, name);
    }
}

/* What the training's file has of the keys that both share; it comes before the options, which win.
 */
static lvn_status share_file(parts *p)
{
    const char *own[SHARED] = {NULL};
    const int before = p->n_options;
    for (int i = 0; i < SHARED; i++) {
        char room[VALUE];
        const char *text = text_of_file(p->training, shared_keys[i], room);
        if (text != NULL) {
            LVN_TRY(share(p, lvni_slurm_row_shared(shared_keys[i]), text));
            own[i] = p->options[p->n_options - 1];
        }
    }
    const int n = p->n_options - before;
    memmove(p->options + n, p->options, (size_t)before * sizeof *p->options);
    for (int i = 0, at = 0; i < SHARED && at < n; i++) {
        if (own[i] != NULL) {
            p->options[at++] = own[i];
        }
    }
    return LVN_OK;
}

/* Mistakes in values are the plan's to report. */
static lvn_status load_training(parts *p)
{
    LVN_TRY(lvni_core_config_create(p->recipe->keys, &p->training));
    lvni_core_config_collect(p->training);
    if (lvni_core_config_load_arguments(p->training, p->n_words - 3, p->words + 3) != LVN_OK) {
        lvn_clear_error();
    }
    return share_file(p);
}

static lvn_status sort_training(parts *p, int n, const char *const *args, lvni_slurm_findings *f)
{
    lvni_core_config *job, *training = NULL;
    LVN_TRY(lvni_core_config_create(lvni_slurm_keys, &job));
    lvn_status s = lvni_core_config_create(p->recipe->keys, &training);
    if (s == LVN_OK) {
        lvni_core_config_set_help(training, "levin help train");
    }
    for (int i = 0; s == LVN_OK && i < n;) {
        s = sort_key(p, job, training, n - i, args + i, f, &i);
    }
    lvni_core_config_destroy(job);
    lvni_core_config_destroy(training);
    return s == LVN_OK ? load_training(p) : s;
}

/* ---- the arguments ---- */

/* Where the options of the job end: at `--` or at the first word that is none. */
static lvn_status find_end(int n, const char *const *args, int *end)
{
    lvni_core_config *job;
    LVN_TRY(lvni_core_config_create(lvni_slurm_keys, &job));
    int i = 0;
    while (i < n && strcmp(args[i], "--") != 0) {
        const lvni_slurm_row *row;
        const char *text;
        const int used =
            is_own_key(args[i]) ? 1 : lvni_slurm_option_at(job, n - i, args + i, &row, &text);
        if (used == 0 && args[i][0] != '-' && strchr(args[i], '=') == NULL) {
            break;
        }
        i += used > 0 ? used : lvni_slurm_has_value(n - i, args + i) ? 2 : 1;
    }
    lvni_core_config_destroy(job);
    *end = i < n ? i : n;
    return LVN_OK;
}

/* `levin train ...` or `levin RECIPE ...` as a program. */
static void look_at_program(parts *p)
{
    const char *name = strrchr(p->words[0], '/');
    name = name != NULL ? name + 1 : p->words[0];
    p->trains = p->n_words > 1 && strcmp(name, "levin") == 0 &&
                (strcmp(p->words[1], "train") == 0 || lvni_recipes_find(p->words[1]) != NULL);
    for (int i = 0; i < p->n_words; i++) {
        const char *w = p->words[i] + (strncmp(p->words[i], "--", 2) == 0 ? 2 : 0);
        p->has_run_dir = p->has_run_dir || strncmp(w, "out=", 4) == 0 || strcmp(w, "out") == 0 ||
                         strncmp(w, "config=", 7) == 0;
    }
}

static int no_program(void)
{
    fputs("error: levin slurm script: what is the job to run? `-- PROGRAM ARGUMENTS`, or `train "
          "RECIPE key=value ...`\n",
          stderr);
    return LVNI_EXIT_USAGE;
}

/* *code: LVNI_EXIT_OK, or an error was printed. */
static lvn_status sort(parts *p, int n, const char *const *args, lvni_slurm_findings *f, int *code)
{
    int end;
    *code = LVNI_EXIT_OK;
    LVN_TRY(find_end(n, args, &end));
    for (int i = 0; i < end; i++) {
        p->options[p->n_options++] = args[i];
    }
    const bool program = end < n && strcmp(args[end], "--") == 0,
               train = end < n && strcmp(args[end], "train") == 0;
    if (program && end + 1 < n) {
        for (int i = end + 1; i < n; i++) {
            p->words[p->n_words++] = args[i];
        }
        look_at_program(p);
        return LVN_OK;
    }
    if (!train) {
        if (end < n && !program) {
            const bool script = lvni_core_path_exists(args[end]);
            lvni_core_print(stderr,
                            "error: levin slurm %s: `%s` is not an option; a program "
                            "stands behind `--`, a training behind `train`%s\n",
                            p->submission != NULL ? "submit" : "script", args[end],
                            script ? "; a script that is there is submitted by sbatch" : "");
        }
        *code = end < n && !program ? LVNI_EXIT_USAGE : no_program();
        return LVN_OK;
    }
    p->recipe = lvni_cli_find_recipe(n - end - 1, args + end + 1, "train", code);
    if (p->recipe == NULL) {
        return LVN_OK;
    }
    *code = LVNI_EXIT_OK;
    p->trains = true;
    p->words[p->n_words++] = "levin";
    p->words[p->n_words++] = args[end];
    p->words[p->n_words++] = args[end + 1];
    return sort_training(p, n - end - 2, args + end + 2, f);
}

/* The key's value among the words, "" where it stands behind a blank; NULL: it is not there. */
static const char *find_word(const parts *p, const char *key)
{
    const size_t n = strlen(key);
    for (int k = 0; k < p->n_words && p->words[k] != NULL; k++) {
        const char *w = p->words[k] + (strncmp(p->words[k], "--", 2) == 0 ? 2 : 0);
        if (strncmp(w, key, n) == 0 && (w[n] == '=' || w[n] == '\0')) {
            return w[n] == '=' ? w + n + 1 : k + 1 < p->n_words ? p->words[k + 1] : "";
        }
    }
    return NULL;
}

/* Does the training have the key by its own words, under whatever name, or this value by its file?
 */
static bool has_key(const parts *p, const char *key, const char *text)
{
    char room[VALUE];
    const char *file = text_of_file(p->training, key, room);
    return find_word(p, key) != NULL ||
           lvni_core_config_layer(p->training, key) == LVNI_LAYER_ARGUMENTS ||
           (file != NULL && text != NULL && strcmp(file, text) == 0);
}

/* What the job's options have of a training's keys, from a file or a profile, or in front of the
 * recipe, is the training's, too. */
static lvn_status hand_over(parts *p, const lvni_slurm_options *o)
{
    for (size_t i = 0; p->recipe != NULL && i < SHARED; i++) {
        const char *key = shared_keys[i];
        const lvni_slurm_row *row = lvni_slurm_row_shared(key);
        const bool is_switch = row->type == LVNI_OPT_BOOL;
        const char *text = !is_switch ? lvni_slurm_text(o, row->key)
                           : lvni_core_config_switch(o->config, row->key) == 1 ? "true"
                                                                               : "false";
        if (strcmp(lvni_slurm_origin(o, row->key), "default") != 0 && text != NULL &&
            lvni_core_config_has(p->training, key) && !has_key(p, key, text)) {
            LVN_TRY(make_word(p, key, text, &p->words[p->n_words++]));
        }
    }
    return LVN_OK;
}

/* The training's run directory, as its words have it or its file; NULL: it is not known. */
static const char *run_dir(const parts *p)
{
    const char *word = find_word(p, "out");
    const bool mine = word == NULL && p->training != NULL &&
                      lvni_core_config_is_given(p->training, "out") &&
                      lvni_core_config_is_set(p->training, "out") &&
                      !lvni_core_config_is_mistaken(p->training, "out");
    return word != NULL ? word : mine ? lvni_core_config_str(p->training, "out") : NULL;
}

/* The run directory of all elements of an array; NULL: each has its own, or with resume they
 * go on with a run that is there, one behind the other (%1). */
static const char *fixed_run_dir(const parts *p, const lvni_slurm_options *o)
{
    const char *out = run_dir(p), *array = lvni_slurm_text(o, "array"),
               *end = array != NULL ? strchr(array, '%') : NULL, *config = find_word(p, "config");
    const bool raw = lvni_slurm_is_on(o, "raw"),
               behind = end != NULL && strcmp(end, "%1") == 0 && find_word(p, "resume") != NULL;
    const bool varies =
        find_word(p, "out") == NULL && config != NULL && lvni_cli_slurm_is_open(config, raw);
    return out == NULL || behind || varies || lvni_cli_slurm_is_open(out, raw) ? NULL : out;
}

/* ---- the command ---- */

/* A file that is there stays, unless force. */
static lvn_status write_file(const lvni_slurm_options *o, const char *path,
                             const lvni_core_str *out)
{
    if (lvni_core_path_exists(path) && !lvni_slurm_is_on(o, "force")) {
        LVN_FAIL(LVN_ERR_USAGE, "out %s: the file is there; another name, or force=true", path);
    }
    LVN_TRY(lvni_core_file_write(path, lvni_core_str_text(out), out->len));
    if (chmod(path, 0755) != 0) {
        LVN_FAIL(LVN_ERR_IO, "out %s: it is written, but cannot be made executable", path);
    }
    return LVN_OK;
}

static lvn_status write_script(const parts *p, const lvni_slurm_job *job, int n,
                               const char *const *args, int *code)
{
    lvni_core_str out = {0};
    const char *path = lvni_slurm_text(job->options, "out");
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_slurm_script_write(job, n, args, &out));
    if (p->submission != NULL) {
        s = lvni_cli_slurm_submit_job(job, &out, p->submission, code);
    } else if (path != NULL && strcmp(path, "-") != 0) {
        s = write_file(job->options, path, &out);
    } else {
        fwrite(lvni_core_str_text(&out), 1, out.len, stdout);
    }
done:
    lvni_core_str_free(&out);
    return s;
}

/* With what is known of the job, where that is right in itself. */
static lvn_status plan(const parts *p, const lvni_slurm_job *job, lvni_slurm_findings *f)
{
    const char *accelerator = lvni_slurm_text(job->options, "accelerator");
    const int64_t per_node = job->devices > 0 ? job->devices : job->per_node;
    if (p->recipe == NULL || f->errors > 0 || per_node == 0 ||
        !lvni_slurm_is_on(job->options, "plan")) {
        return LVN_OK;
    }
    return lvni_cli_slurm_plan(
        &(lvni_cli_slurm_training){.n = p->n_words - 2,
                                   .words = p->words + 2,
                                   .config = p->training,
                                   .ranks = job->nodes * per_node,
                                   .raw = lvni_slurm_is_on(job->options, "raw"),
                                   .chdir = lvni_slurm_text(job->options, "chdir"),
                                   .on_cpu =
                                       accelerator != NULL && strcmp(accelerator, "cpu") == 0},
        f);
}

enum { ASK_MS = 950 }; /* all questions together */

static lvn_status make(parts *p, int n, const char *const *args, lvni_slurm_findings *f, int *code)
{
    lvni_slurm_options o;
    lvni_slurm_job job = {.options = &o};
    lvni_slurm_cluster cluster = {.requeue = -1};
    lvni_core_str origins = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_slurm_options_load(p->n_options, p->options, environ, f, &o));
    LVNI_TRY_DONE(s, hand_over(p, &o));
    job.n_words = p->n_words;
    job.words = p->words;
    job.trains = p->trains;
    job.makes_folders = p->submission != NULL;
    job.run_dir = p->trains ? run_dir(p) : NULL;
    if (job.run_dir != NULL && !lvni_slurm_is_on(&o, "raw") && strstr(job.run_dir, "${") != NULL) {
        job.run_dir = NULL; /* the training alone replaces it */
    }
    job.fixed_run_dir = fixed_run_dir(p, &o);
    job.levin_is_missing = !lvni_cli_slurm_is_in_path("levin");
    job.has_run_dir = p->has_run_dir || lvni_slurm_text(&o, "config") != NULL;
    if (p->submission != NULL && lvni_slurm_text(&o, "out") != NULL) {
        lvni_slurm_error(f, "V01",
                         "out has no effect with submit, which writes the script into "
                         "log_dir  (%s)",
                         lvni_slurm_origin(&o, "out"));
    }
    if (lvni_slurm_is_on(&o, "ask_cluster") && !lvni_slurm_is_on(&o, "show_origin")) {
        LVNI_TRY_DONE(s, lvni_cli_slurm_ask_cluster(ASK_MS, &cluster, f));
        job.cluster = &cluster;
    }
    LVNI_TRY_DONE(s, lvni_slurm_job_make(&job, f));
    LVNI_TRY_DONE(s, plan(p, &job, f));
    lvni_cli_slurm_print_findings(f);
    if (lvni_slurm_is_on(&o, "show_origin")) {
        lvni_slurm_print_origins(&o, &origins);
        fputs(lvni_core_str_text(&origins), stdout);
    } else if (f->errors == 0) {
        s = write_script(p, &job, n, args, code);
    }
done:
    lvni_core_str_free(&origins);
    lvni_slurm_cluster_free(&cluster);
    lvni_slurm_job_free(&job);
    lvni_slurm_options_free(&o);
    return s;
}

static int run(int n, const char *const *args, const lvni_cli_slurm_submission *submission)
{
    parts p = {.submission = submission};
    lvni_slurm_findings f = {.errors = 0};
    int code = LVNI_EXIT_OK;
    lvn_status s;
    const size_t room = 2 * (size_t)n + 16;
    p.options = lvni_core_calloc(LVNI_TAG_CORE, room, sizeof *p.options);
    p.words = lvni_core_calloc(LVNI_TAG_CORE, room, sizeof *p.words);
    p.made = lvni_core_calloc(LVNI_TAG_CORE, room, sizeof *p.made);
    LVNI_TRY_DONE(s,
                  p.options == NULL || p.words == NULL || p.made == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, sort(&p, n, args, &f, &code));
    LVNI_TRY_DONE(s, code != LVNI_EXIT_OK ? LVN_OK : make(&p, n, args, &f, &code));
    code = f.errors > 0 ? LVNI_EXIT_USAGE : code;
done:
    lvni_core_free(p.options);
    lvni_core_free(p.words);
    for (int i = 0; i < p.n_made; i++) {
        lvni_core_free(p.made[i]);
    }
    lvni_core_free(p.made);
    lvni_core_config_destroy(p.training);
    fputs(lvni_core_str_text(&f.text), stderr);
    lvni_slurm_findings_free(&f);
    return s == LVN_OK ? code : lvni_run_report_status(s);
}

int lvni_cli_slurm_script(int n, const char *const *args)
{
    return run(n, args, NULL);
}

/* Its own switches stand among the options of the job. */
int lvni_cli_slurm_submit(int n, const char *const *args)
{
    lvni_cli_slurm_submission how = {.dry_run = false};
    const char **rest = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 1, sizeof *rest);
    int n_rest = 0;
    bool own = true;
    for (int i = 0; rest != NULL && i < n; i++) {
        own = own && strcmp(args[i], "--") != 0 && strcmp(args[i], "train") != 0;
        bool *flag = !own                                  ? NULL
                     : strcmp(args[i], "--dry-run") == 0   ? &how.dry_run
                     : strcmp(args[i], "--test-only") == 0 ? &how.test_only
                     : strcmp(args[i], "--wait") == 0      ? &how.wait
                                                           : NULL;
        if (flag != NULL) {
            *flag = true;
        } else {
            rest[n_rest++] = args[i];
        }
    }
    const int code =
        rest == NULL ? lvni_run_report_status(LVN_ERR_MEMORY) : run(n_rest, rest, &how);
    lvni_core_free(rest);
    return code;
}

int lvni_cli_slurm_profiles(int n, const char *const *args)
{
    lvni_core_str out = {0};
    if (n > 0) {
        lvni_core_print(stderr, "error: levin slurm profiles takes no arguments, and `%s` is one\n",
                        args[0]);
        return LVNI_EXIT_USAGE;
    }
    const lvn_status s = lvni_slurm_profiles_print(environ, &out);
    fputs(lvni_core_str_text(&out), stdout);
    lvni_core_str_free(&out);
    return lvni_run_report_status(s);
}

/* ---- scripts of others ---- */

enum { SCRIPT_MOST = 4 << 20 }; /* what sbatch takes */

/* *bad: it has an error. cluster: NULL: it is not asked. */
static lvn_status check_file(const char *path, const lvni_slurm_cluster *cluster, bool *bad)
{
    char *text;
    size_t bytes;
    int directives = 0;
    lvni_slurm_findings f = {.errors = 0};
    LVN_TRY(lvni_core_file_read(path, SCRIPT_MOST, &text, &bytes));
    const lvn_status s = lvni_slurm_check(path, text, bytes, cluster, &f, &directives);
    if (s == LVN_OK) {
        fputs(lvni_core_str_text(&f.text), stdout);
        lvni_core_print(stdout, "%s: %d option%s of sbatch, %d error%s, %d warning%s\n", path,
                        directives, lvni_core_plural(directives, "", "s"), f.errors,
                        lvni_core_plural(f.errors, "", "s"), f.warnings,
                        lvni_core_plural(f.warnings, "", "s"));
        *bad = *bad || f.errors > 0;
    }
    lvni_slurm_findings_free(&f);
    lvni_core_free(text);
    return s;
}

static bool is_alone(const char *arg)
{
    return strcmp(arg, "--no-ask-cluster") == 0 || strcmp(arg, "ask_cluster=false") == 0 ||
           strcmp(arg, "--ask-cluster=false") == 0;
}

static lvn_status check_files(int n, const char *const *args, bool ask, bool *bad)
{
    lvni_slurm_cluster cluster = {.requeue = -1};
    lvni_slurm_findings f = {.errors = 0};
    lvn_status s = ask ? lvni_cli_slurm_ask_cluster(ASK_MS, &cluster, &f) : LVN_OK;
    fputs(lvni_core_str_text(&f.text), stdout);
    for (int i = 0; i < n && s == LVN_OK; i++) {
        s = is_alone(args[i]) ? LVN_OK : check_file(args[i], ask ? &cluster : NULL, bad);
    }
    lvni_slurm_findings_free(&f);
    lvni_slurm_cluster_free(&cluster);
    return s;
}

int lvni_cli_slurm_check(int n, const char *const *args)
{
    bool bad = false;
    int n_files = n;
    for (int i = 0; i < n; i++) {
        n_files -= is_alone(args[i]);
        if (args[i][0] == '-' && !is_alone(args[i])) {
            lvni_core_print(stderr,
                            "error: levin slurm check takes files and --no-ask-cluster, and `%s` "
                            "is another option; levin slurm check job.sh\n",
                            args[i]);
            return LVNI_EXIT_USAGE;
        }
    }
    if (n_files == 0) {
        fputs("error: levin slurm check: which script? levin slurm check job.sh\n", stderr);
        return LVNI_EXIT_USAGE;
    }
    const lvn_status s = check_files(n, args, n_files == n, &bad);
    return s != LVN_OK ? lvni_run_report_status(s) : bad ? LVNI_EXIT_FAILURE : LVNI_EXIT_OK;
}
