/* The step of a device captured and replayed (levin/backend.h: capture_begin): after a few steps
 * one is captured while modules submit it, and later ones are submitted with one call, without
 * calling modules. Their batches are copied to where the captured step reads them, and what changes
 * from step to step is in the step block. Bits are those of steps that are submitted call by call.
 *
 * A step is replayed when it has the batches of the captured one, by number and shape; others are
 * submitted. Nothing is captured where a step does what a replay would not do again: copies from
 * the host, waits for the device, batches and moving numbers that modules read on the host. Used by
 * the engine. */
#ifndef LEVIN_TRAINER_GRAPH_H
#define LEVIN_TRAINER_GRAPH_H

#include "data/loader.h"

struct lvni_trainer_engine;
struct lvni_trainer_engine_options;
struct lvni_trainer_step_record;

typedef enum lvni_trainer_graph_mode {
    LVNI_GRAPH_OFF,
    LVNI_GRAPH_AUTO, /* where it works */
    LVNI_GRAPH_ON    /* LVN_ERR_USAGE where it does not */
} lvni_trainer_graph_mode;

typedef struct lvni_trainer_graph lvni_trainer_graph;

/* Of "off", "auto", "on". */
lvni_trainer_graph_mode lvni_trainer_graph_mode_of(const char *name);
/* LVN_ERR_USAGE: LVNI_GRAPH_ON where it is known before that it does not work. */
lvn_status lvni_trainer_graph_check(const struct lvni_trainer_engine_options *options);
/* When everything else of the engine is there. *out NULL: steps are not captured. */
lvn_status lvni_trainer_graph_create(struct lvni_trainer_engine *engine, lvni_trainer_graph **out);
void lvni_trainer_graph_destroy(lvni_trainer_graph *graph); /* waits; NULL is fine */

/* Between steps: the engine's state is another one. NULL is fine. */
void lvni_trainer_graph_forget(lvni_trainer_graph *graph);

/* In place of lvni_trainer_submit_step. */
lvn_status lvni_trainer_graph_submit(struct lvni_trainer_engine *engine,
                                     struct lvni_trainer_step_record *record);
int64_t lvni_trainer_graph_replays(const lvni_trainer_graph *graph); /* steps so far; NULL: 0 */
/* The batches of the step that is being submitted are here, and not in the feed. NULL: no. */
bool lvni_trainer_graph_loaded(const lvni_trainer_graph *graph);
/* That of the rank's micro-batch i: the loader's, and on the device. */
void lvni_trainer_graph_batch(const lvni_trainer_graph *graph, int64_t i,
                              const lvni_data_loader_batch **batch,
                              const lvni_data_loader_batch **on_device);

#endif
