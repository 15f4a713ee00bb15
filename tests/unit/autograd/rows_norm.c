/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_norm.h. */
#include "gradient_rows.h"
#include "tensor/ctx.h"

FN(norm_train, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL))
FN(norm_train_relu, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .relu = true))
FN(norm_train_add, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[3]))
FN(norm_train_both,
   lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[3], .relu = true))
FN(norm_train_own,
   lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[0], .relu = true))

FN(layer, lvn_layer_norm(in[0], in[1], in[2], 1e-2))
FN(layer_plain, lvn_layer_norm(in[0], NULL, NULL, 1e-2))
FN(layer_no_beta, lvn_layer_norm(in[0], in[1], NULL, 1e-2))
FN(group, lvn_group_norm(in[0], 2, in[1], in[2], 1e-2))
FN(group_plain, lvn_group_norm(in[0], 1, NULL, NULL, 1e-2))
FN(instance, lvn_instance_norm(in[0], in[1], in[2], 1e-2))
FN(instance_plain, lvn_instance_norm(in[0], NULL, NULL, 1e-2))

/* The same random numbers every time. */
static lvn_tensor *fn_dropout(lvn_tensor *const *in)
{
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 3, .step = 4, .micro_batch = 5, .training = true};
    lvn_tensor *y = lvn_dropout(in[0], 0.4);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    return y;
}

static const row rows[] = {
    {"dropout", fn_dropout, SMOOTH, 1, {S(5, 6)}, NORMAL, .second = true},
    {"layer_norm", fn_layer, CURVED, 3, {S(3, 5), S(5), S(5)}, NORMAL, .second = true},
    {"layer_norm", fn_layer, CURVED, 3, {S(2, 2, 3), S(2, 3), S(2, 3)}, NORMAL, .second = true},
    {"layer_norm", fn_layer_plain, CURVED, 1, {S(2, 2, 4)}, NORMAL, .second = true},
    {"layer_norm", fn_layer_no_beta, CURVED, 2, {S(2, 4), S(4)}, NORMAL, .second = true},
    {"group_norm", fn_group, CURVED, 3, {S(2, 2, 2, 4), S(4), S(4)}, NORMAL, .second = true},
    {"group_norm", fn_group_plain, CURVED, 1, {S(2, 4)}, NORMAL, .second = true},
    {"instance_norm", fn_instance, CURVED, 3, {S(2, 2, 2, 3), S(3), S(3)}, NORMAL, .second = true},
    {"instance_norm", fn_instance_plain, CURVED, 1, {S(2, 3, 2)}, NORMAL, .second = true},
    {"batch_norm_train_with",
     fn_norm_train,
     CURVED,
     3,
     {S(2, 3, 2, 3), S(3), S(3)},
     NORMAL,
     .second = true},
    {"batch_norm_train_with",
     fn_norm_train,
     CURVED,
     3,
     {S(5, 2), S(2), S(2)},
     NORMAL,
     .second = true},
    {"batch_norm_train_with",
     fn_norm_train_relu,
     CURVED,
     3,
     {S(2, 3, 2, 3), S(3), S(3)},
     NORMAL,
     .second = true},
    {"batch_norm_train_with",
     fn_norm_train_add,
     CURVED,
     4,
     {S(2, 3, 2, 3), S(3), S(3), S(2, 3, 2, 3)},
     NORMAL,
     .second = true},
    {"batch_norm_train_with",
     fn_norm_train_both,
     CURVED,
     4,
     {S(2, 3, 2, 3), S(3), S(3), S(2, 3, 2, 3)},
     NORMAL,
     .second = true},
    {"batch_norm_train_with",
     fn_norm_train_own,
     CURVED,
     3,
     {S(2, 3, 2, 3), S(3), S(3)},
     NORMAL,
     .second = true},
};

const row_table rows_norm = {rows, sizeof rows / sizeof *rows};
