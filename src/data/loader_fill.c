/* The slots of the loader: the memory of one batch each, allocated once and filled again and again.
 * Batches are opened in order and their samples claimed one by one, so that several threads share
 * even a small micro-batch. Claims are in order too: when a sample fails, all earlier ones are
 * claimed, so the first error in order is found whatever the timing. Called by loader.c. */
#include "data/loader_impl.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/thread.h"
#include "data/dataset.h"
#include "tensor/ctx.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* ---- memory of one batch ---- */

static lvn_status field_bytes(const lvn_dataset *dataset, const lvn_field *field, int64_t capacity,
                              size_t *bytes)
{
    const char *name = field->name != NULL ? field->name : "?";
    LVN_ARG((int)field->dtype >= 0 && field->dtype < LVN_DTYPE_COUNT,
            "dataset %s: field %s has unknown data type %d", dataset->cls->name, name,
            (int)field->dtype);
    LVN_ARG(field->ndim >= 0 && field->ndim < LVN_MAX_NDIM,
            "dataset %s: field %s has %d axes; a sample has 0 to %d", dataset->cls->name, name,
            field->ndim, LVN_MAX_NDIM - 1);
    int64_t n = 1;
    const int64_t most = INT64_MAX / 16 / (capacity > 0 ? capacity : 1);
    for (int i = 0; i < field->ndim; i++) {
        LVN_ARG(field->shape[i] >= 1 && n <= most / field->shape[i],
                "dataset %s: axis %d of field %s cannot have size %lld", dataset->cls->name, i,
                name, (long long)field->shape[i]);
        n *= field->shape[i];
    }
    *bytes = (size_t)n * lvn_dtype_size(field->dtype);
    return LVN_OK;
}

lvn_status lvni_data_slot_layout_make(const lvn_dataset *dataset, int64_t capacity,
                                      lvni_data_slot_layout *out)
{
    *out = (lvni_data_slot_layout){.capacity = capacity};
    out->n_fields = dataset->cls->fields(dataset, out->field);
    LVN_ARG(out->n_fields >= 1 && out->n_fields <= LVN_MAX_FIELDS,
            "dataset %s has %d fields; 1 to %d are possible", dataset->cls->name, out->n_fields,
            LVN_MAX_FIELDS);
    for (int i = 0; i < out->n_fields; i++) {
        LVN_TRY(field_bytes(dataset, &out->field[i], capacity, &out->bytes[i]));
        out->slot_bytes += (size_t)capacity * out->bytes[i];
    }
    return LVN_OK;
}

static lvn_status create_field(lvni_data_slot *slot, const lvni_data_slot_layout *layout, int i)
{
    const lvn_field *field = &layout->field[i];
    int64_t shape[LVN_MAX_NDIM] = {layout->capacity};
    memcpy(shape + 1, field->shape, (size_t)field->ndim * sizeof *shape);
    const size_t bytes = (size_t)layout->capacity * layout->bytes[i];
    slot->data[i] = layout->device == NULL ? lvni_core_alloc(LVNI_TAG_DATA, bytes)
                                           : lvni_tensor_host_take(layout->device, bytes);
    if (slot->data[i] == NULL) {
        return lvn_last_error()->code;
    }
    slot->out.batch.field[i] = lvn_tensor_wrap(slot->data[i], field->dtype, field->ndim + 1, shape);
    return slot->out.batch.field[i] == NULL ? lvn_last_error()->code : LVN_OK;
}

lvn_status lvni_data_slot_create(lvni_data_slot *slot, const lvni_data_slot_layout *layout)
{
    const size_t n = (size_t)layout->capacity;
    memset(slot, 0, sizeof *slot);
    slot->position = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->position);
    slot->repeat = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->repeat);
    slot->sample = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->sample);
    slot->unreadable = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->unreadable);
    if (slot->position == NULL || slot->repeat == NULL || slot->sample == NULL ||
        slot->unreadable == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < layout->n_fields; i++) {
        LVN_TRY(create_field(slot, layout, i));
    }
    lvn_batch *b = &slot->out.batch;
    b->n_fields = layout->n_fields;
    b->image = b->field[0];
    b->label = layout->n_fields > 1 ? b->field[1] : NULL;
    b->sample = slot->sample;
    return LVN_OK;
}

void lvni_data_slot_destroy(lvni_data_slot *slot, const lvni_data_slot_layout *layout)
{
    for (int i = 0; i < LVN_MAX_FIELDS; i++) {
        lvn_release(slot->out.batch.field[i]);
        if (layout->device == NULL) {
            lvni_core_free(slot->data[i]);
        } else {
            lvni_tensor_host_give(layout->device, slot->data[i],
                                  (size_t)layout->capacity * layout->bytes[i]);
        }
    }
    lvni_core_free(slot->position);
    lvni_core_free(slot->repeat);
    lvni_core_free(slot->sample);
    lvni_core_free(slot->unreadable);
}

