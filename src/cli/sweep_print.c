/* The trials of a plan as a table or as JSON (sweep.h). */
#include "cli/sweep.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 20, WIDEST = 40 };

lvn_status lvni_cli_sweep_trial_of(const lvni_sweep_made *made, int64_t i, lvni_sweep_trial *out)
{
    const lvni_sweep_plan *plan = &made->plan;
    char *const *values = made->points.values + i * made->points.n_parameters;
    lvni_core_str dir = {0};
    lvn_status s;
    *out = (lvni_sweep_trial){.index = plan->n_trials + i};
    lvni_core_str_printf(&dir, "%s/trials/%06lld", plan->dir, (long long)out->index);
    LVNI_TRY_DONE(s, lvni_core_str_status(&dir));
    out->dir = lvni_core_str_take(&dir);
    for (int64_t k = 0; k < made->points.n_parameters; k++) {
        if (values[k] != NULL) {
            LVNI_TRY_DONE(s, lvni_sweep_texts_add(&out->names, plan->parameters[k],
                                                  strlen(plan->parameters[k])));
            LVNI_TRY_DONE(s, lvni_sweep_texts_add(&out->values, values[k], strlen(values[k])));
        }
    }
    s = lvni_sweep_trial_command(plan, out);
done:
    if (s != LVN_OK) {
        lvni_sweep_trial_free(out);
    }
    return s;
}

/* ---- for people ---- */

static int width_of(const char *text)
{
    const size_t n = strlen(text);
    return (int)(n < WIDEST ? n : WIDEST);
}

static void print_rows(const lvni_sweep_made *made, int64_t shown, lvni_core_str *out)
{
    const int64_t n = made->points.n_parameters;
    char *const *values = made->points.values;
    for (int64_t i = -1; i < shown; i++) {
        if (i < 0) {
            lvni_core_str_append(out, "trial ");
        } else {
            lvni_core_str_printf(out, "%5lld ", (long long)made->plan.n_trials + i);
        }
        for (int64_t k = 0; k < n; k++) {
            int width = width_of(made->plan.parameters[k]);
            for (int64_t r = 0; r < shown; r++) {
                const char *value = values[r * n + k];
                width = value != NULL && width_of(value) > width ? width_of(value) : width;
            }
            const char *text = i < 0 ? made->plan.parameters[k] : values[i * n + k];
            lvni_core_str_message(out, k + 1 < n ? " %s%*s" : " %s", text != NULL ? text : "-",
                                  width - width_of(text != NULL ? text : "-"), "");
        }
        lvni_core_str_char(out, '\n');
    }
}

static lvn_status print_commands(const lvni_sweep_made *made, lvni_core_str *out)
{
    lvn_status s = LVN_OK;
    for (int64_t i = 0; s == LVN_OK && i < made->points.n; i++) {
        lvni_sweep_trial t;
        LVN_TRY(lvni_cli_sweep_trial_of(made, i, &t));
        lvni_core_str_printf(out, "%5lld: ", (long long)t.index);
        for (int64_t k = 0; t.argv[k] != NULL; k++) {
            lvni_core_str_append(out, k > 0 ? " " : "");
            lvni_core_shell_quote(out, t.argv[k]);
        }
        lvni_core_str_char(out, '\n');
        lvni_sweep_trial_free(&t);
        s = lvni_core_str_status(out);
    }
    return s;
}

static lvn_status print_text(const lvni_sweep_made *made, const lvni_cli_sweep_form *form,
                             lvni_core_str *out)
{
    const lvni_sweep_plan *plan = &made->plan;
    const int64_t n = made->points.n, shown = form->commands || n < SHOWN ? n : SHOWN;
    if (lvni_sweep_plan_asks(plan)) {
        lvni_core_str_message(out, "sweep %s: %s is asked for each trial; in %s\n", plan->name,
                              plan->strategy + 5, plan->dir);
        return lvni_core_str_status(out);
    }
    lvni_core_str_message(out, "sweep %s: %lld %strial%s of strategy %s; in %s\n", plan->name,
                          (long long)n, made->extends ? "more " : "", lvni_core_plural(n, "", "s"),
                          plan->strategy, plan->dir);
    lvni_core_str_message(out, "%-s", form->about != NULL ? form->about : "");
    if (n > 0) {
        print_rows(made, shown, out);
    }
    if (shown < n) {
        lvni_core_str_printf(out, "... and %lld more; dry_run=true prints all\n",
                             (long long)(n - shown));
    }
    LVN_TRY(form->commands ? print_commands(made, out) : LVN_OK);
    return lvni_core_str_status(out);
}

/* ---- as JSON ---- */

static void print_texts(char *const *texts, lvni_core_str *out)
{
    lvni_core_str_char(out, '[');
    for (int64_t k = 0; texts != NULL && texts[k] != NULL; k++) {
        lvni_core_str_append(out, k > 0 ? ", " : "");
        lvni_core_str_json(out, texts[k]);
    }
    lvni_core_str_char(out, ']');
}

static lvn_status print_json(const lvni_sweep_made *made, lvni_core_str *out)
{
    const lvni_sweep_plan *plan = &made->plan;
    lvni_core_str_append(out, "{\"name\": ");
    lvni_core_str_json(out, plan->name);
    lvni_core_str_append(out, ", \"dir\": ");
    lvni_core_str_json(out, plan->dir);
    lvni_core_str_append(out, ", \"strategy\": ");
    lvni_core_str_json(out, plan->strategy);
    lvni_core_str_printf(out, ", \"before\": %lld, \"parameters\": ", (long long)plan->n_trials);
    print_texts(plan->parameters, out);
    lvni_core_str_append(out, ", \"trials\": [");
    for (int64_t i = 0; i < made->points.n; i++) {
        lvni_sweep_trial t;
        LVN_TRY(lvni_cli_sweep_trial_of(made, i, &t));
        lvni_core_str_printf(out, "%s{\"trial\": %lld, \"parameters\": {", i > 0 ? ",\n" : "\n",
                             (long long)t.index);
        for (int64_t k = 0; t.names != NULL && t.names[k] != NULL; k++) {
            lvni_core_str_append(out, k > 0 ? ", " : "");
            lvni_core_str_json(out, t.names[k]);
            lvni_core_str_append(out, ": ");
            lvni_core_str_json(out, t.values[k]);
        }
        lvni_core_str_append(out, "}, \"command\": ");
        print_texts(t.argv, out);
        lvni_core_str_char(out, '}');
        lvni_sweep_trial_free(&t);
    }
    lvni_core_str_append(out, "]}\n");
    return lvni_core_str_status(out);
}

lvn_status lvni_cli_sweep_print(const lvni_sweep_made *made, const lvni_cli_sweep_form *form)
{
    lvni_core_str out = {0};
    const lvn_status s = form->json ? print_json(made, &out) : print_text(made, form, &out);
    if (s == LVN_OK) {
        fputs(lvni_core_str_text(&out), stdout);
    }
    lvni_core_str_free(&out);
    return s;
}
