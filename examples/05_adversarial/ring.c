/* Two networks against each other: a generator learns to throw points onto a ring that it never
 * sees, and all it gets is a critic's score of its points (Wasserstein GAN with gradient
 * penalty: Gulrajani et al. 2017, algorithm 1).
 *
 * The class names two phases. In each step the trainer first runs the critic's on all micro-batches
 * of the batch, adds the gradients up and updates the critic; then the generator's, on the same
 * samples, judged by the critic as it is now. training_step reads which one it is. The other
 * network's parameters are constants meanwhile: gradients flow through them, and not into them. So
 * the reproducibility rules hold as for any module:
 *
 *   cc -Iinclude examples/05_adversarial/ring.c -Lbuild -llevin -lm -Wl,-rpath,$PWD/build -o ring
 *   ./ring out=out/one && ./ring out=out/two devices=2 strategy=dp
 *   build/levin ckpt hash out/one && build/levin ckpt hash out/two
 *
 * metrics.jsonl has what both phases report, and grad_norm/critic and grad_norm/generator. A critic
 * that lags behind points nowhere, so it learns five times as fast (lr_scale; Heusel et al. 2017),
 * and what is validated is an average of the weights over the last steps (ema.decay). */
#include <levin/levin.h>

#include <math.h>

enum { NOISE = 2, HIDDEN = 64 };

/* ---- the networks: the same kind of thing twice ---- */

typedef struct network {
    lvn_module base;
    lvn_module *a, *b, *c;
} network;

static lvn_status build_network(network *m, lvn_builder *b, int in, int out)
{
    m->a = lvn_nn_linear(b, "a", in, HIDDEN);
    m->b = lvn_nn_linear(b, "b", HIDDEN, HIDDEN);
    m->c = lvn_nn_linear(b, "c", HIDDEN, out);
    return lvn_builder_status(b);
}

static lvn_tensor *network_forward(const lvn_module *module, lvn_tensor *x)
{
    const network *m = (const network *)module;
    x = lvn_leaky_relu(lvn_forward(m->a, x), 0.2);
    x = lvn_leaky_relu(lvn_forward(m->b, x), 0.2);
    return lvn_forward(m->c, x);
}

static lvn_status critic_build(lvn_module *module,
                               lvn_builder *b) /* (N, 2) -> (N, 1): how real a point looks */
{
    return build_network((network *)module, b, 2, 1);
}

static lvn_status generator_build(lvn_module *module,
                                  lvn_builder *b) /* noise (N, 2) -> (N, 2): points */
{
    return build_network((network *)module, b, NOISE, 2);
}

static const lvn_module_class critic_class = {.name = "critic",
                                              .size = sizeof(network),
                                              .build = critic_build,
                                              .forward = network_forward},
                              generator_class = {.name = "generator",
                                                 .size = sizeof(network),
                                                 .build = generator_build,
                                                 .forward = network_forward};

/* ---- the two of them ---- */

typedef struct duel {
    lvn_module base;
    lvn_module *critic, *generator;
} duel;

static lvn_status duel_build(lvn_module *module, lvn_builder *b)
{
    duel *m = (duel *)module;
    m->critic = lvn_builder_child(b, &critic_class, "critic");
    m->generator = lvn_builder_child(b, &generator_class, "generator");
    return lvn_builder_status(b);
}

static lvn_tensor *critic_step(const duel *m, lvn_tensor *real, lvn_tensor *fake, lvn_step *step)
{
    /* the critic's slope is to be 1 on the way from real points to made ones */
    lvn_tensor *between = lvn_require_grad(
        lvn_lerp(real, fake, lvn_random_uniform(step, "between", lvn_size(real, 0), 1)));
    lvn_tensor *slope =
        lvn_grad(lvn_sum(lvn_forward(m->critic, between)), between, .create_graph = true);
    lvn_tensor *penalty = lvn_mean(lvn_square(lvn_add_scalar(lvn_norm_axis(slope, 1), -1.0)));
    lvn_tensor *distance =
        lvn_sub(lvn_mean(lvn_forward(m->critic, real)), lvn_mean(lvn_forward(m->critic, fake)));
    lvn_log(step, "distance", distance);
    lvn_log(step, "penalty", penalty);
    return lvn_sub(lvn_mul_scalar(penalty, 0.1), distance);
}

static lvn_tensor *duel_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const duel *m = (const duel *)module;
    /* other noise in each phase */
    lvn_tensor *fake =
        lvn_forward(m->generator, lvn_random_normal(step, "noise", batch->size, NOISE));
    if (step->phase == 0) {
        return critic_step(m, batch->field[0], fake, step);
    }
    lvn_tensor *loss = lvn_neg(lvn_mean(lvn_forward(m->critic, fake)));
    lvn_log(step, "g_loss", loss);
    return loss;
}

/* How far the points lie from the ring. */
static lvn_tensor *duel_validation(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const duel *m = (const duel *)module;
    const int rows = 0;
    lvn_tensor *fake =
        lvn_forward(m->generator, lvn_random_normal(step, "noise", batch->size, NOISE));
    lvn_tensor *loss = lvn_mean(lvn_abs(lvn_add_scalar(lvn_norm_axis(fake, 1), -1.0)));
    lvn_log(step, "loss", loss);
    /* 0: on all sides */
    lvn_log(step, "middle", lvn_norm_axis(lvn_mean_axes(fake, &rows, 1, false), 0));
    return loss;
}

static const char *const phases[] = {"critic", "generator", NULL};

static const lvn_module_class duel_class = {.name = "duel",
                                            .size = sizeof(duel),
                                            .build = duel_build,
                                            .training_step = duel_step,
                                            .validation_step = duel_validation,
                                            .phases = phases};

/* ---- the data: points on a ring of radius 1 ---- */

typedef struct ring {
    lvn_dataset base;
    int64_t count;
    uint64_t seed;
} ring;

static int ring_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"point", LVN_F32, 1, {2}};
    return 1;
}

static int64_t ring_length(const lvn_dataset *dataset)
{
    return ((const ring *)dataset)->count;
}

static lvn_status ring_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    const lvn_sample_key own = {.seed = ((const ring *)dataset)->seed, .sample = key->sample};
    const double angle = 6.283185307179586 * lvn_sample_uniform(&own, 0, 0),
                 radius = 0.95 + 0.1 * lvn_sample_uniform(&own, 0, 1);
    float *point = field[0];
    point[0] = (float)(radius * cos(angle));
    point[1] = (float)(radius * sin(angle));
    return LVN_OK;
}

static const lvn_dataset_class ring_class = {
    .name = "ring", .fields = ring_fields, .length = ring_length, .get = ring_get};

int main(int argc, char **argv)
{
    ring train = {.base = {.cls = &ring_class}, .count = 4000, .seed = 1},
         val = {.base = {.cls = &ring_class}, .count = 512, .seed = 2};
    return lvn_main(argc, argv,
                    &(lvn_job){
                        .module = &duel_class,
                        .train = &train.base,
                        .val = &val.base,
                        .options =
                            "max_epochs=40 batch_size=200 optim=adam optim.lr=1e-3 "
                            "optim.betas=[0,0.9] optim.weight_decay=0 lr_scale=[critic=5] "
                            "ema.decay=0.98 micro_batches=4 wgrad_threads=1 eval_batch_size=256",
                    });
}