void lvni_data_slot_finish(lvni_data_slot *slot, const lvni_data_slot_layout *layout)
{
    int64_t size = 0;
    for (int64_t i = 0; i < slot->out.planned; i++) {
        if (slot->unreadable[i]) {
            continue;
        }
        if (size != i) {
            slot->sample[size] = slot->sample[i];
            for (int f = 0; f < layout->n_fields; f++) {
                const size_t bytes = layout->bytes[f];
                memcpy(slot->data[f] + (size_t)size * bytes, slot->data[f] + (size_t)i * bytes,
                       bytes);
            }
        }
        size++;
    }
    slot->out.batch.size = size;
    for (int f = 0; f < layout->n_fields; f++) {
        lvn_tensor *t = slot->out.batch.field[f];
        t->shape[0] = size;
        t->version++; /* same tensor, other contents: copies kept under (id, version) are stale */
    }
}

/* ---- filling ---- */

/* Where batch `sequence` lies in training: epoch, step, micro-batch. */
static void locate(const lvni_data_loader *l, int64_t sequence, lvni_data_loader_batch *out)
{
    const int64_t k = l->plan.micro_batch_end - l->plan.micro_batch_begin;
    const int64_t at = l->first + sequence, step = at / k;
    out->epoch = l->o.epoch + (uint32_t)(step / l->plan.steps_per_epoch);
    out->step_in_epoch = step % l->plan.steps_per_epoch;
    out->micro_batch = l->plan.micro_batch_begin + at % k;
}

static void make_order(lvni_data_loader *l, uint32_t epoch)
{
    if (l->o.balanced) {
        lvni_data_sampler_balanced(l->o.seed, epoch, l->lists, l->order, l->repeat,
                                   l->repeat + l->length);
    } else {
        lvni_data_sampler_order(l->o.seed, epoch, (uint32_t)l->length, l->order);
    }
}

static void list_training(lvni_data_loader *l, lvni_data_slot *slot)
{
    locate(l, slot->sequence, &slot->out);
    if (!l->order_known || l->order_epoch != slot->out.epoch) {
        make_order(l, slot->out.epoch);
        l->order_epoch = slot->out.epoch;
        l->order_known = true;
    }
    const lvni_plan_range r =
        lvni_plan_micro_batch(&l->plan, slot->out.step_in_epoch, (int)slot->out.micro_batch);
    for (int64_t i = 0; i < r.count; i++) {
        slot->position[i] = l->order[r.start + i];
        slot->repeat[i] = l->o.balanced ? l->repeat[r.start + i] : 0;
    }
    slot->out.planned = r.count;
}

static void list_evaluation(lvni_data_loader *l, lvni_data_slot *slot)
{
    slot->out.epoch = l->o.epoch;
    slot->out.step_in_epoch = 0;
    slot->out.micro_batch = l->first + slot->sequence * (l->o.in_turn ? l->plan.devices : 1);
    const lvni_plan_range r = lvni_plan_eval_chunk(&l->plan, l->length, slot->out.micro_batch);
    for (int64_t i = 0; i < r.count; i++) {
        slot->position[i] = r.start + i;
        slot->repeat[i] = 0;
    }
    slot->out.planned = r.count;
}

/* Give the next batch a slot and write down its samples; false when all slots are in use or nothing
 * may follow. */
static bool open_next(lvni_data_loader *l)
{
    if (l->failed || l->stopping || l->opened == l->total || l->n_free == 0) {
        return false;
    }
    const int number = l->free_slot[--l->n_free];
    lvni_data_slot *slot = &l->slot[number];
    l->queue[l->opened % l->n_slots] = number;
    slot->sequence = l->opened++;
    slot->claimed = 0;
    slot->done = 0;
    if (l->o.training) {
        list_training(l, slot);
    } else {
        list_evaluation(l, slot);
    }
    memset(slot->unreadable, 0, (size_t)l->layout.capacity * sizeof *slot->unreadable);
    l->filling = slot;
    if (slot->out.planned == 0) {
        pthread_cond_broadcast(&l->ready);
    }
    return true;
}

bool lvni_data_loader_claim(lvni_data_loader *l, lvni_data_loader_work *work)
{
    while (l->filling == NULL || l->filling->claimed == l->filling->out.planned) {
        if (!open_next(l)) {
            return false;
        }
    }
    *work = (lvni_data_loader_work){.slot = l->filling, .i = l->filling->claimed++};
    return true;
}

const char *lvni_data_loader_sample_name(const lvni_data_loader *l, int64_t sample, char buffer[32])
{
    const lvn_dataset *d = l->o.dataset;
    const char *name = d->cls->sample_name != NULL ? d->cls->sample_name(d, sample) : NULL;
    if (name == NULL) {
        snprintf(buffer, 32, "sample %lld", (long long)sample);
        name = buffer;
    }
    return name;
}

