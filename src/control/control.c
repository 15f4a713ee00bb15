/* A rank's connection from the caller's side (control.h): made, used for requests, ended. A call
 * puts a frame into `out` and wakes the connection's thread (control_thread.c), which sends it and
 * hands over the answer. Finding the store is in control_connect.c. */
#include "control_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/thread.h"

#include <levin/version.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

void lvni_control_options_init(lvni_control_options *options)
{
    *options = (lvni_control_options){.world = 1,
                                      .rdzv_timeout_s = 300,
                                      .greeting_timeout_s = 5,
                                      .taken_timeout_s = 30,
                                      .waiting_first_s = 15,
                                      .waiting_every_s = 30,
                                      .munge_timeout_s = 10,
                                      .heartbeat_s = 2,
                                      .peer_timeout_s = 10};
}

/* ---- Life ---- */

static lvni_control *make(const lvni_control_options *o, const lvni_control_link *link)
{
    lvni_control *c = LVNI_NEW(LVNI_TAG_CONTROL, lvni_control);
    if (c == NULL) {
        return NULL;
    }
    c->rank = o->rank;
    c->world = o->world;
    c->heartbeat_s =
        o->heartbeat_s < o->peer_timeout_s / 4 ? o->heartbeat_s : o->peer_timeout_s / 4;
    c->peer_timeout_s = o->peer_timeout_s;
    c->rdzv_timeout_s = o->rdzv_timeout_s;
    c->on_abort = o->on_abort;
    c->user = o->user;
    c->fd = link->fd;
    c->in = link->in;
    c->store_rank = link->store_rank;
    memcpy(c->store_host, link->store_host, sizeof c->store_host);
    atomic_init(&c->step, INT64_MIN); /* no boundary passed */
    pthread_mutex_init(&c->lock, NULL);
    lvni_core_cond_init(&c->changed);
    return c;
}

static void free_control(lvni_control *c)
{
    close(c->fd);
    if (c->wake_fd >= 0) {
        close(c->wake_fd);
    }
    lvni_control_frame_reader_free(&c->in);
    lvni_core_str_free(&c->sending);
    lvni_core_str_free(&c->out);
    lvni_core_free(c->members);
    lvni_core_free(c->table);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    lvni_core_free(c);
}

lvn_status lvni_control_connect(const lvni_control_options *options, lvni_control **out)
{
    *out = NULL;
    LVN_ARG(options->world >= 1 && options->rank >= 0 && options->rank < options->world,
            "rank %d of %d does not exist", options->rank, options->world);
    LVN_ARG(options->n_ports > 0 || options->rdzv_dir != NULL, "no port of the store was given");
    lvni_control_link link = {.fd = -1};
    LVN_TRY(lvni_control_find_store(options, &link));
    lvni_control *c = make(options, &link);
    if (c == NULL) {
        close(link.fd);
        lvni_control_frame_reader_free(&link.in);
        return LVN_ERR_MEMORY;
    }
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int error =
        c->wake_fd < 0 ? errno : lvni_core_thread_start(&c->thread, lvni_control_thread_main, c);
    if (error != 0) {
        free_control(c);
        LVN_FAIL(error == ENOMEM ? LVN_ERR_MEMORY : LVN_ERR_IO,
                 "the thread of the control channel cannot be started: %s", strerror(error));
    }
    *out = c;
    return LVN_OK;
}

void lvni_control_destroy(lvni_control *control)
{
    if (control == NULL) {
        return;
    }
    pthread_mutex_lock(&control->lock);
    control->ending = true;
    pthread_mutex_unlock(&control->lock);
    lvni_control_wake(control);
    pthread_join(control->thread, NULL);
    free_control(control);
}

/* ---- Requests ---- */

static lvn_status fail_over(const lvni_control *c)
{
    char sentence[900];
    lvni_control_cause_sentence(&c->cause, sentence, sizeof sentence);
    LVN_FAIL(LVN_ERR_PEER, "%-s", sentence);
}

static bool is_over(const lvni_control *c)
{
    return (atomic_load(&c->attention) & LVNI_ATTENTION_OVER) != 0;
}

lvn_status lvni_control_check(const lvni_control *control)
{
    return is_over(control) ? fail_over(control) : LVN_OK;
}

/* A frame with an id begins; request is on the stack of the thread that will wait for it. */
static size_t begin_request(lvni_control *c, lvni_core_str *frame, lvni_control_frame_type type,
                            lvni_control_request *request)
{
    *request = (lvni_control_request){.id = atomic_fetch_add(&c->next_id, 1)};
    const size_t at = lvni_control_frame_begin(frame, type);
    lvni_control_put_u32(frame, request->id);
    return at;
}

