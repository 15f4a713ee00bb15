/* method=dino (Caron et al. 2021, "Emerging properties in self-supervised vision transformers"): a
 * student sees all views of an image, a teacher that follows it the large ones, and from every view
 * the student has to predict the output of the teacher for another. */
#include "recipes/pretrain/pretrain.h"

#include "core/math.h"

#include <stdio.h>

enum { LINEARS = 3 };

/* The projection head: an MLP, rows of length 1, and a layer whose weights are rows of length 1,
 * too, times `gain` where that is learned. */
typedef struct head {
    lvn_module *linear[LINEARS], *norm[LINEARS]; /* norm NULL: without */
    lvn_tensor *direction, *gain;                /* (K, bottleneck), (K, 1); gain NULL: 1 */
} head;

typedef struct network {
    lvni_pretrain_embedding embedding;
    head head;
} network;

typedef struct dino {
    lvni_pretrain_root root; /* with the teacher's embedding */
    network student, teacher;
    lvn_buffer *center;                       /* (K) */
    const lvn_number *temperature, *momentum; /* of the teacher */
    double student_temp;
} dino;

/* ---- the networks ---- */

/* A name for the parts of a network, which the teacher follows the student by. */
static lvn_status nothing(lvn_module *module, lvn_builder *b)
{
    (void)module;
    return lvn_builder_status(b);
}

static const lvn_module_class part_class = {
    .name = "part", .size = sizeof(lvn_module), .build = nothing};

/* Of PyTorch's trunc_normal_ and zeros. */
static lvn_module *narrow_linear(lvn_builder *b, const char *name, int64_t in, int64_t out,
                                 bool no_bias)
{
    char parameter[96];
    lvn_module *m = lvn_nn_linear(b, name, in, out, .no_bias = no_bias);
    snprintf(parameter, sizeof parameter, "%s.weight", name);
    lvn_builder_set_init(b, parameter, LVN_INIT_NORMAL, 0.02);
    if (!no_bias) {
        snprintf(parameter, sizeof parameter, "%s.bias", name);
        lvn_builder_set_init(b, parameter, LVN_INIT_ZEROS, 0.0);
    }
    return m;
}

/* Layers have the numbers of the sequence that the head is in other programs, activations
 * included. */
static void build_head(lvn_builder *b, const char *of, const lvni_pretrain_settings *s, int64_t in,
                       head *h)
{
    const lvni_pretrain_dino_settings *d = &s->dino;
    char name[64];
    for (int i = 0, at = 0; i < LINEARS; i++, at++) {
        const bool last = i == LINEARS - 1, norm = s->batch_norm && !last;
        const int64_t out = last ? d->bottleneck_dim : s->hidden_dim;
        snprintf(name, sizeof name, "%s.projection_head.layers.%d", of, at++);
        h->linear[i] = narrow_linear(b, name, in, out, norm);
        if (norm) {
            snprintf(name, sizeof name, "%s.projection_head.layers.%d", of, at++);
            h->norm[i] = lvn_nn_batch_norm(b, name, (int)out, 0.1);
        }
        in = out;
    }
    snprintf(name, sizeof name, "%s.projection_head.last_layer.weight_v", of);
    h->direction = lvn_builder_parameter(b, name, 2, (const int64_t[]){s->output_dim, in},
                                         LVN_INIT_UNIFORM, 1.0 / lvni_core_sqrt((double)in));
    if (!d->norm_last_layer) {
        snprintf(name, sizeof name, "%s.projection_head.last_layer.weight_g", of);
        h->gain = lvn_builder_parameter(b, name, 2, (const int64_t[]){s->output_dim, 1},
                                        LVN_INIT_ONES, 0.0);
    }
}

/* The leader's parameters lie in blocks; those of the teacher will be buffers. */
static lvn_module *build_network(lvn_builder *b, const char *name, bool leads,
                                 const lvni_pretrain_settings *s, network *n)
{
    lvn_module *part = lvn_builder_child(b, &part_class, name);
    lvni_pretrain_embedding_build(b, name, leads, s, &n->embedding);
    if (leads) {
        lvn_builder_block(b, "student.projection_head");
    }
    build_head(b, name, s, n->embedding.features, &n->head);
    return part;
}

static lvn_status dino_build(lvn_module *module, lvn_builder *b)
{
    dino *m = (dino *)module;
    const lvni_pretrain_settings *s = lvn_builder_arguments(b);
    const lvni_pretrain_dino_settings *d = &s->dino;
    lvn_module *student = build_network(b, "student", true, s, &m->student),
               *teacher = build_network(b, "teacher", false, s, &m->teacher);
    lvn_builder_follow(b, teacher, student, .momentum = d->momentum_start, .end = d->momentum_end,
                       .own_statistics = true);
    m->root.embedding = m->teacher.embedding;
    m->center =
        lvn_builder_buffer(b, "center", LVN_SHAPE(s->output_dim), 0.0, 1.0 - d->center_momentum);
    m->temperature =
        lvn_builder_number(b, "teacher_temp", .from = d->warmup_teacher_temp, .to = d->teacher_temp,
                           .steps = d->warmup_teacher_temp_steps);
    m->momentum = lvn_builder_number(b, "teacher_momentum", .from = d->momentum_start,
                                     .to = d->momentum_end, .curve = LVN_CURVE_COSINE);
    m->student_temp = d->student_temp;
    return lvn_builder_status(b);
}

/* ---- a step ---- */

