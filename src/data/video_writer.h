/* Writes a video whose frames are made from those of another one (video.h): MP4, H.264 where the
 * FFmpeg libraries have libx264, else MPEG-4 part 2, with the frames and time stamps of the other.
 * Called by recipes that draw into videos. */
#ifndef LEVIN_DATA_VIDEO_WRITER_H
#define LEVIN_DATA_VIDEO_WRITER_H

#include "data/video.h"

typedef struct lvni_data_video_writer lvni_data_video_writer;

typedef struct lvni_data_video_writer_options {
    const char *path; /* of the file, which is there once it is whole, or as it was before */
    const lvni_data_video *like; /* whose times the frames have; outlives the writer */
    int width, height;           /* of the frames; the video is larger by one where a side is odd */
    const char *encoder;         /* "libx264", "mpeg4"; NULL: the first of them that there is */
} lvni_data_video_writer_options;

/* LVN_ERR_UNSUPPORTED: the libraries have no encoder; LVN_ERR_IO: the file. */
lvn_status lvni_data_video_writer_open(const lvni_data_video_writer_options *options,
                                       lvni_data_video_writer **out);
const char *lvni_data_video_writer_encoder(const lvni_data_video_writer *writer);
/* The next frame, rgb (height, width, 3). LVN_ERR_INVALID: there are as many as `like` has. */
lvn_status lvni_data_video_writer_add(lvni_data_video_writer *writer, const uint8_t *rgb);
/* Both free the writer; NULL is fine for the second, which leaves nothing behind, as do errors. */
lvn_status lvni_data_video_writer_commit(lvni_data_video_writer *writer);
void lvni_data_video_writer_abort(lvni_data_video_writer *writer);

#endif
