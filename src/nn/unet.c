/* U-Net (Ronneberger, Fischer & Brox 2015, figure 1) with batch norm and padding, so that the
 * result has the image's size. */
#include "nn/builder_impl.h"

#include <stdio.h>

enum { MOST_DEPTH = 7 };

/* Two 3x3 convolutions, each with batch norm and relu. */
typedef struct double_conv {
    lvn_module base;
    int in, out;
    lvn_module *conv[2], *norm[2];
} double_conv;

static lvn_status double_conv_build(lvn_module *module, lvn_builder *b)
{
    double_conv *m = (double_conv *)module;
    m->conv[0] = lvn_nn_conv2d(b, "conv1", m->in, m->out, 3, .padding = 1, .no_bias = true);
    m->norm[0] = lvn_nn_batch_norm(b, "bn1", m->out, 0.1, .relu = true);
    m->conv[1] = lvn_nn_conv2d(b, "conv2", m->out, m->out, 3, .padding = 1, .no_bias = true);
    m->norm[1] = lvn_nn_batch_norm(b, "bn2", m->out, 0.1, .relu = true);
    return lvn_builder_status(b);
}

static lvn_tensor *double_conv_forward(const lvn_module *module, lvn_tensor *x)
{
    const double_conv *m = (const double_conv *)module;
    for (int i = 0; i < 2; i++) {
        x = lvn_forward(m->norm[i], lvn_forward(m->conv[i], x));
    }
    return x;
}

static const lvn_module_class double_conv_class = {.name = "double_conv",
                                                   .size = sizeof(double_conv),
                                                   .build = double_conv_build,
                                                   .forward = double_conv_forward};

static lvn_module *make_double_conv(lvn_builder *b, const char *name, int in, int out)
{
    double_conv *m = (double_conv *)(void *)lvni_nn_builder_new_module(b, &double_conv_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    m->out = out;
    return lvni_nn_builder_build(b, &m->base);
}

typedef struct unet {
    lvn_module base;
    int in, out;
    lvn_nn_unet_options options;
    /* level 0 has the image's size; the last one is the bottom */
    lvn_module *down[MOST_DEPTH + 1];
    lvn_module *up[MOST_DEPTH], *merge[MOST_DEPTH], *head;
} unet;

static lvn_status unet_build(lvn_module *module, lvn_builder *b)
{
    unet *m = (unet *)module;
    const lvn_nn_unet_options *o = &m->options;
    LVN_ARG(m->in > 0 && m->out > 0 && o->width > 0 && o->width <= 4096 && o->depth > 0 &&
                o->depth <= MOST_DEPTH,
            "%s: a U-Net from %d to %d channels with width %d and depth %d is not possible; depth "
            "goes to %d",
            module->path, m->in, m->out, o->width, o->depth, (int)MOST_DEPTH);
    char name[32];
    for (int i = 0; i <= o->depth; i++) {
        snprintf(name, sizeof name, "down%d", i);
        lvn_builder_block(b, name);
        m->down[i] = make_double_conv(b, name, i == 0 ? m->in : o->width << (i - 1), o->width << i);
    }
    for (int i = o->depth - 1; i >= 0; i--) {
        const int width = o->width << i;
        snprintf(name, sizeof name, "up%d", i);
        lvn_builder_block(b, name);
        m->up[i] = o->bilinear ? lvn_nn_conv2d(b, name, 2 * width, width, 1)
                               : lvn_nn_conv_transpose2d(b, name, 2 * width, width, 2, .stride = 2);
        snprintf(name, sizeof name, "merge%d", i);
        m->merge[i] = make_double_conv(b, name, 2 * width, width);
    }
    lvn_builder_block(b, "head");
    m->head = lvn_nn_conv2d(b, "head", o->width, m->out, 1);
    return lvn_builder_status(b);
}

/* x one level up: twice the size, half the channels. Interpolation and the 1x1 convolution commute:
 * the cheaper order. */
static lvn_tensor *level_up(const unet *m, int level, lvn_tensor *x, const lvn_tensor *skip)
{
    x = lvn_forward(m->up[level], x);
    return m->options.bilinear
               ? lvn_resize2d(x, lvn_size(skip, 1), lvn_size(skip, 2), .mode = LVN_RESIZE_BILINEAR)
               : x;
}

static bool fits(const unet *m, const lvn_tensor *x)
{
    const int64_t step = (int64_t)1 << m->options.depth;
    if (m->options.bilinear || lvn_ndim(x) != 4 ||
        (lvn_size(x, 1) % step == 0 && lvn_size(x, 2) % step == 0)) {
        return true;
    }
    lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                  "an image of %lld x %lld cannot be halved %d times: height and width must be "
                  "multiples of %lld, or .bilinear = true",
                  (long long)lvn_size(x, 1), (long long)lvn_size(x, 2), m->options.depth,
                  (long long)step);
    return false;
}

static lvn_tensor *unet_forward(const lvn_module *module, lvn_tensor *x)
{
    const unet *m = (const unet *)module;
    const int depth = m->options.depth;
    lvn_tensor *skip[MOST_DEPTH] = {NULL};
    if (!fits(m, x)) {
        return lvni_autograd_op_fail("unet");
    }
    for (int i = 0; i < depth; i++) {
        skip[i] = lvn_forward(m->down[i], x);
        x = lvn_max_pool2d(skip[i], 2);
    }
    x = lvn_forward(m->down[depth], x);
    for (int i = depth - 1; i >= 0; i--) {
        lvn_tensor *both[] = {skip[i], level_up(m, i, x, skip[i])};
        x = lvn_forward(m->merge[i], lvn_concat(both, 2, 3));
    }
    return lvn_forward(m->head, x);
}

static const lvn_module_class unet_class = {
    .name = "unet", .size = sizeof(unet), .build = unet_build, .forward = unet_forward};

lvn_module *lvn_nn_unet_with(lvn_builder *b, const char *name, int in, int out,
                             const lvn_nn_unet_options *o)
{
    unet *m = (unet *)(void *)lvni_nn_builder_new_module(b, &unet_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    m->out = out;
    if (!lvni_nn_builder_options(b, "nn_unet", &m->options, sizeof m->options, o)) {
        return NULL;
    }
    m->options.width = m->options.width == 0 ? 64 : m->options.width;
    m->options.depth = m->options.depth == 0 ? 4 : m->options.depth;
    return lvni_nn_builder_build(b, &m->base);
}
