/* Optimizers over flat buffers: runs of parameters, state, and steps in ranges (optim.h), by the
 * formulas of formulas.c; and averages of weights. */
#include "optim/optim.h"

#include "core/error.h"
#include "core/math.h"
#include "kernels/flat.h"
#include "optim/formula.h"
#include "tensor/device.h"

#include <string.h>

static bool is_same(const lvni_optim_own *a, const lvni_optim_own *b)
{
    return a->has_momentum == b->has_momentum && a->has_beta1 == b->has_beta1 &&
           a->has_beta2 == b->has_beta2 && a->momentum == b->momentum && a->beta1 == b->beta1 &&
           a->beta2 == b->beta2;
}

static bool is_held_alike(const lvni_optim_hold *a, const lvni_optim_hold *b)
{
    return a->until == b->until && a->first == b->first && a->growth == b->growth &&
           a->every == b->every;
}

/* What differs from the phase's: a group with the same numbers is none. */
static lvni_optim_own own_of(const lvni_optim_options *o, const lvni_optim_own *p)
{
    lvni_optim_own own = {.has_momentum = p->has_momentum && p->momentum != o->momentum,
                          .has_beta1 = p->has_beta1 && p->beta1 != o->beta1,
                          .has_beta2 = p->has_beta2 && p->beta2 != o->beta2};
    own.momentum = own.has_momentum ? p->momentum : 0.0;
    own.beta1 = own.has_beta1 ? p->beta1 : 0.0;
    own.beta2 = own.has_beta2 ? p->beta2 : 0.0;
    return own;
}

/* Does the parameter go on in the run? Zeros between two parameters stay zeros under every
 * formula. */
static bool goes_on(const lvni_optim_run *run, const lvni_optim_run *next, bool neighbours)
{
    return neighbours && !run->trusted && !next->trusted && run->phase == next->phase &&
           run->lr_scale == next->lr_scale && run->weight_decay == next->weight_decay &&
           is_held_alike(&run->hold, &next->hold) && is_same(&run->own, &next->own);
}

/* Blocks of the flat buffers that a tensor touches. */
static int64_t count_sums(int64_t begin, int64_t n)
{
    return lvni_kernels_flat_blocks(begin + n) - begin / LVNI_FLAT_BLOCK;
}

static const lvni_optim_formula *formula_for(const lvni_optim_options o[LVNI_PHASES],
                                             const lvni_optim_parameter *p)
{
    return lvni_optim_formula_of(&o[p->phase]);
}

static bool is_trusted(const lvni_optim_options o[LVNI_PHASES], const lvni_optim_parameter *p)
{
    const lvni_optim_formula *formula = formula_for(o, p);
    const bool decays = o[p->phase].weight_decay * p->decay_scale > 0.0;
    return formula->ratio != NULL && p->ndim > 1 && !p->frozen &&
           (decays || !formula->ratio_of_decayed);
}

/* Of each tensor with a ratio: sums of its weights and of its gradient, and the ratio. Scratch
 * memory is that of the largest. */
size_t lvni_optim_trust_bytes(const lvni_optim_options o[LVNI_PHASES],
                              const lvni_optim_parameter *parameter, int n)
{
    int64_t numbers = 0, scratch = 0;
    for (int i = 0; i < n; i++) {
        const lvni_optim_parameter *p = &parameter[i];
        const lvni_optim_formula *formula = formula_for(o, p);
        const int64_t own = formula->scratch == NULL ? 0 : formula->scratch(p);
        numbers += is_trusted(o, p) ? 2 * count_sums(p->begin, p->n) + 1 : 0;
        scratch = own > scratch ? own : scratch;
    }
    return (size_t)(numbers + scratch) * sizeof(double);
}

