/* Samples that could not be read (unreadable.h). Called by the loader, which notes them, by the
 * trainer, and by prediction. */
#include "data/unreadable.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "data/dataset.h"
#include "data/image_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Reasons of a source that wait to be settled, in a rank. More are not kept: a report names the
     * first of all ranks, which are among the first of theirs. Where the number of samples that are
     * left out has a limit, an error needs that of the last one, too. */
    KEPT_REASONS = 1024,
    /* Bytes of a source's positions in a checkpoint, whose header has a limit. Those behind are
     * found again after a resume. */
    POSITIONS_BYTES = 1 << 20
};

typedef struct known {
    int64_t position, step; /* -1: from a checkpoint */
} known;

typedef struct reason {
    known of;
    char *text;
} reason;

typedef struct source {
    const char *name; /* of a stream; NULL: the set itself */
    const lvn_dataset *dataset;
    int64_t length;
    /* of a set: a bit per position, and those in the order in which they were found; NULL: none
     * yet. An endless stream has no position twice, and only counts them. */
    uint64_t *bad;
    known *known;
    int64_t n, room;
    int64_t newest, n_newest; /* of an endless stream: the last step with some, and how many */
    int64_t n_reasons;        /* that wait */
    int64_t n_silent;         /* of these: reported by a look at the headers */
    int n_first;
    reason first[LVNI_UNREADABLE_FIRST];
    int64_t n_fresh; /* to be reported */
    char *fresh[LVNI_UNREADABLE_NAMED];
} source;

/* What is packed of a sample; its reason follows, up to a multiple of 8. */
typedef struct head {
    int64_t at, position;
    int32_t source, status;
    int64_t length;
} head;

typedef struct noted {
    head head;
    char *why;
} noted;

struct lvni_data_unreadable {
    lvni_data_unreadable_options o;
    int n_sources;
    source source[1 + LVN_MAX_STREAMS];
    noted *noted;
    int64_t n_noted, room;
    int64_t n_counting; /* of these: of the set itself, and not silent */
    bool is_over;       /* the last settling found one too many */
};

/* ---- create and destroy ---- */

lvn_status lvni_data_unreadable_create(const lvni_data_unreadable_options *options,
                                       lvni_data_unreadable **out)
{
    *out = LVNI_NEW(LVNI_TAG_DATA, lvni_data_unreadable);
    if (*out == NULL) {
        return LVN_ERR_MEMORY;
    }
    (*out)->o = *options;
    (*out)->n_sources = 1 + options->n_streams;
    for (int i = 0; i < (*out)->n_sources; i++) {
        source *s = &(*out)->source[i];
        s->dataset = i == 0 ? options->dataset : options->stream[i - 1].dataset;
        s->name = i == 0 ? NULL : options->stream[i - 1].name;
        s->length = s->dataset->cls->length(s->dataset);
    }
    return LVN_OK;
}

static void free_first(source *s, int from)
{
    while (s->n_first > from) {
        lvni_core_free(s->first[--s->n_first].text);
    }
}

static void free_fresh(source *s, int64_t from)
{
    for (int64_t i = from; i < s->n_fresh && i < LVNI_UNREADABLE_NAMED; i++) {
        lvni_core_free(s->fresh[i]);
        s->fresh[i] = NULL;
    }
    s->n_fresh = from;
}

static void source_free(source *s)
{
    free_first(s, 0);
    free_fresh(s, 0);
    lvni_core_free(s->bad);
    lvni_core_free(s->known);
}

void lvni_data_unreadable_forget(lvni_data_unreadable *u)
{
    while (u->n_noted > 0) {
        lvni_core_free(u->noted[--u->n_noted].why);
    }
    u->n_counting = 0;
    for (int i = 0; i < u->n_sources; i++) {
        u->source[i].n_reasons = 0;
    }
}

