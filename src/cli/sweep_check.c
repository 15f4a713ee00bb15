/* The trainings of a sweep's plan, before anything is written (sweep.h): the keys of each trial, as
 * levin train reads them, and the first one by levin plan. */
#include "cli/cli.h"
#include "cli/slurm_plan.h"
#include "cli/sweep.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "recipes/registry.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lvni_cli_sweep_recipe_at(int n, char *const *words)
{
    const char *name = n > 1 ? strrchr(words[0], '/') : NULL;
    if (n < 2 || strcmp(name != NULL ? name + 1 : words[0], "levin") != 0) {
        return 0;
    }
    return strcmp(words[1], "train") == 0 ? 2 : lvni_recipes_find(words[1]) != NULL ? 1 : 0;
}

/* ---- mistakes, each with the trials that have it ---- */

enum { MISTAKES = 16 };

typedef struct mistakes {
    char *text[MISTAKES];
    int64_t first[MISTAKES], trials[MISTAKES];
    int n;
    int64_t more; /* trials with others than these */
} mistakes;

static lvn_status note(mistakes *m, int64_t trial, const char *text)
{
    int i = 0;
    while (i < m->n && strcmp(m->text[i], text) != 0) {
        i++;
    }
    if (i == MISTAKES) {
        m->more++;
        return LVN_OK;
    }
    if (i == m->n) {
        m->text[i] = lvni_core_strdup(LVNI_TAG_CORE, text);
        if (m->text[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
        m->first[i] = trial;
        m->n++;
    }
    m->trials[i]++;
    return LVN_OK;
}

static void print_trial(const lvni_sweep_made *made, int64_t i)
{
    char *const *values = made->points.values + i * made->points.n_parameters;
    bool any = false;
    lvni_core_print(stderr, "error: trial %lld", (long long)made->plan.n_trials + i);
    for (int64_t k = 0; k < made->points.n_parameters; k++) {
        if (values[k] != NULL) {
            lvni_core_print(stderr, "%s%s=%s", any ? " " : " (", made->plan.parameters[k],
                            values[k]);
            any = true;
        }
    }
    fputs(any ? ")" : "", stderr);
}

static void print(const lvni_sweep_made *made, const mistakes *m)
{
    const int64_t n = made->points.n;
    for (int i = 0; i < m->n; i++) {
        if (m->trials[i] == n && n > 1) {
            lvni_core_print(stderr, "error: all %lld trials", (long long)n);
        } else {
            print_trial(made, m->first[i]);
        }
        if (m->trials[i] > 1 && m->trials[i] < n) {
            lvni_core_print(stderr, " and %lld more", (long long)(m->trials[i] - 1));
        }
        lvni_core_print(stderr, ": %-s\n", m->text[i]);
    }
    if (m->more > 0) {
        lvni_core_print(stderr, "error: other mistakes in %lld trials more\n", (long long)m->more);
    }
}

/* ---- the keys of a trial ---- */

static lvn_status read_keys(const lvni_run_recipe *recipe, int n, const char *const *args,
                            lvni_core_config **out)
{
    lvni_core_str warnings = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_config_create(recipe->keys, out));
    lvni_core_config_set_help(*out, "levin help train");
    lvni_core_config_collect(*out);
    LVNI_TRY_DONE(s, lvni_core_config_load_job(*out, recipe->defaults.job));
    LVNI_TRY_DONE(s, lvni_core_config_load_arguments(*out, n, args));
    LVNI_TRY_DONE(s, recipe->defaults.prepare != NULL ? recipe->defaults.prepare(*out) : LVN_OK);
    LVNI_TRY_DONE(s, lvni_core_config_check(*out));
    s = lvni_core_config_check_needs(*out, &warnings);
done:
    lvni_core_str_free(&warnings);
    return s;
}

static int count(char *const *words)
{
    return (int)lvni_sweep_texts_count(words);
}

static lvn_status check_trial(const lvni_sweep_made *made, int64_t i, const lvni_run_recipe *recipe,
                              mistakes *m)
{
    lvni_sweep_trial t;
    lvni_core_config *c = NULL;
    LVN_TRY(lvni_cli_sweep_trial_of(made, i, &t));
    const int at = lvni_cli_sweep_recipe_at(count(t.argv), t.argv) + 1;
    lvn_status s = read_keys(recipe, count(t.argv) - at, (const char *const *)(t.argv + at), &c);
    if (s != LVN_OK && s != LVN_ERR_MEMORY) {
        s = note(m, i, lvn_last_error()->message);
        lvn_clear_error();
    }
    lvni_core_config_destroy(c);
    lvni_sweep_trial_free(&t);
    return s;
}

/* ---- the plan of the first one ---- */

/* As many as the keys name, on all nodes; one where they do not. */
static int64_t ranks_of(const lvni_core_config *c)
{
    const char *devices =
        lvni_core_config_has(c, "devices") ? lvni_core_config_str(c, "devices") : NULL;
    int64_t n = 1;
    if (devices != NULL && devices[0] == '[') {
        for (const char *p = devices; (p = strchr(p, ',')) != NULL; p++) {
            n++;
        }
    } else if (devices != NULL && devices[strspn(devices, "0123456789")] == '\0') {
        n = strtoll(devices, NULL, 10);
    }
    const int64_t nodes =
        lvni_core_config_has(c, "num_nodes") && lvni_core_config_is_set(c, "num_nodes")
            ? lvni_core_config_int(c, "num_nodes")
            : 1;
    return n > 0 ? n * (nodes > 0 ? nodes : 1) : 1;
}

static lvn_status plan_first(const lvni_sweep_made *made, const lvni_run_recipe *recipe,
                             lvni_slurm_findings *f)
{
    lvni_sweep_trial t;
    lvni_core_config *c = NULL;
    LVN_TRY(lvni_cli_sweep_trial_of(made, 0, &t));
    const int at = lvni_cli_sweep_recipe_at(count(t.argv), t.argv), n = count(t.argv) - at;
    const char *const *words = (const char *const *)(t.argv + at);
    lvn_status s = read_keys(recipe, n - 1, words + 1, &c);
    if (s == LVN_OK) {
        const char *accelerator =
            lvni_core_config_has(c, "accelerator") ? lvni_core_config_str(c, "accelerator") : NULL;
        const bool gpu = accelerator != NULL &&
                         (strcmp(accelerator, "gpu") == 0 || strcmp(accelerator, "cuda") == 0);
        s = lvni_cli_slurm_plan(
            &(lvni_cli_slurm_training){
                .n = n, .words = words, .config = c, .ranks = ranks_of(c), .on_cpu = !gpu},
            f);
    }
    lvni_core_config_destroy(c);
    lvni_sweep_trial_free(&t);
    return s;
}

lvn_status lvni_cli_sweep_check(const lvni_sweep_made *made, int *code)
{
    mistakes m = {.n = 0};
    lvni_slurm_findings f = {.errors = 0};
    char **words = made->plan.command;
    const int at = lvni_cli_sweep_recipe_at(count(words), words);
    lvn_status s = LVN_OK;
    *code = LVNI_EXIT_OK;
    const lvni_run_recipe *recipe =
        lvni_cli_find_recipe(count(words) - at, (const char *const *)(words + at), "train", code);
    if (recipe == NULL) {
        return LVN_OK;
    }
    *code = LVNI_EXIT_OK;
    for (int64_t i = 0; s == LVN_OK && i < made->points.n; i++) {
        s = check_trial(made, i, recipe, &m);
    }
    if (s == LVN_OK && m.n == 0 && made->points.n > 0) {
        s = plan_first(made, recipe, &f);
    }
    print(made, &m);
    fputs(lvni_core_str_text(&f.text), stderr);
    *code = m.n > 0 || f.errors > 0 ? LVNI_EXIT_USAGE : LVNI_EXIT_OK;
    for (int i = 0; i < m.n; i++) {
        lvni_core_free(m.text[i]);
    }
    lvni_slurm_findings_free(&f);
    return s;
}
