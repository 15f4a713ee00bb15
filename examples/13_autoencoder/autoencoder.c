/* An autoencoder of images (Hinton and Salakhutdinov 2006, "Reducing the dimensionality of data
 * with neural networks"): a network makes a short code of each image and the image again of the
 * code. It learns from images alone, without classes; `levin predict` then writes the codes, a row
 * for each image, to search, cluster or plot.
 *
 *   levin cc examples/13_autoencoder/autoencoder.c -o autoencoder.so
 *   levin train ./autoencoder.so data=builtin:shapes out=out/codes
 *   levin train ./autoencoder.so data=photos image_size=64 code=128
 *   levin eval ./autoencoder.so model=out/codes
 *   levin predict ./autoencoder.so model=out/codes data=photos output=codes.csv
 *   levin export ./autoencoder.so model=out/codes output=net.safetensors
 *
 * data= is builtin:shapes or a folder with images anywhere below it; a fifth of them, or those of
 * val/, are kept for validation. images/ of the run has some of them after each epoch, the
 * originals above what comes back (image_every_n_epochs=5: of every fifth). val/loss is the mean
 * squared error of a pixel's colour where colours have variance 1 (those of ImageNet),
 * val/explained the part of the images' variance that the code keeps: 0 for a network that always
 * answers with the mean colour, 1 for a perfect one. */
#include <levin/levin.h>

enum { STAGES = 3, HALVED = 1 << STAGES }; /* each stage halves the image */

typedef struct sizes {
    int image, code, width;
} sizes;

/* ---- the network ---- */

typedef struct autoencoder {
    lvn_module base;
    lvn_module *down[STAGES], *down_norm[STAGES], *to_code;
    lvn_module *from_code, *from_norm, *up[STAGES], *up_norm[STAGES - 1];
} autoencoder;

static lvn_status autoencoder_build(lvn_module *module, lvn_builder *b)
{
    static const char *const down[STAGES] = {"encoder.conv1", "encoder.conv2", "encoder.conv3"},
                             *const down_norm[STAGES] = {"encoder.norm1", "encoder.norm2",
                                                         "encoder.norm3"},
                             *const up[STAGES] = {"decoder.conv1", "decoder.conv2",
                                                  "decoder.conv3"},
                             *const up_norm[STAGES - 1] = {"decoder.norm1", "decoder.norm2"};
    const sizes *s = lvn_builder_arguments(b);
    autoencoder *m = (autoencoder *)module;
    const int small = s->image / HALVED, widest = s->width << (STAGES - 1);
    for (int i = 0; i < STAGES; i++) {
        const int in = i == 0 ? 3 : s->width << (i - 1), out = s->width << i;
        m->down[i] =
            lvn_nn_conv2d(b, down[i], in, out, 4, .stride = 2, .padding = 1, .no_bias = true);
        m->down_norm[i] = lvn_nn_batch_norm(b, down_norm[i], out, 0.1, .relu = true);
    }
    m->to_code = lvn_nn_conv2d(b, "encoder.code", widest, s->code, small);
    m->from_code =
        lvn_nn_conv_transpose2d(b, "decoder.code", s->code, widest, small, .no_bias = true);
    m->from_norm = lvn_nn_batch_norm(b, "decoder.norm", widest, 0.1, .relu = true);
    for (int i = 0; i < STAGES; i++) {
        const bool last = i == STAGES - 1;
        const int in = widest >> i, out = last ? 3 : in / 2;
        m->up[i] = lvn_nn_conv_transpose2d(b, up[i], in, out, 4, .stride = 2, .padding = 1,
                                           .no_bias = !last);
        if (!last) {
            m->up_norm[i] = lvn_nn_batch_norm(b, up_norm[i], out, 0.1, .relu = true);
        }
    }
    return lvn_builder_status(b);
}

static lvn_tensor *encode(const autoencoder *m, lvn_tensor *x) /* (N, S, S, 3) -> (N, code) */
{
    for (int i = 0; i < STAGES; i++) {
        x = lvn_forward(m->down_norm[i], lvn_forward(m->down[i], x));
    }
    return lvn_flatten(lvn_forward(m->to_code, x), 1);
}

static lvn_tensor *decode(const autoencoder *m, lvn_tensor *code) /* (N, code) -> (N, S, S, 3) */
{
    lvn_tensor *x = lvn_reshape(code, LVN_SHAPE(lvn_size(code, 0), 1, 1, lvn_size(code, 1)));
    x = lvn_forward(m->from_norm, lvn_forward(m->from_code, x));
    for (int i = 0; i < STAGES; i++) {
        x = lvn_forward(m->up[i], x);
        x = i < STAGES - 1 ? lvn_forward(m->up_norm[i], x) : x;
    }
    return x;
}

static lvn_tensor *autoencoder_forward(const lvn_module *module, lvn_tensor *x)
{
    const autoencoder *m = (const autoencoder *)module;
    return decode(m, encode(m, x));
}

