/* Where decoding may begin. A container's key frames are not enough: in H.264 they include frames
 * from which the image only recovers over some time, and what a file calls a key frame need not
 * be one. So packets of H.264 and H.265 are looked into (ITU-T H.264, 7.3 and D.1.8; H.265, 7.3).
 */
#include "data/video/video_impl.h"

enum {
    H264_IDR = 5,
    H264_SEI = 6,
    SEI_RECOVERY_POINT = 6,
    H265_IRAP_FIRST = 16, /* BLA, IDR, CRA */
    H265_IRAP_LAST = 21
};

/* ---- units of a packet: a length before each, or start codes between them ---- */

typedef struct units {
    const uint8_t *at, *end;
    int length_bytes; /* 0: start codes */
} units;

static const uint8_t *find_code(const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= 3; at++) {
        if (at[0] == 0 && at[1] == 0 && at[2] == 1) {
            return at;
        }
    }
    return end;
}

/* The next unit of at least one byte. */
static bool next_unit(units *u, const uint8_t **unit, size_t *bytes)
{
    while (u->end > u->at) {
        size_t n = 0;
        if (u->length_bytes == 0) {
            u->at = find_code(u->at, u->end);
            if (u->at == u->end) {
                return false;
            }
            u->at += 3;
            n = (size_t)(find_code(u->at, u->end) - u->at);
        } else {
            if (u->end - u->at < u->length_bytes) {
                return false;
            }
            for (int i = 0; i < u->length_bytes; i++) {
                n = n << 8 | *u->at++;
            }
            if (n > (size_t)(u->end - u->at)) {
                return false;
            }
        }
        *unit = u->at;
        *bytes = n;
        u->at += n;
        if (n > 0) {
            return true;
        }
    }
    return false;
}

/* avcC and hvcC begin with their version, 1; start codes with 0. */
static int length_bytes(const AVCodecParameters *codec, int at)
{
    return codec->extradata != NULL && codec->extradata_size > at && codec->extradata[0] == 1
               ? (codec->extradata[at] & 3) + 1
               : 0;
}

/* ---- H.264: an IDR frame, or one after which nothing refers to what was before ---- */

/* Bytes of a unit without those that were put in against start codes. */
static size_t unescape(const uint8_t *unit, size_t n, uint8_t *to, size_t room)
{
    size_t out = 0, zeros = 0;
    for (size_t i = 0; i < n && out < room; i++) {
        if (zeros >= 2 && unit[i] == 3) {
            zeros = 0;
            continue;
        }
        zeros = unit[i] == 0 ? zeros + 1 : 0;
        to[out++] = unit[i];
    }
    return out;
}

/* A number of 255s and a last byte. */
static size_t sei_number(const uint8_t *bytes, size_t n, size_t *at)
{
    size_t sum = 0;
    while (*at < n && bytes[*at] == 255) {
        sum += 255;
        ++*at;
    }
    return *at < n ? sum + bytes[(*at)++] : sum;
}

/* recovery_frame_cnt is ue(v): 0 is a first bit of 1. */
static bool recovers_at_once(const uint8_t *unit, size_t n)
{
    uint8_t bytes[2048];
    const size_t have = unescape(unit, n, bytes, sizeof bytes);
    for (size_t at = 1; at + 2 < have;) {
        const size_t type = sei_number(bytes, have, &at), size = sei_number(bytes, have, &at);
        if (type == SEI_RECOVERY_POINT && at < have) {
            return (bytes[at] & 0x80) != 0;
        }
        at += size;
    }
    return false;
}

static bool h264_starts(units *u)
{
    const uint8_t *unit;
    size_t n;
    while (next_unit(u, &unit, &n)) {
        const int type = unit[0] & 0x1f;
        if (type == H264_IDR || (type == H264_SEI && recovers_at_once(unit, n))) {
            return true;
        }
    }
    return false;
}

static bool h265_starts(units *u)
{
    const uint8_t *unit;
    size_t n;
    while (next_unit(u, &unit, &n)) {
        const int type = unit[0] >> 1 & 0x3f;
        if (type >= H265_IRAP_FIRST && type <= H265_IRAP_LAST) {
            return true;
        }
    }
    return false;
}

bool lvni_video_start_is(const AVCodecParameters *codec, const AVPacket *packet)
{
    const AVCodecDescriptor *about = avcodec_descriptor_get(codec->codec_id);
    if (about != NULL && (about->props & AV_CODEC_PROP_INTRA_ONLY) != 0) {
        return true;
    }
    if ((packet->flags & AV_PKT_FLAG_KEY) == 0) {
        return false;
    }
    units u = {packet->data, packet->data + packet->size, 0};
    if (codec->codec_id == AV_CODEC_ID_H264) {
        u.length_bytes = length_bytes(codec, 4);
        return h264_starts(&u);
    }
    if (codec->codec_id == AV_CODEC_ID_HEVC) {
        u.length_bytes = length_bytes(codec, 21);
        return h265_starts(&u);
    }
    return true;
}

/* VP8 (RFC 6386, 9.1): show_frame is bit 4. */
bool lvni_video_start_hidden(const AVCodecParameters *codec, const AVPacket *packet)
{
    return (packet->flags & AV_PKT_FLAG_DISCARD) != 0 ||
           (codec->codec_id == AV_CODEC_ID_VP8 && packet->size > 0 &&
            (packet->data[0] & 0x10) == 0);
}
