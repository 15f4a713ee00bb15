/* Reading and building environments, and unknown names of NCCL (env_vars.h). */
#include "launch/env_vars.h"

#include "core/alloc.h"
#include "core/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *lvni_launch_env_raw(char *const *env, const char *name)
{
    const size_t n = strlen(name);
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            return *env + n + 1;
        }
    }
    return NULL;
}

const char *lvni_launch_env_get(char *const *env, const char *name)
{
    const char *value = lvni_launch_env_raw(env, name);
    return value == NULL || *value == '\0' ? NULL : value;
}

bool lvni_launch_env_digits(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9') {
            return false;
        }
        const uint64_t digit = (uint64_t)(*p - '0');
        if (digit > max || value > (max - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

lvn_status lvni_launch_env_number(char *const *env, const char *name, uint64_t max,
                                  lvni_core_notices *notices, uint64_t *out)
{
    const char *text = lvni_launch_env_get(env, name);
    if (text != NULL && !lvni_launch_env_digits(text, max, out)) {
        const lvn_status s =
            lvni_core_notice_error(notices, 100, "%s='%s' is not a number", name, text);
        lvni_core_notice_found(notices, "%s='%s'", name, text);
        lvni_core_notice_fix(notices,
                             "decimal digits alone, at most %" PRIu64
                             "; who started this program sets it: unset it if that was you",
                             max);
        notices->own = true;
        return s;
    }
    return LVN_OK;
}

lvn_status lvni_launch_env_int(char *const *env, const char *name, lvni_core_notices *notices,
                               int *out)
{
    uint64_t value = (uint64_t)*out;
    LVN_TRY(lvni_launch_env_number(env, name, INT32_MAX, notices, &value));
    if (lvni_launch_env_get(env, name) != NULL) {
        *out = (int)value;
    }
    return LVN_OK;
}

lvn_status lvni_launch_env_seconds(char *const *env, const char *name, lvni_core_notices *notices,
                                   double *out)
{
    const char *text = lvni_launch_env_get(env, name);
    if (text == NULL) {
        return LVN_OK;
    }
    char *end;
    const double s = lvni_core_strtod(text, &end);
    /* beginning with a digit: no sign, no blanks, neither inf nor nan; none of hexadecimal either
     */
    if (strspn(text, "0123456789.e+-") != strlen(text) || text[0] < '0' || text[0] > '9' ||
        *end != '\0' || !(s > 0.0 && s <= 1e9)) {
        const lvn_status status = lvni_core_notice_error(
            notices, 100, "%s='%s' is not a number of seconds above 0", name, text);
        lvni_core_notice_found(notices, "%s='%s'", name, text);
        lvni_core_notice_fix(notices, "%s=300, a number without a unit; or unset it", name);
        return status;
    }
    *out = s;
    return LVN_OK;
}

lvn_status lvni_launch_env_flag(char *const *env, const char *name, const char *fix,
                                lvni_core_notices *notices, bool *out)
{
    const char *text = lvni_launch_env_get(env, name);
    if (text == NULL) {
        return LVN_OK;
    }
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        const lvn_status s =
            lvni_core_notice_error(notices, 100, "%s='%s' is neither 0 nor 1", name, text);
        lvni_core_notice_found(notices, "%s='%s'", name, text);
        lvni_core_notice_fix(notices, "%s", fix);
        return s;
    }
    *out = *text == '1';
    return LVN_OK;
}

lvn_status lvni_launch_env_strict(char *const *env, int option, lvni_core_notices *notices,
                                  bool *out)
{
    *out = option > 0;
    return option >= 0
               ? LVN_OK
               : lvni_launch_env_flag(env, "LEVIN_STRICT",
                                      "LEVIN_STRICT=1: warnings with a number are errors; 0: they "
                                      "are not; or unset it",
                                      notices, out);
}

const char *lvni_launch_env_first(char *const *env, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (lvni_launch_env_get(env, *names) != NULL) {
            return *names;
        }
    }
    return NULL;
}

void lvni_launch_env_found(char *const *env, const char *name, lvni_core_notices *notices)
{
    const char *value = lvni_launch_env_raw(env, name);
    if (value != NULL) {
        lvni_core_notice_found(notices, "%s=%s", name, value);
    } else {
        lvni_core_notice_found(notices, "%s is not set", name);
    }
}

/* ---- building ---- */

