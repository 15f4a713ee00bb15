/* The best of measured checkpoints, as a table and as JSON (best_checkpoint.h). */
#include "run/best_checkpoint.h"

#include <math.h>

lvni_run_choice lvni_run_choose_best(const lvni_run_candidate *c, int n, bool more_is_better)
{
    lvni_run_choice out = {-1, -1};
    const double sign = more_is_better ? -1.0 : 1.0;
    for (int i = 0; i < n; i++) {
        if (c[i].is_good && isfinite(c[i].score) &&
            (out.best < 0 || sign * c[i].score < sign * c[out.best].score)) {
            out.best = i;
        }
        if (isfinite(c[i].distance) &&
            (out.closest < 0 || fabs(c[i].distance) < fabs(c[out.closest].distance))) {
            out.closest = i;
        }
    }
    return out;
}

static const char *number_text(char text[24], bool fixed, double value)
{
    if (isfinite(value)) {
        lvni_core_format(text, 24, fixed ? "%.4f" : "%.6g", value);
    }
    return isfinite(value) ? text : "-";
}

static void print_row(const lvni_run_candidate *c, bool is_best, const lvni_run_choice_table *t,
                      lvni_core_str *out)
{
    char score[24], distance[24];
    lvni_core_str_printf(out, "%s %5lld  %12s", is_best ? "*" : " ", (long long)c->epoch,
                         number_text(score, false, c->score));
    if (t->distance != NULL) {
        lvni_core_str_printf(out, "  %9s  %s", number_text(distance, true, c->distance),
                             c->is_good ? "yes" : "no");
    }
    lvni_core_str_append(out, "\n");
}

void lvni_run_choice_print(const lvni_run_candidate *c, int n, const lvni_run_choice_table *t,
                           lvni_core_str *out)
{
    const lvni_run_choice choice = lvni_run_choose_best(c, n, t->more_is_better);
    lvni_core_str_printf(out, "  epoch  %12s", t->score);
    if (t->distance != NULL) {
        lvni_core_str_printf(out, "  %9s  acceptable", t->distance);
    }
    lvni_core_str_append(out, "\n");
    for (int i = 0; i < n; i++) {
        print_row(&c[i], i == choice.best, t, out);
    }
    if (choice.best >= 0) {
        lvni_core_str_printf(out, "best: epoch %lld, where %s is %s\n",
                             (long long)c[choice.best].epoch, t->score,
                             t->more_is_better ? "largest" : "smallest");
    } else if (choice.closest >= 0) {
        lvni_core_str_printf(
            out, "no epoch is acceptable; closest: epoch %lld, %.4f %s from the target\n",
            (long long)c[choice.closest].epoch, fabs(c[choice.closest].distance), t->unit);
    } else {
        lvni_core_str_append(out, t->distance != NULL ? "no epoch is acceptable\n"
                                                      : "no epoch has a finite score\n");
    }
}

static void json_number(const char *name, double value, lvni_core_str *out)
{
    lvni_core_str_append(out, ", ");
    lvni_core_str_json(out, name);
    lvni_core_str_append(out, ": ");
    if (isfinite(value)) {
        lvni_core_str_double(out, value);
    } else {
        lvni_core_str_append(out, "null");
    }
}

static void json_epoch(const char *name, const lvni_run_candidate *c, int i, lvni_core_str *out)
{
    lvni_core_str_printf(out, ", \"%s\": ", name);
    if (i >= 0) {
        lvni_core_str_printf(out, "%lld", (long long)c[i].epoch);
    } else {
        lvni_core_str_append(out, "null");
    }
}

void lvni_run_choice_json(const lvni_run_candidate *c, int n, const lvni_run_choice_table *t,
                          lvni_core_str *out)
{
    const lvni_run_choice choice = lvni_run_choose_best(c, n, t->more_is_better);
    lvni_core_str_append(out, "\"epochs\": [");
    for (int i = 0; i < n; i++) {
        lvni_core_str_printf(out, "%s{\"epoch\": %lld", i > 0 ? ", " : "", (long long)c[i].epoch);
        json_number(t->score, c[i].score, out);
        if (t->distance != NULL) {
            json_number(t->distance, c[i].distance, out);
            lvni_core_str_printf(out, ", \"acceptable\": %s", c[i].is_good ? "true" : "false");
        }
        lvni_core_str_append(out, "}");
    }
    lvni_core_str_append(out, "]");
    json_epoch("best", c, choice.best, out);
    if (t->distance != NULL) {
        json_epoch("closest", c, choice.closest, out);
    }
}
