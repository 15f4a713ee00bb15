/* Greeting, facts and cause of message.h. The table is in message_table.c. */
#include "message.h"

#include "core/escape.h"

#include <string.h>

static const char magic[8] = {'l', 'e', 'v', 'i', 'n', 'c', 't', 'l'};

static void put_token(lvni_str *out, const lvni_token *token)
{
    lvni_str_append_n(out, (const char *)token->b, sizeof token->b);
}

static void scan_token(lvni_scan *scan, lvni_token *token)
{
    const unsigned char *p = lvni_scan_raw(scan, sizeof token->b);
    if (p != NULL) {
        memcpy(token->b, p, sizeof token->b);
    } else {
        memset(token, 0, sizeof *token);
    }
}

static bool scan_magic(lvni_scan *scan)
{
    const unsigned char *p = lvni_scan_raw(scan, sizeof magic);
    return p != NULL && memcmp(p, magic, sizeof magic) == 0;
}

void lvni_put_hello(lvni_str *out, const lvni_token *nonce, lvni_auth how)
{
    const size_t at = lvni_frame_begin(out, LVNI_FRAME_HELLO);
    lvni_str_append_n(out, magic, sizeof magic);
    put_token(out, nonce);
    lvni_put_u32(out, (uint32_t)how);
    lvni_frame_end(out, at);
}

bool lvni_scan_hello(const lvni_frame *frame, lvni_token *nonce, lvni_auth *how)
{
    lvni_scan scan = lvni_scan_of(frame);
    const bool ours = frame->type == LVNI_FRAME_HELLO && scan_magic(&scan);
    scan_token(&scan, nonce);
    const uint32_t method = lvni_scan_u32(&scan);
    *how = method < LVNI_AUTH_COUNT ? (lvni_auth)method : LVNI_AUTH_OPEN;
    return ours && method < LVNI_AUTH_COUNT && lvni_scan_done(&scan);
}

const char *lvni_deny_text(uint32_t deny)
{
    static const char *const texts[LVNI_DENY_COUNT] = {
#define LVNI_DENY_ROW(name, text) [LVNI_DENY_##name] = text,
        LVNI_DENY_LIST(LVNI_DENY_ROW)
#undef LVNI_DENY_ROW
    };
    return deny < LVNI_DENY_COUNT ? texts[deny] : "it gives no reason that is known here";
}

lvni_token lvni_greet_proof(const lvni_token *key, const lvni_token *store_nonce,
                            const lvni_greet *greet, int port)
{
    unsigned char text[4 + 32 + 32];
    memcpy(text, "rank", 4);
    memcpy(text + 4, store_nonce->b, 16);
    memcpy(text + 20, greet->nonce.b, 16);
    const uint64_t said[4] = {greet->protocol | (uint64_t)greet->world << 32,
                              greet->rank | (uint64_t)(uint32_t)port << 32, greet->instance,
                              greet->pid};
    for (size_t i = 0; i < 32; i++) {
        text[36 + i] = (unsigned char)(said[i / 8] >> (8 * (i % 8)));
    }
    return lvni_siphash(key, text, sizeof text);
}

lvni_token lvni_store_proof(const lvni_token *key, const lvni_token *store_nonce,
                            const lvni_token *rank_nonce)
{
    unsigned char text[5 + 32];
    memcpy(text, "store", 5);
    memcpy(text + 5, store_nonce->b, 16);
    memcpy(text + 21, rank_nonce->b, 16);
    return lvni_siphash(key, text, sizeof text);
}

void lvni_put_greet(lvni_str *out, const lvni_greet *greet)
{
    const size_t at = lvni_frame_begin(out, LVNI_FRAME_GREET);
    lvni_str_append_n(out, magic, sizeof magic);
    lvni_put_u32(out, greet->protocol);
    lvni_put_u32(out, greet->world);
    lvni_put_u32(out, greet->rank);
    lvni_put_u64(out, greet->instance);
    lvni_put_u64(out, greet->pid);
    lvni_put_text(out, greet->host);
    lvni_put_text(out, greet->version);
    put_token(out, &greet->nonce);
    put_token(out, &greet->proof);
    lvni_put_bytes(out, greet->credential_n > 0 ? greet->credential : "", greet->credential_n);
    lvni_frame_end(out, at);
}

/* What another host says about itself, on its way to people. */
static void scan_name(lvni_scan *scan, char *out, size_t size)
{
    char raw[64];
    lvni_scan_text(scan, raw, size < sizeof raw ? size : sizeof raw);
    lvni_escape(out, size, raw, strlen(raw), LVNI_ESCAPE_TEXT);
}

