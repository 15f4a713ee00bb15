/* The tape itself, for this folder alone. */
#ifndef LEVIN_AUTOGRAD_TAPE_IMPL_H
#define LEVIN_AUTOGRAD_TAPE_IMPL_H

#include "autograd/tape.h"

enum { LVNI_SCOPES = 64 };

typedef struct lvni_scope {
    int64_t first;     /* index in tensors[] of the scope's first tensor */
    lvn_status failed; /* of the first op that failed, LVN_OK before */
    uint64_t serial;   /* of the thread's error record when the scope was opened */
} lvni_scope;

struct lvni_tape {
    lvni_node *last; /* newest node */
    bool paused;     /* lvn_set_grad_enabled(false) */
    int depth;       /* open scopes; scope[0] is the implicit one */
    lvni_scope scope[LVNI_SCOPES + 1];
    lvn_tensor **tensors; /* of all open scopes, oldest first; NULL where kept */
    int64_t n_tensors, capacity;
    lvn_error error; /* of the first failure */
};

/* The thread's tape, made at first use; NULL with an error when memory is out. */
struct lvni_tape *lvni_tape_get(void);
void lvni_tape_drop_nodes(struct lvni_tape *tape);

#endif
