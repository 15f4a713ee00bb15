/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_loss.h. */
#include "gradient_rows.h"

FN(softmax, lvn_softmax(in[0]))
FN(log_softmax, lvn_log_softmax(in[0]))

FN(mse, lvn_mse_loss(in[0], in[1]))
FN(smooth_l1, lvn_smooth_l1_loss(in[0], in[1], 1.3))

static const row rows[] = {
    {"softmax", fn_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"softmax", fn_softmax, SMOOTH, 1, {S(2, 2, 4)}, NORMAL, .second = true},
    {"log_softmax", fn_log_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"mse_loss_with", fn_mse, SMOOTH, 2, {S(3, 5), S(3, 5)}, NORMAL, .second = true},
    {"smooth_l1_loss_with", fn_smooth_l1, SMOOTH, 2, {S(3, 5), S(3, 5)}, APART},
};

const row_table rows_loss = {rows, sizeof rows / sizeof *rows};
