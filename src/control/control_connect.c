/* How a rank finds its store among candidate ports: it connects, exchanges proofs with the server
 * (auth.h), and tries again until the time is over. Called by lvni_control_connect. */
#include "control_impl.h"

#include "rdzv_file.h"

#include "core/error.h"
#include "core/machine.h"

#include <levin/version.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct search {
    const lvni_control_options *o;
    lvni_control_token key,
        found_key; /* of this attempt; of the run, where it is known from the beginning */
    bool has_key;  /* a run key or a secret: what all ranks have, or none of them */
    uint64_t munge_failed_ns; /* since when MUNGE makes no credential here; 0: it does */
    char munge_why[200];
    lvni_control_greet greet;
    uint64_t began_ns, until_ns;
    uint64_t next_line_ns; /* when the next line reports that this rank still waits */
    double patience_s;     /* with a server that sends nothing */
    bool answered;         /* in this turn a server accepted a connection */
    /* since when the only candidate port is another program's; 0: it is not */
    uint64_t taken_ns;
    char last[200];     /* what the last attempt ended with */
    char resolved[120]; /* what the name stands for */
    int port;           /* of this attempt */
    lvni_core_str file; /* of rdzv_dir or key_dir */
    char boot_id[64];
} search;

typedef enum found { FOUND, NOT_HERE, REFUSED } found;

/* An attempt that the end of the search cut short is worth less than the one before it. */
static void record_reason(search *s, bool cut_short, const char *what)
{
    if (!cut_short || s->last[0] == '\0') {
        snprintf(s->last, sizeof s->last, "%.199s", what);
    }
}

/* Waits for an event until `until_ns`. */
static bool ready(int fd, short events, uint64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const uint64_t now = lvni_core_now_ns();
        const int n = poll(&p, 1, now >= until_ns ? 0 : (int)((until_ns - now) / 1000000 + 1));
        if (n > 0 || (n == 0 && lvni_core_now_ns() >= until_ns)) {
            return n > 0;
        }
        if (n < 0 && errno != EINTR) {
            return false;
        }
    }
}

static int connect_to(search *s, const struct addrinfo *a, uint64_t until_ns)
{
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        error = errno;
        socklen_t size = sizeof error;
        if (error == EINPROGRESS && ready(fd, POLLOUT, until_ns)) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        } else if (error == EINPROGRESS) {
            error = ETIMEDOUT;
        }
    }
    if (error == 0) {
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        return fd;
    }
    record_reason(s, error == ETIMEDOUT && until_ns == s->until_ns, strerror(error));
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/* The next frame of a greeting. */
static bool read_frame(search *s, int fd, lvni_control_frame_reader *in, uint64_t until_ns,
                       lvni_control_frame *frame)
{
    for (;;) {
        bool have = false;
        if (lvni_control_frame_next(in, frame, &have) != LVN_OK) {
            record_reason(s, false, "another program answers");
            return false;
        }
        if (have) {
            return true;
        }
        char bytes[1024];
        const ssize_t n = ready(fd, POLLIN, until_ns) ? recv(fd, bytes, sizeof bytes, 0) : -2;
        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            continue;
        }
        if (n <= 0) {
            record_reason(s, n == -2 && until_ns == s->until_ns,
                          n == 0    ? "the server closed the connection: it belongs to another run"
                          : n == -2 ? "the server sends nothing"
                                    : strerror(errno));
            return false;
        }
        if (lvni_control_frame_push(in, bytes, (size_t)n) != LVN_OK) {
            return false;
        }
    }
}

/* ---- The key of this connection ---- */

/* May the store use this method? A false one leads to nothing, as the server does not know the
 * key. */
static bool may_be(search *s, lvni_control_auth how)
{
    if (s->has_key && how != LVNI_AUTH_KEY) {
        record_reason(s, false, "the server has no LEVIN_TOKEN, which is set here");
    } else if (!s->has_key && how == LVNI_AUTH_KEY) {
        record_reason(s, false, "the server requires a LEVIN_TOKEN, which is not set here");
    } else if (how == LVNI_AUTH_OPEN && s->o->closed) {
        record_reason(
            s, false,
            "the server accepts every process, and this rank joins only with a proof, as the "
            "tasks of a Slurm job do");
    } else {
        return true;
    }
    return false;
}

