/* What the ranks of a prediction exchange after a wave: the rows of its chunks, whether there are
 * more, how many samples could not be read, and whether one was asked to stop. Chunk i of
 * all ranks comes before chunk i + 1 of any, which is the order of the data where ranks have chunks
 * in turn. For this folder: evaluate.c. */
#ifndef LEVIN_TRAINER_ROW_MESSAGE_H
#define LEVIN_TRAINER_ROW_MESSAGE_H

#include "trainer/trainer.h"

typedef struct lvni_trainer_rows {
    lvni_dist_comm *comm;
    const lvni_data_unreadable *unreadable; /* of the loader of this rank; NULL: none */
    unsigned char *data;                    /* the message of this rank */
    size_t size, capacity;
    size_t *bytes;            /* (world) */
    const unsigned char **at; /* (world): what is read next of each rank */
} lvni_trainer_rows;

lvn_status lvni_trainer_rows_create(lvni_dist_comm *comm, const lvni_data_unreadable *unreadable,
                                    lvni_trainer_rows *out);
void lvni_trainer_rows_free(lvni_trainer_rows *rows);
/* A chunk of n samples with k values each; n may be 0, and the pointers NULL then. */
lvn_status lvni_trainer_rows_add(lvni_trainer_rows *rows, int64_t n, int64_t k,
                                 const int64_t *sample, const float *value);
/* A collective: gives what all have added to rank 0's `row` in the order of the chunks, and forgets
 * it. *more: whether this rank has more chunks, and then whether any has; false when all together
 * have noted too many unreadable samples. LVN_ERR_CANCELLED on all ranks when one was sent a
 * signal. */
lvn_status lvni_trainer_rows_exchange(lvni_trainer_rows *rows, bool *more,
                                      lvni_trainer_predict_row row, void *user);

#endif
