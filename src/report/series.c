/* Reads metrics.jsonl (series.h). Its rows are flat objects that levin wrote itself, a million of
 * them in a long run: they are read in place here, and not made into values first. */
#include "report/series.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- buckets ---- */

static const double MOST_STEP = 9007199254740992.0; /* 2^53 */

static void join(lvni_report_bucket *into, const lvni_report_bucket *b)
{
    if (b->n == 0) {
        return;
    }
    into->least = into->n == 0 || b->least < into->least ? b->least : into->least;
    into->most = into->n == 0 || b->most > into->most ? b->most : into->most;
    into->n += b->n;
    into->step += b->step;
    into->value += b->value;
}

/* Two and two buckets become one: the series reaches twice as far. */
static void widen(lvni_report_series *s)
{
    for (int i = 0; i < LVNI_REPORT_BUCKETS; i++) {
        const lvni_report_bucket b = s->bucket[i];
        s->bucket[i] = (lvni_report_bucket){.n = 0};
        join(&s->bucket[i / 2], &b);
    }
    s->width *= 2;
}

void lvni_report_series_add(lvni_report_series *s, int64_t step, double value)
{
    while (step / s->width >= LVNI_REPORT_BUCKETS) {
        widen(s);
    }
    const lvni_report_bucket one = {
        .n = 1, .step = (double)step, .value = value, .least = value, .most = value};
    join(&s->bucket[step / s->width], &one);
    const lvni_report_value now = {.value = value, .step = step};
    s->first = s->n == 0 ? now : s->first;
    s->least = s->n == 0 || value < s->least.value ? now : s->least;
    s->most = s->n == 0 || value > s->most.value ? now : s->most;
    s->last = now;
    s->n++;
}

/* ---- a row ---- */

typedef struct pair {
    const char *name;
    size_t length;
    double value; /* NAN: null */
} pair;

typedef struct cursor {
    const char *p, *end;
} cursor;

static bool take(cursor *c, char what)
{
    while (c->p < c->end && isspace((unsigned char)*c->p)) {
        c->p++;
    }
    if (c->p == c->end || *c->p != what) {
        return false;
    }
    c->p++;
    return true;
}

/* What stands between quotes, as it is written. */
static bool take_text(cursor *c, const char **text, size_t *length)
{
    if (!take(c, '"')) {
        return false;
    }
    *text = c->p;
    while (c->p < c->end && *c->p != '"') {
        c->p += *c->p == '\\' && c->end - c->p > 1 ? 2 : 1;
    }
    *length = (size_t)(c->p - *text);
    return take(c, '"');
}

static bool take_digits(cursor *c, uint64_t *digits, int *scale, bool fraction)
{
    const char *begin = c->p;
    for (; c->p < c->end && isdigit((unsigned char)*c->p); c->p++) {
        if (*digits < UINT64_MAX / 10 - 1) {
            *digits = *digits * 10 + (uint64_t)(*c->p - '0');
            *scale -= fraction;
        } else {
            *scale += !fraction; /* beyond what a double holds */
        }
    }
    return c->p > begin;
}

/* A number of JSON, to 15 digits: as good as a curve needs, and many times as fast as strtod. */
static bool take_number(cursor *c, double *out)
{
    uint64_t digits = 0, power = 0;
    int scale = 0, ignored = 0;
    const bool minus = take(c, '-');
    if (!take_digits(c, &digits, &scale, false)) {
        return false;
    }
    if (c->p < c->end && *c->p == '.') {
        c->p++;
        if (!take_digits(c, &digits, &scale, true)) {
            return false;
        }
    }
    if (c->p < c->end && (*c->p == 'e' || *c->p == 'E')) {
        c->p++;
        const bool down = c->p < c->end && *c->p == '-';
        c->p += c->p < c->end && (*c->p == '-' || *c->p == '+');
        if (!take_digits(c, &power, &ignored, false)) {
            return false;
        }
        power = power > 1000 ? 1000 : power;
        scale += down ? -(int)power : (int)power;
    }
    const double size = (double)digits;
    /* in two steps: of 1e-320 10^-320 alone is 0 */
    const double scaled = scale < -300 ? size * pow(10.0, -300.0) * pow(10.0, scale + 300.0)
                          : scale < 0  ? size / pow(10.0, -scale)
                                       : size * pow(10.0, scale);
    *out = minus ? -scaled : scaled;
    return isfinite(*out);
}

static bool take_word(cursor *c, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) {
        return false;
    }
    c->p += n;
    return true;
}

/* A number or null (NAN); texts and truth values are not for curves (*kept false). */
static bool take_value(cursor *c, double *value, bool *kept)
{
    const char *text;
    size_t length;
    while (c->p < c->end && isspace((unsigned char)*c->p)) {
        c->p++;
    }
    *kept = true;
    *value = NAN;
    if (take_word(c, "null")) {
        return true;
    }
    if (c->p < c->end && (*c->p == '-' || isdigit((unsigned char)*c->p))) {
        return take_number(c, value);
    }
    *kept = false;
    return take_word(c, "true") || take_word(c, "false") || take_text(c, &text, &length);
}

/* The pairs of a row; -1: it is damaged. */
static int read_row(const char *line, size_t n, pair *pairs, int room)
{
    cursor c = {.p = line, .end = line + n};
    int count = 0;
    bool kept, more = true;
    if (!take(&c, '{')) {
        return -1;
    }
    for (more = !take(&c, '}'); more; more = take(&c, ',')) {
        pair *p = &pairs[count];
        if (!take_text(&c, &p->name, &p->length) || !take(&c, ':') ||
            !take_value(&c, &p->value, &kept)) {
            return -1;
        }
        count += kept && count < room - 1;
    }
    if (count == 0 || c.p[-1] == ',') {
        return -1;
    }
    const bool closed = c.p[-1] == '}' || take(&c, '}');
    while (c.p < c.end && isspace((unsigned char)*c.p)) {
        c.p++;
    }
    return closed && c.p == c.end ? count : -1;
}

