/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_loss.h. */
#include "gradient_rows.h"

FN(softmax, lvn_softmax(in[0]))
FN(log_softmax, lvn_log_softmax(in[0]))

FN(mse, lvn_mse_loss(in[0], in[1]))
FN(smooth_l1, lvn_smooth_l1_loss(in[0], in[1], 1.3))

FN(logsumexp_last, lvn_logsumexp(in[0], -1))
FN(logsumexp_first, lvn_logsumexp(in[0], 0))
FN(soft, lvn_soft_cross_entropy(in[0], in[1]))
FN(kl, lvn_kl_div(in[0], in[1]))
FN(kl_log, lvn_kl_div(in[0], in[1], .log_target = true, .reduction = LVN_REDUCTION_SUM))

static const row rows[] = {
    {"softmax", fn_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"softmax", fn_softmax, SMOOTH, 1, {S(2, 2, 4)}, NORMAL, .second = true},
    {"log_softmax", fn_log_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"logsumexp", fn_logsumexp_last, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"logsumexp", fn_logsumexp_first, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"soft_cross_entropy_with",
     fn_soft,
     SMOOTH,
     2,
     {S(2, 3, 5), S(2, 3, 5)},
     NORMAL,
     .second = true},

    {"kl_div_with", fn_kl, CURVED, 2, {S(3, 5), S(3, 5)}, POSITIVE, .second = true},
    {"kl_div_with", fn_kl_log, SMOOTH, 2, {S(3, 5), S(3, 5)}, NORMAL, .second = true},
    {"mse_loss_with", fn_mse, SMOOTH, 2, {S(3, 5), S(3, 5)}, NORMAL, .second = true},
    {"smooth_l1_loss_with", fn_smooth_l1, SMOOTH, 2, {S(3, 5), S(3, 5)}, APART, .second = true},
};

const row_table rows_loss = {rows, sizeof rows / sizeof *rows};
