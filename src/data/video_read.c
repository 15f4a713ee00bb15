/* Reads frames of videos (video.h). A decoder goes on from where it stands where that leads to the
 * frame, else it begins again at the last start before it. Both give the same bytes: a start is
 * where nothing decoded before counts. */
#include "core/alloc.h"
#include "data/video_open.h"

#include <string.h>

enum { GO_ON = 16 /* packets before the next start: fewer are decoded sooner than looked for */ };

typedef struct decoder {
    const lvni_data_video *video; /* NULL: a free one */
    lvni_data_video_bytes *bytes;
    uint64_t used;   /* the largest was used last */
    int64_t packets; /* number of the next packet */
    int64_t start;   /* where it began */
    int64_t frame;   /* the current one; -1: none since the start */
    int64_t damaged; /* the first damaged packet of its group; -1: none */
    bool ready;      /* it stands somewhere, and the current frame is there */
    bool finished;   /* there are no packets any more */
    uint8_t *stored; /* a frame before it is turned; NULL: none has to be */
} decoder;

struct lvni_data_video_decoders {
    int n;
    uint64_t clock;
    decoder at[];
};

/* ---- decoders ---- */

static void close_decoder(decoder *d)
{
    if (d->video != NULL && d->bytes != NULL) {
        lvni_data_video_bytes_close(d->video->table, d->bytes);
    }
    lvni_core_free(d->bytes);
    lvni_core_free(d->stored);
    *d = (decoder){.video = NULL};
}

lvn_status lvni_data_video_decoders_create(int open, lvni_data_video_decoders **out)
{
    LVN_ARG(open >= 1, "video decoders: at least one must be open, not %d", open);
    lvni_data_video_decoders *all =
        lvni_core_calloc(LVNI_TAG_DATA, 1, sizeof *all + (size_t)open * sizeof all->at[0]);
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    all->n = open;
    *out = all;
    return LVN_OK;
}

void lvni_data_video_decoders_destroy(lvni_data_video_decoders *decoders)
{
    for (int i = 0; decoders != NULL && i < decoders->n; i++) {
        close_decoder(&decoders->at[i]);
    }
    lvni_core_free(decoders);
}

/* Opens the file, at its beginning. */
static lvn_status open_bytes(decoder *d)
{
    const lvni_data_video *v = d->video;
    lvni_data_video_bytes_close(v->table, d->bytes);
    d->ready = false;
    LVN_TRY(lvni_data_video_bytes_open(v->table, v->path, d->bytes));
    if (memcmp(&d->bytes->identity, &v->index.identity, sizeof v->index.identity) != 0) {
        lvni_data_video_bytes_close(v->table, d->bytes);
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s: the file has changed since its frames were counted: start again", v->path);
    }
    return LVN_OK;
}

static lvn_status open_decoder(decoder *d, const lvni_data_video *v)
{
    close_decoder(d);
    d->video = v;
    const lvni_data_video_stream *stream = &v->index.stream;
    d->bytes = LVNI_NEW(LVNI_TAG_DATA, lvni_data_video_bytes);
    if (d->bytes != NULL) {
        d->bytes->fd = -1;
    }
    if (stream->orientation != 1) {
        d->stored =
            lvni_core_alloc(LVNI_TAG_DATA, 3 * (size_t)stream->width * (size_t)stream->height);
    }
    lvn_status s = d->bytes == NULL || (stream->orientation != 1 && d->stored == NULL)
                       ? LVN_ERR_MEMORY
                       : LVN_OK;
    if (s != LVN_OK) {
        close_decoder(d);
    }
    return s;
}

/* The video's decoder, else a free one, else that which was not used for longest. */
static lvn_status choose(lvni_data_video_decoders *all, const lvni_data_video *v, decoder **out)
{
    decoder *best = &all->at[0];
    for (int i = 0; i < all->n; i++) {
        decoder *d = &all->at[i];
        if (d->video == v) {
            best = d;
            break;
        }
        if (best->video != NULL && (d->video == NULL || d->used < best->used)) {
            best = d;
        }
    }
    if (best->video != v) {
        LVN_TRY(open_decoder(best, v));
    }
    best->used = ++all->clock;
    *out = best;
    return LVN_OK;
}

