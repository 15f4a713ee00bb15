/* Videos: frame n of a file as RGB of 8 bits, the same bytes whether the frames before it were read
 * or not. video.c opens a file and loads levin_video.so (video_module.h), video_index.c counts the
 * frames and finds where decoding may begin, video_read.c reads. Called by the recipes that read
 * videos. */
#ifndef LEVIN_DATA_VIDEO_H
#define LEVIN_DATA_VIDEO_H

#include "data/video_module.h"

#include <levin/status.h>

/* ---- one file ---- */

/* Read-only once it is open, so all threads may share it; the file itself is open only in decoders.
 */
typedef struct lvni_data_video lvni_data_video;

typedef struct lvni_data_video_info {
    const char *path;
    int64_t frames; /* that can be read, in the order in which they are shown */
    /* what the file holds by its own account: more than `frames` where its end is missing, or
     * damaged */
    int64_t promised;
    int width, height; /* as shown: upright, without cropped rows */
    double rate;       /* frames a second on average; 0: unknown */
    double duration;   /* seconds from the first frame to the end of the last */
    const char *codec, *container;
    uint64_t contents; /* a hash of the file's size and of its first and last 4 KiB */
} lvni_data_video_info;

/* Before several: LVN_ERR_UNSUPPORTED where there is no module, so that no video can be read; the
 * error begins with `what`. */
lvn_status lvni_data_video_ready(const char *what);
/* With the index that the folder `indices` has of a file of these contents, else by reading all
 * packets of the video. NULL: there is no such folder. LVN_ERR_NOT_FOUND and LVN_ERR_IO: the file;
 * LVN_ERR_UNSUPPORTED: there is no module, no decoder; LVN_ERR_CORRUPT: no video, or none of its
 * frames can be read. */
lvn_status lvni_data_video_open(const char *path, const char *indices, lvni_data_video **out);
/* Keeps its index in the folder, which is made, unless it came from there. Any number of processes
 * at once. What cannot be written is read from the video the next time, and not an error. */
lvn_status lvni_data_video_keep(const lvni_data_video *video, const char *indices);
void lvni_data_video_close(lvni_data_video *video); /* NULL is fine */
void lvni_data_video_describe(const lvni_data_video *video, lvni_data_video_info *out);
/* Seconds from the first frame to this one. */
double lvni_data_video_time(const lvni_data_video *video, int64_t frame);
/* LVN_OK where the file has all of its frames, else LVN_ERR_CORRUPT with the first that is
 * missing. */
lvn_status lvni_data_video_check(const lvni_data_video *video);

/* ---- frames ---- */

/* Decoders of one thread: of the videos that it read last, at most `open` of them. They are
 * destroyed before the videos are closed. */
typedef struct lvni_data_video_decoders lvni_data_video_decoders;

lvn_status lvni_data_video_decoders_create(int open, lvni_data_video_decoders **out);
void lvni_data_video_decoders_destroy(lvni_data_video_decoders *decoders); /* NULL is fine */
/* Frames first to first + n - 1 to rgb (n, height, width, 3). Frames that follow those of the last
 * call on the video are decoded without a seek. LVN_ERR_CORRUPT names the frame that cannot be
 * read: what is damaged, and what is decoded from that, is an error on every way to it. */
lvn_status lvni_data_video_read(lvni_data_video_decoders *decoders, const lvni_data_video *video,
                                int64_t first, int64_t n, uint8_t *rgb);

#endif
