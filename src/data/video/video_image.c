/* Decodes images of one file each through the libraries' decoders (data/video_module.h): to RGB of
 * 8 bits, with alpha on request. Numbers of more bits keep the high ones, fewer bits are stretched,
 * exactly, so that the bytes are the same with every version of the libraries. */
#include "data/video/video_impl.h"

#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <string.h>

typedef struct image {
    lvni_video_state state; /* decoder and frames, for the conversion of colours of videos */
    uint16_t *row;          /* one channel of a row */
    int width, height, channels;
} image;

static lvni_data_video_problem fail(int code)
{
    lvni_video_log_failed(code);
    return code == AVERROR(ENOMEM) ? LVNI_VIDEO_NO_MEMORY : LVNI_VIDEO_BAD_FILE;
}

/* The libraries look at padded rows. */
static lvni_data_video_problem open_decoder(image *m, const char *codec)
{
    enum { PADDING = 64 };
    const AVCodec *c = avcodec_find_decoder_by_name(codec);
    if (c == NULL) {
        lvni_video_log_note("the libraries are built without it");
        return LVNI_VIDEO_NO_DECODER;
    }
    lvni_video_state *s = &m->state;
    s->decoder = avcodec_alloc_context3(c);
    s->packet = av_packet_alloc();
    s->frame = av_frame_alloc();
    s->rgb = av_frame_alloc();
    m->row = av_malloc((size_t)m->width * sizeof *m->row);
    if (s->decoder == NULL || s->packet == NULL || s->frame == NULL || s->rgb == NULL ||
        m->row == NULL) {
        return LVNI_VIDEO_NO_MEMORY;
    }
    s->decoder->thread_count = 1;
    /* of TIFF it would make an error of every tag that the decoder has no use for */
    s->decoder->err_recognition = AV_EF_CAREFUL | (c->id == AV_CODEC_ID_TIFF ? 0 : AV_EF_EXPLODE);
    s->decoder->max_pixels = ((int64_t)m->width + PADDING) * ((int64_t)m->height + PADDING);
    const int code = avcodec_open2(s->decoder, c, NULL);
    return code < 0 ? fail(code) : LVNI_VIDEO_FINE;
}

/* The whole file is one packet; a message is damage, too. */
static lvni_data_video_problem decode(image *m, const uint8_t *bytes, size_t n)
{
    lvni_video_state *s = &m->state;
    if (n > INT32_MAX - AV_INPUT_BUFFER_PADDING_SIZE) {
        return fail(AVERROR(EINVAL));
    }
    int code = av_new_packet(s->packet, (int)n);
    if (code >= 0) {
        memcpy(s->packet->data, bytes, n);
        code = avcodec_send_packet(s->decoder, s->packet);
    }
    if (code >= 0) {
        code = avcodec_send_packet(s->decoder, NULL);
        code = code < 0 ? code : avcodec_receive_frame(s->decoder, s->frame);
    }
    if (code < 0) {
        return fail(code);
    }
    const AVFrame *f = s->frame;
    if ((f->flags & AV_FRAME_FLAG_CORRUPT) != 0 || f->decode_error_flags != 0 ||
        lvni_video_log_text()[0] != '\0') {
        return fail(AVERROR_INVALIDDATA);
    }
    if (f->width != m->width || f->height != m->height) {
        lvni_video_log_note("the image has another size than its header");
        return LVNI_VIDEO_BAD_FILE;
    }
    return LVNI_VIDEO_FINE;
}

/* ---- pixels ---- */

static uint8_t of_8_bits(uint16_t value, int depth)
{
    return (uint8_t)(depth >= 8 ? value >> (depth - 8) : value * 255 / ((1 << depth) - 1));
}

/* Channel `to` of all pixels from component c of the frame. */
static void take_channel(const image *m, const AVPixFmtDescriptor *about, int c, int to,
                         uint8_t *out)
{
    const AVFrame *f = m->state.frame;
    const int depth = about->comp[c].depth;
    const uint8_t turned = f->format == AV_PIX_FMT_MONOWHITE ? 255 : 0;
    for (int y = 0; y < m->height; y++) {
        av_read_image_line2(m->row, (const uint8_t **)(uintptr_t)f->data, f->linesize, about, 0, y,
                            c, m->width, 0, sizeof *m->row);
        uint8_t *row = out + (size_t)y * (size_t)m->width * (size_t)m->channels + to;
        for (int x = 0; x < m->width; x++) {
            row[(size_t)x * (size_t)m->channels] = of_8_bits(m->row[x], depth) ^ turned;
        }
    }
}

