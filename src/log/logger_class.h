/* A row of the table of loggers (loggers.c). Every function except create and destroy may be NULL.
 * An error of one of them closes the logger. */
#ifndef LEVIN_LOG_LOGGER_CLASS_H
#define LEVIN_LOG_LOGGER_CLASS_H

#include "log/loggers.h"

/* Values of one step. */
typedef struct lvni_log_point {
    int64_t step, epoch;
    double time_s;
    const lvni_log_metric *value;
    int n;
} lvni_log_point;

typedef struct lvni_log_logger_class {
    const char *name;
    /* argument: what follows "NAME:"; "" where the name takes none */
    lvn_status (*create)(const lvni_log_loggers_options *options, const char *argument, void **out);
    lvn_status (*scalars)(void *logger, const lvni_log_point *point);
    lvn_status (*image)(void *logger, int64_t step, const lvni_log_image *image);
    lvn_status (*histogram)(void *logger, int64_t step, const lvni_log_histogram *histogram);
    lvn_status (*text)(void *logger, int64_t step, const char *name, const char *text);
    /* how the run ended, before destroy; not after an error */
    lvn_status (*end)(void *logger, lvni_log_end end);
    void (*destroy)(void *logger);
} lvni_log_logger_class;

extern const lvni_log_logger_class lvni_log_csv_class;         /* csv_logger.c */
extern const lvni_log_logger_class lvni_log_tensorboard_class; /* tensorboard.c */
extern const lvni_log_logger_class lvni_log_exec_class;        /* exec_logger.c */

/* "<dir>/<name>", the caller's (lvni_core_free); NULL: LVN_ERR_MEMORY is recorded. */
char *lvni_log_path(const char *dir, const char *name);

#endif
