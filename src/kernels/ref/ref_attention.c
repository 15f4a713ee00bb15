/* Reference kernels: scaled dot-product attention (Vaswani et al. 2017, eq. 1), of separate tensors
 * or of one that holds q, k and v side by side. One query at a time; the gradient finds the
 * probabilities again from the log of their sum. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

typedef struct view {
    double *data;
    int64_t step; /* doubles from one position to the next */
} view;

/* All (sample, head) pairs of an op; `position` 0 of sample n, head h of a tensor with `width`
 * features per head. */
typedef struct attention {
    int64_t n, heads, queries, keys, d, e;
    bool packed; /* q, k, v in one tensor */
    lvn_attention_attr attr;
} attention;

static view plain(const lvn_tensor *t, int64_t n, int64_t h)
{
    const int64_t width = t->shape[3], step = t->shape[2] * width;
    return (view){(double *)t->data + n * t->shape[1] * step + h * width, step};
}

/* Part 0, 1, 2: q, k, v. */
static view part(const lvn_tensor *qkv, int64_t n, int64_t h, int which)
{
    const int64_t width = qkv->shape[4], step = 3 * qkv->shape[3] * width;
    return (view){
        (double *)qkv->data + n * qkv->shape[1] * step + (which * qkv->shape[3] + h) * width, step};
}

/* One head of one sample. */
typedef struct head {
    view q, k, v, y, dy, dq, dk, dv;
    double *log_sums;
    bool wants_dk, wants_dv;
} head;

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static double score(const attention *a, const head *h, int64_t t, int64_t s)
{
    return a->attr.scale * dot(h->q.data + t * h->q.step, h->k.data + s * h->k.step, a->d);
}

static void forward_query(const attention *a, const head *h, int64_t t)
{
    const int64_t seen = a->attr.causal ? t + 1 : a->keys;
    double *y = h->y.data + t * h->y.step;
    double top = score(a, h, t, 0), sum = 0.0;
    for (int64_t s = 1; s < seen; s++) {
        const double value = score(a, h, t, s);
        top = value > top || value != value ? value : top;
    }
    for (int64_t e = 0; e < a->e; e++) {
        y[e] = 0.0;
    }
    for (int64_t s = 0; s < seen; s++) {
        const double weight = lvni_core_exp(score(a, h, t, s) - top);
        sum += weight;
        for (int64_t e = 0; e < a->e; e++) {
            y[e] += weight * h->v.data[s * h->v.step + e];
        }
    }
    for (int64_t e = 0; e < a->e; e++) {
        y[e] /= sum;
    }
    h->log_sums[t] = top + lvni_core_log(sum);
}

/* p = softmax(scores): dv_s += p_s dy, dscore_s = p_s (dy . v_s - dy . y) scale, dq += dscore_s
 * k_s, dk_s += dscore_s q. */
static void backward_query(const attention *a, const head *h, int64_t t)
{
    const int64_t seen = a->attr.causal ? t + 1 : a->keys;
    const double *dy = h->dy.data + t * h->dy.step, *q = h->q.data + t * h->q.step;
    double *dq = h->dq.data + t * h->dq.step;
    const double mean = dot(dy, h->y.data + t * h->y.step, a->e);
    for (int64_t s = 0; s < seen; s++) {
        const double p = lvni_core_exp(score(a, h, t, s) - h->log_sums[t]);
        const double slope = p * (dot(dy, h->v.data + s * h->v.step, a->e) - mean) * a->attr.scale;
        for (int64_t e = 0; e < a->e && h->wants_dv; e++) {
            h->dv.data[s * h->dv.step + e] += p * dy[e];
        }
        for (int64_t i = 0; i < a->d; i++) {
            dq[i] += slope * h->k.data[s * h->k.step + i];
        }
        for (int64_t i = 0; i < a->d && h->wants_dk; i++) {
            h->dk.data[s * h->dk.step + i] += slope * q[i];
        }
    }
}

static attention describe(const lvn_kernel_args *args, int first, bool packed)
{
    const lvn_tensor *q = args->in[first];
    const lvn_attention_attr *attr = args->attr;
    if (packed) {
        return (attention){q->shape[0], q->shape[3], q->shape[1], q->shape[1],
                           q->shape[4], q->shape[4], true,        *attr};
    }
    const lvn_tensor *k = args->in[first + 1], *v = args->in[first + 2];
    return (attention){q->shape[0], q->shape[2], q->shape[1], k->shape[1],
                       q->shape[3], v->shape[3], false,       *attr};
}

static head inputs_of(const attention *a, const lvn_kernel_args *args, int first, int64_t n,
                      int64_t h)
{
    const lvn_tensor *const *in = args->in + first;
    return a->packed
               ? (head){.q = part(in[0], n, h, 0),
                        .k = part(in[0], n, h, 1),
                        .v = part(in[0], n, h, 2)}
               : (head){.q = plain(in[0], n, h), .k = plain(in[1], n, h), .v = plain(in[2], n, h)};
}

static lvn_status forward(const lvn_kernel_args *args, bool packed)
{
    const attention a = describe(args, 0, packed);
    for (int64_t n = 0; n < a.n; n++) {
        for (int64_t h = 0; h < a.heads; h++) {
            head one = inputs_of(&a, args, 0, n, h);
            one.y = plain(args->out[0], n, h);
            one.log_sums = lvni_ref_out(args, 1) + (n * a.heads + h) * a.queries;
            for (int64_t t = 0; t < a.queries; t++) {
                forward_query(&a, &one, t);
            }
        }
    }
    return LVN_OK;
}

static void zero(lvn_tensor *t)
{
    for (int64_t e = 0; t != NULL && e < lvn_numel(t); e++) {
        ((double *)t->data)[e] = 0.0;
    }
}

/* in: dy, the inputs, y, log-sums */
static lvn_status backward(const lvn_kernel_args *args, bool packed)
{
    const attention a = describe(args, 1, packed);
    const int y = packed ? 2 : 4;
    for (int i = 0; i < 3; i++) {
        zero(args->out[i]);
    }
    for (int64_t n = 0; n < a.n; n++) {
        for (int64_t h = 0; h < a.heads; h++) {
            head one = inputs_of(&a, args, 1, n, h);
            one.dy = plain(args->in[0], n, h);
            one.y = plain(args->in[y], n, h);
            one.log_sums = (double *)args->in[y + 1]->data + (n * a.heads + h) * a.queries;
            one.dq = packed ? part(args->out[0], n, h, 0) : plain(args->out[0], n, h);
            one.wants_dk = packed || args->out[1] != NULL;
            one.wants_dv = packed || args->out[2] != NULL;
            if (one.wants_dk) {
                one.dk = packed ? part(args->out[0], n, h, 1) : plain(args->out[1], n, h);
            }
            if (one.wants_dv) {
                one.dv = packed ? part(args->out[0], n, h, 2) : plain(args->out[2], n, h);
            }
            for (int64_t t = 0; t < a.queries; t++) {
                backward_query(&a, &one, t);
            }
        }
    }
    return LVN_OK;
}

lvn_status lvni_ref_attention(const lvn_kernel_args *args)
{
    return forward(args, false);
}

lvn_status lvni_ref_attention_grad(const lvn_kernel_args *args)
{
    return backward(args, false);
}

lvn_status lvni_ref_attention_qkv(const lvn_kernel_args *args)
{
    return forward(args, true);
}

lvn_status lvni_ref_attention_qkv_grad(const lvn_kernel_args *args)
{
    return backward(args, true);
}
