/* The input gradient of convolutions over few channels, by columns (conv_columns.c). */
#ifndef LEVIN_KERNELS_CPU_CONV_COLUMNS_H
#define LEVIN_KERNELS_CPU_CONV_COLUMNS_H

#include "kernels/kernels.h"

/* By shape and type alone, so that every team takes the same way. */
bool lvni_conv_columns_pay(const lvni_conv_attr *attr, const lvn_tensor *dy, const lvn_tensor *w);
/* dx (N, in_h, in_w, I) of dy (N, OH, OW, O) and plain weights w (O, KH, KW, I); none is empty. */
lvn_status lvni_conv_columns_grad_input(const lvni_conv_attr *attr, const lvn_tensor *dy, const lvn_tensor *w, lvn_tensor *dx);

#endif
