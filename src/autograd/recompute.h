/* A unit that is recomputed (recompute=): a call of lvn_forward that keeps its inputs alone. Its
 * nodes leave the tape when it has run, and one node takes their place, whose rule runs the unit
 * again, with the random numbers of the first time, and walks what that records. Gradients go on to
 * the nodes outside as they did without it, so all bits stay.
 *
 * Called by lvn_forward and by the walks; modules to recompute are marked in nn/. */
#ifndef LEVIN_AUTOGRAD_RECOMPUTE_H
#define LEVIN_AUTOGRAD_RECOMPUTE_H

#include "autograd/tape.h"

/* Of a node's `wanted`: a parameter inside of the unit. */
#define LVNI_IN_UNIT (1u << 31)

struct lvn_module; /* levin/nn.h */
typedef struct lvni_autograd_call {
    lvn_tensor *(*run)(const struct lvni_autograd_call *call);
    const struct lvn_module *module;
    const char *path, *class_name; /* the module's */
    /* NULL: the class's forward_residual */
    lvn_tensor *(*function)(const struct lvn_module *module, lvn_tensor *x);
    lvn_tensor *x, *residual; /* residual NULL: none */
} lvni_autograd_call;

/* Around the first run of a unit; the end comes when the scope of the unit is closed. */
typedef struct lvni_autograd_first_run {
    bool on;                    /* it is one: the thread records, and no unit is around it */
    lvni_autograd_node *before; /* newest node in front of it */
    lvni_tensor_position at;
} lvni_autograd_first_run;
void lvni_autograd_recompute_begin(lvni_autograd_first_run *run, const char *path);
/* y: what it gave. False: the scope has failed. */
bool lvni_autograd_recompute_end(const lvni_autograd_first_run *run, const lvni_autograd_call *call,
                                 lvn_tensor *y);

/* A unit runs in the backward pass: what it reports has been reported. */
bool lvni_autograd_recompute_again(void);
/* LVN_ERR_UNSUPPORTED: `call`, a walk, stands in a unit. */
lvn_status lvni_autograd_recompute_check(const char *call);

/* The leaves below a node, some NULL; of a unit those inside of it. */
lvn_tensor *const *lvni_autograd_recompute_leaves(const lvni_autograd_node *node, int *n);
/* Before a node is freed: frees what a unit has beside it. Returns the node's bytes. */
size_t lvni_autograd_recompute_end_of(lvni_autograd_node *node);

#endif
