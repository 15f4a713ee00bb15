/* A communicator of NCCL (nccl_impl.h). */
#include "core/machine.h"
#include "core/thread.h"
#include "dist/nccl/nccl_impl.h"
#include "dist/transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_S = 120, EAGER = 1000, PAUSE_NS = 100000, CAUSE_MS = 3000 };

static void rest(uint64_t ns)
{
    const struct timespec t = lvni_core_timespec(ns);
    (void)nanosleep(&t, NULL);
}

/* ---- what went wrong ---- */

/* NCCL notices the end of another rank as a broken connection; the run knows why it ended. */
static lvn_status wait_for_cause(const lvni_nccl_comm *c)
{
    for (int ms = 0; ms < CAUSE_MS; ms++) {
        LVN_TRY(c->comm->ops->health(c->comm));
        rest(1000000);
    }
    return LVN_OK;
}

static lvn_status fail(lvni_nccl_comm *c, const char *what, int result)
{
    const int rank = lvni_dist_comm_number(c->comm, c->comm->rank);
    char detail[256] = "";
    if (result == LVNI_NCCL_REMOTE_ERROR) {
        LVN_TRY(wait_for_cause(c));
    }
    pthread_mutex_lock(&c->lock);
    if (c->api->last_error != NULL && c->handle != NULL) {
        const char *text = c->api->last_error(c->handle);
        snprintf(detail, sizeof detail, "%s%s", text != NULL && text[0] != '\0' ? ": " : "",
                 text != NULL ? text : "");
    }
    pthread_mutex_unlock(&c->lock);
    for (char *p = detail; *p != '\0'; p++) {
        *p = *p == '\n' ? ' ' : *p;
    }
    if (result == LVNI_NCCL_INVALID_USAGE || result == LVNI_NCCL_INVALID_ARGUMENT) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "transport=nccl: rank %d: %s: %s%s; NCCL takes no two ranks on one device, "
                 "transport=auto does",
                 rank, what, c->api->error_string(result), detail);
    }
    LVN_FAIL(result == LVNI_NCCL_REMOTE_ERROR ? LVN_ERR_PEER : LVN_ERR_RESOURCE,
             "transport=nccl: rank %d: %s: %s%s", rank, what, c->api->error_string(result), detail);
}

lvn_status lvni_nccl_comm_enter(lvni_nccl_comm *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->handle != NULL) {
        return LVN_OK;
    }
    pthread_mutex_unlock(&c->lock);
    LVN_TRY(c->comm->ops->health(c->comm)); /* which has the cause */
    LVN_FAIL(LVN_ERR_PEER, "transport=nccl: rank %d: NCCL was aborted",
             lvni_dist_comm_number(c->comm, c->comm->rank));
}

void lvni_nccl_comm_leave(lvni_nccl_comm *c)
{
    pthread_mutex_unlock(&c->lock);
}

/* LVNI_NCCL_IN_PROGRESS too. */
static lvn_status ask(lvni_nccl_comm *c, int *result)
{
    LVN_TRY(lvni_nccl_comm_enter(c));
    const int answer = c->api->get_async_error(c->handle, result);
    lvni_nccl_comm_leave(c);
    *result = answer != LVNI_NCCL_SUCCESS ? answer : *result;
    return LVN_OK;
}

lvn_status lvni_nccl_comm_complete(lvni_nccl_comm *c, const char *what, int result)
{
    const uint64_t begin = lvni_core_now_ns(), most = (uint64_t)(c->timeout_s * 1e9);
    for (int i = 0; result == LVNI_NCCL_IN_PROGRESS; i++) {
        LVN_TRY(c->comm->ops->health(c->comm));
        if (lvni_core_now_ns() - begin > most) {
            LVN_FAIL(LVN_ERR_TIMEOUT, "transport=nccl: rank %d: %s has not ended in %.1f s",
                     lvni_dist_comm_number(c->comm, c->comm->rank), what, c->timeout_s);
        }
        if (i >= EAGER) {
            rest(PAUSE_NS);
        }
        LVN_TRY(ask(c, &result));
    }
    return result == LVNI_NCCL_SUCCESS ? LVN_OK : fail(c, what, result);
}

lvn_status lvni_nccl_comm_health(lvni_nccl_comm *c)
{
    int result = LVNI_NCCL_SUCCESS;
    LVN_TRY(c->comm->ops->health(c->comm));
    LVN_TRY(ask(c, &result));
    return result == LVNI_NCCL_SUCCESS || result == LVNI_NCCL_IN_PROGRESS
               ? LVN_OK
               : fail(c, "the sum of gradients", result);
}

