/* Sequences: attention, lookups in tables.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_SEQ_H
#define LEVIN_OPS_SEQ_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- attention: softmax(scale q k^T) v, Vaswani et al. 2017, eq. 1 ---- */
typedef struct lvn_attention_options {
    size_t struct_size;
    bool causal;  /* position t sees keys 0 to t only */
    double scale; /* 0: 1 / sqrt(D) */
} lvn_attention_options;
LVN_API lvn_tensor *lvn_attention_with(lvn_tensor *q, lvn_tensor *k, lvn_tensor *v,
                                       const lvn_attention_options *o);
/* q (N, T, H, D), k (N, S, H, D), v (N, S, H, E) -> (N, T, H, E): H heads side by side, as a linear
 * layer of H D outputs gives them */
#define lvn_attention(q, k, v, ...)                                                                \
    lvn_attention_with(                                                                            \
        (q), (k), (v),                                                                             \
        &(lvn_attention_options){.struct_size = sizeof(lvn_attention_options), __VA_ARGS__})
LVN_API lvn_tensor *lvn_attention_qkv_with(lvn_tensor *qkv, const lvn_attention_options *o);
/* Self-attention of qkv (N, T, 3, H, D), one linear layer's 3 H D outputs: first all of q, then k,
 * then v -> (N, T, H, D) */
#define lvn_attention_qkv(qkv, ...)                                                                \
    lvn_attention_qkv_with((qkv), &(lvn_attention_options){                                        \
                                      .struct_size = sizeof(lvn_attention_options), __VA_ARGS__})

/* ---- lookups ---- */
typedef struct lvn_embedding_options {
    size_t struct_size;
    /* (P, D), P >= T, or NULL: row t is added at the t-th place of the last axis of ids */
    lvn_tensor *positions;
} lvn_embedding_options;
LVN_API lvn_tensor *lvn_embedding_with(lvn_tensor *weight, lvn_tensor *ids,
                                       const lvn_embedding_options *o);
/* weight (V, D), ids (..., T) i64 in [0, V) -> the rows of weight (..., T, D) */
#define lvn_embedding(weight, ids, ...)                                                            \
    lvn_embedding_with(                                                                            \
        (weight), (ids),                                                                           \
        &(lvn_embedding_options){.struct_size = sizeof(lvn_embedding_options), __VA_ARGS__})

#ifdef __cplusplus
}
#endif
#endif
