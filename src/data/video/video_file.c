/* Opens a video and reads its packets (data/video_module.h), and the table of the module. */
#include "data/video/video_impl.h"

#include <libavutil/pixdesc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IO_BYTES = 1 << 16 };

struct lvni_data_video_file {
    lvni_video_state state;
};

/* ---- the bytes ---- */

static int io_read(void *user, uint8_t *to, int n)
{
    lvni_video_state *file = user;
    const int got = file->source.read(file->source.user, file->at, to, n);
    file->at += got > 0 ? got : 0;
    return got > 0 ? got : got == 0 ? AVERROR_EOF : AVERROR(EIO);
}

static int64_t io_seek(void *user, int64_t offset, int whence)
{
    lvni_video_state *file = user;
    switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE: return file->source.bytes;
    case SEEK_SET: break;
    case SEEK_CUR: offset += file->at; break;
    case SEEK_END: offset += file->source.bytes; break;
    default: return AVERROR(EINVAL);
    }
    if (offset < 0) {
        return AVERROR(EINVAL);
    }
    return file->at = offset;
}

/* ---- open ---- */

/* Sound, other tracks, and a cover, which is an image of a track of sound, are left out. */
static lvni_data_video_problem choose_stream(lvni_video_state *file)
{
    AVFormatContext *format = file->format;
    const int best = av_find_best_stream(format, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    for (unsigned i = 0; i < format->nb_streams; i++) {
        format->streams[i]->discard = (int)i == best ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    }
    if (best < 0 || (format->streams[best]->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0) {
        return LVNI_VIDEO_NO_STREAM;
    }
    file->stream = format->streams[best];
    return LVNI_VIDEO_FINE;
}

/* The libraries look into the first frames, with the decoder that this opens for a moment: on one
 * thread. */
static int look_into_streams(AVFormatContext *format)
{
    const unsigned n = format->nb_streams;
    AVDictionary **options = av_calloc(n > 0 ? n : 1, sizeof *options);
    if (options == NULL) {
        return AVERROR(ENOMEM);
    }
    for (unsigned i = 0; i < n; i++) {
        av_dict_set(&options[i], "threads", "1", 0);
        av_dict_set_int(&options[i], "max_pixels", LVNI_VIDEO_MAX_PIXELS, 0);
    }
    const int code = avformat_find_stream_info(format, options);
    for (unsigned i = 0; i < n; i++) {
        av_dict_free(&options[i]);
    }
    av_free(options);
    return code;
}

/* No other file than this one: a playlist's files are refused by the empty list of protocols. */
static lvni_data_video_problem open_format(lvni_video_state *file)
{
    unsigned char *buffer = av_malloc(IO_BYTES);
    file->io = buffer == NULL
                   ? NULL
                   : avio_alloc_context(buffer, IO_BYTES, 0, file, io_read, NULL, io_seek);
    if (file->io == NULL) {
        av_free(buffer);
        return LVNI_VIDEO_NO_MEMORY;
    }
    AVFormatContext *format = avformat_alloc_context();
    if (format == NULL) {
        return LVNI_VIDEO_NO_MEMORY;
    }
    format->pb = file->io;
    format->flags |= AVFMT_FLAG_CUSTOM_IO;
    AVDictionary *options = NULL;
    av_dict_set(&options, "protocol_whitelist", "", 0);
    int code = avformat_open_input(&format, "", NULL, &options); /* frees format when it fails */
    av_dict_free(&options);
    if (code >= 0) {
        file->format = format;
        code = look_into_streams(format);
    }
    if (code < 0) {
        lvni_video_log_failed(code);
        return code == AVERROR(ENOMEM) ? LVNI_VIDEO_NO_MEMORY
               : file->format == NULL  ? LVNI_VIDEO_NO_CONTAINER
                                       : LVNI_VIDEO_BAD_FILE;
    }
    return choose_stream(file);
}

static void close_state(lvni_video_state *file)
{
    lvni_video_frame_close(file);
    av_packet_free(&file->packet);
    avformat_close_input(&file->format);
    if (file->io != NULL) {
        av_freep(&file->io->buffer);
        avio_context_free(&file->io);
    }
}

static lvni_data_video_problem open_state(lvni_video_state *file)
{
    file->packet = av_packet_alloc();
    const lvni_data_video_problem problem =
        file->packet == NULL ? LVNI_VIDEO_NO_MEMORY : open_format(file);
    return problem == LVNI_VIDEO_FINE ? lvni_video_frame_open(file) : problem;
}

/* ---- what the stream is ---- */

static const int32_t *display_matrix(const AVStream *stream)
{
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
    const AVPacketSideData *side =
        av_packet_side_data_get(stream->codecpar->coded_side_data,
                                stream->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    const uint8_t *bytes = side == NULL ? NULL : side->data;
    const size_t n = side == NULL ? 0 : side->size;
#else
    size_t n = 0;
    const uint8_t *bytes = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &n);
#endif
    return bytes != NULL && n >= 9 * sizeof(int32_t) ? (const int32_t *)(const void *)bytes : NULL;
}

/* The matrix maps (x, y) to (m0 x + m3 y, m1 x + m4 y); other angles than right ones are taken for
 * the nearest. */
static int orientation_of(const AVStream *stream)
{
    const int32_t *m = display_matrix(stream);
    if (m == NULL) {
        return 1;
    }
    const bool lying = llabs((long long)m[1]) > llabs((long long)m[0]);
    const bool flip_x = (lying ? m[1] : m[0]) < 0, flip_y = (lying ? m[3] : m[4]) < 0;
    static const int orientation[2][2][2] = {{{1, 4}, {2, 3}}, {{5, 6}, {8, 7}}};
    return orientation[lying][flip_x][flip_y];
}

/* Codecs of which each packet is one frame, those that are not shown excepted. In the others, and
 * in fields of interlaced H.264, packets and frames have to be counted by decoding. */
static bool one_per_packet(const AVCodecParameters *codec)
{
    switch (codec->codec_id) {
    case AV_CODEC_ID_H264:
        return codec->field_order == AV_FIELD_PROGRESSIVE || codec->field_order == AV_FIELD_UNKNOWN;
    case AV_CODEC_ID_HEVC:
    case AV_CODEC_ID_VP8:
    case AV_CODEC_ID_VP9:
    case AV_CODEC_ID_AV1:
    case AV_CODEC_ID_MJPEG:
    case AV_CODEC_ID_MPEG4:
    case AV_CODEC_ID_FFV1:
    case AV_CODEC_ID_HUFFYUV:
    case AV_CODEC_ID_FFVHUFF:
    case AV_CODEC_ID_UTVIDEO:
    case AV_CODEC_ID_RAWVIDEO:
    case AV_CODEC_ID_PNG:
    case AV_CODEC_ID_PRORES:
    case AV_CODEC_ID_DNXHD: return true;
    default: return false;
    }
}

static void copy_name(char *to, const char *name)
{
    snprintf(to, LVNI_VIDEO_NAME, "%s", name != NULL ? name : "unknown");
}

static void describe_state(const lvni_video_state *file, lvni_data_video_stream *out)
{
    AVStream *stream = file->stream;
    const AVCodecParameters *codec = stream->codecpar;
    const AVRational rate = stream->avg_frame_rate.num > 0 && stream->avg_frame_rate.den > 0
                                ? stream->avg_frame_rate
                                : stream->r_frame_rate;
    *out = (lvni_data_video_stream){.width = file->width,
                                    .height = file->height,
                                    .orientation = orientation_of(stream),
                                    .one_per_packet = one_per_packet(codec),
                                    .rate = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0.0,
                                    .unit_num = stream->time_base.num,
                                    .unit_den = stream->time_base.den};
    copy_name(out->codec, avcodec_get_name(codec->codec_id));
    copy_name(out->container, file->format->iformat->name);
    copy_name(out->pixels, av_get_pix_fmt_name(file->decoder->pix_fmt));
}

/* These two read a table of all packets at the start; that of a file in fragments grows as it is
 * read. An entry without bytes stands for the frame before it. */
static int64_t promised_by(const lvni_video_state *file)
{
    const char *name = file->format->iformat->name;
    if (strcmp(name, "mov,mp4,m4a,3gp,3g2,mj2") != 0 && strcmp(name, "avi") != 0) {
        return 0;
    }
    int64_t n = 0;
    for (int i = 0; i < avformat_index_get_entries_count(file->stream); i++) {
        const AVIndexEntry *entry = avformat_index_get_entry(file->stream, i);
        n += entry != NULL && entry->size > 0;
    }
    return n;
}

/* ---- packets ---- */

static int64_t time_of(int64_t stamp)
{
    return stamp == AV_NOPTS_VALUE ? LVNI_VIDEO_NO_TIME : stamp;
}

static int read_packet(lvni_video_state *file, lvni_data_video_packet *out)
{
    AVPacket *packet = file->packet;
    int code;
    do {
        av_packet_unref(packet);
        code = av_read_frame(file->format, packet);
    } while (code >= 0 && packet->stream_index != file->stream->index);
    /* Matroska's end is an end wherever it comes, with a message where that is in the middle. */
    if (code == AVERROR_EOF) {
        return lvni_video_log_text()[0] == '\0' ? 0 : -1;
    }
    if (code < 0) {
        lvni_video_log_failed(code);
        return -1;
    }
    const AVCodecParameters *codec = file->stream->codecpar;
    *out = (lvni_data_video_packet){.shown = time_of(packet->pts),
                                    .decoded = time_of(packet->dts),
                                    .at = packet->pos,
                                    .bytes = packet->size,
                                    .start = lvni_video_start_is(codec, packet),
                                    .hidden = lvni_video_start_hidden(codec, packet),
                                    .damaged = (packet->flags & AV_PKT_FLAG_CORRUPT) != 0};
    return 1;
}

static int seek_state(lvni_video_state *file, int64_t decoded)
{
    const int code =
        av_seek_frame(file->format, file->stream->index, decoded, AVSEEK_FLAG_BACKWARD);
    if (code < 0) {
        lvni_video_log_failed(code);
    }
    avcodec_flush_buffers(file->decoder);
    return code < 0 ? -1 : 1;
}

/* ---- the table: what the libraries print meanwhile is kept ---- */

static void close_file(lvni_data_video_file *file)
{
    if (file != NULL) {
        lvni_video_log_begin();
        close_state(&file->state);
        lvni_video_log_end();
        av_free(file);
    }
}

static lvni_data_video_problem open_file(const lvni_data_video_source *source,
                                         lvni_data_video_file **out)
{
    *out = NULL;
    lvni_data_video_file *file = av_mallocz(sizeof *file);
    if (file == NULL) {
        return LVNI_VIDEO_NO_MEMORY;
    }
    file->state.source = *source;
    lvni_video_log_begin();
    const lvni_data_video_problem problem = open_state(&file->state);
    if (problem != LVNI_VIDEO_FINE) {
        close_state(&file->state);
        av_freep(&file);
    }
    lvni_video_log_end();
    *out = file;
    return problem;
}

static void describe(const lvni_data_video_file *file, lvni_data_video_stream *out)
{
    describe_state(&file->state, out);
}

static int64_t promised(const lvni_data_video_file *file)
{
    return promised_by(&file->state);
}

#define LVNI_QUIETLY(type, call)                                                                   \
    do {                                                                                           \
        lvni_video_log_begin();                                                                    \
        const type quietly_ = (call);                                                              \
        lvni_video_log_end();                                                                      \
        return quietly_;                                                                           \
    } while (0)

static int next_packet(lvni_data_video_file *file, lvni_data_video_packet *out)
{
    LVNI_QUIETLY(int, read_packet(&file->state, out));
}

static int seek(lvni_data_video_file *file, int64_t decoded)
{
    LVNI_QUIETLY(int, seek_state(&file->state, decoded));
}

static int feed(lvni_data_video_file *file, int64_t number)
{
    LVNI_QUIETLY(int, lvni_video_frame_feed(&file->state, number));
}

static int finish(lvni_data_video_file *file)
{
    LVNI_QUIETLY(int, lvni_video_frame_finish(&file->state));
}

static int next_frame(lvni_data_video_file *file, int64_t *number, bool *damaged)
{
    LVNI_QUIETLY(int, lvni_video_frame_next(&file->state, number, damaged));
}

static bool convert(lvni_data_video_file *file, uint8_t *rgb)
{
    LVNI_QUIETLY(bool, lvni_video_frame_convert(&file->state, rgb));
}

const lvni_data_video_table *lvni_video_table(void);

__attribute__((visibility("default"))) const lvni_data_video_table *lvni_video_table(void)
{
    static const lvni_data_video_table table = {.version = LVNI_VIDEO_TABLE,
                                                .libraries = (uint32_t)LIBAVFORMAT_VERSION_INT ^
                                                             (uint32_t)LIBAVCODEC_VERSION_INT << 4,
                                                .open = open_file,
                                                .close = close_file,
                                                .why = lvni_video_log_text,
                                                .stream = describe,
                                                .promised = promised,
                                                .next_packet = next_packet,
                                                .seek = seek,
                                                .feed = feed,
                                                .finish = finish,
                                                .next_frame = next_frame,
                                                .convert = convert,
                                                .create = lvni_video_output_create,
                                                .encode = lvni_video_output_encode,
                                                .complete = lvni_video_output_complete,
                                                .discard = lvni_video_output_discard,
                                                .image = lvni_video_image};
    return &table;
}