static lvn_status make_trust(lvni_optim *o, const lvni_optim_parameter *parameter, int n)
{
    o->trust_bytes = lvni_optim_trust_bytes(o->options, parameter, n);
    if (o->trust_bytes > 0) {
        o->sums = lvni_tensor_mem_calloc(LVNI_TAG_MODEL, 1, o->trust_bytes);
        o->ratio = o->sums == NULL ? NULL : o->sums + 2 * o->n_sums;
    }
    return o->trust_bytes > 0 && o->sums == NULL ? lvn_last_error()->code : LVN_OK;
}

static lvn_status make_runs(lvni_optim *o, const lvni_optim_parameter *parameter, int n)
{
    o->run = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->run);
    if (o->run == NULL) {
        return LVN_ERR_MEMORY;
    }
    bool neighbours = false;
    int64_t n_ratios = 0;
    for (int i = 0; i < n; i++) {
        const lvni_optim_parameter *p = &parameter[i];
        const lvni_optim_run next = {.begin = p->begin,
                                     .n = p->n,
                                     .lr_scale = p->lr_scale,
                                     .weight_decay =
                                         o->options[p->phase].weight_decay * p->decay_scale,
                                     .hold = p->hold,
                                     .own = own_of(&o->options[p->phase], &p->own),
                                     .trusted = is_trusted(o->options, p),
                                     .first_sum = o->n_sums,
                                     .ratio = n_ratios,
                                     .phase = p->phase,
                                     .first = i,
                                     .count = 1};
        lvni_optim_run *run = o->n_runs > 0 ? &o->run[o->n_runs - 1] : NULL;
        if (p->frozen) {
            neighbours = false;
        } else if (run != NULL && goes_on(run, &next, neighbours)) {
            run->n = p->begin + p->n - run->begin;
            run->count++;
        } else {
            o->run[o->n_runs++] = next;
            o->n_sums += next.trusted ? count_sums(next.begin, next.n) : 0;
            n_ratios += next.trusted ? 1 : 0;
            neighbours = formula_for(o->options, p)->state_shape == NULL;
        }
    }
    return LVN_OK;
}

static lvn_status keep_parameters(lvni_optim *o, const lvni_optim_parameter *parameter, int n)
{
    o->n_parameters = n;
    o->parameter = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->parameter);
    o->idle = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->idle);
    o->missed = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->missed);
    if (o->parameter == NULL || o->idle == NULL || o->missed == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        o->parameter[i] = parameter[i];
        o->parameter[i].name = NULL; /* borrowed */
    }
    return LVN_OK;
}

/* ---- state ---- */

/* Elements of state k of a parameter whose state does not lie as its weights do; -1: none. */
static int64_t count_state(const lvni_optim_formula *formula, const lvni_optim_parameter *p, int k)
{
    int64_t shape[LVN_MAX_NDIM], n = 1;
    if (!formula->state_shape(p, k, shape)) {
        return -1;
    }
    for (int i = 0; i < p->ndim; i++) {
        n *= shape[i];
    }
    return n;
}

static int count_slots(const lvni_optim_options *o)
{
    const char *name[LVNI_OPTIM_SLOTS];
    return lvni_optim_formula_of(o)->slots(o, name);
}

/* Elements of buffer k that lie as weights do: all, if the optimizer of a parameter has it so. */
static int64_t flat_length(const lvni_optim_options o[LVNI_PHASES], int64_t n,
                           const lvni_optim_parameter *parameter, int n_parameters, int k)
{
    for (int i = 0; i < n_parameters; i++) {
        if (formula_for(o, &parameter[i])->state_shape == NULL &&
            k < count_slots(&o[parameter[i].phase])) {
            return n;
        }
    }
    return 0;
}

int64_t lvni_optim_slot_length(const lvni_optim_options o[LVNI_PHASES], int64_t n,
                               const lvni_optim_parameter *parameter, int n_parameters, int k)
{
    int64_t length = flat_length(o, n, parameter, n_parameters, k);
    for (int i = 0; i < n_parameters; i++) {
        const lvni_optim_formula *formula = formula_for(o, &parameter[i]);
        const int64_t own =
            formula->state_shape == NULL ? 0 : count_state(formula, &parameter[i], k);
        length += own > 0 ? own : 0;
    }
    return length;
}

