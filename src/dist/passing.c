/* A queue for each rank, in memory of the process (passing.h). */
#include "dist/passing.h"

#include "core/alloc.h"
#include "core/error.h"
#include "dist/rank_progress.h"
#include "dist/transport.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50 }; /* how often who waits looks whether the ranks are still there */

typedef struct message {
    struct message *next;
    int from;
    lvni_dist_tag tag;
    size_t bytes;
    void *data;
} message;

typedef struct queue {
    message *first, **end;
} queue;

/* Of all ranks: rank 0 makes it, and the last one that ends frees it. */
typedef struct post {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    int ranks, world;
    queue queue[]; /* of each rank */
} post;

struct lvni_dist_passing {
    lvni_dist_comm *comm;
    post *post;
    uint64_t sent;
};

/* What each rank knows of the other ranks' process. */
typedef struct place {
    int64_t process;
    post *post;
} place;

static post *post_create(int world)
{
    post *p = lvni_core_alloc(LVNI_TAG_DIST, sizeof *p + (size_t)world * sizeof *p->queue);
    if (p == NULL) {
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->arrived, NULL);
    p->ranks = p->world = world;
    for (int i = 0; i < world; i++) {
        p->queue[i] = (queue){.first = NULL};
        p->queue[i].end = &p->queue[i].first;
    }
    return p;
}

static void post_leave(post *p)
{
    pthread_mutex_lock(&p->lock);
    const bool last = --p->ranks == 0;
    pthread_mutex_unlock(&p->lock);
    if (!last) {
        return;
    }
    for (int i = 0; i < p->world; i++) {
        for (message *m = p->queue[i].first, *next; m != NULL; m = next) {
            next = m->next;
            lvni_core_free(m->data);
            lvni_core_free(m);
        }
    }
    pthread_cond_destroy(&p->arrived);
    pthread_mutex_destroy(&p->lock);
    lvni_core_free(p);
}

/* All ranks have rank 0's post, or none has. */
static lvn_status share_post(lvni_dist_comm *comm, place *mine, post **out)
{
    const int world = lvni_dist_comm_world(comm);
    place *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *all);
    lvn_status s = all == NULL ? LVN_ERR_MEMORY : LVN_OK;
    LVNI_TRY_DONE(s, lvni_dist_comm_agree_status(comm, s, "messages between ranks"));
    LVNI_TRY_DONE(s, all == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, lvni_dist_comm_all_gather(comm, mine, sizeof *mine, all));
    for (int i = 1; i < world && s == LVN_OK; i++) {
        if (all[i].process != all[0].process) {
            s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                              "rank %d is a process of its own, and messages from rank to rank are "
                              "between threads of one so far",
                              i);
        }
    }
    *out = s == LVN_OK ? all[0].post : NULL;
done:
    lvni_core_free(all);
    return s;
}

lvn_status lvni_dist_passing_create(lvni_dist_comm *comm, lvni_dist_passing **out)
{
    *out = NULL;
    const bool first = lvni_dist_comm_rank(comm) == 0;
    lvni_dist_passing *p = LVNI_NEW(LVNI_TAG_DIST, lvni_dist_passing);
    place mine = {.process = (int64_t)getpid(),
                  .post = first ? post_create(lvni_dist_comm_world(comm)) : NULL};
    lvn_status s = p == NULL || (first && mine.post == NULL) ? LVN_ERR_MEMORY : LVN_OK;
    LVNI_TRY_DONE(s, lvni_dist_comm_agree_status(comm, s, "messages between ranks"));
    LVNI_TRY_DONE(s, share_post(comm, &mine, &p->post));
    p->comm = comm;
    *out = p;
    return LVN_OK;
done:
    if (mine.post != NULL) {
        mine.post->ranks = 1;
        post_leave(mine.post);
    }
    lvni_core_free(p);
    return s;
}

void lvni_dist_passing_destroy(lvni_dist_passing *p)
{
    if (p != NULL) {
        post_leave(p->post);
        lvni_core_free(p);
    }
}

lvn_status lvni_dist_passing_send(lvni_dist_passing *p, int to, lvni_dist_tag tag, const void *head,
                                  size_t head_bytes, const void *data, size_t bytes)
{
    LVN_ARG(to >= 0 && to < p->post->world, "a message to rank %d of %d", to, p->post->world);
    message *m = LVNI_NEW(LVNI_TAG_DIST, message);
    char *copy = lvni_core_alloc(LVNI_TAG_DIST, head_bytes + bytes + 1);
    if (m == NULL || copy == NULL) {
        lvni_core_free(m);
        lvni_core_free(copy);
        return LVN_ERR_MEMORY;
    }
    memcpy(copy, head, head_bytes);
    memcpy(copy + head_bytes, bytes > 0 ? data : "", bytes);
    *m = (message){.from = lvni_dist_comm_rank(p->comm),
                   .tag = tag,
                   .bytes = head_bytes + bytes,
                   .data = copy};
    p->sent += m->bytes;
    lvni_dist_comm_add_bytes(p->comm, m->bytes, 0);
    pthread_mutex_lock(&p->post->lock);
    queue *q = &p->post->queue[to];
    *q->end = m;
    q->end = &m->next;
    pthread_cond_broadcast(&p->post->arrived);
    pthread_mutex_unlock(&p->post->lock);
    return LVN_OK;
}

/* The oldest of the stream, out of the queue; NULL: it has not arrived. */
static message *take(queue *q, int from, int64_t stream)
{
    for (message **at = &q->first; *at != NULL; at = &(*at)->next) {
        message *m = *at;
        if (m->from == from && m->tag.stream == stream) {
            *at = m->next;
            q->end = m->next == NULL ? at : q->end;
            return m;
        }
    }
    return NULL;
}

/* With the lock. */
static lvn_status wait_for(lvni_dist_passing *p, int from, int64_t stream, message **out)
{
    post *all = p->post;
    queue *mine = &all->queue[lvni_dist_comm_rank(p->comm)];
    while ((*out = take(mine, from, stream)) == NULL) {
        LVN_TRY(p->comm->ops->health(p->comm));
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&all->arrived, &all->lock, &until);
    }
    return LVN_OK;
}

lvn_status lvni_dist_passing_receive(lvni_dist_passing *p, int from, lvni_dist_tag tag, void **out,
                                     size_t *bytes)
{
    message *m = NULL;
    *out = NULL;
    pthread_mutex_lock(&p->post->lock);
    lvni_dist_call_begin(p->comm, LVNI_CALL_MESSAGE);
    const lvn_status s = wait_for(p, from, tag.stream, &m);
    (void)lvni_dist_call_end(p->comm, s);
    pthread_mutex_unlock(&p->post->lock);
    LVN_TRY(s);
    const int64_t number = m->tag.number;
    *out = m->data;
    *bytes = m->bytes;
    lvni_core_free(m);
    if (number != tag.number) {
        lvni_core_free(*out);
        *out = NULL;
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "rank %d waits for message %lld of rank %d, which has sent message %lld: they do "
                 "not run the same operations",
                 lvni_dist_comm_rank(p->comm), (long long)tag.number, from, (long long)number);
    }
    lvni_dist_comm_add_bytes(p->comm, 0, *bytes);
    return LVN_OK;
}

uint64_t lvni_dist_passing_sent(const lvni_dist_passing *p)
{
    return p->sent;
}
