/* Batches of zeros, shaped as those of the loader: what a run will take and which algorithms it has
 * are found out with them, before there are samples (memory.h). Called by memory.c and speed.c. */
#include "core/alloc.h"
#include "core/machine.h"
#include "data/dataset.h"
#include "trainer/memory.h"

#include <string.h>

/* They are filled with zeros, and what the machine has not must not be filled: the system would
 * kill the plan itself. */
static lvn_status check_batch(const lvn_field *field, int n, int64_t size)
{
    double bytes = 0.0;
    const uint64_t has = lvni_core_machine_memory("");
    for (int i = 0; i < n; i++) {
        double values = (double)size;
        for (int k = 0; k < field[i].ndim; k++) {
            values *= (double)field[i].shape[k];
        }
        bytes += values * (double)lvn_dtype_size(field[i].dtype);
    }
    if (bytes > (double)has) {
        char samples[LVNI_BYTES_TEXT], there[LVNI_BYTES_TEXT];
        LVN_FAIL(
            LVN_ERR_DEVICE_MEMORY, "the samples alone are %s, and %s are available here",
            lvni_core_bytes_text(bytes < 0x1p63 ? (uint64_t)bytes : (uint64_t)1 << 63, samples),
            lvni_core_bytes_text(has, there));
    }
    return LVN_OK;
}

/* Zeros in host memory, shaped as the loader's batches. */
static lvn_status make_batch(const lvn_dataset *dataset, int64_t n_samples, lvn_batch *b,
                             int64_t *sample)
{
    lvn_field field[LVN_MAX_FIELDS];
    int n;
    LVN_TRY(lvni_data_dataset_fields(dataset, field, &n));
    LVN_TRY(check_batch(field, n, n_samples));
    *b = (lvn_batch){.size = n_samples, .n_fields = n_samples > 0 ? n : 0, .sample = sample};
    for (int i = 0; i < b->n_fields; i++) {
        int64_t shape[LVN_MAX_NDIM] = {n_samples};
        memcpy(shape + 1, field[i].shape, (size_t)field[i].ndim * sizeof *shape);
        b->field[i] = lvn_tensor_create(field[i].dtype, field[i].ndim + 1, shape);
        if (b->field[i] == NULL) {
            return lvn_last_error()->code;
        }
    }
    b->image = b->field[0];
    b->label = b->field[1];
    return LVN_OK;
}

static lvn_status make_batches(const lvni_trainer_options *o, bool training,
                               const lvni_trainer_samples *z, lvni_data_loader_batch *b,
                               int64_t *sample)
{
    *b = (lvni_data_loader_batch){.planned = z->n};
    LVN_TRY(make_batch(training ? o->train : o->val, z->n, &b->batch, sample));
    if (!training) {
        return LVN_OK;
    }
    b->batch.streams = &b->streams;
    for (int i = 0; i < o->plan.n_streams; i++) {
        b->streams.name[i] = o->stream[i].name;
        b->streams.n = i + 1;
        LVN_TRY(make_batch(o->stream[i].dataset, z->stream[i], &b->streams.batch[i], sample));
    }
    return LVN_OK;
}

void lvni_trainer_zeros_free(lvni_trainer_zeros *z)
{
    lvni_trainer_device_batch_free(&z->batch);
    lvni_core_free(z->sample);
}

static int64_t most_samples(const lvni_trainer_samples *z)
{
    int64_t n = z->n;
    for (int i = 0; i < LVN_MAX_STREAMS; i++) {
        n = z->stream[i] > n ? z->stream[i] : n;
    }
    return n;
}

lvn_status lvni_trainer_zeros_make(const lvni_trainer_options *o, bool training,
                                   const lvni_trainer_samples *z, lvni_trainer_zeros *out)
{
    *out = (lvni_trainer_zeros){0};
    out->sample = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)most_samples(z), sizeof *out->sample);
    return out->sample == NULL ? LVN_ERR_MEMORY
                               : make_batches(o, training, z, &out->batch, out->sample);
}

lvn_status lvni_trainer_zeros_create(const lvni_trainer_options *o, lvni_trainer_zeros *out)
{
    lvni_trainer_samples z = {.n = lvni_plan_largest_micro_batch(&o->plan)};
    for (int i = 0; i < o->plan.n_streams; i++) {
        z.stream[i] = lvni_plan_stream_largest(&o->plan, i);
    }
    return lvni_trainer_zeros_make(o, true, &z, out);
}
