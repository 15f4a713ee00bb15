/* Resolving the batch plan and cutting by it (plan.h). Order: sizes and ranks are checked, E, then
 * S, then what follows. */
#include "plan/plan.h"

#include "core/str.h"
#include "plan/stage_order.h"
#include "plan/tree.h"

#include <math.h>
#include <string.h>

static const int64_t MAX_BATCH = INT32_MAX;

/* The i-th of `parts` consecutive slices of 0 .. total-1; sizes differ by at most one, larger ones
 * first. */
static lvni_plan_range slice(int64_t total, int64_t parts, int64_t i)
{
    const int64_t size = total / parts, larger = total % parts;
    return (lvni_plan_range){.start = i * size + (i < larger ? i : larger),
                             .count = size + (i < larger ? 1 : 0)};
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0 ? 1 : 0);
}

static lvn_status check_count(const char *key, int64_t value, int64_t max)
{
    if (value < 0 || value > max) {
        LVN_FAIL(LVN_ERR_USAGE, "%s=%lld is not a number from 1 to %lld (or leave it out)", key,
                 (long long)value, (long long)max);
    }
    return LVN_OK;
}

static lvn_status check_options(const lvni_plan_options *o)
{
    if (o->n_samples < 1 && o->n_samples != LVNI_PLAN_ENDLESS) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "the training set has no samples: nothing to plan; give data with at least one");
    }
    if (o->n_samples > UINT32_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "the training set has %lld samples; the order of an epoch counts to %lld",
                 (long long)o->n_samples, (long long)UINT32_MAX);
    }
    LVN_TRY(check_count("steps_per_epoch", o->steps_per_epoch, INT32_MAX));
    LVN_TRY(check_count("batch_size", o->batch_size, MAX_BATCH));
    LVN_TRY(check_count("batch_size_per_device", o->batch_size_per_device, MAX_BATCH));
    LVN_TRY(check_count("effective batch", o->effective_batch, MAX_BATCH));
    LVN_TRY(check_count("accumulate_grad_batches", o->accumulate_grad_batches,
                        LVNI_PLAN_MAX_MICRO_BATCHES));
    LVN_TRY(check_count("devices", o->devices, LVNI_PLAN_MAX_MICRO_BATCHES));
    LVN_TRY(check_count("micro_batches", o->micro_batches, LVNI_PLAN_MAX_MICRO_BATCHES));
    LVN_TRY(check_count("group", o->group, LVNI_PLAN_MAX_MICRO_BATCHES));
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        LVN_TRY(check_count(lvni_core_pin_table[i].key, lvni_core_pins_get(&o->pins, i),
                            lvni_core_pin_table[i].max));
    }
    LVN_TRY(check_count("lanes", o->lanes, LVNI_PLAN_MAX_MICRO_BATCHES));
    LVN_TRY(check_count("cores", o->cores, INT32_MAX / LVNI_PLAN_MAX_MICRO_BATCHES));
    LVN_TRY(check_count("cores of all ranks", o->cores_all, INT32_MAX));
    return check_count("eval_batch_size", o->eval_batch_size, MAX_BATCH);
}

/* E = batch_size x A = batch_size_per_device x W x A; both dialects may be given when they
 * agree. */
static lvn_status resolve_batch(const lvni_plan_options *o, lvni_plan *p)
{
    const int64_t a = p->accumulate, per_device = o->batch_size_per_device;
    if (o->effective_batch > 0) {
        p->effective_batch = o->effective_batch;
        return LVN_OK;
    }
    if (o->batch_size == 0 && per_device == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "no batch size: give batch_size (over all devices) or batch_size_per_device");
    }
    if (o->batch_size > 0 && per_device > 0 && o->batch_size != per_device * p->devices) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "batch_size=%lld and batch_size_per_device=%lld disagree: %lld per device on %d "
                 "device%s is "
                 "%lld; give one of them",
                 (long long)o->batch_size, (long long)per_device, (long long)per_device, p->devices,
                 lvni_core_plural(p->devices, "", "s"), (long long)(per_device * p->devices));
    }
    const int64_t per_round = o->batch_size > 0 ? o->batch_size : per_device * p->devices;
    if (per_round > MAX_BATCH / a) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "an effective batch of %lld samples x %lld accumulation steps is too large: at "
                 "most %lld",
                 (long long)per_round, (long long)a, (long long)MAX_BATCH);
    }
    p->effective_batch = per_round * a;
    return LVN_OK;
}

