/* The small networks of the zoo: cnn and mlp. */
#include "nn/zoo_impl.h"

/* Three stages of 3x3 convolution, batch norm, relu; halved twice; averaged. 94 k weights. */
typedef struct cnn {
    lvn_module base;
    lvn_module *conv[3], *norm[3];
    lvn_module *dropout, *head;
} cnn;

static lvn_status cnn_build(lvn_module *module, lvn_builder *b)
{
    cnn *m = (cnn *)module;
    const lvni_nn_zoo_arguments *a = lvni_nn_builder_arguments(b);
    LVN_ARG(a->image_size >= 4, "model=cnn needs image_size of at least 4, not %d", a->image_size);
    m->conv[0] = lvn_nn_conv2d(b, "conv1", 3, 32, 3, .padding = 1, .no_bias = true);
    m->norm[0] = lvn_nn_batch_norm(b, "norm1", 32, 0.1, .relu = true);
    m->conv[1] = lvn_nn_conv2d(b, "conv2", 32, 64, 3, .padding = 1, .no_bias = true);
    m->norm[1] = lvn_nn_batch_norm(b, "norm2", 64, 0.1, .relu = true);
    m->conv[2] = lvn_nn_conv2d(b, "conv3", 64, 128, 3, .padding = 1, .no_bias = true);
    m->norm[2] = lvn_nn_batch_norm(b, "norm3", 128, 0.1, .relu = true);
    m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
    m->head = lvn_nn_linear(b, "head", 128, a->n_classes);
    return lvn_builder_status(b);
}

static lvn_tensor *cnn_forward(const lvn_module *module, lvn_tensor *x) /* x: (N, S, S, 3) */
{
    const cnn *m = (const cnn *)module;
    for (int i = 0; i < 3; i++) {
        x = lvn_forward(m->norm[i], lvn_forward(m->conv[i], x));
        if (i < 2) {
            x = lvn_max_pool2d(x, 2); /* (N, S/2, S/2, 32), (N, S/4, S/4, 64) */
        }
    }
    x = lvn_global_avg_pool2d(x); /* (N, 128) */
    return lvn_forward(m->head, lvn_forward(m->dropout, x));
}

/* Two hidden layers of 256. */
typedef struct mlp {
    lvn_module base;
    lvn_module *fc1, *fc2, *dropout, *head;
} mlp;

static lvn_status mlp_build(lvn_module *module, lvn_builder *b)
{
    mlp *m = (mlp *)module;
    const lvni_nn_zoo_arguments *a = lvni_nn_builder_arguments(b);
    const int64_t s = a->image_size;
    m->fc1 = lvn_nn_linear(b, "fc1", s * s * 3, 256, .image = {s, s, 3});
    m->fc2 = lvn_nn_linear(b, "fc2", 256, 256);
    m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
    m->head = lvn_nn_linear(b, "head", 256, a->n_classes);
    return lvn_builder_status(b);
}

static lvn_tensor *mlp_forward(const lvn_module *module, lvn_tensor *x)
{
    const mlp *m = (const mlp *)module;
    x = lvn_relu(lvn_forward(m->fc1, lvn_flatten(x, 1)));
    x = lvn_relu(lvn_forward(m->fc2, x));
    return lvn_forward(m->head, lvn_forward(m->dropout, x));
}

const lvn_module_class lvni_nn_zoo_cnn = {.name = "cnn",
                                          .size = sizeof(cnn),
                                          .build = cnn_build,
                                          .forward = cnn_forward,
                                          .training_step = lvni_nn_zoo_classifier_step};
const lvn_module_class lvni_nn_zoo_mlp = {.name = "mlp",
                                          .size = sizeof(mlp),
                                          .build = mlp_build,
                                          .forward = mlp_forward,
                                          .training_step = lvni_nn_zoo_classifier_step};