static bool key_from_file(search *s)
{
    lvni_control_rdzv_where w;
    char text[200];
    if (s->file.len == 0 || !lvni_control_rdzv_file_read(s->file.data, &w)) {
        const char *dir = s->o->rdzv_dir != NULL ? s->o->rdzv_dir : s->o->key_dir;
        snprintf(text, sizeof text,
                 "no file with the key of the run in %.70s: all ranks need a run directory that "
                 "they share, or one LEVIN_TOKEN",
                 dir != NULL ? dir : "");
        record_reason(s, false, text);
        return false;
    }
    if (!w.has_key) {
        snprintf(text, sizeof text, "the file with the key of the run cannot be used: %s",
                 w.no_key);
        record_reason(s, false, text);
        return false;
    }
    return lvni_control_token_of_run(&w.key, s->o->job_key, s->o->run_id, NULL, &s->key) == LVN_OK;
}

static bool key_by_munge(search *s, const lvni_control_token *store_nonce,
                         lvni_core_str *credential)
{
    lvni_control_credential_payload carried = {.store_nonce = *store_nonce,
                                               .rank_nonce = s->greet.nonce};
    if (lvni_control_token_random(&carried.key) != LVN_OK ||
        lvni_control_token_of_run(&carried.key, s->o->job_key, s->o->run_id, NULL, &s->key) !=
            LVN_OK) {
        return false;
    }
    if (lvni_control_munge_encode(s->o->munge_socket, &carried, sizeof carried, credential) !=
        LVN_OK) {
        snprintf(s->munge_why, sizeof s->munge_why, "%.199s", lvn_last_error()->message);
        record_reason(s, false, s->munge_why);
        s->munge_failed_ns = s->munge_failed_ns == 0 ? lvni_core_now_ns() : s->munge_failed_ns;
        return false;
    }
    s->munge_failed_ns = 0;
    return true;
}

static bool find_key(search *s, lvni_control_auth how, const lvni_control_token *store_nonce,
                     lvni_core_str *credential)
{
    s->key = s->found_key;
    return how == LVNI_AUTH_FILE    ? key_from_file(s)
           : how == LVNI_AUTH_MUNGE ? key_by_munge(s, store_nonce, credential)
                                    : true;
}

static bool send_greet(search *s, int fd, const lvni_control_token *store_nonce,
                       lvni_control_auth how)
{
    lvni_core_str out = {0}, credential = {0};
    bool sent = lvni_control_token_random(&s->greet.nonce) == LVN_OK && may_be(s, how) &&
                find_key(s, how, store_nonce, &credential);
    if (sent) {
        s->greet.credential = lvni_core_str_text(&credential);
        s->greet.credential_n = credential.len;
        s->greet.proof = lvni_control_greet_proof(&s->key, store_nonce, &s->greet, s->port);
        lvni_control_put_greet(&out, &s->greet);
        s->greet.credential = NULL;
        sent = lvni_core_str_status(&out) == LVN_OK &&
               send(fd, out.data, out.len, MSG_NOSIGNAL) ==
                   (ssize_t)out.len; /* an empty buffer takes it */
    }
    lvni_core_str_free(&out);
    lvni_core_str_free(&credential);
    return sent;
}

