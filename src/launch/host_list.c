/* Slurm's lists of hosts and of tasks per node (host_list.h): expanding and compressing the first,
 * reading the second. */
#include "launch/host_list.h"

#include "core/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { GROUPS = 8, DIGITS = 18, NAME = 1024, WINDOW = 60 };
enum { MAX_NODES = 1048576, MAX_TASKS = 65536 };

/* ---- expanding hosts ----
 * An element is checked and counted as a whole first; then its brackets turn like the wheels of a
 * counter, and each position gives a name. */

/* One pair of brackets. */
typedef struct group {
    const char *begin, *end; /* after '[', and at ']' */
    const char *next;        /* of the counter: the range after the present one */
    uint64_t value, hi;
    int width; /* digits that the lower number was written with */
} group;

typedef struct element {
    const char *text[GROUPS + 1]; /* before each group, and after the last */
    size_t len[GROUPS + 1];
    group groups[GROUPS];
    int n;
    uint64_t hosts;
} element;

typedef struct reader {
    const char *list;
    lvni_core_notices *notices;
} reader;

/* E112: the list, or its part around `at`, and a caret under that column. */
static lvn_status bad(const reader *r, const char *at, const char *reason)
{
    const size_t column = (size_t)(at - r->list), from = column > WINDOW ? column - WINDOW : 0;
    char part[2 * WINDOW + 1];
    const lvn_status s = lvni_core_notice_error(r->notices, 112, "bad host list, column %zu: %s",
                                                column + 1, reason);
    snprintf(part, sizeof part, "%s", r->list + from);
    for (char *p = part; *p != '\0'; p++) {
        *p = (unsigned char)*p < ' ' ? ' ' : *p;
    }
    lvni_core_notice_found(r->notices, "%s%s%s", from > 0 ? "..." : "", part,
                           strlen(r->list + from) > strlen(part) ? "..." : "");
    const int before = (int)strlen("  found: ") + (from > 0 ? 3 : 0) + (int)(column - from);
    lvni_core_str_printf(&r->notices->text, "%*s^\n", before, "");
    return s;
}

