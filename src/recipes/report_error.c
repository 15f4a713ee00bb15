/* Errors for people (report_error.h). */
#include "recipes/report_error.h"

#include "core/exit_code.h"
#include "trainer/trainer.h"

#include <signal.h>
#include <stdio.h>

static int code_of_stop(void)
{
    const int signal_number = lvni_stop_signal();
    return signal_number == SIGUSR1 ? LVNI_EXIT_REQUEUE : signal_number == 0 ? LVNI_EXIT_FAILURE : lvni_exit_of_signal(signal_number);
}

int lvni_report_status(lvn_status status)
{
    if (status == LVN_OK) {
        return LVNI_EXIT_OK;
    }
    const lvn_error *e = lvn_last_error();
    fprintf(stderr, "%s: %s\n", status == LVN_ERR_CANCELLED ? "stopped" : "error", e->message[0] != '\0' ? e->message : lvn_status_text(status));
    for (int i = 0; i < e->n_frames; i++) {
        fprintf(stderr, "  in %s\n", e->frames[i]);
    }
    return status == LVN_ERR_CANCELLED ? code_of_stop() : (int)lvni_exit_of_status(status);
}
