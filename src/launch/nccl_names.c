/* Names of variables that begin with NCCL_ (nccl_names.h). Facts from NCCL's user guide
 * ("Environment Variables", releases 2.3 to 2.29) and from what the library of release 2.28 asks
 * the environment for; the last lines are of PyTorch (older names of TORCH_NCCL_...) and of build
 * systems and container images. */
#include "launch/nccl_names.h"

#include "core/edit_distance.h"

#include <string.h>

static const char prefix[] = "NCCL_";
enum { PREFIX = sizeof prefix - 1 };

/* Without the prefix. */
/* clang-format off */
static const char *const names[] = {
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
static const char *const families[] = {
    "DYNAMIC_",  "FASTRAK_", "GPUDIRECTTCPX_", "IBEXT_", "OFI_", "PLUGIN_",
    "PROFILER_", "SHARP_",   "TESTS_",         "TUNER_", "UCX_"};
enum { FAMILIES = sizeof families / sizeof *families };
enum { NAMES = sizeof names / sizeof *names };

bool lvni_launch_nccl_is_unknown(const char *name, const char **near)
{
    size_t best = 0;
    *near = NULL;
    if (strncmp(name, prefix, PREFIX) != 0) {
        return false;
    }
    for (size_t i = 0; i < FAMILIES; i++) {
        if (strncmp(name + PREFIX, families[i], strlen(families[i])) == 0) {
            return false;
        }
    }
    for (size_t i = 0; i < NAMES; i++) {
        if (strcmp(name + PREFIX, names[i]) == 0) {
            return false;
        }
        const size_t d = lvni_core_edit_distance(name + PREFIX, names[i]);
        if (d <= lvni_core_edit_limit(name + PREFIX, names[i]) && (*near == NULL || d < best)) {
            *near = names[i];
            best = d;
        }
    }
    return true;
}

static lvn_status warn(const char *variable, const char *equals, lvni_core_notices *notices)
{
    lvni_core_str name = {0};
    const char *near;
    lvni_core_str_append_n(&name, variable, (size_t)(equals - variable));
    lvn_status s = lvni_core_str_status(&name);
    if (s == LVN_OK && lvni_launch_nccl_is_unknown(lvni_core_str_text(&name), &near)) {
        lvni_core_notice_warn(
            notices, 214,
            "%s is no variable of NCCL that is known here%s%s%s%s; it is passed on as it is",
            lvni_core_str_text(&name), near != NULL ? " (did you mean " : "",
            near != NULL ? prefix : "", near != NULL ? near : "", near != NULL ? "?)" : "");
    }
    lvni_core_str_free(&name);
    return s;
}

lvn_status lvni_launch_nccl_warn(char *const *env, lvni_core_notices *notices)
{
    for (; env != NULL && *env != NULL; env++) {
        const char *equals = strchr(*env, '=');
        if (equals != NULL && strncmp(*env, prefix, PREFIX) == 0) {
            LVN_TRY(warn(*env, equals, notices));
        }
    }
    return LVN_OK;
}
