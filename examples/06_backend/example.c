/* A backend for levin, built outside of its tree: devices example:0, example:1, ...
 * (EXAMPLE_DEVICES of them) with memory that the host cannot read, and the kernels that a small
 * convolutional network needs.
 *
 *   make -C examples/06_backend HEADERS=$PWD/include
 *   LEVIN_BACKEND_PATH=examples/06_backend build/levin train classify accelerator=example
 *
 * It computes on the thread that submits, so the order of a stream is the order of the calls and
 * an event has always passed. Everything else is what a real device has, too: addresses of its
 * own, errors that belong to a stream, kernels by name. docs/backends.md walks through the table.
 *
 *   example.c   devices, memory, streams, copies, the table
 *   kernels.c   kernels of ops
 *   flat.c      parameters, gradients, optimizers, the step block */
#include "example.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEVICES = 8, SEGMENTS = 1024 };
static const uint64_t MEMORY = 512 << 20, SEGMENT = 16 << 20; /* bytes */

/* ---- devices ---- */

typedef struct device {
    int index;
    uint64_t taken;                /* bytes */
    pthread_mutex_t lock;          /* one submission at a time: the order that streams promise */
    bool failed[LVN_STREAM_KINDS]; /* guarded by it, like the streams' own */
    lvn_error error[LVN_STREAM_KINDS];
} device;

static lvn_status count(int *n)
{
    const char *text = getenv("EXAMPLE_DEVICES");
    *n = text == NULL ? 1 : atoi(text);
    LVN_ARG(*n >= 0 && *n <= DEVICES, "EXAMPLE_DEVICES=%s: it must be 0 to %d", text, DEVICES);
    return LVN_OK;
}

static lvn_status open_device(int index, void **out, lvn_device_info *info)
{
    device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "example:%d: no memory to open it", index);
    }
    d->index = index;
    pthread_mutex_init(&d->lock, NULL);
    snprintf(info->name, sizeof info->name, "example device");
    snprintf(info->fingerprint, sizeof info->fingerprint, "example 1, plain loops");
    info->memory = MEMORY;
    info->segment = SEGMENT;
    *out = d;
    return LVN_OK;
}

static void close_device(void *p)
{
    device *d = p;
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- memory: levin gets `address`, which no thread may touch; the same pages are at `mine` ----
 */

static struct segment {
    char *address, *mine;
    size_t bytes;
} segments[SEGMENTS];
static pthread_rwlock_t segments_lock = PTHREAD_RWLOCK_INITIALIZER;

void *example_mine(const void *p)
{
    const char *at = p;
    char *found = NULL;
    pthread_rwlock_rdlock(&segments_lock);
    for (int i = 0; i < SEGMENTS && found == NULL; i++) {
        const struct segment *s = &segments[i];
        found = at >= s->address && at < s->address + s->bytes ? s->mine + (at - s->address) : NULL;
    }
    pthread_rwlock_unlock(&segments_lock);
    return found != NULL ? found : (void *)(uintptr_t)p; /* the host's, in a copy */
}

static lvn_status map(size_t bytes, struct segment *s)
{
    const int fd = memfd_create("example", 0);
    const bool sized = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0;
    void *a = sized ? mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0) : MAP_FAILED;
    void *b = sized ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) {
        close(fd);
    }
    if (a == MAP_FAILED || b == MAP_FAILED) {
        LVN_FAIL(LVN_ERR_DEVICE_MEMORY, "example: no memory of %zu bytes", bytes);
    }
    *s = (struct segment){.address = a, .mine = b, .bytes = bytes};
    return LVN_OK;
}

static lvn_status take(void *device_, size_t bytes, void **address)
{
    device *d = device_;
    lvn_status s = LVN_ERR_DEVICE_MEMORY;
    pthread_rwlock_wrlock(&segments_lock);
    int i = 0;
    while (i < SEGMENTS && segments[i].bytes > 0) {
        i++;
    }
    if (i == SEGMENTS || bytes > MEMORY - d->taken) {
        lvn_error_set(s, __FILE__, __LINE__, "example:%d: no memory of %zu bytes", d->index, bytes);
    } else {
        s = map(bytes, &segments[i]);
    }
    if (s == LVN_OK) {
        d->taken += bytes;
        *address = segments[i].address;
    }
    pthread_rwlock_unlock(&segments_lock);
    return s;
}

static void give(void *device_, void *address, size_t bytes)
{
    device *d = device_;
    pthread_rwlock_wrlock(&segments_lock);
    for (int i = 0; i < SEGMENTS; i++) {
        if (segments[i].address == address) {
            munmap(segments[i].address, bytes);
            munmap(segments[i].mine, bytes);
            segments[i] = (struct segment){NULL, NULL, 0};
            d->taken -= bytes;
        }
    }
    pthread_rwlock_unlock(&segments_lock);
}

static lvn_status host_take(void *device_, size_t bytes, void **p)
{
    (void)device_;
    *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (*p == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "example: no host memory of %zu bytes", bytes);
    }
    return LVN_OK;
}

