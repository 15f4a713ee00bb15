/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_norm.h. */
#include "gradient_rows.h"

FN(norm_train, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL))
FN(norm_train_relu, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .relu = true))
FN(norm_train_add, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[3]))
FN(norm_train_both, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[3], .relu = true))
FN(norm_train_own, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[0], .relu = true))

static const row rows[] = {
    {"batch_norm_train_with", fn_norm_train, CURVED, 3, {S(2, 3, 2, 3), S(3), S(3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train, CURVED, 3, {S(5, 2), S(2), S(2)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_relu, CURVED, 3, {S(2, 3, 2, 3), S(3), S(3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_add, CURVED, 4, {S(2, 3, 2, 3), S(3), S(3), S(2, 3, 2, 3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_both, CURVED, 4, {S(2, 3, 2, 3), S(3), S(3), S(2, 3, 2, 3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_own, CURVED, 3, {S(2, 3, 2, 3), S(3), S(3)}, NORMAL},
};

const row_table rows_norm = {rows, sizeof rows / sizeof *rows};
