/* Generator and critic of rcGAN (rcgan.h). Convolutions have a bias, also in front of a norm, as
 * the original's have: files of its weights fit (run/weights_rcgan.c has their names). */
#include "nn/rcgan.h"

#include "nn/builder_impl.h"

#include <stdio.h>

static const double NORM_EPS = 1e-5, NORM_MOMENTUM = 0.1;

/* ---- sizes ---- */

int lvni_nn_rcgan_level_side(const lvni_nn_rcgan_sizes *s, int level)
{
    int side = s->im_size;
    for (int i = 0; i < level; i++) {
        side = (side + 1) / 2;
    }
    return side;
}

int lvni_nn_rcgan_stage_side(const lvni_nn_rcgan_sizes *s, int stage)
{
    return s->im_size >> stage;
}

static int level_width(const lvni_nn_rcgan_sizes *s, int level)
{
    return s->gen_channels << (level < 3 ? level : 3);
}

static int stage_width(const lvni_nn_rcgan_sizes *s, int stage) /* 0: behind the first layer */
{
    return s->disc_channels << (stage < 4 ? stage : 4);
}

static int64_t conv_count(int64_t in, int64_t out, int64_t kernel)
{
    return in * out * kernel * kernel + out;
}

int64_t lvni_nn_rcgan_unused(const lvni_nn_rcgan_sizes *s)
{
    const int64_t c = level_width(s, s->gen_levels - 1), norm_and_act = 2 * c + 1,
                  residual = conv_count(c, c, 1) + 2 * (conv_count(c, c, 3) + norm_and_act);
    return 2 * (int64_t)s->gen_channels + conv_count(c, c, 3) + norm_and_act + 5 * residual;
}

/* ---- a convolution, batch norm and PReLU ---- */

typedef enum unit_kind {
    UNIT_PLAIN,
    UNIT_BARE,    /* without the norm */
    UNIT_TO_EVEN, /* a transposed convolution to twice the size */
    UNIT_TO_ODD   /* the same, one pixel less */
} unit_kind;

typedef struct unit {
    lvn_module base;
    int in, out;
    unit_kind kind;
    lvn_module *conv, *norm, *act; /* norm NULL: none */
} unit;

static lvn_status unit_build(lvn_module *module, lvn_builder *b)
{
    unit *m = (unit *)module;
    m->conv = m->kind >= UNIT_TO_EVEN
                  ? lvn_nn_conv_transpose2d(b, "conv", m->in, m->out, 3, .stride = 2, .padding = 1,
                                            .output_padding = m->kind == UNIT_TO_EVEN ? 1 : 0)
                  : lvn_nn_conv2d(b, "conv", m->in, m->out, 3, .padding = 1);
    m->norm = m->kind == UNIT_BARE
                  ? NULL
                  : lvn_nn_batch_norm(b, "norm", m->out, NORM_MOMENTUM, .eps = NORM_EPS);
    m->act = lvn_nn_prelu(b, "act", 1);
    return lvn_builder_status(b);
}

static lvn_tensor *unit_forward(const lvn_module *module, lvn_tensor *x)
{
    const unit *m = (const unit *)module;
    x = lvn_forward(m->conv, x);
    return lvn_forward(m->act, m->norm == NULL ? x : lvn_forward(m->norm, x));
}

static const lvn_module_class unit_class = {
    .name = "unit", .size = sizeof(unit), .build = unit_build, .forward = unit_forward};

