/* A critic and a generator (duel_support.h). */
#include "duel_support.h"

#include <pthread.h>
#include <string.h>

duel_samples duel_seen;
int64_t duel_fails_at = -1, duel_overflows_at = -1;
int duel_overflow;

enum { WIDE = 1300 };

/* ---- the networks ---- */

typedef struct critic {
    lvn_module base;
    lvn_module *hidden, *out;
} critic;

static lvn_status make_critic(critic *m, lvn_builder *b, int hidden)
{
    m->hidden = lvn_nn_linear(b, "hidden", FEATURES, hidden);
    m->out = lvn_nn_linear(b, "out", hidden, 1, .no_bias = true);
    return lvn_builder_status(b);
}

static lvn_status critic_build(lvn_module *module, lvn_builder *b)
{
    return make_critic((critic *)module, b, HIDDEN);
}

static lvn_status wide_critic_build(lvn_module *module, lvn_builder *b)
{
    return make_critic((critic *)module, b, WIDE);
}

static lvn_tensor *critic_forward(const lvn_module *module, lvn_tensor *x)
{
    const critic *m = (const critic *)module;
    return lvn_forward(m->out, lvn_square(lvn_forward(m->hidden, x)));
}

static const lvn_module_class critic_class = {
    .name = "critic", .size = sizeof(critic), .build = critic_build, .forward = critic_forward};

static const lvn_module_class wide_critic_class = {.name = "critic",
                                                   .size = sizeof(critic),
                                                   .build = wide_critic_build,
                                                   .forward = critic_forward};

typedef struct generator {
    lvn_module base;
    lvn_module *hidden, *out; /* hidden: NULL in the small one */
    lvn_buffer *seen;
} generator;

static lvn_status generator_build(lvn_module *module, lvn_builder *b)
{
    generator *m = (generator *)module;
    m->out = lvn_nn_linear(b, "out", m->hidden == NULL ? NOISE : WIDE, FEATURES);
    m->seen = lvn_builder_buffer(b, "seen", LVN_SHAPE(FEATURES), 0.0, 0.1);
    return lvn_builder_status(b);
}

static lvn_status wide_generator_build(lvn_module *module, lvn_builder *b)
{
    generator *m = (generator *)module;
    m->hidden = lvn_nn_linear(b, "hidden", NOISE, WIDE);
    return m->hidden == NULL ? lvn_builder_status(b) : generator_build(module, b);
}

static lvn_tensor *generator_forward(const lvn_module *module, lvn_tensor *z)
{
    const generator *m = (const generator *)module;
    const int rows = 0;
    lvn_tensor *x =
                   lvn_forward(m->out, m->hidden == NULL ? z : lvn_relu(lvn_forward(m->hidden, z))),
               *mean = lvn_cast(lvn_mean_axes(x, &rows, 1, false), LVN_F32);
    return mean == NULL || lvn_buffer_push(m->seen, mean) != LVN_OK ? NULL : x;
}

static const lvn_module_class generator_class = {.name = "generator",
                                                 .size = sizeof(generator),
                                                 .build = generator_build,
                                                 .forward = generator_forward};

static const lvn_module_class wide_generator_class = {.name = "generator",
                                                      .size = sizeof(generator),
                                                      .build = wide_generator_build,
                                                      .forward = generator_forward};

/* ---- the two of them ---- */

typedef struct duel {
    lvn_module base;
    lvn_module *critic, *generator;
    lvn_buffer *every;
    bool coupled;
} duel;

static lvn_status make_duel(duel *m, lvn_builder *b, const lvn_module_class *generator_cls,
                            const lvn_module_class *critic_cls)
{
    m->generator = lvn_builder_child(b, generator_cls, "generator");
    m->critic = lvn_builder_child(b, critic_cls, "critic");
    m->every = lvn_builder_buffer(b, "every", LVN_SHAPE(1), 0.0, 0.5);
    return lvn_builder_status(b);
}

static lvn_status duel_build(lvn_module *module, lvn_builder *b)
{
    return make_duel((duel *)module, b, &generator_class, &critic_class);
}

static lvn_status wide_duel_build(lvn_module *module, lvn_builder *b)
{
    return make_duel((duel *)module, b, &wide_generator_class, &wide_critic_class);
}