/* ---- beginning ---- */

/* Rank 0 makes the id; it travels as any value of the run. */
static lvn_status share_id(lvni_nccl_comm *c, lvni_nccl_id *id)
{
    lvn_status own = LVN_OK;
    memset(id, 0, sizeof *id);
    if (c->comm->rank == 0) {
        const int result = c->api->get_unique_id(id);
        own = result == LVNI_NCCL_SUCCESS ? LVN_OK : fail(c, "ncclGetUniqueId", result);
    }
    LVN_TRY(lvni_dist_comm_agree_status(c->comm, own, "transport=nccl"));
    return lvni_dist_comm_broadcast(c->comm, id, sizeof *id, 0);
}

static lvn_status init(lvni_nccl_comm *c, lvni_nccl_id id)
{
    lvni_nccl_config config = {.size = sizeof config,
                               .magic = LVNI_NCCL_CONFIG_MAGIC,
                               .version = LVNI_NCCL_CONFIG_VERSION,
                               .blocking = 0};
    void *handle = NULL;
    const int result = c->api->init_rank(&handle, c->comm->world, id, c->comm->rank, &config);
    pthread_mutex_lock(&c->lock);
    c->handle = handle;
    pthread_mutex_unlock(&c->lock);
    if (handle == NULL) { /* there is nothing to ask */
        return fail(c, "ncclCommInitRankConfig", result);
    }
    return lvni_nccl_comm_complete(c, "ncclCommInitRankConfig", result);
}

lvn_status lvni_nccl_comm_init(lvni_nccl_comm *c, lvni_dist_comm *comm, double timeout_s)
{
    const char *missing;
    c->comm = comm;
    c->timeout_s = timeout_s > 0.0 ? timeout_s : DEFAULT_TIMEOUT_S;
    pthread_mutex_init(&c->lock, NULL);
    c->api = lvni_nccl_load(&missing);
    lvn_status own = LVN_OK;
    if (c->api == NULL) {
        own = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "transport=nccl: %s", missing);
    }
    lvni_nccl_id id;
    LVN_TRY(lvni_dist_comm_agree_status(comm, own, "transport=nccl"));
    if (c->api == NULL) { /* all ranks have agreed on that above */
        return own;
    }
    LVN_TRY(share_id(c, &id));
    own = init(c, id);
    if (own != LVN_OK) {
        const lvn_error error = *lvn_last_error();
        lvni_nccl_comm_abort(c); /* others may wait for this rank in NCCL alone */
        (void)lvn_error_adopt(&error);
    }
    return lvni_dist_comm_agree_status(comm, own, "transport=nccl");
}

/* ---- ending ---- */

static void *abort_main(void *p)
{
    const lvni_nccl_comm *c = p;
    lvni_core_thread_name("nccl", -1);
    (void)c->api->abort(c->ending);
    return NULL;
}

void lvni_nccl_comm_abort(lvni_nccl_comm *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->handle != NULL) {
        c->ending = c->handle;
        c->handle = NULL;
        c->has_thread = lvni_core_thread_start(&c->aborting, abort_main, c) == 0;
        if (!c->has_thread) {
            (void)c->api->abort(c->ending);
        }
    }
    pthread_mutex_unlock(&c->lock);
}

/* What others still read of this rank is sent before it goes; a rank that does not come to it in
 * time is not waited for. */
static bool finalize(lvni_nccl_comm *c)
{
    enum { MOST_S = 5 };
    c->timeout_s = MOST_S;
    if (lvni_nccl_comm_enter(c) != LVN_OK) {
        return false;
    }
    const int result = c->api->finalize(c->handle);
    lvni_nccl_comm_leave(c);
    return lvni_nccl_comm_complete(c, "ncclCommFinalize", result) == LVN_OK;
}

void lvni_nccl_comm_end(lvni_nccl_comm *c)
{
    if (c->comm == NULL) {
        return;
    }
    const lvn_error error = *lvn_last_error(); /* ending must not hide it */
    if (c->handle != NULL) {
        if (finalize(c)) {
            (void)c->api->destroy(c->handle);
            c->handle = NULL;
        } else {
            lvni_nccl_comm_abort(c);
        }
    }
    if (c->has_thread) {
        pthread_join(c->aborting, NULL);
    }
    pthread_mutex_destroy(&c->lock);
    (void)lvn_error_adopt(&error);
}