void lvni_data_unreadable_destroy(lvni_data_unreadable *u)
{
    if (u == NULL) {
        return;
    }
    lvni_data_unreadable_forget(u);
    lvni_core_free(u->noted);
    for (int i = 0; i < u->n_sources; i++) {
        source_free(&u->source[i]);
    }
    lvni_core_free(u);
}

/* ---- note ---- */

static bool is_bad(const source *s, int64_t position)
{
    return s->bad != NULL && (s->bad[position / 64] >> (position % 64) & 1) != 0;
}

/* Room for one more element of `bytes` each; the array may move. */
static lvn_status more_room(void *array, int64_t n, int64_t *room, size_t bytes)
{
    void *old, *moved;
    memcpy(&old, array, sizeof old);
    if (n < *room) {
        return LVN_OK;
    }
    moved = lvni_core_realloc(LVNI_TAG_DATA, old, (size_t)(2 * *room + 16) * bytes);
    if (moved == NULL) {
        return LVN_ERR_MEMORY;
    }
    *room = 2 * *room + 16;
    memcpy(array, &moved, sizeof moved);
    return LVN_OK;
}

/* Samples that a look at the headers has reported are not named again. */
static bool is_silent(const source *s, int64_t position)
{
    return lvni_data_image_view_is_damaged(s->dataset,
                                           lvni_data_dataset_index(s->dataset, position));
}

static bool keeps_reason(const lvni_data_unreadable *u, const source *s, int64_t position)
{
    const int64_t most = u->o.limit < KEPT_REASONS ? KEPT_REASONS : u->o.limit + 1;
    return s->n_reasons < most && !is_silent(s, position);
}

lvn_status lvni_data_unreadable_note(lvni_data_unreadable *u,
                                     const lvni_data_unreadable_sample *sample)
{
    source *s = &u->source[sample->source];
    if (is_bad(s, sample->position)) {
        return LVN_OK;
    }
    LVN_TRY(more_room(&u->noted, u->n_noted, &u->room, sizeof *u->noted));
    noted n = {.head = {.at = sample->at,
                        .position = sample->position,
                        .source = sample->source,
                        .status = sample->status}};
    if (sample->why != NULL && keeps_reason(u, s, sample->position)) {
        n.why = lvni_core_strdup(LVNI_TAG_DATA, sample->why);
        if (n.why == NULL) {
            return LVN_ERR_MEMORY;
        }
        n.head.length = (int64_t)strlen(n.why);
        s->n_reasons++;
    }
    u->noted[u->n_noted++] = n;
    u->n_counting += sample->source == 0 && !is_silent(s, sample->position) ? 1 : 0;
    return LVN_OK;
}

int64_t lvni_data_unreadable_noted(const lvni_data_unreadable *u)
{
    return u->n_noted;
}

int64_t lvni_data_unreadable_counting(const lvni_data_unreadable *u)
{
    return u->n_counting;
}

bool lvni_data_unreadable_too_many(const lvni_data_unreadable *u, int64_t more)
{
    const source *s = &u->source[0];
    return u->o.limit >= 0 && s->n - s->n_silent + more > u->o.limit;
}

static size_t padded(int64_t length)
{
    return ((size_t)length + 7) / 8 * 8;
}

void lvni_data_unreadable_pack(const lvni_data_unreadable *u, lvni_core_str *out)
{
    static const char zeros[8] = {0};
    for (int64_t i = 0; i < u->n_noted; i++) {
        const noted *n = &u->noted[i];
        const size_t length = (size_t)n->head.length;
        lvni_core_str_append_n(out, (const char *)&n->head, sizeof n->head);
        lvni_core_str_append_n(out, n->why == NULL ? zeros : n->why, length);
        lvni_core_str_append_n(out, zeros, padded(n->head.length) - length);
    }
}

/* ---- settle ---- */

