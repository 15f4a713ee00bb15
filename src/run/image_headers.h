/* What the headers of images show before a training, of every folder that it takes samples from:
 * damage, and files of other kinds. Called by the opener of data= and for a user's job. */
#ifndef LEVIN_RUN_IMAGE_HEADERS_H
#define LEVIN_RUN_IMAGE_HEADERS_H

#include "data/image_folder.h"
#include "run/fit.h"

#include <levin/trainer.h>

/* How to have the images of other kinds, too; `folder` names it: "data=photos". */
lvn_status lvni_run_report_foreign(const char *folder, const lvni_data_image_scan *scan);
/* The sentence of an index on damaged images, if any: LVN_ERR_CORRUPT in a training with
 * on_error=stop, else a warning. */
lvn_status lvni_run_report_damaged(const lvni_core_config *config, bool training,
                                   const char *damaged);
/* Of the job's sets that are folders of images: a training reads the headers of these. Then
 * request->headers_read and request->data_files. */
lvn_status lvni_run_look_at_images(const lvn_job *job, lvni_run_job *request);

#endif
