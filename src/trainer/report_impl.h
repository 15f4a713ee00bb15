/* Parts of report.c in files of their own, for loggers alone. */
#ifndef LEVIN_TRAINER_REPORT_IMPL_H
#define LEVIN_TRAINER_REPORT_IMPL_H

#include "trainer/trainer.h"

/* report_samples.c: at step 0. An image that cannot be written is an error. */
lvn_status lvni_trainer_report_samples(const lvni_trainer_report *report);
/* report_histograms.c: values as the model's `weights`, on the host */
lvn_status lvni_trainer_report_histograms(const lvni_trainer_report *report, int64_t step,
                                          const float *values);

#endif
