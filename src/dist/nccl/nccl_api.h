/* What is called of NCCL, which is loaded when it is first needed: no machine has to have it to
 * build levin or to run it. The declarations are those of NCCL since 2.14, whose interface has
 * kept them since; a test compares them with the header where there is one. */
#ifndef LEVIN_DIST_NCCL_NCCL_API_H
#define LEVIN_DIST_NCCL_NCCL_API_H

#include <stddef.h>

/* ncclResult_t, ncclDataType_t */
enum {
    LVNI_NCCL_SUCCESS = 0,
    LVNI_NCCL_INVALID_ARGUMENT = 4,
    LVNI_NCCL_INVALID_USAGE = 5,
    LVNI_NCCL_REMOTE_ERROR = 6,
    LVNI_NCCL_IN_PROGRESS = 7,
    LVNI_NCCL_FLOAT32 = 7
};

/* ncclUniqueId */
enum { LVNI_NCCL_ID_BYTES = 128 };
typedef struct lvni_nccl_id {
    char internal[LVNI_NCCL_ID_BYTES];
} lvni_nccl_id;

/* ncclConfig_t of 2.14: later versions take it by its size and version. */
enum { LVNI_NCCL_CONFIG_VERSION = 21400 };
#define LVNI_NCCL_CONFIG_MAGIC 0xcafebeefu
typedef struct lvni_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} lvni_nccl_config;

/* comm: ncclComm_t; stream: cudaStream_t; results: ncclResult_t */
typedef struct lvni_nccl_api {
    int (*get_version)(int *version);
    int (*get_unique_id)(lvni_nccl_id *id);
    int (*init_rank)(void **comm, int n, lvni_nccl_id id, int rank, lvni_nccl_config *config);
    int (*finalize)(void *comm);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*get_async_error)(void *comm, int *result);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *data, size_t n, int type, int peer, void *comm, void *stream);
    int (*receive)(void *data, size_t n, int type, int peer, void *comm, void *stream);
    const char *(*error_string)(int result);
    const char *(*last_error)(void *comm); /* NULL: it has none */
    /* A stand-in for tests, whose streams are those of the simulated accelerator: their device
     * becomes the thread's current one, as CUDA has it. NULL: NCCL. */
    void (*use_sim)(void *stream);
} lvni_nccl_api;

/* libnccl.so.2, or LEVIN_NCCL_LIBRARY. Any thread. NULL: *missing is why there is none. */
const lvni_nccl_api *lvni_nccl_load(const char **missing);

#endif