/* The store's answer to the greeting. REFUSED leaves an error. */
static found check_answer(const lvni_control_token *want, const lvni_control_frame *frame,
                          lvni_control_link *link)
{
    lvni_control_scan scan = lvni_control_scan_of(frame);
    lvni_control_token proof = {{0}};
    const unsigned char *p = lvni_control_scan_raw(&scan, sizeof proof.b);
    if (p == NULL || (frame->type != LVNI_FRAME_WELCOME && frame->type != LVNI_FRAME_REFUSE)) {
        return NOT_HERE;
    }
    memcpy(proof.b, p, sizeof proof.b);
    if (!lvni_control_token_equal(&proof, want)) {
        return NOT_HERE;
    }
    if (frame->type == LVNI_FRAME_WELCOME) {
        link->store_rank = (int)lvni_control_scan_u32(&scan);
        lvni_control_scan_text(&scan, link->store_host, sizeof link->store_host);
        return lvni_control_scan_done(&scan) ? FOUND : NOT_HERE;
    }
    char message[LVNI_FRAME_MAX_GREETING];
    const lvn_status status = lvni_control_scan_status(&scan);
    lvni_control_scan_text(&scan, message, sizeof message);
    lvn_error_set(status == LVN_OK ? LVN_ERR_INTERNAL : status, __FILE__, __LINE__, "%-s", message);
    /* 0 where an older store sent none */
    lvni_core_error_number((int)lvni_control_scan_u32(&scan));
    return REFUSED;
}

static void record_denied(search *s, const lvni_control_frame *frame)
{
    char text[200];
    lvni_control_scan scan = lvni_control_scan_of(frame);
    snprintf(text, sizeof text, "the server does not accept this rank: %s",
             lvni_control_deny_text(lvni_control_scan_u32(&scan)));
    record_reason(s, false, text);
}

static found greet(search *s, int fd, uint64_t until_ns, lvni_control_link *link)
{
    lvni_control_frame frame;
    lvni_control_token store_nonce;
    lvni_control_auth how;
    link->in = (lvni_control_frame_reader){.limit = LVNI_FRAME_MAX_GREETING};
    if (!read_frame(s, fd, &link->in, until_ns, &frame)) {
        return NOT_HERE;
    }
    if (!lvni_control_scan_hello(&frame, &store_nonce, &how)) {
        record_reason(s, false, "another program answers");
        return NOT_HERE;
    }
    if (!send_greet(s, fd, &store_nonce, how) || !read_frame(s, fd, &link->in, until_ns, &frame)) {
        return NOT_HERE;
    }
    if (frame.type == LVNI_FRAME_DENY) {
        record_denied(s, &frame);
        return NOT_HERE;
    }
    const lvni_control_token want =
        lvni_control_store_proof(&s->key, &store_nonce, &s->greet.nonce);
    return check_answer(&want, &frame, link);
}

static found attempt(search *s, const struct addrinfo *a, lvni_control_link *link)
{
    uint64_t until = lvni_core_now_ns() + (uint64_t)(s->patience_s * 1e9);
    until = until < s->until_ns ? until : s->until_ns;
    const int fd = connect_to(s, a, until);
    if (fd < 0) {
        return NOT_HERE;
    }
    s->answered = true;
    const found what = greet(s, fd, until, link);
    if (what == FOUND) {
        link->fd = fd;
        link->in.limit = LVNI_FRAME_MAX_TO_RANK;
        return FOUND;
    }
    close(fd);
    lvni_control_frame_reader_free(&link->in);
    return what;
}

static void record_resolved(search *s, const char *host, const struct addrinfo *address)
{
    char text[INET6_ADDRSTRLEN] = "?";
    if (address != NULL) {
        getnameinfo(address->ai_addr, address->ai_addrlen, text, sizeof text, NULL, 0,
                    NI_NUMERICHOST);
    }
    snprintf(s->resolved, sizeof s->resolved, strcmp(host, text) == 0 ? "%.60s" : "%.60s (%s)",
             host, text);
}

static found try_port(search *s, const char *host, int port, lvni_control_link *link)
{
    const struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char service[16];
    found what = NOT_HERE;
    snprintf(service, sizeof service, "%d", port);
    s->port = port;
    const int error = getaddrinfo(host, service, &want, &all);
    if (error != 0) {
        snprintf(s->resolved, sizeof s->resolved, "%.60s (does not resolve)", host);
        record_reason(s, false, gai_strerror(error));
        return NOT_HERE;
    }
    record_resolved(s, host, all);
    for (const struct addrinfo *a = all; a != NULL && what == NOT_HERE; a = a->ai_next) {
        what = attempt(s, a, link);
    }
    freeaddrinfo(all);
    return what;
}