/* Too few samples for the micro-batches: the message has where both numbers come from and what the
 * same key would have to be. */
static lvn_status too_few_samples(const lvni_plan_options *o, const lvni_plan *p)
{
    char batch[128], micro_batches[96], fix[96], devices[48] = "";
    const long long e = (long long)p->effective_batch;
    const char *key = o->batch_size > 0 ? "batch_size" : "batch_size_per_device";
    const int64_t given = o->batch_size > 0 ? o->batch_size : o->batch_size_per_device;
    const int64_t times =
        (o->batch_size > 0 ? 1 : (int64_t)p->devices) * p->accumulate; /* E = given x times */
    if (o->effective_batch > 0 || times == 1) {
        snprintf(batch, sizeof batch, "%s %lld", o->effective_batch > 0 ? "effective batch" : key,
                 e);
    } else {
        snprintf(batch, sizeof batch, "%s %lld x %lld = %lld samples", key, (long long)given,
                 (long long)times, e);
    }
    if (o->micro_batches > 0) {
        snprintf(micro_batches, sizeof micro_batches, "micro_batches=%d", p->micro_batches);
    } else {
        snprintf(micro_batches, sizeof micro_batches, "%d device%s x %d accumulation step%s",
                 p->devices, lvni_core_plural(p->devices, "", "s"), p->accumulate,
                 lvni_core_plural(p->accumulate, "", "s"));
        snprintf(devices, sizeof devices, " (or devices=%lld)", e / p->accumulate);
    }
    if (o->effective_batch > 0) {
        snprintf(fix, sizeof fix, "largest number of micro-batches that works: %lld", e);
    } else {
        snprintf(fix, sizeof fix, "smallest that works: %lld%s",
                 (long long)ceil_div(p->micro_batches, times), devices);
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s cannot be cut into %d micro-batches (%s): at least one sample each; %s", batch,
             p->micro_batches, micro_batches, fix);
}

static lvn_status resolve_micro_batches(const lvni_plan_options *o, lvni_plan *p)
{
    const int64_t s = o->micro_batches > 0 ? o->micro_batches : (int64_t)p->devices * p->accumulate;
    if (s > LVNI_PLAN_MAX_MICRO_BATCHES) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%d devices x %d accumulation steps make %lld micro-batches: at most %d",
                 p->devices, p->accumulate, (long long)s, LVNI_PLAN_MAX_MICRO_BATCHES);
    }
    p->micro_batches = (int)s;
    if (p->devices > p->micro_batches) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%d devices cannot share %d micro-batch%s: at least one micro-batch each; nearest "
                 "that works: "
                 "devices=%d (or micro_batches=%d)",
                 p->devices, p->micro_batches, lvni_core_plural(p->micro_batches, "", "es"),
                 p->micro_batches, p->devices);
    }
    return p->effective_batch < p->micro_batches ? too_few_samples(o, p) : LVN_OK;
}

static lvn_status resolve_bounds(const lvni_plan_options *o, lvni_plan *p)
{
    p->bounds = p->devices > 1 ? o->bounds : NULL;
    for (int rank = 0; p->bounds != NULL && rank < p->devices; rank++) {
        LVN_ARG(p->bounds[rank + 1] > p->bounds[rank], "rank %d has no micro-batch", rank);
    }
    LVN_ARG(p->bounds == NULL || (p->bounds[0] == 0 && p->bounds[p->devices] == p->micro_batches),
            "the shares of the ranks do not add up to micro_batches=%d", p->micro_batches);
    return LVN_OK;
}

