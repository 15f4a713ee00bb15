/* Sequences: attention, recurrent cells, lookups in tables.
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
    /* position t sees keys 0 to t only. As many keys as queries (S = T), else LVN_ERR_SHAPE: a mask
     * defines what a query sees of more or fewer */
    bool causal;
    double scale; /* 0: 1 / sqrt(D) */
    /* bool, broadcast to (N, H, T, S): position t sees key s where it is true; a position that sees
     * none gets zeros. NULL: all */
    lvn_tensor *mask;
    /* in training: probability with which a key is left out, the others divided by 1 - dropout; as
     * lvn_dropout of the softmax */
    double dropout;
} lvn_attention_options;
/* With a mask or dropout attention is made of products, and keeps the (N, H, T, S) probabilities
 * for the gradient; without them one kernel does it in blocks. Only the former can be
 * differentiated twice. bf16 and f16 inputs give a result of their type; the softmax is f32, and
 * with a mask or dropout scores and probabilities are rounded to 16 bits, in the kernel they are
 * not. */
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

/* ---- recurrent cells: one step of a sequence ---- */
/* x (N, I), h (N, H), w_ih (3 H, I), w_hh (3 H, H), b_ih and b_hh (3 H) or NULL -> the next h (N,
 * H), as torch.nn.GRUCell (Cho et al. 2014, with the reset gate behind the product). With (r, z, n)
 * and (r', z', n') the three parts of x w_ih^T + b_ih and h w_hh^T + b_hh: R = sigmoid(r + r'), Z =
 * sigmoid(z + z'), h + (1 - Z) (tanh(n + R n') - h). */
LVN_API lvn_tensor *lvn_gru_cell(lvn_tensor *x, lvn_tensor *h, lvn_tensor *w_ih, lvn_tensor *w_hh,
                                 lvn_tensor *b_ih, lvn_tensor *b_hh);
/* x (N, I), h and c (N, H), w_ih (4 H, I), w_hh (4 H, H), b_ih and b_hh (4 H) or NULL -> the next h
 * (N, H), and in *c_next the next c (NULL on failure), as torch.nn.LSTMCell (Hochreiter &
 * Schmidhuber 1997, with the forget gate of Gers et al. 2000). With (i, f, g, o) the four parts of
 * x w_ih^T + b_ih + h w_hh^T + b_hh: c_next = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o)
 * tanh(c_next). */
LVN_API lvn_tensor *lvn_lstm_cell(lvn_tensor *x, lvn_tensor *h, lvn_tensor *c, lvn_tensor *w_ih,
                                  lvn_tensor *w_hh, lvn_tensor *b_ih, lvn_tensor *b_hh,
                                  lvn_tensor **c_next);

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
