/* The inside of the loader, shared by loader.c (what callers see), loader_source.c (which samples,
 * in which order) and loader_fill.c (slots, threads, decoding).
 *
 * One lock guards everything except the contents of slots: a slot's samples belong to the threads
 * that claimed them until they are done, then the slot belongs to the consumer until it is
 * released. No sample is decoded with the lock held. */
#ifndef LEVIN_DATA_LOADER_IMPL_H
#define LEVIN_DATA_LOADER_IMPL_H

#include "data/loader.h"
#include "data/sampler.h"
#include "tensor/device.h"

#include <pthread.h>

enum { LVNI_LOADER_SOURCES = 1 + LVN_MAX_STREAMS };

/* The fields of a dataset and their sizes. */
typedef struct lvni_data_slot_layout {
    int64_t capacity; /* samples */
    int n_fields;
    lvn_field field[LVN_MAX_FIELDS];
    size_t bytes[LVN_MAX_FIELDS]; /* of one sample */
    size_t slot_bytes;            /* of all fields of a slot */
    lvni_tensor_device *device;   /* that knows the memory; NULL: plain memory */
} lvni_data_slot_layout;

/* What the loader reads from: the set itself, then its streams. */
typedef struct lvni_data_source {
    const char *name; /* of a stream; NULL: the set itself */
    const lvn_dataset *dataset;
    int64_t length; /* LVN_ENDLESS: without */
    uint64_t seed;  /* of its order and its samples' keys */
    lvn_order order_kind;
    bool balanced;
    bool cycles; /* positions count on from pass to pass */
    lvni_data_slot_layout layout;

    uint32_t *order;              /* of order_epoch; NULL: in sequence, or `permuted` */
    bool permuted;                /* too many to shuffle: each position is computed */
    lvni_data_class_lists *lists; /* balanced; else NULL */
    /* drawn with replacement: length of order[p] in this epoch; then as many for the sampler to
     * count in; else NULL */
    uint32_t *repeat;
    uint32_t order_epoch;
    bool order_known;

    void **state; /* of each worker, n_states of them; NULL: the dataset has none */
    int n_states;
} lvni_data_source;

/* The samples of one source in a slot; arrays of its layout's capacity. */
typedef struct lvni_data_slot_part {
    int64_t planned;
    int64_t *position;      /* in the dataset */
    uint32_t *epoch;        /* pass of the source */
    uint32_t *repeat;       /* draws of the same sample before this one, in the epoch */
    int64_t *sample;        /* in the whole list, filled when decoded */
    lvn_status *unreadable; /* why not; LVN_OK: it could be read */
    char **why;             /* of these, until the batch is handed over: name, what is wrong */
    char *data[LVN_MAX_FIELDS];
} lvni_data_slot_part;

typedef struct lvni_data_slot {
    lvni_data_loader_batch out; /* first member: a batch given back is its slot */
    int64_t sequence;           /* place in the order of batches */
    int64_t planned;            /* of all parts */
    int64_t claimed, done;      /* samples taken by a thread; finished */
    bool held;                  /* by a consumer */
    lvni_data_slot_part part[LVNI_LOADER_SOURCES];
} lvni_data_slot;

struct lvni_data_loader {
    lvni_data_loader_options o; /* o.plan points to `plan` */
    lvni_plan plan;
    int n_sources;
    lvni_data_source source[LVNI_LOADER_SOURCES];
    size_t slot_bytes; /* of all sources */

    pthread_mutex_t lock;
    pthread_cond_t work;  /* workers: a slot became free, or the end */
    pthread_cond_t ready; /* consumers: a slot is full; workers=0: or free */
    pthread_mutex_t own;  /* workers=0: callers take turns with the state of a dataset */
    pthread_t *thread;
    int n_threads; /* started */
    int n_running; /* counted by themselves, for their names and states */
    bool stopping;

    /* Batches are numbered 0 .. total-1 in the order they are handed over; opened ones have a
     * slot. */
    int64_t total, opened, handed;
    /* training: micro-batches of this rank before batch 0 in its epoch; evaluation: chunk of batch
     * 0 */
    int64_t first;
    lvni_data_slot *slot; /* n_slots */
    int n_slots, n_free, n_held;
    int *free_slot;          /* n_free numbers of slots, a stack */
    int *queue;              /* slot of opened batch b at b % n_slots */
    lvni_data_slot *filling; /* the newest opened slot; NULL before the first */

    /* The first error in the order of samples, whatever the order of discovery. */
    bool failed;
    int64_t fail_sequence, fail_i;
    lvn_error error;

    uint64_t decoded, wait_ns;
};

/* ---- loader_source.c ---- */

/* What it is, from the options: nothing is allocated. */
void lvni_data_source_init(lvni_data_loader *l, int number);
/* The fields of a batch of it. */
lvn_status lvni_data_source_measure(lvni_data_loader *l, int number);
size_t lvni_data_source_bytes(const lvni_data_loader *l, int number); /* beside slots and states */
/* One that failed is safe to destroy. */
lvn_status lvni_data_source_create(lvni_data_loader *l, int number);
void lvni_data_source_destroy(lvni_data_source *source);
/* The samples that slot->sequence stands for, of all sources. */
void lvni_data_source_list(lvni_data_loader *l, lvni_data_slot *slot);
/* How many they are, of each source. Without a lock. */
void lvni_data_source_count(const lvni_data_loader *l, int64_t sequence,
                            int64_t samples[LVNI_LOADER_SOURCES]);
/* A sample's dataset, state and key. */
lvn_status lvni_data_source_get(lvni_data_loader *l, int number, int worker,
                                const lvn_sample_key *key, void *const field[]);

/* ---- loader_fill.c ---- */

lvn_status lvni_data_slot_layout_make(const lvn_dataset *dataset, int64_t capacity,
                                      lvni_data_slot_layout *out);
/* A slot that failed is safe to destroy. */
lvn_status lvni_data_slot_create(lvni_data_slot *slot, const lvni_data_loader *l);
void lvni_data_slot_destroy(lvni_data_slot *slot, const lvni_data_loader *l);
/* All samples are done: close the gaps of unreadable ones, keeping the order, and set sizes and
 * versions of the tensors. */
void lvni_data_slot_finish(lvni_data_slot *slot, const lvni_data_loader *l);

/* A sample claimed by a thread: the i-th of a slot, over all its parts. */
typedef struct lvni_data_loader_work {
    lvni_data_slot *slot;
    int64_t i;
} lvni_data_loader_work;

/* With the lock held: the next sample to decode, in order; false when there is none for now. */
bool lvni_data_loader_claim(lvni_data_loader *l, lvni_data_loader_work *work);
/* With the lock held, which is given up meanwhile: decode the sample, note what became of it. */
void lvni_data_loader_decode(lvni_data_loader *l, lvni_data_loader_work work, int worker);
/* The worker threads. */
lvn_status lvni_data_loader_start(lvni_data_loader *l);
void lvni_data_loader_stop(lvni_data_loader *l);

#endif
