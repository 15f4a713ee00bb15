/* What callers see of the loader (loader.h): making it, taking batches in order, giving them
 * back. */
#include "data/loader.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "data/loader_impl.h"
#include "tensor/ctx.h"

#include <string.h>

enum { MAX_WORKERS = 1024 };
static const size_t DEFAULT_BYTES = (size_t)1 << 30;

static lvn_status check_training(const lvni_data_loader_options *o, int64_t length)
{
    LVN_ARG(length == o->plan->n_samples, "dataset %s has %lld samples, the plan was made for %lld",
            o->dataset->cls->name, (long long)length, (long long)o->plan->n_samples);
    const int64_t steps = lvni_plan_steps_of(o->plan, o->epoch);
    LVN_ARG(o->step_in_epoch >= 0 && o->step_in_epoch <= steps,
            "cannot start at step %lld of an epoch of %lld steps", (long long)o->step_in_epoch,
            (long long)steps);
    LVN_ARG(o->stream != NULL || o->plan->n_streams == 0,
            "the plan has %d streams, the loader none", o->plan->n_streams);
    for (int i = 0; i < o->plan->n_streams; i++) {
        const lvn_dataset *d = o->stream[i].dataset;
        LVN_ARG(d->cls->length(d) == o->plan->stream[i].n_samples,
                "the stream %s has %lld samples, the plan was made for %lld", o->stream[i].name,
                (long long)d->cls->length(d), (long long)o->plan->stream[i].n_samples);
    }
    return LVN_OK;
}

static lvn_status check_options(const lvni_data_loader_options *o)
{
    LVN_ARG(o->dataset != NULL && o->plan != NULL, "a loader needs a dataset and a plan");
    if (o->workers < 0 || o->workers > MAX_WORKERS) {
        LVN_FAIL(LVN_ERR_USAGE, "num_workers=%d is not a number from 0 to %d", o->workers,
                 MAX_WORKERS);
    }
    LVN_ARG(o->ahead >= 0, "a loader cannot work %d steps ahead", o->ahead);
    const int64_t length = o->dataset->cls->length(o->dataset);
    LVN_ARG((length >= 0 && length <= UINT32_MAX) || (o->training && length == LVN_ENDLESS),
            "dataset %s has length %lld; 0 to 2^32 - 1 are possible", o->dataset->cls->name,
            (long long)length);
    return o->training ? check_training(o, length) : LVN_OK;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Which batches there are: `first` and `total`. */
static void count_batches(lvni_data_loader *l)
{
    if (!l->o.training) {
        const lvni_plan_range own =
            (l->o.in_turn ? lvni_plan_eval_turns_of
                          : lvni_plan_eval_chunks_of)(&l->plan, l->source[0].length, l->plan.rank);
        l->first = own.start;
        l->total = own.count;
        return;
    }
    const int64_t k = l->plan.micro_batch_end - l->plan.micro_batch_begin;
    const uint32_t end = l->o.max_epochs > 0 ? l->o.max_epochs : UINT32_MAX;
    const int64_t steps = end > l->o.epoch ? lvni_plan_steps_before(&l->plan, end) -
                                                 lvni_plan_steps_before(&l->plan, l->o.epoch)
                                           : 0;
    const int64_t all = times(steps, k);
    l->first = l->o.step_in_epoch * k;
    l->total = all > l->first ? all - l->first : 0;
}

/* Waves of two steps, which a host that reads late is ahead of the device, and two more; of long
 * steps fewer, as the device has enough to do then. */
int lvni_data_loader_copied(const lvni_plan *plan)
{
    enum { MOST_WAVES = 8 };
    const int k = plan->micro_batch_end - plan->micro_batch_begin,
              waves = 2 * ((k + plan->lanes - 1) / plan->lanes) + 2;
    return plan->lanes * (waves < MOST_WAVES ? waves : MOST_WAVES);
}

/* Enough slots to keep all threads busy while every lane, or micro-batch, holds a batch, within the
 * memory given. */
static int choose_slots(const lvni_data_loader *l)
{
    const int64_t lanes = l->plan.lanes, capacity = l->source[0].layout.capacity;
    const int64_t round =
        l->o.training ? l->plan.micro_batch_end - l->plan.micro_batch_begin : lanes;
    const int64_t held = (l->o.training && l->o.whole_steps ? round : lanes) +
                         (l->source[0].layout.device == NULL ? 0
                          : l->o.training                    ? lvni_data_loader_copied(&l->plan)
                                                             : lanes);
    int64_t n = l->o.workers == 0 ? 1 : (l->o.ahead > 0 ? l->o.ahead : 2) * round;
    /* two samples per worker */
    const int64_t busy = (2 * (int64_t)l->o.workers + capacity - 1) / capacity;
    n = held + (n > busy ? n : busy);
    const size_t max_bytes = l->o.max_bytes > 0 ? l->o.max_bytes : DEFAULT_BYTES;
    const int64_t fit = (int64_t)(max_bytes / l->slot_bytes);
    n = n < fit ? n : fit;
    n = n > held ? n : held + 1;
    return (int)(n < l->total ? n : l->total);
}

static lvn_status allocate(lvni_data_loader *l)
{
    const size_t n = (size_t)l->n_slots;
    l->slot = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *l->slot);
    l->free_slot = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *l->free_slot);
    l->queue = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *l->queue);
    if (l->slot == NULL || l->free_slot == NULL || l->queue == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < l->n_sources; i++) {
        LVN_TRY(lvni_data_source_create(l, i));
    }
    for (int i = 0; i < l->n_slots; i++) {
        LVN_TRY(lvni_data_slot_create(&l->slot[i], l));
        l->free_slot[l->n_slots - 1 - i] = i; /* slot 0 is taken first */
    }
    l->n_free = l->n_slots;
    return LVN_OK;
}

