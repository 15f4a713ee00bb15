/* matmul, linear and its gradients: products by cuBLASLt or levin's own kernel (gemm.cuh). */
#include "gemm.cuh"

static lvnc_product product_of(const lvn_tensor *a, const lvn_tensor *b, const lvn_tensor *y)
{
    lvnc_product p = {};
    p.batches = 1;
    p.a_type = lvn_tensor_dtype(a);
    p.b_type = lvn_tensor_dtype(b);
    p.y_type = y == NULL ? p.a_type : lvn_tensor_dtype(y);
    return p;
}

/* ---- matmul: (.., m, k) (.., k, n) ---- */

static lvnc_product matmul_product(const lvn_kernel_args *args)
{
    const lvn_matmul_attr &attr = attr_of<lvn_matmul_attr>(args);
    const lvn_tensor *a = args->in[0], *b = args->in[1], *y = args->out[0];
    const int row = lvn_ndim(y) - 2, column = row + 1;
    lvnc_product p = product_of(a, b, y);
    p.batches = sizes_before(y, row);
    p.m = lvn_size(y, row);
    p.n = lvn_size(y, column);
    p.k = lvn_size(a, attr.trans_a ? row : column);
    p.trans_a = attr.trans_a;
    p.trans_b = attr.trans_b;
    return p;
}

static size_t matmul_bytes(const lvn_kernel_args *args)
{
    const lvnc_product p = matmul_product(args);
    return lvnc_scratch_bytes(lvnc_product_bytes(&p));
}

static lvn_status matmul(const lvn_kernel_args *args)
{
    const lvnc_product p = matmul_product(args);
    return lvnc_product_run(args, &p, in<void>(args, 0), in<void>(args, 1), NULL,
                            out<void>(args, 0), lvnc_scratch_of(args));
}

/* ---- linear: x (N, I) w (O, I)^T + b (O) ---- */

static lvnc_product linear_product(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0], *w = args->in[1], *bias = args->in[2];
    lvnc_product p = product_of(x, w, args->out[0]);
    p.m = lvn_size(x, 0);
    p.n = lvn_size(w, 0);
    p.k = lvn_size(x, 1);
    p.trans_b = true;
    p.has_bias = bias != NULL;
    p.bias_type = bias == NULL ? p.y_type : lvn_tensor_dtype(bias);
    return p;
}

static size_t linear_bytes(const lvn_kernel_args *args)
{
    const lvnc_product p = linear_product(args);
    return lvnc_scratch_bytes(lvnc_product_bytes(&p));
}

static lvn_status linear(const lvn_kernel_args *args)
{
    const lvnc_product p = linear_product(args);
    return lvnc_product_run(args, &p, in<void>(args, 0), in<void>(args, 1),
                            p.has_bias ? in<void>(args, 2) : NULL, out<void>(args, 0),
                            lvnc_scratch_of(args));
}

/* ---- its input: dx (N, I) = dy (N, O) w (O, I) ---- */

static lvnc_product input_product(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0], *w = args->in[1];
    lvnc_product p = product_of(dy, w, args->out[0]);
    p.m = lvn_size(dy, 0);
    p.n = lvn_size(w, 1);
    p.k = lvn_size(dy, 1);
    return p;
}

static size_t input_bytes(const lvn_kernel_args *args)
{
    const lvnc_product p = input_product(args);
    return lvnc_scratch_bytes(lvnc_product_bytes(&p));
}

static lvn_status linear_grad_input(const lvn_kernel_args *args)
{
    const lvnc_product p = input_product(args);
    return lvnc_product_run(args, &p, in<void>(args, 0), in<void>(args, 1), NULL,
                            out<void>(args, 0), lvnc_scratch_of(args));
}

/* ---- its weight and bias: dw (O, I) = dy (N, O)^T x (N, I), db (O) = sum of dy ---- */

static lvnc_product weight_product(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0], *x = args->in[1];
    lvnc_product p = product_of(dy, x, args->out[0]);
    p.m = lvn_size(dy, 1);
    p.n = lvn_size(x, 1);
    p.k = lvn_size(dy, 0);
    p.trans_a = true;
    return p;
}

/* One after the other in the same memory. */
static size_t weight_bytes(const lvn_kernel_args *args)
{
    const lvnc_product p = weight_product(args);
    const size_t product = lvnc_product_bytes(&p), sums = lvnc_column_sums_bytes(p.k, p.m);
    return lvnc_scratch_bytes(product > sums ? product : sums);
}

static lvn_status linear_grad_weight(const lvn_kernel_args *args)
{
    const lvnc_product p = weight_product(args);
    LVN_TRY(lvnc_product_run(args, &p, in<void>(args, 0), in<void>(args, 1), NULL,
                             out<void>(args, 0), lvnc_scratch_of(args)));
    if (args->out[1] == NULL) {
        return LVN_OK;
    }
    return lvnc_column_sums(args->stream, args->op->name, in<void>(args, 0), p.a_type, p.k, p.m,
                            out<void>(args, 1), lvn_tensor_dtype(args->out[1]),
                            lvnc_scratch_of(args));
}

static const lvn_backend_kernel kernels[] = {
    {"matmul", matmul, FLOATS, 0, matmul_bytes},
    {"linear", linear, FLOATS, 0, linear_bytes},
    {"linear_grad_input", linear_grad_input, FLOATS, 0, input_bytes},
    {"linear_grad_weight", linear_grad_weight, FLOATS, 0, weight_bytes},
};
extern const kernel_rows rows_matmul;
const kernel_rows rows_matmul = ROWS(kernels);
