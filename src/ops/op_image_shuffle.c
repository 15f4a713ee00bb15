/* Pixel shuffle and its inverse (Shi et al. 2016, section 2.2): channels become pixels and pixels
 * channels. A reshape, a permutation and a reshape, each with its gradient. */
#include "autograd/tape.h"

static bool divides(const char *op, const lvn_tensor *x, bool ok, int factor, const char *what)
{
    char shape[96];
    if (x->ndim != 4 || factor < 1 || !ok) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "%s: x is %s, the factor %d; x must have 4 axes (batch, height, width, "
                      "channels) and %s",
                      op, lvni_tensor_shape_string(x->ndim, x->shape, shape), factor, what);
        return false;
    }
    return true;
}

lvn_tensor *lvn_pixel_shuffle(lvn_tensor *x, int factor)
{
    if (x == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail("pixel_shuffle");
    }
    const int64_t r = factor, *s = x->shape;
    if (!divides("pixel_shuffle", x, x->ndim == 4 && r >= 1 && s[3] % (r * r) == 0, factor,
                 "a multiple of factor * factor channels")) {
        return lvni_autograd_op_fail("pixel_shuffle");
    }
    /* row, w, c, i, j */
    lvn_tensor *parts =
        lvn_reshape(x, 5, (const int64_t[]){s[0] * s[1], s[2], s[3] / (r * r), r, r});
    parts = lvn_permute(parts, (const int[]){0, 3, 1, 4, 2}, 5);
    return lvn_reshape(parts, 4, (const int64_t[]){s[0], s[1] * r, s[2] * r, s[3] / (r * r)});
}

lvn_tensor *lvn_pixel_unshuffle(lvn_tensor *x, int factor)
{
    if (x == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail("pixel_unshuffle");
    }
    const int64_t r = factor, *s = x->shape;
    if (!divides("pixel_unshuffle", x, x->ndim == 4 && r >= 1 && s[1] % r == 0 && s[2] % r == 0,
                 factor, "a height and a width that are multiples of the factor")) {
        return lvni_autograd_op_fail("pixel_unshuffle");
    }
    /* row, i, w, j, c */
    lvn_tensor *parts =
        lvn_reshape(x, 5, (const int64_t[]){s[0] * (s[1] / r), r, s[2] / r, r, s[3]});
    parts = lvn_permute(parts, (const int[]){0, 2, 4, 1, 3}, 5);
    return lvn_reshape(parts, 4, (const int64_t[]){s[0], s[1] / r, s[2] / r, s[3] * r * r});
}
