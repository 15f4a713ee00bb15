/* Layers with parameters: convolution, linear, batch norm, layer norm; and dropout. */
#include "core/math.h"
#include "core/options_struct.h"
#include "nn/builder_impl.h"

static lvn_tensor *make_bias(lvn_builder *b, bool none, int64_t n, double bound)
{
    return none ? NULL : lvn_builder_parameter(b, "bias", 1, &n, LVN_INIT_UNIFORM, bound);
}

typedef struct conv2d {
    lvn_module base;
    int in, out, kernel[2];
    lvn_nn_conv2d_options options;
    lvn_tensor *weight; /* (O, KH, KW, I / groups) */
    lvn_tensor *bias;   /* (O) or NULL */
} conv2d;

static lvn_status conv2d_build(lvn_module *module, lvn_builder *b)
{
    conv2d *m = (conv2d *)module;
    const int groups = m->options.groups == 0 ? 1 : m->options.groups;
    if (m->in < 1 || m->out < 1 || m->kernel[0] < 1 || m->kernel[1] < 1 || groups < 1 ||
        m->in % groups != 0 || m->out % groups != 0) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: a convolution from %d to %d channels with kernel %d x %d and %d groups is "
                 "not possible",
                 module->path, m->in, m->out, m->kernel[0], m->kernel[1], groups);
    }
    const int fan_in = m->in / groups * m->kernel[0] * m->kernel[1];
    const double bound = 1.0 / lvni_core_sqrt((double)fan_in);
    m->weight = lvn_builder_parameter(
        b, "weight", 4, (const int64_t[]){m->out, m->kernel[0], m->kernel[1], m->in / groups},
        LVN_INIT_UNIFORM, bound);
    lvni_nn_builder_set_layout(b, LVNI_LAYOUT_CONV, NULL);
    m->bias = make_bias(b, m->options.no_bias, m->out, bound);
    return lvn_builder_status(b);
}

static lvn_tensor *conv2d_forward(const lvn_module *module, lvn_tensor *x)
{
    const conv2d *m = (const conv2d *)module;
    const lvn_nn_conv2d_options *o = &m->options;
    return lvn_conv2d(x, m->weight, m->bias, .stride = o->stride, .padding = o->padding,
                      .dilation = o->dilation, .groups = o->groups,
                      .stride_hw = {o->stride_hw[0], o->stride_hw[1]},
                      .padding_hw = {o->padding_hw[0], o->padding_hw[1]},
                      .dilation_hw = {o->dilation_hw[0], o->dilation_hw[1]});
}

static const lvn_module_class conv2d_class = {
    .name = "conv2d", .size = sizeof(conv2d), .build = conv2d_build, .forward = conv2d_forward};

lvn_module *lvn_nn_conv2d_with(lvn_builder *b, const char *name, int in, int out, int kernel,
                               const lvn_nn_conv2d_options *o)
{
    conv2d *m = (conv2d *)(void *)lvni_nn_builder_new_module(b, &conv2d_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    m->out = out;
    if (!lvni_nn_builder_options(b, "nn_conv2d", &m->options, sizeof m->options, o)) {
        return NULL;
    }
    lvni_core_options_per_axis(m->kernel, m->options.kernel_hw, kernel, 0, 0);
    return lvni_nn_builder_build(b, &m->base);
}

typedef struct conv1d {
    lvn_module base;
    int in, out, kernel;
    lvn_nn_conv1d_options options;
    lvn_tensor *weight, *bias; /* (O, K, I / groups), (O) or NULL */
} conv1d;

static lvn_status conv1d_build(lvn_module *module, lvn_builder *b)
{
    conv1d *m = (conv1d *)module;
    const int groups = m->options.groups == 0 ? 1 : m->options.groups;
    if (m->in < 1 || m->out < 1 || m->kernel < 1 || groups < 1 || m->in % groups != 0 ||
        m->out % groups != 0) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: a convolution from %d to %d channels with kernel %d and %d groups is not "
                 "possible",
                 module->path, m->in, m->out, m->kernel, groups);
    }
    const int fan_in = m->in / groups * m->kernel;
    const double bound = 1.0 / lvni_core_sqrt((double)fan_in);
    m->weight =
        lvn_builder_parameter(b, "weight", 3, (const int64_t[]){m->out, m->kernel, m->in / groups},
                              LVN_INIT_UNIFORM, bound);
    lvni_nn_builder_set_layout(b, LVNI_LAYOUT_CONV, NULL);
    m->bias = make_bias(b, m->options.no_bias, m->out, bound);
    return lvn_builder_status(b);
}

