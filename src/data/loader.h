/* The loader: a pool of threads that decodes samples ahead of the trainer and hands over batches,
 * one per (step, micro-batch), strictly in order. What a batch holds follows from plan, seed, epoch
 * and step alone, never from the threads. Called by the trainer's lanes and by evaluation. Errors
 * of samples arrive where their batch would have. */
#ifndef LEVIN_DATA_LOADER_H
#define LEVIN_DATA_LOADER_H

#include "data/streams.h"
#include "data/unreadable.h"
#include "plan/plan.h"

#include <levin/data.h>

typedef struct lvni_data_loader_options {
    const lvn_dataset *dataset; /* borrowed for the loader's life */
    const lvni_plan *plan;      /* copied */
    /* false: one pass in index order, in chunks of plan->eval_batch_size */
    bool training;
    int64_t max_chunks; /* evaluation: of the first ones alone, of all ranks; 0: all */
    /* evaluation: ranks get chunks in turn; false: a contiguous run each */
    bool in_turn;
    uint64_t seed;
    /* training: samples are drawn with replacement, classes alike (sampler.h); false: each once */
    bool balanced;
    lvn_order order; /* training, not balanced */
    /* training: the plan's streams, in its order; samples, orders and unreadable ones of each are
     * its own */
    const lvn_stream *stream;
    /* training: all batches of this rank's micro-batches in a step may be held at once, and one
     * more is made */
    bool whole_steps;
    int workers; /* threads; 0: the thread that asks for a batch decodes it */
    int ahead;   /* steps (evaluation: rounds of lanes) decoded ahead; 0: 2 */
    /* of all batches held; 0: 1 GiB. Never fewer than one batch per lane (whole_steps:
     * micro-batch), those that are copied, and one more */
    size_t max_bytes;
    /* Gets the samples that cannot be read, with the batch that lacks them, in order; borrowed.
     * Whether the run goes on is not decided here: which of them are decoded, and when, depends on
     * threads and ranks. NULL: the first one in order is the error of its batch. */
    lvni_data_unreadable *unreadable;
    int64_t step;          /* training: steps of the run before the first one */
    uint32_t epoch;        /* training: where to start */
    int64_t step_in_epoch; /* 0 .. steps_per_epoch */
    uint32_t max_epochs;   /* training ends before epoch number max_epochs; 0: never */
} lvni_data_loader_options;

/* Borrowed from the loader until lvni_data_loader_release. */
typedef struct lvni_data_loader_batch {
    lvn_batch batch;           /* size 0 when the micro-batch has no (readable) samples */
    lvn_batch_streams streams; /* batch.streams, where there are any */
    uint32_t epoch;
    int64_t step_in_epoch; /* evaluation: 0 */
    int64_t micro_batch;   /* evaluation: number of the chunk */
    /* samples the plan gave; the unreadable ones are missing from batch.size */
    int64_t planned;
    int64_t step_first; /* training: samples that the plan gave the step in front of these */
} lvni_data_loader_batch;

typedef struct lvni_data_loader_stats {
    uint64_t decoded; /* samples handed over */
    /* time spent in lvni_data_loader_next by all callers: waiting, or decoding when workers=0 */
    uint64_t wait_ns;
    int slots;         /* batches that fit into memory at once */
    size_t slot_bytes; /* of one of them */
} lvni_data_loader_stats;

typedef struct lvni_data_loader lvni_data_loader;

/* On a device: as many batches may be held while they are copied, beside those of any loader; in
 * evaluation one per lane. */
int lvni_data_loader_copied(const lvni_plan *plan);

/* What lvni_data_loader_create would allocate, except what the dataset itself takes. */
lvn_status lvni_data_loader_predict(const lvni_data_loader_options *options, size_t *bytes);
/* Allocates everything and starts the threads; nothing is allocated afterwards. Batches lie in
 * memory that the device of the calling thread's context copies from (lvni_tensor_host_take). */
lvn_status lvni_data_loader_create(const lvni_data_loader_options *options, lvni_data_loader **out);
/* At any time, with batches held or threads running; waits for the samples being decoded. NULL is
 * fine. */
void lvni_data_loader_destroy(lvni_data_loader *loader);

/* The next batch: micro-batches of this rank in ascending order, step after step, epoch after
 * epoch; evaluation: chunks. Blocks. *out = NULL with LVN_OK: there is no more. Batches may be
 * released in any order; at most stats.slots can be held. Thread-safe: concurrent callers get
 * consecutive batches. After an error every call gives that error. */
lvn_status lvni_data_loader_next(lvni_data_loader *loader, const lvni_data_loader_batch **out);
/* The batch that lvni_data_loader_next would give without blocking, complete. NULL, and nothing has
 * changed: it is not decoded yet, lacks unreadable samples or failed, or there is none. */
const lvni_data_loader_batch *lvni_data_loader_try_next(lvni_data_loader *loader);
/* What the k-th batch from now on will have if no sample of it is unreadable, before threads have
 * made it; 0: that of lvni_data_loader_next. The fields are the loader's. */
typedef struct lvni_data_loader_shape {
    int n_parts; /* the batch itself, then its streams */
    struct {
        int64_t samples;
        int n_fields;
        const lvn_field *field;
    } part[1 + LVN_MAX_STREAMS];
} lvni_data_loader_shape;
/* false: there is no such batch, or no thread that makes batches ahead. Thread-safe. */
bool lvni_data_loader_upcoming(lvni_data_loader *loader, int k, lvni_data_loader_shape *out);
/* thread-safe; NULL is fine */
void lvni_data_loader_release(lvni_data_loader *loader, const lvni_data_loader_batch *batch);

/* Evaluation again from the first chunk, after the end was reached and every batch released (else
 * LVN_ERR_INVALID). */
lvn_status lvni_data_loader_rewind(lvni_data_loader *loader);

lvni_data_loader_stats lvni_data_loader_get_stats(lvni_data_loader *loader);
/* That of its options. */
lvni_data_unreadable *lvni_data_loader_unreadable(const lvni_data_loader *loader);

#endif
