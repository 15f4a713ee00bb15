/* SimCLR (Chen et al. 2020, "A simple framework for contrastive learning of visual
 * representations"): a network learns from images without their classes. Each image comes twice,
 * cropped and coloured in two ways, and of all images of the group the network has to find the
 * other view of each.
 *
 *   levin cc examples/11_simclr/simclr.c -o simclr.so
 *   levin train ./simclr.so data=photos out=out/simclr
 *   levin train classify data=photos model=cnn weights=out/simclr/checkpoints/last.safetensors \
 *       reset_head=true image_size=48
 *
 * What it learned is measured as it is in the literature: val/knn is the part of validation images
 * whose class is that of their nearest neighbours among the last images trained on (Wu et al.
 * 2018). The classes serve nothing else. Negatives come from all micro-batches of a group (group=,
 * the whole batch unless it is set), wherever they are computed, and the result is the same to the
 * bit. */
#include <levin/levin.h>

#include <math.h>
#include <string.h>

enum { FEATURES = 128, STAGES = 3 };

typedef struct settings {
    int classes, projection, neighbours;
    int64_t bank;
    double temperature, knn_temperature;
} settings;

/* ---- the network: names and shapes of levin's cnn, and a projection for training alone ---- */

typedef struct simclr {
    lvn_module base;
    settings s;
    lvn_module *conv[STAGES], *norm[STAGES]; /* the backbone */
    lvn_module *hidden, *calm, *out;         /* the projection */
    lvn_buffer *bank;                        /* (bank, FEATURES + classes): features, and a one */
} simclr;

static lvn_status simclr_build(lvn_module *module, lvn_builder *b)
{
    static const char *const conv[STAGES] = {"conv1", "conv2", "conv3"}, *const norm[STAGES] = {
                                                                             "norm1", "norm2",
                                                                             "norm3"};
    simclr *m = (simclr *)module;
    m->s = *(const settings *)lvn_builder_arguments(b);
    int in = 3;
    for (int i = 0; i < STAGES; i++) {
        const int out = FEATURES >> (STAGES - 1 - i); /* 32, 64, 128 */
        m->conv[i] = lvn_nn_conv2d(b, conv[i], in, out, 3, .padding = 1, .no_bias = true);
        m->norm[i] = lvn_nn_batch_norm(b, norm[i], out, 0.1, .relu = true, .sync = true);
        in = out;
    }
    m->hidden = lvn_nn_linear(b, "project.hidden", FEATURES, FEATURES, .no_bias = true);
    m->calm = lvn_nn_batch_norm(b, "project.norm", FEATURES, 0.1, .relu = true, .sync = true);
    m->out = lvn_nn_linear(b, "project.out", FEATURES, m->s.projection);
    m->bank = lvn_builder_queue(b, "bank", m->s.bank, FEATURES + m->s.classes);
    lvn_builder_couple(b); /* micro-batches look at each other */
    return lvn_builder_status(b);
}

/* (N, S, S, 3) -> (N, FEATURES) */
static lvn_tensor *features_of(const simclr *m, lvn_tensor *x)
{
    for (int i = 0; i < STAGES; i++) {
        x = lvn_forward(m->norm[i], lvn_forward(m->conv[i], x));
        x = i < STAGES - 1 ? lvn_max_pool2d(x, 2) : x;
    }
    return lvn_global_avg_pool2d(x);
}

static lvn_tensor *unit_rows(lvn_tensor *x)
{
    const int last = 1;
    return lvn_div(x, lvn_sqrt(lvn_add_scalar(lvn_sum_axes(lvn_square(x), &last, 1, true), 1e-12)));
}

static lvn_tensor *project(const simclr *m, lvn_tensor *features) /* rows of length 1 */
{
    lvn_tensor *x = lvn_forward(m->calm, lvn_forward(m->hidden, features));
    return unit_rows(lvn_forward(m->out, x));
}

/* ---- the loss: NT-Xent ---- */

/* first, first + 1, ...; in host memory, for the caller to release. */
static lvn_tensor *count_up(int64_t first, int64_t n)
{
    lvn_tensor *t = lvn_tensor_create(LVN_I64, LVN_SHAPE(n));
    for (int64_t i = 0; t != NULL && i < n; i++) {
        ((int64_t *)lvn_data(t))[i] = first + i;
    }
    return t;
}