static bool is_named(const char *variable, const char *name, size_t n)
{
    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

static void put(lvni_launch_variables *v, char *text)
{
    if (v->failed || text == NULL || v->n + 2 > v->room) {
        const size_t room = v->room == 0 ? 128 : v->room * 2;
        char **list = v->failed || text == NULL
                          ? NULL
                          : lvni_core_realloc(LVNI_TAG_CORE, v->list, room * sizeof *list);
        if (list == NULL) {
            v->failed = true;
            lvni_core_free(text);
            return;
        }
        v->list = list;
        v->room = room;
    }
    v->list[v->n++] = text;
    v->list[v->n] = NULL;
}

void lvni_launch_variables_copy(lvni_launch_variables *v, char *const *environment)
{
    for (char *const *e = environment; *e != NULL; e++) {
        put(v, lvni_core_strdup(LVNI_TAG_CORE, *e));
    }
}

void lvni_launch_variables_set(lvni_launch_variables *v, const char *name, const char *value)
{
    lvni_launch_variables_unset(v, name);
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s=%s", name, value);
    put(v, lvni_core_str_take(&s));
}

void lvni_launch_variables_set_number(lvni_launch_variables *v, const char *name, int64_t value)
{
    lvni_launch_variables_unset(v, name);
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s=%lld", name, (long long)value);
    put(v, lvni_core_str_take(&s));
}

static void drop(lvni_launch_variables *v, size_t i)
{
    lvni_core_free(v->list[i]);
    memmove(v->list + i, v->list + i + 1, (v->n - i) * sizeof *v->list); /* with the NULL */
    v->n--;
}

void lvni_launch_variables_unset(lvni_launch_variables *v, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = v->n; i-- > 0;) {
        if (is_named(v->list[i], name, n)) {
            drop(v, i);
        }
    }
}

void lvni_launch_variables_unset_prefix(lvni_launch_variables *v, const char *prefix)
{
    for (size_t i = v->n; i-- > 0;) {
        if (strncmp(v->list[i], prefix, strlen(prefix)) == 0) {
            drop(v, i);
        }
    }
}

const char *lvni_launch_variables_get(const lvni_launch_variables *v, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < v->n; i++) {
        if (is_named(v->list[i], name, n)) {
            return v->list[i] + n + 1;
        }
    }
    return NULL;
}

lvn_status lvni_launch_variables_status(const lvni_launch_variables *v)
{
    if (v->failed) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for the environment of a process");
    }
    return LVN_OK;
}

void lvni_launch_variables_free(lvni_launch_variables *v)
{
    for (size_t i = 0; i < v->n; i++) {
        lvni_core_free(v->list[i]);
    }
    lvni_core_free(v->list);
    *v = (lvni_launch_variables){0};
}

/* ---- NCCL ----
 * Names from NCCL's user guide ("Environment Variables", releases 2.3 to 2.29) and from what the
 * library of release 2.28 reads; the last lines are of PyTorch (older names of TORCH_NCCL_...) and
 * of build systems and container images. */

static const char nccl_prefix[] = "NCCL_";
enum { PREFIX = sizeof nccl_prefix - 1 };

