/* Parts of logging.c in files of their own, for loggers alone. */
#ifndef LEVIN_TRAINER_LOGGING_IMPL_H
#define LEVIN_TRAINER_LOGGING_IMPL_H

#include "trainer/trainer.h"

/* logging_samples.c: at step 0. An image that cannot be written is an error. */
lvn_status lvni_trainer_logging_samples(const lvni_trainer_logging *report);
/* logging_histograms.c: values as the model's `weights`, on the host */
lvn_status lvni_trainer_logging_histograms(const lvni_trainer_logging *report, int64_t step,
                                           const float *values);

#endif
