/* Decodes packets to frames and converts these to RGB (data/video_module.h), those of most videos
 * by video_rgb.c. One thread decodes, and the conversion rounds exactly, so that a frame has the
 * same bytes wherever it is read. */
#include "data/video/video_impl.h"

#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <stdio.h>

enum { SCALE_FLAGS = SWS_BILINEAR | SWS_FULL_CHR_H_INT | SWS_ACCURATE_RND | SWS_BITEXACT };

lvni_data_video_problem lvni_video_frame_open(lvni_video_state *file)
{
    const AVCodecParameters *parameters = file->stream->codecpar;
    const AVCodec *codec = avcodec_find_decoder(parameters->codec_id);
    if (codec == NULL) {
        char text[64], tag[AV_FOURCC_MAX_STRING_SIZE];
        snprintf(text, sizeof text, "codec %s, tag %s", avcodec_get_name(parameters->codec_id),
                 av_fourcc_make_string(tag, parameters->codec_tag));
        lvni_video_log_note(text);
        return LVNI_VIDEO_NO_DECODER;
    }
    AVCodecContext *decoder = avcodec_alloc_context3(codec);
    file->decoder = decoder;
    file->frame = av_frame_alloc();
    file->rgb = av_frame_alloc();
    if (decoder == NULL || file->frame == NULL || file->rgb == NULL) {
        return LVNI_VIDEO_NO_MEMORY;
    }
    int code = avcodec_parameters_to_context(decoder, parameters);
    decoder->thread_count = 1;
    /* else the last frames after a start in H.264 that is not an IDR frame are held back at the
     * file's end; those that are wrong are marked so, and come from before the start */
    decoder->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
    decoder->max_pixels = LVNI_VIDEO_MAX_PIXELS;
    decoder->pkt_timebase = file->stream->time_base;
    code = code < 0 ? code : avcodec_open2(decoder, codec, NULL);
    if (code < 0) {
        lvni_video_log_failed(code);
        return code == AVERROR(ENOMEM) ? LVNI_VIDEO_NO_MEMORY : LVNI_VIDEO_NO_DECODER;
    }
    file->width = decoder->width;
    file->height = decoder->height;
    return file->width > 0 && file->height > 0 ? LVNI_VIDEO_FINE : LVNI_VIDEO_NO_SIZE;
}

void lvni_video_frame_close(lvni_video_state *file)
{
    av_freep(&file->rows);
    sws_freeContext(file->scale);
    av_frame_free(&file->rgb);
    av_frame_free(&file->frame);
    avcodec_free_context(&file->decoder);
}

/* ---- frames ---- */

/* A frame has the time stamp of its packet: the number goes with the packet as one. */
int lvni_video_frame_feed(lvni_video_state *file, int64_t number)
{
    file->packet->pts = number;
    file->packet->dts = number;
    const int code = avcodec_send_packet(file->decoder, file->packet);
    if (code < 0) {
        lvni_video_log_failed(code);
    }
    return code < 0 ? -1 : 1;
}

int lvni_video_frame_finish(lvni_video_state *file)
{
    const int code = avcodec_send_packet(file->decoder, NULL);
    return code < 0 && code != AVERROR_EOF ? -1 : 1;
}

int lvni_video_frame_next(lvni_video_state *file, int64_t *number, bool *damaged)
{
    AVFrame *frame = file->frame;
    const int code = avcodec_receive_frame(file->decoder, frame);
    int result = 0;
    if (code >= 0) {
        *number = frame->pts;
        *damaged = (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame->decode_error_flags != 0;
        result = 1;
    } else if (code != AVERROR(EAGAIN) && code != AVERROR_EOF) {
        lvni_video_log_failed(code);
        result = -1;
    }
    return result;
}

/* ---- RGB ---- */

static bool is_full_range(const AVFrame *frame)
{
    switch (frame->format) {
    case AV_PIX_FMT_YUVJ420P:
    case AV_PIX_FMT_YUVJ411P:
    case AV_PIX_FMT_YUVJ422P:
    case AV_PIX_FMT_YUVJ440P:
    case AV_PIX_FMT_YUVJ444P: return true;
    default: return frame->color_range == AVCOL_RANGE_JPEG;
    }
}

/* Colours of two by two pixels lie between the rows, as MPEG-2 and H.264 have them. */
static struct SwsContext *make_scale(const AVFrame *frame, bool full)
{
    struct SwsContext *scale = sws_alloc_context();
    if (scale == NULL) {
        return NULL;
    }
    const AVPixFmtDescriptor *about = av_pix_fmt_desc_get(frame->format);
    av_opt_set_int(scale, "srcw", frame->width, 0);
    av_opt_set_int(scale, "srch", frame->height, 0);
    av_opt_set_int(scale, "src_format", frame->format, 0);
    av_opt_set_int(scale, "dstw", frame->width, 0);
    av_opt_set_int(scale, "dsth", frame->height, 0);
    av_opt_set_int(scale, "dst_format", AV_PIX_FMT_RGB24, 0);
    av_opt_set_int(scale, "sws_flags", SCALE_FLAGS, 0);
    av_opt_set_int(scale, "src_range", full, 0);
    if (about != NULL && about->log2_chroma_h == 1) {
        av_opt_set_int(scale, "src_v_chr_pos", 128, 0);
    }
    if (sws_init_context(scale, NULL, NULL) < 0) {
        sws_freeContext(scale);
        return NULL;
    }
    const int *matrix = sws_getCoefficients((int)frame->colorspace);
    sws_setColorspaceDetails(scale, matrix, full, matrix, 1, 0, 1 << 16, 1 << 16);
    return scale;
}

/* The libraries write whole vectors: not into the caller's rows, which end without a gap. */
static bool scale_frame(lvni_video_state *file, int full)
{
    AVFrame *frame = file->frame, *rgb = file->rgb;
    if (file->scale == NULL || file->scale_format != frame->format || file->scale_range != full ||
        file->scale_space != (int)frame->colorspace || rgb->width != frame->width ||
        rgb->height != frame->height) {
        sws_freeContext(file->scale);
        av_frame_unref(rgb);
        file->scale = make_scale(frame, full);
        file->scale_format = frame->format;
        file->scale_range = full;
        file->scale_space = (int)frame->colorspace;
        rgb->format = AV_PIX_FMT_RGB24;
        rgb->width = frame->width;
        rgb->height = frame->height;
        if (file->scale == NULL || av_frame_get_buffer(rgb, 0) < 0) {
            return false;
        }
    }
    return sws_scale(file->scale, (const uint8_t *const *)frame->data, frame->linesize, 0,
                     frame->height, rgb->data, rgb->linesize) == frame->height;
}

bool lvni_video_frame_convert(lvni_video_state *file, uint8_t *rgb)
{
    const AVFrame *frame = file->frame;
    const bool full = is_full_range(frame);
    if (frame->width != file->width || frame->height != file->height) {
        return false;
    }
    if (lvni_video_rgb_can(frame)) {
        return lvni_video_rgb_fill(file, full, rgb);
    }
    if (!scale_frame(file, full)) {
        return false;
    }
    av_image_copy_plane(rgb, 3 * file->rgb->width, file->rgb->data[0], file->rgb->linesize[0],
                        3 * file->rgb->width, file->rgb->height);
    return true;
}