static lvn_status read_head(const lvni_data_unreadable *u, const char *packed, size_t bytes,
                            size_t at, head *out)
{
    bool good = bytes - at >= sizeof *out;
    if (good) {
        memcpy(out, packed + at, sizeof *out);
        good = out->source >= 0 && out->source < u->n_sources && out->length >= 0 &&
               out->length < INT32_MAX && bytes - at - sizeof *out >= padded(out->length) &&
               out->status != LVN_OK;
    }
    if (good) {
        const int64_t length = u->source[out->source].length;
        good = out->position >= 0 && (length == LVN_ENDLESS || out->position < length);
    }
    if (!good) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "a rank's list of unreadable samples ends after %zu of %zu bytes: start all ranks "
                 "with one version of levin",
                 at, bytes);
    }
    return LVN_OK;
}

/* Where each packed sample lies. */
typedef struct place {
    int64_t batch; /* its head.at */
    size_t at;
} place;

/* Those of a batch are of one rank, in order. */
static int compare_places(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->batch != y->batch ? (x->batch < y->batch ? -1 : 1) : x->at < y->at ? -1 : 1;
}

static lvn_status list_places(const lvni_data_unreadable *u, const char *packed, size_t bytes,
                              place **out, int64_t *n)
{
    int64_t room = 0;
    *n = 0;
    for (size_t at = 0; at < bytes;) {
        head h;
        LVN_TRY(read_head(u, packed, bytes, at, &h));
        LVN_TRY(more_room(out, *n, &room, sizeof **out));
        (*out)[(*n)++] = (place){h.at, at};
        at += sizeof h + padded(h.length);
    }
    if (*n > 1) {
        qsort(*out, (size_t)*n, sizeof **out, compare_places);
    }
    return LVN_OK;
}

static char *copy_reason(const source *s, int64_t position, const char *why, size_t length)
{
    lvni_core_str text = {0};
    char buffer[32];
    const int64_t sample = lvni_data_dataset_index(s->dataset, position);
    if (length == 0) {
        lvni_core_str_message(&text, "%s",
                              lvni_data_dataset_sample_name(s->dataset, sample, buffer));
    } else {
        lvni_core_str_escape(&text, why, length, LVNI_ESCAPE_TEXT);
    }
    return lvni_core_str_take(&text);
}

/* The reason of one that counts from now on: for the error, and for the next report. */
static lvn_status keep_reason(source *s, known k, const char *why, size_t length)
{
    if (is_silent(s, k.position)) {
        s->n_silent++;
        return LVN_OK;
    }
    const bool named = s->n_fresh < LVNI_UNREADABLE_NAMED;
    if (named) {
        s->fresh[s->n_fresh] = copy_reason(s, k.position, why, length);
        LVN_TRY(s->fresh[s->n_fresh] == NULL ? LVN_ERR_MEMORY : LVN_OK);
    }
    s->n_fresh++;
    if (s->n_first < LVNI_UNREADABLE_FIRST) {
        s->first[s->n_first] = (reason){k, copy_reason(s, k.position, why, length)};
        LVN_TRY(s->first[s->n_first].text == NULL ? LVN_ERR_MEMORY : LVN_OK);
        s->n_first++;
    }
    return LVN_OK;
}

static lvn_status count(source *s, known k)
{
    if (s->length == LVN_ENDLESS) {
        s->n_newest = (k.step == s->newest ? s->n_newest : 0) + 1;
        s->newest = k.step;
        s->n++;
        return LVN_OK;
    }
    if (s->bad == NULL) {
        s->bad = lvni_core_calloc(LVNI_TAG_DATA, (size_t)s->length / 64 + 1, sizeof *s->bad);
        LVN_TRY(s->bad == NULL ? LVN_ERR_MEMORY : LVN_OK);
    }
    LVN_TRY(more_room(&s->known, s->n, &s->room, sizeof *s->known));
    s->known[s->n++] = k;
    s->bad[k.position / 64] |= (uint64_t)1 << (k.position % 64);
    return LVN_OK;
}

