/* Which parameters a step gives a gradient; those that the first one gives none are reported once,
 * as they are more often a mistake than meant (loop_impl.h). */
#include "core/alloc.h"
#include "core/str.h"
#include "log/run_log.h"
#include "trainer/loop_impl.h"

enum { NAMED = 3 };

lvn_status lvni_trainer_unused_watch(lvni_trainer *t)
{
    t->graded =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)t->o.model->n_parameters, sizeof *t->graded);
    if (t->graded == NULL || t->o.plan.rank > 0) { /* all ranks know of all micro-batches */
        return t->graded == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    t->used = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)t->o.model->n_parameters, sizeof *t->used);
    return t->used == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_trainer_unused_note(lvni_trainer *t, const lvni_nn_set *set)
{
    for (int i = 0; i < t->o.model->n_parameters; i++) {
        t->graded[i] = t->graded[i] || set->gradients.written[i] == LVNI_GRADIENT_THERE;
    }
}

void lvni_trainer_unused_end_phase(lvni_trainer *t)
{
    for (int i = 0; t->used != NULL && i < t->o.model->n_parameters; i++) {
        t->used[i] = t->used[i] || t->graded[i];
    }
}

void lvni_trainer_unused_report(lvni_trainer *t)
{
    const lvni_nn_model *m = t->o.model;
    lvni_core_str names = {0};
    int n = 0, seen = 0;
    for (int i = 0; t->used != NULL && i < m->n_parameters; i++) {
        seen += t->used[i] ? 1 : 0;
        if (!t->used[i] && m->parameters[i].phase >= 0) {
            lvni_core_str_printf(&names,
                                 n > 0 && n < NAMED ? ", %s"
                                 : n == 0           ? "%s"
                                                    : "",
                                 m->parameters[i].name);
            n++;
        }
    }
    if (seen == 0) {
        lvni_core_str_free(&names);
        return; /* its samples could not be read, or it has reported before */
    }
    if (n > NAMED) {
        lvni_core_str_printf(&names, " and %d more", n - NAMED);
    }
    if (n > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the loss does not depend on %s: %s without a gradient stay%s as %s; "
                      "if that is intended, give freeze=PATTERN",
                      lvni_core_str_text(&names), lvni_core_plural(n, "a parameter", "parameters"),
                      lvni_core_plural(n, "s", ""), lvni_core_plural(n, "it is", "they are"));
    }
    lvni_core_str_free(&names);
    lvni_core_free(t->used);
    t->used = NULL;
}
