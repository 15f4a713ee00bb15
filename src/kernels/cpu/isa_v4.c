/* The own kernels for x86-64-v4: 16 floats in a register. */
#define LVNI_VEC_TABLE lvni_cpu_vec_v4
#define LVNI_VEC_NAME "v4"
#define LVNI_W 16
#include "kernels/cpu/tpl_table.h"
