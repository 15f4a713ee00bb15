/* What all readers of videos share: a decoded frame as the network takes it (pose_video.h). */
#include "data/resample.h"
#include "recipes/pose/pose_video.h"

enum { CHANNELS = 3 };

const float lvni_pose_mean[CHANNELS] = {0.485f, 0.456f, 0.406f},
            lvni_pose_deviation[CHANNELS] = {0.229f, 0.224f, 0.225f};

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