/* Coupled micro-batches see those of one round of the devices: S / A, or the nearest below that
 * divides S. */
static int default_group(const lvni_plan_options *o, const lvni_plan *p)
{
    const int nodes = o->group_nodes > 0 && o->group_nodes <= p->micro_batches ? o->group_nodes : 1;
    int group = o->group_all                                     ? p->micro_batches / nodes
                : p->coupled && p->accumulate < p->micro_batches ? p->micro_batches / p->accumulate
                : p->coupled                                     ? 1
                                                                 : p->micro_batches;
    while (p->micro_batches % group != 0) {
        group--;
    }
    return group;
}

/* Groups are equal runs of micro-batches, so that every micro-batch has as many partners. */
static lvn_status resolve_group(const lvni_plan_options *o, lvni_plan *p)
{
    p->coupled = o->coupled;
    p->group = o->group > 0 ? o->group : default_group(o, p);
    if (p->group <= p->micro_batches && p->micro_batches % p->group == 0) {
        return LVN_OK;
    }
    int nearest = 1;
    for (int g = 1; g <= p->micro_batches; g++) {
        const int distance = g < p->group ? p->group - g : g - p->group;
        const int best = nearest < p->group ? p->group - nearest : nearest - p->group;
        nearest = p->micro_batches % g == 0 && distance < best ? g : nearest;
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "group=%d does not divide %d micro-batches: every group needs as many; nearest that "
             "works: %d",
             p->group, p->micro_batches, nearest);
}

/* The most micro-batches that this rank owns of any one group. */
static int most_of_a_group(const lvni_plan *p)
{
    int most = 0;
    for (int g = p->micro_batch_begin / p->group; g * p->group < p->micro_batch_end; g++) {
        const int begin = g * p->group > p->micro_batch_begin ? g * p->group : p->micro_batch_begin;
        const int end =
            (g + 1) * p->group < p->micro_batch_end ? (g + 1) * p->group : p->micro_batch_end;
        most = end - begin > most ? end - begin : most;
    }
    return most;
}

static void resolve_rank(const lvni_plan_options *o, lvni_plan *p)
{
    const lvni_plan_range own = lvni_plan_micro_batches_of(p, p->rank);
    p->micro_batch_begin = (int)own.start;
    p->micro_batch_end = (int)(own.start + own.count);
    const int request = o->lanes > 0 ? o->lanes : p->cores;
    p->lanes = request < (int)own.count ? request : (int)own.count;
    if (p->staged) { /* a lane for each tape */
        p->lanes = lvni_plan_stage_tapes(
            &(lvni_plan_stage_order){.stages = p->devices, .micro_batches = p->micro_batches},
            p->rank);
    }
    const int together = o->coupled ? most_of_a_group(p) : 0;
    p->lanes_raised = together > p->lanes;
    p->lanes = p->lanes_raised ? together : p->lanes;
    p->sub_trees = lvni_plan_tree_owed(p->micro_batches, p->micro_batch_begin, p->micro_batch_end);
    p->waiting_sets =
        lvni_plan_tree_waiting(p->micro_batches, p->micro_batch_begin, p->micro_batch_end);
}

static lvn_status resolve_stream(const lvni_plan *p, lvni_plan_stream *s)
{
    if (s->n_samples == 0 || s->n_samples < LVNI_PLAN_ENDLESS || s->n_samples > UINT32_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "the stream %s has %lld samples; 1 to %lld are possible", s->name,
                 (long long)s->n_samples, (long long)UINT32_MAX);
    }
    if (s->n_samples == LVNI_PLAN_ENDLESS &&
        (s->rule == LVNI_PLAN_SHORTENS || s->rule == LVNI_PLAN_LENGTHENS)) {
        LVN_FAIL(LVN_ERR_USAGE, "the stream %s has no length: it cannot decide the epoch's",
                 s->name);
    }
    if (s->batch == 0) {
        const double samples = (s->ratio != 0.0 ? s->ratio : 1.0) * (double)p->effective_batch;
        if (!(samples > 0.0 && samples <= (double)MAX_BATCH)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "the stream %s would have %g samples in a step (%g for each of %lld); 1 to "
                     "%lld are possible",
                     s->name, samples, s->ratio, (long long)p->effective_batch,
                     (long long)MAX_BATCH);
        }
        s->batch = (int64_t)(samples + 0.5);
    }
    if (s->batch < p->micro_batches || s->batch > MAX_BATCH) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "the stream %s has %lld sample%s in a step, which cannot be cut into %d "
                 "micro-batches: at least one sample each; smallest that works: %d (or "
                 "micro_batches=%lld)",
                 s->name, (long long)s->batch, lvni_core_plural(s->batch, "", "s"),
                 p->micro_batches, p->micro_batches, (long long)(s->batch > 1 ? s->batch : 1));
    }
    return LVN_OK;
}

