/* Numbers that modules read in steps and that move with them (lvn_builder_number): their values
 * are the trainer's, one for each step. */
#include "nn/builder_impl.h"
#include "nn/step_metrics.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

static lvn_status check_stairs(const char *name, const lvn_number_options *o)
{
    LVN_ARG(o->stair != NULL, "the number %s has no stairs: .stair is NULL", name);
    LVN_ARG(o->n_stairs >= 1 && o->n_stairs <= LVN_MAX_STAIRS,
            "the number %s has %d stairs: it can have 1 to %d", name, o->n_stairs,
            (int)LVN_MAX_STAIRS);
    for (int i = 0; i < o->n_stairs; i++) {
        const int64_t before = i == 0 ? -1 : o->stair[i - 1].epoch;
        if (o->stair[i].epoch <= before || !isfinite(o->stair[i].value)) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "the number %s has %g from epoch %lld on: values must be finite, and epochs "
                     "rise from 0 on",
                     name, o->stair[i].value, (long long)o->stair[i].epoch);
        }
    }
    return LVN_OK;
}

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
    if (o->curve < LVN_CURVE_LINEAR || o->curve > LVN_CURVE_RAMP) {
        LVN_FAIL(LVN_ERR_INVALID, "the number %s has the curve %d: use one of lvn_curve", name,
                 (int)o->curve);
    }
    if (o->curve == LVN_CURVE_RAMP && (o->begin < 0 || !isfinite(o->rise))) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "the number %s rises by %g after epoch %lld: the rise must be finite, and epochs "
                 "count from 0",
                 name, o->rise, (long long)o->begin);
    }
    return o->curve == LVN_CURVE_STAIRS ? check_stairs(name, o) : LVN_OK;
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
                           .epochs = o.epochs,
                           .begin = o.begin,
                           .rise = o.rise};
    if (o.curve == LVN_CURVE_STAIRS) {
        number->n_stairs = o.n_stairs;
        memcpy(number->stair, o.stair, (size_t)o.n_stairs * sizeof *o.stair);
        number->to = o.stair[o.n_stairs - 1].value;
    }
    memcpy(number->name, name, strlen(name) + 1);
    return number;
}

bool lvni_nn_number_moves(const lvn_number *number)
{
    bool moves = number->from != number->to;
    for (int i = 0; i < number->n_stairs; i++) {
        moves = moves || number->stair[i].value != number->from;
    }
    return moves;
}

bool lvni_nn_number_is_curve(const lvn_number *number)
{
    return (number->curve == LVN_CURVE_LINEAR || number->curve == LVN_CURVE_COSINE) &&
           number->from != number->to;
}

lvn_tensor *lvn_number_tensor(const lvn_number *number, const lvn_step *step)
{
    const double *there =
        step == NULL ? NULL : ((const lvni_nn_step *)(const void *)step)->numbers_on_device;
    if (there == NULL || !lvni_nn_number_moves(number)) {
        return lvn_add_scalar(lvn_zeros(LVN_F32, LVN_SHAPE(1)), lvn_number_value(number, step));
    }
    /* all of the block, which begins where kernels can read; it is written by uploads alone, before
     * anything reads it */
    lvn_tensor *wide =
        lvn_tensor_wrap((double *)(uintptr_t)there, LVN_F64, LVN_SHAPE(LVN_STEP_NUMBERS));
    lvn_tensor *narrow = lvn_cast(wide, LVN_F32);
    lvn_release(wide);
    return lvn_slice(narrow, 0, number->index, number->index + 1);
}

double lvn_number_value(const lvn_number *number, const lvn_step *step)
{
    const double *now = step == NULL ? NULL : ((const lvni_nn_step *)(const void *)step)->numbers;
    if (lvni_nn_number_moves(number)) {
        atomic_fetch_add_explicit(&lvni_nn_host_reads, 1, memory_order_relaxed);
    }
    return now == NULL ? number->to : now[number->index];
}
