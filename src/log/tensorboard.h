/* An open event file of TensorBoard, between tensorboard.c and tensorboard_config.c. What is added
 * goes to the file with the next flush. */
#ifndef LEVIN_LOG_TENSORBOARD_H
#define LEVIN_LOG_TENSORBOARD_H

#include "log/event_file.h"
#include "log/loggers.h"
#include "log/tensorboard.pb-c.h"

enum { LVNI_LOG_TENSOR_FLOAT = 1, LVNI_LOG_TENSOR_STRING = 7, LVNI_LOG_MAX_IMAGE = 64 << 20 };

typedef struct lvni_log_tensorboard {
    lvni_log_event_file file;
    lvni_core_str records;
    LvniLogPb__SummaryValue *value, **list; /* of a line of scalars */
    int room;
    int64_t epoch_step; /* whose epoch was written */
} lvni_log_tensorboard;

/* The time is put in. */
lvn_status lvni_log_tensorboard_add(lvni_log_tensorboard *t, LvniLogPb__Event *event);
lvn_status lvni_log_tensorboard_add_value(lvni_log_tensorboard *t, int64_t step,
                                          LvniLogPb__SummaryValue *value);
/* Of one element, which tensor has already, with what a plugin keeps beside it. */
lvn_status lvni_log_tensorboard_add_tensor(lvni_log_tensorboard *t, int64_t step, const char *tag,
                                           LvniLogPb__PluginData *plugin,
                                           LvniLogPb__Tensor *tensor);
lvn_status lvni_log_tensorboard_add_text(lvni_log_tensorboard *t, int64_t step, const char *tag,
                                         const char *text);
/* The configuration, as hyperparameters and as text. */
lvn_status lvni_log_tensorboard_add_config(lvni_log_tensorboard *t,
                                           const lvni_log_loggers_options *o);
/* The end of the session that add_config has begun. */
lvn_status lvni_log_tensorboard_add_end(lvni_log_tensorboard *t, bool success);

#endif
