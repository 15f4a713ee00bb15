/* The transport ucx of a build without it: the package libucx-dev was not there. */
#include "dist/net/net_impl.h"

static const char *missing(void)
{
    return "this levin was built without it (Debian's package libucx-dev)";
}

lvn_status lvni_dist_comm_ucx(const lvni_dist_comm_options *options, lvni_dist_comm **out)
{
    (void)options;
    *out = NULL;
    LVN_FAIL(LVN_ERR_NOT_FOUND, "UCX is not there: %s", missing());
}

static int score(lvni_dist_call_kind call, lvni_dist_memory memory, size_t bytes)
{
    (void)call, (void)memory, (void)bytes;
    return 1;
}

const lvni_dist_transport lvni_dist_transport_ucx = {
    .name = "ucx",
    .does = "exchange messages over UCX",
    .max_ranks = LVNI_NET_MAX_RANKS,
    .score = score,
    .missing = missing,
    .unfit = missing,
    .connect = lvni_dist_comm_ucx,
    .abilities = LVNI_DIST_MESSAGES,
};