/* ---- rows into series ---- */

/* Bytes of a name that a series has: the end of a long one is left out. */
static size_t kept_bytes(const pair *p)
{
    return p->length < LVNI_REPORT_NAME ? p->length
                                        : lvni_core_utf8_cut(p->name, LVNI_REPORT_NAME - 1);
}

static bool is_named(const lvni_report_series *s, const pair *p)
{
    const size_t n = kept_bytes(p);
    return strncmp(s->name, p->name, n) == 0 && s->name[n] == '\0';
}

/* Rows have the same names in the same order, mostly: the one after the last is tried first. */
static lvn_status find_or_add(lvni_report_metrics *m, const pair *p, int *at,
                              lvni_report_series **out)
{
    *out = NULL;
    for (int i = 0; i < m->n; i++) {
        const int k = (*at + i) % m->n;
        if (is_named(m->series[k], p)) {
            *at = k + 1;
            *out = m->series[k];
            return LVN_OK;
        }
    }
    if (m->n == LVNI_REPORT_SERIES) {
        m->left_out = true;
        return LVN_OK;
    }
    lvni_report_series *s = LVNI_NEW(LVNI_TAG_CORE, lvni_report_series);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(s->name, p->name, kept_bytes(p));
    s->width = 1;
    m->series[m->n++] = s;
    *at = m->n;
    *out = s;
    return LVN_OK;
}

static bool has_name(const pair *p, const char *name)
{
    return p->length == strlen(name) && memcmp(p->name, name, p->length) == 0;
}

lvn_status lvni_report_metrics_add(lvni_report_metrics *m, const char *line, size_t n)
{
    pair pairs[LVNI_REPORT_SERIES + 8];
    const int count = read_row(line, n, pairs, (int)(sizeof pairs / sizeof *pairs));
    double step = -1.0, epoch = m->last_epoch, seconds = m->seconds;
    for (int i = 0; i < count; i++) {
        step = has_name(&pairs[i], "step") ? pairs[i].value : step;
        epoch = has_name(&pairs[i], "epoch") ? pairs[i].value : epoch;
        seconds = has_name(&pairs[i], "time_s") ? pairs[i].value : seconds;
    }
    if (count < 0 || !(step >= 0.0 && step < MOST_STEP)) {
        m->damaged++;
        return LVN_OK;
    }
    m->rows++;
    m->last_step = (int64_t)step > m->last_step ? (int64_t)step : m->last_step;
    m->last_epoch = epoch;
    m->seconds = seconds;
    int at = 0;
    for (int i = 0; i < count; i++) {
        lvni_report_series *s;
        if (has_name(&pairs[i], "step") || has_name(&pairs[i], "epoch") ||
            has_name(&pairs[i], "time_s")) {
            continue;
        }
        LVN_TRY(find_or_add(m, &pairs[i], &at, &s));
        if (s != NULL && isfinite(pairs[i].value)) {
            lvni_report_series_add(s, (int64_t)step, pairs[i].value);
        } else if (s != NULL) {
            s->n_null++;
        }
    }
    return LVN_OK;
}

/* ---- the file ---- */

enum { CHUNK = 1 << 20 };

/* What is whole in text[0 .. n): *used bytes of it. A line longer than a chunk is damaged. */
static lvn_status add_lines(lvni_report_metrics *m, const char *text, size_t n, bool end,
                            size_t *used)
{
    *used = 0;
    while (*used < n) {
        const char *line = text + *used, *stop = memchr(line, '\n', n - *used);
        if (stop == NULL && !end && *used > 0) {
            return LVN_OK;
        }
        const size_t length = stop != NULL ? (size_t)(stop - line) : n - *used;
        if (stop == NULL && !end && n < CHUNK) {
            return LVN_OK;
        }
        if (length > 0) {
            LVN_TRY(lvni_report_metrics_add(m, line, length));
        }
        *used += length + (stop != NULL);
    }
    return LVN_OK;
}

static lvn_status read_lines(const char *path, int fd, char *text, lvni_report_metrics *out)
{
    size_t have = 0, used;
    for (;;) {
        const ssize_t n = lvni_core_vfs_get()->read(fd, text + have, CHUNK - have);
        if (n < 0) {
            LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        have += (size_t)n;
        LVN_TRY(add_lines(out, text, have, n == 0, &used));
        if (n == 0) {
            return LVN_OK;
        }
        memmove(text, text + used, have - used);
        have -= used;
    }
}

lvn_status lvni_report_metrics_read(const char *path, lvni_report_metrics *out)
{
    int fd;
    uint64_t bytes;
    memset(out, 0, sizeof *out);
    LVN_TRY(lvni_core_regular_open(path, &fd, &bytes));
    char *text = lvni_core_alloc(LVNI_TAG_CORE, CHUNK);
    const lvn_status s = text == NULL ? LVN_ERR_MEMORY : read_lines(path, fd, text, out);
    lvni_core_free(text);
    lvni_core_vfs_get()->close(fd);
    return s;
}

void lvni_report_metrics_free(lvni_report_metrics *m)
{
    for (int i = 0; i < m->n; i++) {
        lvni_core_free(m->series[i]);
    }
    memset(m, 0, sizeof *m);
}

const lvni_report_series *lvni_report_metrics_find(const lvni_report_metrics *m, const char *name)
{
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->series[i]->name, name) == 0) {
            return m->series[i];
        }
    }
    return NULL;
}
