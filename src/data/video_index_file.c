/* The index of a video as a file (video_index.h), which a run directory keeps: numbers as they lie
 * in memory, with a hash before them. It is made again from the video where anything is wrong with
 * it, so nothing is repaired here. */
#include "core/alloc.h"
#include "core/hash.h"
#include "core/vfs.h"
#include "data/video_index.h"

#include <string.h>

static const char magic[24] = "levin video index 2\n";

typedef struct head {
    char magic[24];
    uint64_t hash; /* of all that follows */
    lvni_data_contents identity;
    int64_t libraries, frames, packets, starts, promised;
    lvni_data_video_stream stream;
    uint32_t unused;
} head;

enum {
    HASHED_FROM = offsetof(head, hash) + sizeof(uint64_t),
    FRAME_BYTES = sizeof(int64_t) + sizeof(int32_t),
    MAX_MEGABYTES = 4096
};

static size_t body_bytes(const head *h)
{
    return (size_t)h->frames * FRAME_BYTES + (size_t)h->starts * sizeof(lvni_data_video_start);
}

/* ---- reading ---- */

static bool is_name(const char name[LVNI_VIDEO_NAME])
{
    return memchr(name, '\0', LVNI_VIDEO_NAME) != NULL;
}

/* Of which memory is taken: few are not shown. */
static int64_t most_packets(int64_t frames)
{
    const int64_t most = 64 * frames + 65536;
    return most < INT32_MAX ? most : INT32_MAX;
}

/* Counts that the bytes can hold, so that their sum cannot overflow either. */
static bool head_holds(const head *h, size_t n)
{
    const int64_t most = (int64_t)(n / FRAME_BYTES);
    const lvni_data_video_stream *s = &h->stream;
    return h->frames >= 1 && h->frames <= most && h->starts >= 1 && h->starts <= most &&
           h->packets >= h->frames && h->packets <= most_packets(h->frames) &&
           h->promised >= h->frames && sizeof *h + body_bytes(h) == n && s->width >= 1 &&
           s->width <= INT16_MAX * 2 && s->height >= 1 && s->height <= INT16_MAX * 2 &&
           s->orientation >= 1 && s->orientation <= 8 && s->unit_num > 0 && s->unit_den > 0 &&
           is_name(s->codec) && is_name(s->container) && is_name(s->pixels);
}

/* Each frame is of another packet. */
static bool frames_hold(lvni_data_video_index *index)
{
    for (int64_t f = 0; f < index->frames; f++) {
        const int32_t packet = index->packet[f];
        if (packet < 0 || packet >= index->packets || index->frame[packet] >= 0) {
            return false;
        }
        index->frame[packet] = (int32_t)f;
    }
    return true;
}

static bool starts_hold(const lvni_data_video_index *index)
{
    const lvni_data_video_start *s = index->start;
    for (int64_t i = 0; i < index->starts; i++) {
        if (s[i].packet < 0 || s[i].packet >= index->packets || s[i].frame < 0 ||
            (i > 0 && s[i].packet <= s[i - 1].packet)) {
            return false;
        }
    }
    return s[0].packet == 0 && s[0].frame == 0;
}

static lvn_status take(lvni_data_video_index *out, const head *h, const uint8_t *body)
{
    *out = (lvni_data_video_index){.identity = h->identity,
                                   .libraries = (uint32_t)h->libraries,
                                   .stream = h->stream,
                                   .frames = h->frames,
                                   .packets = h->packets,
                                   .starts = h->starts,
                                   .promised = h->promised};
    const size_t times = (size_t)h->frames * sizeof *out->time,
                 numbers = (size_t)h->frames * sizeof *out->packet,
                 starts = (size_t)h->starts * sizeof *out->start,
                 inverse = (size_t)h->packets * sizeof *out->frame;
    out->time = lvni_core_alloc(LVNI_TAG_DATA, times);
    out->packet = lvni_core_alloc(LVNI_TAG_DATA, numbers);
    out->start = lvni_core_alloc(LVNI_TAG_DATA, starts);
    out->frame = lvni_core_alloc(LVNI_TAG_DATA, inverse);
    if (out->time == NULL || out->packet == NULL || out->start == NULL || out->frame == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(out->time, body, times);
    memcpy(out->packet, body + times, numbers);
    memcpy(out->start, body + times + numbers, starts);
    memset(out->frame, 0xff, inverse); /* -1 */
    return LVN_OK;
}

lvn_status lvni_data_video_index_parse(const uint8_t *bytes, size_t n, const char *path,
                                       lvni_data_video_index *out)
{
    head h = {.frames = 0};
    memcpy(&h, bytes, n < sizeof h ? n : sizeof h);
    if (n < sizeof h || memcmp(h.magic, magic, sizeof magic) != 0 ||
        h.hash != lvni_core_hash(LVNI_CORE_HASH, bytes + HASHED_FROM, n - HASHED_FROM) ||
        !head_holds(&h, n)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: no index of a video that this levin has written", path);
    }
    const lvn_status s = take(out, &h, bytes + sizeof h);
    if (s == LVN_OK && frames_hold(out) && starts_hold(out)) {
        return LVN_OK;
    }
    lvni_data_video_index_free(out);
    if (s != LVN_OK) {
        return s;
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: an index of a video whose frames contradict each other", path);
}

lvn_status lvni_data_video_index_read(const char *path, lvni_data_video_index *out)
{
    char *bytes = NULL;
    size_t n = 0;
    *out = (lvni_data_video_index){.frames = 0};
    LVN_TRY(lvni_core_regular_read(path, (size_t)MAX_MEGABYTES << 20, &bytes, &n));
    const lvn_status s = lvni_data_video_index_parse((const uint8_t *)bytes, n, path, out);
    lvni_core_free(bytes);
    return s;
}

/* ---- writing ---- */

lvn_status lvni_data_video_index_write(const char *path, const lvni_data_video_index *index)
{
    head h;
    memset(&h, 0, sizeof h); /* gaps between members, too */
    memcpy(h.magic, magic, sizeof magic);
    h.identity = index->identity;
    h.identity.mtime_ns = 0;
    h.libraries = index->libraries;
    h.frames = index->frames;
    h.packets = index->packets;
    h.starts = index->starts;
    h.promised = index->promised;
    memcpy(&h.stream, &index->stream, sizeof h.stream);
    const size_t body = body_bytes(&h), times = (size_t)h.frames * sizeof *index->time,
                 numbers = (size_t)h.frames * sizeof *index->packet;
    uint8_t *bytes = lvni_core_alloc(LVNI_TAG_DATA, sizeof h + body);
    if (bytes == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(bytes, &h, sizeof h);
    memcpy(bytes + sizeof h, index->time, times);
    memcpy(bytes + sizeof h + times, index->packet, numbers);
    memcpy(bytes + sizeof h + times + numbers, index->start, body - times - numbers);
    h.hash = lvni_core_hash(LVNI_CORE_HASH, bytes + HASHED_FROM, sizeof h + body - HASHED_FROM);
    memcpy(bytes + offsetof(head, hash), &h.hash, sizeof h.hash);
    const lvn_status s = lvni_core_file_write(path, bytes, sizeof h + body);
    lvni_core_free(bytes);
    return s;
}