/* Until it is answered, the run is over, or the store has not answered for longer than it may. */
static void wait_answer(lvni_control *c, lvni_control_request *request, double timeout_s)
{
    const double patience_s = timeout_s + c->peer_timeout_s + 1;
    const struct timespec until = lvni_core_timespec(
        lvni_core_now_ns() + (uint64_t)((patience_s < 1e9 ? patience_s : 1e9) * 1e9));
    int error = 0;
    while (!request->done && !is_over(c) && error == 0) {
        error = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    }
    lvni_control_request **at = &c->requests;
    while (*at != request) {
        at = &(*at)->next;
    }
    *at = request->next;
}

/* Sends the frame (freed) and waits. On success request->data is the answer, the caller's. */
static lvn_status send_request(lvni_control *c, lvni_core_str *frame, size_t at,
                               lvni_control_request *request, double timeout_s)
{
    lvni_control_frame_end(frame, at);
    lvn_status status = lvni_core_str_status(frame);
    if (status == LVN_OK) {
        pthread_mutex_lock(&c->lock);
        lvni_core_str_append_n(&c->out, frame->data, frame->len);
        request->next = c->requests;
        c->requests = request;
        lvni_control_wake(c);
        wait_answer(c, request, timeout_s);
        pthread_mutex_unlock(&c->lock);
    }
    lvni_core_str_free(frame);
    if (status != LVN_OK) {
        return status;
    }
    if (!request->done) {
        LVN_TRY(lvni_control_check(c));
        LVN_FAIL(LVN_ERR_TIMEOUT, "the store does not answer");
    }
    if (request->status != LVN_OK) {
        status = lvn_error_set(request->status, __FILE__, __LINE__, "%-s",
                               request->data == NULL ? "no memory for an answer of the store"
                                                     : request->data);
        lvni_core_error_number(request->number);
        lvni_core_free(request->data);
        request->data = NULL;
    }
    return status != LVN_OK ? status : request->status;
}

static uint32_t milliseconds(double timeout_s)
{
    return timeout_s <= 0 ? 0 : timeout_s > 4e6 ? 4000000000U : (uint32_t)(timeout_s * 1e3);
}

static lvn_status check_key(const char *key, size_t n)
{
    LVN_ARG(key[0] != '\0' && strlen(key) <= LVNI_CONTROL_MAX_KEY,
            "a key of the store has 1 to %d bytes: '%.80s'", LVNI_CONTROL_MAX_KEY, key);
    LVN_ARG(n <= LVNI_CONTROL_MAX_VALUE,
            "a value of the store has at most %d bytes, '%.80s' has %zu", LVNI_CONTROL_MAX_VALUE,
            key, n);
    return LVN_OK;
}

lvn_status lvni_control_set(lvni_control *control, const char *key, const void *bytes, size_t n)
{
    LVN_TRY(check_key(key, n));
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = begin_request(control, &frame, LVNI_FRAME_SET, &request);
    lvni_control_put_text(&frame, key);
    lvni_control_put_bytes(&frame, bytes, n);
    LVN_TRY(send_request(control, &frame, at, &request, 0));
    lvni_core_free(request.data);
    return LVN_OK;
}

lvn_status lvni_control_get(lvni_control *control, const char *key, double timeout_s, char **bytes,
                            size_t *n)
{
    *bytes = NULL;
    *n = 0;
    LVN_TRY(check_key(key, 0));
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = begin_request(control, &frame, LVNI_FRAME_GET, &request);
    lvni_control_put_text(&frame, key);
    lvni_control_put_u32(&frame, milliseconds(timeout_s));
    LVN_TRY(send_request(control, &frame, at, &request, timeout_s));
    *bytes = request.data;
    *n = request.n;
    return LVN_OK;
}

lvn_status lvni_control_add(lvni_control *control, const char *key, int64_t n, int64_t *value)
{
    LVN_TRY(check_key(key, 0));
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = begin_request(control, &frame, LVNI_FRAME_ADD, &request);
    lvni_control_put_text(&frame, key);
    lvni_control_put_u64(&frame, (uint64_t)n);
    LVN_TRY(send_request(control, &frame, at, &request, 0));
    lvni_control_scan scan = {.at = (const unsigned char *)request.data, .left = request.n};
    *value = (int64_t)lvni_control_scan_u64(&scan);
    lvni_core_free(request.data);
    return LVN_OK;
}