static lvn_module *make_unit(lvn_builder *b, const char *name, int in, int out, unit_kind kind)
{
    unit *m = (unit *)(void *)lvni_nn_builder_new_module(b, &unit_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    m->out = out;
    m->kind = kind;
    return lvni_nn_builder_build(b, &m->base);
}

/* ---- a residual block: two units beside a 1x1 convolution ---- */

typedef struct residual {
    lvn_module base;
    int channels;
    lvn_module *skip, *unit[2];
} residual;

static lvn_status residual_build(lvn_module *module, lvn_builder *b)
{
    residual *m = (residual *)module;
    m->skip = lvn_nn_conv2d(b, "skip", m->channels, m->channels, 1);
    m->unit[0] = make_unit(b, "unit1", m->channels, m->channels, UNIT_PLAIN);
    m->unit[1] = make_unit(b, "unit2", m->channels, m->channels, UNIT_PLAIN);
    return lvn_builder_status(b);
}

static lvn_tensor *residual_forward(const lvn_module *module, lvn_tensor *x)
{
    const residual *m = (const residual *)module;
    return lvn_add(lvn_forward(m->skip, x), lvn_forward(m->unit[1], lvn_forward(m->unit[0], x)));
}

static const lvn_module_class residual_class = {.name = "residual",
                                                .size = sizeof(residual),
                                                .build = residual_build,
                                                .forward = residual_forward};

static lvn_module *make_residual(lvn_builder *b, const char *name, int channels)
{
    residual *m = (residual *)(void *)lvni_nn_builder_new_module(b, &residual_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->channels = channels;
    return lvni_nn_builder_build(b, &m->base);
}

/* ---- what the original builds behind the last level and never runs ---- */

typedef struct unused {
    lvn_module base;
    int channels;
} unused;

static lvn_status unused_build(lvn_module *module, lvn_builder *b)
{
    const int c = ((unused *)module)->channels;
    char name[16];
    (void)make_unit(b, "unit", c, c, UNIT_PLAIN);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "res%d", i);
        (void)make_residual(b, name, c);
    }
    return lvn_builder_status(b);
}

static const lvn_module_class unused_class = {
    .name = "unused", .size = sizeof(unused), .build = unused_build};

static void make_unused(lvn_builder *b, int channels)
{
    unused *m = (unused *)(void *)lvni_nn_builder_new_module(b, &unused_class, "res_layer_1");
    if (m != NULL) {
        m->channels = channels;
        (void)lvni_nn_builder_build(b, &m->base);
    }
}

/* ---- a level down: its result is the skip, which `half` halves for the next level ---- */

typedef struct down {
    lvn_module base;
    int in, out;
    bool first, unused; /* no norm; one that is never run */
    lvn_module *unit, *res, *half;
} down;

static lvn_status down_build(lvn_module *module, lvn_builder *b)
{
    down *m = (down *)module;
    m->unit = make_unit(b, "unit", m->in, m->out, m->first ? UNIT_BARE : UNIT_PLAIN);
    if (m->unused) {
        (void)lvn_nn_batch_norm(b, "norm", m->out, NORM_MOMENTUM, .eps = NORM_EPS);
    }
    m->res = make_residual(b, "res", m->out);
    m->half = lvn_nn_conv2d(b, "half", m->out, m->out, 3, .stride = 2, .padding = 1);
    return lvn_builder_status(b);
}

static lvn_tensor *down_forward(const lvn_module *module, lvn_tensor *x)
{
    const down *m = (const down *)module;
    return lvn_forward(m->res, lvn_forward(m->unit, x));
}

static const lvn_module_class down_class = {
    .name = "down", .size = sizeof(down), .build = down_build, .forward = down_forward};

