/* The bodies of frames that hold more than a number (message.h): greetings, facts, the table of all
 * ranks, causes; and the sentence that a cause becomes for users (control.h). Each body has a
 * function that writes it and one that reads it and reports whether it was valid. What a body leads
 * to is decided elsewhere: store_*.c at one end, control_*.c at the other. */
#include "message.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"

#include <stdio.h>
#include <string.h>

static const char magic[8] = {'l', 'e', 'v', 'i', 'n', 'c', 't', 'l'};

static void put_token(lvni_core_str *out, const lvni_control_token *token)
{
    lvni_core_str_append_n(out, (const char *)token->b, sizeof token->b);
}

static void scan_token(lvni_control_scan *scan, lvni_control_token *token)
{
    const unsigned char *p = lvni_control_scan_raw(scan, sizeof token->b);
    if (p != NULL) {
        memcpy(token->b, p, sizeof token->b);
    } else {
        memset(token, 0, sizeof *token);
    }
}

static bool scan_magic(lvni_control_scan *scan)
{
    const unsigned char *p = lvni_control_scan_raw(scan, sizeof magic);
    return p != NULL && memcmp(p, magic, sizeof magic) == 0;
}

void lvni_control_put_hello(lvni_core_str *out, const lvni_control_token *nonce,
                            lvni_control_auth how)
{
    const size_t at = lvni_control_frame_begin(out, LVNI_FRAME_HELLO);
    lvni_core_str_append_n(out, magic, sizeof magic);
    put_token(out, nonce);
    lvni_control_put_u32(out, (uint32_t)how);
    lvni_control_frame_end(out, at);
}

bool lvni_control_scan_hello(const lvni_control_frame *frame, lvni_control_token *nonce,
                             lvni_control_auth *how)
{
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const bool ours = frame->type == LVNI_FRAME_HELLO && scan_magic(&scan);
    scan_token(&scan, nonce);
    const uint32_t method = lvni_control_scan_u32(&scan);
    *how = method < LVNI_AUTH_COUNT ? (lvni_control_auth)method : LVNI_AUTH_OPEN;
    return ours && method < LVNI_AUTH_COUNT && lvni_control_scan_done(&scan);
}

const char *lvni_control_deny_text(uint32_t deny)
{
    static const char *const texts[LVNI_DENY_COUNT] = {
#define LVNI_DENY_ROW(name, text) [LVNI_DENY_##name] = text,
        LVNI_DENY_LIST(LVNI_DENY_ROW)
#undef LVNI_DENY_ROW
    };
    return deny < LVNI_DENY_COUNT ? texts[deny] : "it gives no reason that is known here";
}

lvni_control_token lvni_control_greet_proof(const lvni_control_token *key,
                                            const lvni_control_token *store_nonce,
                                            const lvni_control_greet *greet, int port)
{
    unsigned char text[4 + 32 + 32];
    memcpy(text, "rank", 4);
    memcpy(text + 4, store_nonce->b, 16);
    memcpy(text + 20, greet->nonce.b, 16);
    const uint64_t message[4] = {greet->protocol | (uint64_t)greet->world << 32,
                                 greet->rank | (uint64_t)(uint32_t)port << 32, greet->instance,
                                 greet->pid};
    for (size_t i = 0; i < 32; i++) {
        text[36 + i] = (unsigned char)(message[i / 8] >> (8 * (i % 8)));
    }
    return lvni_control_siphash(key, text, sizeof text);
}

lvni_control_token lvni_control_store_proof(const lvni_control_token *key,
                                            const lvni_control_token *store_nonce,
                                            const lvni_control_token *rank_nonce)
{
    unsigned char text[5 + 32];
    memcpy(text, "store", 5);
    memcpy(text + 5, store_nonce->b, 16);
    memcpy(text + 21, rank_nonce->b, 16);
    return lvni_control_siphash(key, text, sizeof text);
}

void lvni_control_put_greet(lvni_core_str *out, const lvni_control_greet *greet)
{
    const size_t at = lvni_control_frame_begin(out, LVNI_FRAME_GREET);
    lvni_core_str_append_n(out, magic, sizeof magic);
    lvni_control_put_u32(out, greet->protocol);
    lvni_control_put_u32(out, greet->world);
    lvni_control_put_u32(out, greet->rank);
    lvni_control_put_u64(out, greet->instance);
    lvni_control_put_u64(out, greet->pid);
    lvni_control_put_text(out, greet->host);
    lvni_control_put_text(out, greet->version);
    put_token(out, &greet->nonce);
    put_token(out, &greet->proof);
    lvni_control_put_bytes(out, greet->credential_n > 0 ? greet->credential : "",
                           greet->credential_n);
    lvni_control_frame_end(out, at);
}

