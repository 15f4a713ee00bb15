/* Our declarations of NCCL's interface (dist/nccl/nccl_api.h) against its header, where there is
 * one, and against the library, where that is: what can be asked without a GPU. */
#include "dist/nccl/nccl_api.h"
#include "support/test.h"

#include <string.h>

#ifdef LEVIN_HAS_NCCL_H
#include <nccl.h>

_Static_assert(ncclSuccess == (int)LVNI_NCCL_SUCCESS, "ncclSuccess");
_Static_assert(ncclInvalidArgument == (int)LVNI_NCCL_INVALID_ARGUMENT, "ncclInvalidArgument");
_Static_assert(ncclInvalidUsage == (int)LVNI_NCCL_INVALID_USAGE, "ncclInvalidUsage");
_Static_assert(ncclRemoteError == (int)LVNI_NCCL_REMOTE_ERROR, "ncclRemoteError");
_Static_assert(ncclInProgress == (int)LVNI_NCCL_IN_PROGRESS, "ncclInProgress");
_Static_assert(ncclFloat32 == (int)LVNI_NCCL_FLOAT32, "ncclFloat32");
_Static_assert(sizeof(ncclUniqueId) == sizeof(lvni_nccl_id), "ncclUniqueId");
_Static_assert(sizeof(ncclResult_t) == sizeof(int), "results");
_Static_assert(sizeof(ncclDataType_t) == sizeof(int), "types");
_Static_assert(sizeof(ncclComm_t) == sizeof(void *), "communicators");
_Static_assert(sizeof(cudaStream_t) == sizeof(void *), "streams");
#define SAME(field)                                                                                \
    _Static_assert(offsetof(ncclConfig_t, field) == offsetof(lvni_nccl_config, field) &&           \
                       sizeof(((ncclConfig_t *)0)->field) ==                                       \
                           sizeof(((lvni_nccl_config *)0)->field),                                 \
                   #field)
SAME(size);
SAME(magic);
SAME(version);
SAME(blocking);
_Static_assert(sizeof(lvni_nccl_config) <= sizeof(ncclConfig_t), "later versions only add");
_Static_assert(NCCL_VERSION(2, 14, 0) == LVNI_NCCL_CONFIG_VERSION, "the version");

#define TAKES(function, ...)                                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), ncclResult_t(__VA_ARGS__)),  \
                   #function)
TAKES(ncclGetVersion, int *);
TAKES(ncclGetUniqueId, ncclUniqueId *);
TAKES(ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
TAKES(ncclCommFinalize, ncclComm_t);
TAKES(ncclCommDestroy, ncclComm_t);
TAKES(ncclCommAbort, ncclComm_t);
TAKES(ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
TAKES(ncclGroupStart, void);
TAKES(ncclGroupEnd, void);
TAKES(ncclSend, const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TAKES(ncclRecv, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);

TEST(the_magic_number_is_theirs)
{
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(config.magic, LVNI_NCCL_CONFIG_MAGIC);
}

#endif

TEST(the_library_has_all_of_it)
{
    const char *missing;
    const lvni_nccl_api *api = lvni_nccl_load(&missing);
    if (api == NULL) {
        print_message("no NCCL: %s\n", missing);
        skip();
        return;
    }
    int version = 0;
    assert_int_equal(api->get_version(&version), LVNI_NCCL_SUCCESS);
    assert_true(version >= LVNI_NCCL_CONFIG_VERSION);
    assert_non_null(strstr(api->error_string(LVNI_NCCL_INVALID_USAGE), "invalid usage"));
    assert_non_null(strstr(api->error_string(LVNI_NCCL_IN_PROGRESS), "in progress"));
    assert_null(api->use_sim);
}
