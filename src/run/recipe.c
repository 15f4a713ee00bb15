/* The way from the arguments of a training to its run (recipe.h):
 *
 *   lvni_run_train     here: the options
 *   lvni_run_ranks_run ranks.c: which ranks this process has; then train() here, which lets the
 *                          recipe open its data and network
 *   lvni_run_fit       fit.c: the run of each rank: directory, model, trainer
 *   lvni_trainer_fit       trainer/loop.c: the steps */
#include "run/recipe.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/signals.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "report/run_page.h"
#include "run/options.h"
#include "run/requeue.h"
#include "run/run_dir.h"
#include "trainer/trainer.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef lvn_status (*fit_function)(const lvni_run_job *request);

/* A running command. */
typedef struct work {
    const lvni_run_recipe *recipe;
    lvni_core_config *config;
    const lvni_run_driver *driver; /* NULL: trains to the end */
    char *dir;                     /* of the run, where this process has rank 0; or NULL */
    bool exports;                  /* nothing is trained */
    lvni_run_memory *memory;       /* that is asked for; or NULL */
} work;

/* ---- behind the end of a training ---- */

/* Called by lvni_run_ranks_each. There may be progress without a step: a table that is there is not
 * written again. */
static lvn_status requeue(void *user, const lvni_run_rank *rank)
{
    const work *w = user;
    return lvni_run_requeue(rank, w->dir, lvni_core_config_bool(w->config, "auto_requeue"),
                            lvni_core_config_int(w->config, "max_requeues"), true);
}

/* All ranks have stopped together; the checkpoint of the last step is on the disk. */
static lvn_status stop_ended(work *w, const lvni_run_job *job)
{
    const int signal_number = lvni_trainer_stop_signal();
    if (signal_number == SIGUSR1) {
        LVN_TRY(lvni_run_ranks_each(job->ranks, requeue, w));
    }
    LVN_FAIL(LVN_ERR_CANCELLED,
             "%s in what follows the last step of the training, whose checkpoint is saved: "
             "resume=true goes on with what is missing",
             lvni_core_signal_name(signal_number));
}

/* No rank goes on before rank 0 has its files. */
static lvn_status end_training(work *w, const lvni_run_job *job)
{
    char dir[4096] = ""; /* "": rank 0 has none */
    if (w->dir != NULL && snprintf(dir, sizeof dir, "%s", w->dir) >= (int)sizeof dir) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "the path %s is too long to send it to the other ranks",
                 w->dir);
    }
    LVN_TRY(lvni_run_ranks_share(job->ranks, dir, sizeof dir));
    lvni_trainer_stop_forget_time();
    const lvn_status s = dir[0] == '\0' ? LVN_OK : w->recipe->ended(job, dir);
    return s == LVN_ERR_CANCELLED ? stop_ended(w, job) : s;
}

static lvn_status open_and_fit(work *w, lvni_run_ranks *ranks, fit_function fit)
{
    lvni_run_job request = {.config = w->config,
                            .keys = w->config,
                            .ranks = ranks,
                            .recipe = w->recipe,
                            .exports = w->exports,
                            .memory = w->memory,
                            .dir = &w->dir};
    lvn_status s;
    LVNI_TRY_DONE(s, w->recipe->open(&request));
    if (w->driver != NULL) {
        request.tunes = true;
        request.weigh = w->driver->weigh;
        request.drive = w->driver->drive;
        request.host = w->driver->host;
    }
    LVNI_TRY_DONE(s, fit(&request));
    if (fit == lvni_run_fit && w->recipe->ended != NULL) {
        s = w->driver == NULL ? end_training(w, &request) : LVN_OK;
        if (ranks->process == NULL) {
            lvni_core_signals_remove(); /* which lvni_run_fit left to this */
        }
    }
done:
    if (w->recipe->close != NULL) {
        w->recipe->close(&request);
    }
    return s;
}

static _Atomic pid_t in_training; /* this process; 0: none */

/* A module, a dataset or a library of theirs may call exit(), with 0, too: that is not the end of a
 * training. Processes that they start have another number. */
static void refuse_exit(void)
{
    if (atomic_load(&in_training) == getpid()) {
        lvni_log_line(LVNI_LOG_ERROR,
                      "exit() was called in the middle of the training, by a module, a dataset or "
                      "a library that they call: return a status, or NULL, with a reason in "
                      "lvn_error_set");
        _exit(LVNI_EXIT_FAILURE);
    }
}

