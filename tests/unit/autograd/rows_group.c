/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_group.h: a micro-batch that is
 * alone. Groups: tests/unit/trainer/test_group_sync.c. */
#include "gradient_rows.h"

static lvn_tensor *fn_gather_at(lvn_tensor *const *in)
{
    int64_t first = 1;
    lvn_tensor *y = lvn_group_gather_at(lvn_square(in[0]), &first);
    return lvn_add_scalar(y, (double)first);
}

FN(gather, lvn_group_gather(lvn_square(in[0])))
FN(sum, lvn_group_sum(lvn_square(in[0])))

static const row rows[] = {
    {"group_gather", fn_gather, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
    {"group_gather_at", fn_gather_at, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
    {"group_sum", fn_sum, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
};

const row_table rows_group = {rows, sizeof rows / sizeof *rows};
