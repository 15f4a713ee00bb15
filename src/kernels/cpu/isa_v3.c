/* The own kernels for x86-64-v3: 8 floats in a register. */
#define LVNI_VEC_TABLE lvni_vec_v3
#define LVNI_VEC_NAME "v3"
#define LVNI_W 8
#include "kernels/cpu/tpl_table.h"
