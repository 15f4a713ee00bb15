/* The slots of the loader: the memory of one batch each, allocated once and filled again and again.
 * Batches are opened in order and their samples claimed one by one, so that several threads share
 * even a small micro-batch. Claims are in order too: when a sample fails, all earlier ones are
 * claimed, so the first error in order is found whatever the timing. Called by loader.c. */
#include "data/loader_impl.h"

#include "core/alloc.h"
#include "core/error.h"
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
    LVN_TRY(lvni_data_dataset_fields(dataset, out->field, &out->n_fields));
    for (int i = 0; i < out->n_fields; i++) {
        LVN_TRY(field_bytes(dataset, &out->field[i], capacity, &out->bytes[i]));
        out->slot_bytes += (size_t)capacity * out->bytes[i];
    }
    return LVN_OK;
}

static lvn_status create_field(lvni_data_slot_part *part, const lvni_data_slot_layout *layout,
                               int i, lvn_batch *batch)
{
    const lvn_field *field = &layout->field[i];
    int64_t shape[LVN_MAX_NDIM] = {layout->capacity};
    memcpy(shape + 1, field->shape, (size_t)field->ndim * sizeof *shape);
    const size_t bytes = (size_t)layout->capacity * layout->bytes[i];
    part->data[i] = layout->device == NULL ? lvni_core_alloc(LVNI_TAG_DATA, bytes)
                                           : lvni_tensor_host_take(layout->device, bytes);
    if (part->data[i] == NULL) {
        return lvn_last_error()->code;
    }
    batch->field[i] = lvn_tensor_wrap(part->data[i], field->dtype, field->ndim + 1, shape);
    return batch->field[i] == NULL ? lvn_last_error()->code : LVN_OK;
}

static lvn_status create_part(lvni_data_slot_part *part, const lvni_data_slot_layout *layout,
                              lvn_batch *b)
{
    const size_t n = (size_t)layout->capacity;
    part->position = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *part->position);
    part->epoch = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *part->epoch);
    part->repeat = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *part->repeat);
    part->sample = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *part->sample);
    part->unreadable = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *part->unreadable);
    part->why = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *part->why);
    if (part->position == NULL || part->epoch == NULL || part->repeat == NULL ||
        part->sample == NULL || part->unreadable == NULL || part->why == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < layout->n_fields; i++) {
        LVN_TRY(create_field(part, layout, i, b));
    }
    b->n_fields = layout->n_fields;
    b->image = b->field[0];
    b->label = layout->n_fields > 1 ? b->field[1] : NULL;
    b->sample = part->sample;
    return LVN_OK;
}

static lvn_batch *batch_of(lvni_data_slot *slot, int number)
{
    return number == 0 ? &slot->out.batch : &slot->out.streams.batch[number - 1];
}

lvn_status lvni_data_slot_create(lvni_data_slot *slot, const lvni_data_loader *l)
{
    memset(slot, 0, sizeof *slot);
    for (int i = 0; i < l->n_sources; i++) {
        LVN_TRY(create_part(&slot->part[i], &l->source[i].layout, batch_of(slot, i)));
        if (i > 0) {
            slot->out.streams.name[slot->out.streams.n++] = l->source[i].name;
        }
    }
    slot->out.batch.streams = &slot->out.streams;
    return LVN_OK;
}

static void destroy_part(lvni_data_slot_part *part, const lvni_data_slot_layout *layout,
                         lvn_batch *batch)
{
    for (int i = 0; i < LVN_MAX_FIELDS; i++) {
        lvn_release(batch->field[i]);
        if (layout->device == NULL) {
            lvni_core_free(part->data[i]);
        } else {
            lvni_tensor_host_give(layout->device, part->data[i],
                                  (size_t)layout->capacity * layout->bytes[i]);
        }
    }
    lvni_core_free(part->position);
    lvni_core_free(part->epoch);
    lvni_core_free(part->repeat);
    lvni_core_free(part->sample);
    for (int64_t i = 0; part->why != NULL && i < layout->capacity; i++) {
        lvni_core_free(part->why[i]);
    }
    lvni_core_free(part->why);
    lvni_core_free(part->unreadable);
}

void lvni_data_slot_destroy(lvni_data_slot *slot, const lvni_data_loader *l)
{
    for (int i = 0; i < l->n_sources; i++) {
        destroy_part(&slot->part[i], &l->source[i].layout, batch_of(slot, i));
    }
}

static void finish_part(lvni_data_slot_part *part, const lvni_data_slot_layout *layout,
                        lvn_batch *batch)
{
    int64_t size = 0;
    for (int64_t i = 0; i < part->planned; i++) {
        if (part->unreadable[i] != LVN_OK) {
            continue;
        }
        if (size != i) {
            part->sample[size] = part->sample[i];
            for (int f = 0; f < layout->n_fields; f++) {
                const size_t bytes = layout->bytes[f];
                memcpy(part->data[f] + (size_t)size * bytes, part->data[f] + (size_t)i * bytes,
                       bytes);
            }
        }
        size++;
    }
    batch->size = size;
    for (int f = 0; f < layout->n_fields; f++) {
        lvn_tensor *t = batch->field[f];
        t->shape[0] = size;
        t->version++; /* same tensor, other contents: copies kept under (id, version) are stale */
    }
}

void lvni_data_slot_finish(lvni_data_slot *slot, const lvni_data_loader *l)
{
    for (int i = 0; i < l->n_sources; i++) {
        finish_part(&slot->part[i], &l->source[i].layout, batch_of(slot, i));
    }
}