static lvn_status choose(lvni_data_loader *l)
{
    for (int i = 0; i < l->n_sources; i++) {
        LVN_TRY(lvni_data_source_measure(l, i));
        l->slot_bytes += l->source[i].layout.slot_bytes;
    }
    count_batches(l);
    l->n_slots = choose_slots(l);
    return LVN_OK;
}

static void init(lvni_data_loader *l, const lvni_data_loader_options *options)
{
    l->o = *options;
    l->plan = *options->plan;
    l->o.plan = &l->plan;
    l->n_sources = l->o.training ? 1 + l->plan.n_streams : 1;
    for (int i = 0; i < l->n_sources; i++) {
        lvni_data_source_init(l, i);
    }
}

lvn_status lvni_data_loader_predict(const lvni_data_loader_options *options, size_t *bytes)
{
    *bytes = 0;
    LVN_TRY(check_options(options));
    lvni_data_loader *l = LVNI_NEW(LVNI_TAG_DATA, lvni_data_loader);
    if (l == NULL) {
        return LVN_ERR_MEMORY;
    }
    init(l, options);
    const lvn_status s = choose(l);
    const lvni_data_slot_part *part = NULL; /* for sizes alone */
    const size_t one = sizeof *part->position + sizeof *part->epoch + sizeof *part->repeat +
                       sizeof *part->sample + sizeof *part->unreadable + sizeof *part->why;
    *bytes = sizeof *l + (size_t)l->n_slots * (sizeof *l->slot + l->slot_bytes);
    for (int i = 0; i < l->n_sources; i++) {
        *bytes += (size_t)l->n_slots * (size_t)l->source[i].layout.capacity * one +
                  lvni_data_source_bytes(l, i);
    }
    lvni_core_free(l);
    return s;
}

static lvn_status build(lvni_data_loader *l)
{
    LVN_TRY(choose(l));
    LVN_TRY(allocate(l));
    return l->o.workers > 0 ? lvni_data_loader_start(l) : LVN_OK;
}