static bool separates(char c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *read_number(const char *p, uint64_t *out)
{
    *out = 0;
    while (digit(*p)) {
        *out = *out * 10 + (uint64_t)(*p++ - '0');
    }
    return p;
}

static lvn_status check_number(const reader *r, const char *open, const char *p)
{
    if (*p == '\0') {
        return bad(r, open, "this bracket is not closed");
    }
    if (*p == '[') {
        return bad(r, p, "brackets inside of brackets");
    }
    if (*p == ',' || *p == ']') {
        return bad(r, p, "a number is missing before this");
    }
    if (!digit(*p)) {
        return bad(r, p, "brackets hold numbers and ranges of numbers, such as [1-3,7]");
    }
    size_t n = 0;
    while (digit(p[n])) {
        n++;
    }
    return n > DIGITS ? bad(r, p, "more than 18 digits") : LVN_OK;
}

/* "7" or "01-16" at *at; moves past it and adds up the values. */
static lvn_status check_range(const reader *r, const char *open, const char **at, uint64_t *count)
{
    const char *begin = *at, *p = begin;
    uint64_t lo, hi;
    LVN_TRY(check_number(r, open, p));
    p = read_number(p, &lo);
    hi = lo;
    if (*p == '-') {
        if (p[1] == '-') {
            return bad(r, p + 1, "a second dash in a range");
        }
        LVN_TRY(check_number(r, open, p + 1));
        p = read_number(p + 1, &hi);
    }
    if (*p == '-') {
        return bad(r, p, "a second dash in a range");
    }
    if (*p == ':') {
        return bad(r, p, "a range has no step");
    }
    if (*p == '\0') {
        return bad(r, open, "this bracket is not closed");
    }
    if (*p != ',' && *p != ']') {
        return bad(r, p,
                   *p == '[' ? "brackets inside of brackets"
                             : "brackets hold numbers and ranges of numbers, such as [1-3,7]");
    }
    if (lo > hi) {
        return bad(r, begin, "this range counts down");
    }
    if (hi - lo >= LVNI_HOSTS_RANGE) {
        return bad(r, begin, "a range has at most 65536 values");
    }
    *count += hi - lo + 1;
    *at = p;
    return LVN_OK;
}

/* The brackets at *at: checked, counted, and the wheel set up; moves past them. */
static lvn_status check_group(const reader *r, const char **at, element *e)
{
    const char *open = *at, *p = open + 1;
    uint64_t count = 0;
    if (e->n == GROUPS) {
        return bad(r, open, "more than 8 brackets in one name");
    }
    for (;;) {
        LVN_TRY(check_range(r, open, &p, &count));
        if (*p == ']') {
            break;
        }
        p++;
        if (count > LVNI_HOSTS_MAX) {
            return bad(r, open, "more than 1048576 hosts");
        }
    }
    e->groups[e->n++] = (group){.begin = open + 1, .end = p};
    e->hosts *= count;
    if (e->hosts > LVNI_HOSTS_MAX) {
        return bad(r, open, "more than 1048576 hosts");
    }
    *at = p + 1;
    return LVN_OK;
}

static lvn_status check_element(const reader *r, const char **at, element *e)
{
    const char *p = *at;
    *e = (element){.hosts = 1, .text = {p}};
    while (*p != '\0' && !separates(*p)) {
        if (*p == ']') {
            return bad(r, p, "this bracket was not opened");
        }
        if (*p == '[') {
            LVN_TRY(check_group(r, &p, e));
            e->text[e->n] = p;
        } else {
            e->len[e->n]++;
            p++;
        }
    }
    *at = p;
    return LVN_OK;
}

/* The wheel takes the range at p. */
static void take_range(group *g, const char *p)
{
    const char *after = read_number(p, &g->value);
    g->width = (int)(after - p);
    g->hi = g->value;
    if (*after == '-') {
        after = read_number(after + 1, &g->hi);
    }
    g->next = after < g->end ? after + 1 : NULL;
}

/* One step of the wheel; true: it has gone round. */
static bool turn(group *g)
{
    if (g->value < g->hi) {
        g->value++;
        return false;
    }
    const bool round = g->next == NULL;
    take_range(g, round ? g->begin : g->next);
    return round;
}

/* The last wheel turns fastest, then the first, and the last but one slowest. */
static void turn_all(element *e)
{
    bool round = e->n > 0 && turn(&e->groups[e->n - 1]);
    for (int i = 0; round && i < e->n - 1; i++) {
        round = turn(&e->groups[i]);
    }
}

static lvn_status add_name(lvni_launch_hosts *h, const char *name, size_t len)
{
    if (h->bytes + len + 1 > h->room) {
        const size_t room = 2 * (h->bytes + len + 1) + 64;
        char *text = lvni_core_realloc(LVNI_TAG_CORE, h->text, room);
        if (text == NULL) {
            return LVN_ERR_MEMORY;
        }
        h->text = text;
        h->room = room;
    }
    memcpy(h->text + h->bytes, name, len);
    h->text[h->bytes + len] = '\0';
    h->start[h->n++] = h->bytes;
    h->bytes += len + 1;
    return LVN_OK;
}

static lvn_status add_element(const reader *r, lvni_launch_hosts *h, element *e)
{
    char name[NAME];
    if (h->n + e->hosts > LVNI_HOSTS_MAX) {
        return bad(r, e->text[0], "more than 1048576 hosts");
    }
    size_t *start =
        lvni_core_realloc(LVNI_TAG_CORE, h->start, (size_t)(h->n + e->hosts) * sizeof *start);
    if (start == NULL) {
        return LVN_ERR_MEMORY;
    }
    h->start = start;
    for (int i = 0; i < e->n; i++) {
        take_range(&e->groups[i], e->groups[i].begin);
    }
    for (uint64_t k = 0; k < e->hosts; k++) {
        size_t len = 0;
        for (int i = 0; i <= e->n; i++) {
            if (len + e->len[i] + DIGITS + 1 >= NAME) {
                return bad(r, e->text[0], "a name longer than 1000 characters");
            }
            memcpy(name + len, e->text[i], e->len[i]);
            len += e->len[i];
            if (i < e->n) {
                len += (size_t)snprintf(name + len, NAME - len, "%0*" PRIu64, e->groups[i].width,
                                        e->groups[i].value);
            }
        }
        LVN_TRY(add_name(h, name, len));
        turn_all(e);
    }
    return LVN_OK;
}

lvn_status lvni_launch_hosts_expand(lvni_launch_hosts *hosts, const char *list,
                                    lvni_core_notices *notices)
{
    const reader r = {list, notices};
    const size_t n = hosts->n, bytes = hosts->bytes;
    lvn_status s = LVN_OK;
    element e;
    for (const char *p = list; s == LVN_OK;) {
        while (separates(*p)) {
            p++;
        }
        if (*p == '\0') {
            return LVN_OK;
        }
        s = check_element(&r, &p, &e);
        if (s == LVN_OK) {
            s = add_element(&r, hosts, &e);
        }
    }
    hosts->n = n;
    hosts->bytes = bytes;
    return s;
}

const char *lvni_launch_hosts_name(const lvni_launch_hosts *hosts, size_t i)
{
    return hosts->text + hosts->start[i];
}

void lvni_launch_hosts_free(lvni_launch_hosts *hosts)
{
    lvni_core_free(hosts->text);
    lvni_core_free(hosts->start);
    memset(hosts, 0, sizeof *hosts);
}

/* ---- compressing hosts ----
 * Neighbours with one stem share brackets, and numbers that follow each other there a range. The
 * order stays, so that the first host of the list is the first host. */

/* "n08": the stem "n", and 8 written with 2 digits; width 0: the name does not end with a digit. */
typedef struct host {
    const char *name;
    size_t stem;
    int width;
    uint64_t value;
} host;

static host split(const char *name)
{
    host h = {.name = name, .stem = strlen(name)};
    while (h.stem > 0 && h.width < DIGITS && name[h.stem - 1] >= '0' && name[h.stem - 1] <= '9') {
        h.stem--;
        h.width++;
    }
    for (const char *p = name + h.stem; *p != '\0'; p++) {
        h.value = h.value * 10 + (uint64_t)(*p - '0');
    }
    return h;
}

static bool same_stem(const host *a, const host *b)
{
    return a->width > 0 && b->width > 0 && a->stem == b->stem &&
           memcmp(a->name, b->name, a->stem) == 0;
}

static int digits_of(uint64_t value)
{
    int n = 1;
    for (; value >= 10; value /= 10) {
        n++;
    }
    return n;
}

/* Is b the successor of a, padded as `first` is written? */
static bool follows(const host *first, const host *a, const host *b)
{
    const int natural = digits_of(b->value);
    return b->value == a->value + 1 &&
           b->width == (natural > first->width ? natural : first->width) &&
           b->value - first->value < LVNI_HOSTS_RANGE;
}

/* Inside of brackets: the range that begins with host i; returns the next one. */
static size_t print_range(const lvni_launch_hosts *hosts, size_t i, size_t end, lvni_core_str *out)
{
    const host first = split(lvni_launch_hosts_name(hosts, i));
    host last = first;
    size_t k = i + 1;
    for (; k < end; k++) {
        const host next = split(lvni_launch_hosts_name(hosts, k));
        if (!follows(&first, &last, &next)) {
            break;
        }
        last = next;
    }
    lvni_core_str_printf(out, "%0*" PRIu64, first.width, first.value);
    if (k > i + 1) {
        lvni_core_str_printf(out, "-%0*" PRIu64, first.width, last.value);
    }
    return k;
}

void lvni_launch_hosts_compress(const lvni_launch_hosts *hosts, lvni_core_str *out)
{
    for (size_t i = 0; i < hosts->n;) {
        const host first = split(lvni_launch_hosts_name(hosts, i));
        size_t end = i + 1;
        for (; end < hosts->n; end++) {
            const host next = split(lvni_launch_hosts_name(hosts, end));
            if (!same_stem(&first, &next)) {
                break;
            }
        }
        lvni_core_str_append(out, i > 0 ? "," : "");
        if (end == i + 1) {
            lvni_core_str_append(out, first.name);
            i = end;
            continue;
        }
        lvni_core_str_append_n(out, first.name, first.stem);
        for (const char *before = "["; i < end; before = ",") {
            lvni_core_str_append(out, before);
            i = print_range(hosts, i, end, out);
        }
        lvni_core_str_char(out, ']');
    }
}

/* ---- tasks per node ---- */

static const char *read_count(const char *p, int *out)
{
    int value = 0;
    const char *begin = p;
    while (*p >= '0' && *p <= '9' && value <= MAX_NODES) {
        value = value * 10 + (*p++ - '0');
    }
    *out = p == begin ? -1 : value;
    return p;
}

/* "2" or "2(x3)" at p; NULL when it is neither. */
static const char *read_item(const char *p, int *tasks, int *repeat)
{
    *repeat = 1;
    p = read_count(p, tasks);
    if (*p == '(') {
        if (p[1] != 'x') {
            return NULL;
        }
        p = read_count(p + 2, repeat);
        if (*p++ != ')') {
            return NULL;
        }
    }
    const bool fits = *tasks >= 1 && *tasks <= MAX_TASKS && *repeat >= 1 && *repeat <= MAX_NODES;
    return fits && (*p == ',' || *p == '\0') ? p : NULL;
}

static lvn_status add_tasks(lvni_launch_task_vector *v, int tasks, int repeat)
{
    int *more = lvni_core_realloc(LVNI_TAG_CORE, v->tasks, (size_t)(v->n + repeat) * sizeof *more);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    v->tasks = more;
    for (int i = 0; i < repeat; i++) {
        more[v->n++] = tasks;
    }
    v->sum += (int64_t)tasks * repeat;
    return LVN_OK;
}

static lvn_status unreadable(const char *name, const char *text, lvni_core_notices *notices)
{
    const lvn_status s =
        lvni_core_notice_error(notices, 102, "%s='%s' is not a list of tasks per node", name, text);
    lvni_core_notice_found(
        notices, "%s='%s'; expected: numbers such as 2(x3),1 for 2, 2, 2 and 1 tasks", name, text);
    return s;
}

lvn_status lvni_launch_task_vector_read(const char *name, const char *text,
                                        lvni_core_notices *notices, lvni_launch_task_vector *out)
{
    lvni_launch_task_vector v = {.n = 0};
    lvn_status s = LVN_OK;
    for (const char *p = text; p != NULL && *text != '\0';) {
        int tasks, repeat;
        p = read_item(p, &tasks, &repeat);
        if (p == NULL || v.n + repeat > MAX_NODES) {
            s = unreadable(name, text, notices);
            goto done;
        }
        LVNI_TRY_DONE(s, add_tasks(&v, tasks, repeat));
        p = *p == ',' ? p + 1 : NULL;
    }
    *out = v;
    return LVN_OK;
done:
    lvni_launch_task_vector_free(&v);
    return s;
}

void lvni_launch_task_vector_free(lvni_launch_task_vector *vector)
{
    lvni_core_free(vector->tasks);
    memset(vector, 0, sizeof *vector);
}
