/* The parser of pickles, for torch_pickle.c and torch_calls.c. */
#ifndef LEVIN_CKPT_TORCH_PICKLE_IMPL_H
#define LEVIN_CKPT_TORCH_PICKLE_IMPL_H

#include "ckpt/torch_impl.h"

typedef struct lvni_ckpt_pickle_parser {
    const char *path;
    lvni_ckpt_pickle *p;
    const unsigned char *begin, *at, *end;
    uint32_t *stack;
    size_t depth, stack_room;
    uint32_t *memo; /* 0: none */
    size_t n_memo, memo_room;
    uint32_t n_memoized; /* for MEMOIZE, which numbers them itself */
    bool stopped;
} lvni_ckpt_pickle_parser;

/* Nodes that need no others of their kind: None, False and what is of no concern; a mark; True. */
enum { LVNI_PICKLE_AT_OTHER = 0, LVNI_PICKLE_AT_MARK = 1, LVNI_PICKLE_AT_TRUE = 2 };

lvn_status lvni_ckpt_pickle_damaged(const lvni_ckpt_pickle_parser *v, const char *what);
lvn_status lvni_ckpt_pickle_push(lvni_ckpt_pickle_parser *v, uint32_t index);
lvn_status lvni_ckpt_pickle_push_node(lvni_ckpt_pickle_parser *v, lvni_ckpt_pickle_node n);
lvn_status lvni_ckpt_pickle_pop(lvni_ckpt_pickle_parser *v, uint32_t *out);
/* The first n items of a list, at most. */
uint32_t lvni_ckpt_pickle_list_items(const lvni_ckpt_pickle_parser *v, uint32_t list, uint32_t n,
                                     uint32_t *out);

/* Instructions: GLOBAL, STACK_GLOBAL, BINPERSID, and REDUCE with NEWOBJ and NEWOBJ_EX. */
lvn_status lvni_ckpt_pickle_global(lvni_ckpt_pickle_parser *v, unsigned char op);
lvn_status lvni_ckpt_pickle_stack_global(lvni_ckpt_pickle_parser *v, unsigned char op);
lvn_status lvni_ckpt_pickle_persistent(lvni_ckpt_pickle_parser *v, unsigned char op);
lvn_status lvni_ckpt_pickle_call(lvni_ckpt_pickle_parser *v, unsigned char op);

#endif