int64_t lvni_optim_state(const lvni_optim *o, int k, int i, int64_t shape[LVN_MAX_NDIM])
{
    const lvni_optim_parameter *p = &o->parameter[i];
    const lvni_optim_formula *formula = formula_for(o->options, p);
    memcpy(shape, p->shape, sizeof p->shape);
    if (k >= o->slots[p->phase]) {
        return -1;
    }
    if (formula->state_shape == NULL) {
        return p->begin;
    }
    (void)formula->state_shape(p, k, shape);
    return o->state[k * o->n_parameters + i];
}

/* State of another shape lies behind what lies as weights do. */
static lvn_status lay_state(lvni_optim *o)
{
    bool shaped = false;
    for (int i = 0; i < o->n_parameters; i++) {
        shaped = shaped || formula_for(o->options, &o->parameter[i])->state_shape != NULL;
    }
    if (!shaped) {
        return LVN_OK;
    }
    o->state = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)o->n_slots * (size_t)o->n_parameters,
                                sizeof *o->state);
    for (int k = 0; k < o->n_slots && o->state != NULL; k++) {
        int64_t at =
            flat_length(o->options, o->own.end - o->own.begin, o->parameter, o->n_parameters, k);
        for (int i = 0; i < o->n_parameters; i++) {
            const lvni_optim_formula *formula = formula_for(o->options, &o->parameter[i]);
            const int64_t n =
                formula->state_shape == NULL ? -1 : count_state(formula, &o->parameter[i], k);
            o->state[k * o->n_parameters + i] = n < 0 ? -1 : at;
            at += n < 0 ? 0 : n;
        }
    }
    return o->state == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status make_state(lvni_optim *o)
{
    LVN_TRY(lay_state(o));
    for (int k = 0; k < o->n_slots; k++) {
        const int64_t n = lvni_optim_slot_length(o->options, o->own.end - o->own.begin,
                                                 o->parameter, o->n_parameters, k);
        o->slot[k] =
            n == 0 ? NULL : lvni_tensor_mem_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->slot[k]);
        if (n > 0 && o->slot[k] == NULL) {
            return lvn_last_error()->code;
        }
        o->slot_length[k] = n;
    }
    return LVN_OK;
}

static bool on_borders(lvni_optim_range r, int64_t n)
{
    return r.begin >= 0 && r.begin % LVNI_FLAT_BLOCK == 0 && r.end >= r.begin && r.end <= n &&
           (r.end % LVNI_FLAT_BLOCK == 0 || r.end == n);
}

lvn_status lvni_optim_check_parts(const lvni_optim_options o[LVNI_PHASES],
                                  const lvni_optim_parameter *parameter, int n)
{
    for (int i = 0; i < n; i++) {
        if (formula_for(o, &parameter[i])->state_shape != NULL) {
            LVN_FAIL(
                LVN_ERR_UNSUPPORTED,
                "optim=adafactor cannot be divided over ranks: its averages go over whole rows and "
                "columns; use strategy=ddp or another optimizer");
        }
    }
    return LVN_OK;
}

static lvn_status check(const lvni_optim_options options[LVNI_PHASES], int64_t n,
                        const lvni_optim_range *own, const lvni_optim_parameter *parameter,
                        int n_parameters)
{
    LVN_ARG(
        own == NULL || on_borders(*own, n),
        "an optimizer of elements %lld to %lld of %lld: a range must begin and end at multiples "
        "of %d, or end with the buffers",
        (long long)own->begin, (long long)own->end, (long long)n, LVNI_FLAT_BLOCK);
    LVN_TRY(own == NULL ? LVN_OK : lvni_optim_check_parts(options, parameter, n_parameters));
    return lvni_optim_check_groups(options, parameter, n_parameters);
}
static void set_options(lvni_optim *o, const lvni_optim_options options[LVNI_PHASES])
{
    for (int i = 0; i < LVNI_PHASES; i++) {
        const lvni_optim_options *p = &options[i];
        o->options[i] = *p;
        o->decays[i] = (lvni_optim_decays){p->momentum, p->beta1, p->beta2};
        o->slots[i] = lvni_optim_formula_of(p)->slots(p, o->slot_name[i]);
    }
}

