/* A trainer of a host program (levin/trainer.h): the run of recipe.h on threads of its own, whose
 * ranks wait for calls of the program instead of training to the end.
 *
 *   public_trainer.c        create, destroy, and the calls as the program makes them
 *   public_trainer_ranks.c  what its ranks do in a call, and what they show the program */
#ifndef LEVIN_API_PUBLIC_TRAINER_H
#define LEVIN_API_PUBLIC_TRAINER_H

#include "core/training.h"
#include "nn/step_metrics.h"
#include "run/recipe.h"
#include "trainer/trainer.h"

#include <levin/trainer.h>
#include <pthread.h>

typedef enum lvni_api_host_call {
    LVNI_HOST_FIT,
    LVNI_HOST_STEP,
    LVNI_HOST_VALIDATE,
    LVNI_HOST_SAVE,
    LVNI_HOST_LOAD,
    LVNI_HOST_WRITE,
    LVNI_HOST_END
} lvni_api_host_call;

struct lvn_trainer {
    lvn_job job; /* options: a copy, owned */
    lvn_stream stream[LVN_MAX_STREAMS];
    char stream_name[LVN_MAX_STREAMS][24];
    int n_args;
    char **args; /* owned */
    lvn_trainer_options o;
    lvni_core_training training;
    pthread_t thread; /* of the first rank */
    pthread_mutex_t lock;
    pthread_cond_t changed;

    /* ---- under the lock ---- */
    int here, arrived; /* ranks of this process; here 0: not known yet */
    bool gone;         /* the thread has ended, with `status` */
    bool calling;      /* a call of the program is running */
    bool broken;       /* a step failed: its ranks may be apart */
    lvni_ckpt_position at;
    bool ends;
    uint64_t round; /* counted up for every call */
    int working;
    lvni_api_host_call call;
    const char *path;        /* of SAVE and LOAD; the name of WRITE */
    const lvn_tensor *value; /* of WRITE, on the host */
    lvn_status status;       /* of the call: of the rank that failed first */
    lvn_error error;
    /* the first rank waits for this callback of the program; NULL: for none */
    lvn_trainer_callback event;

    /* ---- of the first rank while a call runs, of the program else, and in callbacks ---- */
    lvni_trainer *inner;
    lvn_trainer_report report;
    lvn_metric metric[LVNI_METRICS];
    char name[LVNI_METRICS][LVNI_METRIC_NAME];
};

/* lvni_run_job.drive: `host` is the lvn_trainer. Answers calls until LVNI_HOST_END. */
lvn_status lvni_api_host_serve(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                               lvni_trainer *trainer);
/* For lvni_run_job.hooks: those that the program has callbacks for. */
lvni_trainer_hooks lvni_api_host_hooks(lvn_trainer *trainer);

#endif