static lvn_status coupled_build(lvn_module *module, lvn_builder *b)
{
    ((duel *)module)->coupled = true;
    lvn_builder_couple(b);
    return duel_build(module, b);
}

static void note(const lvn_batch *batch, int phase)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (duel_seen.on && phase < 2 && duel_seen.n[phase] + batch->size <= MEMORY_MAX) {
        memcpy(duel_seen.sample[phase] + duel_seen.n[phase], batch->sample,
               (size_t)batch->size * sizeof *batch->sample);
        duel_seen.n[phase] += (int)batch->size;
        const size_t calls = strlen(duel_seen.order);
        duel_seen.order[calls] = calls + 1 < sizeof duel_seen.order ? (char)('0' + phase) : '\0';
    }
    pthread_mutex_unlock(&lock);
}

static lvn_tensor *critic_loss(const duel *m, const lvn_batch *batch, lvn_tensor *fake,
                               lvn_step *step)
{
    lvn_tensor *real = batch->image;
    lvn_tensor *u =
        lvn_require_grad(lvn_lerp(real, fake, lvn_random_uniform(step, "alpha", batch->size, 1)));
    lvn_tensor *slope = lvn_grad(lvn_sum(lvn_forward(m->critic, u)), u, .create_graph = true);
    lvn_tensor *penalty = lvn_mean(lvn_square(lvn_add_scalar(lvn_norm_axis(slope, 1), -1.0)));
    lvn_tensor *wasserstein =
        lvn_sub(lvn_mean(lvn_forward(m->critic, fake)), lvn_mean(lvn_forward(m->critic, real)));
    return lvn_add(wasserstein, penalty);
}

static lvn_tensor *duel_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const duel *m = (const duel *)module;
    note(batch, step->phase);
    if (step->phase == 1 && step->step == duel_fails_at) {
        return lvn_add(batch->image, lvn_zeros(LVN_F32, LVN_SHAPE(7, 7)));
    }
    lvn_tensor *fake = lvn_forward(m->generator, lvn_random_normal(step, "z", batch->size, NOISE));
    lvn_tensor *loss = step->phase == 0 ? critic_loss(m, batch, fake, step)
                                        : lvn_neg(lvn_mean(lvn_forward(m->critic, fake)));
    if (m->coupled) {
        loss = lvn_add(
            loss, lvn_mul_scalar(lvn_square(lvn_group_sum(lvn_sum(lvn_forward(m->critic, fake)))),
                                 0.001));
    }
    if (step->step == duel_overflows_at && (duel_overflow >> step->phase & 1) != 0) {
        loss = lvn_mul_scalar(lvn_mul_scalar(loss, 1e30), 1e30);
    }
    lvn_log(step, step->phase == 0 ? "d_loss" : "g_loss", loss);
    lvn_log(step, "loss", loss);
    lvn_tensor *pushed = lvn_add_scalar(lvn_zeros(LVN_F32, LVN_SHAPE(1)), 1.0 + step->phase);
    return pushed == NULL || lvn_buffer_push(m->every, pushed) != LVN_OK ? NULL : loss;
}

static lvn_tensor *duel_validation(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *score = lvn_mean(lvn_forward(((const duel *)module)->critic, batch->image));
    lvn_log(step, "score", score);
    return score;
}

static const char *const duel_phases[] = {"critic", "generator", NULL};

const lvn_module_class duel_class = {.name = "duel",
                                     .size = sizeof(duel),
                                     .build = duel_build,
                                     .training_step = duel_step,
                                     .validation_step = duel_validation,
                                     .phases = duel_phases};

const lvn_module_class coupled_duel_class = {.name = "coupled_duel",
                                             .size = sizeof(duel),
                                             .build = coupled_build,
                                             .training_step = duel_step,
                                             .validation_step = duel_validation,
                                             .phases = duel_phases};

const lvn_module_class wide_duel_class = {.name = "wide_duel",
                                          .size = sizeof(duel),
                                          .build = wide_duel_build,
                                          .training_step = duel_step,
                                          .validation_step = duel_validation,
                                          .phases = duel_phases};
