/* Who reads standard input: nobody, rank 0, or every rank its own copy. */
#include "launch/launch_impl.h"

#include "core/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* a rank that reads slowly holds up the others only behind this much */
enum { KEEP = 1 << 20, READ_BYTES = 32 << 10 };

static lvn_status open_null(int *fd)
{
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (*fd < 0) {
        LVN_FAIL(LVN_ERR_IO, "/dev/null cannot be opened: %s", strerror(errno));
    }
    return LVN_OK;
}

static lvn_status open_copy(lvni_launch_feed *f, int *end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe for standard input: %s", strerror(errno));
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    f->to[f->n++].fd = ends[1];
    *end = ends[0];
    return LVN_OK;
}

lvn_status lvni_launch_feed_open(lvni_launch_run *r, int *ends)
{
    lvni_launch_feed *f = &r->feed;
    *f = (lvni_launch_feed){.from = -1};
    f->to = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *f->to);
    if (f->to == NULL) {
        return LVN_ERR_MEMORY;
    }
    /* another group may not read it */
    const bool copies_to_0 =
        r->input == LVNI_STDIN_RANK0 && r->local > 1 && isatty(STDIN_FILENO) == 1;
    for (int i = 0; i < r->local; i++) {
        const bool first = r->procs[i].rank == 0;
        if (r->input == LVNI_STDIN_ALL || (copies_to_0 && first)) {
            LVN_TRY(open_copy(f, &ends[i]));
        } else if (r->input == LVNI_STDIN_RANK0 && first) {
            ends[i] = -1;
        } else {
            LVN_TRY(open_null(&ends[i]));
        }
    }
    f->from = f->n > 0 ? STDIN_FILENO : -1;
    return LVN_OK;
}

static void close_one(struct lvni_launch_feed_to *t)
{
    if (t->fd >= 0) {
        close(t->fd);
    }
    lvni_core_str_free(&t->kept);
    t->fd = -1;
    t->at = 0;
}

bool lvni_launch_feed_wants(const lvni_launch_feed *f)
{
    bool open = false;
    for (int i = 0; i < f->n; i++) {
        open = open || f->to[i].fd >= 0;
        if (f->to[i].fd >= 0 && f->to[i].kept.len - f->to[i].at >= KEEP) {
            return false;
        }
    }
    return open && f->from >= 0;
}

void lvni_launch_feed_write(lvni_launch_feed *f, int i)
{
    struct lvni_launch_feed_to *t = &f->to[i];
    while (t->fd >= 0 && t->at < t->kept.len) {
        const ssize_t n = write(t->fd, t->kept.data + t->at, t->kept.len - t->at);
        if (n >= 0) {
            t->at += (size_t)n;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) { /* it ended, or closed its input */
            close_one(t);
        }
    }
    lvni_core_str_clear(&t->kept);
    t->at = 0;
    if (f->from < 0) {
        close_one(t);
    }
}

void lvni_launch_feed_read(lvni_launch_feed *f)
{
    char bytes[READ_BYTES];
    const ssize_t n = read(f->from, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n <= 0) {
        f->from = -1;
    }
    for (int i = 0; i < f->n; i++) {
        if (n > 0 && f->to[i].fd >= 0) {
            lvni_core_str_append_n(&f->to[i].kept, bytes, (size_t)n);
        }
        lvni_launch_feed_write(f, i);
    }
}

void lvni_launch_feed_close(lvni_launch_feed *f)
{
    for (int i = 0; i < f->n; i++) {
        close_one(&f->to[i]);
    }
    lvni_core_free(f->to);
    *f = (lvni_launch_feed){.from = -1};
}
