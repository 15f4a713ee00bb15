/* The inside of captured steps, for graph.c and graph_batches.c. */
#ifndef LEVIN_TRAINER_GRAPH_IMPL_H
#define LEVIN_TRAINER_GRAPH_IMPL_H

#include "tensor/device.h"
#include "trainer/engine.h"

/* A micro-batch of the step that is being submitted. */
typedef struct lvni_trainer_graph_place {
    const lvni_data_loader_batch *held; /* of the loader, as long as the feed does not need it */
    lvni_data_loader_batch fixed;       /* tensors that the captured step reads */
    lvni_data_loader_batch on_device;   /* the step's: those, or tensors of its own */
    bool made, own;
} lvni_trainer_graph_place;

struct lvni_trainer_graph {
    lvni_trainer_graph_mode mode;
    lvni_tensor_device *device;
    lvni_trainer_graph_place *place; /* (n) */
    int64_t n;
    int watched; /* steps in a row */
    int others;  /* steps in a row with other batches */
    int64_t replays;
    int64_t until;     /* a later step trains other parameters */
    bool loaded;       /* batches are in `place` */
    bool captured;     /* the device has a step */
    bool given_up;     /* no step is captured any more */
    bool reported;     /* that one was */
    bool stale;        /* `fixed` goes when the step is submitted */
    char reason[256];  /* why not */
    lvn_status status; /* of cuda_graph=on then */

    /* what the captured step left on the host */
    lvni_trainer_step_record record;
    lvni_nn_step *part; /* as in deferred.h */
    lvni_nn_terms *terms;
    bool *idle;
    bool counted[LVN_STEP_PHASES], weighs;
};

/* graph.c: no step is captured from here on; the reason is a part of a sentence. */
void lvni_trainer_graph_give_up(lvni_trainer_engine *engine, const char *reason);

/* graph_batches.c */
/* All batches of the step. *same: where the captured step reads them, or is going to. */
lvn_status lvni_trainer_graph_load(lvni_trainer_engine *engine, bool *same);
/* The step is submitted, or has failed: its batches go. */
void lvni_trainer_graph_unload(lvni_trainer_graph *graph);

#endif