static lvn_status train(void *user, lvni_run_ranks *ranks)
{
    static bool registered;
    if (!registered) {
        registered = atexit(refuse_exit) == 0;
    }
    atomic_store(&in_training, getpid());
    const lvn_status s = open_and_fit(user, ranks, lvni_run_fit);
    atomic_store(&in_training, 0);
    return s;
}

/* config.yaml of another recipe, also that of the run to resume. A user's program has no name that
 * is worth comparing. */
static lvn_status check_name(const lvni_run_recipe *recipe, lvni_core_config *c)
{
    const char *name = lvni_core_config_str(c, "recipe");
    if (recipe->card == NULL) {
        return LVN_OK;
    }
    if (name != NULL && strcmp(name, recipe->name) != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "recipe=%s (%s), and this is %s: give the recipe that this configuration is of, "
                 "or another out",
                 name, lvni_core_config_origin(c, "recipe"), recipe->name);
    }
    return name != NULL ? LVN_OK
                        : lvni_core_config_set(c, "recipe", recipe->name, "resolved at start");
}

static lvn_status read_config(const lvni_run_recipe *recipe, const char *help, bool exports, int n,
                              const char *const *args, lvni_core_config **out)
{
    lvni_run_defaults of = recipe->defaults;
    if (exports && of.prepare_export != NULL) {
        of.prepare = of.prepare_export;
    }
    LVN_TRY(lvni_run_read_config(recipe->keys, help, &of, n, args, out));
    const lvn_status s = check_name(recipe, *out);
    if (s != LVN_OK) {
        lvni_core_config_destroy(*out);
        *out = NULL;
    }
    return s;
}

/* ---- the page ---- */

/* The lines of all keys as they are by default. */
static lvn_status write_defaults(const lvni_run_recipe *recipe, lvni_core_str *out)
{
    lvni_core_config *c;
    lvn_status s;
    LVN_TRY(lvni_core_config_create(recipe->keys, &c));
    LVNI_TRY_DONE(s, lvni_core_config_load_job(c, recipe->defaults.job));
    s = lvni_core_config_write_yaml(c, out);
done:
    lvni_core_config_destroy(c);
    return s;
}

lvn_status lvni_run_page_write(const lvni_run_recipe *recipe, const char *run, const char *sections,
                               const char *output)
{
    lvni_core_str page = {0}, defaults = {0}, more = {0};
    lvn_status s;
    if (recipe != NULL) {
        LVNI_TRY_DONE(s, write_defaults(recipe, &defaults));
    }
    if (recipe != NULL && recipe->page_sections != NULL) {
        lvni_core_str_append(&more, sections != NULL ? sections : "");
        LVNI_TRY_DONE(s, recipe->page_sections(run, &more));
        sections = lvni_core_str_text(&more);
    }
    const char *of_recipe = defaults.len > 0 ? lvni_core_str_text(&defaults) : NULL;
    LVNI_TRY_DONE(s, lvni_report_run_page(run, of_recipe, sections, &page));
    s = lvni_core_file_write(strcmp(output, "-") == 0 ? LVNI_STDOUT_PATH : output,
                             lvni_core_str_text(&page), page.len);
done:
    lvni_core_str_free(&page);
    lvni_core_str_free(&defaults);
    lvni_core_str_free(&more);
    return s;
}

/* report=true. A page that cannot be written must not cost the run. */
static void write_page(const work *w)
{
    char *path = lvni_run_path_join(w->dir, LVNI_RUN_PAGE);
    const char *sections = w->recipe->shown == NULL
                               ? NULL
                               : "<h2>Features</h2>\n<p class=soft>levin report RUN adds a map of "
                                 "them, and nearest neighbours.</p>\n";
    if (path == NULL || lvni_run_page_write(w->recipe, w->dir, sections, path) != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "report=true: the page is not written: %s",
                      lvn_last_error()->message);
    } else {
        lvni_log_line(LVNI_LOG_INFO, "the page of the run: %s", path);
    }
    lvni_core_free(path);
}

/* The log is closed: both lines are of the screen alone, whose reader may be gone. Leaves the
 * thread's last error. */
