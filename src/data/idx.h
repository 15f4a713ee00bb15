/* IDX files, the format of MNIST: two zero bytes, element type, number of axes, the lengths (32
 * bits each), the elements, most significant byte first. Often packed with gzip. Called by
 * array.c. */
#ifndef LEVIN_DATA_IDX_H
#define LEVIN_DATA_IDX_H

#include "data/array.h"

/* A whole file in memory; out->data points into bytes. Reads nothing outside bytes[0..n).
 * LVN_ERR_CORRUPT. */
lvn_status lvni_data_idx_parse(const void *bytes, size_t n, const char *name, lvni_data_array *out);

bool lvni_data_idx_is_gzip(const void *bytes, size_t n);
/* Put the unpacked content in place of a gzip file's bytes (*bytes from core/alloc, freed here on
 * success). LVN_ERR_CORRUPT. */
lvn_status lvni_data_idx_unpack(const char *name, char **bytes, size_t *n);

#endif
