/* The end of a command: the error as a person reads it, and the exit code. */
#ifndef LEVIN_RECIPES_REPORT_ERROR_H
#define LEVIN_RECIPES_REPORT_ERROR_H

#include "core/notice.h"

/* LVN_OK: 0. Else the thread's error on standard error, one sentence and its context, and the code of core/exit_code.h. */
int lvni_report_status(lvn_status status);
/* The same for what may have left a block of a numbered error: that in place of the sentence, where this rank speaks. Frees the
 * notices. */
int lvni_report_notices(lvn_status status, lvni_notices *notices);

#endif
