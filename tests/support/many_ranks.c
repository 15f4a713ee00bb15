/* many_ranks.h */
#include "support/many_ranks.h"

#include "control/message.h"
#include "core/alloc.h"
#include "core/machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PART = 64, PER_HOST = 8 };

/* what comes in next */
typedef enum stage { GREETING, WELCOMED, TABLE, GATHERED, LEFT, GONE } stage;

typedef struct sim {
    stage stage;
    lvni_control_greet greet;
    lvni_control_token key;
    lvni_control_frame_reader in;
    lvni_core_str out;
    size_t sent;
} sim;

typedef struct sims {
    int world, port;
    sim *rank;
    struct pollfd *fds;
    int reached[LEFT + 1];
    char *room;
} sims;

lvn_status many_ranks_allow(int world)
{
    struct rlimit now;
    const rlim_t need = (rlim_t)world * 2 + 256; /* both ends */
    if (getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur < need) {
        now.rlim_cur = now.rlim_max < need ? now.rlim_max : need;
        setrlimit(RLIMIT_NOFILE, &now);
        if (now.rlim_cur < need) {
            LVN_FAIL(LVN_ERR_RESOURCE,
                     "%d ranks in one process need %llu open files, %llu are allowed", world,
                     (unsigned long long)need, (unsigned long long)now.rlim_max);
        }
    }
    return LVN_OK;
}

static void put_facts_of(sim *s, int rank)
{
    char host[16], device[32];
    snprintf(host, sizeof host, "n%03d", rank / PER_HOST);
    snprintf(device, sizeof device, "GPU-%08d", rank);
    const lvni_control_facts facts = {.local_rank = -1,
                                      .node_rank = -1,
                                      .host = host,
                                      .boot_id = host,
                                      .pid = 1000 + rank,
                                      .version = "0.1.0",
                                      .device = device,
                                      .driver = "",
                                      .cpus = 16,
                                      .resume_step = -1,
                                      .config = "batch_size: 4096\nlr: 0.1\n",
                                      .fingerprint = "one kind of machine"};
    const size_t at = lvni_control_frame_begin(&s->out, LVNI_FRAME_FACTS);
    lvni_control_put_u32(&s->out, 0);
    lvni_control_put_facts(&s->out, &facts);
    lvni_control_frame_end(&s->out, at);
}

static void put_part(sim *s, int rank)
{
    char part[PART];
    memset(part, rank % 251, sizeof part);
    const size_t at = lvni_control_frame_begin(&s->out, LVNI_FRAME_GATHER);
    lvni_control_put_u32(&s->out, 1);
    lvni_control_put_text(&s->out, "addresses");
    lvni_control_put_u32(&s->out, 60000);
    lvni_control_put_bytes(&s->out, part, sizeof part);
    lvni_control_frame_end(&s->out, at);
}

static bool table_is_right(const sims *all, const lvni_control_frame *frame)
{
    lvni_control_member *members = NULL;
    const lvn_status status =
        lvni_control_scan_table((const char *)frame->body + 8, frame->n - 8, all->world, &members);
    const int last = all->world - 1;
    const bool right = status == LVN_OK && members[last].node_rank == last / PER_HOST &&
                       members[last].local_rank == last % PER_HOST &&
                       members[last].pid == 1000 + last;
    lvni_core_free(members);
    return right;
}

/* One frame for one rank; it answers with what comes next. False: not what a store sends here. */
static bool on_frame(sims *all, int rank, const lvni_control_frame *frame)
{
    sim *s = &all->rank[rank];
    lvni_control_token nonce;
    lvni_control_auth how;
    switch (s->stage) {
    case GREETING:
        if (!lvni_control_scan_hello(frame, &nonce, &how)) {
            return false;
        }
        s->greet.proof = lvni_control_greet_proof(&s->key, &nonce, &s->greet, all->port);
        lvni_control_put_greet(&s->out, &s->greet);
        break;
    case WELCOMED:
        s->in.limit = LVNI_FRAME_MAX_TO_RANK;
        put_facts_of(s, rank);
        if (frame->type != LVNI_FRAME_WELCOME) {
            return false;
        }
        break;
    case TABLE:
        if (frame->type != LVNI_FRAME_REPLY ||
            ((rank == 0 || rank == all->world - 1) && !table_is_right(all, frame))) {
            return false;
        }
        break;
    case GATHERED:
        if (frame->type != LVNI_FRAME_REPLY || frame->n != 8 + (size_t)all->world * (4 + PART) ||
            frame->body[frame->n - 1] != (all->world - 1) % 251) {
            return false;
        }
        break;
    case LEFT:
        if (frame->type != LVNI_FRAME_REPLY) {
            return false;
        }
        break;
    case GONE: return false;
    }
    all->reached[s->stage]++;
    s->stage++;
    return true;
}

