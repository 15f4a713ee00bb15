/* Eigenvalues and singular values of small matrices: principal components of data, fitted once
 * before training. Not ops: they have no gradient, run on the host in double precision, and fail in
 * a training step, for a matrix that requires a gradient and for one on a device.
 *
 * By LAPACK (the package liblapacke of Debian), which is loaded at the first call: without it they
 * fail with LVN_ERR_NOT_FOUND. They run in one thread. The same matrix gives the same bits on one
 * machine, whatever the number of its cores; another LAPACK, or OpenBLAS on another CPU, may differ
 * in the last digits. So ranks on different machines fit on one and share the result.
 *
 * Signs are chosen: of each row of `vectors` and `vt` the element of the largest size is positive,
 * of several equal ones (to 6 digits) the first. Where values are equal, their vectors are any
 * basis of what they span. */
#ifndef LEVIN_LINALG_H
#define LEVIN_LINALG_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LVN_LINALG_MAX = 8192 }; /* rows or columns of a matrix */

/* a (n, n), symmetric to 5 digits, f32 or f64 -> values (n), largest first, and unit vectors (n,
 * n), row i for values[i]: a = vectors^T diag(values) vectors. Results are f64 in host memory and
 * belong to the caller; NULL for one that is not wanted. On failure both are NULL.
 *
 * Principal components of data whose covariance is `a`: the first q rows; value i is the variance
 * that component i explains (rounding can make a small one negative: count it as 0). */
LVN_API lvn_status lvn_eigh(const lvn_tensor *a, lvn_tensor **values, lvn_tensor **vectors);
/* a (m, n), f32 or f64 -> u (m, k), s (k), largest first, none negative, vt (k, n), k the smaller
 * of m and n: a = u diag(s) vt. Otherwise as lvn_eigh. Of centred data in m rows the principal
 * components are the rows of vt, and s[i]^2 / (m - 1) the variances that they explain. */
LVN_API lvn_status lvn_svd(const lvn_tensor *a, lvn_tensor **u, lvn_tensor **s, lvn_tensor **vt);

#ifdef __cplusplus
}
#endif
#endif