/* ---- to a start ---- */

static bool is_packet(const lvni_data_video_start *s, const lvni_data_video_packet *p)
{
    return s->bytes == p->bytes && s->at == p->at && s->shown == p->shown;
}

static bool is_behind(const lvni_data_video_packet *p, const lvni_data_video_start *s)
{
    return p->start && (s->shown != LVNI_VIDEO_NO_TIME
                            ? p->shown > s->shown
                            : s->decoded != LVNI_VIDEO_NO_TIME && p->decoded > s->decoded);
}

/* Reads on to the packet of `start`. False: it does not come, or a later start does first. */
static bool find_packet(decoder *d, int64_t start)
{
    const lvni_data_video_start *s = &d->video->index.start[start];
    lvni_data_video_packet p;
    while (d->video->table->next_packet(d->bytes->file, &p) == 1) {
        if (is_packet(s, &p)) {
            return true;
        }
        if (is_behind(&p, s)) {
            return false;
        }
    }
    return false;
}

/* The file's own table of places leads there or, in some formats, behind it: then from an earlier
 * start, at last from the beginning. The current packet is then that of the start. */
static lvn_status go_to_packet(decoder *d, int64_t start)
{
    const lvni_data_video_index *index = &d->video->index;
    LVN_TRY(start > 0 && d->bytes->file == NULL ? open_bytes(d) : LVN_OK);
    for (int64_t from = start; from > 0; from /= 2) {
        const lvni_data_video_start *s = &index->start[from];
        const int64_t time = s->decoded != LVNI_VIDEO_NO_TIME ? s->decoded : s->shown;
        if (time == LVNI_VIDEO_NO_TIME || d->video->table->seek(d->bytes->file, time) != 1) {
            break;
        }
        if (find_packet(d, start)) {
            return LVN_OK;
        }
    }
    LVN_TRY(open_bytes(d));
    if (!find_packet(d, start)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: frame %d is not where it was: the file or the disk is damaged, or another "
                 "program writes the file",
                 d->video->path, (int)index->start[start].frame);
    }
    return LVN_OK;
}

static void feed(decoder *d);

static lvn_status go_to_start(decoder *d, int64_t start)
{
    d->ready = false;
    LVN_TRY(go_to_packet(d, start));
    d->packets = d->video->index.start[start].packet;
    d->start = start;
    d->frame = -1;
    d->damaged = -1;
    d->finished = false;
    d->ready = true;
    feed(d);
    return LVN_OK;
}

/* ---- on from where it stands ---- */

/* What a damaged packet leads to goes on to the next start. */
static void note_damage(decoder *d, int64_t packet)
{
    const lvni_data_video_index *index = &d->video->index;
    for (int64_t i = d->start + 1; d->damaged >= 0 && i < index->starts; i++) {
        if (index->start[i].packet > d->damaged && index->start[i].packet <= packet) {
            d->damaged = -1;
        }
    }
    if (d->damaged < 0) {
        d->damaged = packet;
    }
}

/* The current packet. */
static void feed(decoder *d)
{
    if (d->video->table->feed(d->bytes->file, d->packets) != 1) {
        note_damage(d, d->packets);
    }
    d->packets++;
}

static void feed_next(decoder *d)
{
    lvni_data_video_packet p;
    if (d->packets < d->video->index.packets &&
        d->video->table->next_packet(d->bytes->file, &p) == 1) {
        feed(d);
        return;
    }
    d->finished = true;
    (void)d->video->table->finish(d->bytes->file);
}

/* The frame that the decoder has just made becomes the current one, if it counts. */
static void take_frame(decoder *d, int64_t packet, bool damaged)
{
    const lvni_data_video_index *index = &d->video->index;
    const int64_t frame = packet >= 0 && packet < index->packets ? index->frame[packet] : -1;
    if (frame < index->start[d->start].frame) { /* from before the start, or not shown */
        return;
    }
    if (damaged) {
        note_damage(d, packet);
    }
    d->frame = frame;
}

