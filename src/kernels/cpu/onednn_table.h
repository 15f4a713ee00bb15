/* The primitives of one context: found by op, shape and team, made at first use. Used by
 * onednn_conv.c and onednn_matmul.c. A table per context needs no lock and gives each lane memories
 * of its own; what two lanes could share (generated code) oneDNN shares itself, in its cache of
 * 1024 primitives. */
#ifndef LEVIN_KERNELS_CPU_ONEDNN_TABLE_H
#define LEVIN_KERNELS_CPU_ONEDNN_TABLE_H

#include "kernels/cpu/onednn_api.h"

/* Every byte counts as key: start from memset 0. */
typedef struct lvni_cpu_dnn_key {
    lvni_cpu_dnn_work work;
    int64_t team; /* OpenMP threads of the lane */
    /* wgrad_threads where results depend on it; the reducing class has team == fixed_team */
    int64_t fixed_team;
} lvni_cpu_dnn_key;

/* A primitive, the stream of the context, and the team to run with (lvni_cpu_omp_enter): key->team
 * for implementations known to give the same bits for every team, else key->fixed_team. */
typedef struct lvni_cpu_dnn_found {
    lvni_cpu_dnn_prim *prim;
    dnnl_stream_t stream;
    int team;
    /* oneDNN's implementation is known to be wrong, or thousands of times too slow: there is no
     * prim, go another way */
    bool refused;
} lvni_cpu_dnn_found;

lvn_status lvni_cpu_dnn_lookup(const lvni_cpu_dnn_key *key, lvni_cpu_dnn_found *found);

#endif
