/* Losses of method=dinov2 that have no part in dino's (pretrain_dino.h), and how its teacher's
 * answers are spread. */
#include "recipes/pretrain/pretrain_dino.h"

#include <math.h>

lvn_tensor *lvni_pretrain_ibot_loss(lvn_tensor *teacher, lvn_tensor *student, lvn_tensor *weight,
                                    int64_t crops)
{
    static const int last = 1;
    lvn_tensor *each = lvn_sum_axes(lvn_mul(teacher, student), &last, 1, true);
    return lvn_mul_scalar(lvn_sum(lvn_mul(each, weight)), -1.0 / (double)crops);
}

lvn_tensor *lvni_pretrain_koleo_loss(lvn_tensor *rows)
{
    static const double eps = 1e-8; /* as LightlyTrain has it, in three places */
    const int64_t n = lvn_size(rows, 0);
    if (n < 2) {
        return lvn_zeros(LVN_F32, 0, NULL);
    }
    static const int last = 1;
    lvn_tensor *squares = lvn_sum_axes(lvn_square(rows), &last, 1, true);
    lvn_tensor *unit = lvn_div(rows, lvn_sqrt(lvn_clamp(squares, eps * eps, (double)INFINITY)));
    lvn_tensor *fixed = lvn_detach(unit); /* which row is the nearest has no gradient */
    lvn_tensor *itself = lvn_eq(lvni_pretrain_count_up(0, n, 0), lvni_pretrain_count_up(0, n, 1));
    lvn_tensor *alike = lvn_masked_fill(lvn_matmul(fixed, fixed, .trans_b = true), itself, -2.0);
    lvn_tensor *nearest = lvn_index_select(unit, 0, lvn_argmax(alike, 1, false));
    lvn_tensor *distance = lvn_norm_axis(lvn_add_scalar(lvn_sub(unit, nearest), eps), 1);
    return lvn_neg(lvn_mean(lvn_log_e(lvn_add_scalar(distance, eps))));
}

/* Sums over the rows that count, of all micro-batches. */
static lvn_tensor *sum_rows(lvn_tensor *q, lvn_tensor *counts)
{
    static const int rows = 0;
    return lvn_group_sum(lvn_sum_axes(counts == NULL ? q : lvn_mul(q, counts), &rows, 1, true));
}

/* Too small for f32, a column that no row has anything of stays 0. */
static lvn_tensor *divide(lvn_tensor *q, lvn_tensor *sum)
{
    return lvn_div(q, lvn_clamp(sum, 1e-37, (double)INFINITY));
}

lvn_tensor *lvni_pretrain_sinkhorn(lvn_tensor *logits, lvn_tensor *bound, lvn_tensor *temperature,
                                   lvn_tensor *counts)
{
    enum { ITERATIONS = 3, LARGEST = 64 }; /* e^64, and sums of it over e^24 rows, are f32 */
    static const int last = 1;
    /* one for all rows and columns of the group: the first division takes it off again */
    lvn_tensor *shift = lvn_clamp(lvn_add_scalar(lvn_div(bound, temperature), -(double)LARGEST),
                                  0.0, (double)INFINITY);
    lvn_tensor *q = lvn_exp(lvn_sub(lvn_div(lvn_detach(logits), temperature), shift));
    /* factors of all elements, which the paper has in between, would be divided by again */
    for (int i = 0; i < ITERATIONS; i++) {
        q = divide(q, sum_rows(q, counts));
        q = divide(q, lvn_sum_axes(q, &last, 1, true));
    }
    return counts == NULL ? q : lvn_masked_fill(q, lvn_lt_scalar(counts, 0.5), 0.0);
}
