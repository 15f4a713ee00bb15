/* The store's life (store.h): created, its thread, waited for, destroyed. What it does meanwhile:
 * store_conn.c (connections), store_greet.c (who may join), store_rendezvous.c, store_keys.c (keys
 * and gathers), store_watch.c (silence, causes, the common stop). */
#include "store_impl.h"

#include "rdzv_file.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void lvni_control_store_options_init(lvni_control_store_options *options)
{
    *options = (lvni_control_store_options){.listen_fd = -1,
                                            .world = 1,
                                            .rdzv_timeout_s = 300,
                                            .waiting_first_s = 15,
                                            .waiting_every_s = 30,
                                            .greeting_timeout_s = 5,
                                            .munge_timeout_s = 10,
                                            .heartbeat_s = 2,
                                            .peer_timeout_s = 10,
                                            .settle_s = 0.25};
}

static lvn_status copy_hosts(lvni_control_store *store, const char *const *hosts)
{
    if (hosts == NULL) {
        return LVN_OK;
    }
    store->rank_hosts =
        lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)store->o.world, sizeof *store->rank_hosts);
    for (int r = 0; store->rank_hosts != NULL && r < store->o.world; r++) {
        store->rank_hosts[r] = lvni_core_strdup(LVNI_TAG_CONTROL, hosts[r]);
        if (store->rank_hosts[r] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    return store->rank_hosts == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void free_store(lvni_control_store *store)
{
    for (int r = 0; store->rank_hosts != NULL && r < store->o.world; r++) {
        lvni_core_free(store->rank_hosts[r]);
    }
    for (int r = 0; store->ranks != NULL && r < store->o.world; r++) {
        lvni_core_free(store->ranks[r].facts_block);
    }
    if (store->file.len > 0) {
        lvni_control_rdzv_file_remove(store->file.data, store->port, store->made_dirs);
    }
    lvni_core_str_free(&store->file);
    lvni_core_free(store->job_key);
    lvni_core_free(store->run_id);
    lvni_core_free(store->munge_socket);
    lvni_control_store_free_keys(store);
    lvni_control_store_free_gathers(store);
    lvni_control_blob_unref(store->table);
    lvni_core_free(store->rank_hosts);
    lvni_core_free(store->ranks);
    lvni_core_free(store->read_buffer);
    pthread_mutex_destroy(&store->lock);
    pthread_cond_destroy(&store->changed);
    lvni_core_free(store);
}

/* ---- The thread ---- */

static void end_all(lvni_control_store *store)
{
    store->over = true; /* no rank is lost any more */
    store->refusals.next_ns = 0;
    lvni_control_store_report_refusals(store, lvni_core_now_ns());
    lvni_control_conn *const lists[] = {store->conns.first, store->strangers.first};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (lvni_control_conn *conn = lists[i]; conn != NULL; conn = conn->next) {
            lvni_control_conn_drop(conn, "");
        }
    }
    if (!uv_is_closing((uv_handle_t *)&store->listener)) {
        uv_close((uv_handle_t *)&store->listener, NULL);
    }
    for (int k = 0; k < store->n_places; k++) {
        uv_close((uv_handle_t *)&store->place[k], NULL);
    }
    uv_close((uv_handle_t *)&store->accepts, NULL);
    uv_close((uv_handle_t *)&store->tick, NULL);
    uv_close((uv_handle_t *)&store->settle, NULL);
    uv_close((uv_handle_t *)&store->wake, NULL);
}

static void on_wake(uv_async_t *async)
{
    lvni_control_store *store = async->data;
    pthread_mutex_lock(&store->lock);
    const bool ending = store->ending;
    pthread_mutex_unlock(&store->lock);
    if (ending && !uv_is_closing((uv_handle_t *)async)) {
        end_all(store);
    }
}

/* Often enough for the shortest of its times. */
static uint64_t tick_ms(const lvni_control_store_options *o)
{
    double least = 0.5;
    const double times[] = {o->rdzv_timeout_s / 4,  o->waiting_first_s / 4,
                            o->waiting_every_s / 4, o->greeting_timeout_s / 4,
                            o->heartbeat_s / 2,     o->peer_timeout_s / 8};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        least = times[i] < least ? times[i] : least;
    }
    return least < 0.005 ? 5 : (uint64_t)(least * 1e3);
}

