/* Attention with a mask or dropout (op_attention.c), which the public op of op_linear.c takes where
 * its kernel has neither. */
#ifndef LEVIN_OPS_ATTENTION_H
#define LEVIN_OPS_ATTENTION_H

#include "autograd/tape.h"

/* in: q (N, T, H, D), k (N, S, H, D), v (N, S, H, E); mask: NULL or broadcast to (N, H, T, S). */
lvn_tensor *lvni_ops_attention_of_products(lvn_tensor *const in[3], const lvn_attention_attr *attr,
                                           lvn_tensor *mask, double dropout);
/* qkv (N, T, 3, H, D) */
lvn_tensor *lvni_ops_attention_qkv_of_products(lvn_tensor *qkv, const lvn_attention_attr *attr,
                                               lvn_tensor *mask, double dropout);

#endif
