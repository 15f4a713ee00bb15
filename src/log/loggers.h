/* The loggers of a run beside metrics.jsonl, chosen by the key `logger`: a row each in the table of
 * loggers.c. Made and called by the trainer of rank 0, from one thread. What cannot be opened is an
 * error of the start; a logger that fails later is reported once and closed, and the run goes on.
 */
#ifndef LEVIN_LOG_LOGGERS_H
#define LEVIN_LOG_LOGGERS_H

#include "log/metrics.h"

typedef struct lvni_log_loggers_options {
    const char *dir; /* the run directory; all strings are borrowed for the call */
    const char *const *names;
    size_t n_names;
    const char *config_json; /* NULL: none */
    const char *run_id;      /* NULL: none */
    int64_t step;            /* optimizer steps done */
    /* What the files hold of steps up to `step` stays, and of later ones goes; false: all goes. */
    bool resumed;
    bool ends_again; /* lvni_log_metrics_truncate */
} lvni_log_loggers_options;

typedef enum lvni_log_end { LVNI_LOG_FINISHED, LVNI_LOG_STOPPED, LVNI_LOG_FAILED } lvni_log_end;

/* A PNG file that exists by now. */
typedef struct lvni_log_image {
    const char *name, *path;
    int width, height, channels;
} lvni_log_image;

/* n values in buckets: bucket i holds those up to limit[i] that are above the limit before it. */
typedef struct lvni_log_histogram {
    const char *name;
    double min, max, n, sum, sum_squares;
    const double *limit, *count;
    int n_buckets;
} lvni_log_histogram;

typedef struct lvni_log_loggers lvni_log_loggers;

/* What the key takes as a logger's name. "": one that has no logger (jsonl, false, none). */
bool lvni_log_loggers_known(const char *name);
/* NULL in *out: no logger is asked for. */
lvn_status lvni_log_loggers_open(const lvni_log_loggers_options *options, lvni_log_loggers **out);
/* Below: loggers may be NULL. A line allocates nothing once one of its names has been logged. */
void lvni_log_loggers_scalars(lvni_log_loggers *loggers, int64_t step, int64_t epoch, double time_s,
                              const lvni_log_metric *values, int n);
bool lvni_log_loggers_take_images(const lvni_log_loggers *loggers);
void lvni_log_loggers_image(lvni_log_loggers *loggers, int64_t step, const lvni_log_image *image);
void lvni_log_loggers_histogram(lvni_log_loggers *loggers, int64_t step,
                                const lvni_log_histogram *histogram);
/* text: Markdown */
void lvni_log_loggers_text(lvni_log_loggers *loggers, int64_t step, const char *name,
                           const char *text);
void lvni_log_loggers_close(lvni_log_loggers *loggers, lvni_log_end end);

#endif