static lvn_status resolve_streams(const lvni_plan_options *o, lvni_plan *p)
{
    LVN_ARG(o->n_streams >= 0 && o->n_streams <= LVNI_PLAN_STREAMS,
            "%d streams beside the training set; at most %d are possible", o->n_streams,
            LVNI_PLAN_STREAMS);
    p->n_streams = o->n_streams;
    for (int i = 0; i < o->n_streams; i++) {
        p->stream[i] = o->stream[i];
        LVN_TRY(resolve_stream(p, &p->stream[i]));
    }
    return LVN_OK;
}

/* Steps of an epoch as streams decide it, of `own` steps of the training set (0: no length). */
static int64_t steps_by_streams(const lvni_plan *p, int64_t own)
{
    int64_t steps = own;
    for (int i = 0; i < p->n_streams; i++) {
        const int64_t pass = ceil_div(p->stream[i].n_samples, p->stream[i].batch);
        steps = p->stream[i].rule == LVNI_PLAN_LENGTHENS && pass > steps ? pass : steps;
    }
    for (int i = 0; i < p->n_streams; i++) {
        const int64_t pass = ceil_div(p->stream[i].n_samples, p->stream[i].batch);
        const bool shortens = p->stream[i].rule == LVNI_PLAN_SHORTENS;
        steps = shortens && (pass < steps || steps == 0) ? pass : steps;
    }
    return steps;
}

/* Steps of the training set by itself; 0: it has no length. */
static lvn_status pass_of_training_set(const lvni_plan_options *o, lvni_plan *p, int64_t *steps)
{
    const int64_t n = p->n_samples == LVNI_PLAN_ENDLESS ? 0 : p->n_samples;
    const int64_t full = n / p->effective_batch, rest = n % p->effective_batch;
    p->drop_last = o->drop_last;
    if (p->drop_last && full == 0 && n > 0 && o->steps_per_epoch == 0) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "drop_last=true leaves no step: %lld sample%s fewer than the effective batch of %lld; "
            "nearest that works: an effective batch of %lld, or drop_last=false",
            (long long)n, lvni_core_plural(n, " is", "s are"), (long long)p->effective_batch,
            (long long)n);
    }
    const bool short_step = rest > 0 && !p->drop_last;
    p->last_step = short_step ? rest : p->effective_batch;
    *steps = full + (short_step ? 1 : 0);
    return LVN_OK;
}

/* The first batches of an epoch's order alone. */
static lvn_status limit_epoch(const lvni_plan_options *o, lvni_plan *p)
{
    int64_t steps = p->steps_per_epoch;
    if (o->limit_batches > 0) {
        steps = ceil_div(o->limit_batches, p->accumulate);
    } else if (o->limit_part > 0.0) {
        steps = (int64_t)((double)steps * o->limit_part);
    }
    if (steps < 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "limit_train_batches=%g leaves no step of the epoch's %lld; smallest that works: "
                 "%.3g, or a number of batches",
                 o->limit_part, (long long)p->steps_per_epoch,
                 ceil(1e3 / (double)p->steps_per_epoch) / 1e3);
    }
    if (steps < p->steps_per_epoch) {
        p->steps_per_epoch = steps;
        p->last_step = p->effective_batch;
    }
    return LVN_OK;
}

