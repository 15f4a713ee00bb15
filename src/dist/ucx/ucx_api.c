/* Loads UCX (ucx_api.h). Its constructors install handlers of signals, which belong to the program,
 * and it prints warnings to stdout and patches libc: all of it is undone, or forbidden, here. */
#include "dist/ucx/ucx_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvni_ucx_api api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256]; /* why there is none */

static bool find(void *library, const char *name, void *to)
{
    void *at = dlsym(library, name);
    memcpy(to, &at, sizeof at);
    return at != NULL;
}

static bool find_all(void *ucp, void *ucs)
{
    return find(ucp, "ucp_config_read", &api.config_read) &&
           find(ucp, "ucp_config_modify", &api.config_modify) &&
           find(ucp, "ucp_config_release", &api.config_release) &&
           find(ucp, "ucp_init_version", &api.init_version) &&
           find(ucp, "ucp_cleanup", &api.cleanup) &&
           find(ucp, "ucp_worker_create", &api.worker_create) &&
           find(ucp, "ucp_worker_destroy", &api.worker_destroy) &&
           find(ucp, "ucp_worker_get_address", &api.worker_get_address) &&
           find(ucp, "ucp_worker_release_address", &api.worker_release_address) &&
           find(ucp, "ucp_worker_get_efd", &api.worker_get_efd) &&
           find(ucp, "ucp_worker_arm", &api.worker_arm) &&
           find(ucp, "ucp_worker_progress", &api.worker_progress) &&
           find(ucp, "ucp_worker_set_am_recv_handler", &api.worker_set_am_recv_handler) &&
           find(ucp, "ucp_ep_create", &api.ep_create) &&
           find(ucp, "ucp_ep_close_nbx", &api.ep_close) &&
           find(ucp, "ucp_am_send_nbx", &api.am_send) &&
           find(ucp, "ucp_am_recv_data_nbx", &api.am_recv_data) &&
           find(ucp, "ucp_am_data_release", &api.am_data_release) &&
           find(ucp, "ucp_request_check_status", &api.request_check_status) &&
           find(ucp, "ucp_request_free", &api.request_free) &&
           find(ucs, "ucs_status_string", &api.status_string);
}

static const char hooks[] = "UCX_MEM_MMAP_HOOK_MODE";

/* UCX replaces functions of libc (mmap, madvise) in the running program while it is loaded, so that
 * it notices when memory goes that a network card knows of; a library that comes by dlopen then
 * calls itself without end. Without it UCX registers memory for each message. It looks at the
 * environment as it is loaded: before lanes, which would look at it at the same time, are there. */
static void *load_library(const char *name)
{
    const bool own = getenv(hooks) == NULL && setenv(hooks, "none", 0) == 0;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (own) {
        (void)unsetenv(hooks); /* other programs that this one starts */
    }
    return library;
}

/* UCX_LOG_LEVEL of the user stays. */
static void be_quiet(void *ucs)
{
    ucs_status_t (*set)(const char *name, const char *value);
    void (*disable_signals)(void);
    if (find(ucs, "ucs_global_opts_set_value", &set)) {
        (void)set("HANDLE_ERRORS", "none");
        if (getenv("UCX_LOG_LEVEL") == NULL) {
            (void)set("LOG_LEVEL", "fatal");
        }
    }
    if (find(ucs, "ucs_debug_disable_signals", &disable_signals)) {
        disable_signals(); /* else it would put them back when the program ends */
    }
}

static void load(void)
{
    struct sigaction before[NSIG], now;
    bool known[NSIG];
    for (int s = 1; s < NSIG; s++) {
        known[s] = sigaction(s, NULL, &before[s]) == 0;
    }
    void *ucp = load_library("libucp.so.0");
    void *ucs = ucp != NULL ? dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (ucs == NULL || !find_all(ucp, ucs)) {
        const char *why = dlerror();
        snprintf(missing, sizeof missing, "%s", why != NULL ? why : "libucp.so.0 cannot be loaded");
    }
    if (ucs != NULL) {
        be_quiet(ucs);
    }
    for (int s = 1; s < NSIG; s++) {
        if (known[s] && sigaction(s, NULL, &now) == 0 &&
            now.sa_sigaction != before[s].sa_sigaction) {
            (void)sigaction(s, &before[s], NULL);
        }
    }
}

const lvni_ucx_api *lvni_ucx_load(const char **why)
{
    pthread_once(&once, load);
    *why = missing[0] != '\0' ? missing : NULL;
    return missing[0] == '\0' ? &api : NULL;
}