static void host_give(void *device_, void *p, size_t bytes)
{
    (void)device_, (void)bytes;
    free(p);
}

/* ---- streams and events ---- */

typedef struct stream {
    device *of;
    lvn_stream_kind kind;
    bool failed;
    lvn_error error;
} stream;

static lvn_status stream_create(void *device_, lvn_stream_kind kind, void **out)
{
    stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "example: no memory for a stream");
    }
    s->of = device_;
    s->kind = kind;
    *out = s;
    return LVN_OK;
}

static void stream_destroy(void *p)
{
    free(p);
}

bool example_begin(void *p)
{
    stream *s = p;
    pthread_mutex_lock(&s->of->lock);
    const bool left_out = s->of->failed[s->kind]; /* of this stream, or of another of its kind */
    if (left_out && !s->failed) {
        s->failed = true;
        s->error = s->of->error[s->kind];
    }
    return !left_out;
}

lvn_status example_end(void *p, const char *what, lvn_status status)
{
    stream *s = p;
    if (status != LVN_OK) {
        lvn_error_frame("%s on example:%d", what, s->of->index);
        s->failed = s->of->failed[s->kind] = true;
        s->error = s->of->error[s->kind] = *lvn_last_error();
    }
    pthread_mutex_unlock(&s->of->lock);
    return LVN_OK; /* submitted: what failed shows when the stream is waited for */
}

static lvn_status stream_wait(void *p)
{
    stream *s = p;
    pthread_mutex_lock(&s->of->lock);
    const bool failed = s->failed;
    pthread_mutex_unlock(&s->of->lock);
    return failed ? lvn_error_adopt(&s->error) : LVN_OK;
}

static bool stream_failed(void *p)
{
    stream *s = p;
    pthread_mutex_lock(&s->of->lock);
    const bool failed = s->failed;
    pthread_mutex_unlock(&s->of->lock);
    return failed;
}

static void stream_clear(void *p)
{
    stream *s = p;
    pthread_mutex_lock(&s->of->lock);
    s->of->failed[s->kind] = s->of->failed[s->kind] && !s->failed;
    s->failed = false;
    pthread_mutex_unlock(&s->of->lock);
}

/* All that was submitted before an event has run when it is recorded: what it still has to carry is
 * an error. */
typedef struct event {
    device *of;
    bool failed;
    lvn_error error;
} event;

static lvn_status event_create(void *device_, void **out)
{
    event *e = calloc(1, sizeof *e);
    if (e == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "example: no memory for an event");
    }
    e->of = device_;
    *out = e;
    return LVN_OK;
}
static void event_destroy(void *event_)
{
    free(event_);
}
static lvn_status event_record(void *event_, void *stream_)
{
    event *e = event_;
    stream *s = stream_;
    pthread_mutex_lock(&s->of->lock);
    e->failed = s->of->failed[s->kind];
    e->error = s->of->error[s->kind];
    pthread_mutex_unlock(&s->of->lock);
    return LVN_OK;
}
static lvn_status event_follow(void *stream_, void *event_)
{
    const event *e = event_;
    stream *s = stream_;
    pthread_mutex_lock(&s->of->lock);
    if (e->failed && !s->of->failed[s->kind]) {
        s->failed = s->of->failed[s->kind] = true;
        s->error = s->of->error[s->kind] = e->error;
    }
    pthread_mutex_unlock(&s->of->lock);
    return LVN_OK;
}
static lvn_status event_wait(void *event_)
{
    (void)event_;
    return LVN_OK;
}

static lvn_status host_call(void *stream_, void (*fn)(void *user), void *user)
{
    (void)stream_;
    fn(user); /* what was submitted before has run */
    return LVN_OK;
}

/* ---- copies ---- */

static lvn_status copy(void *stream_, void *to, const void *from, size_t bytes)
{
    if (example_begin(stream_)) {
        memmove(example_mine(to), example_mine(from), bytes);
    }
    return example_end(stream_, "a copy", LVN_OK);
}

static lvn_status zero(void *stream_, void *p, size_t bytes)
{
    if (example_begin(stream_)) {
        memset(example_mine(p), 0, bytes);
    }
    return example_end(stream_, "zeros", LVN_OK);
}

/* ---- the table ---- */

static lvn_backend table = {
    .version = LVN_BACKEND_VERSION,
    .table_size = sizeof(lvn_backend),
    .name = "example",
    .count = count,
    .open = open_device,
    .close = close_device,
    .take = take,
    .give = give,
    .host_take = host_take,
    .host_give = host_give,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_failed = stream_failed,
    .stream_clear = stream_clear,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_follow = event_follow,
    .event_wait = event_wait,
    .host_call = host_call,
    .copy = copy,
    .upload = copy, /* done when it returns */
    .zero = zero,
    .kernels = example_kernels,
    .supports = example_supports,
    /* no capture_begin and so on: a step is submitted call by call */
};

LVN_API const lvn_backend *lvn_backend_table(void);

const lvn_backend *lvn_backend_table(void)
{
    table.n_kernels = example_n_kernels;
    table.flat = example_flat;
    return &table;
}