/* The answer of a gather as one block: the entries, behind them every part with a zero. */
static lvn_status split_parts(const char *bytes, size_t n, int world, lvni_control_bytes **out)
{
    const size_t head = (size_t)world * sizeof(lvni_control_bytes);
    lvni_control_bytes *parts = lvni_core_alloc(LVNI_TAG_CONTROL, head + n + (size_t)world);
    if (parts == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_control_scan scan = {.at = (const unsigned char *)bytes, .left = n};
    char *to = (char *)parts + head;
    for (int r = 0; r < world; r++) {
        size_t len = 0;
        const char *from = lvni_control_scan_bytes(&scan, &len);
        memcpy(to, from, len);
        to[len] = '\0';
        parts[r] = (lvni_control_bytes){.data = to, .n = len};
        to += len + 1;
    }
    if (!lvni_control_scan_done(&scan)) {
        lvni_core_free(parts);
        LVN_FAIL(LVN_ERR_CORRUPT, "the store's answer to a gather cannot be read (%zu bytes)", n);
    }
    *out = parts;
    return LVN_OK;
}

lvn_status lvni_control_gather(lvni_control *control, const char *name, const void *bytes, size_t n,
                               double timeout_s, lvni_control_bytes **out)
{
    *out = NULL;
    LVN_TRY(check_key(name, n));
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = begin_request(control, &frame, LVNI_FRAME_GATHER, &request);
    lvni_control_put_text(&frame, name);
    lvni_control_put_u32(&frame, milliseconds(timeout_s));
    lvni_control_put_bytes(&frame, bytes, n);
    LVN_TRY(send_request(control, &frame, at, &request, timeout_s));
    const lvn_status status = split_parts(request.data, request.n, control->world, out);
    lvni_core_free(request.data);
    return status;
}

/* ---- Rendezvous ---- */

static int cpus_of_process(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return CPU_COUNT(&set);
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more processors than a cpu_set_t holds */
}

void lvni_control_facts_init(lvni_control_facts *facts, lvni_control_facts_room *room)
{
    lvni_core_host_name(room->host, sizeof room->host);
    room->boot_id[0] = '\0';
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f != NULL) {
        if (fgets(room->boot_id, sizeof room->boot_id, f) != NULL) {
            room->boot_id[strcspn(room->boot_id, "\n")] = '\0';
        }
        fclose(f);
    }
    *facts = (lvni_control_facts){.local_rank = -1,
                                  .node_rank = -1,
                                  .host = room->host,
                                  .boot_id = room->boot_id,
                                  .pid = getpid(),
                                  .version = lvn_version(),
                                  .device = "",
                                  .driver = "",
                                  .cpus = cpus_of_process(),
                                  .resume_step = -1};
}

static lvn_status check_facts(const lvni_control_facts *facts)
{
    const char *const texts[] = {facts->host,   facts->boot_id,     facts->version, facts->device,
                                 facts->driver, facts->fingerprint, facts->config};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bytes += texts[i] == NULL ? 0 : strlen(texts[i]);
    }
    LVN_ARG(bytes <= LVNI_CONTROL_MAX_VALUE, "the facts of a rank have at most %d bytes, not %zu",
            LVNI_CONTROL_MAX_VALUE, bytes);
    return LVN_OK;
}

lvn_status lvni_control_rendezvous(lvni_control *control, const lvni_control_facts *facts)
{
    LVN_ARG(control->members == NULL, "rank %d has had its rendezvous", control->rank);
    LVN_TRY(check_facts(facts));
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = begin_request(control, &frame, LVNI_FRAME_FACTS, &request);
    lvni_control_put_facts(&frame, facts);
    /* the store's own time is over before */
    LVN_TRY(send_request(control, &frame, at, &request, control->rdzv_timeout_s));
    lvni_control_member *members = NULL;
    const lvn_status status =
        lvni_control_scan_table(request.data, request.n, control->world, &members);
    if (status != LVN_OK) {
        lvni_core_free(request.data);
        return status;
    }
    control->table = request.data;
    control->members = members;
    return LVN_OK;
}

const lvni_control_member *lvni_control_members(const lvni_control *control)
{
    return control->members;
}

int lvni_control_world(const lvni_control *control)
{
    return control->world;
}