/* Without the prefix. */
/* clang-format off */
static const char *const nccl_names[] = {
    "ALGO", "ALLOC_P2P_NET_LL_BUFFERS", "BUFFSIZE", "CGA_CLUSTER_SIZE", "CHECKS_DISABLE",
    "CHECK_MODE", "CHECK_POINTERS", "CHUNK_SIZE", "COLLNET_ENABLE", "COLLNET_NODE_THRESHOLD",
    "COMM_BLOCKING", "COMM_ID", "COMM_SHRINK_SHARE_RESOURCES", "COMM_SPLIT_SHARE_RESOURCES",
    "CONF_FILE", "CONNECT_ROUND_MAX_PEERS", "CREATE_THREAD_CONTEXT", "CROSS_NIC", "CTA_POLICY",
    "CUMEM_ENABLE", "CUMEM_HOST_ENABLE", "DEBUG", "DEBUG_FILE", "DEBUG_LEVELS", "DEBUG_SUBSYS",
    "DEBUG_TIMESTAMP_FORMAT", "DEBUG_TIMESTAMP_LEVELS", "DMABUF_ENABLE", "ENV_PLUGIN",
    "GDRCOPY_ENABLE", "GDRCOPY_FIFO_ENABLE", "GDRCOPY_FLUSH_ENABLE", "GDRCOPY_SYNC_ENABLE",
    "GDR_FLUSH_DISABLE", "GIN_COUNTER_POOL_SIZE", "GIN_ENABLE", "GIN_ERROR_QUERY_SEC",
    "GIN_GDAKI_NIC_HANDLER", "GIN_GDAKI_QP_DEPTH", "GIN_IB_ALLGATHER_TAG", "GIN_IB_ALLTOALL_TAG",
    "GIN_NCONTEXTS", "GIN_PLUGIN", "GIN_PROXY_QUEUE_SIZE", "GIN_SIGNAL_POOL_SIZE", "GIN_TYPE",
    "GRAPH_DUMP_FILE", "GRAPH_DUMP_FILE_RANK", "GRAPH_FILE", "GRAPH_HELPER_DISABLE",
    "GRAPH_MIXING_SUPPORT", "GRAPH_REGISTER", "GRAPH_STREAM_ORDERING", "GROUP_CUDA_STREAM",
    "HOSTID", "IB_ADAPTIVE_ROUTING", "IB_ADDR_FAMILY", "IB_ADDR_RANGE", "IB_AR_THRESHOLD",
    "IB_CUDA_SUPPORT", "IB_DATA_DIRECT", "IB_DISABLE", "IB_ECE_ENABLE", "IB_EVENT_BASED_LB",
    "IB_FIFO_TC", "IB_GDR_LEVEL", "IB_GID_INDEX", "IB_HCA", "IB_MERGE_NICS", "IB_MERGE_VFS",
    "IB_MQP_RETRY_ALL", "IB_MQP_RETRY_CNT", "IB_MQP_RETRY_SLEEP_MSEC", "IB_OOO_RQ",
    "IB_PCI_RELAXED_ORDERING", "IB_PKEY", "IB_PKEY_VALUE", "IB_QPS_PER_CONNECTION", "IB_RETRY_CNT",
    "IB_RETURN_ASYNC_EVENTS", "IB_ROCE_VERSION_NUM", "IB_ROUTABLE_FLID_GID_INDEX", "IB_SL",
    "IB_SPLIT_DATA_ON_QPS", "IB_TC", "IB_TIMEOUT", "IB_USE_INLINE", "IB_WARN_RAIL_LOCAL",
    "IGNORE_COLLNET_MISMATCH", "IGNORE_CPU_AFFINITY", "IGNORE_DISABLED_P2P", "IGNORE_NET_MISMATCH",
    "IPC_USE_ABSTRACT_SOCKET", "L1_SHARED_MEMORY_CARVEOUT", "LAUNCH_MODE", "LAUNCH_ORDER_IMPLICIT",
    "LAUNCH_RACE_FATAL", "LEGACY_CUDA_REGISTER", "LL128_BUFFSIZE", "LL128_C2C", "LL128_NTHREADS",
    "LL_BUFFSIZE", "LL_THRESHOLD", "LOCAL_REGISTER", "MAX_CTAS", "MAX_NCHANNELS", "MAX_NRINGS",
    "MAX_P2P_NCHANNELS", "MEM_SYNC_DOMAIN", "MIN_CTAS", "MIN_NCHANNELS", "MIN_NRINGS",
    "MIN_P2P_NCHANNELS", "MNNVL_CLIQUE_ID", "MNNVL_ENABLE", "MNNVL_RAIL_PER_HOST",
    "MNNVL_SCATTER_NETS_ENABLE", "MNNVL_UUID", "MULTI_RANK_GPU_ENABLE", "NCHANNELS_PER_NET_PEER",
    "NET", "NETDEVS_POLICY", "NET_DISABLE_INTRA", "NET_FORCE_FLUSH", "NET_FORCE_MERGE",
    "NET_GDR_C2C", "NET_GDR_LEVEL", "NET_GDR_READ", "NET_MERGE_LEVEL", "NET_MERGE_POLICY",
    "NET_OPTIONAL_RECV_COMPLETION", "NET_OVERHEAD", "NET_PLUGIN", "NET_PLUGIN_REF_COUNT",
    "NET_SHARED_BUFFERS", "NET_SHARED_COMMS", "NSOCKS_PERTHREAD", "NTHREADS", "NVB_DISABLE",
    "NVB_PRECONNECT", "NVLINK_UTIL_CENTRIC_SCHED_ENABLE", "NVLSTREE_MAX_CHUNKSIZE",
    "NVLS_CHUNKSIZE", "NVLS_ENABLE", "NVLS_NCHANNELS", "NVTX_DISABLE", "OOB_NET_ENABLE",
    "OOB_NET_IFNAME", "P2P_DIRECT_DISABLE", "P2P_DISABLE", "P2P_LEVEL", "P2P_LL_THRESHOLD",
    "P2P_NET_CHUNKSIZE", "P2P_NVL_CHUNKSIZE", "P2P_PCI_CHUNKSIZE", "P2P_PXN_LEVEL",
    "P2P_READ_ENABLE", "P2P_SCHEDULE_GROUP_SIZE", "P2P_USE_CUDA_MEMCPY", "PAT_ENABLE",
    "PROFILER_PLUGIN", "PROGRESS_APPENDOP_FREQ", "PROTO", "PROXY_APPEND_BATCH_SIZE", "PROXY_CPUSET",
    "PROXY_DUMP_SIGNAL", "PXN_C2C", "PXN_DISABLE", "RAS_ADDR", "RAS_ENABLE", "RAS_TIMEOUT_FACTOR",
    "REPORT_CONNECT_PROGRESS", "RINGS", "RMA_EAGER_INIT", "RMA_PLUGIN", "RUNTIME_CONNECT",
    "SET_CPU_STACK_SIZE", "SET_STACK_SIZE", "SET_THREAD_NAME", "SHARP_DISABLE",
    "SHARP_GROUP_SIZE_THRESH", "SHM_DISABLE", "SHM_LOCALITY", "SHM_MEMCPY_MODE",
    "SHM_USE_CUDA_MEMCPY", "SINGLE_PROC_MEM_REG_ENABLE", "SINGLE_RING_THRESHOLD", "SOCKET_FAMILY",
    "SOCKET_IFNAME", "SOCKET_INLINE", "SOCKET_MIN_TASKSIZE", "SOCKET_NTHREADS", "SOCKET_RCVBUF",
    "SOCKET_RETRY_CNT", "SOCKET_RETRY_SLEEP_MSEC", "SOCKET_SNDBUF", "SYM_CTAS",
    "SYM_GIN_KERNELS_ENABLE", "SYM_KERNEL", "THREAD_THRESHOLDS", "TOPO_DUMP_FILE",
    "TOPO_DUMP_FILE_RANK", "TOPO_FILE", "TREE_THRESHOLD", "TUNER_PLUGIN", "UID_STAGGER_RATE",
    "UID_STAGGER_THRESHOLD", "UNPACK_DOUBLE_NCHANNELS", "WARN_ENABLE_DEBUG_INFO", "WIN_ENABLE",
    "WIN_STRIDE", "WORK_ARGS_BYTES", "WORK_FIFO_BYTES", "ASYNC_ERROR_HANDLING", "BLOCKING_WAIT",
    "DESYNC_DEBUG", "DIR", "ENABLE_TIMING", "HOME", "INCLUDE_DIR", "LIBRARY", "LIBRARY_DIR",
    "LIB_DIR", "ROOT", "ROOT_DIR", "VERSION",
};
/* clang-format on */
/* Of plugins and of programs around it, which have names of their own. */
static const char *const nccl_families[] = {
    "DYNAMIC_",  "FASTRAK_", "GPUDIRECTTCPX_", "IBEXT_", "OFI_", "PLUGIN_",
    "PROFILER_", "SHARP_",   "TESTS_",         "TUNER_", "UCX_"};
