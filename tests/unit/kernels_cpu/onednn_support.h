/* Tensors, numbers and hashes for the tests of the oneDNN kernels. */
#ifndef LEVIN_TESTS_KERNELS_CPU_ONEDNN_SUPPORT_H
#define LEVIN_TESTS_KERNELS_CPU_ONEDNN_SUPPORT_H

#include "kernels/check/drawn.h"
#include "kernels/kernels_decl.h"

/* A group's setup: starts the CPU kernels and prints which. Exits with 77, a skip, on a machine
 * without the instruction set asked for. */
int start_kernels(void **state);

typedef lvni_check_conv conv_case;

/* What belongs to a case: filled inputs and room for every result. All released by
 * conv_data_free. */
typedef struct conv_data {
    lvn_conv_attr attr;
    lvn_tensor *x, *w, *b, *dy, *y, *dx, *dw, *db;
} conv_data;

/* The type of images and matrices that the functions below make, f32 at first; weights and biases
 * of convolutions are always f32. */
extern lvn_dtype support_type;

/* A tensor of support_type with values in [-1, 1) that depend on `seed` and the element only. */
lvn_tensor *filled(uint64_t seed, int ndim, const int64_t *shape);
void fill(lvn_tensor *t, uint64_t seed);
conv_data conv_data_make(const conv_case *c);
void conv_data_free(conv_data *d);

/* Every byte of t is `byte`: 0xff makes NaNs of all types. */
void fill_bytes(lvn_tensor *t, int byte);
/* The largest difference of y, dx or dw from the reference in double precision, as a part of what
 * rounding explains; NaN counts as 1e30. `which`: one of the tensors of d. */
double error_of(const conv_data *d, const lvn_tensor *which);
double error_of_product(const lvn_tensor *a, const lvn_tensor *b, const lvn_tensor *y, bool trans_a,
                        bool trans_b);

/* 64 bits of the contents. */
uint64_t hash_of(const lvn_tensor *t);

/* Run in the calling thread's context with these teams (and put the old ones back). */
lvn_status run_forward(conv_data *d, int team, bool bias);
lvn_status run_grad_input(conv_data *d, int team);
lvn_status run_forward_fixed(conv_data *d, int team, int wgrad_threads);
lvn_status run_grad_input_fixed(conv_data *d, int team, int wgrad_threads);
lvn_status run_grad_weight(conv_data *d, int team, int wgrad_threads);
lvn_status run_matmul(lvn_tensor *a, lvn_tensor *b, lvn_tensor *y, bool trans_a, bool trans_b,
                      int team, int wgrad_threads);

#endif
