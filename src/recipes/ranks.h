/* The ranks of a run as one process sees them: all of them as its threads (strategy dp, ddp2), or itself as one of several processes (ddp).
 * Opened by a command before it looks at its data, used by fit.c. */
#ifndef LEVIN_RECIPES_RANKS_H
#define LEVIN_RECIPES_RANKS_H

#include "core/config.h"
#include "dist/comm.h"

/* One rank of this process. */
typedef struct lvni_rank {
    int rank, world;
    lvni_comm *comm; /* NULL: world is 1 */
    int device;      /* number of the accelerator's device; CPU: 0 */
    int cores;       /* that this rank may use */
    int cores_all;   /* of all ranks */
} lvni_rank;

typedef struct lvni_ranks {
    lvni_rank *rank; /* of this process, ascending */
    int n;
    int world;
    const char *how; /* "threads", "processes"; NULL: one rank */
} lvni_ranks;

/* From devices=, strategy=, accelerator=, which become what they stand for. LVN_ERR_USAGE, LVN_ERR_RESOURCE. *out is to be closed. */
lvn_status lvni_ranks_open(lvni_config *config, lvni_ranks *out);
void lvni_ranks_close(lvni_ranks *ranks);
/* The same for `levin plan`: rank 0 alone, without anybody to talk to. */
lvn_status lvni_ranks_foresee(lvni_config *config, lvni_rank *out);

#endif
