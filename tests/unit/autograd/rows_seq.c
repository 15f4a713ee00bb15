/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_seq.h. */
#include "gradient_rows.h"

FN(attention, lvn_attention(in[0], in[1], in[2]))
FN(attention_causal, lvn_attention(in[0], in[1], in[2], .causal = true, .scale = 0.8))
FN(attention_self, lvn_attention(in[0], in[0], in[0]))
FN(attention_qkv, lvn_attention_qkv(in[0], .causal = true))

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
    {"attention_qkv_with", fn_attention_qkv, SMOOTH, 1, {S(2, 4, 3, 2, 3)}, NORMAL},
};

const row_table rows_seq = {rows, sizeof rows / sizeof *rows};