/* One direction: the rows of z against all rows of the group, (G, P) of its own view and then of
 * the other; row i is `first` + i of both. Its own place does not count, its partner is the right
 * one. */
static lvn_tensor *find_partners(lvn_tensor *z, lvn_tensor *own_view, lvn_tensor *other_view,
                                 int64_t first, double temperature, lvn_tensor **accuracy)
{
    const int64_t n = lvn_size(z, 0), group = lvn_size(own_view, 0);
    lvn_tensor *all = lvn_concat((lvn_tensor *[]){own_view, other_view}, 2, 0);
    lvn_tensor *alike = lvn_mul_scalar(lvn_matmul(z, all, .trans_b = true), 1.0 / temperature);
    lvn_tensor *self = count_up(first, n), *partner = count_up(group + first, n);
    lvn_tensor *itself = lvn_gt_scalar(lvn_one_hot(self, 2 * group, LVN_F32), 0.5);
    alike = lvn_masked_fill(alike, itself, -INFINITY); /* (N, 2 G) */
    lvn_tensor *loss = lvn_cross_entropy(alike, partner);
    *accuracy = lvn_accuracy(alike, partner);
    lvn_release(self); /* what the ops still need they hold themselves */
    lvn_release(partner);
    return loss;
}

static lvn_tensor *simclr_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const simclr *m = (const simclr *)module;
    const int64_t n = batch->size;
    lvn_tensor *views[] = {batch->image, batch->field[2]};
    lvn_tensor *features = features_of(m, lvn_concat(views, 2, 0)); /* (2 N, FEATURES) */
    lvn_tensor *z = project(m, features);
    lvn_tensor *a = lvn_slice(z, 0, 0, n), *b = lvn_slice(z, 0, n, LVN_END), *acc_a, *acc_b;
    int64_t first; /* this micro-batch's rows among those of the group */
    lvn_tensor *all_a = lvn_group_gather_at(a, &first), *all_b = lvn_group_gather(b);
    lvn_tensor *loss = lvn_add(find_partners(a, all_a, all_b, first, m->s.temperature, &acc_a),
                               find_partners(b, all_b, all_a, first, m->s.temperature, &acc_b));
    loss = lvn_mul_scalar(loss, 0.5);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_mul_scalar(lvn_add(acc_a, acc_b), 0.5));
    lvn_tensor *seen = unit_rows(lvn_detach(lvn_slice(features, 0, 0, n)));
    lvn_tensor *rows[] = {seen, lvn_one_hot(batch->label, m->s.classes, LVN_F32)};
    lvn_tensor *pushed = lvn_concat(rows, 2, 1);
    return pushed == NULL || lvn_buffer_push(m->bank, pushed) != LVN_OK ? NULL : loss;
}

/* ---- validation: the classes of the nearest neighbours ---- */

/* (N, FEATURES) -> (N, classes): the neighbours' votes, exp(cosine / temperature) each, of which
 * only the ratios count. Places of the bank that are empty vote for no class. */
static lvn_tensor *votes_of(const simclr *m, lvn_tensor *features)
{
    lvn_tensor *bank = lvn_buffer_value(m->bank),
               *empty = lvn_lt_scalar(lvn_queue_filled(m->bank), 0.5);
    lvn_tensor *keys = lvn_slice(bank, 1, 0, FEATURES),
               *classes = lvn_slice(bank, 1, FEATURES, LVN_END), *at;
    lvn_tensor *near = lvn_matmul(unit_rows(features), keys, .trans_b = true); /* (N, bank) */
    near = lvn_masked_fill(near, empty, -1.0);
    lvn_tensor *best = lvn_topk(near, m->s.neighbours, 1, true, &at); /* (N, k) */
    best = lvn_exp(lvn_mul_scalar(lvn_add_scalar(best, -1.0), 1.0 / m->s.knn_temperature));
    lvn_tensor *silent = lvn_zeros(LVN_F32, LVN_SHAPE(lvn_size(near, 0), m->s.bank));
    return lvn_matmul(lvn_scatter(silent, 1, at, best), classes);
}

