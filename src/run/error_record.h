/* The end of a command: the error on standard error, and the exit code. */
#ifndef LEVIN_RUN_ERROR_RECORD_H
#define LEVIN_RUN_ERROR_RECORD_H

#include "core/error.h"

/* LVN_OK: 0. Else the thread's error on standard error, the message and its context, and the code
 * of core/error.h. */
int lvni_run_report_status(lvn_status status);
/* The same for what may have left a block of a numbered error: that in place of the message, where
 * this rank prints. Frees the notices. */
int lvni_run_report_notices(lvn_status status, lvni_core_notices *notices);
/* Notices of a start: warnings as lines of the log (quiet: not on the screen), by rank 0; under
 * strict they are the error. s: of the call that filled the notices, which are empty afterwards.
 * Returns the status of the start. */
lvn_status lvni_run_report_start(lvn_status s, bool strict, bool quiet, lvni_core_notices *notices);
/* After a stop by SIGUSR1: the code is 86, as the limit of requeues is reached. */
void lvni_run_report_no_requeue(void);
/* This process is rank `rank` of several: what another rank began is reported by rank 0 alone. */
void lvni_run_report_as_rank(int rank);

#endif
