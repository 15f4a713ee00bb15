/* How parameters lie in files written for others (model.h): PyTorch keeps channels before rows and
 * columns. Called by export and by whoever reads weights. */
#include "nn/model.h"

#include <string.h>

/* (first, H, W, C) here, (first, C, H, W) there. */
static void view_of(const lvni_nn_parameter *p, int64_t v[4])
{
    if (p->layout == LVNI_LAYOUT_CONV) {
        memcpy(v, p->tensor->shape, 4 * sizeof *v);
    } else if (p->layout == LVNI_LAYOUT_TRANSPOSED) {
        v[0] = v[2] = 1; /* one image of O pixels with I channels */
        v[1] = p->tensor->shape[0];
        v[3] = p->tensor->shape[1];
    } else {
        v[0] = p->tensor->shape[0];
        memcpy(v + 1, p->image, 3 * sizeof *v);
    }
}

int lvni_nn_parameter_file_shape(const lvni_nn_parameter *p, int64_t shape[LVN_MAX_NDIM])
{
    const lvn_tensor *t = p->tensor;
    memcpy(shape, t->shape, (size_t)t->ndim * sizeof *shape);
    if (p->layout == LVNI_LAYOUT_CONV) {
        shape[1] = t->shape[3];
        shape[2] = t->shape[1];
        shape[3] = t->shape[2];
    }
    if (p->layout == LVNI_LAYOUT_TRANSPOSED) {
        shape[0] = t->shape[1];
        shape[1] = t->shape[0];
    }
    return t->ndim;
}

static void permute(const lvni_nn_parameter *p, const float *from, float *to, bool to_file)
{
    int64_t v[4];
    view_of(p, v);
    const int64_t hw = v[1] * v[2], c = v[3];
    for (int64_t o = 0; o < v[0]; o++, from += hw * c, to += hw * c) {
        for (int64_t i = 0; i < hw; i++) {
            for (int64_t k = 0; k < c; k++) {
                const int64_t here = i * c + k, there = k * hw + i;
                to[to_file ? there : here] = from[to_file ? here : there];
            }
        }
    }
}

void lvni_nn_parameter_to_file(const lvni_nn_parameter *p, const float *here, float *file)
{
    if (p->layout == LVNI_LAYOUT_PLAIN) {
        memcpy(file, here, (size_t)p->numel * sizeof *file);
    } else {
        permute(p, here, file, true);
    }
}

void lvni_nn_parameter_from_file(const lvni_nn_parameter *p, const float *file, float *here)
{
    if (p->layout == LVNI_LAYOUT_PLAIN) {
        memcpy(here, file, (size_t)p->numel * sizeof *here);
    } else {
        permute(p, file, here, false);
    }
}
