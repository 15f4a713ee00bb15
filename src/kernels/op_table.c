/* The op table: ops.def turned into data. Read by lvni_kernels_run, autograd, `levin ops` and the
 * tests. */
#include "kernels/kernels_decl.h"

/* 0 for ops without attributes: the byte behind a NULL is never copied. */
#define ATTR_SIZE(type) _Generic((type *)0, lvn_no_attr * : (size_t)0, default : sizeof(type))

#define LVNI_ATTR(type, fields) static const char text_##type[] = fields;
#include "kernels/attrs.def"
#undef LVNI_ATTR

const lvni_kernels_op_info lvni_kernels_ops[LVNI_OP_COUNT] = {
#define LVNI_OP(op_name, inputs, outputs, attr_type, op_flags, text)                               \
    [LVNI_OP_##op_name] = {.op = {.name = #op_name,                                                \
                                  .number = LVNI_OP_##op_name,                                     \
                                  .n_in = (inputs),                                                \
                                  .n_out = (outputs),                                              \
                                  .attr_size = ATTR_SIZE(attr_type)},                              \
                           .flags = (op_flags),                                                    \
                           .sentence = (text),                                                     \
                           .attributes = text_##attr_type,                                         \
                           .shape = lvni_kernels_shape_##op_name},
#include "kernels/ops.def"
#undef LVNI_OP
};

#define LVNI_OP(op_name, inputs, outputs, attr_type, op_flags, text)                               \
    _Static_assert((inputs) >= 1 && (inputs) <= LVN_KERNEL_INPUTS && (outputs) >= 1 &&             \
                       (outputs) <= LVN_KERNEL_OUTPUTS,                                            \
                   #op_name ": more inputs or outputs than lvn_kernel_args holds");
#include "kernels/ops.def"
#undef LVNI_OP