static lvn_tensor *simclr_validate(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const simclr *m = (const simclr *)module;
    lvn_tensor *votes = votes_of(m, features_of(m, batch->image));
    lvn_tensor *right = lvn_accuracy(votes, batch->label);
    lvn_log(step, "knn", right);
    lvn_tensor *loss = lvn_add_scalar(lvn_neg(right), 1.0); /* errors: the least is the best */
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class simclr_class = {.name = "simclr",
                                              .size = sizeof(simclr),
                                              .build = simclr_build,
                                              .training_step = simclr_step,
                                              .validation_step = simclr_validate};

/* ---- the recipe ---- */

static const lvn_key keys[] = {
    {"data", LVN_KEY_PATH, NULL, "Folder with one sub-folder of images per class."},
    {"image_size", LVN_KEY_INT, "48", "Side of the square images in pixels."},
    {"min_scale", LVN_KEY_FLOAT, "0.2", "Smallest part of an image that a view shows."},
    {"strength", LVN_KEY_FLOAT, "0.5", "Of the changes of colours: the paper's s."},
    {"projection", LVN_KEY_INT, "64", "Numbers in which the two views are compared."},
    {"temperature", LVN_KEY_FLOAT, "0.2", "Of the loss: what cosines are divided by."},
    {"bank", LVN_KEY_INT, "256", "Images trained on last, among which neighbours are looked for."},
    {"neighbours", LVN_KEY_INT, "10", "Of a validation image, which vote for its class."},
    {"knn_temperature", LVN_KEY_FLOAT, "0.1", "Of the votes."},
};

static lvn_status check(const settings *s)
{
    if (s->projection < 1 || s->neighbours < 1 || s->neighbours > s->bank || s->bank > 1 << 20) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "projection=%d bank=%lld neighbours=%d: at least 1 each, no more neighbours than "
                 "images in the bank, and at most 1048576 of these",
                 s->projection, (long long)s->bank, s->neighbours);
    }
    if (!(s->temperature > 0.0) || !(s->knn_temperature > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE, "temperature=%g knn_temperature=%g: both must be above 0",
                 s->temperature, s->knn_temperature);
    }
    return LVN_OK;
}

static lvn_status open_images(const lvn_keys *k, lvn_job *job)
{
    const char *data = lvn_key_text(k, "data");
    const int size = (int)lvn_key_int(k, "image_size");
    const double strength = lvn_key_float(k, "strength");
    if (data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "data= is missing: a folder with one sub-folder of images per "
                                "class, or builtin:shapes");
    }
    job->train =
        LVN_IMAGE_FOLDER(data, .resize = size, .views = 2, .part = LVN_IMAGES_TRAIN,
                         .min_scale = lvn_key_float(k, "min_scale"), .color_jitter = 0.8 * strength,
                         .hue = 0.2 * strength, .jitter = 0.8, .grey = 0.2, .blur = 0.5);
    job->val = LVN_IMAGE_FOLDER(data, .resize = size, .part = LVN_IMAGES_VAL);
    if (job->train == NULL || job->val == NULL) {
        return lvn_last_error()->code;
    }
    static settings s; /* read when the network is built, in every rank of the process */
    s = (settings){.classes = job->train->n_classes,
                   .projection = (int)lvn_key_int(k, "projection"),
                   .neighbours = (int)lvn_key_int(k, "neighbours"),
                   .bank = lvn_key_int(k, "bank"),
                   .temperature = lvn_key_float(k, "temperature"),
                   .knn_temperature = lvn_key_float(k, "knn_temperature")};
    job->module = &simclr_class;
    job->arguments = &s;
    return check(&s);
}

static const lvn_recipe recipe = {
    .abi = LVN_RECIPE_ABI,
    .name = "simclr",
    .help = "images without classes: two views of each find each other (SimCLR)",
    .keys = keys,
    .n_keys = sizeof keys / sizeof *keys,
    .options = "max_epochs=50 batch_size=64 optim=adamw optim.lr=1e-3 scheduler=cosine "
               "drop_last=true",
    .open = open_images,
};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}