static void report_dir(work *w)
{
    lvni_core_str quoted = {0};
    lvni_core_sigpipe sigpipe;
    const lvn_error error = *lvn_last_error();
    if (w->dir == NULL) {
        return;
    }
    lvni_core_sigpipe_block(&sigpipe);
    if (lvni_core_config_bool(w->config, lvni_run_key_name(w->config, "report"))) {
        write_page(w);
    }
    lvni_core_shell_quote(&quoted, w->dir);
    if (lvni_log_has_screen()) { /* not of a host program */
        lvni_log_line(LVNI_LOG_INFO, "levin report %s", lvni_core_str_text(&quoted));
    }
    lvni_core_sigpipe_unblock(&sigpipe);
    lvni_core_str_free(&quoted);
    lvni_core_free(w->dir);
    w->dir = NULL;
    lvn_error_adopt(&error);
}

lvn_status lvni_run_train_with(const lvni_run_recipe *recipe, const char *const command[2],
                               const char *help, int n, const char *const *args)
{
    work w = {.recipe = recipe};
    LVN_TRY(read_config(recipe, help, false, n, args, &w.config));
    lvni_log_set_quiet(lvni_core_config_bool(w.config, "quiet"));
    const lvni_run_ranks_command ranks = {.command = {command[0], command[1]},
                                          .n = n,
                                          .args = args,
                                          .recipe = recipe->name,
                                          .check = recipe->check,
                                          .run = train,
                                          .user = &w};
    const lvn_status s = lvni_run_fit_end(lvni_run_ranks_run(w.config, &ranks));
    report_dir(&w);
    lvni_core_config_destroy(w.config);
    return s;
}

lvn_status lvni_run_drive(const lvni_run_recipe *recipe, lvni_core_config *config,
                          const lvni_run_ranks_command *command, const lvni_run_driver *driver)
{
    work w = {.recipe = recipe, .config = config, .driver = driver};
    lvni_run_ranks_command ranks = *command;
    LVN_TRY(check_name(recipe, config));
    ranks.check = recipe->check;
    ranks.run = train;
    ranks.user = &w;
    return lvni_run_fit_end(lvni_run_ranks_run(config, &ranks));
}

bool lvni_run_is_own(const lvni_run_recipe *recipe)
{
    return recipe->user == NULL;
}

const char *lvni_run_typed(const lvni_run_recipe *recipe)
{
    return recipe->argument != NULL ? recipe->argument : recipe->name;
}

const char *lvni_run_help_of(const lvni_run_recipe *recipe, const char *command,
                             char text[LVNI_RUN_HELP])
{
    const bool only = strcmp(command, "train") != 0 && recipe->is_default;
    if (recipe->argument != NULL) {
        snprintf(text, LVNI_RUN_HELP, "levin %s %s --help", command, recipe->argument);
    } else if (only) {
        snprintf(text, LVNI_RUN_HELP, "levin help %s", command);
    } else {
        snprintf(text, LVNI_RUN_HELP, "levin help %s.%s", command, recipe->name);
    }
    return text;
}

lvn_status lvni_run_train(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    const char *const command[2] = {"train", lvni_run_typed(recipe)};
    char help[LVNI_RUN_HELP];
    lvni_core_signals_install_early();
    lvni_log_set_report(STDOUT_FILENO);
    lvni_log_buffer();
    const lvn_status s =
        lvni_run_train_with(recipe, command, lvni_run_help_of(recipe, "train", help), n, args);
    lvni_log_close();
    return s;
}

/* Without ranks and a run directory. */
static lvn_status use_start(const lvni_run_recipe *recipe, int n, const char *const *args,
                            fit_function use, lvni_run_memory *memory)
{
    work w = {.recipe = recipe, .memory = memory};
    char help[LVNI_RUN_HELP];
    w.exports = use == lvni_run_fit_export_start;
    LVN_TRY(read_config(recipe, lvni_run_help_of(recipe, "train", help), w.exports, n, args,
                        &w.config));
    lvni_log_set_quiet(lvni_core_config_bool(w.config, "quiet"));
    const lvn_status s = open_and_fit(&w, NULL, use);
    lvni_core_config_destroy(w.config);
    return s;
}

lvn_status lvni_run_plan(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    return use_start(recipe, n, args, lvni_run_fit_plan, NULL);
}

lvn_status lvni_run_estimate(const lvni_run_recipe *recipe, int n, const char *const *args,
                             lvni_run_memory *out)
{
    *out = (lvni_run_memory){0};
    return use_start(recipe, n, args, lvni_run_fit_estimate, out);
}

lvn_status lvni_run_export_start(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    return use_start(recipe, n, args, lvni_run_fit_export_start, NULL);
}