/* The last one, which is about now, and the first: days may lie between them. */
static void name_some(const source *s, const char *last, lvni_core_str *out)
{
    const int64_t before = s->n - s->n_silent - 1;
    const int named = before < s->n_first ? (int)before : s->n_first;
    lvni_core_str_append(out, last);
    for (int i = 0; i < named; i++) {
        lvni_core_str_printf(out, "%s%s", i == 0 ? "; before it " : "; ", s->first[i].text);
    }
    if (before > named) {
        lvni_core_str_printf(out, "; and %lld more", (long long)(before - named));
    }
}

static lvn_status fail_too_many(const lvni_data_unreadable *u, const source *s, lvn_status status,
                                const char *last)
{
    lvni_core_str names = {0};
    name_some(s, last, &names);
    char total[32] = "";
    if (s->length != LVN_ENDLESS) {
        snprintf(total, sizeof total, " of %lld", (long long)s->length);
    }
    const lvn_status failed = lvn_error_set(
        status, __FILE__, __LINE__,
        "%lld%s %s%ssamples%s%s could not be read, and a run leaves out %lld at most "
        "(on_error=skip: any number): %s",
        (long long)(s->n - s->n_silent), total, u->o.what, u->o.what[0] != '\0' ? " " : "",
        s->name != NULL ? " of the stream " : "", s->name != NULL ? s->name : "",
        (long long)u->o.limit, lvni_core_str_text(&names));
    lvni_core_str_free(&names);
    return failed;
}

/* What counted before: to go back to. */
typedef struct mark {
    int64_t n, newest, n_newest, n_silent, n_fresh;
    int n_first;
} mark;

static void go_back(source *s, const mark *m)
{
    for (int64_t i = m->n; i < s->n && s->known != NULL; i++) {
        const int64_t p = s->known[i].position;
        s->bad[p / 64] &= ~((uint64_t)1 << (p % 64));
    }
    s->n = m->n;
    s->newest = m->newest;
    s->n_newest = m->n_newest;
    s->n_silent = m->n_silent;
    free_first(s, m->n_first);
    free_fresh(s, m->n_fresh);
}

static lvn_status settle_one(lvni_data_unreadable *u, const char *packed, int64_t step)
{
    head h;
    memcpy(&h, packed, sizeof h);
    source *s = &u->source[h.source];
    const known k = {h.position, step};
    if (is_bad(s, h.position)) {
        return LVN_OK;
    }
    LVN_TRY(count(s, k));
    LVN_TRY(keep_reason(s, k, packed + sizeof h, (size_t)h.length));
    if (u->o.limit < 0 || s->n - s->n_silent <= u->o.limit) {
        return LVN_OK;
    }
    char *last = copy_reason(s, h.position, packed + sizeof h, (size_t)h.length);
    const lvn_status failed =
        last == NULL ? LVN_ERR_MEMORY : fail_too_many(u, s, (lvn_status)h.status, last);
    lvni_core_free(last);
    return failed;
}

lvn_status lvni_data_unreadable_settle(lvni_data_unreadable *u, const void *packed, size_t bytes,
                                       int64_t step, size_t *at)
{
    mark before[1 + LVN_MAX_STREAMS];
    for (int i = 0; i < u->n_sources; i++) {
        const source *s = &u->source[i];
        before[i] = (mark){s->n, s->newest, s->n_newest, s->n_silent, s->n_fresh, s->n_first};
    }
    place *list = NULL;
    int64_t n = 0;
    lvn_status status = list_places(u, packed, bytes, &list, &n);
    *at = 0;
    for (int64_t i = 0; i < n && status == LVN_OK; i++) {
        *at = list[i].at;
        status = settle_one(u, (const char *)packed + list[i].at, step);
    }
    for (int i = 0; i < u->n_sources && status != LVN_OK; i++) {
        go_back(&u->source[i], &before[i]);
    }
    lvni_core_free(list);
    lvni_data_unreadable_forget(u);
    u->is_over = status != LVN_OK && status != LVN_ERR_MEMORY;
    return status;
}

bool lvni_data_unreadable_is_over(const lvni_data_unreadable *u)
{
    return u != NULL && u->is_over;
}

