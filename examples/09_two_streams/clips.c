/* A step from two sets of data: few labelled images, and many short video clips without labels. The
 * network finds a disc in an image; in a clip it must not find it far from where it was a frame
 * before. The clips come from a video that can only be decoded forwards, as real ones, so each
 * loader thread keeps a decoder.
 *
 *   cc -Iinclude examples/09_two_streams/clips.c -Lbuild -llevin -lm -Wl,-rpath,$PWD/build -o clips
 *   ./clips out=out/clips                   trains on 64 images and 800 clips
 */
#include <levin/levin.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 16, FRAMES = 4 };         /* pixels of a side; frames of a clip */
static const double FASTEST = 0.6;      /* pixels that the disc moves in a frame */
static const double PIXELS = SIZE / 2.; /* positions are -1 .. 1 over the image */

/* ---- the network: where the disc is, (x, y) ---- */

typedef struct finder {
    lvn_module base;
    lvn_module *conv1, *conv2, *head;
} finder;

static lvn_tensor *finder_forward(const lvn_module *module, lvn_tensor *x) /* (N, 16, 16, 1) */
{
    const finder *m = (const finder *)module;
    x = lvn_max_pool2d(lvn_relu(lvn_forward(m->conv1, x)), 2); /* (N, 8, 8, 8) */
    x = lvn_max_pool2d(lvn_relu(lvn_forward(m->conv2, x)), 2); /* (N, 4, 4, 16) */
    return lvn_forward(m->head, lvn_flatten(x, 1));            /* (N, 2) */
}

/* How far the disc seems to move between the frames of clips (N, T, 16, 16, 1), squared: in truth a
 * little, found in noise a lot. */
static lvn_tensor *temporal_loss(const lvn_module *m, const lvn_batch *clips)
{
    lvn_tensor *frames = lvn_reshape(clips->image, LVN_SHAPE(-1, SIZE, SIZE, 1));
    lvn_tensor *at = lvn_reshape(lvn_forward(m, frames), LVN_SHAPE(-1, FRAMES, 2));
    lvn_tensor *moved = lvn_sub(lvn_slice(at, 1, 1, FRAMES), lvn_slice(at, 1, 0, FRAMES - 1));
    return lvn_mean(lvn_square(moved));
}

static lvn_tensor *finder_training_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    const lvn_batch *clips = lvn_batch_stream(batch, "clips"); /* NULL in validation */
    lvn_tensor *at = lvn_forward(m, batch->image);
    lvn_tensor *loss = lvn_mse_loss(at, batch->label);
    lvn_log(step, "pixels", /* off in one direction */
            lvn_mul_scalar(lvn_mean(lvn_abs(lvn_sub(at, batch->label))), PIXELS));
    if (clips != NULL) {
        lvn_tensor *temporal = temporal_loss(m, clips);
        lvn_log(step, "temporal", temporal);
        loss = lvn_add(loss, temporal);
    }
    lvn_log(step, "loss", loss);
    return loss;
}

static lvn_status finder_build(lvn_module *module, lvn_builder *b)
{
    finder *m = (finder *)module;
    m->conv1 = lvn_nn_conv2d(b, "conv1", 1, 8, 3, .padding = 1);
    m->conv2 = lvn_nn_conv2d(b, "conv2", 8, 16, 3, .padding = 1);
    m->head = lvn_nn_linear(b, "head", 4 * 4 * 16, 2);
    return lvn_builder_status(b);
}

static const lvn_module_class finder_class = {
    .name = "finder",
    .size = sizeof(finder),
    .build = finder_build,
    .forward = finder_forward,
    .training_step = finder_training_step, /* validation_step defaults to the same */
};

/* ---- images ---- */

/* A disc at (x, y) on noise of its own for every `image`. */
static void draw(uint64_t seed, int64_t image, const double at[2], float *pixel)
{
    const lvn_sample_key own = {.seed = seed, .sample = image};
    for (int i = 0; i < SIZE * SIZE; i++) {
        const int column = i % SIZE, row = i / SIZE;
        const double x = column + 0.5 - at[0], y = row + 0.5 - at[1];
        const double noise = lvn_sample_uniform(&own, 0, (uint64_t)i);
        pixel[i] = (float)(0.7 * noise + (x * x + y * y <= 6.0 ? 0.6 : 0.0));
    }
}

/* ---- labelled images ---- */

typedef struct images {
    lvn_dataset base;
    int64_t count;
    uint64_t seed; /* another seed is another set */
} images;

