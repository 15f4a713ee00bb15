/* Reference kernels: running sums and the order of elements along an axis. */
#include "kernels/ref/ref_impl.h"

#include "core/alloc.h"

#include <stdlib.h>

lvn_status lvni_ref_cumsum(const lvn_kernel_args *args)
{
    const lvn_scan_attr *attr = args->attr;
    const lvni_ref_around a = lvni_ref_split(args->in[0]->ndim, args->in[0]->shape, attr->axis);
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        const int64_t first = line / a.inner * a.size * a.inner + line % a.inner;
        double sum = 0.0;
        for (int64_t s = 0; s < a.size; s++) {
            const int64_t at = first + (attr->reverse ? a.size - 1 - s : s) * a.inner;
            sum += x[at];
            y[at] = sum;
        }
    }
    return LVN_OK;
}

typedef struct entry {
    double x;
    int64_t place;
} entry;

/* -1, 0, 1: a before b, equal, after; NaN is the largest and equal to itself. */
static int compare_values(double a, double b)
{
    if (a != a || b != b) {
        return (a != a) - (b != b);
    }
    return (a > b) - (a < b);
}

static int ascending(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    const int values = compare_values(a->x, b->x);
    return values != 0 ? values : (a->place > b->place) - (a->place < b->place);
}

static int descending(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    const int values = compare_values(b->x, a->x);
    return values != 0 ? values : (a->place > b->place) - (a->place < b->place);
}

lvn_status lvni_ref_argsort(const lvn_kernel_args *args)
{
    const lvn_sort_attr *attr = args->attr;
    const lvni_ref_around a = lvni_ref_split(args->in[0]->ndim, args->in[0]->shape, attr->axis);
    const double *x = lvni_ref_in(args, 0);
    int64_t *y = args->out[0]->data;
    entry *entries = lvni_core_alloc(LVNI_TAG_KERNEL, (size_t)a.size * sizeof *entries);
    if (entries == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        const int64_t o = line / a.inner, i = line % a.inner;
        for (int64_t s = 0; s < a.size; s++) {
            entries[s] = (entry){x[(o * a.size + s) * a.inner + i], s};
        }
        qsort(entries, (size_t)a.size, sizeof *entries, attr->descending ? descending : ascending);
        for (int64_t s = 0; s < attr->keep; s++) {
            y[(o * attr->keep + s) * a.inner + i] = entries[s].place;
        }
    }
    lvni_core_free(entries);
    return LVN_OK;
}
