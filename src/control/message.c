/* Greeting, facts and cause of message.h. The table is in message_table.c. */
#include "message.h"

#include "core/escape.h"

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

/* What another host says about itself, on its way to people. */
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

void lvni_control_put_cause(lvni_core_str *out, lvni_control_frame_type type,
                            const lvni_control_cause *cause)
{
    const size_t at = lvni_control_frame_begin(out, type);
    lvni_control_put_u32(out, (uint32_t)cause->kind);
    lvni_control_put_u32(out, (uint32_t)cause->rank);
    lvni_control_put_u64(out, (uint64_t)cause->step);
    lvni_control_put_u64(out, (uint64_t)cause->pid);
    lvni_control_put_u64(out, cause->time_ns);
    lvni_control_put_u32(out, cause->named ? 1 : 0);
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
    cause->named = lvni_control_scan_u32(&scan) != 0;
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

bool lvni_control_scan_facts(lvni_control_scan *scan, lvni_control_facts_seen *out)
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
