/* The own kernels for x86-64-v2: 4 floats in a register. */
#define LVNI_VEC_TABLE lvni_vec_v2
#define LVNI_VEC_NAME "v2"
#define LVNI_W 4
#include "kernels/cpu/tpl_table.h"
