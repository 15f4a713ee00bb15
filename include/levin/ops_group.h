/* Values of other micro-batches: losses and layers that look beyond the samples of their own
 * micro-batch. Rules for all ops, scopes and gradients: ops.h.
 *
 * A step's samples are cut into micro-batches (docs/reproducibility.md), and `group` consecutive
 * micro-batches may see each other's values. A module that uses these ops declares it in its
 * build() with lvn_builder_couple(): the micro-batches of a group then run at once, wherever they
 * are, and wait for each other in every such op. So all of them must make the same calls in the
 * same order. Micro-batches without samples take no part. In evaluation, and outside of a trainer,
 * a micro-batch is alone: the result is x itself. */
#ifndef LEVIN_OPS_MICRO_BATCH_H
#define LEVIN_OPS_MICRO_BATCH_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The x of all micro-batches of the group one after the other along axis 0, in the order of the
 * micro-batches; other axes agree. Gradient: each micro-batch gets the sum, over the micro-batches,
 * of the gradients of its own rows. Any type; floats have a gradient. */
LVN_API lvn_tensor *lvn_group_gather(lvn_tensor *x);
/* The same; *first: the row of the result at which this micro-batch's own begin (0 when it is
 * alone). */
LVN_API lvn_tensor *lvn_group_gather_at(lvn_tensor *x, int64_t *first);
/* The sum of the x of all micro-batches of the group, which have one shape: added in a fixed tree,
 * the same bits on every layout. Gradient: the sum of all micro-batches' gradients. */
LVN_API lvn_tensor *lvn_group_sum(lvn_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
