/* The sources of a loader: its set and the streams beside it. Which samples a batch has, as plan,
 * seed and step decide; orders; states of workers. Called by loader.c and loader_fill.c. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/rng.h"
#include "data/dataset.h"
#include "data/loader_impl.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

/* ---- create and destroy ---- */

/* A stream of the same data as the set itself must not come in the same order. */
static uint64_t stream_seed(uint64_t seed, const char *name)
{
    char purpose[64];
    snprintf(purpose, sizeof purpose, "stream/%s", name);
    const lvni_core_rng_key key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose(purpose));
    return (uint64_t)key.k[1] << 32 | key.k[0];
}

void lvni_data_source_init(lvni_data_loader *l, int number)
{
    lvni_data_source *s = &l->source[number];
    if (number == 0) {
        *s = (lvni_data_source){.dataset = l->o.dataset,
                                .seed = l->o.seed,
                                .order_kind = l->o.training ? l->o.order : LVN_ORDER_SEQUENCE,
                                .balanced = l->o.balanced && l->o.training,
                                .cycles = l->o.training && l->plan.cycles};
    } else {
        const lvn_stream *from = &l->o.stream[number - 1];
        *s = (lvni_data_source){.name = from->name,
                                .dataset = from->dataset,
                                .seed = stream_seed(l->o.seed, from->name),
                                .order_kind = from->order,
                                .cycles = from->rule != LVN_STREAM_ONCE};
    }
    s->length = s->dataset->cls->length(s->dataset);
    if (!l->o.training && l->o.max_chunks > 0 &&
        l->o.max_chunks < lvni_plan_eval_chunks(&l->plan, s->length)) {
        s->length = l->o.max_chunks * l->plan.eval_batch_size;
    }
    s->order_kind = s->length == LVN_ENDLESS ? LVN_ORDER_SEQUENCE : s->order_kind;
}

lvn_status lvni_data_source_measure(lvni_data_loader *l, int number)
{
    lvni_data_source *s = &l->source[number];
    int64_t capacity = !l->o.training ? l->plan.eval_batch_size
                       : number == 0  ? lvni_plan_largest_micro_batch(&l->plan)
                                      : lvni_plan_stream_largest(&l->plan, number - 1);
    const int64_t most = s->length > 0 ? s->length : 1;
    capacity = !s->cycles && s->length != LVN_ENDLESS && most < capacity ? most : capacity;
    LVN_TRY(lvni_data_slot_layout_make(s->dataset, capacity, &s->layout));
    s->layout.device = lvni_tensor_ctx_get()->device;
    return LVN_OK;
}

static bool repeats(const lvni_data_source *s)
{
    return s->balanced || s->order_kind == LVN_ORDER_REPLACEMENT;
}

static bool is_permuted(const lvni_data_source *s)
{
    return !s->balanced && s->order_kind == LVN_ORDER_SHUFFLE && s->length > LVNI_DATA_SHUFFLED_MAX;
}

static bool has_order(const lvni_data_source *s)
{
    return (s->balanced || s->order_kind != LVN_ORDER_SEQUENCE) && !is_permuted(s);
}

size_t lvni_data_source_bytes(const lvni_data_loader *l, int number)
{
    const lvni_data_source *s = &l->source[number];
    const size_t one = (has_order(s) ? sizeof *s->order : 0) +
                       (repeats(s) ? 2 * sizeof *s->repeat : 0) +
                       (s->balanced ? sizeof *s->lists->position : 0);
    return s->length == LVN_ENDLESS ? 0 : (size_t)s->length * one;
}