/* An IPv4 address of a socket of both families as one of IPv4. */
static void address_text(const struct sockaddr_storage *from, char to[LVNI_CONTROL_ADDRESS])
{
    const struct sockaddr_in6 *six = (const void *)from;
    to[0] = '\0';
    if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        (void)inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], to, LVNI_CONTROL_ADDRESS);
    } else {
        (void)getnameinfo((const struct sockaddr *)from,
                          from->ss_family == AF_INET6 ? sizeof *six : sizeof(struct sockaddr_in),
                          to, LVNI_CONTROL_ADDRESS, NULL, 0, NI_NUMERICHOST);
    }
}

void lvni_control_addresses(const lvni_control *control, char own[LVNI_CONTROL_ADDRESS],
                            char store[LVNI_CONTROL_ADDRESS])
{
    struct sockaddr_storage at[2] = {{0}, {0}};
    socklen_t size[2] = {sizeof at[0], sizeof at[1]};
    (void)getsockname(control->fd, (struct sockaddr *)&at[0], &size[0]);
    (void)getpeername(control->fd, (struct sockaddr *)&at[1], &size[1]);
    address_text(&at[0], own);
    address_text(&at[1], store);
}

/* ---- Stopping together ---- */

void lvni_control_request_stop(lvni_control *control, int reason)
{
    pthread_mutex_lock(&control->lock);
    const size_t at = lvni_control_frame_begin(&control->out, LVNI_FRAME_STOP_ASK);
    lvni_control_put_u32(&control->out, (uint32_t)reason);
    lvni_control_frame_end(&control->out, at);
    pthread_mutex_unlock(&control->lock);
    lvni_control_wake(control);
}

static lvn_status hold(lvni_control *c, int64_t step, bool *stop)
{
    pthread_mutex_lock(&c->lock);
    while (!c->stop_known && !is_over(c)) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    *stop = c->stop_known && step >= c->stop_at;
    pthread_mutex_unlock(&c->lock);
    return lvni_control_check(c);
}

/* Both accesses are sequentially consistent: either this thread sees the mark, or the other, which
 * sets the mark before it reads the step (on_stop_ask), sees this step and answers that its
 * boundary is passed. */
lvn_status lvni_control_boundary(lvni_control *control, int64_t step, bool *stop)
{
    *stop = false;
    atomic_store(&control->step, step);
    return atomic_load(&control->attention) == 0 ? LVN_OK : hold(control, step, stop);
}

int lvni_control_stop_reason(lvni_control *control)
{
    pthread_mutex_lock(&control->lock);
    const int reason = control->stop_reason;
    pthread_mutex_unlock(&control->lock);
    return reason;
}

/* ---- Failing ---- */

bool lvni_control_get_cause(const lvni_control *control, lvni_control_cause *cause)
{
    const bool over = is_over(control);
    if (over && cause != NULL) {
        *cause = control->cause; /* written before the mark, never again */
    }
    return over;
}

void lvni_control_fail(lvni_control *control, const lvni_control_cause *failure)
{
    enum { PATIENCE_NS = 1000000000 };
    const int64_t begun = atomic_load(&control->step);
    lvni_control_cause own = *failure;
    own.rank = control->rank;
    own.step = own.step >= 0 || begun < 0 ? own.step : begun;
    own.pid = getpid();
    own.time_ns = lvni_control_wall_ns();
    lvni_core_host_name(own.host, sizeof own.host);
    const struct timespec until = lvni_core_timespec(lvni_core_now_ns() + PATIENCE_NS);
    int error = 0;
    pthread_mutex_lock(&control->lock);
    if (!control->failed) {
        control->failed = true;
        lvni_control_put_cause(&control->out, LVNI_FRAME_FAIL, &own);
        lvni_control_wake(control);
    }
    while (!is_over(control) && error == 0) {
        error = pthread_cond_timedwait(&control->changed, &control->lock, &until);
    }
    pthread_mutex_unlock(&control->lock);
    if (error != 0) {
        /* the store does not answer: for this rank its own failure is the cause */
        lvni_control_set_cause(control, &own);
    }
}

/* ---- Leaving ---- */

lvn_status lvni_control_leave(lvni_control *control)
{
    if (lvni_control_get_cause(control, NULL)) {
        return LVN_OK;
    }
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = begin_request(control, &frame, LVNI_FRAME_BYE, &request);
    request.bye = true;
    const lvn_status status = send_request(control, &frame, at, &request, 0);
    if (status != LVN_OK) {
        return lvni_control_get_cause(control, NULL) ? LVN_OK : status;
    }
    lvni_core_free(request.data);
    return LVN_OK;
}