/* What on_error is about: the sample's own fault. */
static bool is_unreadable(lvn_status status)
{
    return status == LVN_ERR_CORRUPT || status == LVN_ERR_IO || status == LVN_ERR_NOT_FOUND ||
           status == LVN_ERR_UNSUPPORTED;
}

/* Make the thread's error name its sample, and what can be done. */
static void name_error(const lvni_data_loader *l, lvn_status status, int64_t sample)
{
    char buffer[32];
    const char *raw = lvni_data_loader_sample_name(l, sample, buffer);
    char name[1024]; /* as it stands in messages */
    lvni_core_escape(name, sizeof name, raw, strlen(raw), LVNI_ESCAPE_TEXT);
    const lvn_error *e = lvn_last_error();
    if (e->code != status) { /* a dataset that returns a status without a record */
        lvn_error_set(status, __FILE__, __LINE__, "%s: %s", name, lvn_status_text(status));
    } else if (strstr(e->message, name) == NULL) {
        lvn_error_set(status, e->file, e->line, "%s: %s", name, e->message);
    }
    if (is_unreadable(status)) {
        lvn_error_set(status, e->file, e->line, "%s; on_error=skip leaves out what cannot be read",
                      e->message);
    }
}

/* Lock held: keep the thread's error if no earlier sample has one. */
static void keep_error(lvni_data_loader *l, lvni_data_loader_work work)
{
    const int64_t sequence = work.slot->sequence;
    const bool earlier =
        sequence < l->fail_sequence || (sequence == l->fail_sequence && work.i < l->fail_i);
    if (!l->failed || earlier) {
        l->failed = true;
        l->fail_sequence = sequence;
        l->fail_i = work.i;
        l->error = *lvn_last_error();
    }
}

static lvn_status get_sample(lvni_data_loader *l, lvni_data_loader_work work)
{
    lvni_data_slot *slot = work.slot;
    const int64_t sample = lvni_data_dataset_index(l->o.dataset, slot->position[work.i]);
    const lvn_sample_key key = {.seed =
                                    lvni_data_sampler_data_seed(l->o.seed, slot->repeat[work.i]),
                                .epoch = slot->out.epoch,
                                .sample = sample,
                                .training = l->o.training};
    void *field[LVN_MAX_FIELDS] = {NULL};
    for (int f = 0; f < l->layout.n_fields; f++) {
        field[f] = slot->data[f] + (size_t)work.i * l->layout.bytes[f];
    }
    slot->sample[work.i] = sample;
    lvn_clear_error();
    const lvn_status status = l->o.dataset->cls->get(l->o.dataset, &key, field);
    if (status != LVN_OK) {
        name_error(l, status, sample);
    }
    return status;
}

void lvni_data_loader_decode(lvni_data_loader *l, lvni_data_loader_work work)
{
    pthread_mutex_unlock(&l->lock);
    const lvn_status status = get_sample(l, work);
    pthread_mutex_lock(&l->lock);
    if (status != LVN_OK) {
        if (is_unreadable(status) && l->o.skip_unreadable) {
            work.slot->unreadable[work.i] = true;
            /* with workers=0 this is the trainer's thread, for whom nothing failed */
            lvn_clear_error();
        } else {
            keep_error(l, work);
        }
    }
    if (++work.slot->done == work.slot->out.planned) {
        pthread_cond_broadcast(&l->ready);
    }
}

static void *worker(void *argument)
{
    lvni_data_loader *l = argument;
    lvni_data_loader_work work;
    lvni_tensor_thread_set_ftz();
    pthread_mutex_lock(&l->lock);
    const int number = l->n_running++;
    pthread_mutex_unlock(&l->lock);
    lvni_core_thread_name("load", number);
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (lvni_data_loader_claim(l, &work)) {
            lvni_data_loader_decode(l, work);
        } else {
            pthread_cond_wait(&l->work, &l->lock);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

lvn_status lvni_data_loader_start(lvni_data_loader *l)
{
    l->thread = lvni_core_calloc(LVNI_TAG_DATA, (size_t)l->o.workers, sizeof *l->thread);
    if (l->thread == NULL) {
        return LVN_ERR_MEMORY;
    }
    int failure = 0;
    while (failure == 0 && l->n_threads < l->o.workers) {
        failure = lvni_core_thread_start(&l->thread[l->n_threads], worker, l);
        l->n_threads += failure == 0 ? 1 : 0;
    }
    if (failure != 0) {
        LVN_FAIL(LVN_ERR_MEMORY, "cannot start loader thread %d of %d: %s; lower num_workers",
                 l->n_threads + 1, l->o.workers, strerror(failure));
    }
    return LVN_OK;
}

void lvni_data_loader_stop(lvni_data_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++) {
        pthread_join(l->thread[i], NULL);
    }
    lvni_core_free(l->thread);
}
