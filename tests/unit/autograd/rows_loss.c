/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_loss.h. */
#include "gradient_rows.h"

FN(softmax, lvn_softmax(in[0]))
FN(log_softmax, lvn_log_softmax(in[0]))

static const row rows[] = {
    {"softmax", fn_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL},
    {"softmax", fn_softmax, SMOOTH, 1, {S(2, 2, 4)}, NORMAL},
    {"log_softmax", fn_log_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL},
};

const row_table rows_loss = {rows, sizeof rows / sizeof *rows};