static int images_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"image", LVN_F32, 3, {SIZE, SIZE, 1}};
    out[1] = (lvn_field){"position", LVN_F32, 1, {2}};
    return 2;
}

static int64_t images_length(const lvn_dataset *dataset)
{
    return ((const images *)dataset)->count;
}

static lvn_status images_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    const uint64_t seed = ((const images *)dataset)->seed;
    const lvn_sample_key own = {.seed = seed, .sample = key->sample};
    float *position = field[1];
    double at[2];
    for (int axis = 0; axis < 2; axis++) {
        at[axis] = 2.0 + (SIZE - 4.0) * lvn_sample_uniform(&own, 1, (uint64_t)axis);
        position[axis] = (float)(at[axis] / PIXELS - 1.0);
    }
    draw(seed, key->sample, at, field[0]);
    return LVN_OK;
}

static const lvn_dataset_class images_class = {
    .name = "images", .fields = images_fields, .length = images_length, .get = images_get};

/* ---- clips of a video ---- */

/* Every KEY_FRAMES frames the disc begins somewhere new; each other frame follows from the one
 * before. */
enum { KEY_FRAMES = 16 };

typedef struct video {
    lvn_dataset base;
    int64_t clips;
    uint64_t seed;
} video;

/* What a thread of the loader keeps: going on from the last frame is faster than from a key frame.
 * The frames are the same either way. */
typedef struct decoder {
    int64_t frame; /* -1: none yet */
    double at[2];
} decoder;

static lvn_status decoder_open(const lvn_dataset *dataset, void **state)
{
    (void)dataset;
    decoder *d = malloc(sizeof *d);
    if (d == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for a decoder");
    }
    d->frame = -1;
    *state = d;
    return LVN_OK;
}

static void decoder_close(const lvn_dataset *dataset, void *state)
{
    (void)dataset;
    free(state);
}

static void decode_next(const video *v, decoder *d)
{
    const lvn_sample_key own = {.seed = v->seed, .sample = ++d->frame};
    for (int axis = 0; axis < 2; axis++) {
        const double random = lvn_sample_uniform(&own, 2, (uint64_t)axis);
        d->at[axis] =
            d->frame % KEY_FRAMES == 0
                ? 2.0 + (SIZE - 4.0) * random
                : fmin(fmax(d->at[axis] + FASTEST * (2.0 * random - 1.0), 2.0), SIZE - 2.0);
    }
}

static void decode(const video *v, decoder *d, int64_t frame)
{
    const int64_t key = frame - frame % KEY_FRAMES;
    if (d->frame < key || d->frame > frame) {
        d->frame = key - 1;
    }
    while (d->frame < frame) {
        decode_next(v, d);
    }
}

static int video_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"clip", LVN_F32, 4, {FRAMES, SIZE, SIZE, 1}};
    return 1;
}

static int64_t video_length(const lvn_dataset *dataset)
{
    return ((const video *)dataset)->clips;
}

static lvn_status video_get(const lvn_dataset *dataset, void *state, const lvn_sample_key *key,
                            void *const field[])
{
    const video *v = (const video *)dataset;
    decoder *d = state;
    float *pixel = field[0];
    for (int64_t i = 0; i < FRAMES; i++) {
        decode(v, d, key->sample * FRAMES + i);
        draw(v->seed, d->frame, d->at, pixel + i * SIZE * SIZE);
    }
    return LVN_OK;
}

static const lvn_dataset_class video_class = {.name = "video",
                                              .fields = video_fields,
                                              .length = video_length,
                                              .worker_open = decoder_open,
                                              .worker_close = decoder_close,
                                              .worker_get = video_get};

int main(int argc, char **argv)
{
    images train = {.base = {.cls = &images_class}, .count = 64, .seed = 1};
    images val = {.base = {.cls = &images_class}, .count = 200, .seed = 2};
    video clips = {.base = {.cls = &video_class}, .clips = 800, .seed = 3};
    /* 8 clips beside the 16 images of a step; after 4 steps, an epoch, the next ones go on */
    const lvn_stream streams[] = {{.name = "clips", .dataset = &clips.base, .batch = 8}};
    return lvn_main(argc, argv,
                    &(lvn_job){
                        .module = &finder_class,
                        .train = &train.base,
                        .val = &val.base,
                        .streams = streams,
                        .n_streams = 1,
                        .options = "max_epochs=60 batch_size=16 optim=adam optim.lr=3e-3",
                    });
}