static lvn_status resolve_epoch(const lvni_plan_options *o, lvni_plan *p)
{
    LVN_ARG(p->effective_batch >= 1, "an effective batch of %lld", (long long)p->effective_batch);
    int64_t own = 0;
    LVN_TRY(pass_of_training_set(o, p, &own));
    p->steps_per_epoch = o->steps_per_epoch > 0 ? o->steps_per_epoch : steps_by_streams(p, own);
    if (p->steps_per_epoch == 0 && o->max_steps <= 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "the training set has no length: give steps_per_epoch (or max_steps, which is "
                 "then one epoch)");
    }
    p->steps_per_epoch = p->steps_per_epoch > 0 ? p->steps_per_epoch : o->max_steps;
    p->cycles = o->steps_per_epoch > 0 || p->steps_per_epoch != own;
    p->last_step = p->cycles ? p->effective_batch : p->last_step;
    return limit_epoch(o, p);
}

/* A of each epoch; the largest is that of the plan. */
static lvn_status read_factors(const lvni_plan_options *o, lvni_plan *p)
{
    if (o->n_factors == 0) {
        return LVN_OK;
    }
    LVN_ARG(o->n_factors < LVNI_PLAN_FACTORS, "%d factors of accumulation", o->n_factors);
    p->accumulate = 1;
    if (o->factor[0].epoch > 0) {
        p->factor[p->n_factors++] = (lvni_plan_factor){.factor = 1};
    }
    for (int i = 0; i < o->n_factors; i++) {
        const lvni_plan_factor *f = &o->factor[i];
        LVN_ARG(f->factor >= 1 && (i == 0 || f->epoch > o->factor[i - 1].epoch),
                "factors of accumulation: at least 1, by ascending epochs");
        p->factor[p->n_factors++] = *f;
        p->accumulate = f->factor > p->accumulate ? f->factor : p->accumulate;
    }
    return LVN_OK;
}

static lvn_status resolve_epochs(const lvni_plan_options *o, lvni_plan *p)
{
    p->filled = p->micro_batches;
    if (p->n_factors > 0 &&
        (o->steps_per_epoch > 0 || o->n_streams > 0 || o->n_samples == LVNI_PLAN_ENDLESS)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "accumulate_grad_batches changes with the epoch, so an epoch has to be one pass "
                 "through the training set: leave out %s, or give one number",
                 o->steps_per_epoch > 0 ? "steps_per_epoch"
                 : o->n_streams > 0     ? "the streams"
                                        : "the data without length");
    }
    for (int i = 0; i < p->n_factors; i++) {
        lvni_plan_factor *f = &p->factor[i];
        lvni_plan epoch = *p;
        epoch.accumulate = f->factor;
        epoch.effective_batch = p->effective_batch / p->accumulate * f->factor;
        LVN_TRY(resolve_epoch(o, &epoch));
        f->steps = epoch.steps_per_epoch;
        f->last_step = epoch.last_step;
    }
    return resolve_epoch(o, p);
}

/* What is chosen here where the user gives nothing; from here on part of the resolved config. */
static void resolve_rest(const lvni_plan_options *o, lvni_plan *p)
{
    const lvni_core_pin_facts facts = {.cores = o->cores_all > 0 ? o->cores_all
                                                                 : (int64_t)p->cores * p->devices,
                                       .micro_batches = p->micro_batches};
    p->pins = o->pins;
    lvni_core_pins_choose(&p->pins, &facts);
    /* a chunk fits wherever a micro-batch with its backward pass fits; 64 keeps small ones from
     * slowing evaluation down, unless they are small by accumulation */
    const int64_t micro_batch = lvni_plan_largest_micro_batch(p),
                  batch = p->effective_batch / p->accumulate, least = batch < 64 ? batch : 64,
                  chosen = micro_batch > least ? micro_batch : least;
    p->eval_batch_size = o->eval_batch_size > 0 ? o->eval_batch_size : chosen;
}