static lvn_tensor *conv1d_forward(const lvn_module *module, lvn_tensor *x)
{
    const conv1d *m = (const conv1d *)module;
    const lvn_nn_conv1d_options *o = &m->options;
    return lvn_conv1d(x, m->weight, m->bias, .stride = o->stride, .padding = o->padding,
                      .dilation = o->dilation, .groups = o->groups);
}

static const lvn_module_class conv1d_class = {
    .name = "conv1d", .size = sizeof(conv1d), .build = conv1d_build, .forward = conv1d_forward};

lvn_module *lvn_nn_conv1d_with(lvn_builder *b, const char *name, int in, int out, int kernel,
                               const lvn_nn_conv1d_options *o)
{
    conv1d *m = (conv1d *)(void *)lvni_nn_builder_new_module(b, &conv1d_class, name);
    if (m == NULL || !lvni_nn_builder_options(b, "nn_conv1d", &m->options, sizeof m->options, o)) {
        return NULL;
    }
    m->in = in;
    m->out = out;
    m->kernel = kernel;
    return lvni_nn_builder_build(b, &m->base);
}

typedef struct conv_transpose2d {
    lvn_module base;
    int in, out, kernel[2];
    lvn_nn_conv_transpose2d_options options;
    lvn_tensor *weight; /* (I, KH, KW, O / groups) */
    lvn_tensor *bias;   /* (O) or NULL */
} conv_transpose2d;

static lvn_status conv_transpose2d_build(lvn_module *module, lvn_builder *b)
{
    conv_transpose2d *m = (conv_transpose2d *)module;
    const int groups = m->options.groups == 0 ? 1 : m->options.groups;
    if (m->in < 1 || m->out < 1 || m->kernel[0] < 1 || m->kernel[1] < 1 || groups < 1 ||
        m->in % groups != 0 || m->out % groups != 0) {
        LVN_FAIL(
            LVN_ERR_INVALID,
            "%s: a transposed convolution from %d to %d channels with kernel %d x %d and %d groups "
            "is not possible",
            module->path, m->in, m->out, m->kernel[0], m->kernel[1], groups);
    }
    const int fan = m->out / groups * m->kernel[0] * m->kernel[1];
    const double bound = 1.0 / lvni_core_sqrt((double)fan);
    m->weight = lvn_builder_parameter(
        b, "weight", 4, (const int64_t[]){m->in, m->kernel[0], m->kernel[1], m->out / groups},
        LVN_INIT_UNIFORM, bound);
    lvni_nn_builder_set_layout(b, LVNI_LAYOUT_CONV, NULL);
    m->bias = make_bias(b, m->options.no_bias, m->out, bound);
    return lvn_builder_status(b);
}

static lvn_tensor *conv_transpose2d_forward(const lvn_module *module, lvn_tensor *x)
{
    const conv_transpose2d *m = (const conv_transpose2d *)module;
    const lvn_nn_conv_transpose2d_options *o = &m->options;
    return lvn_conv_transpose2d(
        x, m->weight, m->bias, .stride = o->stride, .padding = o->padding,
        .output_padding = o->output_padding, .groups = o->groups, .dilation = o->dilation,
        .stride_hw = {o->stride_hw[0], o->stride_hw[1]},
        .padding_hw = {o->padding_hw[0], o->padding_hw[1]},
        .output_padding_hw = {o->output_padding_hw[0], o->output_padding_hw[1]},
        .dilation_hw = {o->dilation_hw[0], o->dilation_hw[1]});
}

static const lvn_module_class conv_transpose2d_class = {.name = "conv_transpose2d",
                                                        .size = sizeof(conv_transpose2d),
                                                        .build = conv_transpose2d_build,
                                                        .forward = conv_transpose2d_forward};

