/* Volumes of k-space in HDF5 files, as fastMRI has them. libhdf5 is loaded when the first such file
 * is met, so that levin needs it for nothing else. Any thread; calls wait for each other, as the
 * library is not thread-safe everywhere. */
#ifndef LEVIN_DATA_INVERSE_HDF5_H
#define LEVIN_DATA_INVERSE_HDF5_H

#include "data/array.h"
#include "data/fourier.h"

/* By its first bytes. */
bool lvni_inverse_hdf5_is(const char *path);
/* The shape of its data set "kspace" (the type is LVNI_ARRAY_C64), and its attribute "acquisition"
 * ("" without one). LVN_ERR_UNSUPPORTED: there is no libhdf5; LVN_ERR_CORRUPT: no such file. */
lvn_status lvni_inverse_hdf5_peek(const char *path, lvni_data_array *out, char acquisition[64]);
/* k-space of one coil of a slice, (rows, cols). */
lvn_status lvni_inverse_hdf5_read(const char *path, const int64_t shape[4], int slice, int coil,
                                  lvni_data_complex *out);

#endif