lvn_status lvni_plan_make(const lvni_plan_options *o, lvni_plan *out)
{
    LVN_TRY(check_options(o));
    lvni_plan p;
    memset(&p, 0, sizeof p);
    p.n_samples = o->n_samples;
    p.devices = o->devices > 0 ? o->devices : 1;
    p.accumulate = o->accumulate_grad_batches > 0 ? o->accumulate_grad_batches : 1;
    p.cores = o->cores > 0 ? o->cores : 1;
    p.rank = o->rank;
    p.staged = o->staged && p.devices > 1;
    LVN_TRY(read_factors(o, &p));
    LVN_ARG(p.rank >= 0 && p.rank < p.devices, "rank %d of %d devices", p.rank, p.devices);
    LVN_TRY(resolve_batch(o, &p));
    LVN_TRY(resolve_micro_batches(o, &p));
    LVN_TRY(resolve_bounds(o, &p));
    LVN_TRY(resolve_group(o, &p));
    LVN_TRY(resolve_streams(o, &p));
    LVN_TRY(resolve_epochs(o, &p));
    resolve_rank(o, &p);
    resolve_rest(o, &p);
    *out = p;
    return LVN_OK;
}

lvni_plan_range lvni_plan_step(const lvni_plan *plan, int64_t step)
{
    const bool last = step == plan->steps_per_epoch - 1;
    return (lvni_plan_range){.start = step * plan->effective_batch,
                             .count = last ? plan->last_step : plan->effective_batch};
}

lvni_plan_range lvni_plan_micro_batch(const lvni_plan *plan, int64_t step, int micro_batch)
{
    const lvni_plan_range all = lvni_plan_step(plan, step);
    /* every S / filled-th has samples; the plan of an epoch may leave out the others */
    const int64_t at = (int64_t)micro_batch * plan->filled, of = plan->micro_batches;
    lvni_plan_range r = slice(all.count, plan->filled, at / of);
    if (at % of >= plan->filled) {
        r = (lvni_plan_range){.start = r.start + r.count};
    }
    r.start += all.start;
    return r;
}

lvni_plan_range lvni_plan_stream_micro_batch(const lvni_plan *p, int i, int64_t step,
                                             int64_t before, int micro_batch)
{
    const lvni_plan_stream *s = &p->stream[i];
    const bool once = s->rule == LVNI_PLAN_ONCE && s->n_samples != LVNI_PLAN_ENDLESS;
    const int64_t start = (once ? step : before) * s->batch;
    const int64_t left = !once ? s->batch : start < s->n_samples ? s->n_samples - start : 0;
    lvni_plan_range r = slice(left < s->batch ? left : s->batch, p->micro_batches, micro_batch);
    r.start += start;
    return r;
}

int64_t lvni_plan_stream_largest(const lvni_plan *p, int i)
{
    return ceil_div(p->stream[i].batch, p->micro_batches);
}

/* Where the group of micro-batch `first` ends, as far as it is this rank's. */
static int end_of_group(const lvni_plan *p, int first)
{
    const int end = (first / p->group + 1) * p->group;
    return end < p->micro_batch_end ? end : p->micro_batch_end;
}

static bool is_shared(const lvni_plan *p, int micro_batch)
{
    const int begin = micro_batch / p->group * p->group;
    return begin < p->micro_batch_begin || begin + p->group > p->micro_batch_end;
}

lvni_plan_range lvni_plan_wave(const lvni_plan *p, int first)
{
    const int left = p->micro_batch_end - first;
    int end = first + (p->lanes < left ? p->lanes : left);
    if (p->coupled) {
        const int most = end;
        bool shared = is_shared(p, first);
        for (end = end_of_group(p, first);
             end < most && end_of_group(p, end) <= most && !(shared && is_shared(p, end));
             end = end_of_group(p, end)) {
            shared = shared || is_shared(p, end);
        }
    }
    return (lvni_plan_range){.start = first, .count = end - first};
}

