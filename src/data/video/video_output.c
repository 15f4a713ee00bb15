/* Writes MP4 files (data/video_module.h): frames to an encoder, its packets to the container. The
 * same frames give the same bytes with one version of the libraries: the number of threads is
 * fixed, and no file has a date. */
#include "data/video/video_impl.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    IO_BYTES = 1 << 16,
    THREADS = 4,
    GROUP = 60,        /* frames from one that can be looked for to the next */
    QUALITY = 3,       /* of mpeg4, from 1, the best, to 31 */
    UNITS = 60000,     /* in a second, where the source's are too many: whole ones for most rates */
    FEW_UNITS = 65535, /* as many as mpeg4 can have */
    MANY_UNITS = 1000000
};
static const char quality_of_h264[] = "18"; /* constant rate factor: hardly seen */

struct lvni_data_video_output {
    lvni_data_video_target target;
    int64_t at, end; /* of the file */
    int width, height;
    AVRational unit; /* of the times that are given */
    int64_t last, duration;
    AVFormatContext *format;
    AVIOContext *io;
    AVStream *stream;
    AVCodecContext *encoder;
    AVFrame *frame;
    AVPacket *packet;
};

/* ---- the bytes ---- */

#if LIBAVFORMAT_VERSION_MAJOR >= 61
static int io_write(void *user, const uint8_t *bytes, int n)
#else
static int io_write(void *user, uint8_t *bytes, int n)
#endif
{
    lvni_data_video_output *o = user;
    if (!o->target.write(o->target.user, o->at, bytes, n)) {
        return AVERROR(EIO);
    }
    o->at += n;
    o->end = o->at > o->end ? o->at : o->end;
    return n;
}

static int64_t io_seek(void *user, int64_t offset, int whence)
{
    lvni_data_video_output *o = user;
    switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE: return o->end;
    case SEEK_SET: break;
    case SEEK_CUR: offset += o->at; break;
    case SEEK_END: offset += o->end; break;
    default: return AVERROR(EINVAL);
    }
    if (offset < 0) {
        return AVERROR(EINVAL);
    }
    return o->at = offset;
}

static int open_io(lvni_data_video_output *o)
{
    unsigned char *buffer = av_malloc(IO_BYTES);
    o->io =
        buffer == NULL ? NULL : avio_alloc_context(buffer, IO_BYTES, 1, o, NULL, io_write, io_seek);
    if (o->io == NULL) {
        av_free(buffer);
        return AVERROR(ENOMEM);
    }
    return 0;
}

/* ---- the encoder ---- */

/* The source's units, so that its times stay what they are, where the encoder can have them. */
static AVRational choose_unit(const lvni_data_video_form *form, const AVCodec *codec)
{
    AVRational unit = {1, UNITS};
    const int most = codec->id == AV_CODEC_ID_MPEG4 ? FEW_UNITS : MANY_UNITS;
    AVRational source;
    if (form->unit_num > 0 && form->unit_den > 0 &&
        av_reduce(&source.num, &source.den, form->unit_num, form->unit_den, INT_MAX) != 0 &&
        source.den <= most) {
        unit = source;
    }
    return unit;
}

/* Frames are encoded in the order in which they are shown: then every program counts them alike,
 * and their times need no edit list. */
static void set_encoder(AVCodecContext *e, const lvni_data_video_output *o, double rate)
{
    e->width = (o->width + 1) / 2 * 2;
    e->height = (o->height + 1) / 2 * 2;
    e->pix_fmt = AV_PIX_FMT_YUV420P;
    e->color_range = AVCOL_RANGE_MPEG;
    e->colorspace = AVCOL_SPC_SMPTE170M;
    e->framerate = rate > 0.0 ? av_d2q(rate, MANY_UNITS) : (AVRational){25, 1};
    e->max_b_frames = 0;
    e->gop_size = GROUP;
    e->thread_count = THREADS;
    if ((o->format->oformat->flags & AVFMT_GLOBALHEADER) != 0) {
        e->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    }
    if (e->codec_id == AV_CODEC_ID_MPEG4) {
        e->flags |= AV_CODEC_FLAG_QSCALE;
        e->global_quality = FF_QP2LAMBDA * QUALITY;
    }
}

static int open_encoder(lvni_data_video_output *o, const lvni_data_video_form *form,
                        const AVCodec *codec)
{
    AVCodecContext *e = avcodec_alloc_context3(codec);
    o->encoder = e;
    if (e == NULL) {
        return AVERROR(ENOMEM);
    }
    e->time_base = choose_unit(form, codec);
    o->unit = (AVRational){form->unit_num, form->unit_den};
    set_encoder(e, o, form->rate);
    const double duration = 1.0 / (av_q2d(e->framerate) * av_q2d(e->time_base));
    o->duration = duration < 1.0 ? 1 : llrint(duration);
    AVDictionary *options = NULL;
    if (codec->id == AV_CODEC_ID_H264) {
        av_dict_set(&options, "preset", "veryfast", 0);
        av_dict_set(&options, "crf", quality_of_h264, 0);
    }
    const int code = avcodec_open2(e, codec, &options);
    av_dict_free(&options);
    return code;
}