static lvn_status open_states(lvni_data_source *s, int workers)
{
    const lvn_dataset_class *c = s->dataset->cls;
    LVN_ARG((c->worker_open != NULL) == (c->worker_get != NULL) &&
                (c->worker_open != NULL) == (c->worker_close != NULL),
            "dataset %s: worker_open, worker_close and worker_get come together", c->name);
    LVN_ARG(c->get != NULL || c->worker_get != NULL, "dataset %s: get is missing", c->name);
    if (c->worker_open == NULL) {
        return LVN_OK;
    }
    const int n = workers > 0 ? workers : 1;
    s->state = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof(void *));
    if (s->state == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (; s->n_states < n; s->n_states++) {
        lvn_clear_error();
        const uint64_t before = lvn_last_error()->serial;
        const lvn_status status =
            lvni_core_error_of_callback(c->worker_open(s->dataset, &s->state[s->n_states]), before,
                                        "worker_open() of the dataset %s", c->name);
        if (status != LVN_OK) {
            lvn_error_frame("opening the state of worker %d of %d of the dataset %s", s->n_states,
                            n, c->name);
            return status;
        }
    }
    return LVN_OK;
}

lvn_status lvni_data_source_create(lvni_data_loader *l, int number)
{
    lvni_data_source *s = &l->source[number];
    const size_t n = s->length == LVN_ENDLESS ? 0 : (size_t)s->length;
    const bool ordered = l->o.training && has_order(s);
    s->permuted = l->o.training && is_permuted(s);
    s->order = ordered ? lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *s->order) : NULL;
    s->repeat =
        ordered && repeats(s) ? lvni_core_calloc(LVNI_TAG_DATA, 2 * n, sizeof *s->repeat) : NULL;
    if (ordered && (s->order == NULL || (repeats(s) && s->repeat == NULL))) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(s->balanced ? lvni_data_class_lists_create(s->dataset, &s->lists) : LVN_OK);
    return open_states(s, l->o.workers);
}

void lvni_data_source_destroy(lvni_data_source *s)
{
    while (s->n_states > 0) {
        s->dataset->cls->worker_close(s->dataset, s->state[--s->n_states]);
    }
    lvni_core_free(s->state);
    lvni_core_free(s->order);
    lvni_core_free(s->repeat);
    lvni_data_class_lists_destroy(s->lists);
}

/* ---- samples of a batch ---- */

static void make_order(lvni_data_source *s, uint32_t epoch)
{
    if (s->order == NULL || (s->order_known && s->order_epoch == epoch)) {
        return;
    }
    if (s->balanced) {
        lvni_data_sampler_balanced(s->seed, epoch, s->lists, s->order, s->repeat,
                                   s->repeat + s->length);
    } else if (s->order_kind == LVN_ORDER_REPLACEMENT) {
        lvni_data_sampler_replacement(s->seed, epoch, (uint32_t)s->length, s->order, s->repeat,
                                      s->repeat + s->length);
    } else {
        lvni_data_sampler_order(s->seed, epoch, (uint32_t)s->length, s->order);
    }
    s->order_epoch = epoch;
    s->order_known = true;
}

/* Positions of the pass `epoch`; of a source that cycles: from the run's beginning on. They never
 * go back from batch to batch, so each order is made once. */
static void list(lvni_data_source *s, lvni_plan_range r, uint32_t epoch, lvni_data_slot_part *part)
{
    for (int64_t i = 0; i < r.count; i++) {
        int64_t p = r.start + i;
        if (s->cycles) {
            epoch = s->length == LVN_ENDLESS ? 0 : (uint32_t)(p / s->length);
            p = s->length == LVN_ENDLESS ? p : p % s->length;
        }
        make_order(s, epoch);
        part->position[i] =
            s->permuted ? lvni_data_sampler_at(s->seed, epoch, (uint32_t)s->length, (uint32_t)p)
            : s->order == NULL ? p
                               : s->order[p];
        part->repeat[i] = s->repeat == NULL ? 0 : s->repeat[p];
        part->epoch[i] = epoch;
    }
    part->planned = r.count;
}

