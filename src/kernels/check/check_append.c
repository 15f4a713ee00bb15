/* Rows of micro-batches on their way into a queue (check.h). */
#include "core/rng.h"
#include "kernels/check/flat_job.h"
#include "kernels/flat.h"

#include <string.h>

enum { SLOTS = 5, SLOT_ROWS = 4, MOST_RECORD = SLOTS * SLOT_ROWS + 1 + SLOTS };

/* A queue as it is before: places of the host. */
typedef struct queue {
    int64_t rows, width;
    float *value, *filled, next;
} queue;

static void add_row(queue *q, const float *row)
{
    const int64_t at = (int64_t)q->next;
    memcpy(q->value + at * q->width, row, (size_t)q->width * sizeof *row);
    q->filled[at] = 1.0f;
    q->next = (float)((at + 1) % q->rows);
}

/* Truth: one row after the other. */
static void add_rows(queue *q, const float *record)
{
    const float *count = record + SLOTS * SLOT_ROWS * q->width + 1;
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int k = 0; k < (int)count[slot]; k++) {
            add_row(q, record + (slot * SLOT_ROWS + k) * q->width);
        }
    }
}

static lvn_status append_with(lvni_check_job *j, queue *q, const float *record,
                              lvni_check_step_kind kind)
{
    const lvn_step_block *step;
    const int64_t n = q->rows * q->width;
    float next, *value = lvni_check_put_floats(j, q->value, n),
                *filled = lvni_check_put_floats(j, q->filled, q->rows),
                *at = lvni_check_put_floats(j, &q->next, 1),
                *from = lvni_check_put_floats(j, record, SLOTS * SLOT_ROWS * q->width + 1 + SLOTS);
    LVNI_CHECK_NEED(value);
    LVNI_CHECK_NEED(filled);
    LVNI_CHECK_NEED(at);
    LVNI_CHECK_NEED(from);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    lvni_kernels_flat_append(
        value, filled, at, from,
        &(lvn_flat_append){.rows = q->rows,
                           .width = q->width,
                           .slots = SLOTS,
                           .slot_rows = SLOT_ROWS,
                           .step = step == NULL ? NULL : &step->phase[LVNI_CHECK_PHASE]});
    if (kind != LVNI_CHECK_UPDATES_NOT) {
        add_rows(q, record);
    }
    LVN_TRY(lvni_check_get(j, value, j->back));
    LVN_TRY(lvni_check_expect_same(j, "queue", j->back, q->value, n));
    LVN_TRY(lvni_check_get(j, filled, j->back));
    LVN_TRY(lvni_check_expect_same(j, "filled", j->back, q->filled, q->rows));
    LVN_TRY(lvni_check_get(j, at, &next));
    return lvni_check_expect_same(j, "next", &next, &q->next, 1);
}

/* Three steps, the second of which may not update; the last slot has no row, and the rows of a step
 * are fewer or more than those of the queue. */
lvn_status lvni_check_append(lvni_check_job *j)
{
    static const float count[SLOTS] = {4, 1, 0, 3, 0};
    const int64_t rows = 1 + j->n % 17, most = LVNI_CHECK_MOST / MOST_RECORD,
                  width = j->n < most ? j->n : most;
    for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
        queue q = {.rows = rows, .width = width, .value = j->x[0], .filled = j->x[2]};
        lvni_check_draw(j, 1, q.value);
        memset(q.filled, 0, (size_t)rows * sizeof *q.filled);
        q.next = (float)(rows - 1);
        for (int step = 0; step < 3; step++) {
            const lvni_core_rng rng = {.key = {{(uint32_t)step, 8}}};
            float *record = j->x[1];
            for (int64_t i = 0; i < SLOTS * SLOT_ROWS * width + 1; i++) {
                record[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
            }
            memcpy(record + SLOTS * SLOT_ROWS * width + 1, count, sizeof count);
            LVN_TRY(append_with(j, &q, record,
                                step == 1 ? (lvni_check_step_kind)kind : LVNI_CHECK_NO_STEP));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}
