/* A classifier of 32 x 32 colour images from two folders, photos/train and photos/val, each with
 * one sub-folder per class. The whole program; keys on its command line win, `./photo_net help`
 * lists them.
 *
 *   cc -Iinclude examples/02_classifier/photos.c -Lbuild -llevin -lm \
 *      -Wl,-rpath,$PWD/build -o photo_net
 *   ./photo_net */
#include <levin/levin.h>

enum { CLASSES = 10 }; /* as many sub-folders, or fewer */

typedef struct cnn {
    lvn_module base; /* first member: a cnn is a module */
    lvn_module *conv1, *conv2, *head;
} cnn;

static lvn_tensor *cnn_forward(const lvn_module *module,
                               lvn_tensor *x) /* x: (N, 32, 32, 3) -> (N, 10) */
{
    const cnn *m = (const cnn *)module; /* read-only in a step: state lives in registered buffers */
    x = lvn_max_pool2d(lvn_relu(lvn_forward(m->conv1, x)), 2); /* (N, 16, 16, 32) */
    x = lvn_max_pool2d(lvn_relu(lvn_forward(m->conv2, x)), 2); /* (N, 8, 8, 64) */
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
    m->conv1 = lvn_nn_conv2d(b, "conv1", 3, 32, 3, .padding = 1);
    m->conv2 = lvn_nn_conv2d(b, "conv2", 32, 64, 3, .padding = 1);
    m->head = lvn_nn_linear(b, "head", 8 * 8 * 64, CLASSES);
    return lvn_builder_status(b);
}

static const lvn_module_class cnn_class = {
    .name = "cnn",
    .size = sizeof(cnn),
    .build = cnn_build,
    .forward = cnn_forward,
    .training_step = cnn_training_step, /* validation_step defaults to the same */
};

int main(int argc, char **argv)
{
    return lvn_main(argc, argv,
                    &(lvn_job){
                        .module = &cnn_class,
                        .train = LVN_IMAGE_FOLDER("photos/train", .resize = 32),
                        .val = LVN_IMAGE_FOLDER("photos/val", .resize = 32),
                        /* the command line wins */
                        .options = "max_epochs=20 batch_size=256 optim=adamw optim.lr=1e-3",
                    });
}
