/* The primitives of one context: found by op, shape and team, made at first use. Used by onednn_conv.c and onednn_matmul.c.
 * A table per context needs no lock and gives each lane memories of its own; what two lanes could share (generated code)
 * oneDNN shares itself, in its cache of 1024 primitives. */
#ifndef LEVIN_KERNELS_CPU_ONEDNN_TABLE_H
#define LEVIN_KERNELS_CPU_ONEDNN_TABLE_H

#include "kernels/cpu/onednn_api.h"

/* Every byte counts as key: start from {0}. */
typedef struct lvni_dnn_key {
    int64_t op;   /* lvni_dnn_op */
    int64_t team; /* OpenMP setting at creation and execution */
    int64_t bias; /* 0 or 1 */
    union {
        lvni_dnn_conv_shape conv;
        lvni_dnn_matmul_shape matmul;
    } shape;
} lvni_dnn_key;

/* The primitive and the context's stream. The caller has entered key->team (omp_team.h). */
lvn_status lvni_dnn_lookup(const lvni_dnn_key *key, lvni_dnn_prim **prim, dnnl_stream_t *stream);

#endif
