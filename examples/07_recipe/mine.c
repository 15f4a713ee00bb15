/* A recipe of one's own in a shared object: points in the plane, to which of two interleaved
 * spirals they belong, and a network with keys for its width and its depth. Every key of
 * `levin train` works with it: ranks, accumulation, precision, resume.
 *
 *   levin cc examples/07_recipe/mine.c -o mine.so
 *   levin train ./mine.so width=32 max_epochs=30 out=out/spirals
 *   levin plan train ./mine.so devices=2
 *   levin train ./mine.so --help
 *   levin eval ./mine.so model=out/spirals
 *   levin predict ./mine.so model=out/spirals output=points.csv
 *   levin export ./mine.so model=out/spirals output=net.safetensors */
#include <levin/levin.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 4 };

/* ---- the data: sample i is a point of spiral i % 2, with some noise ---- */

typedef struct spirals {
    lvn_dataset base;
    int64_t count;
    uint64_t seed; /* another seed is another set of points */
    double noise;
} spirals;

static int spirals_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"point", LVN_F32, 1, {2}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return 2;
}

static int64_t spirals_length(const lvn_dataset *dataset)
{
    return ((const spirals *)dataset)->count;
}

static lvn_status spirals_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                              void *const field[])
{
    const spirals *s = (const spirals *)dataset;
    const lvn_sample_key own = {.seed = s->seed, .sample = key->sample};
    const int64_t label = key->sample % 2;
    const double t = 0.25 + 0.75 * lvn_sample_uniform(&own, 0, 0), angle = 6.283185307 * t,
                 side = label == 0 ? 1.0 : -1.0;
    float *point = field[0];
    point[0] = (float)(side * t * cos(angle) + s->noise * lvn_sample_uniform(&own, 1, 0));
    point[1] = (float)(side * t * sin(angle) + s->noise * lvn_sample_uniform(&own, 1, 1));
    memcpy(field[1], &label, sizeof label);
    return LVN_OK;
}

static void spirals_destroy(lvn_dataset *dataset)
{
    free(dataset);
}

static const lvn_dataset_class spirals_class = {.name = "spirals",
                                                .fields = spirals_fields,
                                                .length = spirals_length,
                                                .get = spirals_get,
                                                .destroy = spirals_destroy};

static lvn_dataset *spirals_open(int64_t count, uint64_t seed, double noise)
{
    spirals *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    *s = (spirals){.base = {.cls = &spirals_class}, .count = count, .seed = seed, .noise = noise};
    return &s->base;
}

/* ---- the network ---- */

typedef struct sizes {
    int width, depth;
} sizes;

typedef struct net {
    lvn_module base;
    lvn_module *layer[MOST_LAYERS], *head;
    int depth;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    static const char *const name[MOST_LAYERS] = {"first", "second", "third", "fourth"};
    const sizes *s = lvn_builder_arguments(b);
    net *m = (net *)module;
    m->depth = s->depth;
    for (int i = 0; i < s->depth; i++) {
        m->layer[i] = lvn_nn_linear(b, name[i], i == 0 ? 2 : s->width, s->width);
    }
    m->head = lvn_nn_linear(b, "head", s->width, 2);
    return lvn_builder_status(b);
}

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x) /* (N, 2) -> (N, 2) */
{
    const net *m = (const net *)module;
    for (int i = 0; i < m->depth; i++) {
        x = lvn_relu(lvn_forward(m->layer[i], x)); /* (N, width) */
    }
    return lvn_forward(m->head, x);
}

static lvn_tensor *net_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->field[0]);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->field[1]);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->field[1]));
    return loss;
}

static const lvn_module_class net_class = {.name = "net",
                                           .size = sizeof(net),
                                           .build = net_build,
                                           .forward = net_forward,
                                           .training_step = net_step};

/* ---- the recipe ---- */

static const lvn_key keys[] = {
    {"count", LVN_KEY_INT, "2000", "Points of the training set."},
    {"noise", LVN_KEY_FLOAT, "0.05", "How far points lie from their spiral, at most."},
    {"width", LVN_KEY_INT, "32", "Units of a layer."},
    {"depth", LVN_KEY_INT, "2", "Layers before the last, 1 to 4."},
};

static lvn_status open_spirals(const lvn_keys *k, lvn_job *job)
{
    static sizes s; /* read when the network is built, in every rank of the process */
    s = (sizes){(int)lvn_key_int(k, "width"), (int)lvn_key_int(k, "depth")};
    if (s.width < 1 || s.depth < 1 || s.depth > MOST_LAYERS) {
        LVN_FAIL(LVN_ERR_USAGE, "width=%d depth=%d: at least 1 unit, and 1 to %d layers", s.width,
                 s.depth, MOST_LAYERS);
    }
    const double noise = lvn_key_float(k, "noise");
    job->module = &net_class;
    job->arguments = &s;
    job->train = spirals_open(lvn_key_int(k, "count"), 1, noise);
    job->val = spirals_open(500, 2, noise);
    if (job->train == NULL || job->val == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for the data");
    }
    return LVN_OK;
}

/* ---- a trained model: `levin eval` and `levin export` need none of this ---- */

static lvn_status write_card(const lvn_keys *k, const lvn_job *job, lvn_card *card)
{
    (void)k, (void)job;
    LVN_TRY(lvn_card_set(card, "spiral_0", "right"));
    return lvn_card_set(card, "spiral_1", "left");
}

/* (N, 2): how probable each spiral is. */
static lvn_tensor *probabilities(const lvn_module *root, const lvn_batch *batch)
{
    return lvn_softmax(lvn_forward(root, batch->field[0]));
}

static const char *column(const lvn_card *card, int i)
{
    return lvn_card_text(card, i == 0 ? "spiral_0" : "spiral_1");
}

static const lvn_recipe_use use = {
    .write_card = write_card, .predict = probabilities, .column = column};

static const lvn_recipe recipe = {
    .abi = LVN_RECIPE_ABI,
    .name = "spirals",
    .help = "which of two spirals a point belongs to",
    .keys = keys,
    .n_keys = sizeof keys / sizeof *keys,
    .options = "max_epochs=20 batch_size=50 optim=adamw optim.lr=1e-2",
    .open = open_spirals,
    .use = &use,
};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}