static lvn_tensor *project(const head *h, lvn_tensor *x)
{
    for (int i = 0; i < LINEARS; i++) {
        x = lvn_forward(h->linear[i], x);
        x = h->norm[i] != NULL ? lvn_forward(h->norm[i], x) : x;
        x = i < LINEARS - 1 ? lvn_gelu(x) : x;
    }
    lvn_tensor *rows = lvni_pretrain_unit_rows(h->direction);
    rows = h->gain != NULL ? lvn_mul(rows, h->gain) : rows;
    return lvn_matmul(lvni_pretrain_unit_rows(x), rows, .trans_b = true);
}

/* Views (N, V, H, W, 3) -> (N V, K); *features: what the head got. */
static lvn_tensor *see(const network *n, lvn_tensor *views, lvn_tensor **features)
{
    *features = lvni_pretrain_embed(&n->embedding, lvni_pretrain_images(views));
    return *features == NULL ? NULL : project(&n->head, *features);
}

static lvn_tensor *by_sample(lvn_tensor *rows, int64_t samples)
{
    return lvn_reshape(rows, 3, (const int64_t[]){samples, -1, lvn_size(rows, 1)});
}

/* The sum over rows of target times x. */
static lvn_tensor *meet(lvn_tensor *target, lvn_tensor *x)
{
    return lvn_sum(lvn_mul(target, x));
}

lvn_tensor *lvni_pretrain_dino_loss(lvn_tensor *teacher, lvn_tensor *global, lvn_tensor *local)
{
    static const int views = 1;
    const int64_t n = lvn_size(teacher, 0), n_local = local == NULL ? 0 : lvn_size(local, 1),
                  terms = 2 * (2 + n_local) - 2;
    lvn_tensor *first = lvn_slice(teacher, 1, 0, 1), *second = lvn_slice(teacher, 1, 1, 2);
    lvn_tensor *sum =
        lvn_add(meet(first, lvn_slice(global, 1, 1, 2)), meet(second, lvn_slice(global, 1, 0, 1)));
    if (n_local > 0) { /* both against each */
        sum = lvn_add(sum, meet(lvn_add(first, second), lvn_sum_axes(local, &views, 1, true)));
    }
    return lvn_mul_scalar(sum, -1.0 / (double)(terms * n));
}

/* Rows (N V, K) as logarithms of probabilities (N, V, K). */
static lvn_tensor *log_probabilities(const dino *m, lvn_tensor *rows, int64_t n)
{
    return by_sample(lvn_log_softmax(lvn_mul_scalar(rows, 1.0 / m->student_temp)), n);
}

enum { GLOBAL = 2 };

/* *local NULL: there are none. Views of one size share the first field; else local ones are the
 * last, and a field in between may have classes, which are not looked at. */
static lvn_tensor *split_views(const lvn_batch *batch, lvn_tensor **local)
{
    lvn_tensor *first = batch->field[0], *last = batch->field[batch->n_fields - 1];
    const int64_t n = lvn_size(first, 1);
    *local = n > GLOBAL                                   ? lvn_slice(first, 1, GLOBAL, n)
             : batch->n_fields > 1 && lvn_ndim(last) == 5 ? last
                                                          : NULL;
    return n > GLOBAL ? lvn_slice(first, 1, 0, GLOBAL) : first;
}

/* What the answers, rows of probabilities, show of the image, in nats: the entropy of their mean
 * less the mean of their entropies. 0 where all images get the same one, sharp or even. */
static lvn_tensor *information(lvn_tensor *logits)
{
    static const int rows = 0;
    lvn_tensor *p = lvn_softmax(logits), *mean = lvn_mean_axes(p, &rows, 1, false);
    lvn_tensor *own = lvn_mul(p, lvn_log_softmax(logits)),
               *of_mean = lvn_mul(mean, lvn_log_e(lvn_clamp(mean, 1e-30, 1.0)));
    return lvn_sub(lvn_mul_scalar(lvn_mean(own), (double)lvn_size(logits, 1)), lvn_sum(of_mean));
}

static lvn_tensor *dino_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    static const int rows = 0;
    const dino *m = (const dino *)module;
    const int64_t n = batch->size;
    lvn_tensor *features, *unused, *local, *global = split_views(batch, &local);
    lvn_tensor *aim = lvn_detach(see(&m->teacher, global, &features)),
               *temperature = lvn_number_tensor(m->temperature, step);
    lvn_tensor *sharp = lvn_div(lvn_sub(aim, lvn_buffer_value(m->center)), temperature);
    if (sharp == NULL ||
        lvn_buffer_push(m->center, lvn_mean_axes(aim, &rows, 1, false)) != LVN_OK) {
        return NULL;
    }
    lvn_tensor *of_global = log_probabilities(m, see(&m->student, global, &unused), n),
               *of_local =
                   local == NULL ? NULL : log_probabilities(m, see(&m->student, local, &unused), n);
    lvn_tensor *loss =
        lvni_pretrain_dino_loss(by_sample(lvn_softmax(sharp), n), of_global, of_local);
    lvn_log(step, "loss", loss);
    lvn_log(step, "teacher_temp", temperature);
    lvn_log(step, "teacher_momentum", lvn_number_tensor(m->momentum, step));
    lvni_pretrain_log_spread(step, features, n);
    lvn_log_weighted(step, "teacher_information", information(sharp), n > 1 ? (double)n : 0.0);
    return loss;
}

const lvn_module_class lvni_pretrain_dino = {
    .name = "dino", .size = sizeof(dino), .build = dino_build, .training_step = dino_step};
