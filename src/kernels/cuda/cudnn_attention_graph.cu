/* The graph of the operations that attention is made of, in which cuDNN recognises its fused
 * engines (its documentation, "Fused Flash Attention"): s = scale q k^T,   log-sum of each query:
 * max + log sum e^(s - max),   y = soft-max(s) v, and for the gradient, with p = e^(s - log-sum),
 *     dv = p^T dy,   ds = p (dy v^T - dy . y) scale,   dk = ds^T q,   dq = ds k.
 * The gradient of the queries is a product of its own: then ds lies in memory in 16 bits, and its
 * sums have one order. Engines that add to dq as they go have another order in each run,
 * which their notes do not mention. */
#ifndef LEVIN_CUDA_ON_HOST

#include "cudnn.cuh"

namespace dnn
{
enum { MOST_OPERATIONS = 24 };

struct sheet {
    builder *b;
    const attention_problem *a;
    int64_t next;
    descriptor operation[MOST_OPERATIONS];
    int n;
};

/* (samples, heads, positions, features), or with the last two exchanged */
static descriptor add_view(sheet *s, attention_name n, const view_strides &v, int positions,
                           int width, bool transposed = false)
{
    const int64_t dims[4] = {s->a->samples, s->a->heads, transposed ? width : positions,
                             transposed ? positions : width},
                  strides[4] = {v.sample, v.head, transposed ? 1 : v.step, transposed ? v.step : 1};
    return add_tensor(s->b, n, IN_MEMORY, type_of((lvn_dtype)s->a->type), s->a->align, dims,
                      strides);
}

static descriptor add_number(sheet *s, attention_name n)
{
    const int64_t ones[4] = {1, 1, 1, 1};
    return add_tensor(s->b, n, ON_HOST, CUDNN_DATA_FLOAT, 4, ones, ones);
}

/* A number of each query: (samples, heads, queries, 1) */
static descriptor add_column(sheet *s, int64_t n, place p)
{
    const int64_t queries = s->a->queries, heads = s->a->heads,
                  dims[4] = {s->a->samples, heads, queries, 1},
                  strides[4] = {heads * queries, queries, 1, 1};
    return add_tensor(s->b, n, p, CUDNN_DATA_FLOAT, 16, dims, strides);
}
static descriptor column_between(sheet *s)
{
    return add_column(s, s->next++, BETWEEN);
}

/* A table of all scores that is never in memory: (samples, heads, queries, keys) */
static descriptor add_table(sheet *s, cudnnDataType_t type)
{
    const int64_t q = s->a->queries, k = s->a->keys, dims[4] = {s->a->samples, s->a->heads, q, k},
                  strides[4] = {s->a->heads * q * k, q * k, k, 1};
    return add_tensor(s->b, s->next++, BETWEEN, type, 16, dims, strides);
}

static void add_operation(sheet *s, descriptor operation)
{
    finish(s->b, operation);
    if (s->n == MOST_OPERATIONS) {
        s->b->status = CUDNN_STATUS_INTERNAL_ERROR;
    } else {
        s->operation[s->n++] = operation;
    }
}

static void add_product(sheet *s, descriptor a, descriptor b, descriptor y)
{
    descriptor product = make(s->b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(s->b, product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(s->b, product);
    descriptor op = make(s->b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    refer(s->b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    refer(s->b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    refer(s->b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    refer(s->b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
    add_operation(s, op);
}

/* y = mode(x, b), or, with t, t ? x : b; axis: of CUDNN_POINTWISE_GEN_INDEX */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type; /* to compute in */
    descriptor x, b, t, y;
    int axis;
};
static void add_pointwise(sheet *s, const pointwise &p)
{
    descriptor mode = make(s->b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(s->b, mode, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode);
    set_type(s->b, mode, CUDNN_ATTR_POINTWISE_MATH_PREC, p.type);
    if (p.mode == CUDNN_POINTWISE_GEN_INDEX) {
        set_int(s->b, mode, CUDNN_ATTR_POINTWISE_AXIS, p.axis);
    }
    finish(s->b, mode);
    descriptor op = make(s->b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refer(s->b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
    refer(s->b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    if (p.b != NULL) {
        refer(s->b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    }
    if (p.t != NULL) {
        refer(s->b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t);
    }
    refer(s->b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
    add_operation(s, op);
}
static descriptor compute(sheet *s, cudnnPointwiseMode_t mode, descriptor x, descriptor b,
                          descriptor y)
{
    add_pointwise(s, pointwise{mode, CUDNN_DATA_FLOAT, x, b, NULL, y, 0});
    return y;
}
/* ... to a table in f32 */
static descriptor compute(sheet *s, cudnnPointwiseMode_t mode, descriptor x, descriptor b)
{
    return compute(s, mode, x, b, add_table(s, CUDNN_DATA_FLOAT));
}

static descriptor reduce(sheet *s, cudnnReduceTensorOp_t how, descriptor x, descriptor y)
{
    descriptor reduction = make(s->b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(s->b, reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
        &how);
    set_type(s->b, reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(s->b, reduction);
    descriptor op = make(s->b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    refer(s->b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    refer(s->b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    refer(s->b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    add_operation(s, op);
    return y;
}

static descriptor reshape(sheet *s, descriptor x, descriptor y)
{
    descriptor op = make(s->b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    refer(s->b, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    refer(s->b, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(s, op);
    return y;
}

/* The transpose of a table, in the type of the tensors. */
static descriptor transpose_table(sheet *s, descriptor table)
{
    const int64_t q = s->a->queries, k = s->a->keys, dims[4] = {s->a->samples, s->a->heads, k, q},
                  strides[4] = {s->a->heads * q * k, q * k, 1, k};
    return reshape(
        s, table,
        add_tensor(s->b, s->next++, BETWEEN, type_of((lvn_dtype)s->a->type), 16, dims, strides));
}

/* Where a causal mask hides a key: the number NAME_HIDDEN. */
static descriptor hide_keys(sheet *s, descriptor scores)
{
    if (!s->a->causal) {
        return scores;
    }
    descriptor row = add_table(s, CUDNN_DATA_INT32), column = add_table(s, CUDNN_DATA_INT32),
               sees = add_table(s, CUDNN_DATA_BOOLEAN), y = add_table(s, CUDNN_DATA_FLOAT);
    add_pointwise(
        s, pointwise{CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, scores, NULL, NULL, row, 2});
    add_pointwise(
        s, pointwise{CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, scores, NULL, NULL, column, 3});
    add_pointwise(
        s, pointwise{CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, column, NULL, sees, 0});
    add_pointwise(s, pointwise{CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, scores,
                               add_number(s, NAME_HIDDEN), sees, y, 0});
    return y;
}

static descriptor scores_of(sheet *s, descriptor q, descriptor k_transposed, descriptor scale)
{
    descriptor raw = add_table(s, CUDNN_DATA_FLOAT);
    add_product(s, q, k_transposed, raw);
    return compute(s, CUDNN_POINTWISE_MUL, raw, scale);
}

static void add_forward(sheet *s)
{
    const attention_problem &a = *s->a;
    const cudnnDataType_t type = type_of((lvn_dtype)a.type);
    descriptor scores =
        scores_of(s, add_view(s, NAME_Q, a.q, a.queries, a.d),
                  add_view(s, NAME_K, a.k, a.keys, a.d, true), add_number(s, NAME_SCALE));
    scores = hide_keys(s, scores);
    descriptor top = reduce(s, CUDNN_REDUCE_TENSOR_MAX, scores, column_between(s));
    descriptor below = compute(s, CUDNN_POINTWISE_SUB, scores, top);
    descriptor weights = compute(s, CUDNN_POINTWISE_EXP, below, NULL);
    descriptor sum = reduce(s, CUDNN_REDUCE_TENSOR_ADD, weights, column_between(s));
    descriptor log = compute(s, CUDNN_POINTWISE_LOG, sum, NULL, column_between(s));
    (void)compute(s, CUDNN_POINTWISE_ADD, top, log, add_column(s, NAME_LOG_SUMS, IN_MEMORY));
    descriptor p = compute(s, CUDNN_POINTWISE_DIV, weights, sum, add_table(s, type));
    add_product(s, p, add_view(s, NAME_V, a.v, a.keys, a.e),
                add_view(s, NAME_Y, a.y, a.queries, a.e));
}

/* dy . y of each query */
static descriptor add_means(sheet *s, descriptor dy)
{
    const attention_problem &a = *s->a;
    const int64_t q = a.queries, e = a.e, dims[4] = {a.samples, a.heads, q, e},
                  strides[4] = {a.heads * q * e, q * e, e, 1};
    descriptor both = add_tensor(s->b, s->next++, BETWEEN, CUDNN_DATA_FLOAT, 16, dims, strides);
    (void)compute(s, CUDNN_POINTWISE_MUL, dy, add_view(s, NAME_Y, a.y, a.queries, a.e), both);
    descriptor sum = reduce(s, CUDNN_REDUCE_TENSOR_ADD, both, column_between(s));
    /* a factor of dropout, which the engines look for */
    return compute(s, CUDNN_POINTWISE_MUL, sum, add_number(s, NAME_ONE),
                   add_column(s, NAME_MEANS, IN_MEMORY));
}

static void add_gradient(sheet *s)
{
    const attention_problem &a = *s->a;
    const cudnnDataType_t type = type_of((lvn_dtype)a.type);
    descriptor q = add_view(s, NAME_Q, a.q, a.queries, a.d),
               k = add_view(s, NAME_K, a.k, a.keys, a.d, true),
               v = add_view(s, NAME_V, a.v, a.keys, a.e, true),
               dy = add_view(s, NAME_DY, a.dy, a.queries, a.e), scale = add_number(s, NAME_SCALE);
    descriptor means = add_means(s, dy);
    descriptor logs = compute(s, CUDNN_POINTWISE_SUB, scores_of(s, q, k, scale),
                              add_column(s, NAME_LOG_SUMS, IN_MEMORY));
    descriptor p = compute(s, CUDNN_POINTWISE_EXP, hide_keys(s, logs), NULL);
    add_product(s, transpose_table(s, p), dy, add_view(s, NAME_DV, a.dv, a.keys, a.e));
    descriptor growth = add_table(s, CUDNN_DATA_FLOAT);
    add_product(s, dy, v, growth);
    descriptor slope =
        compute(s, CUDNN_POINTWISE_MUL, compute(s, CUDNN_POINTWISE_SUB, growth, means), p);
    descriptor ds = compute(s, CUDNN_POINTWISE_MUL, slope, scale, add_table(s, type));
    add_product(s, transpose_table(s, ds), q, add_view(s, NAME_DK, a.dk, a.keys, a.d));
    const int64_t dims[4] = {a.samples, a.heads, a.keys, a.d},
                  strides[4] = {a.k.sample, a.k.head, a.k.step, 1};
    descriptor upright = add_tensor(s->b, s->next++, BETWEEN, type, a.align, dims, strides);
    add_product(s, ds, reshape(s, k, upright), add_view(s, NAME_DQ, a.dq, a.queries, a.d));
}

descriptor add_attention_graph(builder *b, const target &to, const void *problem)
{
    sheet s = {};
    s.b = b;
    s.a = static_cast<const attention_problem *>(problem);
    s.next = BETWEEN_THEM;
    if (s.a->gradient) {
        add_gradient(&s);
    } else {
        add_forward(&s);
    }
    return add_graph(b, to, s.operation, s.n);
}
} // namespace dnn

#endif