/* At the addresses of the file; on the store's own host first through loopback, which needs no
 * network. Containers of one host share its boot id, not its loopback. */
static found try_file(search *s, lvni_control_link *link)
{
    lvni_control_rdzv_where w;
    snprintf(s->resolved, sizeof s->resolved, "%.110s", s->file.data);
    if (!lvni_control_rdzv_file_read(s->file.data, &w)) {
        record_reason(s, false, "the file is not there");
        return NOT_HERE;
    }
    found what =
        strcmp(w.boot_id, s->boot_id) == 0 ? try_port(s, "127.0.0.1", w.port, link) : NOT_HERE;
    for (int i = 0; i < w.n && what == NOT_HERE; i++) {
        what = try_port(s, w.address[i], w.port, link);
    }
    return what;
}

/* All ports once. */
static found try_all(search *s, lvni_control_link *link)
{
    found what = NOT_HERE;
    if (s->o->rdzv_dir != NULL) {
        return try_file(s, link);
    }
    for (size_t i = 0; i < s->o->n_ports && what == NOT_HERE; i++) {
        what = try_port(s, s->o->host == NULL ? "127.0.0.1" : s->o->host, s->o->ports[i], link);
    }
    return what;
}

/* ", port 29500"; nothing where a file has it. */
static void print_ports(const search *s, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0, n = 0; s->o->rdzv_dir == NULL && i < s->o->n_ports && n < size - 16; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s %d",
                              i > 0                ? ""
                              : s->o->n_ports == 1 ? ", port"
                                                   : ", ports",
                              s->o->ports[i]);
    }
}

/* The store names missing ranks (store_rendezvous.c); a missing store only the ranks can report. */
static void report_waiting(search *s, uint64_t now)
{
    char ports[100], line[600];
    if (now < s->next_line_ns || s->o->report == NULL) {
        return;
    }
    s->next_line_ns += (uint64_t)(s->o->waiting_every_s * 1e9);
    print_ports(s, ports, sizeof ports);
    lvni_core_format(line, sizeof line,
                     "rank %d: waiting %.0f s for the store of this run at %s%s: %s", s->o->rank,
                     (double)(now - s->began_ns) / 1e9, s->resolved, ports, s->last);
    s->o->report(s->o->user, line);
}

static lvn_status not_found(const search *s)
{
    char ports[100];
    print_ports(s, ports, sizeof ports);
    LVNI_CORE_FAIL_NUMBERED(
        LVN_ERR_TIMEOUT, 114,
        "E114: rank %d found no store of this run within %.0f s\n  found: %s%s: %s\n  fix: "
        "does the rank that holds the store run? "
        "does this host reach it (name, interface, firewall)?",
        s->o->rank, s->o->rdzv_timeout_s, s->resolved, ports, s->last);
}

/* The store gets its exact port or none. So while another program has it, the rank that was to hold
 * the store has failed, or will. */
static bool is_taken(search *s, uint64_t now)
{
    const bool exact = s->o->n_ports == 1 && s->o->rdzv_dir == NULL && s->o->taken_timeout_s > 0;
    s->taken_ns = !exact || !s->answered ? 0 : s->taken_ns == 0 ? now : s->taken_ns;
    return s->taken_ns != 0 && (double)(now - s->taken_ns) / 1e9 >= s->o->taken_timeout_s;
}

static lvn_status another_program(const search *s)
{
    LVNI_CORE_FAIL_NUMBERED(
        LVN_ERR_TIMEOUT, 114,
        "E114: rank %d found another program for %.0f s where the store of this run should "
        "be\n  found: %s, port %d: %s\n  fix: another MASTER_PORT, "
        "or leave it out; the rank that holds the store reports which process has this one",
        s->o->rank, s->o->taken_timeout_s, s->resolved, s->o->ports[0], s->last);
}

/* Rank 0 has chosen MUNGE for all ranks; a rank must not fall back to something weaker. */
static lvn_status no_munge(const search *s)
{
    LVNI_CORE_FAIL_NUMBERED(
        LVN_ERR_NOT_FOUND, 120,
        "E120: rank %d can make no credential of MUNGE, by which rank 0 lets the ranks prove "
        "who they are\n  found: host %s: %s\n"
        "  fix: start munged there, or set LEVIN_TOKEN to one secret text for all ranks",
        s->o->rank, s->greet.host, s->munge_why);
}