lvn_status lvni_optim_create(const lvni_optim_options *options, int64_t n,
                             const lvni_optim_range *own, const lvni_optim_parameter *parameter,
                             int n_parameters, lvni_optim **out)
{
    lvni_optim_options all[LVNI_PHASES];
    for (int i = 0; i < LVNI_PHASES; i++) {
        all[i] = *options;
    }
    return lvni_optim_create_phases(all, n, own, parameter, n_parameters, out);
}

lvn_status lvni_optim_create_phases(const lvni_optim_options options[LVNI_PHASES], int64_t n,
                                    const lvni_optim_range *own,
                                    const lvni_optim_parameter *parameter, int n_parameters,
                                    lvni_optim **out)
{
    *out = NULL;
    LVN_TRY(check(options, n, own, parameter, n_parameters));
    lvni_optim *o = LVNI_NEW(LVNI_TAG_MODEL, lvni_optim);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    set_options(o, options);
    for (int i = 0; i < n_parameters; i++) {
        const int slots = o->slots[parameter[i].phase];
        o->n_slots = slots > o->n_slots ? slots : o->n_slots;
    }
    o->n = n;
    o->own = own != NULL ? *own : (lvni_optim_range){0, n};
    o->partial =
        lvni_core_calloc(LVNI_TAG_MODEL, (size_t)lvni_kernels_flat_blocks(n), sizeof *o->partial);
    lvn_status s;
    LVNI_TRY_DONE(s, o->partial == NULL ? LVN_ERR_MEMORY : make_runs(o, parameter, n_parameters));
    LVNI_TRY_DONE(s, make_trust(o, parameter, n_parameters));
    LVNI_TRY_DONE(s, keep_parameters(o, parameter, n_parameters));
    LVNI_TRY_DONE(s, make_state(o));
    *out = o;
    return LVN_OK;
done:
    lvni_optim_destroy(o);
    return s;
}

void lvni_optim_destroy(lvni_optim *o)
{
    if (o == NULL) {
        return;
    }
    for (int i = 0; i < LVNI_OPTIM_SLOTS; i++) {
        lvni_tensor_mem_free(o->slot[i], (size_t)o->slot_length[i], sizeof *o->slot[i]);
    }
    lvni_core_free(o->state);
    lvni_core_free(o->run);
    lvni_core_free(o->parameter);
    lvni_core_free(o->idle);
    lvni_core_free(o->missed);
    lvni_core_free(o->partial);
    lvni_tensor_mem_free(o->sums, 1, o->trust_bytes);
    lvni_core_free(o);
}

/* ---- a step over a range of the flat buffers ---- */

static const lvni_optim_formula *formula_of(const lvni_optim *o, int phase)
{
    return lvni_optim_formula_of(&o->options[phase]);
}

/* What the range has of n elements from `begin` on; false: nothing. */
static bool cut(lvni_optim_range range, int64_t begin, int64_t n, lvni_optim_range *out)
{
    out->begin = begin > range.begin ? begin : range.begin;
    out->end = begin + n < range.end ? begin + n : range.end;
    return out->begin < out->end;
}

static lvni_optim_call call_of(const lvni_optim *o, int run, double lr, double grad_scale)
{
    return (lvni_optim_call){.run = &o->run[run],
                             .lr = lr,
                             .grad_scale = grad_scale,
                             .step = o->block == NULL ? NULL : &o->block->phase[o->run[run].phase]};
}

/* Neighbours in a run that have the same part in this step, from parameter i on: the piece's
 * end. */
