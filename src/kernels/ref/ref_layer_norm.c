/* Reference kernels: layer norm (Ba, Kiros, Hinton 2016, eq. 4) and group norm (Wu & He 2018, eq. 1
 * to 7): mean, then squared distances, then y = (x - mean) rstd gamma + beta. Both are one loop
 * over sets of values; a set is a row or a sample's group. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

/* Value i of set s lies at element at(s, i); parameter p(s, i) belongs to it. */
typedef struct sets {
    int64_t n, size; /* how many, values in each */
    /* group norm; layer norm: one pixel, one group, channels = the row */
    int64_t samples, pixels, channels, groups;
} sets;

static sets rows_of(const lvn_tensor *x, int axes)
{
    sets s = {.n = 1, .size = 1};
    for (int i = 0; i < x->ndim; i++) {
        *(i < x->ndim - axes ? &s.n : &s.size) *= x->shape[i];
    }
    s.samples = s.n;
    s.pixels = s.groups = 1;
    s.channels = s.size;
    return s;
}

static sets groups_of(const lvn_tensor *x, int groups)
{
    sets s = {
        .samples = x->shape[0], .pixels = 1, .channels = x->shape[x->ndim - 1], .groups = groups};
    for (int i = 1; i < x->ndim - 1; i++) {
        s.pixels *= x->shape[i];
    }
    s.n = s.samples * groups;
    s.size = s.pixels * s.channels / groups;
    return s;
}

static int64_t parameter(const sets *s, int64_t set, int64_t i)
{
    const int64_t width = s->channels / s->groups;
    return set % s->groups * width + i % width;
}

static int64_t at(const sets *s, int64_t set, int64_t i)
{
    const int64_t width = s->channels / s->groups;
    return (set / s->groups * s->pixels + i / width) * s->channels + parameter(s, set, i);
}

static void forward(const lvn_kernel_args *args, const sets *s, double eps)
{
    const double *x = lvni_ref_in(args, 0), *gamma = lvni_ref_optional_in(args, 1),
                 *beta = lvni_ref_optional_in(args, 2);
    double *y = lvni_ref_out(args, 0), *mean = lvni_ref_out(args, 1), *rstd = lvni_ref_out(args, 2);
    for (int64_t set = 0; set < s->n; set++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < s->size; i++) {
            sum += x[at(s, set, i)];
        }
        mean[set] = sum / (double)s->size;
        for (int64_t i = 0; i < s->size; i++) {
            const double d = x[at(s, set, i)] - mean[set];
            squares += d * d;
        }
        rstd[set] = 1.0 / lvni_core_sqrt(squares / (double)s->size + eps);
        for (int64_t i = 0; i < s->size; i++) {
            const int64_t p = parameter(s, set, i);
            const double normal = (x[at(s, set, i)] - mean[set]) * rstd[set];
            y[at(s, set, i)] =
                normal * (gamma == NULL ? 1.0 : gamma[p]) + (beta == NULL ? 0.0 : beta[p]);
        }
    }
}

/* With h = dy gamma and n = (x - mean) rstd: dx = rstd (h - mean(h) - n mean(h n)), dgamma = sum dy
 * n, dbeta = sum dy. */
static void backward(const lvn_kernel_args *args, const sets *s)
{
    const double *dy = lvni_ref_in(args, 0), *x = lvni_ref_in(args, 1),
                 *mean = lvni_ref_in(args, 2), *rstd = lvni_ref_in(args, 3);
    const double *gamma = lvni_ref_optional_in(args, 4);
    double *dx = lvni_ref_out(args, 0), *dgamma = lvni_ref_optional_out(args, 1),
           *dbeta = lvni_ref_optional_out(args, 2);
    for (int64_t c = 0; c < s->channels; c++) {
        if (dgamma != NULL) {
            dgamma[c] = 0.0;
        }
        if (dbeta != NULL) {
            dbeta[c] = 0.0;
        }
    }
    for (int64_t set = 0; set < s->n; set++) {
        double sum_h = 0.0, sum_hn = 0.0;
        for (int64_t i = 0; i < s->size; i++) {
            const int64_t e = at(s, set, i), p = parameter(s, set, i);
            const double h = dy[e] * (gamma == NULL ? 1.0 : gamma[p]),
                         n = (x[e] - mean[set]) * rstd[set];
            sum_h += h;
            sum_hn += h * n;
            if (dgamma != NULL) {
                dgamma[p] += dy[e] * n;
            }
            if (dbeta != NULL) {
                dbeta[p] += dy[e];
            }
        }
        for (int64_t i = 0; i < s->size; i++) {
            const int64_t e = at(s, set, i), p = parameter(s, set, i);
            const double h = dy[e] * (gamma == NULL ? 1.0 : gamma[p]),
                         n = (x[e] - mean[set]) * rstd[set];
            dx[e] = rstd[set] * (h - sum_h / (double)s->size - n * sum_hn / (double)s->size);
        }
    }
}

lvn_status lvni_ref_layer_norm(const lvn_kernel_args *args)
{
    const lvn_layer_norm_attr *attr = args->attr;
    const sets s = rows_of(args->in[0], attr->axes);
    forward(args, &s, attr->eps);
    return LVN_OK;
}

lvn_status lvni_ref_layer_norm_grad(const lvn_kernel_args *args)
{
    const sets s = rows_of(args->in[1], ((const lvn_layer_norm_attr *)args->attr)->axes);
    backward(args, &s);
    return LVN_OK;
}

lvn_status lvni_ref_group_norm(const lvn_kernel_args *args)
{
    const lvn_group_norm_attr *attr = args->attr;
    const sets s = groups_of(args->in[0], attr->groups);
    forward(args, &s, attr->eps);
    return LVN_OK;
}

lvn_status lvni_ref_group_norm_grad(const lvn_kernel_args *args)
{
    const sets s = groups_of(args->in[1], ((const lvn_group_norm_attr *)args->attr)->groups);
    backward(args, &s);
    return LVN_OK;
}
