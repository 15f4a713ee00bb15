/* Numbers that modules read in steps and that move with them (lvn_builder_number): their values
 * are the trainer's, one for each step. */
#include "nn/builder_impl.h"
#include "nn/step_metrics.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

static lvn_status check(const lvn_builder *b, const char *name, const lvn_number_options *o)
{
    const lvni_nn_model *m = b->model;
    if (name == NULL || name[0] == '\0' || strlen(name) >= LVNI_NUMBER_NAME) {
        LVN_FAIL(LVN_ERR_INVALID, "lvn_builder_number: a number needs a name of 1 to %d characters",
                 LVNI_NUMBER_NAME - 1);
    }
    for (int i = 0; i < m->n_numbers; i++) {
        if (m->number[i].module == b->module && strcmp(m->number[i].name, name) == 0) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "the number %s is there twice: names must be unique in a "
                     "module",
                     name);
        }
    }
    if (m->n_numbers == LVNI_NUMBERS) {
        LVN_FAIL(LVN_ERR_INVALID, "the number %s: a model can have %d", name, LVNI_NUMBERS);
    }
    if (!isfinite(o->from) || !isfinite(o->to)) {
        LVN_FAIL(LVN_ERR_INVALID, "the number %s goes from %g to %g: both must be finite", name,
                 o->from, o->to);
    }
    if (o->steps < 0 || o->epochs < 0 || o->epochs > INT32_MAX || (o->steps > 0 && o->epochs > 0)) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "the number %s has steps=%lld and epochs=%lld: one of the two may be given, and "
                 "must not be negative",
                 name, (long long)o->steps, (long long)o->epochs);
    }
    if (o->curve != LVN_CURVE_LINEAR && o->curve != LVN_CURVE_COSINE) {
        LVN_FAIL(LVN_ERR_INVALID, "the number %s has the curve %d: use one of lvn_curve", name,
                 (int)o->curve);
    }
    return LVN_OK;
}

const lvn_number *lvn_builder_number_with(lvn_builder *b, const char *name,
                                          const lvn_number_options *options)
{
    lvn_number_options o;
    if (b->status != LVN_OK ||
        !lvni_nn_builder_options(b, "builder_number", &o, sizeof o, options)) {
        return NULL;
    }
    const lvn_status s = check(b, name, &o);
    if (s != LVN_OK) {
        return lvni_nn_builder_fail(b, s);
    }
    lvni_nn_model *m = b->model;
    lvn_number *number = &m->number[m->n_numbers];
    *number = (lvn_number){.index = m->n_numbers++,
                           .module = b->module,
                           .curve = o.curve,
                           .from = o.from,
                           .to = o.to,
                           .steps = o.steps,
                           .epochs = o.epochs};
    memcpy(number->name, name, strlen(name) + 1);
    return number;
}

double lvn_number_value(const lvn_number *number, const lvn_step *step)
{
    const double *now = step == NULL ? NULL : ((const lvni_nn_step *)(const void *)step)->numbers;
    if (number->from != number->to) {
        atomic_fetch_add_explicit(&lvni_nn_host_reads, 1, memory_order_relaxed);
    }
    return now == NULL ? number->to : now[number->index];
}