/* The steps of this loader before that of batch `sequence`, from its first epoch's beginning on. */
static int64_t locate(const lvni_data_loader *l, int64_t sequence, lvni_data_loader_batch *out)
{
    const int64_t k = l->plan.micro_batch_end - l->plan.micro_batch_begin;
    const int64_t at = l->first + sequence, step = at / k;
    int64_t epoch = l->o.epoch;
    out->step_in_epoch = lvni_plan_locate(&l->plan, step, &epoch);
    out->epoch = (uint32_t)epoch;
    out->micro_batch = l->plan.micro_batch_begin + at % k;
    return step;
}

/* Positions of a batch's samples in the passes of the sources; *out: its place in the run. */
static void ranges_in_training(const lvni_data_loader *l, int64_t sequence,
                               lvni_data_loader_batch *out, lvni_plan_range r[LVNI_LOADER_SOURCES])
{
    const int64_t before = l->o.step - l->o.step_in_epoch + locate(l, sequence, out);
    const lvni_plan plan = lvni_plan_in_epoch(&l->plan, out->epoch);
    r[0] = lvni_plan_micro_batch(&plan, out->step_in_epoch, (int)out->micro_batch);
    out->step_first = r[0].start - lvni_plan_step(&plan, out->step_in_epoch).start;
    if (l->source[0].cycles) {
        r[0].start += (before - out->step_in_epoch) * l->plan.effective_batch;
    }
    for (int i = 0; i < l->plan.n_streams; i++) {
        r[1 + i] = lvni_plan_stream_micro_batch(&l->plan, i, out->step_in_epoch, before,
                                                (int)out->micro_batch);
        r[1 + i].count = r[0].count > 0 ? r[1 + i].count : 0; /* else it is not computed */
    }
}

static void ranges_of(const lvni_data_loader *l, int64_t sequence, lvni_data_loader_batch *out,
                      lvni_plan_range r[LVNI_LOADER_SOURCES])
{
    if (l->o.training) {
        ranges_in_training(l, sequence, out, r);
        return;
    }
    out->epoch = l->o.epoch;
    out->step_in_epoch = 0;
    out->micro_batch = l->first + sequence * (l->o.in_turn ? l->plan.devices : 1);
    r[0] = lvni_plan_eval_chunk(&l->plan, l->source[0].length, out->micro_batch);
}

void lvni_data_source_count(const lvni_data_loader *l, int64_t sequence,
                            int64_t samples[LVNI_LOADER_SOURCES])
{
    lvni_data_loader_batch at;
    lvni_plan_range r[LVNI_LOADER_SOURCES];
    ranges_of(l, sequence, &at, r);
    for (int i = 0; i < l->n_sources; i++) {
        samples[i] = r[i].count;
    }
}

void lvni_data_source_list(lvni_data_loader *l, lvni_data_slot *slot)
{
    lvni_plan_range r[LVNI_LOADER_SOURCES];
    ranges_of(l, slot->sequence, &slot->out, r);
    for (int i = 0; i < l->n_sources; i++) {
        list(&l->source[i], r[i], slot->out.epoch, &slot->part[i]);
    }
    slot->out.planned = slot->part[0].planned;
    slot->planned = 0;
    for (int i = 0; i < l->n_sources; i++) {
        const lvni_data_slot_part *part = &slot->part[i];
        slot->planned += part->planned;
        memset(part->unreadable, 0, (size_t)part->planned * sizeof *part->unreadable);
    }
}

lvn_status lvni_data_source_get(lvni_data_loader *l, int number, int worker,
                                const lvn_sample_key *key, void *const field[])
{
    const lvni_data_source *s = &l->source[number];
    const lvn_dataset_class *c = s->dataset->cls;
    if (s->state == NULL) {
        return c->get(s->dataset, key, field);
    }
    const bool turns = l->o.workers == 0;
    if (turns) {
        pthread_mutex_lock(&l->own);
    }
    const lvn_status status = c->worker_get(s->dataset, s->state[worker], key, field);
    if (turns) {
        pthread_mutex_unlock(&l->own);
    }
    return status;
}
