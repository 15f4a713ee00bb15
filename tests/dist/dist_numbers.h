/* Numbers for the tests of src/dist/, and the plain recursive sum that everything is compared
 * with. */
#ifndef LEVIN_TESTS_DIST_NUMBERS_H
#define LEVIN_TESTS_DIST_NUMBERS_H

#include "dist/comm.h"

/* 64 bits that depend on `part` (a rank, a micro-batch), the element and a salt alone. */
uint64_t dist_bits(int part, int64_t element, int salt);
/* Sizes from 1e-8 to 1e8 with signs: another order of additions gives other bits. */
float dist_gradient(int part, int64_t element, int salt);
/* Those of the elements from `from` on. */
void dist_gradients(float *out, int part, int64_t from, int64_t n, int salt);
/* n elements of a type, as `part` has them. */
void dist_fill(void *out, lvn_dtype dtype, int part, int64_t n, int salt);
/* Element i of the reduction over ranks 0 .. world-1, as its bytes. */
void dist_expect(void *out, lvn_dtype dtype, lvni_dist_reduce how, int world, int64_t i, int salt);
/* FNV-1a. */
uint64_t dist_hash(const void *data, size_t bytes);

#endif
