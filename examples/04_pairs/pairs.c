/* A loss that looks at other micro-batches' samples: two instruments see the same things, and a
 * network learns which readings belong together.
 *
 * Each instrument gets a network of its own that turns a reading into a point on a sphere; a pair
 * is right when its two points are nearer to each other than to those of all other pairs (Radford
 * et al. 2021, "CLIP"). The more pairs there are to distinguish, the more there is to learn, and
 * a micro-batch of a step has only a few. So the micro-batches of a group lend each other their
 * points: lvn_group_gather gives all of them, in the order of the micro-batches, and its gradient
 * finds the way back. The module declares it in build() with lvn_builder_couple; the micro-batches
 * of a group then run at once, on however many lanes, devices or threads, and the result is the
 * same to the bit:
 *
 *   cc -Iinclude examples/04_pairs/pairs.c -Lbuild -llevin -lm -Wl,-rpath,$PWD/build -o pairs
 *   ./pairs out=out/one && ./pairs out=out/two devices=2 strategy=dp
 *   build/levin ckpt hash out/one && build/levin ckpt hash out/two
 *
 * With group=1 every micro-batch is alone with its own pairs: another run, which learns less. */
#include <levin/levin.h>

#include <math.h>
#include <string.h>

enum { READING = 8, HIDDEN = 64, POINT = 8, THINGS = 3 };

/* ---- the network: a tower for each instrument ---- */

typedef struct pairs {
    lvn_module base;
    lvn_module *in[2], *out[2];
} pairs;

static lvn_status pairs_build(lvn_module *module, lvn_builder *b)
{
    pairs *m = (pairs *)module;
    m->in[0] = lvn_nn_linear(b, "left.in", READING, HIDDEN);
    m->out[0] = lvn_nn_linear(b, "left.out", HIDDEN, POINT);
    m->in[1] = lvn_nn_linear(b, "right.in", READING, HIDDEN);
    m->out[1] = lvn_nn_linear(b, "right.out", HIDDEN, POINT);
    lvn_builder_couple(b); /* micro-batches look at each other */
    return lvn_builder_status(b);
}

static lvn_tensor *points(const pairs *m, int side,
                          lvn_tensor *reading) /* (N, 8) -> (N, 8), rows of length 1 */
{
    const int last = 1;
    lvn_tensor *p = lvn_forward(m->out[side], lvn_gelu(lvn_forward(m->in[side], reading)));
    return lvn_div(p, lvn_sqrt(lvn_add_scalar(lvn_sum_axes(lvn_square(p), &last, 1, true), 1e-12)));
}

/* The number of each row's partner among all; in host memory, where the program may write, and for
 * the caller to release. */
static lvn_tensor *partners(int64_t first, int64_t n)
{
    lvn_tensor *t = lvn_tensor_create(LVN_I64, LVN_SHAPE(n));
    for (int64_t i = 0; t != NULL && i < n; i++) {
        ((int64_t *)lvn_data(t))[i] = first + i;
    }
    return t;
}

static lvn_tensor *pairs_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pairs *m = (const pairs *)module;
    lvn_tensor *left = points(m, 0, batch->field[0]), *right = points(m, 1, batch->field[1]);
    int64_t first; /* this micro-batch's rows begin there */
    lvn_tensor *all = lvn_group_gather_at(right, &first);
    /* (N, N of the group) */
    lvn_tensor *alike = lvn_mul_scalar(lvn_matmul(left, lvn_transpose(all, 0, 1)), 10.0);
    lvn_tensor *own = partners(first, batch->size);
    lvn_tensor *loss = lvn_cross_entropy(alike, own);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(alike, own));
    lvn_release(own); /* what the ops still need they hold themselves */
    return loss;      /* the mean over the micro-batch's samples, as always */
}

static const lvn_module_class pairs_class = {
    .name = "pairs", .size = sizeof(pairs), .build = pairs_build, .training_step = pairs_step};

/* ---- the data: three hidden numbers, seen by two instruments in ways of their own ---- */

typedef struct things {
    lvn_dataset base;
    int64_t count;
    uint64_t seed;
} things;

static int things_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"left", LVN_F32, 1, {READING}};
    out[1] = (lvn_field){"right", LVN_F32, 1, {READING}};
    return 2;
}

static int64_t things_length(const lvn_dataset *dataset)
{
    return ((const things *)dataset)->count;
}

static lvn_status things_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    const lvn_sample_key own = {.seed = ((const things *)dataset)->seed, .sample = key->sample};
    float *left = field[0], *right = field[1];
    double h[THINGS];
    for (int i = 0; i < THINGS; i++) {
        h[i] = 2.0 * lvn_sample_uniform(&own, 0, (uint64_t)i) - 1.0;
    }
    for (int k = 0; k < READING; k++) {
        const double noise = 0.05 * (lvn_sample_uniform(&own, 1, (uint64_t)k) - 0.5);
        left[k] = (float)(sin(1.0 + k + 2.0 * h[k % 3]) + h[(k + 1) % 3] + noise);
        right[k] = (float)(cos(2.0 * k + h[(k + 2) % 3]) * (1.5 + h[k % 3]) - noise);
    }
    return LVN_OK;
}

static const lvn_dataset_class things_class = {
    .name = "things", .fields = things_fields, .length = things_length, .get = things_get};

int main(int argc, char **argv)
{
    things train = {.base = {.cls = &things_class}, .count = 2000, .seed = 1};
    things val = {.base = {.cls = &things_class}, .count = 512, .seed = 2};
    return lvn_main(argc, argv,
                    &(lvn_job){
                        .module = &pairs_class,
                        .train = &train.base,
                        .val = &val.base,
                        .options =
                            "max_epochs=10 batch_size=64 optim=adamw optim.lr=1e-2 micro_batches=8 "
                            "group=8 wgrad_threads=1 eval_batch_size=64",
                    });
}
