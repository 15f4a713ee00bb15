/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_seq.h. */
#include "gradient_rows.h"

#include "tensor/ctx.h"

FN(attention, lvn_attention(in[0], in[1], in[2]))
FN(attention_causal, lvn_attention(in[0], in[1], in[2], .causal = true, .scale = 0.8))
FN(attention_self, lvn_attention(in[0], in[0], in[0]))
FN(attention_qkv, lvn_attention_qkv(in[0], .causal = true))

/* the weights of the two products in one tensor, one above the other */
#define IH(gates) lvn_slice(in[2], 0, 0, (gates)*3)
#define HH(gates) lvn_slice(in[2], 0, (gates)*3, LVN_END)
FN(gru, lvn_gru_cell(in[0], in[1], IH(3), HH(3), in[3], in[3]))
FN(gru_plain, lvn_gru_cell(in[0], in[1], IH(3), HH(3), NULL, NULL))

static lvn_tensor *fn_lstm(lvn_tensor *const *in)
{
    lvn_tensor *c, *h = lvn_lstm_cell(in[0], in[1], lvn_tanh(in[1]), IH(4), HH(4), in[3], NULL, &c);
    return lvn_add(h, lvn_mul_scalar(c, 0.3));
}

/* A key of a sample that is hidden from all of its queries: (N, 1, 1, S), of k (N, S, H, D) */
static lvn_tensor *hidden_keys(lvn_tensor *k)
{
    lvn_tensor *one = lvn_slice(lvn_slice(lvn_detach(k), 3, 0, 1), 2, 0, 1);
    return lvn_gt_scalar(lvn_reshape(one, 4, (const int64_t[]){lvn_size(k, 0), 1, 1, -1}), -0.2);
}
FN(attention_masked, lvn_attention(in[0], in[1], in[2], .mask = hidden_keys(in[1])))
FN(attention_masked_causal,
   lvn_attention(in[0], in[1], in[2], .causal = true, .scale = 0.8, .mask = hidden_keys(in[1])))

/* The same random numbers every time. */
static lvn_tensor *fn_attention_qkv_dropout(lvn_tensor *const *in)
{
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 3, .step = 4, .micro_batch = 5, .training = true};
    lvn_tensor *y = lvn_attention_qkv(in[0], .causal = true, .dropout = 0.4);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    return y;
}

static const row rows[] = {
    {"attention_with",
     fn_attention,
     SMOOTH,
     3,
     {S(2, 3, 2, 4), S(2, 5, 2, 4), S(2, 5, 2, 3)},
     NORMAL},
    {"attention_with",
     fn_attention_causal,
     SMOOTH,
     3,
     {S(1, 4, 2, 3), S(1, 4, 2, 3), S(1, 4, 2, 2)},
     NORMAL},
    {"attention_with", fn_attention_self, SMOOTH, 1, {S(1, 3, 2, 3)}, NORMAL},
    {"gru_cell", fn_gru, CURVED, 4, {S(2, 3), S(2, 3), S(18, 3), S(9)}, NORMAL, .second = true},
    {"gru_cell", fn_gru_plain, CURVED, 3, {S(1, 3), S(1, 3), S(18, 3)}, NORMAL, .second = true},
    {"lstm_cell", fn_lstm, CURVED, 4, {S(2, 3), S(2, 3), S(24, 3), S(12)}, NORMAL, .second = true},
    {"attention_with",
     fn_attention_masked,
     SMOOTH,
     3,
     {S(2, 3, 2, 4), S(2, 5, 2, 4), S(2, 5, 2, 3)},
     NORMAL,
     .second = true},
    {"attention_with",
     fn_attention_masked_causal,
     SMOOTH,
     3,
     {S(2, 4, 2, 3), S(2, 4, 2, 3), S(2, 4, 2, 2)},
     NORMAL,
     .second = true},
    {"attention_qkv_with",
     fn_attention_qkv_dropout,
     SMOOTH,
     1,
     {S(2, 4, 3, 2, 3)},
     NORMAL,
     .second = true},
    {"attention_qkv_with", fn_attention_qkv, SMOOTH, 1, {S(2, 4, 3, 2, 3)}, NORMAL},
};

const row_table rows_seq = {rows, sizeof rows / sizeof *rows};
