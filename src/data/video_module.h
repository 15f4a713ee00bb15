/* What levin_video.so does for levin: packets and frames of one video, frames to a video, and
 * images of some kinds, through the FFmpeg libraries. It is a shared object that is built where
 * their headers are and loaded at the first video (video.c), so that the program starts without
 * them. What a frame's number is, where decoding begins and what a damaged file means is decided by
 * levin itself (video_index.c, video_read.c). */
#ifndef LEVIN_DATA_VIDEO_MODULE_H
#define LEVIN_DATA_VIDEO_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LVNI_VIDEO_TABLE = 2, /* of these structs: another number is another levin's module */
    LVNI_VIDEO_NAME = 32
};
#define LVNI_VIDEO_SYMBOL "lvni_video_table"
#define LVNI_VIDEO_NO_TIME INT64_MIN /* a packet has no time stamp of this kind */

/* The bytes of a file. */
typedef struct lvni_data_video_source {
    void *user;
    /* at most n bytes at offset `at`: how many; 0 at the end, -1 failed */
    int (*read)(void *user, int64_t at, uint8_t *to, int n);
    int64_t bytes;
} lvni_data_video_source;

typedef enum lvni_data_video_problem {
    LVNI_VIDEO_FINE,
    LVNI_VIDEO_NO_CONTAINER, /* no format that the libraries know */
    LVNI_VIDEO_NO_STREAM,    /* sound or a cover alone */
    LVNI_VIDEO_NO_DECODER,
    LVNI_VIDEO_NO_SIZE, /* of its frames */
    LVNI_VIDEO_BAD_FILE,
    LVNI_VIDEO_NO_MEMORY,
    LVNI_VIDEO_NO_ENCODER
} lvni_data_video_problem;

typedef struct lvni_data_video_stream {
    int32_t width, height;       /* as stored, without the rows and columns that are cropped */
    int32_t orientation;         /* 1 to 8 as in Exif: how to turn a frame */
    int32_t one_per_packet;      /* 0: a packet may hold no frame, or several */
    double rate;                 /* frames a second on average; 0: unknown */
    int32_t unit_num, unit_den;  /* seconds of a unit of time stamps */
    char codec[LVNI_VIDEO_NAME]; /* "h264" */
    char container[LVNI_VIDEO_NAME];
    char pixels[LVNI_VIDEO_NAME]; /* "yuv420p" */
} lvni_data_video_stream;

typedef struct lvni_data_video_packet {
    int64_t shown, decoded; /* time stamps, or LVNI_VIDEO_NO_TIME */
    int64_t at;             /* its place in the file; -1: unknown */
    int32_t bytes;
    bool start;   /* what is shown from here on can be decoded from here on */
    bool hidden;  /* it is decoded but not shown (before the first edit of an edit list) */
    bool damaged; /* the container marks it so, or its end is missing */
} lvni_data_video_packet;

/* Of a file that is open there are a current packet and a current frame. One thread at a time. */
typedef struct lvni_data_video_file lvni_data_video_file;

/* Where the bytes of a file go. */
typedef struct lvni_data_video_target {
    void *user;
    /* n bytes at offset `at`, behind the last ones or over earlier ones; false: failed */
    bool (*write)(void *user, int64_t at, const uint8_t *bytes, int n);
} lvni_data_video_target;

typedef struct lvni_data_video_form {
    int32_t width, height;      /* of frames; an odd side gets a copy of its last row or column */
    int32_t unit_num, unit_den; /* seconds of a unit of time stamps */
    double rate;                /* frames a second on average; 0: unknown */
} lvni_data_video_form;

/* An MP4 file that is being written. One thread at a time. */
typedef struct lvni_data_video_output lvni_data_video_output;

/* Functions that return int: 1 there is one, 0 there is none (any more), -1 failed. */
typedef struct lvni_data_video_table {
    uint32_t version;   /* LVNI_VIDEO_TABLE */
    uint32_t libraries; /* their versions in one number: another one, another index */
    lvni_data_video_problem (*open)(const lvni_data_video_source *source,
                                    lvni_data_video_file **out);
    void (*close)(lvni_data_video_file *file); /* NULL is fine */
    /* why the thread's last call failed, in the libraries' words; "" where they gave none */
    const char *(*why)(void);
    void (*stream)(const lvni_data_video_file *file, lvni_data_video_stream *out);
    /* how many packets the container's own table has; 0: it has none */
    int64_t (*promised)(const lvni_data_video_file *file);
    int (*next_packet)(lvni_data_video_file *file, lvni_data_video_packet *out);
    /* The next packet is about the last start at or before this time stamp; 1: done. The decoder
     * forgets what it was given. */
    int (*seek)(lvni_data_video_file *file, int64_t decoded);
    /* Gives the decoder the current packet, under a number that its frame has then. */
    int (*feed)(lvni_data_video_file *file, int64_t number);
    int (*finish)(lvni_data_video_file *file); /* no packet follows; frames may */
    /* The decoder's next frame, which becomes the current one. */
    int (*next_frame)(lvni_data_video_file *file, int64_t *number, bool *damaged);
    /* The current frame as RGB of 8 bits, rows without gaps; false: it has another size. */
    bool (*convert)(lvni_data_video_file *file, uint8_t *rgb);
    /* With the encoder of this name, "libx264" or "mpeg4"; LVNI_VIDEO_NO_ENCODER: the libraries
     * have none, or it refuses the form. */
    lvni_data_video_problem (*create)(const lvni_data_video_target *target,
                                      const lvni_data_video_form *form, const char *encoder,
                                      lvni_data_video_output **out);
    /* A frame as RGB of 8 bits, shown from `time` on, in units of the form: later than the last. A
     * unit that the encoder cannot have is rounded to one that it can. */
    int (*encode)(lvni_data_video_output *output, int64_t time, const uint8_t *rgb);
    int (*complete)(lvni_data_video_output *output); /* no frame follows: the file is whole */
    void (*discard)(lvni_data_video_output *output); /* frees it, whole or not; NULL is fine */
    /* The first image of a file that the libraries' decoder `codec` reads, width x height pixels:
     * RGB of 8 bits, or RGB and alpha, rows without gaps. From any thread. */
    lvni_data_video_problem (*image)(const char *codec, const uint8_t *bytes, size_t n,
                                     int32_t width, int32_t height, bool alpha, uint8_t *out);
} lvni_data_video_table;

typedef const lvni_data_video_table *(*lvni_data_video_table_fn)(void);

#endif
