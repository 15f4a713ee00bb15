/* The progress line (progress.h). What it looks like is a pure function; when and where it appears
 * is below it. */
#include "log/progress.h"

#include "core/machine.h"
#include "core/str.h"
#include "log/run_log.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The line being put together. */
typedef struct line {
    char *text;
    size_t n, limit; /* bytes; all is ASCII, so also columns */
} line;

/* One field after two blanks, or nothing when it does not fit as a whole. */
static void add(line *l, const char *fmt, ...) LVN_PRINTF(2, 3);

static void add(line *l, const char *fmt, ...)
{
    char field[64];
    va_list ap;
    va_start(ap, fmt);
    const int n = lvni_core_format_args(field, sizeof field, fmt, ap);
    va_end(ap);
    const size_t gap = l->n == 0 ? 0 : 2, length = n < 0 ? 0 : (size_t)n;
    if (length == 0 || length >= sizeof field || l->n + gap + length > l->limit) {
        return;
    }
    memcpy(l->text + l->n, "  ", gap);
    memcpy(l->text + l->n + gap, field, length + 1);
    l->n += gap + length;
}

static void add_count(line *l, const char *name, int64_t value, int64_t total)
{
    if (total > 0) {
        add(l, "%s %lld/%lld", name, (long long)value, (long long)total);
    } else {
        add(l, "%s %lld", name, (long long)value);
    }
}

static void add_memory(line *l, uint64_t bytes)
{
    const double mib = (double)bytes / (1024.0 * 1024.0);
    if (bytes > 0 && mib < 1023.5) {
        add(l, "mem %.0f MiB", mib);
    } else if (bytes > 0) {
        add(l, "mem %.2f GiB", mib / 1024.0);
    }
}

/* 45s, 1m20s, 2h05m, 3d04h */
static void add_left(line *l, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        return; /* unknown, or nonsense */
    }
    const long long s = llround(seconds);
    if (s < 60) {
        add(l, "left %llds", s);
    } else if (s < 3600) {
        add(l, "left %lldm%02llds", s / 60, s % 60);
    } else if (s < 86400) {
        add(l, "left %lldh%02lldm", s / 3600, s % 3600 / 60);
    } else {
        add(l, "left %lldd%02lldh", s / 86400, s % 86400 / 3600);
    }
}

size_t lvni_log_progress_format(const lvni_log_progress_state *s, int width, char *out, size_t room)
{
    if (room == 0) {
        return 0;
    }
    line l = {.text = out, .n = 0, .limit = room - 1};
    if (width > 0 && (size_t)width < l.limit) {
        l.limit = (size_t)width;
    }
    out[0] = '\0';
    if (s->epoch >= 0) {
        add_count(&l, "epoch", s->epoch + 1, s->max_epochs);
    }
    add_count(&l, "step", s->step, s->steps);
    if (!isnan(s->loss)) {
        add(&l, "loss_step %.4f", s->loss);
    }
    if (!isnan(s->accuracy)) {
        add(&l, "acc_step %.3f", s->accuracy);
    }
    if (!isnan(s->samples_per_s)) {
        add(&l, "%.*f images/s", s->samples_per_s < 99.95 ? 1 : 0, s->samples_per_s);
    }
    if (s->wait_share >= LVNI_PROGRESS_WAIT) {
        add(&l, "data wait %.0f%%", 100.0 * s->wait_share);
    }
    if (!isnan(s->lr)) {
        add(&l, "lr %.3g", s->lr);
    }
    add_memory(&l, s->memory_bytes);
    add_left(&l, s->left_s);
    return l.n;
}

int lvni_log_progress_terminal(void)
{
    return !lvni_log_has_screen()                       ? -1
           : lvni_core_terminal_rewrites(STDOUT_FILENO) ? STDOUT_FILENO
           : lvni_core_terminal_rewrites(STDERR_FILENO) ? STDERR_FILENO
                                                        : -1;
}

void lvni_log_progress_init(lvni_log_progress *p, const lvni_log_progress_options *options)
{
    *p = (lvni_log_progress){.options = *options, .last_s = (double)NAN};
    if (p->options.redraw_s <= 0) {
        p->options.redraw_s = 0.1;
    }
}

/* Asked at every redraw: windows change. One column stays free, for some terminals wrap after the
 * last. */
static int columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

static void draw(lvni_log_progress *p, const lvni_log_progress_state *state)
{
    char text[256];
    lvni_log_progress_format(state, columns(p->options.fd), text, sizeof text);
    lvni_log_status_line(p->options.fd, text);
    p->drawn = true;
}

static void report(const lvni_log_progress *p, const lvni_log_progress_state *state, bool shown)
{
    char text[256];
    lvni_log_progress_format(state, 0, text, sizeof text);
    if (p->options.plain == NULL) {
        lvni_log_line(shown ? LVNI_LOG_INFO : LVNI_LOG_DEBUG, "%s", text);
    } else if (shown && !p->options.quiet) {
        fprintf(p->options.plain, "%s\n", text);
    }
}

void lvni_log_progress_update(lvni_log_progress *p, const lvni_log_progress_state *state,
                              double now_s, bool logged, bool last)
{
    const bool terminal = p->options.fd >= 0;
    const bool first = isnan(p->last_s);
    const double interval = terminal ? p->options.redraw_s : p->options.plain_interval_s;
    const bool due = first ? terminal : now_s - p->last_s >= interval;
    if (logged) {
        report(p, state, !terminal && due && !last);
    }
    if (terminal && !p->options.quiet && (due || last)) {
        draw(p, state);
    }
    if (first || (terminal ? due || last : (due && logged) || last)) {
        p->last_s = now_s;
    }
}

void lvni_log_progress_finish(lvni_log_progress *p)
{
    if (p->drawn) {
        lvni_log_status_end();
        p->drawn = false;
    }
}