static down *make_down(lvn_builder *b, int level, int in, const lvni_nn_rcgan_sizes *s)
{
    char name[16];
    snprintf(name, sizeof name, "down%d", level);
    lvn_builder_block(b, name);
    down *m = (down *)(void *)lvni_nn_builder_new_module(b, &down_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->in = in;
    m->out = level_width(s, level);
    m->first = level == 0;
    m->unused = m->first && s->unused;
    return (down *)(void *)lvni_nn_builder_build(b, &m->base);
}

/* ---- a level up ---- */

typedef struct up {
    lvn_module base;
    int width, out; /* channels of the level's skip, and of what comes from below; of the result */
    bool nearest, odd; /* odd: the side of the skip */
    lvn_module *up, *merge, *res;
} up;

static lvn_status up_build(lvn_module *module, lvn_builder *b)
{
    up *m = (up *)module;
    m->up = make_unit(b, "up", m->width, m->width,
                      m->nearest ? UNIT_PLAIN
                      : m->odd   ? UNIT_TO_ODD
                                 : UNIT_TO_EVEN);
    m->merge = make_unit(b, "merge", 2 * m->width, m->out, UNIT_PLAIN);
    m->res = make_residual(b, "res", m->out);
    return lvn_builder_status(b);
}

/* x, from below, and the skip of this level. */
static lvn_tensor *run_up(const up *m, lvn_tensor *x, lvn_tensor *skip)
{
    if (m->nearest && x != NULL && skip != NULL) {
        x = lvn_resize2d(x, lvn_size(skip, 1), lvn_size(skip, 2), .mode = LVN_RESIZE_NEAREST);
    }
    lvn_tensor *both[] = {skip, lvn_forward(m->up, x)};
    return lvn_forward(m->res, lvn_forward(m->merge, lvn_concat(both, 2, 3)));
}

static const lvn_module_class up_class = {.name = "up", .size = sizeof(up), .build = up_build};

static up *make_up(lvn_builder *b, int level, const lvni_nn_rcgan_sizes *s)
{
    char name[16];
    snprintf(name, sizeof name, "up%d", level);
    lvn_builder_block(b, name);
    up *m = (up *)(void *)lvni_nn_builder_new_module(b, &up_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->width = level_width(s, level);
    m->out = level_width(s, level > 0 ? level - 1 : 0);
    m->nearest = s->alt_upsample;
    m->odd = lvni_nn_rcgan_level_side(s, level) % 2 != 0;
    return (up *)(void *)lvni_nn_builder_build(b, &m->base);
}

/* ---- the generator ---- */

typedef struct generator {
    lvn_module base;
    lvni_nn_rcgan_sizes sizes;
    down *down[LVNI_RCGAN_LEVELS];
    lvn_module *middle;
    up *up[LVNI_RCGAN_LEVELS];
    lvn_module *head[2];
} generator;

static lvn_status check_sizes(const char *path, const lvni_nn_rcgan_sizes *s)
{
    LVN_ARG(s->in_chans > 0 && s->out_chans > 0 && s->gen_channels > 1 && s->gen_levels > 0 &&
                s->gen_levels <= LVNI_RCGAN_LEVELS && s->disc_channels > 0 && s->disc_stages > 0 &&
                s->disc_stages <= LVNI_RCGAN_STAGES,
            "%s: %d to %d channels, %d levels from %d channels on, %d stages from %d on are not "
            "possible; up to %d levels and %d stages are",
            path, s->in_chans, s->out_chans, s->gen_levels, s->gen_channels, s->disc_stages,
            s->disc_channels, (int)LVNI_RCGAN_LEVELS, (int)LVNI_RCGAN_STAGES);
    LVN_ARG(lvni_nn_rcgan_stage_side(s, s->disc_stages) >= 2,
            "%s: an image of %d pixels cannot be halved %d times: at least %d pixels, or fewer "
            "disc_stages",
            path, s->im_size, s->disc_stages, 2 << s->disc_stages);
    return LVN_OK;
}

static lvn_status generator_build(lvn_module *module, lvn_builder *b)
{
    generator *m = (generator *)module;
    const lvni_nn_rcgan_sizes *s = &m->sizes;
    LVN_TRY(check_sizes(module->path, s));
    for (int i = 0; i < s->gen_levels; i++) {
        m->down[i] =
            make_down(b, i, i == 0 ? s->in_chans + LVNI_RCGAN_NOISE : level_width(s, i - 1), s);
    }
    const int c = level_width(s, s->gen_levels - 1);
    lvn_builder_block(b, "middle");
    if (s->unused) {
        make_unused(b, c);
    }
    m->middle = make_unit(b, "middle", c, c, UNIT_PLAIN);
    for (int i = s->gen_levels - 1; i >= 0; i--) {
        m->up[i] = make_up(b, i, s);
    }
    lvn_builder_block(b, "head");
    m->head[0] = lvn_nn_conv2d(b, "head1", s->gen_channels, s->gen_channels / 2, 1);
    m->head[1] = lvn_nn_conv2d(b, "head2", s->gen_channels / 2, s->out_chans, 1);
    return lvn_builder_status(b);
}

static lvn_tensor *generator_forward(const lvn_module *module, lvn_tensor *x)
{
    const generator *m = (const generator *)module;
    lvn_tensor *skip[LVNI_RCGAN_LEVELS] = {NULL};
    for (int i = 0; i < m->sizes.gen_levels; i++) {
        skip[i] = lvn_forward(&m->down[i]->base, x);
        x = lvn_forward(m->down[i]->half, skip[i]);
    }
    x = lvn_forward(m->middle, x);
    for (int i = m->sizes.gen_levels - 1; i >= 0; i--) {
        x = run_up(m->up[i], x, skip[i]);
    }
    return lvn_forward(m->head[1], lvn_forward(m->head[0], x));
}

static const lvn_module_class generator_class = {.name = "rcgan_generator",
                                                 .size = sizeof(generator),
                                                 .build = generator_build,
                                                 .forward = generator_forward};

lvn_module *lvni_nn_rcgan_generator(lvn_builder *b, const char *name, const lvni_nn_rcgan_sizes *s)
{
    generator *m = (generator *)(void *)lvni_nn_builder_new_module(b, &generator_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->sizes = *s;
    return lvni_nn_builder_build(b, &m->base);
}

/* ---- the critic ---- */

typedef struct critic {
    lvn_module base;
    lvni_nn_rcgan_sizes sizes;
    lvn_module *input, *stage[LVNI_RCGAN_STAGES], *output;
} critic;

static lvn_status critic_build(lvn_module *module, lvn_builder *b)
{
    critic *m = (critic *)module;
    const lvni_nn_rcgan_sizes *s = &m->sizes;
    LVN_TRY(check_sizes(module->path, s));
    lvn_builder_block(b, "critic");
    m->input =
        lvn_nn_conv2d(b, "input", s->out_chans + s->in_chans, stage_width(s, 0), 3, .padding = 1);
    for (int i = 0; i < s->disc_stages; i++) {
        char name[16];
        snprintf(name, sizeof name, "stage%d", i + 1);
        m->stage[i] =
            lvn_nn_conv2d(b, name, stage_width(s, i), stage_width(s, i + 1), 3, .padding = 1);
    }
    const int64_t side = lvni_nn_rcgan_stage_side(s, s->disc_stages),
                  width = stage_width(s, s->disc_stages);
    m->output = lvn_nn_linear(b, "output", side * side * width, 1, .image = {side, side, width});
    return lvn_builder_status(b);
}

static lvn_tensor *critic_forward(const lvn_module *module, lvn_tensor *x)
{
    const critic *m = (const critic *)module;
    x = lvn_leaky_relu(lvn_forward(m->input, x), 0.01);
    for (int i = 0; i < m->sizes.disc_stages; i++) {
        x = lvn_forward(m->stage[i], lvn_avg_pool2d(x, 2));
        x = lvn_leaky_relu(lvn_instance_norm(x, NULL, NULL, NORM_EPS), 0.2);
    }
    return lvn_forward(m->output, lvn_flatten(x, 1));
}

static const lvn_module_class critic_class = {.name = "rcgan_critic",
                                              .size = sizeof(critic),
                                              .build = critic_build,
                                              .forward = critic_forward};

lvn_module *lvni_nn_rcgan_critic(lvn_builder *b, const char *name, const lvni_nn_rcgan_sizes *s)
{
    critic *m = (critic *)(void *)lvni_nn_builder_new_module(b, &critic_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->sizes = *s;
    return lvni_nn_builder_build(b, &m->base);
}
