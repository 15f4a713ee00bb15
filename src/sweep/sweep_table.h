/* What became of the trials of a sweep, as rows: read from its folders, sorted, and written as text
 * for people and for other programs. */
#ifndef LEVIN_SWEEP_SWEEP_TABLE_H
#define LEVIN_SWEEP_SWEEP_TABLE_H

#include "core/str.h"
#include "sweep/sweep_records.h"

#include <jansson.h>

typedef struct lvni_sweep_row {
    lvni_sweep_trial trial; /* empty where the table was read without parameters */
    lvni_sweep_look look;
} lvni_sweep_row;

typedef struct lvni_sweep_table {
    const lvni_sweep_plan *plan; /* borrowed */
    lvni_sweep_row *rows;
    int64_t n;
    int64_t counts[LVNI_SWEEP_STATES];
} lvni_sweep_table;

/* Every trial of the plan, in the order of their numbers: one look at each. parameters false: only
 * how they stand. The plan must outlive the table. */
lvn_status lvni_sweep_table_read(const lvni_sweep_plan *plan, bool parameters, lvni_sweep_ask *ask,
                                 void *user, lvni_sweep_table *out);
void lvni_sweep_table_free(lvni_sweep_table *t);

/* By the value of the metric, the best first; those without one behind them; equal ones by their
 * number. A trial has a value here when it ended well, or was pruned, and the value is finite. */
void lvni_sweep_table_sort(lvni_sweep_table *t);
/* The first row of that order, wherever it stands; NULL: no trial has a value. */
const lvni_sweep_row *lvni_sweep_table_best(const lvni_sweep_table *t);
/* "trial 4 learning_rate=0.01 layers=32 val/loss=0.1234" */
void lvni_sweep_row_line(const lvni_sweep_plan *plan, const lvni_sweep_row *row,
                         lvni_core_str *out);
/* The absolute or relative path of the row's checkpoint, as the plan's folder was given; "": it has
 * none. */
void lvni_sweep_row_checkpoint(const lvni_sweep_row *row, lvni_core_str *out);
/* {"trial": 4, "state": "done", "parameters": {...}, ...}; NULL: no memory. A number that is not
 * finite is null. */
json_t *lvni_sweep_row_json(const lvni_sweep_row *row);

/* 1:02:03 */
void lvni_sweep_time_print(double seconds, lvni_core_str *out);

typedef enum lvni_sweep_format {
    LVNI_SWEEP_TEXT, /* columns below each other */
    LVNI_SWEEP_TSV,
    LVNI_SWEEP_JSON,
    LVNI_SWEEP_MD,
    LVNI_SWEEP_CSV, /* all that is known, as `levin sweep export` writes it */
} lvni_sweep_format;
/* The first `most` rows as they stand. */
lvn_status lvni_sweep_table_write(const lvni_sweep_table *t, int64_t most, lvni_sweep_format format,
                                  lvni_core_str *out);

#endif