enum {
    NAMES = sizeof nccl_names / sizeof *nccl_names,
    FAMILIES = sizeof nccl_families / sizeof *nccl_families
};

bool lvni_launch_nccl_is_unknown(const char *name, const char **near)
{
    size_t best = 0;
    *near = NULL;
    if (strncmp(name, nccl_prefix, PREFIX) != 0) {
        return false;
    }
    for (size_t i = 0; i < FAMILIES; i++) {
        if (strncmp(name + PREFIX, nccl_families[i], strlen(nccl_families[i])) == 0) {
            return false;
        }
    }
    for (size_t i = 0; i < NAMES; i++) {
        if (strcmp(name + PREFIX, nccl_names[i]) == 0) {
            return false;
        }
        const size_t d = lvni_core_edit_distance(name + PREFIX, nccl_names[i]);
        if (d <= lvni_core_edit_limit(name + PREFIX, nccl_names[i]) &&
            (*near == NULL || d < best)) {
            *near = nccl_names[i];
            best = d;
        }
    }
    return true;
}

static lvn_status warn_unknown(const char *variable, const char *equals, lvni_core_notices *notices)
{
    lvni_core_str name = {0};
    const char *near;
    lvni_core_str_append_n(&name, variable, (size_t)(equals - variable));
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&name));
    if (lvni_launch_nccl_is_unknown(lvni_core_str_text(&name), &near)) {
        lvni_core_notice_warn(
            notices, 214, "%s is not a known variable of NCCL%s%s%s%s; it is passed on as it is",
            lvni_core_str_text(&name), near != NULL ? " (did you mean " : "",
            near != NULL ? nccl_prefix : "", near != NULL ? near : "", near != NULL ? "?)" : "");
    }
done:
    lvni_core_str_free(&name);
    return s;
}

lvn_status lvni_launch_nccl_warn(char *const *env, lvni_core_notices *notices)
{
    for (; env != NULL && *env != NULL; env++) {
        const char *equals = strchr(*env, '=');
        if (equals != NULL && strncmp(*env, nccl_prefix, PREFIX) == 0) {
            LVN_TRY(warn_unknown(*env, equals, notices));
        }
    }
    return LVN_OK;
}