lvn_status lvni_data_loader_create(const lvni_data_loader_options *options, lvni_data_loader **out)
{
    *out = NULL;
    LVN_TRY(check_options(options));
    lvni_data_loader *l = LVNI_NEW(LVNI_TAG_DATA, lvni_data_loader);
    if (l == NULL) {
        return LVN_ERR_MEMORY;
    }
    init(l, options);
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->own, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    const lvn_status status = build(l);
    if (status != LVN_OK) {
        lvni_data_loader_destroy(l);
        return status;
    }
    *out = l;
    return LVN_OK;
}

void lvni_data_loader_destroy(lvni_data_loader *l)
{
    if (l == NULL) {
        return;
    }
    lvni_data_loader_stop(l);
    for (int i = 0; l->slot != NULL && i < l->n_slots; i++) {
        lvni_data_slot_destroy(&l->slot[i], l);
    }
    for (int i = 0; i < l->n_sources; i++) {
        lvni_data_source_destroy(&l->source[i]);
    }
    lvni_core_free(l->slot);
    lvni_core_free(l->free_slot);
    lvni_core_free(l->queue);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->own);
    pthread_mutex_destroy(&l->lock);
    lvni_core_free(l);
}

/* Lock held: wait for (workers=0: decode) the batch whose turn it is. *slot = NULL at the end. */
static lvn_status wait_for_next(lvni_data_loader *l, lvni_data_slot **slot)
{
    *slot = NULL;
    while (l->handed < l->total) {
        lvni_data_loader_work work;
        const int64_t opened = l->opened;
        if (l->handed < l->opened) {
            lvni_data_slot *s = &l->slot[l->queue[l->handed % l->n_slots]];
            if (s->done == s->planned) {
                if (l->failed && l->fail_sequence == l->handed) {
                    return lvni_core_error_collect(l->error.code, &l->error, "a sample");
                }
                *slot = s;
                return LVN_OK;
            }
        } else if (l->n_held == l->n_slots) {
            LVN_FAIL(
                LVN_ERR_INVALID,
                "all %d batches of the loader are held: release one before asking for the next",
                l->n_slots);
        }
        if (l->o.workers == 0 && lvni_data_loader_claim(l, &work)) {
            /* as the workers at their start */
            const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
            lvni_data_loader_decode(l, work, 0);
            lvni_tensor_fp_leave(before);
        } else if (l->opened == opened) {
            /* else batches without samples were opened: nothing to decode, and no thread that would
             * wake this one */
            pthread_cond_wait(&l->ready, &l->lock);
        }
    }
    return LVN_OK;
}

/* What the batch lacks, in the order of its samples. */
static lvn_status record_unreadable(const lvni_data_loader *l, const lvni_data_slot *slot)
{
    lvn_status s = LVN_OK;
    for (int k = 0; k < l->n_sources; k++) {
        const lvni_data_slot_part *part = &slot->part[k];
        for (int64_t i = 0; i < part->planned; i++) {
            const lvni_data_unreadable_sample sample = {.at = slot->out.micro_batch,
                                                        .position = part->position[i],
                                                        .source = k,
                                                        .status = part->unreadable[i],
                                                        .why = part->why[i]};
            if (s == LVN_OK && sample.status != LVN_OK) {
                s = lvni_data_unreadable_note(l->o.unreadable, &sample);
            }
            lvni_core_free(part->why[i]);
            part->why[i] = NULL;
        }
    }
    return s;
}

/* Lock held. */
static const lvni_data_loader_batch *hand_over(lvni_data_loader *l, lvni_data_slot *slot)
{
    l->handed++;
    l->n_held++;
    lvni_data_slot_finish(slot, l);
    slot->held = true;
    l->decoded += (uint64_t)slot->out.batch.size;
    for (int i = 0; i < slot->out.streams.n; i++) {
        l->decoded += (uint64_t)slot->out.streams.batch[i].size;
    }
    return &slot->out;
}

