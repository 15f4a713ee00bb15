/* metrics.jsonl: one JSON object a line, written by the trainer at every logging point, read by
 * report, watch and people.
 *   {"step":20,"epoch":1,"time_s":3.25,"train/loss":0.5,"lr":0.001}
 * Numbers are the shortest that read back as the same double. What is not finite becomes null, and
 * the line then ends with "nonfinite":true, so that a null is never mistaken for "not measured". */
#ifndef LEVIN_LOG_METRICS_H
#define LEVIN_LOG_METRICS_H

#include "core/str.h"

typedef struct lvni_log_metric {
    const char *name; /* "train/loss" */
    double value;
} lvni_log_metric;

typedef struct lvni_log_metrics lvni_log_metrics;

/* append = false empties an existing file. */
lvn_status lvni_log_metrics_open(const char *path, bool append, lvni_log_metrics **out);
/* One line, one system call; allocates nothing once a line of that length has been written. step:
 * optimizer steps done; time_s: seconds since the run began. LVN_ERR_IO: the next line starts on a
 * line of its own all the same. */
lvn_status lvni_log_metrics_write(lvni_log_metrics *m, int64_t step, int64_t epoch, double time_s,
                                  const lvni_log_metric *values, int n);
void lvni_log_metrics_close(lvni_log_metrics *m); /* NULL is fine */

/* The name that the line of a step has, and that of a validation or an epoch's end has not. */
#define LVNI_LOG_OF_STEP "lr"
/* For resuming at step S: keep the lines with "step" <= S, drop later ones and what is not a whole
 * JSON object (a line cut off by a crash). ends_again: what follows step S is to come again, so of
 * its lines only that of the step itself stays. The file is replaced atomically, and only when
 * something is dropped. *dropped (may be NULL): how many lines. *time_s (may be NULL): of the last
 * line that stays; 0 when there is none. A missing file is fine. */
lvn_status lvni_log_metrics_truncate(const char *path, int64_t step, bool ends_again,
                                     int64_t *dropped, double *time_s);

/* The line without its newline, appended to out. */
void lvni_log_metrics_format(lvni_core_str *out, int64_t step, int64_t epoch, double time_s,
                             const lvni_log_metric *values, int n);

#endif
