/* Helpers of the op tests (op_support.h). */
#include "op_support.h"

#include <math.h>
#include <string.h>

const ref_op ref_ops[LVNI_OP_COUNT] = {
#define LVNI_OP(op, inputs, outputs, attr_type, flags, sentence)                                   \
    [LVNI_OP_##op] = {#op, inputs, outputs, lvni_kernels_shape_##op, lvni_ref_##op},
#include "kernels/ops.def"
#undef LVNI_OP
};

static lvn_tensor *kept[512];
static int n_kept;

lvn_tensor *support_keep(lvn_tensor *t)
{
    assert_non_null(t);
    assert_true(n_kept < (int)(sizeof kept / sizeof *kept));
    kept[n_kept++] = t;
    return t;
}

int support_release(void **state)
{
    (void)state;
    while (n_kept > 0) {
        lvn_release(kept[--n_kept]);
    }
    return 0;
}

lvn_tensor *support_tensor(lvn_dtype dtype, int ndim, const int64_t *shape)
{
    return support_keep(lvn_tensor_create(dtype, ndim, shape));
}

lvn_tensor *support_f64(int ndim, const int64_t *shape, int64_t n, const double *values)
{
    lvn_tensor *t = support_tensor(LVN_F64, ndim, shape);
    assert_int_equal(lvn_numel(t), n);
    memcpy(t->data, values, (size_t)n * sizeof *values);
    return t;
}

lvn_tensor *support_i64(int ndim, const int64_t *shape, int64_t n, const int64_t *values)
{
    lvn_tensor *t = support_tensor(LVN_I64, ndim, shape);
    assert_int_equal(lvn_numel(t), n);
    memcpy(t->data, values, (size_t)n * sizeof *values);
    return t;
}

lvn_tensor *support_random(const char *purpose, int ndim, const int64_t *shape)
{
    lvn_tensor *t = support_tensor(LVN_F64, ndim, shape);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(1, lvni_core_rng_purpose(purpose))};
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        ((double *)t->data)[e] = lvni_core_rng_normal(&rng, (uint64_t)e);
    }
    return t;
}

lvn_kernel_args support_ref(lvni_kernels_op op, const void *attr, lvn_tensor *const *in)
{
    lvn_kernel_args args = {.attr = attr};
    for (int i = 0; i < ref_ops[op].n_in; i++) {
        args.in[i] = in[i];
    }
    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS];
    lvn_clear_error();
    lvn_status status = ref_ops[op].shape(&args, out);
    for (int i = 0; i < ref_ops[op].n_out && status == LVN_OK; i++) {
        args.out[i] = support_keep(lvni_tensor_new(&out[i]));
    }
    if (status == LVN_OK) {
        status = ref_ops[op].ref(&args);
    }
    if (status != LVN_OK) {
        fail_msg("%s: %s", ref_ops[op].name, lvn_last_error()->message);
    }
    return args;
}

void support_expect(const char *file, int line, const lvn_tensor *t, double tol, int ndim,
                    const int64_t *shape, int64_t n, const double *values)
{
    bool same = t->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) {
        same = t->shape[i] == shape[i];
    }
    if (!same || lvn_numel(t) != n) {
        char have[96], want[96];
        fail_msg("%s:%d: shape %s, expected %s with %d numbers", file, line,
                 lvni_tensor_shape_string(t->ndim, t->shape, have),
                 lvni_tensor_shape_string(ndim, shape, want), (int)n);
    }
    for (int64_t e = 0; e < n; e++) {
        const double have = lvni_check_value(t, e), want = values[e];
        const double room = tol * fmax(1.0, fabs(want));
        if (!(fabs(have - want) <= room || (have != have && want != want) || have == want)) {
            fail_msg("%s:%d: element %d is %.17g, expected %.17g", file, line, (int)e, have, want);
        }
    }
}
