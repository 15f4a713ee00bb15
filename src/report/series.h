/* The metrics of a run as curves: metrics.jsonl (docs/logging.md) read once, into series whose size
 * does not depend on the number of rows. A series has 512 buckets of equally many steps; when a
 * step lies behind the last one, two and two are joined, so that a bucket always keeps how many
 * values it had, their sum, and the least and the greatest. */
#ifndef LEVIN_REPORT_SERIES_H
#define LEVIN_REPORT_SERIES_H

#include <levin/status.h>

#include <stdint.h>

enum { LVNI_REPORT_BUCKETS = 512, LVNI_REPORT_SERIES = 256, LVNI_REPORT_NAME = 128 };

typedef struct lvni_report_bucket {
    uint32_t n;
    double step, value; /* sums over the n */
    double least, most;
} lvni_report_bucket;

/* A finite value and its step. */
typedef struct lvni_report_value {
    double value;
    int64_t step;
} lvni_report_value;

typedef struct lvni_report_series {
    char name[LVNI_REPORT_NAME]; /* "train/loss_step" */
    int64_t width;               /* steps of a bucket, a power of two */
    lvni_report_bucket bucket[LVNI_REPORT_BUCKETS];
    int64_t n, n_null; /* values, and null: not finite when it was logged */
    lvni_report_value first, last, least, most; /* n > 0 */
} lvni_report_series;

typedef struct lvni_report_metrics {
    lvni_report_series *series[LVNI_REPORT_SERIES];
    int n;
    int64_t rows, damaged; /* lines read, and those that are not a row */
    bool left_out;         /* there are more names than room */
    int64_t last_step;     /* the greatest */
    double last_epoch,
        seconds; /* of the last row: epoch from 1, time since the start of training */
} lvni_report_metrics;

/* Steps are below 2^53. A file that is still written to may end within a row. LVN_ERR_NOT_FOUND,
 * LVN_ERR_IO, LVN_ERR_MEMORY; *out is to be freed in any case. */
lvn_status lvni_report_metrics_read(const char *path, lvni_report_metrics *out);
void lvni_report_metrics_free(lvni_report_metrics *metrics);
const lvni_report_series *lvni_report_metrics_find(const lvni_report_metrics *metrics,
                                                   const char *name); /* NULL: there is none */

/* A finite value, of steps from 0 to 2^53; width is 1 before the first. */
void lvni_report_series_add(lvni_report_series *series, int64_t step, double value);

/* A line without its end, for tests; damaged lines are counted. LVN_ERR_MEMORY. */
lvn_status lvni_report_metrics_add(lvni_report_metrics *metrics, const char *line, size_t n);

#endif
