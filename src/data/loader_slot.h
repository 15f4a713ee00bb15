/* A slot of the loader: the memory of one batch, allocated once and filled again and again. For
 * loader.c only. */
#ifndef LEVIN_DATA_LOADER_SLOT_H
#define LEVIN_DATA_LOADER_SLOT_H

#include "data/loader.h"

/* The fields of a dataset and their sizes. */
typedef struct lvni_data_slot_layout {
    int64_t capacity; /* samples */
    int n_fields;
    lvn_field field[LVN_MAX_FIELDS];
    size_t bytes[LVN_MAX_FIELDS]; /* of one sample */
    size_t slot_bytes;            /* of all fields of a slot */
} lvni_data_slot_layout;

typedef struct lvni_data_slot {
    lvni_data_loader_batch out; /* first member: a batch given back is its slot */
    int64_t sequence;           /* place in the order of batches */
    int64_t claimed, done;      /* samples taken by a thread; finished */
    bool held;                  /* by a consumer */
    int64_t *position;          /* capacity; in the dataset */
    uint32_t *repeat; /* capacity; draws of the same sample before this one, in the epoch */
    int64_t *sample;  /* capacity; in the whole list, filled when decoded */
    bool *unreadable; /* capacity */
    char *data[LVN_MAX_FIELDS];
} lvni_data_slot;

lvn_status lvni_data_slot_layout_make(const lvn_dataset *dataset, int64_t capacity,
                                      lvni_data_slot_layout *out);
lvn_status lvni_data_slot_create(lvni_data_slot *slot,
                                 /* a failed one is safe to destroy */
                                 const lvni_data_slot_layout *layout);
void lvni_data_slot_destroy(lvni_data_slot *slot);
/* All samples are done: close the gaps of unreadable ones, keeping the order, and set sizes and
 * versions of the tensors. */
void lvni_data_slot_finish(lvni_data_slot *slot, const lvni_data_slot_layout *layout);

#endif