/* ---- report ---- */

int64_t lvni_data_unreadable_count(const lvni_data_unreadable *u)
{
    return u->source[0].n;
}

static void report_source(const lvni_data_unreadable *u, source *s, lvni_core_str *out)
{
    const int64_t n = s->n_fresh, all = s->n - s->n_silent;
    lvni_core_str_printf(out, "%s%lld %sunreadable %s%ssample%s%s%s left out%s",
                         out->len > 0 ? "; " : "", (long long)n, n < all ? "more " : "", u->o.what,
                         u->o.what[0] != '\0' ? " " : "", lvni_core_plural(n, "", "s"),
                         s->name != NULL ? " of the stream " : "", s->name != NULL ? s->name : "",
                         u->o.limit < 0 ? " (on_error=skip)" : "");
    if (n < all) {
        lvni_core_str_printf(out, ", %lld in all", (long long)all);
    }
    for (int64_t i = 0; i < n && i < LVNI_UNREADABLE_NAMED; i++) {
        lvni_core_str_printf(out, "%s%s", i == 0 ? ": " : "; ", s->fresh[i]);
    }
    if (n > LVNI_UNREADABLE_NAMED) {
        lvni_core_str_printf(out, "; and %lld more", (long long)(n - LVNI_UNREADABLE_NAMED));
    }
    free_fresh(s, 0);
}

bool lvni_data_unreadable_report(lvni_data_unreadable *u, lvni_core_str *out)
{
    bool any = false;
    for (int i = 0; i < u->n_sources; i++) {
        if (u->source[i].n_fresh > 0) {
            report_source(u, &u->source[i], out);
            any = true;
        }
    }
    return any;
}

/* ---- checkpoints: for each source "positions 0 3,5,17-29", of an endless stream "count 1 42",
 * then "reason 0 3 a.jpg: ..." ---- */

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static void print_ranges(const int64_t *sorted, int64_t n, lvni_core_str *out)
{
    const size_t most = out->len + POSITIONS_BYTES;
    for (int64_t i = 0, end; i < n && out->len < most; i = end) {
        for (end = i + 1; end < n && sorted[end] == sorted[end - 1] + 1;) {
            end++;
        }
        lvni_core_str_printf(out, "%s%lld", i > 0 ? "," : "", (long long)sorted[i]);
        if (end > i + 1) {
            lvni_core_str_printf(out, "-%lld", (long long)sorted[end - 1]);
        }
    }
}

static void print_positions(const source *s, int number, int64_t step, lvni_core_str *out)
{
    int64_t n = 0, *sorted = lvni_core_calloc(LVNI_TAG_DATA, (size_t)s->n + 1, sizeof *sorted);
    for (int64_t i = 0; i < s->n && sorted != NULL; i++) {
        sorted[n] = s->known[i].position;
        n += s->known[i].step < step ? 1 : 0;
    }
    out->failed = out->failed || sorted == NULL;
    if (n > 0) {
        qsort(sorted, (size_t)n, sizeof *sorted, compare_numbers);
        lvni_core_str_printf(out, "positions %d ", number);
        print_ranges(sorted, n, out);
        lvni_core_str_char(out, '\n');
    }
    lvni_core_free(sorted);
}

static void print_source(const source *s, int number, int64_t step, lvni_core_str *out)
{
    const int64_t counted = s->newest < step ? s->n : s->n - s->n_newest;
    if (s->length != LVN_ENDLESS) {
        print_positions(s, number, step, out);
    } else if (counted > 0) {
        lvni_core_str_printf(out, "count %d %lld\n", number, (long long)counted);
    }
    for (int i = 0; i < s->n_first && s->first[i].of.step < step; i++) {
        lvni_core_str_printf(out, "reason %d %lld %s\n", number, (long long)s->first[i].of.position,
                             s->first[i].text);
    }
}

