/* Values of other shards: losses and layers that look beyond the samples of their own shard.
 * Rules for all ops, scopes and gradients: ops.h.
 *
 * A step's samples are cut into shards (docs/reproducibility.md), and `group` consecutive shards
 * may see each other's values. A module that uses these ops says so in its build() with
 * lvn_builder_couple(): the shards of a group then run at once, wherever they are, and wait for
 * each other in every such op. So all of them must make the same calls in the same order. Shards
 * without samples take no part. In evaluation, and outside of a trainer, a shard is alone: the
 * result is x itself. */
#ifndef LEVIN_OPS_SHARD_H
#define LEVIN_OPS_SHARD_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The x of all shards of the group one after the other along axis 0, in the order of the shards;
 * other axes agree. Gradient: each shard gets the sum, over the shards, of the gradients of its own
 * rows. Any type; floats have a gradient. */
LVN_API lvn_tensor *lvn_shard_gather(lvn_tensor *x);
/* The same; *first: the row of the result at which this shard's own begin (0 when it is alone). */
LVN_API lvn_tensor *lvn_shard_gather_at(lvn_tensor *x, int64_t *first);
/* The sum of the x of all shards of the group, which have one shape: added in a fixed tree, the
 * same bits on every layout. Gradient: the sum of all shards' gradients. */
LVN_API lvn_tensor *lvn_shard_sum(lvn_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
