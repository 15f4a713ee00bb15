/* An open video (data/video_module.h) as the files of this folder share it. */
#ifndef LEVIN_DATA_VIDEO_VIDEO_IMPL_H
#define LEVIN_DATA_VIDEO_VIDEO_IMPL_H

#include "data/video_module.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>

/* Of a frame, 8192 x 8192: a damaged header may ask for any memory, for 16 frames at a time. */
enum { LVNI_VIDEO_MAX_PIXELS = 1 << 26 };

typedef struct lvni_video_state {
    lvni_data_video_source source;
    int64_t at; /* where the libraries read next */
    AVFormatContext *format;
    AVIOContext *io;
    AVStream *stream;
    AVCodecContext *decoder;
    int width, height; /* of its frames */
    AVPacket *packet;  /* the current one */
    AVFrame *frame;    /* the current one */
    AVFrame *rgb;      /* a frame converted */
    int32_t *rows;     /* of video_rgb.c */
    struct SwsContext *scale;
    /* what `scale` was made for */
    int scale_format, scale_space, scale_range;
} lvni_video_state;

/* ---- video_log.c: what the libraries print is kept, not printed ---- */

/* Around each call of the libraries: until lvni_video_log_end the messages of this thread are kept.
 * Those of other threads, of a program that uses the libraries itself, are printed as before. */
void lvni_video_log_begin(void);
void lvni_video_log_end(void);
/* Why the thread's last call failed: `code` in words, unless a message gave the reason. */
void lvni_video_log_failed(int code);
void lvni_video_log_note(const char *why); /* it failed for this reason */
const char *lvni_video_log_text(void);

/* ---- video_start.c ---- */

/* May decoding begin at this packet, with the same frames as from the beginning of the file? */
bool lvni_video_start_is(const AVCodecParameters *codec, const AVPacket *packet);
/* Is the packet decoded without being shown, by its own header? */
bool lvni_video_start_hidden(const AVCodecParameters *codec, const AVPacket *packet);

/* ---- video_frame.c: the decoder, as the functions of the table, but between the two above ---- */

lvni_data_video_problem lvni_video_frame_open(lvni_video_state *file);
void lvni_video_frame_close(lvni_video_state *file);
int lvni_video_frame_feed(lvni_video_state *file, int64_t number);
int lvni_video_frame_finish(lvni_video_state *file);
int lvni_video_frame_next(lvni_video_state *file, int64_t *number, bool *damaged);
bool lvni_video_frame_convert(lvni_video_state *file, uint8_t *rgb);

/* ---- video_rgb.c: RGB of the frames that most videos have ---- */

bool lvni_video_rgb_can(const AVFrame *frame);
/* Of the current frame; full: its numbers are 0 to 255. False: no memory. */
bool lvni_video_rgb_fill(lvni_video_state *file, bool full, uint8_t *rgb);

/* ---- video_output.c: files that are written, as the functions of the table ---- */

lvni_data_video_problem lvni_video_output_create(const lvni_data_video_target *target,
                                                 const lvni_data_video_form *form,
                                                 const char *encoder, lvni_data_video_output **out);
int lvni_video_output_encode(lvni_data_video_output *output, int64_t time, const uint8_t *rgb);
int lvni_video_output_complete(lvni_data_video_output *output);
void lvni_video_output_discard(lvni_data_video_output *output);

/* ---- video_yuv.c: what an encoder takes of RGB ---- */

/* rgb (height, width, 3) to a frame of yuv420p, which is larger by one where a side is odd. */
void lvni_video_yuv_fill(const uint8_t *rgb, int width, int height, AVFrame *frame);

/* ---- video_image.c: as `image` of the table ---- */

lvni_data_video_problem lvni_video_image(const char *codec, const uint8_t *bytes, size_t n,
                                         int32_t width, int32_t height, bool alpha, uint8_t *out);

#endif
