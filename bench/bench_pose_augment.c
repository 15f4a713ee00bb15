/* What one core augments: a labelled frame of 396 x 406 pixels, decoded already, through the preset
 * dlc to 256 x 256, with its keypoints. Beside it each operation alone. What counts is processor
 * time; prints milliseconds per frame, median [least, largest] of the turns.
 *
 * usage: bench_pose_augment, run by `make bench`. Of imgaug the figure is that of a loop over
 * Lightning Pose's imgaug_transform(expand_imgaug_str_to_dict("dlc")) with one frame of the
 * mirror-mouse data per call; here the frame is made up. */
#include "recipes/pose/pose_augment.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WIDTH = 396, HEIGHT = 406, SIDE = 256, POINTS = 17, TURNS = 9, FRAMES = 60 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Every turn has the same frames and draws. */
static double turn(const lvni_pose_pipeline *p, lvni_pose_work *work, const uint8_t *rgb)
{
    const double start = now();
    for (int64_t i = 0; i < FRAMES; i++) {
        double xy[2 * POINTS];
        for (int k = 0; k < 2 * POINTS; k++) {
            xy[k] = 20.0 * k + 0.5;
        }
        lvni_pose_frame f = {.rgb = rgb, .width = WIDTH, .height = HEIGHT, .xy = xy, .k = POINTS};
        const lvn_sample_key key = {.seed = 1, .sample = i, .training = true};
        lvni_pose_draw draw;
        lvni_pose_pipeline_draw(p, &key, &draw);
        if (lvni_pose_pipeline_render(p, &draw, work, &f) != LVN_OK) {
            exit(1);
        }
    }
    return 1e3 * (now() - start) / FRAMES;
}

static void measure(const char *name, const char *text, const uint8_t *rgb)
{
    double ms[TURNS];
    lvni_pose_work work = {.field.data = NULL};
    lvni_pose_pipeline *p;
    if (lvni_pose_pipeline_make(text, SIDE, SIDE, false, &p) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        exit(1);
    }
    turn(p, &work, rgb);
    for (int i = 0; i < TURNS; i++) {
        ms[i] = turn(p, &work, rgb);
    }
    qsort(ms, TURNS, sizeof *ms, by_size);
    printf("%-34s %6.2f ms [%.2f, %.2f]\n", name, ms[TURNS / 2], ms[0], ms[TURNS - 1]);
    lvni_pose_work_free(&work);
    lvni_pose_pipeline_free(p);
}

int main(void)
{
    static const char *const alone[] = {"Rotate",          "MotionBlur",
                                        "CoarseDropout",   "CoarseSalt",
                                        "Emboss",          "ElasticTransformation",
                                        "CropAndPad",      "AllChannelsHistogramEqualization",
                                        "AllChannelsCLAHE"};
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    char text[96];
    for (int i = 0; i < WIDTH * HEIGHT * 3; i++) {
        rgb[i] = (uint8_t)(i / 3 * 7919 % 251);
    }
    measure("dlc", "dlc", rgb);
    measure("resize alone", "none", rgb);
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        snprintf(text, sizeof text, "{\"%s\": {\"p\": 1}}", alone[i]);
        measure(alone[i], text, rgb);
    }
    return 0;
}