/* A name from another host, which ends up in messages: escaped. */
static void scan_name(lvni_control_scan *scan, char *out, size_t size)
{
    char raw[64];
    lvni_control_scan_text(scan, raw, size < sizeof raw ? size : sizeof raw);
    lvni_core_escape(out, size, raw, strlen(raw), LVNI_ESCAPE_TEXT);
}

bool lvni_control_scan_greet(const lvni_control_frame *frame, lvni_control_greet *greet)
{
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const bool ours = frame->type == LVNI_FRAME_GREET && scan_magic(&scan);
    greet->protocol = lvni_control_scan_u32(&scan);
    greet->world = lvni_control_scan_u32(&scan);
    greet->rank = lvni_control_scan_u32(&scan);
    greet->instance = lvni_control_scan_u64(&scan);
    greet->pid = lvni_control_scan_u64(&scan);
    scan_name(&scan, greet->host, sizeof greet->host);
    scan_name(&scan, greet->version, sizeof greet->version);
    scan_token(&scan, &greet->nonce);
    scan_token(&scan, &greet->proof);
    greet->credential = lvni_control_scan_bytes(&scan, &greet->credential_n);
    return ours && lvni_control_scan_done(&scan);
}

enum { NAMED = 1, ENDED = 2 }; /* marks of a cause */

void lvni_control_put_cause(lvni_core_str *out, lvni_control_frame_type type,
                            const lvni_control_cause *cause)
{
    const size_t at = lvni_control_frame_begin(out, type);
    lvni_control_put_u32(out, (uint32_t)cause->kind);
    lvni_control_put_u32(out, (uint32_t)cause->rank);
    lvni_control_put_u64(out, (uint64_t)cause->step);
    lvni_control_put_u64(out, (uint64_t)cause->pid);
    lvni_control_put_u64(out, cause->time_ns);
    lvni_control_put_u32(out, (cause->named ? NAMED : 0) | (cause->ended ? ENDED : 0));
    lvni_control_put_text(out, cause->host);
    lvni_control_put_text(out, cause->place);
    lvni_control_put_text(out, cause->message);
    lvni_control_frame_end(out, at);
}

bool lvni_control_scan_cause(const lvni_control_frame *frame, lvni_control_cause *cause)
{
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const uint32_t kind = lvni_control_scan_u32(&scan);
    cause->kind = kind > LVNI_CAUSE_NONE && kind < LVNI_CAUSE_COUNT ? (lvni_control_cause_kind)kind
                                                                    : LVNI_CAUSE_NONE;
    cause->rank = (int)lvni_control_scan_u32(&scan);
    cause->step = (int64_t)lvni_control_scan_u64(&scan);
    cause->pid = (int64_t)lvni_control_scan_u64(&scan);
    cause->time_ns = lvni_control_scan_u64(&scan);
    const uint32_t marks = lvni_control_scan_u32(&scan);
    cause->named = (marks & NAMED) != 0;
    cause->ended = (marks & ENDED) != 0;
    scan_name(&scan, cause->host, sizeof cause->host);
    lvni_control_scan_text(&scan, cause->place, sizeof cause->place);
    lvni_control_scan_text(&scan, cause->message, sizeof cause->message);
    return lvni_control_scan_done(&scan) && cause->kind != LVNI_CAUSE_NONE && cause->rank >= 0;
}

/* A text with its zero, so that it can be borrowed. */
static void put_borrowable(lvni_core_str *out, const char *text)
{
    const char *t = text == NULL ? "" : text;
    lvni_control_put_bytes(out, t, strlen(t) + 1);
}

static const char *scan_borrowed(lvni_control_scan *scan)
{
    size_t n = 0;
    const char *text = lvni_control_scan_bytes(scan, &n);
    if (n == 0 || memchr(text, '\0', n) != text + n - 1) {
        scan->bad = true;
        return "";
    }
    return text;
}