static int piece_end(const lvni_optim *o, const lvni_optim_run *run, int i)
{
    int end = i + 1;
    while (end < run->first + run->count && o->idle[end] == o->idle[i] &&
           o->missed[end] == o->missed[i]) {
        end++;
    }
    return end;
}

typedef void (*pass)(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                     const float *g);

/* The run's pieces, as far as they are in the range. */
static void for_pieces(lvni_optim *o, pass fn, lvni_optim_call *c, lvni_optim_range range, float *w,
                       const float *g)
{
    const lvni_optim_run *run = c->run;
    for (int i = run->first, end; i < run->first + run->count; i = end) {
        end = piece_end(o, run, i);
        const int64_t begin = o->parameter[i].begin,
                      n = o->parameter[end - 1].begin + o->parameter[end - 1].n - begin;
        lvni_optim_range part;
        if (o->idle[i] || !cut(range, begin, n, &part)) {
            continue;
        }
        const int64_t at = part.begin - range.begin;
        c->updates = o->steps[run->phase] - o->missed[i];
        fn(o, c, part, w + at, g + at);
    }
}

/* A tensor with sums that begins within a block: first what it has of that one. */
static void prepare_part(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                         const float *g)
{
    const lvni_optim_formula *formula = formula_of(o, c->run->phase);
    const int64_t border = lvni_kernels_flat_blocks(part.begin) * LVNI_FLAT_BLOCK,
                  middle = c->run->trusted && border < part.end ? border : part.end;
    if (part.begin < middle) {
        formula->prepare(o, c, (lvni_optim_range){part.begin, middle}, w, g);
    }
    if (middle < part.end) {
        const int64_t at = middle - part.begin;
        formula->prepare(o, c, (lvni_optim_range){middle, part.end}, w + at, g + at);
    }
}

void lvni_optim_prepare(lvni_optim *o, int phase, lvni_optim_range range, float *w, const float *g,
                        double grad_scale)
{
    const bool needed = formula_of(o, phase)->prepare != NULL;
    for (int i = 0; i < o->n_runs && needed; i++) {
        if (o->run[i].phase == phase) {
            lvni_optim_call c = call_of(o, i, 0.0, grad_scale);
            for_pieces(o, prepare_part, &c, range, w, g);
        }
    }
}

void lvni_optim_trust(lvni_optim *o, int phase, double grad_scale)
{
    for (int i = 0; i < o->n_runs; i++) {
        const lvni_optim_run *run = &o->run[i];
        if (run->phase == phase && run->trusted && !o->idle[run->first]) {
            lvni_optim_call c = call_of(o, i, 0.0, grad_scale);
            double *of_w = o->sums + run->first_sum;
            c.updates = o->steps[phase] - o->missed[run->first];
            formula_of(o, phase)->ratio(o, &c, of_w, of_w + o->n_sums,
                                        count_sums(run->begin, run->n));
        }
    }
}

void lvni_optim_step_range(lvni_optim *o, int phase, lvni_optim_range range, float *w,
                           const float *g, double lr, double grad_scale)
{
    for (int i = 0; i < o->n_runs; i++) {
        if (o->run[i].phase == phase) {
            lvni_optim_call c = call_of(o, i, lr, grad_scale);
            for_pieces(o, formula_of(o, phase)->step, &c, range, w, g);
        }
    }
}

void lvni_optim_set_rates(lvni_optim *o, int phase, int64_t step,
                          const lvni_optim_schedule *schedule, double decay, double momentum)
{
    for (int i = 0; i < o->n_runs; i++) {
        lvni_optim_run *run = &o->run[i];
        const lvni_optim_parameter *p = &o->parameter[run->first];
        const double on_host = o->block == NULL ? decay : 1.0;
        if (run->phase == phase) {
            const bool held = step < run->hold.until;
            run->lr_scale = p->lr_scale * lvni_optim_hold_factor(&run->hold, schedule, step);
            run->weight_decay =
                held ? 0.0 : o->options[phase].weight_decay * p->decay_scale * on_host;
        }
    }
    if (momentum > 0.0) {
        lvni_optim_decays *d = &o->decays[phase];
        *(lvni_optim_moves_momentum(&o->options[phase]) ? &d->momentum : &d->beta1) = momentum;
    }
}

