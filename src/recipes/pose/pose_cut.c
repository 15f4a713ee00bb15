/* Clips of a video and their rows (pose_cut.h). */
#include "recipes/pose/pose_cut.h"

#include "recipes/pose/pose_context.h"

#include <string.h>

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

lvni_pose_cut lvni_pose_cut_make(int64_t frames, int64_t most)
{
    enum { SIDE = LVNI_POSE_WINDOW_SIDE };
    const int64_t clips = divide_up(frames, most - 2 * SIDE), results = divide_up(frames, clips);
    return (lvni_pose_cut){.frames = frames,
                           .results = results,
                           .clip = results + 2 * SIDE,
                           .side = SIDE,
                           .clips = clips};
}

lvni_pose_cut lvni_pose_cut_none(int64_t frames)
{
    return (lvni_pose_cut){.frames = frames, .results = frames, .clip = frames, .clips = 1};
}

int64_t lvni_pose_cut_samples(const lvni_pose_cut *c)
{
    return c->clips * c->clip;
}

/* Before the ends of the video count. */
static int64_t place_of(const lvni_pose_cut *c, int64_t sample)
{
    return sample / c->clip * c->results + sample % c->clip - c->side;
}

int64_t lvni_pose_cut_frame(const lvni_pose_cut *c, int64_t sample)
{
    const int64_t frame = place_of(c, sample);
    return frame < 0 ? 0 : frame < c->frames ? frame : c->frames - 1;
}

int64_t lvni_pose_cut_row(const lvni_pose_cut *c, int64_t sample)
{
    const int64_t at = sample % c->clip, frame = place_of(c, sample);
    return at >= c->side && at < c->side + c->results && frame < c->frames ? frame : -1;
}

void lvni_pose_cut_end(const lvni_pose_cut *c, float *value, int64_t n)
{
    const int64_t first = c->side, last = c->frames - 1 - c->side;
    if (last < first) {
        return; /* all windows have frames more than once */
    }
    for (int64_t i = 0; i < c->side; i++) {
        memcpy(value + i * n, value + first * n, (size_t)n * sizeof *value);
        memcpy(value + (last + 1 + i) * n, value + last * n, (size_t)n * sizeof *value);
    }
}