static lvn_tensor *autoencoder_step(const lvn_module *module, const lvn_batch *batch,
                                    lvn_step *step)
{
    static const int pixels[] = {0, 1, 2};
    lvn_tensor *x = batch->image, *error = lvn_mse_loss(lvn_forward(module, x), x);
    lvn_tensor *variance = lvn_mean(lvn_var_axes(x, pixels, 3, false, 0));
    lvn_log(step, "loss", error);
    lvn_log(step, "explained", lvn_add_scalar(lvn_neg(lvn_div(error, variance)), 1.0));
    return error;
}

static const lvn_module_class autoencoder_class = {.name = "autoencoder",
                                                   .size = sizeof(autoencoder),
                                                   .build = autoencoder_build,
                                                   .forward = autoencoder_forward,
                                                   .training_step = autoencoder_step};

/* ---- images while it trains: images/ of the run ---- */

/* Colours have about this deviation and mean (those of ImageNet), all three alike. */
static lvn_tensor *to_colours(lvn_tensor *x)
{
    return lvn_add_scalar(lvn_mul_scalar(x, 0.226), 0.449);
}

/* The images of a batch above what the network makes of their codes. */
static lvn_tensor *originals_above_reconstructions(const lvn_module *root, const lvn_batch *batch)
{
    lvn_tensor *rows[] = {to_colours(batch->image), to_colours(lvn_forward(root, batch->image))};
    return lvn_stack(rows, 2, 0);
}

/* ---- the recipe ---- */

static const lvn_key keys[] = {
    {"data", LVN_KEY_PATH, NULL, "Folder with images anywhere below it, or builtin:shapes."},
    {"image_size", LVN_KEY_INT, "32", "Side of the square images in pixels, a multiple of 8."},
    {"code", LVN_KEY_INT, "32", "Numbers of a code."},
    {"width", LVN_KEY_INT, "16", "Channels of the first stage, doubled in the next two."},
    {"min_scale", LVN_KEY_FLOAT, "0.5", "Smallest part of an image that a random crop keeps."},
};

/* The network's sizes, read when it is built, in every rank of the process. */
static lvn_status describe_network(const lvn_keys *k, lvn_job *job)
{
    static sizes s;
    s = (sizes){.image = (int)lvn_key_int(k, "image_size"),
                .code = (int)lvn_key_int(k, "code"),
                .width = (int)lvn_key_int(k, "width")};
    if (s.image < HALVED || s.image > 1024 || s.image % HALVED != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "image_size=%d: must be a multiple of %d up to 1024", s.image,
                 HALVED);
    }
    if (s.code < 1 || s.code > 4096 || s.width < 1 || s.width > 512) {
        LVN_FAIL(LVN_ERR_USAGE, "code=%d width=%d: 1 to 4096 numbers and 1 to 512 channels", s.code,
                 s.width);
    }
    job->module = &autoencoder_class;
    job->arguments = &s;
    return LVN_OK;
}

/* NULL: the thread's error has the reason. */
static lvn_dataset *open_part(const lvn_keys *k, lvn_image_part part)
{
    return LVN_IMAGE_FOLDER(lvn_key_text(k, "data"), .flat = true, .part = part,
                            .resize = (int)lvn_key_int(k, "image_size"),
                            .min_scale = lvn_key_float(k, "min_scale"));
}

static lvn_status open_training(const lvn_keys *k, lvn_job *job)
{
    LVN_TRY(describe_network(k, job));
    if (!lvn_key_is_set(k, "data")) {
        LVN_FAIL(LVN_ERR_USAGE, "data= is missing: a folder of images, or builtin:shapes");
    }
    job->train = open_part(k, LVN_IMAGES_TRAIN);
    job->val = job->train == NULL ? NULL : open_part(k, LVN_IMAGES_VAL);
    return job->val == NULL ? lvn_last_error()->code : LVN_OK;
}

/* ---- a trained model ---- */

/* `levin export` needs no data, and `levin predict` takes all images. */
static lvn_status open_trained(const lvn_keys *k, const lvn_card *card, lvn_use use, lvn_job *job)
{
    (void)card;
    if (use == LVN_USE_EVAL) {
        return open_training(k, job);
    }
    LVN_TRY(describe_network(k, job));
    if (use == LVN_USE_PREDICT) {
        job->val = open_part(k, LVN_IMAGES_ALL);
        return job->val == NULL ? lvn_last_error()->code : LVN_OK;
    }
    return LVN_OK;
}

static lvn_tensor *codes_of(const lvn_module *root, const lvn_batch *batch)
{
    return encode((const autoencoder *)root, batch->image);
}

static const lvn_recipe_use trained = {.open = open_trained, .predict = codes_of};

static const lvn_recipe recipe = {
    .abi = LVN_RECIPE_ABI,
    .name = "autoencoder",
    .help = "images without classes: a short code of each, and the image again of the code",
    .keys = keys,
    .n_keys = sizeof keys / sizeof *keys,
    .options = "max_epochs=20 batch_size=32 optim=adamw optim.lr=2e-3 scheduler=cosine",
    .open = open_training,
    .use = &trained,
    .preview = originals_above_reconstructions,
};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}
