/* Videos for tests: made by ffmpeg, and what ffmpeg itself reads in them. */
#ifndef LEVIN_TESTS_VIDEO_SUPPORT_H
#define LEVIN_TESTS_VIDEO_SUPPORT_H

#include "data/video.h"

#include <levin/status.h>

#include <stdio.h>

/* A folder for the program's files, made and removed by fixtures of all tests (cmocka's). */
int video_folder_make(void **state);
int video_folder_remove(void **state);
/* Path of a file there; valid for four more calls. */
const char *video_path(const char *name);

/* Is there a program ffmpeg, and the module? Prints why not. */
bool video_can_test(void);
#define NEEDS_FFMPEG()                                                                             \
    if (!video_can_test()) {                                                                       \
        skip();                                                                                    \
    }
/* A shell command in the folder; a failed one fails the test, with its words. */
void video_shell(const char *command);
#define VIDEO_RUN(...)                                                                             \
    do {                                                                                           \
        char command_[2048];                                                                       \
        snprintf(command_, sizeof command_, __VA_ARGS__);                                          \
        video_shell(command_);                                                                     \
    } while (0)

/* Checksums (zlib's CRC-32) of RGB frames. */
typedef struct video_sums {
    int64_t n;
    uint32_t *sum; /* freed by the caller */
} video_sums;

/* Of all frames that ffmpeg reads, none doubled or dropped, upright, converted as levin does it. */
video_sums video_sums_of_ffmpeg(const char *name);
uint32_t video_sum(const lvni_data_video *video, const uint8_t *rgb);
/* Opens the file, whose frames it reads one after the other, backwards and at random: all are those
 * of ffmpeg. */
void video_check(const char *name);

#endif
