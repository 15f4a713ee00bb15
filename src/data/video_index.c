/* Makes the index of a video (video_index.h). The packets of most files are enough: one frame each,
 * with a time stamp. Where a codec or container does not keep to that,
 * the frames are counted by decoding, once. */
#include "data/video_index.h"

#include "core/alloc.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_PACKETS = INT32_MAX,
    NOT_CODED = 8 /* bytes: an MPEG-4 packet this small may stand for the frame before it */
};

/* What the packets show, and where decoding may begin, as both ways of counting collect it. */
typedef struct shown {
    int64_t time;
    int32_t packet, unused;
} shown;

typedef struct collected {
    shown *frame;
    lvni_data_video_start *start;
    int64_t frames, frame_room, starts, start_room, packets;
    int64_t last_decoded; /* the latest time stamp of decoding */
    bool known;           /* nothing has been found for which packets are not enough */
    bool cut;             /* the file ended with a failure */
} collected;

static lvn_status grow(void **array, int64_t n, int64_t *room, size_t size)
{
    if (n < *room) {
        return LVN_OK;
    }
    const int64_t more = *room < 256 ? 256 : *room * 2;
    void *moved = lvni_core_realloc(LVNI_TAG_DATA, *array, (size_t)more * size);
    if (moved == NULL) {
        return LVN_ERR_MEMORY;
    }
    *array = moved;
    *room = more;
    return LVN_OK;
}

static lvn_status add_frame(collected *c, int64_t time, int64_t packet)
{
    void *array = c->frame;
    LVN_TRY(grow(&array, c->frames, &c->frame_room, sizeof *c->frame));
    c->frame = array;
    c->frame[c->frames++] = (shown){.time = time, .packet = (int32_t)packet};
    return LVN_OK;
}

static lvn_status add_start(collected *c, const lvni_data_video_packet *p, int64_t number)
{
    void *array = c->start;
    LVN_TRY(grow(&array, c->starts, &c->start_room, sizeof *c->start));
    c->start = array;
    c->start[c->starts++] = (lvni_data_video_start){.shown = p->shown,
                                                    .decoded = p->decoded,
                                                    .at = p->at,
                                                    .bytes = p->bytes,
                                                    .packet = (int32_t)number};
    return LVN_OK;
}

static void free_collected(collected *c)
{
    lvni_core_free(c->frame);
    lvni_core_free(c->start);
}

/* The next packet, counted; *there false: there is no other, or what follows is damaged. */
static lvn_status take_packet(const lvni_data_video_table *table, lvni_data_video_file *file,
                              const char *path, collected *c, lvni_data_video_packet *p,
                              bool *there)
{
    const int got = table->next_packet(file, p);
    *there = got == 1 && !p->damaged;
    c->cut = c->cut || (got != 0 && !*there);
    if (!*there) {
        return LVN_OK;
    }
    if (c->packets == MAX_PACKETS) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: a video of more than %d packets; cut it in parts", path,
                 MAX_PACKETS);
    }
    if (p->start || c->packets == 0) {
        LVN_TRY(add_start(c, p, c->packets));
    }
    if (p->decoded != LVNI_VIDEO_NO_TIME && p->decoded > c->last_decoded) {
        c->last_decoded = p->decoded;
    }
    c->packets++;
    return LVN_OK;
}

/* ---- to the index ---- */

static int by_time(const void *a, const void *b)
{
    const shown *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : x->packet - y->packet;
}

