/* A classifier with a network and a dataset of its own. The dataset draws its images: no files
 * needed.
 *
 *   cc -Iinclude examples/02_classifier/classifier.c -Lbuild -llevin -lm \
 *      -Wl,-rpath,$PWD/build -o classifier
 *   ./classifier out=out/figures            trains; `./classifier help` lists the keys
 *   ./classifier out=out/figures resume=true max_epochs=10
 *
 * photos.c beside this file is the same with a folder of photos as data. */
#include <levin/levin.h>

#include <math.h>
#include <string.h>

enum { SIZE = 16, CLASSES = 4 };

/* ---- the network ---- */

typedef struct cnn {
    lvn_module base; /* first member: a cnn is a module */
    lvn_module *conv1, *conv2, *head;
} cnn;

static lvn_tensor *cnn_forward(const lvn_module *module,
                               lvn_tensor *x) /* x: (N, 16, 16, 3) -> (N, 4) */
{
    const cnn *m = (const cnn *)module;
    x = lvn_max_pool2d(lvn_relu(lvn_forward(m->conv1, x)), 2); /* (N, 8, 8, 16) */
    x = lvn_max_pool2d(lvn_relu(lvn_forward(m->conv2, x)), 2); /* (N, 4, 4, 32) */
    return lvn_forward(m->head, lvn_flatten(x, 1));
}

static lvn_tensor *cnn_training_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->label));
    return loss; /* mean over the micro-batch's samples */
}

static lvn_status cnn_build(lvn_module *module, lvn_builder *b)
{
    cnn *m = (cnn *)module;
    m->conv1 = lvn_nn_conv2d(b, "conv1", 3, 16, 3, .padding = 1);
    m->conv2 = lvn_nn_conv2d(b, "conv2", 16, 32, 3, .padding = 1);
    m->head = lvn_nn_linear(b, "head", 4 * 4 * 32, CLASSES);
    return lvn_builder_status(b);
}

static const lvn_module_class cnn_class = {
    .name = "cnn",
    .size = sizeof(cnn),
    .build = cnn_build,
    .forward = cnn_forward,
    .training_step = cnn_training_step, /* validation_step defaults to the same */
};

/* ---- the dataset: a disc, a square, a cross or a ring of some colour, somewhere, on noise ---- */

typedef struct figures {
    lvn_dataset base;
    int64_t count;
    uint64_t seed; /* another seed is another set of images */
} figures;

static int figures_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"image", LVN_F32, 3, {SIZE, SIZE, 3}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return 2;
}

static int64_t figures_length(const lvn_dataset *dataset)
{
    return ((const figures *)dataset)->count;
}

static bool inside(int64_t label, double dx, double dy, double r)
{
    const double far = fmax(fabs(dx), fabs(dy)), near = fmin(fabs(dx), fabs(dy)),
                 square = dx * dx + dy * dy;
    switch (label) {
    case 0: return square <= r * r;
    case 1: return far <= 0.9 * r;
    case 2: return far <= r && near <= 0.3 * r;
    default: return square <= r * r && square >= 0.4 * r * r;
    }
}

/* Called from several threads at once, in any order: what is drawn depends on the key alone. */
static lvn_status figures_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                              void *const field[])
{
    const lvn_sample_key own = {.seed = ((const figures *)dataset)->seed, .sample = key->sample};
    const double r = 4.0 + 2.5 * lvn_sample_uniform(&own, 0, 0);
    const double x0 = 6.0 + 4.0 * lvn_sample_uniform(&own, 0, 1),
                 y0 = 6.0 + 4.0 * lvn_sample_uniform(&own, 0, 2);
    const double light =
        key->training ? 0.8 + 0.4 * lvn_sample_uniform(key, 1, 0) : 1.0; /* new in every epoch */
    const int64_t label = key->sample % CLASSES;
    float *pixel = field[0];
    for (int i = 0; i < SIZE * SIZE * 3; i++) {
        const int x = i / 3 % SIZE, y = i / 3 / SIZE, channel = i % 3;
        const double colour = 0.4 + 0.6 * lvn_sample_uniform(&own, 2, (uint64_t)channel);
        const double noise = 0.4 * lvn_sample_uniform(&own, 3, (uint64_t)i);
        pixel[i] = (float)(light * (inside(label, x - x0, y - y0, r) ? colour : noise));
    }
    memcpy(field[1], &label, sizeof label);
    return LVN_OK;
}

static const lvn_dataset_class figures_class = {
    .name = "figures",
    .fields = figures_fields,
    .length = figures_length,
    .get = figures_get, /* no destroy: both sets below live in main() */
};

int main(int argc, char **argv)
{
    figures train = {.base = {.cls = &figures_class}, .count = 1200, .seed = 1};
    figures val = {.base = {.cls = &figures_class}, .count = 400, .seed = 2};
    return lvn_main(argc, argv,
                    &(lvn_job){
                        .module = &cnn_class,
                        .train = &train.base,
                        .val = &val.base,
                        /* the command line wins */
                        .options = "max_epochs=6 batch_size=32 optim=adamw optim.lr=3e-3",
                    });
}