bool lvni_scan_greet(const lvni_frame *frame, lvni_greet *greet)
{
    lvni_scan scan = lvni_scan_of(frame);
    const bool ours = frame->type == LVNI_FRAME_GREET && scan_magic(&scan);
    greet->protocol = lvni_scan_u32(&scan);
    greet->world = lvni_scan_u32(&scan);
    greet->rank = lvni_scan_u32(&scan);
    greet->instance = lvni_scan_u64(&scan);
    greet->pid = lvni_scan_u64(&scan);
    scan_name(&scan, greet->host, sizeof greet->host);
    scan_name(&scan, greet->version, sizeof greet->version);
    scan_token(&scan, &greet->nonce);
    scan_token(&scan, &greet->proof);
    greet->credential = lvni_scan_bytes(&scan, &greet->credential_n);
    return ours && lvni_scan_done(&scan);
}

void lvni_put_cause(lvni_str *out, lvni_frame_type type, const lvni_cause *cause)
{
    const size_t at = lvni_frame_begin(out, type);
    lvni_put_u32(out, (uint32_t)cause->kind);
    lvni_put_u32(out, (uint32_t)cause->rank);
    lvni_put_u64(out, (uint64_t)cause->step);
    lvni_put_u64(out, (uint64_t)cause->pid);
    lvni_put_u64(out, cause->time_ns);
    lvni_put_u32(out, cause->named ? 1 : 0);
    lvni_put_text(out, cause->host);
    lvni_put_text(out, cause->place);
    lvni_put_text(out, cause->message);
    lvni_frame_end(out, at);
}

bool lvni_scan_cause(const lvni_frame *frame, lvni_cause *cause)
{
    lvni_scan scan = lvni_scan_of(frame);
    const uint32_t kind = lvni_scan_u32(&scan);
    cause->kind =
        kind > LVNI_CAUSE_NONE && kind < LVNI_CAUSE_COUNT ? (lvni_cause_kind)kind : LVNI_CAUSE_NONE;
    cause->rank = (int)lvni_scan_u32(&scan);
    cause->step = (int64_t)lvni_scan_u64(&scan);
    cause->pid = (int64_t)lvni_scan_u64(&scan);
    cause->time_ns = lvni_scan_u64(&scan);
    cause->named = lvni_scan_u32(&scan) != 0;
    scan_name(&scan, cause->host, sizeof cause->host);
    lvni_scan_text(&scan, cause->place, sizeof cause->place);
    lvni_scan_text(&scan, cause->message, sizeof cause->message);
    return lvni_scan_done(&scan) && cause->kind != LVNI_CAUSE_NONE && cause->rank >= 0;
}

/* A text with its zero, so that it can be borrowed. */
static void put_borrowable(lvni_str *out, const char *text)
{
    const char *t = text == NULL ? "" : text;
    lvni_put_bytes(out, t, strlen(t) + 1);
}

static const char *scan_borrowed(lvni_scan *scan)
{
    size_t n = 0;
    const char *text = lvni_scan_bytes(scan, &n);
    if (n == 0 || memchr(text, '\0', n) != text + n - 1) {
        scan->bad = true;
        return "";
    }
    return text;
}

void lvni_put_facts(lvni_str *out, const lvni_facts *facts)
{
    static const lvni_token no_key = {{0}};
    const char *config = facts->config == NULL ? "" : facts->config;
    const lvni_token hash = lvni_siphash(&no_key, config, strlen(config));
    lvni_put_u32(out, (uint32_t)facts->local_rank);
    lvni_put_u32(out, (uint32_t)facts->node_rank);
    lvni_put_u32(out, (uint32_t)facts->cpus);
    lvni_put_u64(out, (uint64_t)facts->pid);
    lvni_put_u64(out, (uint64_t)facts->resume_step);
    put_token(out, &hash);
    put_borrowable(out, facts->host);
    put_borrowable(out, facts->boot_id);
    put_borrowable(out, facts->version);
    put_borrowable(out, facts->device);
    put_borrowable(out, facts->driver);
    put_borrowable(out, facts->fingerprint);
    put_borrowable(out, config);
}

bool lvni_scan_facts(lvni_scan *scan, lvni_facts_seen *out)
{
    lvni_facts *f = &out->facts;
    f->local_rank = (int)lvni_scan_u32(scan);
    f->node_rank = (int)lvni_scan_u32(scan);
    f->cpus = (int)lvni_scan_u32(scan);
    f->pid = (int64_t)lvni_scan_u64(scan);
    f->resume_step = (int64_t)lvni_scan_u64(scan);
    scan_token(scan, &out->config_hash);
    f->host = scan_borrowed(scan);
    f->boot_id = scan_borrowed(scan);
    f->version = scan_borrowed(scan);
    f->device = scan_borrowed(scan);
    f->driver = scan_borrowed(scan);
    f->fingerprint = scan_borrowed(scan);
    f->config = scan_borrowed(scan);
    return lvni_scan_done(scan);
}
