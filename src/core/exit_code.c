/* From status to exit code (exit_code.h). */
#include "core/exit_code.h"

lvni_core_exit_code lvni_core_exit_of_status(lvn_status status)
{
    switch (status) {
    case LVN_OK: return LVNI_EXIT_OK;
    case LVN_ERR_USAGE: return LVNI_EXIT_USAGE;
    case LVN_ERR_MEMORY:
    case LVN_ERR_DEVICE_MEMORY:
    case LVN_ERR_RESOURCE: return LVNI_EXIT_RESOURCE;
    case LVN_ERR_TIMEOUT: return LVNI_EXIT_RENDEZVOUS;
    case LVN_ERR_PEER: return LVNI_EXIT_PEER;
    default: return LVNI_EXIT_FAILURE;
    }
}

int lvni_core_exit_of_signal(int signal_number)
{
    return 128 + signal_number;
}