/* The current frame becomes `frame` or, where that does not come, a later one. */
static void advance(decoder *d, int64_t frame)
{
    const lvni_data_video_table *table = d->video->table;
    while (d->frame < frame) {
        int64_t packet = -1;
        bool damaged = false;
        const int got = table->next_frame(d->bytes->file, &packet, &damaged);
        if (got == 1) {
            take_frame(d, packet, damaged);
            continue;
        }
        if (got < 0) {
            note_damage(d, d->packets - 1);
        }
        if (d->finished) {
            d->ready = false; /* the decoder has let go of the current frame */
            return;
        }
        feed_next(d);
    }
}

/* Does what it decodes next lead to the frame, and sooner than from the frame's own start? */
static bool leads_to(const decoder *d, int64_t frame, int64_t start)
{
    const lvni_data_video_index *index = &d->video->index;
    const lvni_data_video_start *from = &index->start[d->start];
    return d->ready && frame >= d->frame && frame >= from->frame &&
           index->packet[frame] >= from->packet && index->start[start].packet <= d->packets + GO_ON;
}

static bool is_damaged(const decoder *d, int64_t frame, int64_t start)
{
    const lvni_data_video_index *index = &d->video->index;
    return d->damaged >= 0 && index->packet[frame] >= d->damaged &&
           index->start[start].packet <= d->damaged;
}

/* ---- a frame ---- */

/* As Exif's orientation asks for (image.h): 5 to 8 lie on their side. */
static void turn(const uint8_t *from, uint8_t *to, int width, int height, int orientation)
{
    const bool lying = orientation >= 5;
    const bool flip_x =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool flip_y =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const int columns = lying ? height : width, rows = lying ? width : height;
    for (int y = 0; y < rows; y++) {
        for (int x = 0; x < columns; x++) {
            const int stored_x = lying ? y : x, stored_y = lying ? x : y;
            const size_t at_x = (size_t)(flip_x ? width - 1 - stored_x : stored_x),
                         at_y = (size_t)(flip_y ? height - 1 - stored_y : stored_y);
            memcpy(to, from + 3 * (at_y * (size_t)width + at_x), 3);
            to += 3;
        }
    }
}

static lvn_status damaged_frame(const decoder *d, int64_t frame)
{
    LVN_FAIL(LVN_ERR_CORRUPT,
             "%s: frame %lld of %lld cannot be decoded, the file is damaged there; copy it again, "
             "or leave out what is damaged: %s",
             d->video->path, (long long)frame, (long long)d->video->index.frames,
             LVNI_VIDEO_CONVERT);
}

static lvn_status read_frame(decoder *d, int64_t frame, uint8_t *rgb)
{
    const lvni_data_video_index *index = &d->video->index;
    const lvni_data_video_stream *stream = &index->stream;
    const int64_t start = lvni_data_video_index_start(index, frame);
    if (!leads_to(d, frame, start)) {
        LVN_TRY(go_to_start(d, start));
    }
    advance(d, frame);
    if (d->frame != frame || is_damaged(d, frame, start) ||
        !d->video->table->convert(d->bytes->file, d->stored != NULL ? d->stored : rgb)) {
        return damaged_frame(d, frame);
    }
    if (d->stored != NULL) {
        turn(d->stored, rgb, stream->width, stream->height, stream->orientation);
    }
    return LVN_OK;
}

lvn_status lvni_data_video_read(lvni_data_video_decoders *decoders, const lvni_data_video *video,
                                int64_t first, int64_t n, uint8_t *rgb)
{
    const lvni_data_video_index *index = &video->index;
    if (first < 0 || n < 0 || first > index->frames - n) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: frames %lld to %lld of a video of %lld%s", video->path,
                 (long long)first, (long long)(first + n - 1), (long long)index->frames,
                 index->promised > index->frames ? " that can be read: it is cut off or damaged"
                                                 : "");
    }
    decoder *d;
    LVN_TRY(choose(decoders, video, &d));
    const size_t bytes = 3 * (size_t)index->stream.width * (size_t)index->stream.height;
    for (int64_t i = 0; i < n; i++) {
        LVN_TRY(read_frame(d, first + i, rgb + (size_t)i * bytes));
    }
    return LVN_OK;
}
