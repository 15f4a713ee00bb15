/* What is called of UCX, which is loaded when a communicator first needs it: its libraries start
 * slowly, and a machine need not have them. */
#ifndef LEVIN_DIST_UCX_UCX_API_H
#define LEVIN_DIST_UCX_UCX_API_H

#include <ucp/api/ucp.h>

typedef struct lvni_ucx_api {
    __typeof__(ucp_config_read) *config_read;
    __typeof__(ucp_config_modify) *config_modify;
    __typeof__(ucp_config_release) *config_release;
    __typeof__(ucp_init_version) *init_version;
    __typeof__(ucp_cleanup) *cleanup;
    __typeof__(ucp_worker_create) *worker_create;
    __typeof__(ucp_worker_destroy) *worker_destroy;
    __typeof__(ucp_worker_get_address) *worker_get_address;
    __typeof__(ucp_worker_release_address) *worker_release_address;
    __typeof__(ucp_worker_get_efd) *worker_get_efd;
    __typeof__(ucp_worker_arm) *worker_arm;
    __typeof__(ucp_worker_progress) *worker_progress;
    __typeof__(ucp_worker_set_am_recv_handler) *worker_set_am_recv_handler;
    __typeof__(ucp_ep_create) *ep_create;
    __typeof__(ucp_ep_close_nbx) *ep_close;
    __typeof__(ucp_am_send_nbx) *am_send;
    __typeof__(ucp_am_recv_data_nbx) *am_recv_data;
    __typeof__(ucp_am_data_release) *am_data_release;
    __typeof__(ucp_request_check_status) *request_check_status;
    __typeof__(ucp_request_free) *request_free;
    __typeof__(ucs_status_string) *status_string;
} lvni_ucx_api;

/* Any thread. NULL: *missing is why there is none. */
const lvni_ucx_api *lvni_ucx_load(const char **missing);

#endif
