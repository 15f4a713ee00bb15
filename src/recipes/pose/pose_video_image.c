/* What all readers of videos share: which files of a folder are videos, and a decoded frame as the
 * network takes it (pose_video.h). */
#include "core/error.h"
#include "core/vfs.h"
#include "data/resample.h"
#include "recipes/pose/pose_video.h"
#include "run/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CHANNELS = 3 };

const float lvni_pose_mean[CHANNELS] = {0.485f, 0.456f, 0.406f},
            lvni_pose_deviation[CHANNELS] = {0.229f, 0.224f, 0.225f};

static bool has_ending_of_video(const char *name)
{
    static const char *const endings[] = {".mp4", ".avi", ".mov", ".mkv", ".webm"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (lvni_run_output_ends_in(name, endings[i], strlen(endings[i]))) {
            return true;
        }
    }
    return false;
}

lvn_status lvni_pose_next_video(const char *key, const char *folder, char name[NAME_MAX + 1])
{
    char least[NAME_MAX + 1] = "";
    DIR *dir = lvni_core_path_is_folder(folder) ? opendir(folder) : NULL;
    if (dir == NULL && lvni_core_path_is_folder(folder)) {
        LVN_FAIL(LVN_ERR_IO, "%s=%s: %s", key, folder, strerror(errno));
    }
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        if (has_ending_of_video(e->d_name) && strcmp(e->d_name, name) > 0 &&
            (least[0] == '\0' || strcmp(e->d_name, least) < 0)) {
            snprintf(least, sizeof least, "%s", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    memcpy(name, least, sizeof least);
    return LVN_OK;
}

lvn_status lvni_pose_video_image(lvni_data_scratch *scratch, int from_height, int from_width,
                                 bool levels, int height, int width, float *out)
{
    const lvni_data_image image = {.rgb = scratch->pixels.data,
                                   .channels = CHANNELS,
                                   .width = from_width,
                                   .height = from_height,
                                   .scale = 1.0};
    const lvni_data_box all = {.width = from_width, .height = from_height};
    lvni_data_resample_target target = {
        .data = out, .step_x = CHANNELS, .step_y = (ptrdiff_t)CHANNELS * width};
    for (int c = 0; c < CHANNELS; c++) {
        target.scale[c] = levels ? 1.0f : 1.0f / (255.0f * lvni_pose_deviation[c]);
        target.bias[c] = levels ? 0.0f : -lvni_pose_mean[c] / lvni_pose_deviation[c];
    }
    return lvni_data_resample(scratch, &image, &all, width, height, &target);
}