/* The first frame at or behind this time. */
static int64_t find_time(const collected *c, int64_t time)
{
    int64_t low = 0, high = c->frames;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (c->frame[middle].time < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static lvn_status fill(lvni_data_video_index *out, const collected *c)
{
    if (c->frames == 0) {
        return LVN_OK;
    }
    out->frames = c->frames;
    out->packets = c->packets;
    out->starts = c->starts;
    const size_t frames = (size_t)c->frames;
    out->time = lvni_core_calloc(LVNI_TAG_DATA, frames, sizeof *out->time);
    out->packet = lvni_core_calloc(LVNI_TAG_DATA, frames, sizeof *out->packet);
    out->frame = lvni_core_calloc(LVNI_TAG_DATA, (size_t)c->packets, sizeof *out->frame);
    out->start = lvni_core_calloc(LVNI_TAG_DATA, (size_t)c->starts, sizeof *out->start);
    if (out->time == NULL || out->packet == NULL || out->frame == NULL || out->start == NULL) {
        lvni_data_video_index_free(out);
        return LVN_ERR_MEMORY;
    }
    for (int64_t p = 0; p < c->packets; p++) {
        out->frame[p] = -1;
    }
    for (int64_t f = 0; f < c->frames; f++) {
        out->time[f] = c->frame[f].time;
        out->packet[f] = c->frame[f].packet;
        out->frame[c->frame[f].packet] = (int32_t)f;
    }
    memcpy(out->start, c->start, (size_t)c->starts * sizeof *out->start);
    return LVN_OK;
}

/* Frames of a file whose end is missing: those behind the last time of decoding may have missing
 * ones before them. */
static void drop_uncertain(collected *c)
{
    while (c->frames > 0 && c->frame[c->frames - 1].time > c->last_decoded) {
        c->frames--;
    }
}

static void set_promised(const lvni_data_video_table *table, const lvni_data_video_file *file,
                         const collected *c, int64_t all, lvni_data_video_index *out)
{
    const int64_t table_has = table->promised(file);
    const int64_t missing = table_has > c->packets ? table_has - c->packets : c->cut ? 1 : 0;
    out->promised = all + missing;
}

/* ---- by packets ---- */

static lvn_status note_packet(collected *c, const lvni_data_video_index *index,
                              const lvni_data_video_packet *p)
{
    c->known = c->known && p->shown != LVNI_VIDEO_NO_TIME &&
               (p->bytes >= NOT_CODED || strcmp(index->stream.codec, "mpeg4") != 0);
    return p->hidden || !c->known ? LVN_OK : add_frame(c, p->shown, c->packets - 1);
}

/* All times differ, and nothing is shown from before the first start: a file cut in the middle of a
 * group begins with frames that cannot be decoded. */
static bool is_plain(const collected *c)
{
    for (int64_t f = 1; f < c->frames; f++) {
        if (c->frame[f].time == c->frame[f - 1].time) {
            return false;
        }
    }
    return c->known && (c->frames == 0 || c->start[0].shown <= c->frame[0].time);
}

lvn_status lvni_data_video_index_scan(const lvni_data_video_table *table,
                                      lvni_data_video_file *file, const char *path,
                                      lvni_data_video_index *out, bool *known)
{
    collected c = {.known = out->stream.one_per_packet != 0, .last_decoded = INT64_MIN};
    lvni_data_video_packet p = {.start = false};
    bool there = c.known, first_starts = false;
    lvn_status s = LVN_OK;
    while (s == LVN_OK && there) {
        s = take_packet(table, file, path, &c, &p, &there);
        first_starts = c.packets == 1 ? p.start : first_starts;
        s = s == LVN_OK && there ? note_packet(&c, out, &p) : s;
        there = there && c.known;
    }
    if (c.frames > 0) {
        qsort(c.frame, (size_t)c.frames, sizeof *c.frame, by_time);
    }
    *known = s == LVN_OK && is_plain(&c) && (first_starts || c.packets == 0);
    if (*known) {
        const int64_t all = c.frames;
        if (c.cut || table->promised(file) > c.packets) {
            drop_uncertain(&c);
        }
        for (int64_t i = 0; i < c.starts; i++) {
            c.start[i].frame = (int32_t)(i == 0 ? 0 : find_time(&c, c.start[i].shown));
        }
        set_promised(table, file, &c, all, out);
        s = fill(out, &c);
    }
    free_collected(&c);
    return s;
}

/* ---- by decoding ---- */

/* A start at whose packet no frame was shown is left out, except for the first. */
static void place_starts(collected *c, const lvni_data_video_index *index)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < c->starts; i++) {
        const int32_t frame = i == 0 ? 0 : index->frame[c->start[i].packet];
        if (frame >= 0) {
            c->start[kept] = c->start[i];
            c->start[kept++].frame = frame;
        }
    }
    c->starts = kept;
}