/* store->fd is -1 from where the listener owns it. What is made is closed by close_loop. */
static int make_handles(lvni_control_store *store)
{
    uv_timer_init(&store->loop, &store->tick);
    uv_timer_init(&store->loop, &store->settle);
    uv_timer_init(&store->loop, &store->accepts);
    uv_tcp_init(&store->loop, &store->listener);
    store->tick.data = store->settle.data = store->accepts.data = store->listener.data =
        store->wake.data = store;
    int error = uv_tcp_open(&store->listener, store->fd);
    if (error != 0) {
        return error;
    }
    store->fd = -1;
    const uint64_t ms = tick_ms(&store->o);
    error = uv_listen((uv_stream_t *)&store->listener, SOMAXCONN, lvni_control_store_on_connection);
    if (error == 0) {
        error = uv_async_init(&store->loop, &store->wake, on_wake);
    }
    return error != 0 ? error : uv_timer_start(&store->tick, lvni_control_store_on_tick, ms, ms);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

static void close_loop(lvni_control_store *store)
{
    uv_walk(&store->loop, close_handle, NULL);
    uv_run(&store->loop, UV_RUN_DEFAULT);
    uv_loop_close(&store->loop);
}

/* How the start went, for the thread that waits in start: 0, or an error of libuv. */
static void report_start(lvni_control_store *store, int error)
{
    pthread_mutex_lock(&store->lock);
    store->start_error = error;
    store->started = true;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

/* The loop begins and ends in this thread: from version 1.45 on libuv has an io_uring for it, and
 * its end interrupts, without a signal, system calls of every thread that has touched it (a receive
 * with a time-out ends with EINTR). No other thread of the program does. */
static void *serve(void *arg)
{
    lvni_control_store *store = arg;
    lvni_core_thread_name("store", -1);
    int error = uv_loop_init(&store->loop);
    if (error != 0) {
        report_start(store, error);
        return NULL;
    }
    error = make_handles(store);
    report_start(store, error);
    if (error == 0) {
        uv_run(&store->loop, UV_RUN_DEFAULT); /* until end_all has closed everything */
    }
    close_loop(store);
    return NULL;
}

static lvn_status start(lvni_control_store *store)
{
    int error = -lvni_core_thread_start(&store->thread, serve, store);
    if (error == 0) {
        pthread_mutex_lock(&store->lock);
        while (!store->started) {
            pthread_cond_wait(&store->changed, &store->lock);
        }
        error = store->start_error;
        pthread_mutex_unlock(&store->lock);
        if (error != 0) {
            pthread_join(store->thread, NULL);
        }
    }
    if (error != 0) {
        LVN_FAIL(error == UV_ENOMEM ? LVN_ERR_MEMORY : LVN_ERR_IO,
                 "the store cannot be started: %s", uv_strerror(error));
    }
    return LVN_OK;
}

static char *copy(const char *text)
{
    return text == NULL ? NULL : lvni_core_strdup(LVNI_TAG_CONTROL, text);
}

/* How ranks prove that they belong here, and the key by which they do. */
static lvn_status make_key(lvni_control_store *store)
{
    const lvni_control_store_options *o = &store->o;
    lvni_control_token given;
    store->auth = o->run_key != NULL || o->secret != NULL ? LVNI_AUTH_KEY : o->auth;
    if (store->auth == LVNI_AUTH_MUNGE) {
        store->job_key = copy(o->job_key);
        store->run_id = copy(o->run_id);
        store->munge_socket = copy(o->munge_socket);
        const bool whole = (store->job_key != NULL) == (o->job_key != NULL) &&
                           (store->run_id != NULL) == (o->run_id != NULL) &&
                           (store->munge_socket != NULL) == (o->munge_socket != NULL);
        return whole ? LVN_OK : LVN_ERR_MEMORY;
    }
    if (store->auth == LVNI_AUTH_FILE) {
        LVN_TRY(lvni_control_token_random(&store->file_key));
        return lvni_control_token_of_run(&store->file_key, o->job_key, o->run_id, NULL,
                                         &store->key);
    }
    LVN_TRY(o->run_key != NULL ? lvni_control_token_of_run_key(o->run_key, &given) : LVN_OK);
    return lvni_control_token_of_run(o->run_key != NULL ? &given : NULL, o->job_key, o->run_id,
                                     o->secret, &store->key);
}

static lvn_status prepare(lvni_control_store *store, const lvni_control_store_options *o)
{
    LVN_TRY(make_key(store));
    LVN_TRY(lvni_control_store_reserve_descriptors(store));
    LVN_TRY(copy_hosts(store, o->rank_hosts));
    store->ranks = lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)o->world, sizeof *store->ranks);
    store->read_buffer = lvni_core_alloc(LVNI_TAG_CONTROL, LVNI_STORE_READ);
    if (store->ranks == NULL || store->read_buffer == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int r = 0; r < o->world; r++) {
        store->ranks[r].step = -1;
    }
    lvni_core_host_name(store->host, sizeof store->host);
    snprintf(store->reached_at, sizeof store->reached_at, "%s",
             o->address != NULL ? o->address : store->host);
    store->begin_ns = store->tick_ns = lvni_core_now_ns();
    store->waiting_ns = store->begin_ns + lvni_control_ns(o->waiting_first_s);
    return LVN_OK;
}

