/* The list of ops with second derivatives (second.h). */
#include "ops/second.h"

bool lvni_ops_has_second(lvni_kernels_op op)
{
    static const bool has[LVNI_OP_COUNT] = {
#define LVNI_SECOND(name) [LVNI_OP_##name] = true,
#include "ops/second.def"
#undef LVNI_SECOND
    };
    return has[op];
}
