/* Frames of frame.h. */
#include "frame.h"

#include "core/alloc.h"

#include <string.h>

static uint32_t u32_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

lvn_status lvni_control_frame_push(lvni_control_frame_reader *reader, const void *bytes, size_t n)
{
    if (reader->used > 0) { /* frames that were read make room */
        memmove(reader->data, reader->data + reader->used, reader->len - reader->used);
        reader->len -= reader->used;
        reader->used = 0;
    }
    if (n > reader->room - reader->len) {
        size_t room = reader->room == 0 ? 256 : reader->room;
        while (room - reader->len < n) {
            room *= 2;
        }
        unsigned char *data = lvni_core_realloc(LVNI_TAG_CONTROL, reader->data, room);
        if (data == NULL) {
            return LVN_ERR_MEMORY;
        }
        reader->data = data;
        reader->room = room;
    }
    if (n > 0) {
        memcpy(reader->data + reader->len, bytes, n);
        reader->len += n;
    }
    return LVN_OK;
}

lvn_status lvni_control_frame_next(lvni_control_frame_reader *reader, lvni_control_frame *out,
                                   bool *have)
{
    *have = false;
    if (reader->len - reader->used < LVNI_FRAME_HEAD) {
        return LVN_OK;
    }
    const unsigned char *head = reader->data + reader->used;
    const size_t n = u32_at(head);
    const unsigned type = head[4] | (unsigned)head[5] << 8;
    if (n > reader->limit || type == LVNI_FRAME_NONE || type >= LVNI_FRAME_COUNT || head[6] != 0 ||
        head[7] != 0) {
        LVN_FAIL(
            LVN_ERR_CORRUPT,
            "not a frame of the control channel: %zu bytes of type %u, at most %zu are allowed", n,
            type, reader->limit);
    }
    if (reader->len - reader->used - LVNI_FRAME_HEAD < n) {
        return LVN_OK;
    }
    *out = (lvni_control_frame){
        .type = (lvni_control_frame_type)type, .body = head + LVNI_FRAME_HEAD, .n = n};
    reader->used += LVNI_FRAME_HEAD + n;
    *have = true;
    return LVN_OK;
}

void lvni_control_frame_reader_free(lvni_control_frame_reader *reader)
{
    lvni_core_free(reader->data);
    *reader = (lvni_control_frame_reader){.limit = reader->limit};
}

lvni_control_scan lvni_control_scan_of(const lvni_control_frame *frame)
{
    return (lvni_control_scan){.at = frame->body, .left = frame->n};
}

const unsigned char *lvni_control_scan_raw(lvni_control_scan *scan, size_t n)
{
    if (scan->bad || n > scan->left) {
        scan->bad = true;
        return NULL;
    }
    const unsigned char *at = scan->at;
    scan->at += n;
    scan->left -= n;
    return at;
}

uint32_t lvni_control_scan_u32(lvni_control_scan *scan)
{
    const unsigned char *p = lvni_control_scan_raw(scan, 4);
    return p == NULL ? 0 : u32_at(p);
}

uint64_t lvni_control_scan_u64(lvni_control_scan *scan)
{
    const unsigned char *p = lvni_control_scan_raw(scan, 8);
    return p == NULL ? 0 : u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

const char *lvni_control_scan_bytes(lvni_control_scan *scan, size_t *n)
{
    *n = lvni_control_scan_u32(scan);
    const char *bytes = (const char *)lvni_control_scan_raw(scan, *n);
    if (bytes == NULL) {
        *n = 0;
        return "";
    }
    return bytes;
}

void lvni_control_scan_text(lvni_control_scan *scan, char *out, size_t size)
{
    size_t n = 0;
    const char *bytes = lvni_control_scan_bytes(scan, &n);
    if (n >= size || memchr(bytes, '\0', n) != NULL) {
        scan->bad = true;
        n = 0;
    }
    memcpy(out, bytes, n);
    out[n] = '\0';
}

lvn_status lvni_control_scan_status(lvni_control_scan *scan)
{
    switch ((int)lvni_control_scan_u32(scan)) {
#define STATUS(code, number, text)                                                                 \
    case number: return code;
        LVN_STATUS_LIST(STATUS)
#undef STATUS
    default: return LVN_ERR_INTERNAL;
    }
}

bool lvni_control_scan_done(const lvni_control_scan *scan)
{
    return !scan->bad && scan->left == 0;
}

static void store_u32(char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (char)(unsigned char)(value >> (8 * i));
    }
}

void lvni_control_put_u32(lvni_core_str *out, uint32_t value)
{
    char p[4];
    store_u32(p, value);
    lvni_core_str_append_n(out, p, sizeof p);
}

void lvni_control_put_u64(lvni_core_str *out, uint64_t value)
{
    lvni_control_put_u32(out, (uint32_t)value);
    lvni_control_put_u32(out, (uint32_t)(value >> 32));
}

void lvni_control_put_bytes(lvni_core_str *out, const void *bytes, size_t n)
{
    lvni_control_put_u32(out, (uint32_t)n);
    if (n > 0) {
        lvni_core_str_append_n(out, bytes, n);
    }
}

void lvni_control_put_text(lvni_core_str *out, const char *text)
{
    lvni_control_put_bytes(out, text, text == NULL ? 0 : strlen(text));
}

size_t lvni_control_frame_begin(lvni_core_str *out, lvni_control_frame_type type)
{
    const size_t begin = out->len;
    lvni_control_put_u32(out, 0);
    lvni_control_put_u32(out, (uint32_t)type);
    return begin;
}

void lvni_control_frame_end(lvni_core_str *out, size_t begin)
{
    if (!out->failed) {
        store_u32(out->data + begin, (uint32_t)(out->len - begin - LVNI_FRAME_HEAD));
    }
}
