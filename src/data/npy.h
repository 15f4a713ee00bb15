/* NumPy's .npy files (format 1.0, 2.0, 3.0): a header in the words of Python, then the elements.
 * Read: bool, int8 to int64, uint8 to uint64, float16, float32, float64, either byte order, either
 * axis order. Written: float32. Called by array.c and by what exports or reads arrays (predictions,
 * embeddings). */
#ifndef LEVIN_DATA_NPY_H
#define LEVIN_DATA_NPY_H

#include "data/array.h"

bool lvni_data_npy_is(const void *bytes, size_t n);
/* The header alone: type, orders and shape to *out (data stays NULL), the offset of the first
 * element to *data_at. `name` is for messages. Reads nothing outside bytes[0..n). LVN_ERR_CORRUPT,
 * or LVN_ERR_UNSUPPORTED for element types that are no plain numbers. */
lvn_status lvni_data_npy_parse_header(const void *bytes, size_t n, const char *name,
                                      lvni_data_array *out, size_t *data_at);
/* A whole file in memory; out->data points into bytes. */
lvn_status lvni_data_npy_parse(const void *bytes, size_t n, const char *name, lvni_data_array *out);
/* Read a file; elements with lvni_data_array_read_f32 (array.h), then lvni_data_array_free. Refuses
 * what is not .npy. */
lvn_status lvni_data_npy_open(const char *path, lvni_data_array *out);

/* Write a row-major array of float32 (format 1.0, little endian) under a temporary name, then
 * rename: a reader sees the old file or the new one. */
lvn_status lvni_data_npy_write_f32(const char *path, int ndim, const int64_t *shape,
                                   const float *data);

#endif