static bool receive(sims *all, int rank)
{
    sim *s = &all->rank[rank];
    const ssize_t n = recv(all->fds[rank].fd, all->room, 256 << 10, 0);
    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    bool have = lvni_control_frame_push(&s->in, all->room, (size_t)n) == LVN_OK;
    while (have) {
        lvni_control_frame frame;
        if (lvni_control_frame_next(&s->in, &frame, &have) != LVN_OK) {
            return false;
        }
        if (have && frame.type == LVNI_FRAME_BEAT) {
            continue;
        }
        if (have && !on_frame(all, rank, &frame)) {
            return false;
        }
    }
    return true;
}

static bool transmit(sims *all, int rank)
{
    sim *s = &all->rank[rank];
    while (s->sent < s->out.len) {
        const ssize_t n =
            send(all->fds[rank].fd, s->out.data + s->sent, s->out.len - s->sent, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == ENOTCONN || errno == EINTR;
        }
        s->sent += (size_t)n;
    }
    lvni_core_str_clear(&s->out);
    s->sent = 0;
    return true;
}

/* Until all ranks have reached the stage `to`. */
static lvn_status until(sims *all, stage to)
{
    const uint64_t began = lvni_core_now_ns();
    while (all->reached[to] < all->world) {
        if (lvni_core_seconds_since(began) > 60) {
            LVN_FAIL(LVN_ERR_TIMEOUT, "%d of %d ranks reached stage %d in a minute",
                     all->reached[to], all->world, (int)to);
        }
        for (int r = 0; r < all->world; r++) {
            all->fds[r].events = (short)(POLLIN | (all->rank[r].out.len > 0 ? POLLOUT : 0));
        }
        if (poll(all->fds, (nfds_t)all->world, 1000) < 0 && errno != EINTR) {
            LVN_FAIL(LVN_ERR_IO, "poll: %s", strerror(errno));
        }
        for (int r = 0; r < all->world; r++) {
            const short seen = all->fds[r].revents;
            if (((seen & (POLLIN | POLLHUP | POLLERR)) != 0 && !receive(all, r)) ||
                (all->rank[r].out.len > 0 && !transmit(all, r))) {
                LVN_FAIL(LVN_ERR_IO, "rank %d broke at stage %d", r, (int)all->rank[r].stage);
            }
        }
    }
    return LVN_OK;
}

static lvn_status connect_all(sims *all, int port)
{
    all->port = port;
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int r = 0; r < all->world; r++) {
        sim *s = &all->rank[r];
        s->in.limit = LVNI_FRAME_MAX_GREETING;
        s->greet = (lvni_control_greet){.protocol = LVNI_CONTROL_PROTOCOL,
                                        .world = (uint32_t)all->world,
                                        .rank = (uint32_t)r,
                                        .instance = 1,
                                        .host = "n",
                                        .version = "0.1.0"};
        LVN_TRY(lvni_control_token_of_run(NULL, "many", NULL, NULL, &s->key));
        all->fds[r].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (all->fds[r].fd < 0 ||
            (connect(all->fds[r].fd, (const struct sockaddr *)&at, sizeof at) != 0 &&
             errno != EINPROGRESS)) {
            LVN_FAIL(LVN_ERR_IO, "rank %d cannot connect: %s", r, strerror(errno));
        }
    }
    return LVN_OK;
}

static lvn_status run(sims *all, int port, many_ranks_times *times)
{
    uint64_t began = lvni_core_now_ns();
    LVN_TRY(connect_all(all, port));
    LVN_TRY(until(all, TABLE));
    times->table_s = lvni_core_seconds_since(began);
    began = lvni_core_now_ns();
    for (int r = 0; r < all->world; r++) {
        put_part(&all->rank[r], r);
    }
    LVN_TRY(until(all, GATHERED));
    times->gather_s = lvni_core_seconds_since(began);
    began = lvni_core_now_ns();
    for (int r = 0; r < all->world; r++) {
        const size_t at = lvni_control_frame_begin(&all->rank[r].out, LVNI_FRAME_BYE);
        lvni_control_put_u32(&all->rank[r].out, 2);
        lvni_control_frame_end(&all->rank[r].out, at);
    }
    LVN_TRY(until(all, LEFT));
    times->leave_s = lvni_core_seconds_since(began);
    return LVN_OK;
}

lvn_status many_ranks_run(int port, int world, many_ranks_times *times)
{
    sims all = {.world = world};
    all.rank = lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)world, sizeof *all.rank);
    all.fds = lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)world, sizeof *all.fds);
    all.room = lvni_core_alloc(LVNI_TAG_CONTROL, 256 << 10);
    lvn_status status = LVN_ERR_MEMORY;
    if (all.rank != NULL && all.fds != NULL && all.room != NULL) {
        for (int r = 0; r < world; r++) {
            all.fds[r].fd = -1;
        }
        status = run(&all, port, times);
        for (int r = 0; r < world; r++) {
            if (all.fds[r].fd >= 0) {
                close(all.fds[r].fd);
            }
            lvni_control_frame_reader_free(&all.rank[r].in);
            lvni_core_str_free(&all.rank[r].out);
        }
    }
    lvni_core_free(all.room);
    lvni_core_free(all.fds);
    lvni_core_free(all.rank);
    return status;
}