static int open_frame(lvni_data_video_output *o)
{
    o->packet = av_packet_alloc();
    o->frame = av_frame_alloc();
    if (o->packet == NULL || o->frame == NULL) {
        return AVERROR(ENOMEM);
    }
    o->frame->format = o->encoder->pix_fmt;
    o->frame->width = o->encoder->width;
    o->frame->height = o->encoder->height;
    return av_frame_get_buffer(o->frame, 0);
}

static int open_stream(lvni_data_video_output *o)
{
    AVStream *stream = avformat_new_stream(o->format, NULL);
    if (stream == NULL) {
        return AVERROR(ENOMEM);
    }
    o->stream = stream;
    stream->time_base = o->encoder->time_base; /* which the container may make finer */
    stream->avg_frame_rate = o->encoder->framerate;
    const int code = avcodec_parameters_from_context(stream->codecpar, o->encoder);
    return code < 0 ? code : avformat_write_header(o->format, NULL);
}

static int open_file(lvni_data_video_output *o, const lvni_data_video_form *form,
                     const AVCodec *codec)
{
    int code = avformat_alloc_output_context2(&o->format, NULL, "mp4", NULL);
    code = code < 0 ? code : open_io(o);
    if (code >= 0) {
        o->format->pb = o->io;
        o->format->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
        code = open_encoder(o, form, codec);
    }
    code = code < 0 ? code : open_frame(o);
    return code < 0 ? code : open_stream(o);
}

/* ---- frames ---- */

static int write_packets(lvni_data_video_output *o)
{
    int code;
    while ((code = avcodec_receive_packet(o->encoder, o->packet)) >= 0) {
        o->packet->stream_index = o->stream->index;
        o->packet->duration = o->duration; /* counts for the last one */
        av_packet_rescale_ts(o->packet, o->encoder->time_base, o->stream->time_base);
        code = av_write_frame(o->format, o->packet);
        av_packet_unref(o->packet);
        if (code < 0) {
            return code;
        }
    }
    return o->io->error < 0                                 ? o->io->error
           : code == AVERROR(EAGAIN) || code == AVERROR_EOF ? 0
                                                            : code;
}

static int encode(lvni_data_video_output *o, int64_t time, const uint8_t *rgb)
{
    int code = av_frame_make_writable(o->frame); /* the encoder may still have the last one */
    if (code < 0) {
        return code;
    }
    const int64_t at = av_rescale_q(time, o->unit, o->encoder->time_base);
    o->last = at > o->last ? at : o->last + 1;
    o->frame->pts = o->last;
    lvni_video_yuv_fill(rgb, o->width, o->height, o->frame);
    code = avcodec_send_frame(o->encoder, o->frame);
    return code < 0 ? code : write_packets(o);
}

static int complete(lvni_data_video_output *o)
{
    int code = avcodec_send_frame(o->encoder, NULL);
    code = code < 0 ? code : write_packets(o);
    code = code < 0 ? code : av_write_trailer(o->format);
    avio_flush(o->io);
    return code < 0 ? code : o->io->error;
}

static void close_output(lvni_data_video_output *o)
{
    av_packet_free(&o->packet);
    av_frame_free(&o->frame);
    avcodec_free_context(&o->encoder);
    avformat_free_context(o->format);
    if (o->io != NULL) {
        av_freep(&o->io->buffer);
        avio_context_free(&o->io);
    }
    av_free(o);
}

/* ---- the functions of the table ---- */

static lvni_data_video_problem problem_of(int code)
{
    lvni_video_log_failed(code);
    return code == AVERROR(ENOMEM) ? LVNI_VIDEO_NO_MEMORY
           : code == AVERROR(EIO)  ? LVNI_VIDEO_BAD_FILE
                                   : LVNI_VIDEO_NO_ENCODER;
}

lvni_data_video_problem lvni_video_output_create(const lvni_data_video_target *target,
                                                 const lvni_data_video_form *form,
                                                 const char *encoder, lvni_data_video_output **out)
{
    *out = NULL;
    lvni_data_video_problem problem = LVNI_VIDEO_FINE;
    lvni_video_log_begin();
    const AVCodec *codec = avcodec_find_encoder_by_name(encoder);
    lvni_data_video_output *o = codec == NULL ? NULL : av_mallocz(sizeof *o);
    if (o == NULL) {
        problem = problem_of(codec == NULL ? AVERROR_ENCODER_NOT_FOUND : AVERROR(ENOMEM));
    } else {
        o->target = *target;
        o->width = form->width;
        o->height = form->height;
        o->last = -1;
        const int code = open_file(o, form, codec);
        if (code < 0) {
            problem = problem_of(code);
            close_output(o);
            o = NULL;
        }
    }
    lvni_video_log_end();
    *out = o;
    return problem;
}

static int result_of(int code)
{
    if (code < 0) {
        lvni_video_log_failed(code);
    }
    lvni_video_log_end();
    return code < 0 ? -1 : 1;
}

int lvni_video_output_encode(lvni_data_video_output *output, int64_t time, const uint8_t *rgb)
{
    lvni_video_log_begin();
    return result_of(encode(output, time, rgb));
}

int lvni_video_output_complete(lvni_data_video_output *output)
{
    lvni_video_log_begin();
    return result_of(complete(output));
}

void lvni_video_output_discard(lvni_data_video_output *output)
{
    if (output != NULL) {
        lvni_video_log_begin();
        close_output(output);
        lvni_video_log_end();
    }
}
