/* One step of recurrent cells, of matrix products and gates. */
#include "autograd/tape.h"

#include <string.h>

/* x (N, I), h (N, H), w_ih (gates H, I), w_hh (gates H, H); the linear layers check the rest. */
static bool fit(const char *op, int64_t gates, const lvn_tensor *x, const lvn_tensor *h,
                const lvn_tensor *w_ih, const lvn_tensor *w_hh)
{
    const bool good = x->ndim == 2 && h->ndim == 2 && w_ih->ndim == 2 && w_hh->ndim == 2 &&
                      x->shape[0] == h->shape[0] && w_ih->shape[0] == gates * h->shape[1] &&
                      w_hh->shape[0] == w_ih->shape[0] && w_ih->shape[1] == x->shape[1] &&
                      w_hh->shape[1] == h->shape[1];
    if (!good) {
        char text[4][96];
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "%s: x is %s, h %s, w_ih %s, w_hh %s; they must be (N, I), (N, H), (%lld H, "
                      "I), (%lld H, H)",
                      op, lvni_tensor_shape_string(x->ndim, x->shape, text[0]),
                      lvni_tensor_shape_string(h->ndim, h->shape, text[1]),
                      lvni_tensor_shape_string(w_ih->ndim, w_ih->shape, text[2]),
                      lvni_tensor_shape_string(w_hh->ndim, w_hh->shape, text[3]), (long long)gates,
                      (long long)gates);
    }
    return good;
}

lvn_tensor *lvn_gru_cell(lvn_tensor *x, lvn_tensor *h, lvn_tensor *w_ih, lvn_tensor *w_hh,
                         lvn_tensor *b_ih, lvn_tensor *b_hh)
{
    if (x == NULL || h == NULL || w_ih == NULL || w_hh == NULL || lvni_autograd_scope_failed() ||
        !fit("gru_cell", 3, x, h, w_ih, w_hh)) {
        return lvni_autograd_op_fail("gru_cell");
    }
    const int64_t n = h->shape[1];
    lvn_tensor *from_x = lvn_linear(x, w_ih, b_ih), *from_h = lvn_linear(h, w_hh, b_hh);
    /* reset and update gates at once */
    lvn_tensor *gates =
        lvn_sigmoid(lvn_add(lvn_slice(from_x, 1, 0, 2 * n), lvn_slice(from_h, 1, 0, 2 * n)));
    lvn_tensor *reset = lvn_slice(gates, 1, 0, n), *update = lvn_slice(gates, 1, n, 2 * n);
    lvn_tensor *fresh = lvn_tanh(lvn_add(lvn_slice(from_x, 1, 2 * n, 3 * n),
                                         lvn_mul(reset, lvn_slice(from_h, 1, 2 * n, 3 * n))));
    return lvn_add(fresh, lvn_mul(update, lvn_sub(h, fresh)));
}

lvn_tensor *lvn_lstm_cell(lvn_tensor *x, lvn_tensor *h, lvn_tensor *c, lvn_tensor *w_ih,
                          lvn_tensor *w_hh, lvn_tensor *b_ih, lvn_tensor *b_hh, lvn_tensor **c_next)
{
    *c_next = NULL;
    if (x == NULL || h == NULL || c == NULL || w_ih == NULL || w_hh == NULL ||
        lvni_autograd_scope_failed() || !fit("lstm_cell", 4, x, h, w_ih, w_hh)) {
        return lvni_autograd_op_fail("lstm_cell");
    }
    if (!lvni_tensor_same_shape(h, c)) {
        char a[96], b[96];
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "lstm_cell: h is %s but c is %s; both must have one shape",
                      lvni_tensor_shape_string(h->ndim, h->shape, a),
                      lvni_tensor_shape_string(c->ndim, c->shape, b));
        return lvni_autograd_op_fail("lstm_cell");
    }
    const int64_t n = h->shape[1];
    lvn_tensor *sums = lvn_add(lvn_linear(x, w_ih, b_ih), lvn_linear(h, w_hh, b_hh));
    /* input and forget gates at once */
    lvn_tensor *gates = lvn_sigmoid(lvn_slice(sums, 1, 0, 2 * n));
    lvn_tensor *input = lvn_slice(gates, 1, 0, n), *forget = lvn_slice(gates, 1, n, 2 * n),
               *fresh = lvn_tanh(lvn_slice(sums, 1, 2 * n, 3 * n)),
               *output = lvn_sigmoid(lvn_slice(sums, 1, 3 * n, 4 * n));
    lvn_tensor *cell = lvn_add(lvn_mul(forget, c), lvn_mul(input, fresh));
    lvn_tensor *y = lvn_mul(output, lvn_tanh(cell));
    *c_next = y == NULL ? NULL : cell;
    return y;
}
