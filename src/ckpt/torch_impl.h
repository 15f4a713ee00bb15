/* The layers of a file of torch.save in its zip archive: the pickle, the state_dict. For this
 * folder only. */
#ifndef LEVIN_CKPT_TORCH_IMPL_H
#define LEVIN_CKPT_TORCH_IMPL_H

#include "ckpt/torch_file.h"

/* ---- the pickle: torch_pickle.c ---- */

typedef enum lvni_ckpt_pickle_kind {
    LVNI_PICKLE_OTHER, /* what is of no concern for tensors: None, numbers with a point, ... */
    LVNI_PICKLE_MARK,
    LVNI_PICKLE_INT,
    LVNI_PICKLE_TEXT,
    LVNI_PICKLE_LIST, /* also tuples */
    LVNI_PICKLE_DICT, /* keys and values in turn */
    LVNI_PICKLE_CLASS,
    LVNI_PICKLE_STORAGE,
    LVNI_PICKLE_TENSOR,
    LVNI_PICKLE_INSTANCE /* of a class that means nothing here, or what a function returned */
} lvni_ckpt_pickle_kind;

/* Of a TENSOR, in known: each element is the negative of the one in the storage; it is not what
 * storage, shape and strides describe alone. */
enum { LVNI_PICKLE_NEGATED = 1, LVNI_PICKLE_UNKNOWN_FORM = 2 };

enum { LVNI_PICKLE_DTYPE_FOREIGN = LVN_DTYPE_COUNT }; /* a type levin does not have */

/* An object; others are named by their index in lvni_ckpt_pickle.nodes. */
typedef struct lvni_ckpt_pickle_node {
    uint8_t kind, dtype; /* dtype: of a storage and its class */
    uint16_t known;      /* CLASS: what it is to torch_pickle.c; TENSOR: the flags above */
    uint32_t n;          /* TEXT, CLASS, INSTANCE, STORAGE: bytes of text; LIST, DICT: items */
    union {
        const char *text; /* TEXT, the name of a CLASS and of an INSTANCE's, a STORAGE's key */
        struct {
            uint32_t first, last; /* LIST, DICT: in items */
        } list;
        struct {
            uint32_t storage, shape; /* TENSOR; its strides follow the shape in items */
        } tensor;
    } u;
    int64_t number; /* INT: value; STORAGE: elements; TENSOR: offset in elements */
    uint32_t more;  /* TENSOR: strides; STORAGE: its class */
} lvni_ckpt_pickle_node;

typedef struct lvni_ckpt_pickle_item {
    uint32_t node, next;
} lvni_ckpt_pickle_item;

typedef struct lvni_ckpt_pickle {
    lvni_ckpt_pickle_node *nodes;
    uint32_t n_nodes;
    size_t nodes_room;
    lvni_ckpt_pickle_item *items; /* lists of items; 0 ends one */
    uint32_t n_items;
    size_t items_room;
    uint32_t top; /* the object that was saved */
} lvni_ckpt_pickle;

static inline const lvni_ckpt_pickle_node *lvni_ckpt_pickle_at(const lvni_ckpt_pickle *p,
                                                               uint32_t index)
{
    return &p->nodes[index];
}

enum { LVNI_PICKLE_MAX = 64 << 20, LVNI_PICKLE_MAX_NODES = 1 << 20 };

/* Parses; texts point into bytes. Free in every case. */
lvn_status lvni_ckpt_pickle_parse(const char *path, const char *bytes, size_t n,
                                  lvni_ckpt_pickle *out);
void lvni_ckpt_pickle_free(lvni_ckpt_pickle *pickle);

/* ---- the state_dict in it: torch_state.c ---- */

/* Which dict has the tensors: by key (torch_file.h), or where files have it. *inner: what is left
 * of key for the names in that dict, or NULL. LVN_ERR_UNSUPPORTED: there is none. */
lvn_status lvni_ckpt_torch_state(const char *path, const lvni_ckpt_pickle *pickle, const char *key,
                                 const lvni_ckpt_pickle_node **state, const char **inner);
/* Made by a function of PyTorch for sparse, quantised and other tensors. */
bool lvni_ckpt_torch_is_other(const lvni_ckpt_pickle_node *n);
/* Of any of these types. */
bool lvni_ckpt_torch_is_tensor(const lvni_ckpt_pickle_node *n);
/* "ResNet" of "torchvision.models.resnet\nResNet", with its length. */
const char *lvni_ckpt_torch_class(const lvni_ckpt_pickle_node *n, int *bytes);

#endif
