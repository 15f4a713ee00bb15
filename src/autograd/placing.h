/* A model in stages (strategy=balance): every rank runs the same forward pass, and computes what is
 * of its stage; the rest runs on a device without memory, for its shapes. A tensor that a later
 * stage needs goes there from the latest stage that has it, and its gradient comes back the same
 * way, so that all gradients are added in the order of one device.
 *
 * An op inside a unit is of the unit's stage, another one of the latest stage that has one of its
 * inputs. What depends on parameters, constants and the batch alone is computed by all. All ranks
 * see this alike, so no rank has to be asked what it needs.
 *
 * Called by ops (through tape.c and precision.c), by lvn_forward, and by trainer/stages.c, which
 * gives the messages. One for each tape that is under way. */
#ifndef LEVIN_AUTOGRAD_PLACING_H
#define LEVIN_AUTOGRAD_PLACING_H

#include "autograd/tape.h"

typedef struct lvni_autograd_stages lvni_autograd_stages;

/* edge: counts what goes from stage to stage in a forward pass; a gradient has its tensor's. */
typedef struct lvni_autograd_passing {
    int stage, stages; /* this rank's; stages 1: units are reported, and nothing is passed */
    struct lvni_tensor_device *away; /* without memory, for other stages */
    /* The stage of the module of that path, which begins with x; -1: it is not a unit. Not called
     * inside of units. */
    int (*enter)(void *user, const char *path, const lvn_tensor *x);
    void (*leave)(void *user, const char *path); /* NULL: nothing */
    /* wants: the tensor gets a gradient. t NULL, of a gradient: there is none. */
    lvn_status (*send)(void *user, int to, int edge, bool backward, const lvn_tensor *t,
                       bool wants);
    /* *out: owned by the caller, where the calling context computes; NULL: there is none. */
    lvn_status (*receive)(void *user, int from, int edge, bool backward,
                          const lvni_tensor_desc *desc, lvn_tensor **out, bool *wants);
    void *user;
} lvni_autograd_passing;

/* From here on the calling context's forward pass is one of stages. passing: borrowed. */
lvn_status lvni_autograd_stages_begin(const lvni_autograd_passing *passing, int n_parameters);
/* The forward pass has ended: what was received and is not on the tape is given up. */
void lvni_autograd_stages_forward_done(void);
void lvni_autograd_stages_end(void); /* after the backward pass, or a failure */

/* Around a module. enter returns what leave needs. */
int lvni_autograd_stages_enter(const char *path, const lvn_tensor *x);
void lvni_autograd_stages_leave(int entered, const char *path);

/* ---- for ops ---- */

/* Before an op runs: where it runs, and its inputs there. False: the scope has failed. */
bool lvni_autograd_stages_op(const char *op, lvn_tensor **in, int n);
/* What was received for t, or t. */
lvn_tensor *lvni_autograd_stages_here(lvn_tensor *t);
/* The scope got what an op made. False with an error: it ran with a tensor that is not here. */
bool lvni_autograd_stages_made(const lvn_tensor *t);
/* The newest op is of another stage: nothing is recorded. */
bool lvni_autograd_stages_away(void);
/* For what is read on the host: *t on the last stage. False: this rank is another, or the scope has
 * failed. Without stages true. */
bool lvni_autograd_stages_at_last(const char *what, lvn_tensor **t);
/* Of another stage, and not received. */
bool lvni_autograd_stages_absent(const lvn_tensor *t);
/* Is the calling context's pass one of several stages? */
bool lvni_autograd_stages_several(void);
/* LVN_ERR_UNSUPPORTED: it is, and `call` is for a whole model. */
lvn_status lvni_autograd_stages_check_whole(const char *call);

#endif