lvn_module *lvn_nn_conv_transpose2d_with(lvn_builder *b, const char *name, int in, int out,
                                         int kernel, const lvn_nn_conv_transpose2d_options *o)
{
    conv_transpose2d *m =
        (conv_transpose2d *)(void *)lvni_nn_builder_new_module(b, &conv_transpose2d_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    m->out = out;
    if (!lvni_nn_builder_options(b, "nn_conv_transpose2d", &m->options, sizeof m->options, o)) {
        return NULL;
    }
    lvni_core_options_per_axis(m->kernel, m->options.kernel_hw, kernel, 0, 0);
    return lvni_nn_builder_build(b, &m->base);
}

typedef struct linear {
    lvn_module base;
    int64_t in, out;
    lvn_nn_linear_options options;
    lvn_tensor *weight, *bias; /* (out, in), (out) or NULL */
} linear;

static lvn_status linear_build(lvn_module *module, lvn_builder *b)
{
    linear *m = (linear *)module;
    LVN_ARG(m->in > 0 && m->out > 0,
            "%s: a linear layer from %lld to %lld features is not possible", module->path,
            (long long)m->in, (long long)m->out);
    const int64_t *image = m->options.image;
    const bool flattened = image[0] != 0 || image[1] != 0 || image[2] != 0;
    LVN_ARG(!flattened || (image[0] > 0 && image[1] > 0 && image[2] > 0 &&
                           image[0] * image[1] * image[2] == m->in),
            "%s: an image of %lld x %lld with %lld channels is not what %lld features were made of",
            module->path, (long long)image[0], (long long)image[1], (long long)image[2],
            (long long)m->in);
    const double bound = 1.0 / lvni_core_sqrt((double)m->in);
    m->weight = lvn_builder_parameter(b, "weight", 2, (const int64_t[]){m->out, m->in},
                                      LVN_INIT_UNIFORM, bound);
    if (flattened) {
        lvni_nn_builder_set_layout(b, LVNI_LAYOUT_FLATTEN, image);
    } else if (m->options.conv1d) {
        lvni_nn_builder_set_layout(b, LVNI_LAYOUT_TRANSPOSED, NULL);
    }
    m->bias = make_bias(b, m->options.no_bias, m->out, bound);
    return lvn_builder_status(b);
}

static lvn_tensor *linear_forward(const lvn_module *module, lvn_tensor *x)
{
    const linear *m = (const linear *)module;
    return lvn_linear(x, m->weight, m->bias);
}

static const lvn_module_class linear_class = {
    .name = "linear", .size = sizeof(linear), .build = linear_build, .forward = linear_forward};

lvn_module *lvn_nn_linear_with(lvn_builder *b, const char *name, int64_t in, int64_t out,
                               const lvn_nn_linear_options *o)
{
    linear *m = (linear *)(void *)lvni_nn_builder_new_module(b, &linear_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    m->out = out;
    if (!lvni_nn_builder_options(b, "nn_linear", &m->options, sizeof m->options, o)) {
        return NULL;
    }
    return lvni_nn_builder_build(b, &m->base);
}

typedef struct batch_norm {
    lvn_module base;
    int channels;
    double eps, momentum;
    const lvn_number *moved; /* in place of momentum; NULL: none */
    bool relu, sync;
    lvn_tensor *weight, *bias;              /* (C) */
    lvn_buffer *running_mean, *running_var; /* (C) */
} batch_norm;

static lvn_status batch_norm_build(lvn_module *module, lvn_builder *b)
{
    batch_norm *m = (batch_norm *)module;
    LVN_ARG(m->channels > 0, "%s: batch norm over %d channels is not possible", module->path,
            m->channels);
    const int64_t shape[] = {m->channels};
    m->weight = lvn_builder_parameter(b, "weight", 1, shape, LVN_INIT_ONES, 0.0);
    m->bias = lvn_builder_parameter(b, "bias", 1, shape, LVN_INIT_ZEROS, 0.0);
    m->running_mean = lvn_builder_buffer(b, "running_mean", 1, shape, 0.0, m->momentum);
    m->running_var = lvn_builder_buffer(b, "running_var", 1, shape, 1.0, m->momentum);
    if (m->moved != NULL) {
        lvn_builder_momentum(b, m->running_mean, m->moved);
        lvn_builder_momentum(b, m->running_var, m->moved);
    }
    return lvn_builder_status(b);
}

static lvn_tensor *batch_norm_forward_residual(const lvn_module *module, lvn_tensor *x,
                                               lvn_tensor *residual)
{
    const batch_norm *m = (const batch_norm *)module;
    if (!lvn_is_training()) {
        return lvn_batch_norm_eval(x, m->weight, m->bias, lvn_buffer_value(m->running_mean),
                                   lvn_buffer_value(m->running_var), m->eps, .residual = residual,
                                   .relu = m->relu);
    }
    lvn_tensor *mean, *variance;
    lvn_tensor *y = lvn_batch_norm_train(x, m->weight, m->bias, m->eps, &mean, &variance,
                                         .residual = residual, .relu = m->relu, .sync = m->sync);
    if (y != NULL && (lvn_buffer_push(m->running_mean, mean) != LVN_OK ||
                      lvn_buffer_push(m->running_var, variance) != LVN_OK)) {
        return lvni_autograd_op_fail("batch_norm");
    }
    return y;
}

static lvn_tensor *batch_norm_forward(const lvn_module *module, lvn_tensor *x)
{
    return batch_norm_forward_residual(module, x, NULL);
}

static const lvn_module_class batch_norm_class = {.name = "batch_norm",
                                                  .size = sizeof(batch_norm),
                                                  .build = batch_norm_build,
                                                  .forward = batch_norm_forward,
                                                  .forward_residual = batch_norm_forward_residual};

lvn_module *lvn_nn_batch_norm_with(lvn_builder *b, const char *name, int channels, double momentum,
                                   const lvn_nn_batch_norm_options *o)
{
    batch_norm *m = (batch_norm *)(void *)lvni_nn_builder_new_module(b, &batch_norm_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->channels = channels;
    lvn_nn_batch_norm_options own;
    if (!lvni_nn_builder_options(b, "nn_batch_norm", &own, sizeof own, o)) {
        return NULL;
    }
    m->eps = own.eps > 0.0 ? own.eps : 1e-5;
    m->relu = own.relu;
    m->momentum = momentum;
    m->moved = own.momentum;
    m->sync = own.sync || b->sync_batch_norm;
    if (m->sync) {
        lvn_builder_couple(b);
    }
    return lvni_nn_builder_build(b, &m->base);
}

typedef struct dropout {
    lvn_module base;
    double p;
} dropout;

static lvn_status dropout_build(lvn_module *module, lvn_builder *b)
{
    const double p = ((const dropout *)module)->p;
    LVN_ARG(p >= 0.0 && p < 1.0, "%s: dropout with p = %g; it must be at least 0 and below 1",
            module->path, p);
    return lvn_builder_status(b);
}

static lvn_tensor *dropout_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_dropout(x, ((const dropout *)module)->p);
}

static const lvn_module_class dropout_class = {
    .name = "dropout", .size = sizeof(dropout), .build = dropout_build, .forward = dropout_forward};

lvn_module *lvn_nn_dropout(lvn_builder *b, const char *name, double p)
{
    dropout *m = (dropout *)(void *)lvni_nn_builder_new_module(b, &dropout_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->p = p;
    return lvni_nn_builder_build(b, &m->base);
}

/* ---- PReLU ---- */

typedef struct prelu {
    lvn_module base;
    int64_t n;
    lvn_tensor *weight; /* (n) */
} prelu;

static lvn_status prelu_build(lvn_module *module, lvn_builder *b)
{
    prelu *m = (prelu *)module;
    LVN_ARG(m->n > 0, "%s: PReLU with %lld slopes is not possible", module->path, (long long)m->n);
    m->weight = lvn_builder_parameter(b, "weight", 1, &m->n, LVN_INIT_CONSTANT, 0.25);
    return lvn_builder_status(b);
}

static lvn_tensor *prelu_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_prelu(x, ((const prelu *)module)->weight);
}

static const lvn_module_class prelu_class = {
    .name = "prelu", .size = sizeof(prelu), .build = prelu_build, .forward = prelu_forward};

lvn_module *lvn_nn_prelu(lvn_builder *b, const char *name, int n)
{
    prelu *m = (prelu *)(void *)lvni_nn_builder_new_module(b, &prelu_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->n = n;
    return lvni_nn_builder_build(b, &m->base);
}

/* ---- layer norm ---- */

typedef struct layer_norm {
    lvn_module base;
    int64_t features;
    double eps;
    lvn_tensor *weight, *bias; /* (features) */
} layer_norm;

static lvn_status layer_norm_build(lvn_module *module, lvn_builder *b)
{
    layer_norm *m = (layer_norm *)module;
    LVN_ARG(m->features > 0, "%s: a layer norm over %lld features is not possible", module->path,
            (long long)m->features);
    m->weight = lvn_builder_parameter(b, "weight", 1, &m->features, LVN_INIT_ONES, 0.0);
    m->bias = lvn_builder_parameter(b, "bias", 1, &m->features, LVN_INIT_ZEROS, 0.0);
    return lvn_builder_status(b);
}

static lvn_tensor *layer_norm_forward(const lvn_module *module, lvn_tensor *x)
{
    const layer_norm *m = (const layer_norm *)module;
    return lvn_layer_norm(x, m->weight, m->bias, m->eps);
}

static const lvn_module_class layer_norm_class = {.name = "layer_norm",
                                                  .size = sizeof(layer_norm),
                                                  .build = layer_norm_build,
                                                  .forward = layer_norm_forward};

lvn_module *lvn_nn_layer_norm_with(lvn_builder *b, const char *name, int64_t features,
                                   const lvn_nn_layer_norm_options *o)
{
    layer_norm *m = (layer_norm *)(void *)lvni_nn_builder_new_module(b, &layer_norm_class, name);
    if (m == NULL) {
        return NULL;
    }
    lvn_nn_layer_norm_options own;
    if (!lvni_nn_builder_options(b, "nn_layer_norm", &own, sizeof own, o)) {
        return NULL;
    }
    m->features = features;
    m->eps = own.eps > 0.0 ? own.eps : 1e-5;
    return lvni_nn_builder_build(b, &m->base);
}

bool lvni_nn_is_norm(const lvn_module_class *cls)
{
    return cls == &batch_norm_class || cls == &layer_norm_class;
}
