/* Damaged videos, and damaged indices of videos. Without the module for videos only the latter. */
#include "fuzz.h"

#include "core/alloc.h"
#include "core/hash.h"
#include "data/video.h"
#include "data/video_index.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAGIC = 24, HASHED = 32, MAX_FRAME = 1 << 20 };

/* The hash is put right first, else nearly every change ends there. */
static void parse_index(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size);
    CHECK(bytes != NULL);
    memcpy(bytes, data, size);
    if (size > HASHED) {
        const uint64_t hash = lvni_core_hash(LVNI_CORE_HASH, bytes + HASHED, size - HASHED);
        memcpy(bytes + MAGIC, &hash, sizeof hash);
    }
    lvni_data_video_index index = {.frames = 0};
    const lvn_status status = lvni_data_video_index_parse(bytes, size, "fuzz", &index);
    CHECK_REPORTED(status);
    for (int64_t f = 0; status == LVN_OK && f < index.frames; f++) {
        CHECK(index.frame[index.packet[f]] == f);
        const int64_t start = lvni_data_video_index_start(&index, f);
        CHECK(start >= 0 && start < index.starts && index.start[start].frame <= f);
    }
    lvni_data_video_index_free(&index);
    free(bytes);
}

/* Frames 0, the last and one in the middle. */
static void read_frames(const lvni_data_video *video, const lvni_data_video_info *info)
{
    lvni_data_video_decoders *decoders;
    const size_t bytes = (size_t)info->width * (size_t)info->height * 3;
    CHECK(lvni_data_video_decoders_create(1, &decoders) == LVN_OK);
    uint8_t *rgb = malloc(bytes);
    CHECK(rgb != NULL);
    const int64_t frames[] = {0, info->frames - 1, info->frames / 2};
    for (int i = 0; i < 3; i++) {
        const lvn_status status = lvni_data_video_read(decoders, video, frames[i], 1, rgb);
        CHECK_REPORTED(status);
    }
    lvni_data_video_decoders_destroy(decoders);
    free(rgb);
}

static void read_video(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    lvni_data_video *video = NULL;
    const lvn_status status = lvni_data_video_open(path, NULL, &video);
    CHECK_REPORTED(status);
    CHECK((status == LVN_OK) == (video != NULL));
    if (status == LVN_OK) {
        lvni_data_video_info info;
        lvni_data_video_describe(video, &info);
        CHECK(info.frames >= 1 && info.promised >= info.frames);
        if (info.width * (int64_t)info.height <= MAX_FRAME) {
            read_frames(video, &info);
        }
    }
    lvni_data_video_close(video);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    if (size >= 11 && memcmp(data, "levin video", 11) == 0) {
        parse_index(data, size);
    } else {
        read_video(data, size);
    }
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