void lvni_control_put_facts(lvni_core_str *out, const lvni_control_facts *facts)
{
    static const lvni_control_token no_key = {{0}};
    const char *config = facts->config == NULL ? "" : facts->config;
    const lvni_control_token hash = lvni_control_siphash(&no_key, config, strlen(config));
    lvni_control_put_u32(out, (uint32_t)facts->local_rank);
    lvni_control_put_u32(out, (uint32_t)facts->node_rank);
    lvni_control_put_u32(out, (uint32_t)facts->cpus);
    lvni_control_put_u64(out, (uint64_t)facts->pid);
    lvni_control_put_u64(out, (uint64_t)facts->resume_step);
    put_token(out, &hash);
    put_borrowable(out, facts->host);
    put_borrowable(out, facts->boot_id);
    put_borrowable(out, facts->version);
    put_borrowable(out, facts->device);
    put_borrowable(out, facts->driver);
    put_borrowable(out, facts->fingerprint);
    put_borrowable(out, config);
}

bool lvni_control_scan_facts(lvni_control_scan *scan, lvni_control_facts_message *out)
{
    lvni_control_facts *f = &out->facts;
    f->local_rank = (int)lvni_control_scan_u32(scan);
    f->node_rank = (int)lvni_control_scan_u32(scan);
    f->cpus = (int)lvni_control_scan_u32(scan);
    f->pid = (int64_t)lvni_control_scan_u64(scan);
    f->resume_step = (int64_t)lvni_control_scan_u64(scan);
    scan_token(scan, &out->config_hash);
    f->host = scan_borrowed(scan);
    f->boot_id = scan_borrowed(scan);
    f->version = scan_borrowed(scan);
    f->device = scan_borrowed(scan);
    f->driver = scan_borrowed(scan);
    f->fingerprint = scan_borrowed(scan);
    f->config = scan_borrowed(scan);
    return lvni_control_scan_done(scan);
}

const char *lvni_control_cause_name(lvni_control_cause_kind kind)
{
    static const char *const names[] = {
#define LVNI_CAUSE_NAME(id, text) text,
        LVNI_CAUSE_LIST(LVNI_CAUSE_NAME)
#undef LVNI_CAUSE_NAME
    };
    return (unsigned)kind < LVNI_CAUSE_COUNT ? names[kind] : "?";
}

lvni_control_cause_kind lvni_control_cause_of_status(lvn_status status)
{
    const char *name = lvni_core_error_record_kind(status); /* one table for records and causes */
    for (int kind = LVNI_CAUSE_ERROR; kind < LVNI_CAUSE_COUNT; kind++) {
        if (strcmp(lvni_control_cause_name((lvni_control_cause_kind)kind), name) == 0) {
            return (lvni_control_cause_kind)kind;
        }
    }
    return LVNI_CAUSE_ERROR;
}

void lvni_control_cause_sentence(const lvni_control_cause *cause, char *out, size_t size)
{
    char pid[32] = "", when[48] = "", where[sizeof cause->place + 8] = "";
    if (cause->kind == LVNI_CAUSE_PEER && cause->named) { /* its own failure is a consequence */
        snprintf(out, size, "%s", cause->message);
        return;
    }
    if (cause->pid > 0) {
        snprintf(pid, sizeof pid, ", pid %lld", (long long)cause->pid);
    }
    if (cause->step >= 0) {
        snprintf(when, sizeof when, " at step %lld", (long long)cause->step);
    }
    if (cause->place[0] != '\0') {
        snprintf(where, sizeof where, " (in %s)", cause->place);
    }
    snprintf(out, size, "rank %d (%s%s) failed first%s: %s%s", cause->rank, cause->host, pid, when,
             cause->message, where);
}

enum { TEXTS = 5, ROW = 6 * 4 + 8 + TEXTS * 4 };

static const char *text_of(const lvni_control_member *m, int which)
{
    const char *const texts[TEXTS] = {m->host, m->boot_id, m->device, m->driver, m->fingerprint};
    return texts[which] == NULL ? "" : texts[which];
}

/* The different texts, with a hash table over them (-1: free). */
typedef struct pool {
    const char **texts;
    int32_t *slot;
    uint32_t n, mask;
} pool;

static uint32_t index_of(pool *p, const char *text)
{
    static const lvni_control_token no_key = {{0}};
    const lvni_control_token hash = lvni_control_siphash(&no_key, text, strlen(text));
    uint32_t at =
        ((uint32_t)hash.b[0] | (uint32_t)hash.b[1] << 8 | (uint32_t)hash.b[2] << 16) & p->mask;
    while (p->slot[at] >= 0) {
        if (strcmp(p->texts[p->slot[at]], text) == 0) {
            return (uint32_t)p->slot[at];
        }
        at = (at + 1) & p->mask;
    }
    p->texts[p->n] = text;
    p->slot[at] = (int32_t)p->n;
    return p->n++;
}

