/* A video's file as video.c opens it and video_read.c decodes it. */
#ifndef LEVIN_DATA_VIDEO_OPEN_H
#define LEVIN_DATA_VIDEO_OPEN_H

#include "data/video.h"
#include "data/video_index.h"

struct lvni_data_video {
    char *path;
    const lvni_data_video_table *table;
    lvni_data_video_index index;
    char *kept; /* the file that the index came from; NULL: from the video */
};

/* Loads the module the first time. LVN_ERR_UNSUPPORTED: there is none, so that `what` ("videos")
 * cannot be read, and which packages it needs. */
lvn_status lvni_data_video_get_module(const char *path, const char *what,
                                      const lvni_data_video_table **out);

/* A file whose bytes the module reads. It does not move while the module has it. */
typedef struct lvni_data_video_bytes {
    int fd; /* -1: not open */
    lvni_data_contents identity;
    lvni_data_video_file *file; /* NULL: not open */
} lvni_data_video_bytes;

/* Errors name the path. Nothing is open after a failure. */
lvn_status lvni_data_video_bytes_open(const lvni_data_video_table *table, const char *path,
                                      lvni_data_video_bytes *out);
void lvni_data_video_bytes_close(const lvni_data_video_table *table, lvni_data_video_bytes *bytes);
/* What a user can do about a video that is not read, or is damaged. */
#define LVNI_VIDEO_CONVERT "ffmpeg -i IN -c:v libx264 -pix_fmt yuv420p OUT.mp4"

#endif
