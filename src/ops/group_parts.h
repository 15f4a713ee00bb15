/* What ops of coupled micro-batches have in common (op_group.c): syncing the group, adding up its
 * parts. */
#ifndef LEVIN_OPS_GROUP_PARTS_H
#define LEVIN_OPS_GROUP_PARTS_H

#include "autograd/tape.h"
#include "tensor/tensor.h"

/* The group of the running micro-batch. *group is NULL when the micro-batch is alone.
 * LVN_ERR_INVALID in a training step of a model whose micro-batches are not coupled. */
lvn_status lvni_ops_group_current(const char *op, const lvni_tensor_group **group);
/* All of them that have data have the type and, from axis `first` on, the shape of d. */
lvn_status lvni_ops_group_same(const char *op, const lvni_tensor_part *parts, int micro_batches,
                               const lvni_tensor_desc *d, int first);
/* sum = the elements [offset, offset + n) of all that was brought (f32 or f64), added in the tree
 * over the group's micro-batches; host memory. False: no micro-batch brought anything. */
bool lvni_ops_group_add(const lvni_tensor_part *parts, int micro_batches, lvn_dtype dtype,
                        int64_t offset, int64_t n, void *sum);
/* A tensor of host memory to where the context computes (moves t, also on failure); owned by the
 * caller. */
lvn_tensor *lvni_ops_group_place(lvn_tensor *t);

/* Batch norm over the group (op_sync_batch_norm.c). in: x, gamma, beta, residual or NULL; *mean,
 * *variance as of lvn_batch_norm_train. */
lvn_tensor *lvni_ops_sync_batch_norm(const lvni_tensor_group *group, lvn_tensor *const in[4],
                                     const lvn_norm_attr *attr, lvn_tensor **mean,
                                     lvn_tensor **variance);

#endif