static void put_rows(lvni_core_str *out, pool *p, const lvni_control_member *members, int world)
{
    for (int r = 0; r < world; r++) {
        const lvni_control_member *m = &members[r];
        const int numbers[6] = {m->rank,      m->local_rank, m->local_world,
                                m->node_rank, m->host_index, m->cpus};
        for (int i = 0; i < 6; i++) {
            lvni_control_put_u32(out, (uint32_t)numbers[i]);
        }
        lvni_control_put_u64(out, (uint64_t)m->pid);
        for (int i = 0; i < TEXTS; i++) {
            lvni_control_put_u32(out, index_of(p, text_of(m, i)));
        }
    }
}

lvn_status lvni_control_put_table(lvni_core_str *out, const lvni_control_member *members, int world)
{
    pool p = {.mask = 1};
    while (p.mask < 2 * TEXTS * (uint32_t)world) {
        p.mask *= 2;
    }
    lvni_core_str rows = {0};
    p.texts = lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)TEXTS * (size_t)world, sizeof *p.texts);
    p.slot = lvni_core_alloc(LVNI_TAG_CONTROL, p.mask * sizeof *p.slot);
    lvn_status status = LVN_ERR_MEMORY;
    if (p.texts != NULL && p.slot != NULL) {
        memset(p.slot, 0xff, p.mask * sizeof *p.slot);
        p.mask--;
        put_rows(&rows, &p, members, world);
        lvni_control_put_u32(out, p.n);
        for (uint32_t i = 0; i < p.n; i++) {
            lvni_control_put_bytes(out, p.texts[i], strlen(p.texts[i]) + 1);
        }
        status = lvni_core_str_status(&rows);
        if (status == LVN_OK) {
            lvni_core_str_append_n(out, lvni_core_str_text(&rows), rows.len);
            status = lvni_core_str_status(out);
        }
    }
    lvni_core_str_free(&rows);
    lvni_core_free(p.slot);
    lvni_core_free(p.texts);
    return status;
}

static bool scan_texts(lvni_control_scan *scan, const char **texts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t len = 0;
        texts[i] = lvni_control_scan_bytes(scan, &len);
        if (len == 0 || texts[i][len - 1] != '\0') {
            return false;
        }
    }
    return !scan->bad;
}

static bool scan_row(lvni_control_scan *scan, const char *const *texts, uint32_t n_texts,
                     lvni_control_member *m)
{
    int *const numbers[6] = {&m->rank,      &m->local_rank, &m->local_world,
                             &m->node_rank, &m->host_index, &m->cpus};
    for (int i = 0; i < 6; i++) {
        *numbers[i] = (int)lvni_control_scan_u32(scan);
    }
    m->pid = (int64_t)lvni_control_scan_u64(scan);
    const char **const places[TEXTS] = {&m->host, &m->boot_id, &m->device, &m->driver,
                                        &m->fingerprint};
    for (int i = 0; i < TEXTS; i++) {
        const uint32_t at = lvni_control_scan_u32(scan);
        if (at >= n_texts) {
            return false;
        }
        *places[i] = texts[at];
    }
    return !scan->bad;
}

lvn_status lvni_control_scan_table(const char *bytes, size_t n, int world,
                                   lvni_control_member **out)
{
    lvni_control_scan scan = {.at = (const unsigned char *)bytes, .left = n};
    *out = NULL;
    const uint32_t n_texts = lvni_control_scan_u32(&scan);
    bool good = !scan.bad && n_texts <= TEXTS * (uint32_t)world;
    const char **texts =
        good ? lvni_core_calloc(LVNI_TAG_CONTROL, n_texts + 1, sizeof *texts) : NULL;
    lvni_control_member *members =
        good ? lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)world, sizeof *members) : NULL;
    const bool room = !good || (texts != NULL && members != NULL);
    if (texts != NULL && members != NULL) {
        good = scan_texts(&scan, texts, n_texts) && scan.left == (size_t)world * ROW;
        for (int r = 0; good && r < world; r++) {
            good = scan_row(&scan, texts, n_texts, &members[r]) && members[r].rank == r;
        }
    }
    lvni_core_free(texts);
    if (room && good) {
        *out = members;
        return LVN_OK;
    }
    lvni_core_free(members);
    if (!room) {
        return LVN_ERR_MEMORY;
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "the store's table of ranks cannot be read (%zu bytes)", n);
}
