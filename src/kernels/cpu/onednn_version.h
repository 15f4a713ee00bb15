/* What differs between the versions of oneDNN, and nothing else: memory descriptors are structs in
 * version 2 and handles in version 3, which has no operation descriptors either; and which
 * implementations give the same bits with every team. What is above this file is written once, and
 * only the onednn_* files include it. */
#ifndef LEVIN_KERNELS_CPU_ONEDNN_VERSION_H
#define LEVIN_KERNELS_CPU_ONEDNN_VERSION_H

#include "kernels/cpu/onednn_api.h"

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t lvni_cpu_dnn_desc; /* owned: lvni_cpu_dnn_desc_destroy */
typedef const_dnnl_memory_desc_t lvni_cpu_dnn_desc_view;
#else
typedef dnnl_memory_desc_t *lvni_cpu_dnn_desc;
typedef const dnnl_memory_desc_t *lvni_cpu_dnn_desc_view;
#endif

/* dims, strides: of all DNNL_MAX_NDIMS numbers the first ndims count. *out is untouched on
 * failure. */
lvn_status lvni_cpu_dnn_desc_tagged(lvni_cpu_dnn_desc *out, int ndims, const dnnl_dims_t dims,
                                    dnnl_data_type_t type, dnnl_format_tag_t tag);
lvn_status lvni_cpu_dnn_desc_strided(lvni_cpu_dnn_desc *out, int ndims, const dnnl_dims_t dims,
                                     dnnl_data_type_t type, const dnnl_dims_t strides);
void lvni_cpu_dnn_desc_destroy(lvni_cpu_dnn_desc d); /* takes NULL */

/* How numbers lie in memory, in blocks. */
typedef struct lvni_cpu_dnn_layout {
    int ndims, inner_nblks;
    dnnl_data_type_t type;
    dnnl_dims_t dims, padded_dims, strides; /* ndims of each */
    dnnl_dims_t inner_blks, inner_idxs;     /* inner_nblks of each */
} lvni_cpu_dnn_layout;
/* false: not in blocks, or with more than numbers in it; *out is undefined then. */
bool lvni_cpu_dnn_layout_of(lvni_cpu_dnn_desc_view d, lvni_cpu_dnn_layout *out);

/* A convolution of x and w (or what their gradients are made of); dilation 0 is dense. */
typedef struct lvni_cpu_dnn_conv {
    lvni_cpu_dnn_desc_view x, w, bias, y; /* bias NULL: none */
    const dnnl_dim_t *stride, *dilation, *padding;
} lvni_cpu_dnn_conv;
/* hint: the forward primitive's, for gradients; NULL for LVNI_DNN_CONV_FORWARD. */
dnnl_status_t lvni_cpu_dnn_conv_pd(dnnl_primitive_desc_t *pd, lvni_cpu_dnn_op op,
                                   const lvni_cpu_dnn_conv *c, dnnl_engine_t engine,
                                   const_dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint);

/* y = a b + bias (or NULL) */
typedef struct lvni_cpu_dnn_product {
    lvni_cpu_dnn_desc_view a, b, bias, y;
} lvni_cpu_dnn_product;
dnnl_status_t lvni_cpu_dnn_product_pd(dnnl_primitive_desc_t *pd, const lvni_cpu_dnn_product *p,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr);

/* ---- teams ---- */

/* Does this implementation give the same bits whatever number of threads it runs with? As measured
 * with the library's version (the table is in onednn_version.c); false for versions that were not
 * measured. */
bool lvni_cpu_dnn_same_for_every_team(const lvni_cpu_dnn_work *work, const char *implementation);

/* ---- wrong results ---- */

/* Does this implementation give wrong numbers for this work, as found by comparing drawn shapes
 * with the reference (test_onednn_teams)? Some convolutions, most of them in bf16. */
bool lvni_cpu_dnn_is_wrong(const lvni_cpu_dnn_work *work, const char *implementation);

#endif
