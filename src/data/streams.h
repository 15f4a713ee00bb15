/* The streams of a micro-batch, behind lvn_batch.streams. Filled by the loader and by the copies to
 * a device (trainer/micro_batch.c), read by lvn_batch_stream (nn/batch_stream.c). */
#ifndef LEVIN_DATA_STREAMS_H
#define LEVIN_DATA_STREAMS_H

#include <levin/data.h>

typedef struct lvn_batch_streams {
    int n;
    const char *name[LVN_MAX_STREAMS];
    lvn_batch batch[LVN_MAX_STREAMS]; /* size 0: no samples */
} lvn_batch_streams;

#endif