static lvn_status write_file(lvni_control_store *store, int fd)
{
    const lvni_control_store_options *o = &store->o;
    const char *dir = o->rdzv_dir != NULL ? o->rdzv_dir : o->key_dir;
    LVN_TRY(lvni_control_rdzv_file_check(dir));
    LVN_TRY(
        lvni_control_rdzv_file_path(dir, o->job_key, o->run_id, o->secret, o->world, &store->file));
    return lvni_control_rdzv_file_write(store->file.data, store->port, fd,
                                        store->auth == LVNI_AUTH_FILE ? &store->file_key : NULL,
                                        &store->made_dirs);
}

static lvn_status create(const lvni_control_store_options *o, int *fd, lvni_control_store **out)
{
    LVN_ARG(o->world >= 1 && o->world <= LVNI_CONTROL_MAX_WORLD,
            "a store serves 1 to %d ranks, not %d", LVNI_CONTROL_MAX_WORLD, o->world);
    int port = 0;
    if (*fd < 0) {
        LVN_TRY(lvni_control_store_listen(o->address, o->ports, o->n_ports, fd, &port));
    } else {
        LVN_TRY(lvni_control_store_port_of(*fd, &port));
        fcntl(*fd, F_SETFD, FD_CLOEXEC); /* what this process starts must not keep the port */
    }
    lvni_control_store *store = LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_store);
    if (store == NULL) {
        return LVN_ERR_MEMORY;
    }
    store->o = *o;
    store->o.heartbeat_s =
        o->heartbeat_s < o->peer_timeout_s / 4 ? o->heartbeat_s : o->peer_timeout_s / 4;
    store->port = port;
    pthread_mutex_init(&store->lock, NULL);
    lvni_core_cond_init(&store->changed);
    lvn_status status;
    LVNI_TRY_DONE(status, prepare(store, o));
    if (o->rdzv_dir != NULL || store->auth == LVNI_AUTH_FILE) {
        /* the socket listens: who comes now is served in a moment */
        LVNI_TRY_DONE(status, write_file(store, *fd));
    }
    store->fd = *fd;
    status = start(store);
    *fd = store->fd;
    if (status != LVN_OK) {
        goto done;
    }
    *out = store;
    return LVN_OK;
done:
    free_store(store);
    return status;
}

lvn_status lvni_control_store_create(const lvni_control_store_options *options,
                                     lvni_control_store **out)
{
    *out = NULL;
    int fd = options->listen_fd;
    const lvn_status status = create(options, &fd, out);
    if (fd >= 0) {
        close(fd); /* it failed before the listener owned it */
    }
    return status;
}

int lvni_control_store_port(const lvni_control_store *store)
{
    return store->port;
}

lvn_status lvni_control_store_wait(lvni_control_store *store, double timeout_s)
{
    const struct timespec until =
        lvni_core_timespec(timeout_s < 0 ? 0 : lvni_core_now_ns() + lvni_control_ns(timeout_s));
    int error = 0;
    pthread_mutex_lock(&store->lock);
    while (store->connected > 0 && error == 0) {
        error = timeout_s < 0 ? pthread_cond_wait(&store->changed, &store->lock)
                              : pthread_cond_timedwait(&store->changed, &store->lock, &until);
    }
    const int left = store->connected;
    pthread_mutex_unlock(&store->lock);
    if (left > 0) {
        LVN_FAIL(LVN_ERR_TIMEOUT, "%d ranks are still connected to the store after %.1f s", left,
                 timeout_s);
    }
    return LVN_OK;
}

void lvni_control_store_destroy(lvni_control_store *store)
{
    if (store == NULL) {
        return;
    }
    pthread_mutex_lock(&store->lock);
    store->ending = true;
    pthread_mutex_unlock(&store->lock);
    uv_async_send(&store->wake);
    pthread_join(store->thread, NULL);
    free_store(store);
}