static lvn_status prepare(search *s)
{
    const lvni_control_options *o = s->o;
    lvni_control_token instance, given;
    s->has_key = o->run_key != NULL || o->secret != NULL;
    LVN_TRY(o->run_key != NULL ? lvni_control_token_of_run_key(o->run_key, &given) : LVN_OK);
    LVN_TRY(lvni_control_token_of_run(o->run_key != NULL ? &given : NULL, o->job_key, o->run_id,
                                      o->secret, &s->found_key));
    LVN_TRY(lvni_control_token_random(&instance));
    s->greet = (lvni_control_greet){.protocol = LVNI_CONTROL_PROTOCOL,
                                    .world = (uint32_t)o->world,
                                    .rank = (uint32_t)o->rank,
                                    .pid = (uint64_t)getpid()};
    memcpy(&s->greet.instance, instance.b, sizeof s->greet.instance);
    lvni_core_host_name(s->greet.host, sizeof s->greet.host);
    snprintf(s->greet.version, sizeof s->greet.version, "%s", lvn_version());
    const char *dir = o->rdzv_dir != NULL ? o->rdzv_dir : o->key_dir;
    if (dir != NULL) {
        LVN_TRY(o->rdzv_dir != NULL ? lvni_control_rdzv_file_check(dir) : LVN_OK);
        lvni_control_facts facts;
        lvni_control_facts_room room;
        lvni_control_facts_init(&facts, &room);
        snprintf(s->boot_id, sizeof s->boot_id, "%s", room.boot_id);
        LVN_TRY(
            lvni_control_rdzv_file_path(dir, o->job_key, o->run_id, o->secret, o->world, &s->file));
    }
    s->began_ns = lvni_core_now_ns();
    s->until_ns = s->began_ns + (uint64_t)(o->rdzv_timeout_s * 1e9);
    s->next_line_ns = s->began_ns + (uint64_t)(o->waiting_first_s * 1e9);
    s->patience_s = o->greeting_timeout_s < 1 ? o->greeting_timeout_s : 1;
    return LVN_OK;
}

static lvn_status look(search *s, lvni_control_link *out)
{
    const uint64_t longest_ns = s->o->rdzv_dir != NULL ? 100000000U : 1000000000U;
    uint64_t wait_ns = 50000000;
    for (uint64_t turn = 0;; turn++) {
        s->answered = false;
        const found what = try_all(s, out);
        if (what != NOT_HERE) {
            return what == FOUND ? LVN_OK : lvn_last_error()->code;
        }
        /* Between a half and the whole of it: ranks that start together spread their attempts. */
        uint64_t jittered = wait_ns / 2 + (s->greet.instance >> (turn % 32)) % (wait_ns / 2);
        const uint64_t now = lvni_core_now_ns();
        if (now >= s->until_ns) {
            return not_found(s);
        }
        if (s->munge_failed_ns != 0 &&
            (double)(now - s->munge_failed_ns) / 1e9 >= s->o->munge_timeout_s) {
            return no_munge(s);
        }
        if (is_taken(s, now)) {
            return another_program(s);
        }
        report_waiting(s, now);
        jittered = now + jittered > s->until_ns ? s->until_ns - now : jittered;
        const struct timespec pause = lvni_core_timespec(jittered);
        nanosleep(&pause, NULL);
        wait_ns = wait_ns * 2 > longest_ns ? longest_ns : wait_ns * 2;
        s->patience_s = s->patience_s * 2 > s->o->greeting_timeout_s ? s->o->greeting_timeout_s
                                                                     : s->patience_s * 2;
    }
}

lvn_status lvni_control_find_store(const lvni_control_options *options, lvni_control_link *out)
{
    search s = {.o = options};
    lvn_status status = prepare(&s);
    if (status == LVN_OK) {
        status = look(&s, out);
    }
    lvni_core_str_free(&s.file);
    return status;
}
