/* What a rank sends to all others beside the buckets of a step: the metrics of its micro-batches,
 * and whether it was asked to stop. Every rank reads every message, in rank order, which is
 * micro-batch order: sums of metrics and weights have the same bits everywhere. For this folder. */
#ifndef LEVIN_TRAINER_STEP_MESSAGE_H
#define LEVIN_TRAINER_STEP_MESSAGE_H

#include "nn/step_metrics.h"

typedef struct lvni_trainer_message {
    unsigned char *data;
    size_t size, capacity;
} lvni_trainer_message;

/* About one rank, at its head. */
typedef struct lvni_trainer_message_head {
    int64_t signal;   /* that this rank was sent (trainer.h), 0: none */
    int64_t save;     /* 1: this rank was asked to save */
    int64_t validate; /* 1: rank 0's clock asks for a validation after the step */
    int64_t n_parts;  /* micro-batches or chunks that follow */
    int64_t n_marks; /* bytes behind them: of each parameter, whether one of the micro-batches had a
                        gradient of it */
    int64_t n_unreadable; /* samples that this rank has noted, and does not send with it */
} lvni_trainer_message_head;

/* One micro-batch's or chunk's. */
typedef struct lvni_trainer_message_part {
    double weight;              /* NAN: a device has it (deferred_ranks.c) */
    int64_t samples, n_metrics; /* metrics follow */
} lvni_trainer_message_part;

/* Room for `bytes` more behind the `size` bytes of *data, which may move; it holds *capacity bytes
 * and stays valid on LVN_ERR_MEMORY. */
lvn_status lvni_trainer_message_room(unsigned char **data, size_t size, size_t *capacity,
                                     size_t bytes);

/* The most bytes of a message with n parts. */
size_t lvni_trainer_message_limit(int64_t n_parts);
/* Room for n parts; head zero. LVN_ERR_MEMORY. */
lvn_status lvni_trainer_message_create(lvni_trainer_message *message, int64_t n_parts);
void lvni_trainer_message_free(lvni_trainer_message *message);
lvni_trainer_message_head *lvni_trainer_message_begin(lvni_trainer_message *message);
/* Grows when it must (evaluation, whose number of chunks is not known before). */
lvn_status lvni_trainer_message_add(lvni_trainer_message *message, const lvni_nn_step *metrics,
                                    int64_t samples);

/* A part without metrics. */
lvn_status lvni_trainer_message_add_weight(lvni_trainer_message *message, double weight,
                                           int64_t samples);

/* After the last part: n bytes, 0 or 1, within the room that the message was made with (n_marks of
 * lvni_trainer_message_limit). */
lvn_status lvni_trainer_message_add_marks(lvni_trainer_message *message, const bool *marks,
                                          int64_t n);
/* marks[i] |= those of the message whose head was read; those of another number of parameters are
 * LVN_ERR_CORRUPT. */
lvn_status lvni_trainer_message_read_marks(const void *data, size_t size,
                                           const lvni_trainer_message_head *head, bool *marks,
                                           int64_t n);

/* Calls part(user, part, metrics) for each, until one fails; `head` may be NULL. LVN_ERR_CORRUPT
 * when the bytes are not a message. */
typedef lvn_status (*lvni_trainer_message_part_fn)(void *user,
                                                   const lvni_trainer_message_part *part,
                                                   const lvni_nn_step *metrics);
lvn_status lvni_trainer_message_read(const void *data, size_t size, lvni_trainer_message_head *head,
                                     lvni_trainer_message_part_fn part, void *user);

#endif