lvn_status lvni_data_loader_next(lvni_data_loader *l, const lvni_data_loader_batch **out)
{
    const uint64_t start = lvni_core_now_ns();
    lvni_data_slot *slot;
    *out = NULL;
    pthread_mutex_lock(&l->lock);
    lvn_status status = wait_for_next(l, &slot);
    if (slot != NULL) {
        status = record_unreadable(l, slot);
        *out = status == LVN_OK ? hand_over(l, slot) : NULL;
    }
    l->wait_ns += lvni_core_now_ns() - start;
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* A batch that lacks samples is reported with its step, not before. */
static bool is_complete(const lvni_data_loader *l, const lvni_data_slot *slot)
{
    bool complete =
        slot->done == slot->planned && !(l->failed && l->fail_sequence == slot->sequence);
    for (int k = 0; complete && k < l->n_sources; k++) {
        const lvni_data_slot_part *part = &slot->part[k];
        for (int64_t i = 0; complete && i < part->planned; i++) {
            complete = part->unreadable[i] == LVN_OK;
        }
    }
    return complete;
}

const lvni_data_loader_batch *lvni_data_loader_try_next(lvni_data_loader *l)
{
    const lvni_data_loader_batch *out = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->handed < l->opened) {
        lvni_data_slot *slot = &l->slot[l->queue[l->handed % l->n_slots]];
        out = is_complete(l, slot) ? hand_over(l, slot) : NULL;
    }
    pthread_mutex_unlock(&l->lock);
    return out;
}

bool lvni_data_loader_upcoming(lvni_data_loader *l, int k, lvni_data_loader_shape *out)
{
    pthread_mutex_lock(&l->lock);
    const int64_t sequence = l->handed + k;
    pthread_mutex_unlock(&l->lock);
    if (l->o.workers == 0 || sequence >= l->total) {
        return false;
    }
    int64_t samples[LVNI_LOADER_SOURCES];
    lvni_data_source_count(l, sequence, samples);
    out->n_parts = l->n_sources;
    for (int i = 0; i < l->n_sources; i++) {
        out->part[i].samples = samples[i];
        out->part[i].n_fields = l->source[i].layout.n_fields;
        out->part[i].field = l->source[i].layout.field;
    }
    return true;
}

void lvni_data_loader_release(lvni_data_loader *l, const lvni_data_loader_batch *batch)
{
    if (batch == NULL) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_slots; i++) {
        if (&l->slot[i].out == batch && l->slot[i].held) {
            l->slot[i].held = false;
            l->free_slot[l->n_free++] = i;
            l->n_held--;
        }
    }
    pthread_cond_broadcast(l->o.workers > 0 ? &l->work : &l->ready);
    pthread_mutex_unlock(&l->lock);
}

lvn_status lvni_data_loader_rewind(lvni_data_loader *l)
{
    pthread_mutex_lock(&l->lock);
    const bool possible = !l->o.training && !l->failed && l->handed == l->total && l->n_held == 0;
    if (possible) {
        l->opened = 0;
        l->handed = 0;
        l->filling = NULL;
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    LVN_ARG(possible,
            "only an evaluation that reached its end and released its batches can start again");
    return LVN_OK;
}

lvni_data_loader_stats lvni_data_loader_get_stats(lvni_data_loader *l)
{
    pthread_mutex_lock(&l->lock);
    const lvni_data_loader_stats stats = {.decoded = l->decoded,
                                          .wait_ns = l->wait_ns,
                                          .slots = l->n_slots,
                                          .slot_bytes = l->slot_bytes};
    pthread_mutex_unlock(&l->lock);
    return stats;
}

lvni_data_unreadable *lvni_data_loader_unreadable(const lvni_data_loader *l)
{
    return l->o.unreadable;
}
