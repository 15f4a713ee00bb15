/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_shard.h: a shard that is alone.
 * Groups: tests/unit/trainer/test_meeting.c. */
#include "gradient_rows.h"

static lvn_tensor *fn_gather_at(lvn_tensor *const *in)
{
    int64_t first = 1;
    lvn_tensor *y = lvn_shard_gather_at(lvn_square(in[0]), &first);
    return lvn_add_scalar(y, (double)first);
}

FN(gather, lvn_shard_gather(lvn_square(in[0])))
FN(sum, lvn_shard_sum(lvn_square(in[0])))

static const row rows[] = {
    {"shard_gather", fn_gather, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
    {"shard_gather_at", fn_gather_at, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
    {"shard_sum", fn_sum, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
};

const row_table rows_shard = {rows, sizeof rows / sizeof *rows};
