/* The tape itself, for this folder alone. */
#ifndef LEVIN_AUTOGRAD_TAPE_IMPL_H
#define LEVIN_AUTOGRAD_TAPE_IMPL_H

#include "autograd/tape.h"

enum { LVNI_SCOPES = 64 };

typedef struct lvni_autograd_scope {
    int64_t first;     /* index in tensors[] of the scope's first tensor */
    lvn_status failed; /* of the first op that failed, LVN_OK before */
    uint64_t serial;   /* of the thread's error record when the scope was opened */
} lvni_autograd_scope;

/* A walk of lvn_grad: gradients of chosen tensors, which may be anywhere on the tape. */
typedef struct lvni_autograd_walk {
    lvn_tensor *const *targets;
    lvn_tensor **grads; /* gathered so far (held) */
    int n;
    bool create_graph;
} lvni_autograd_walk;

struct lvni_autograd_tape {
    lvni_autograd_node *first, *last; /* oldest and newest node */
    bool walking;             /* in lvn_backward or lvn_grad: rules may not start another walk */
    lvni_autograd_walk *walk; /* of the lvn_grad running, NULL in lvn_backward */
    bool paused;              /* lvn_set_grad_enabled(false) */
    const char *unit;         /* path of the module to recompute that runs (recompute.h); or NULL */
    bool again;               /* it runs in the backward pass */
    int depth;                /* open scopes; scope[0] is the implicit one */
    lvni_autograd_scope scope[LVNI_SCOPES + 1];
    lvn_tensor **tensors; /* of all open scopes, oldest first; NULL where kept */
    int64_t n_tensors, capacity;
    lvn_error error;                     /* of the first failure */
    struct lvni_autograd_stages *stages; /* of a model in stages (placing.h); NULL: it is whole */
};

/* The thread's tape, made at first use; NULL with an error when memory is out. */
struct lvni_autograd_tape *lvni_autograd_tape_get(void);
void lvni_autograd_tape_drop_nodes(struct lvni_autograd_tape *tape);
/* Those that are newer than `before`; NULL: all. */
void lvni_autograd_tape_drop_after(struct lvni_autograd_tape *tape, lvni_autograd_node *before);
/* A node of `bytes`, of which lvni_autograd_node is the first part, whatever the inputs want. */
lvni_autograd_node *lvni_autograd_tape_add(const char *name, lvni_autograd_backward_rule backward,
                                           lvn_tensor *out, lvn_tensor *const *in, int n_in,
                                           size_t bytes);
/* All nodes, newest first, from gradients that are there already; none is reported as final. */
lvn_status lvni_autograd_tape_walk(struct lvni_autograd_tape *tape);
/* LVN_ERR_INVALID when y has no node and is not a leaf that requires a gradient: what happened to
 * it, and what to do. call: "lvn_backward". */
lvn_status lvni_autograd_tape_check_past(const lvn_tensor *y, const char *call);
/* *sum += t, into a new tensor, since either side may be shared; recorded under create_graph. Moves
 * t. */
lvn_status lvni_autograd_accumulate(lvn_tensor **sum, lvn_tensor *t);
/* A tensor of the type and shape of y (one element) that holds `seed`; owned by the caller. */
lvn_tensor *lvni_autograd_seed_gradient(const lvn_tensor *y, double seed);
/* A leaf's gradient in an lvn_grad: kept when the leaf is a target. Moves t. */
lvn_status lvni_autograd_walk_give_leaf(lvni_autograd_walk *walk, lvn_tensor *leaf, lvn_tensor *t);

#endif