/* ---- filling ---- */

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
    lvni_data_source_list(l, slot);
    l->filling = slot;
    if (slot->planned == 0) {
        pthread_cond_broadcast(&l->ready);
    }
    return true;
}

bool lvni_data_loader_claim(lvni_data_loader *l, lvni_data_loader_work *work)
{
    while (l->filling == NULL || l->filling->claimed == l->filling->planned) {
        if (!open_next(l)) {
            return false;
        }
    }
    *work = (lvni_data_loader_work){.slot = l->filling, .i = l->filling->claimed++};
    return true;
}

/* What on_error is about: the sample's own fault. */
static bool is_unreadable(lvn_status status)
{
    return status == LVN_ERR_CORRUPT || status == LVN_ERR_IO || status == LVN_ERR_NOT_FOUND ||
           status == LVN_ERR_UNSUPPORTED;
}

/* Make the thread's error name its sample. */
static void name_error(const lvni_data_source *source, lvn_status status, int64_t sample)
{
    char buffer[32];
    const char *raw = lvni_data_dataset_sample_name(source->dataset, sample, buffer);
    char name[1024]; /* as it stands in messages */
    lvni_core_escape(name, sizeof name, raw, strlen(raw), LVNI_ESCAPE_TEXT);
    const lvn_error *e = lvn_last_error();
    if (e->code != status) { /* a dataset that returns a status without a record */
        lvn_error_set(status, __FILE__, __LINE__, "%s: %s", name, lvn_status_text(status));
    } else if (strstr(e->message, name) == NULL) {
        lvn_error_set(status, e->file, e->line, "%s: %s", name, e->message);
    }
    if (source->name != NULL) {
        lvn_error_set(status, e->file, e->line, "stream %s: %s", source->name, e->message);
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

/* The source of sample *i of a slot; *i becomes its place there. */
static int source_of(const lvni_data_slot *slot, int64_t *i)
{
    int number = 0;
    for (; *i >= slot->part[number].planned; number++) {
        *i -= slot->part[number].planned;
    }
    return number;
}

/* The message without the stream, which a report names once, and without the folder that the
 * sample's name stands in, where it begins with its path. */
static const char *shorten(const char *message, const char *stream, const char *name)
{
    static const char begin[] = "stream ";
    const size_t n = stream == NULL ? 0 : sizeof begin - 1 + strlen(stream) + 2;
    message += strncmp(message, begin, sizeof begin - 1) == 0 && strlen(message) > n ? n : 0;
    const char *at = strstr(message, name);
    return at != NULL && at > message && at[-1] == '/' ? at : message;
}

/* Lock held: the thread's error stays with the sample until its batch is handed over. */
static lvn_status leave_out(lvni_data_loader *l, lvni_data_slot_part *part, int number, int64_t i)
{
    char buffer[32], name[1024];
    const lvn_error *e = lvn_last_error();
    const char *raw =
        lvni_data_dataset_sample_name(l->source[number].dataset, part->sample[i], buffer);
    lvni_core_escape(name, sizeof name, raw, strlen(raw), LVNI_ESCAPE_TEXT);
    part->unreadable[i] = e->code;
    part->why[i] =
        lvni_core_strdup(LVNI_TAG_DATA, shorten(e->message, l->source[number].name, name));
    if (part->why[i] == NULL) {
        return LVN_ERR_MEMORY;
    }
    /* with workers=0 this is the trainer's thread, for whom nothing failed */
    lvn_clear_error();
    return LVN_OK;
}

static lvn_status get_sample(lvni_data_loader *l, lvni_data_slot *slot, int number, int64_t i,
                             int worker)
{
    const lvni_data_source *s = &l->source[number];
    lvni_data_slot_part *part = &slot->part[number];
    const int64_t sample = lvni_data_dataset_index(s->dataset, part->position[i]);
    const lvn_sample_key key = {.seed = lvni_data_sampler_data_seed(s->seed, part->repeat[i]),
                                .epoch = part->epoch[i],
                                .sample = sample,
                                .training = l->o.training};
    void *field[LVN_MAX_FIELDS] = {NULL};
    for (int f = 0; f < s->layout.n_fields; f++) {
        field[f] = part->data[f] + (size_t)i * s->layout.bytes[f];
    }
    part->sample[i] = sample;
    lvn_clear_error();
    const uint64_t before = lvn_last_error()->serial;
    const lvn_status status = lvni_data_source_get(l, number, worker, &key, field);
    if (!is_unreadable(status)) { /* else the status is the reason */
        (void)lvni_core_error_of_callback(status, before, "%s() of the dataset %s",
                                          s->state == NULL ? "get" : "worker_get",
                                          s->dataset->cls->name);
    }
    if (status != LVN_OK) {
        name_error(s, status, sample);
    }
    return status;
}

void lvni_data_loader_decode(lvni_data_loader *l, lvni_data_loader_work work, int worker)
{
    int64_t i = work.i;
    const int number = source_of(work.slot, &i);
    pthread_mutex_unlock(&l->lock);
    lvn_status status = get_sample(l, work.slot, number, i, worker);
    pthread_mutex_lock(&l->lock);
    lvni_data_slot_part *part = &work.slot->part[number];
    if (is_unreadable(status) && l->o.unreadable != NULL) {
        status = leave_out(l, part, number, i);
    } else if (is_unreadable(status)) {
        const lvn_error *e = lvn_last_error();
        lvn_error_set(status, e->file, e->line, "%s; on_error=skip leaves out what cannot be read",
                      e->message);
    }
    if (status != LVN_OK) {
        keep_error(l, work);
    }
    if (++work.slot->done == work.slot->planned) {
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
            lvni_data_loader_decode(l, work, number);
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
