/* The dataset of clips: which frames of which videos a step has, and that they are those of the
 * reader of videos from any thread and in any order. */
#include "core/alloc.h"
#include "data/image.h"
#include "plan/plan.h"
#include "recipes/pose/pose_clips.h"
#include "recipes/pose/pose_frames.h"
#include "recipes/pose/pose_video.h"
#include "support/test.h"
#include "video_support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 32, VALUES = SIDE * SIDE * 3, FRAMES_A = 40, FRAMES_B = 23 };

typedef struct sample {
    float image[VALUES], matrix[6], frame[2];
} sample;

BEFORE_ALL()
{
    return video_folder_make(state);
}

AFTER_ALL()
{
    return video_folder_remove(state);
}

/* Two videos of 40 and 23 frames of other sizes. */
static bool make_videos(const char *folder)
{
    if (!video_can_test()) {
        return false;
    }
    if (access(video_path(folder), F_OK) == 0) {
        return true;
    }
    VIDEO_RUN("mkdir -p %s", folder);
    VIDEO_RUN("ffmpeg -v error -y -f lavfi -i testsrc2=size=48x40:rate=10:duration=4 "
              "-c:v mpeg4 -g 9 %s/a.mp4",
              folder);
    VIDEO_RUN("ffmpeg -v error -y -f lavfi -i testsrc=size=64x32:rate=10:duration=2.3 "
              "-c:v mpeg4 -g 9 %s/b.mp4",
              folder);
    return true;
}

static lvni_pose_clips_options options_of(const char *folder, int64_t batch, int m)
{
    return (lvni_pose_clips_options){.folder = video_path(folder),
                                     .height = SIDE,
                                     .width = SIDE,
                                     .seed = 11,
                                     .batch = batch,
                                     .micro_batches = m};
}