void lvni_optim_end_step(lvni_optim *o, int phase)
{
    for (int i = 0; i < o->n_parameters; i++) {
        const bool missed = o->idle[i] && !o->parameter[i].frozen && o->parameter[i].phase == phase;
        o->missed[i] += missed ? 1 : 0;
    }
    o->steps[phase]++;
}

void lvni_optim_undo_step(lvni_optim *o, int phase, const bool *idle)
{
    for (int i = 0; i < o->n_parameters; i++) {
        const bool missed = idle[i] && !o->parameter[i].frozen && o->parameter[i].phase == phase;
        o->missed[i] -= missed ? 1 : 0;
    }
    o->steps[phase]--;
}

void lvni_optim_step(lvni_optim *o, int phase, float *w, const float *g, double lr,
                     double grad_scale)
{
    lvni_optim_prepare(o, phase, o->own, w, g, grad_scale);
    lvni_optim_trust(o, phase, grad_scale);
    lvni_optim_step_range(o, phase, o->own, w, g, lr, grad_scale);
    lvni_optim_end_step(o, phase);
}

/* ---- the gradient's norm ---- */

double lvni_optim_norm_of_blocks(lvni_optim *o, const double *sums, int64_t begin, int64_t end)
{
    const int64_t blocks = lvni_kernels_flat_blocks(o->n), first = begin / LVNI_FLAT_BLOCK;
    memset(o->partial, 0, (size_t)blocks * sizeof *sums);
    memcpy(o->partial + first, sums + first,
           (size_t)lvni_kernels_flat_blocks(end - begin) * sizeof *sums);
    return lvni_core_sqrt(lvni_kernels_flat_sum_tree(o->partial, blocks));
}

/* ---- averages of weights: one pass over the flat values per step ---- */

lvn_status lvni_optim_ema_create(const lvni_optim_ema_options *options, const float *x, int64_t n,
                                 lvni_optim_ema **out)
{
    *out = NULL;
    lvni_optim_ema *e = LVNI_NEW(LVNI_TAG_MODEL, lvni_optim_ema);
    float *value = lvni_tensor_mem_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *value);
    if (e == NULL || value == NULL) {
        lvni_core_free(e);
        lvni_tensor_mem_free(value, (size_t)n, sizeof *value);
        return lvn_last_error()->code;
    }
    *e = (lvni_optim_ema){.options = *options, .n = n, .averaged = n, .value = value};
    *out = e;
    return lvni_tensor_mem_copy(value, x, (size_t)n * sizeof *value);
}

void lvni_optim_ema_destroy(lvni_optim_ema *e)
{
    if (e != NULL) {
        lvni_tensor_mem_free(e->value, (size_t)e->n, sizeof *e->value);
        lvni_core_free(e);
    }
}

static void copy(float *to, const float *from, int64_t n)
{
    if (n > 0 && lvni_tensor_mem_copy(to, from, (size_t)n * sizeof *to) != LVN_OK) {
        lvni_tensor_device_record_error(lvni_tensor_device_of(to));
    }
}

void lvni_optim_ema_update(lvni_optim_ema *e, const float *x, int64_t t,
                           const lvn_step_average *step)
{
    const double most = e->options.warmup ? (double)(1 + t) / (double)(10 + t) : 1.0;
    const double decay = t == 0 ? 0.0 : e->options.decay < most ? e->options.decay : most;
    if (step != NULL) {
        lvni_kernels_flat_lerp(e->value, x, 0.0f, e->averaged, step);
    } else if (decay > 0.0) {
        lvni_kernels_flat_lerp(e->value, x, (float)(1.0 - decay), e->averaged, NULL);
    } else {
        copy(e->value, x, e->averaged);
    }
    copy(e->value + e->averaged, x + e->averaged, e->n - e->averaged);
}