lvni_plan_range lvni_plan_ranks_of_group(const lvni_plan *p, int group)
{
    const int64_t begin = (int64_t)group * p->group, end = begin + p->group;
    lvni_plan_range ranks = {0};
    for (int rank = 0; rank < p->devices; rank++) {
        const lvni_plan_range own = lvni_plan_micro_batches_of(p, rank);
        if (own.start < end && own.start + own.count > begin) {
            ranks.start = ranks.count == 0 ? rank : ranks.start;
            ranks.count++;
        }
    }
    return ranks;
}

bool lvni_plan_shares_groups(const lvni_plan *p)
{
    for (int rank = 1; rank < p->devices; rank++) { /* does one begin within a group? */
        if (lvni_plan_micro_batches_of(p, rank).start % p->group != 0) {
            return true;
        }
    }
    return false;
}

int lvni_plan_sets(const lvni_plan *plan)
{
    return plan->lanes + plan->waiting_sets;
}

int64_t lvni_plan_largest_micro_batch(const lvni_plan *plan)
{
    return ceil_div(plan->effective_batch, plan->micro_batches);
}

lvni_plan_range lvni_plan_micro_batches_of(const lvni_plan *plan, int rank)
{
    const int *b = plan->bounds;
    if (plan->staged) {
        return (lvni_plan_range){.start = 0, .count = plan->micro_batches};
    }
    return b == NULL ? slice(plan->micro_batches, plan->devices, rank)
                     : (lvni_plan_range){.start = b[rank], .count = b[rank + 1] - b[rank]};
}

int lvni_plan_most_micro_batches(const lvni_plan *plan)
{
    int64_t most = 0;
    for (int rank = 0; rank < (plan->bounds == NULL ? 1 : plan->devices); rank++) {
        const int64_t n = lvni_plan_micro_batches_of(plan, rank).count;
        most = n > most ? n : most;
    }
    return (int)most;
}

void lvni_plan_balance(const double *cost, int ranks, int micro_batches, int *bounds)
{
    int *share = bounds + 1; /* until they are added up */
    for (int rank = 0; rank < ranks; rank++) {
        share[rank] = 1;
    }
    for (int given = ranks; given < micro_batches; given++) {
        int to = 0; /* that has done one more the earliest */
        for (int rank = 1; rank < ranks; rank++) {
            to = (share[rank] + 1) * cost[rank] < (share[to] + 1) * cost[to] ? rank : to;
        }
        share[to]++;
    }
    bounds[0] = 0;
    for (int rank = 0; rank < ranks; rank++) {
        bounds[rank + 1] += bounds[rank];
    }
}

int64_t lvni_plan_eval_chunks(const lvni_plan *plan, int64_t n)
{
    return ceil_div(n, plan->eval_batch_size);
}

int64_t lvni_plan_eval_limit(const lvni_plan *plan, int64_t n, int64_t batches, double part)
{
    const int64_t all = lvni_plan_eval_chunks(plan, n);
    const int64_t most = batches > 0 ? batches : part > 0.0 ? (int64_t)((double)all * part) : all;
    return most < all ? most : all;
}

lvni_plan_range lvni_plan_eval_chunk(const lvni_plan *plan, int64_t n, int64_t chunk)
{
    const int64_t start = chunk * plan->eval_batch_size, rest = n - start;
    return (lvni_plan_range){.start = start,
                             .count = rest < plan->eval_batch_size ? rest : plan->eval_batch_size};
}

lvni_plan_range lvni_plan_eval_chunks_of(const lvni_plan *plan, int64_t n, int rank)
{
    return slice(lvni_plan_eval_chunks(plan, n), plan->devices, rank);
}

lvni_plan_range lvni_plan_eval_turns_of(const lvni_plan *plan, int64_t n, int rank)
{
    const int64_t chunks = lvni_plan_eval_chunks(plan, n);
    return (lvni_plan_range){.start = rank,
                             .count = chunks > rank ? ceil_div(chunks - rank, plan->devices) : 0};
}
