/* Loads NCCL (nccl_api.h). */
#include "dist/nccl/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvni_nccl_api api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256]; /* why there is none */

static bool find(void *library, const char *name, void *to)
{
    void *at = dlsym(library, name);
    memcpy(to, &at, sizeof at);
    return at != NULL;
}

static bool find_all(void *nccl)
{
    (void)find(nccl, "ncclGetLastError", &api.last_error); /* since 2.13; not needed */
    return find(nccl, "ncclGetVersion", &api.get_version) &&
           find(nccl, "ncclGetUniqueId", &api.get_unique_id) &&
           find(nccl, "ncclCommInitRankConfig", &api.init_rank) &&
           find(nccl, "ncclCommFinalize", &api.finalize) &&
           find(nccl, "ncclCommDestroy", &api.destroy) && find(nccl, "ncclCommAbort", &api.abort) &&
           find(nccl, "ncclCommGetAsyncError", &api.get_async_error) &&
           find(nccl, "ncclGroupStart", &api.group_start) &&
           find(nccl, "ncclGroupEnd", &api.group_end) && find(nccl, "ncclSend", &api.send) &&
           find(nccl, "ncclRecv", &api.receive) &&
           find(nccl, "ncclGetErrorString", &api.error_string);
}

static void load(void)
{
    const char *path = getenv("LEVIN_NCCL_LIBRARY");
    void *nccl = dlopen(path != NULL && path[0] != '\0' ? path : "libnccl.so.2",
                        RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (nccl == NULL) {
        const char *why = dlerror();
        snprintf(missing, sizeof missing, "%s", why != NULL ? why : "libnccl.so.2 is not there");
        return;
    }
    if (!find_all(nccl)) {
        snprintf(
            missing, sizeof missing,
            "this libnccl is older than 2.14, which communicators that do not block came with");
        return;
    }
    (void)find(nccl, "levin_nccl_on_sim", &api.use_sim);
}

const lvni_nccl_api *lvni_nccl_load(const char **why)
{
    pthread_once(&once, load);
    *why = missing[0] != '\0' ? missing : NULL;
    return missing[0] == '\0' ? &api : NULL;
}