static lvn_dataset *open_clips(const lvni_pose_clips_options *o)
{
    lvn_dataset *d;
    if (lvni_pose_clips_open(o, &d) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return d;
}

static lvn_status get(const lvn_dataset *d, int64_t at, bool training, sample *out)
{
    void *const field[] = {out->image, out->matrix, out->frame};
    const lvn_sample_key key = {.seed = 5, .sample = at, .training = training};
    return d->cls->get(d, &key, field);
}

/* ---- which frames ---- */

/* As the plan cuts them, in every step. */
TEST(shares_are_those_of_the_plan)
{
    if (!make_videos("two")) {
        skip();
    }
    static const struct {
        int64_t batch;
        int m;
    } cases[] = {{16, 3}, {16, 1}, {5, 5}, {16, 8}, {7, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lvni_plan_stream stream = {
            .name = LVNI_POSE_CLIPS, .n_samples = LVNI_PLAN_ENDLESS, .batch = cases[i].batch};
        lvni_plan plan;
        const lvni_plan_options po = {.n_samples = 100,
                                      .batch_size = 16,
                                      .micro_batches = cases[i].m,
                                      .stream = &stream,
                                      .n_streams = 1};
        assert_int_equal(lvni_plan_make(&po, &plan), LVN_OK);
        const lvni_pose_clips_options o = options_of("two", cases[i].batch, cases[i].m);
        lvn_dataset *d = open_clips(&o);
        lvni_pose_clips_info info;
        lvni_pose_clips_describe(d, &info);
        assert_int_equal(info.longest, lvni_plan_stream_largest(&plan, 0));
        assert_int_equal(info.clips, FRAMES_A / info.longest + FRAMES_B / info.longest);
        for (int64_t step = 0; step < 5; step++) {
            for (int m = 0; m < cases[i].m; m++) {
                const lvni_plan_range r = lvni_plan_stream_micro_batch(&plan, 0, 0, step, m);
                const int64_t begin = lvni_pose_clips_place(d, r.start).video_frame;
                assert_int_equal(begin % info.longest, 0);
                for (int64_t k = 0; k < r.count; k++) {
                    const lvni_pose_clip_place p = lvni_pose_clips_place(d, r.start + k);
                    assert_int_equal(p.clip, step * cases[i].m + m);
                    assert_int_equal(p.frame, k);
                    assert_int_equal(p.video_frame, begin + k);
                    assert_true(p.video_frame < (p.video == 0 ? FRAMES_A : FRAMES_B));
                }
            }
        }
        lvn_dataset_destroy(d);
    }
}

/* Each clip once, in an order of the seed and the pass. */
TEST(a_pass_has_every_clip)
{
    if (!make_videos("two")) {
        skip();
    }
    enum { L = 4, CLIPS = FRAMES_A / L + FRAMES_B / L, PASSES = 6 };
    lvni_pose_clips_options o = options_of("two", L, 1);
    int order[2][PASSES][CLIPS];
    for (int seed = 0; seed < 2; seed++, o.seed++) {
        lvn_dataset *d = open_clips(&o);
        for (int pass = 0; pass < PASSES; pass++) {
            bool seen[CLIPS] = {false};
            for (int i = 0; i < CLIPS; i++) {
                const lvni_pose_clip_place p =
                    lvni_pose_clips_place(d, (int64_t)(pass * CLIPS + i) * L);
                const int clip = p.video * (FRAMES_A / L) + (int)(p.video_frame / L);
                assert_false(seen[clip]);
                seen[clip] = true;
                order[seed][pass][i] = clip;
            }
        }
        lvn_dataset_destroy(d);
    }
    for (int pass = 1; pass < PASSES; pass++) {
        assert_memory_not_equal(order[0][pass], order[0][0], sizeof order[0][0]);
    }
    assert_memory_not_equal(order[1][0], order[0][0], sizeof order[0][0]);
}

/* ---- what is in them ---- */

/* Without augmentation, also of an epoch that trains: what predictions see of the same frame. */
TEST(frames_are_those_of_the_video)
{
    if (!make_videos("two")) {
        skip();
    }
    static sample s;
    static float image[VALUES], points[4], frame[2];
    const lvni_pose_clips_options o = options_of("two", 16, 3);
    lvn_dataset *d = open_clips(&o), *video[2];
    for (int v = 0; v < 2; v++) {
        const lvni_pose_video_options vo = {.path = video_path(v == 0 ? "two/a.mp4" : "two/b.mp4"),
                                            .height = SIDE,
                                            .width = SIDE,
                                            .keypoints = 1};
        assert_int_equal(lvni_pose_video_open(&vo, &video[v]), LVN_OK);
    }
    for (int64_t i = 0; i < 48; i++) {
        const lvni_pose_clip_place p = lvni_pose_clips_place(d, i);
        int64_t place;
        void *const field[] = {image, points, frame, &place};
        const lvn_sample_key key = {.sample = p.video_frame};
        assert_int_equal(video[p.video]->cls->get(video[p.video], &key, field), LVN_OK);
        assert_int_equal(get(d, i, true, &s), LVN_OK);
        assert_memory_equal(s.image, image, sizeof image);
        assert_memory_equal(s.frame, frame, sizeof frame);
        assert_memory_equal(s.matrix, ((const float[]){1, 0, 0, 0, 1, 0}), sizeof s.matrix);
    }
    lvn_dataset_destroy(video[0]);
    lvn_dataset_destroy(video[1]);
    lvn_dataset_destroy(d);
}

enum { ASKED = 64, THREADS = 4 };
static sample expected[ASKED];
typedef struct asker {
    const lvn_dataset *d;
    int first, wrong;
} asker;

/* Every THREADS-th sample, the last ones of every 16 first. */
static void *ask(void *argument)
{
    asker *a = argument;
    sample *s = malloc(sizeof *s);
    for (int i = a->first; s != NULL && i < ASKED; i += THREADS) {
        const int at = i / 16 * 16 + 15 - i % 16;
        a->wrong += get(a->d, at, true, s) != LVN_OK || memcmp(s, &expected[at], sizeof *s) != 0;
    }
    free(s);
    return NULL;
}

TEST(threads_and_order_do_not_matter)
{
    if (!make_videos("two")) {
        skip();
    }
    lvni_pose_clips_options o = options_of("two", 16, 3);
    o.augments = true;
    lvn_dataset *d = open_clips(&o);
    for (int i = 0; i < ASKED; i++) {
        assert_int_equal(get(d, i, true, &expected[i]), LVN_OK);
    }
    const int size = 6; /* of the first clip */
    for (int i = 1; i <= size; i++) {
        const bool same = memcmp(expected[i].matrix, expected[0].matrix, 24) == 0;
        assert_true(same == (i < size));
    }
    lvn_dataset_destroy(d);
    d = open_clips(&o);
    asker a[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        a[i] = (asker){.d = d, .first = i};
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &a[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(a[i].wrong, 0);
    }
    static sample plain;
    assert_int_equal(get(d, 3, false, &plain), LVN_OK);
    assert_memory_not_equal(plain.image, expected[3].image, sizeof plain.image);
    assert_true(plain.matrix[0] == 1.0f && plain.matrix[1] == 0.0f);
    lvn_dataset_destroy(d);
}

/* ---- what cannot be read ---- */

TEST(short_and_broken_videos_are_left_out)
{
    if (!make_videos("some")) {
        skip();
    }
    VIDEO_RUN("head -c 100 some/a.mp4 >some/c.mp4; echo no >some/d.txt");
    lvni_pose_clips_options o = options_of("some", 30, 1);
    lvn_dataset *d = open_clips(&o);
    lvni_pose_clips_info info;
    lvni_pose_clips_describe(d, &info);
    assert_int_equal(info.videos, 1);
    assert_int_equal(info.clips, 1);
    lvn_dataset_destroy(d);
    o.batch = 41;
    assert_int_equal(lvni_pose_clips_open(&o, &d), LVN_ERR_USAGE);
    const char *message = lvn_last_error()->message;
    assert_non_null(strstr(message, "data.video_dir="));
    assert_non_null(strstr(message, "some: training on frames without labels needs a video of 41"));
    assert_non_null(strstr(message, "a.mp4 has 40 frames, and a clip has 41"));
    VIDEO_RUN("mkdir -p none");
    o.folder = video_path("none");
    assert_int_equal(lvni_pose_clips_open(&o, &d), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "it has none"));
}

/* Of 8 frames number 3 is damaged. */
static void make_damaged(const char *folder)
{
    VIDEO_RUN("mkdir -p %s; ffmpeg -v error -y -f lavfi -i "
              "testsrc2=size=48x40:rate=10:duration=0.8 -c:v png whole.mov",
              folder);
    VIDEO_RUN("python3 -c \"b = open('whole.mov', 'rb').read().split(b'\\x89PNG'); "
              "b[4] = bytes(len(b[4])); open('%s/a.mov', 'wb').write(b'\\x89PNG'.join(b))\"",
              folder);
}

/* As a whole, whichever of its frames is asked for first. */
TEST(another_clip_takes_the_place_of_a_damaged_one)
{
    if (!video_can_test()) {
        skip();
    }
    enum { L = 4, SAMPLES = 6 * L };
    static sample s, good[L];
    make_damaged("bad");
    lvni_pose_clips_options o = options_of("bad", L, 1);
    for (int backwards = 0; backwards < 2; backwards++) {
        lvn_dataset *d = open_clips(&o);
        int own[2] = {0, 0};
        for (int i = 0; i < L; i++) { /* a clip of frames 4 to 7, at one of the first two places */
            const int64_t first = lvni_pose_clips_place(d, 0).video_frame == L ? 0 : L;
            assert_int_equal(lvni_pose_clips_place(d, first).video_frame, L);
            assert_int_equal(get(d, first + i, true, &good[i]), LVN_OK);
        }
        assert_memory_not_equal(good[0].image, good[1].image, sizeof good[0].image);
        for (int i = 0; i < SAMPLES; i++) {
            const int at = backwards ? SAMPLES - 1 - i : i;
            own[lvni_pose_clips_place(d, at).video_frame / L]++;
            assert_int_equal(get(d, at, true, &s), LVN_OK);
            assert_memory_equal(s.image, good[at % L].image, sizeof s.image);
        }
        assert_true(own[0] > 0 && own[1] > 0);
        lvn_dataset_destroy(d);
    }
}

TEST(damaged_clips_may_be_errors)
{
    if (!video_can_test()) {
        skip();
    }
    static sample s;
    make_damaged("worse");
    for (int stops = 0; stops < 2; stops++) {
        lvni_pose_clips_options o = options_of("worse", 8, 1);
        o.stops = stops == 1;
        lvn_dataset *d = open_clips(&o);
        assert_int_equal(get(d, 0, true, &s), LVN_ERR_USAGE);
        const char *message = lvn_last_error()->message;
        assert_non_null(strstr(message, o.stops ? "a.mov" : "worse: each of its 1 clip of 8"));
        assert_non_null(strstr(message, o.stops ? "frame 3 of 8" : "see the warnings"));
        lvn_dataset_destroy(d);
    }
}

/* Of opening, and of the first two frames. */
TEST(allocations_may_fail)
{
    if (!make_videos("two")) {
        skip();
    }
    static sample s;
    lvni_pose_clips_options o = options_of("two", 16, 3);
    o.augments = true;
    for (int64_t k = 1;; k++) {
        lvn_dataset *d = NULL;
        lvni_data_scratch_release();
        (void)lvni_core_alloc_fail_at(k);
        lvn_status status = lvni_pose_clips_open(&o, &d);
        for (int i = 0; i < 2 && status == LVN_OK; i++) {
            status = get(d, i, true, &s);
        }
        const int64_t left = lvni_core_alloc_fail_at(0);
        lvn_dataset_destroy(d);
        if (left > 0) {
            assert_int_equal(status, LVN_OK);
            assert_int_in_range(k, 20, 1000);
            return;
        }
        assert_int_equal(status, LVN_ERR_MEMORY);
    }
}
