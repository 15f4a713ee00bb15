/* Reference kernels: convolution and its two gradients. All three visit the same terms
 *     y[n][oh][ow][o] += x[n][oh * stride - padding + kh * dilation][...][group of o][i] *
 *       w[o][kh][kw][i]
 * and differ in which of the three tensors is summed into. */
#include "kernels/ref/ref_impl.h"

typedef struct term {
    int64_t x, w, y; /* elements */
    int64_t o;
} term;

typedef struct sizes {
    int64_t n, h, w, i, oh, ow, o, kh, kw;
} sizes;

typedef void (*visitor)(term t, double *sum, const double *p, const double *q);

/* One place of the window: all input channels of the group of o. */
static void visit_channels(const sizes *s, const lvn_conv_attr *a, int64_t pixel, int64_t tap,
                           int64_t y, int64_t o, visitor visit, double *sum, const double *p,
                           const double *q)
{
    const int64_t per_group = s->i / a->groups;
    const int64_t group = o / (s->o / a->groups);
    for (int64_t i = 0; i < per_group; i++) {
        const term t = {.x = pixel * s->i + group * per_group + i,
                        .w = (o * s->kh * s->kw + tap) * per_group + i,
                        .y = y,
                        .o = o};
        visit(t, sum, p, q);
    }
}

/* One output element: all places of its window that lie in the image. */
static void visit_window(const sizes *s, const lvn_conv_attr *a, int64_t y, visitor visit,
                         double *sum, const double *p, const double *q)
{
    const int64_t o = y % s->o, ow = y / s->o % s->ow, oh = y / s->o / s->ow % s->oh,
                  n = y / s->o / s->ow / s->oh;
    for (int64_t kh = 0; kh < s->kh; kh++) {
        for (int64_t kw = 0; kw < s->kw; kw++) {
            const int64_t h = oh * a->stride[0] - a->padding[0] + kh * a->dilation[0];
            const int64_t w = ow * a->stride[1] - a->padding[1] + kw * a->dilation[1];
            if (h >= 0 && h < s->h && w >= 0 && w < s->w) {
                visit_channels(s, a, (n * s->h + h) * s->w + w, kh * s->kw + kw, y, o, visit, sum,
                               p, q);
            }
        }
    }
}

static void visit_all(const sizes *s, const lvn_conv_attr *a, visitor visit, double *sum,
                      const double *p, const double *q)
{
    const int64_t outputs = s->n * s->oh * s->ow * s->o;
    for (int64_t y = 0; y < outputs; y++) {
        visit_window(s, a, y, visit, sum, p, q);
    }
}

static sizes make_sizes(const int64_t *x, const int64_t *w, const int64_t *y)
{
    return (sizes){.n = x[0],
                   .h = x[1],
                   .w = x[2],
                   .i = x[3],
                   .oh = y[1],
                   .ow = y[2],
                   .o = y[3],
                   .kh = w[1],
                   .kw = w[2]};
}

static void into_y(term t, double *y, const double *x, const double *w)
{
    y[t.y] += x[t.x] * w[t.w];
}
static void into_x(term t, double *dx, const double *dy, const double *w)
{
    dx[t.x] += dy[t.y] * w[t.w];
}
static void into_w(term t, double *dw, const double *dy, const double *x)
{
    dw[t.w] += dy[t.y] * x[t.x];
}

lvn_status lvni_ref_conv2d(const lvn_kernel_args *args)
{
    const double *bias = lvni_ref_optional_in(args, 2);
    double *y = lvni_ref_out(args, 0);
    const sizes s = make_sizes(args->in[0]->shape, args->in[1]->shape, args->out[0]->shape);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        y[e] = bias == NULL ? 0.0 : bias[e % s.o];
    }
    visit_all(&s, args->attr, into_y, y, lvni_ref_in(args, 0), lvni_ref_in(args, 1));
    return LVN_OK;
}

lvn_status lvni_ref_conv2d_grad_input(const lvn_kernel_args *args)
{
    double *dx = lvni_ref_out(args, 0);
    const sizes s = make_sizes(args->out[0]->shape, args->in[1]->shape, args->in[0]->shape);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        dx[e] = 0.0;
    }
    visit_all(&s, args->attr, into_x, dx, lvni_ref_in(args, 0), lvni_ref_in(args, 1));
    return LVN_OK;
}

lvn_status lvni_ref_conv_transpose2d(const lvn_kernel_args *args)
{
    const double *bias = lvni_ref_optional_in(args, 2);
    double *y = lvni_ref_out(args, 0);
    LVN_TRY(lvni_ref_conv2d_grad_input(args));
    const int64_t n = lvn_numel(args->out[0]), channels = args->out[0]->shape[3];
    for (int64_t e = 0; e < n && bias != NULL; e++) {
        y[e] += bias[e % channels];
    }
    return LVN_OK;
}

lvn_status lvni_ref_conv2d_grad_weight(const lvn_kernel_args *args)
{
    const double *dy = lvni_ref_in(args, 0);
    double *dw = lvni_ref_out(args, 0), *db = lvni_ref_optional_out(args, 1);
    const sizes s = make_sizes(args->in[1]->shape, args->out[0]->shape, args->in[0]->shape);
    const int64_t n = lvn_numel(args->out[0]), n_dy = lvn_numel(args->in[0]);
    for (int64_t e = 0; e < n; e++) {
        dw[e] = 0.0;
    }
    visit_all(&s, args->attr, into_w, dw, dy, lvni_ref_in(args, 1));
    for (int64_t o = 0; o < s.o && db != NULL; o++) {
        db[o] = 0.0;
    }
    for (int64_t e = 0; e < n_dy && db != NULL; e++) {
        db[e % s.o] += dy[e];
    }
    return LVN_OK;
}