static void fill_channel(const image *m, int to, uint8_t *out)
{
    for (size_t i = 0; i < (size_t)m->width * (size_t)m->height; i++) {
        out[i * (size_t)m->channels + (size_t)to] = 255;
    }
}

/* Colours of a table: 0xAARRGGBB. */
static void take_palette(const image *m, uint8_t *out)
{
    const AVFrame *f = m->state.frame;
    for (int y = 0; y < m->height; y++) {
        const uint8_t *from = f->data[0] + (ptrdiff_t)y * f->linesize[0];
        for (int x = 0; x < m->width; x++, out += m->channels) {
            uint32_t colour;
            memcpy(&colour, f->data[1] + 4 * (size_t)from[x], sizeof colour);
            for (int c = 0; c < m->channels; c++) {
                out[c] = (uint8_t)(colour >> (c == 3 ? 24 : 16 - 8 * c));
            }
        }
    }
}

/* Colours and brightness apart, as in videos; the conversion leaves alpha out. */
static bool take_video_colours(image *m, uint8_t *out)
{
    AVFrame *f = m->state.frame;
    const size_t n = (size_t)m->width * (size_t)m->height;
    uint8_t *rgb = m->channels == 3 ? out : av_malloc(3 * n);
    const int format = f->format;
    f->format = format == AV_PIX_FMT_YUVA420P ? AV_PIX_FMT_YUV420P : format;
    m->state.width = m->width;
    m->state.height = m->height;
    const bool good = rgb != NULL && lvni_video_frame_convert(&m->state, rgb);
    f->format = format;
    for (size_t i = 0; good && rgb != out && i < n; i++) {
        memcpy(out + 4 * i, rgb + 3 * i, 3);
    }
    if (rgb != out) {
        av_free(rgb);
    }
    return good;
}

static bool take_pixels(image *m, uint8_t *out)
{
    const AVPixFmtDescriptor *about = av_pix_fmt_desc_get(m->state.frame->format);
    if (about == NULL || (about->flags & AV_PIX_FMT_FLAG_FLOAT) != 0) {
        lvni_video_log_note("numbers with fractions are not read");
        return false;
    }
    if ((about->flags & AV_PIX_FMT_FLAG_PAL) != 0) {
        take_palette(m, out);
        return true;
    }
    const int n = about->nb_components;
    const bool alpha = (about->flags & AV_PIX_FMT_FLAG_ALPHA) != 0, grey = n - alpha == 1,
               plain = grey || (about->flags & AV_PIX_FMT_FLAG_RGB) != 0;
    if (!plain && !take_video_colours(m, out)) {
        return false;
    }
    for (int c = 0; plain && c < 3; c++) {
        take_channel(m, about, grey ? 0 : c, c, out);
    }
    if (m->channels == 4 && alpha) {
        take_channel(m, about, n - 1, 3, out);
    } else if (m->channels == 4) {
        fill_channel(m, 3, out);
    }
    return true;
}

lvni_data_video_problem lvni_video_image(const char *codec, const uint8_t *bytes, size_t n,
                                         int32_t width, int32_t height, bool alpha, uint8_t *out)
{
    image m = {.width = width, .height = height, .channels = alpha ? 4 : 3};
    lvni_video_log_begin();
    lvni_data_video_problem problem = open_decoder(&m, codec);
    if (problem == LVNI_VIDEO_FINE) {
        problem = decode(&m, bytes, n);
    }
    if (problem == LVNI_VIDEO_FINE && !take_pixels(&m, out)) {
        problem = LVNI_VIDEO_BAD_FILE;
    }
    av_packet_free(&m.state.packet);
    lvni_video_frame_close(&m.state);
    av_free(m.row);
    lvni_video_log_end();
    return problem;
}
