/* Random numbers without state: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
 * easy as 1, 2, 3").
 *
 * THE PACKING THAT RESULTS DEPEND ON (docs/reproducibility.md). It never changes.
 *   key      = lvni_core_rng_key(seed, purpose): a 64-bit mix of the run's seed and a 64-bit hash
 *              of the purpose's name (low half = key[0], high half = key[1]); inside a forward the
 *              purpose is the module path.
 *   counter  = (c0 = element / 4, c1 = c, c2 = b, c3 = a); element e is the 32-bit output e % 4.
 *   Per use:
 *     inside a step    a = step, b = micro-batch, c = phase * 2^24 + number of the call within the
 *                      micro-batch's forward (phase 0 except in steps of several phases); a named
 *                      draw (lvn_random_uniform) the same with the purpose hash(path) +
 *                      0x9e3779b97f4a7c15 hash(name)
 *     masks of patches a = step, b = crop of the step, c = 0; which crops of a micro-batch have
 *                      one: b = its first crop, c = 1
 *     initialisation   a = b = c = 0
 *     sample order     a = epoch, b = c = 0    (purpose "order"; of more than 2^27 "order/large")
 *     data             a = epoch, b = sample, c = operation of the augmentation
 *                      (purpose "data"; "data/own" for what users' datasets draw; "data/pose" for
 *                      frames with keypoints; "data/clips", a = frame of the clip, b = clip)
 *     split of frames  a = b = c = 0            (purpose "pose/split"; lvni_core_rng_permute)
 */
#ifndef LEVIN_CORE_RNG_H
#define LEVIN_CORE_RNG_H

#include <stdint.h>

typedef struct lvni_core_rng_key {
    uint32_t k[2];
} lvni_core_rng_key;

/* A stream position: key and the three fixed parts of the counter. */
typedef struct lvni_core_rng {
    lvni_core_rng_key key;
    uint32_t a, b, c;
} lvni_core_rng;

/* FNV-1a (64 bit) of a zero-terminated name. */
uint64_t lvni_core_rng_purpose(const char *name);
/* splitmix64 finaliser over seed + 0x9e3779b97f4a7c15 * purpose (mod 2^64). */
lvni_core_rng_key lvni_core_rng_make_key(uint64_t seed, uint64_t purpose);

/* One Philox 4x32-10 block. */
void lvni_core_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Element e of the stream. */
uint32_t lvni_core_rng_u32(const lvni_core_rng *rng, uint64_t element);
/* 0 to n - 1 in an order that is drawn from the stream. */
void lvni_core_rng_permute(const lvni_core_rng *rng, int64_t n, int64_t *out);
/* Uniform in [0, 1): the top 24 bits times 2^-24. */
float lvni_core_rng_uniform(const lvni_core_rng *rng, uint64_t element);
/* Standard normal by Box-Muller on elements 2e and 2e+1, with levin's own log, sqrt, sin and cos
 * (double precision). */
double lvni_core_rng_normal(const lvni_core_rng *rng, uint64_t element);
/* Unbiased integer in [0, n) for n >= 1, by rejection (Lemire 2019 without the multiplication
 * trick: draws below 2^32 mod n are thrown away). *element is the next unused element and moves on
 * with every draw. */
uint32_t lvni_core_rng_below(const lvni_core_rng *rng, uint32_t n, uint64_t *element);

#endif
