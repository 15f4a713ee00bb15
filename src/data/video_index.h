/* The index of a video: which packet each frame comes from, in the order in which they are shown,
 * and where decoding may begin. Called by video.c and video_read.c alone. */
#ifndef LEVIN_DATA_VIDEO_INDEX_H
#define LEVIN_DATA_VIDEO_INDEX_H

#include "data/contents.h"
#include "data/video_module.h"

#include <levin/status.h>

/* Decoding from this packet gives the same frames as decoding from the first one, for all frames
 * from `frame` on that come from it or a later packet. The first start is packet 0, frame 0. */
typedef struct lvni_data_video_start {
    int64_t shown, decoded; /* the packet's time stamps */
    int64_t at;             /* and place, by which it is known again */
    int32_t bytes, packet;
    int32_t frame, unused;
} lvni_data_video_start;

typedef struct lvni_data_video_index {
    lvni_data_contents identity; /* the file as it was; in a file of an index without its time */
    uint32_t libraries;          /* lvni_data_video_table.libraries */
    lvni_data_video_stream stream;
    int64_t frames, packets, starts;
    int64_t promised; /* lvni_data_video_info.promised */
    int64_t *time;    /* (frames) time stamps */
    int32_t *packet;  /* (frames) number of the packet */
    int32_t *frame;   /* (packets) the inverse; -1: none */
    lvni_data_video_start *start;
} lvni_data_video_index;

/* Reads all packets of a file that was just opened. *known: they show which frames there are. Else
 * the second has to find that out by decoding the file, opened again. identity, libraries and
 * stream are set already, and stay. */
lvn_status lvni_data_video_index_scan(const lvni_data_video_table *table,
                                      lvni_data_video_file *file, const char *path,
                                      lvni_data_video_index *out, bool *known);
lvn_status lvni_data_video_index_decode(const lvni_data_video_table *table,
                                        lvni_data_video_file *file, const char *path,
                                        lvni_data_video_index *out);
/* The last start from which `frame` can be decoded. */
int64_t lvni_data_video_index_start(const lvni_data_video_index *index, int64_t frame);
void lvni_data_video_index_free(lvni_data_video_index *index);

/* LVN_ERR_NOT_FOUND: there is none. LVN_ERR_CORRUPT: it is damaged, or of another levin. */
lvn_status lvni_data_video_index_read(const char *path, lvni_data_video_index *out);
lvn_status lvni_data_video_index_write(const char *path, const lvni_data_video_index *index);
/* The same from bytes (fuzzing). */
lvn_status lvni_data_video_index_parse(const uint8_t *bytes, size_t n, const char *path,
                                       lvni_data_video_index *out);

#endif