static int64_t time_of_frame(const lvni_data_video_index *index, int64_t frame)
{
    const double rate = index->stream.rate > 0.0 ? index->stream.rate : 25.0;
    const double unit = (double)index->stream.unit_num / (double)index->stream.unit_den;
    return (int64_t)((double)frame / rate / unit);
}

/* Frames that the decoder has ready. *sound false: one of them, or the decoder, has failed. Before
 * the first frame that is nothing special: a recording may begin in the middle of a group. */
static lvn_status take_frames(const lvni_data_video_table *table, lvni_data_video_file *file,
                              const lvni_data_video_index *index, collected *c, bool *sound)
{
    int64_t number = -1;
    bool damaged = false;
    int got;
    while ((got = table->next_frame(file, &number, &damaged)) == 1) {
        if (damaged && c->frames == 0) {
            continue;
        }
        if (damaged || number < 0 || number >= c->packets) {
            *sound = false;
            return LVN_OK;
        }
        LVN_TRY(add_frame(c, time_of_frame(index, c->frames), number));
    }
    *sound = got == 0 || c->frames == 0;
    return LVN_OK;
}

static lvn_status decode_all(const lvni_data_video_table *table, lvni_data_video_file *file,
                             const char *path, const lvni_data_video_index *index, collected *c)
{
    lvni_data_video_packet p;
    for (bool there = true, sound = true; there;) {
        LVN_TRY(take_packet(table, file, path, c, &p, &there));
        const int fed = there ? table->feed(file, c->packets - 1) : table->finish(file);
        LVN_TRY(take_frames(table, file, index, c, &sound));
        if ((fed != 1 && c->frames > 0) || !sound) {
            c->cut = true;
            return LVN_OK;
        }
    }
    return LVN_OK;
}

/* A packet may be shown once. */
static bool is_permutation(const collected *c, const lvni_data_video_index *index)
{
    for (int64_t f = 0; f < c->frames; f++) {
        if (index->frame[c->frame[f].packet] != (int32_t)f) {
            return false;
        }
    }
    return true;
}

lvn_status lvni_data_video_index_decode(const lvni_data_video_table *table,
                                        lvni_data_video_file *file, const char *path,
                                        lvni_data_video_index *out)
{
    collected c = {.last_decoded = INT64_MIN};
    lvn_status s = decode_all(table, file, path, out, &c);
    s = s == LVN_OK ? fill(out, &c) : s;
    if (s == LVN_OK && !is_permutation(&c, out)) {
        lvni_data_video_index_free(out);
        s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                          "%s: several frames of a packet (%s in %s) are not read; convert it: "
                          "ffmpeg -i IN -c:v libx264 -pix_fmt yuv420p OUT.mp4",
                          path, out->stream.codec, out->stream.container);
    }
    if (s == LVN_OK && c.frames > 0) {
        place_starts(&c, out);
        out->starts = c.starts;
        memcpy(out->start, c.start, (size_t)c.starts * sizeof *c.start);
    }
    set_promised(table, file, &c, c.frames, out);
    free_collected(&c);
    return s;
}

/* ---- an index ---- */

int64_t lvni_data_video_index_start(const lvni_data_video_index *index, int64_t frame)
{
    const int32_t packet = index->packet[frame];
    int64_t low = 0, high = index->starts; /* the last start at or before the packet */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (index->start[middle].packet <= packet) {
            low = middle;
        } else {
            high = middle;
        }
    }
    while (low > 0 && index->start[low].frame > frame) {
        low--;
    }
    return low;
}

void lvni_data_video_index_free(lvni_data_video_index *index)
{
    lvni_core_free(index->time);
    lvni_core_free(index->packet);
    lvni_core_free(index->frame);
    lvni_core_free(index->start);
    index->time = NULL;
    index->packet = NULL;
    index->frame = NULL;
    index->start = NULL;
    index->frames = index->packets = index->starts = 0;
}