void lvni_data_unreadable_print(const lvni_data_unreadable *u, int64_t step, lvni_core_str *out)
{
    for (int i = 0; i < u->n_sources; i++) {
        print_source(&u->source[i], i, step, out);
    }
}

/* Digits at *text, which moves on. (sscanf measures the rest of the text each time.) */
static bool read_number(const char **text, int64_t *out)
{
    const char *from = *text;
    *out = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        const int digit = **text - '0';
        if (*out > (INT64_MAX - digit) / 10) {
            return false;
        }
        *out = 10 * *out + digit;
    }
    return *text > from;
}

/* "17" or "17-29" at *text, which moves on. */
static bool read_range(const char **text, int64_t *from, int64_t *to)
{
    if (!read_number(text, from)) {
        return false;
    }
    *to = *from;
    if (**text != '-') {
        return true;
    }
    (*text)++;
    return read_number(text, to) && *to > *from;
}

static lvn_status read_positions(source *s, const char *text)
{
    for (bool more = s->length != LVN_ENDLESS; more; text += more ? 1 : 0) {
        int64_t from, to;
        if (!read_range(&text, &from, &to) || to >= s->length) {
            return LVN_ERR_CORRUPT;
        }
        for (; from <= to; from++) {
            LVN_TRY(is_bad(s, from) ? LVN_ERR_CORRUPT : count(s, (known){from, -1}));
            s->n_silent += is_silent(s, from) ? 1 : 0;
        }
        more = *text == ',';
    }
    return *text == '\n' ? LVN_OK : LVN_ERR_CORRUPT;
}

static lvn_status read_count(source *s, const char *text)
{
    s->newest = -1;
    return s->length == LVN_ENDLESS && s->n == 0 && read_number(&text, &s->n) && *text == '\n'
               ? LVN_OK
               : LVN_ERR_CORRUPT;
}

static lvn_status read_reason(source *s, const char *text)
{
    int64_t position;
    const bool good = read_number(&text, &position) && *text == ' ';
    const char *end = strchr(text, '\n');
    if (!good || end == NULL || s->n_first == LVNI_UNREADABLE_FIRST) {
        return LVN_ERR_CORRUPT;
    }
    const size_t n = (size_t)(end - text) - 1;
    char *why = lvni_core_calloc(LVNI_TAG_DATA, n + 1, 1);
    if (why == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(why, text + 1, n);
    s->first[s->n_first++] = (reason){{position, -1}, why};
    return LVN_OK;
}

static lvn_status read_lines(lvni_data_unreadable *u, const char *text)
{
    static const struct {
        const char *word;
        lvn_status (*read)(source *s, const char *text);
    } lines[] = {{"positions ", read_positions}, {"count ", read_count}, {"reason ", read_reason}};
    enum { N_LINES = sizeof lines / sizeof *lines };
    while (*text != '\0') {
        int kind = 0;
        int64_t number;
        while (kind < N_LINES && strncmp(text, lines[kind].word, strlen(lines[kind].word)) != 0) {
            kind++;
        }
        if (kind == N_LINES) {
            return LVN_ERR_CORRUPT;
        }
        text += strlen(lines[kind].word);
        if (!read_number(&text, &number) || *text != ' ' || number >= u->n_sources) {
            return LVN_ERR_CORRUPT;
        }
        LVN_TRY(lines[kind].read(&u->source[number], text + 1));
        text = strchr(text, '\n') + 1;
    }
    return LVN_OK;
}

lvn_status lvni_data_unreadable_read(lvni_data_unreadable *u, const char *text)
{
    lvni_data_unreadable *read;
    LVN_TRY(lvni_data_unreadable_create(&u->o, &read));
    lvn_status status;
    LVNI_TRY_DONE(status, read_lines(read, text));
    for (int i = 0; i < u->n_sources; i++) {
        source_free(&u->source[i]);
        u->source[i] = read->source[i];
        read->source[i] = (source){0};
    }
    lvni_data_unreadable_forget(u);
done:
    lvni_data_unreadable_destroy(read);
    return status;
}
