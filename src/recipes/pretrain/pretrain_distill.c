/* method=distillation: a network learns what a larger one, the teacher, sees in images. Versions 1
 * to 3 are those of LightlyTrain, 3 the usual one. */
#include "recipes/pretrain/pretrain.h"

#include <math.h>
#include <stdio.h>

enum { MOST_LAYERS = 8 }; /* of a head, as the key's range has it */

/* From the student's features to those of the teacher. */
typedef struct head {
    lvn_module *linear[MOST_LAYERS], *norm[MOST_LAYERS];
    int layers;
} head;

typedef struct distill {
    lvni_pretrain_root root;
    const lvn_module *teacher; /* NULL: a model in use */
    head global, local;        /* version 2 has the second alone, 1 the first */
    lvn_buffer *queue;         /* (Q, F), of versions 1 and 3 */
    const lvn_number *lambda;
    lvni_pretrain_distill_settings s;
} distill;

/* ---- the networks ---- */

/* Weights of PyTorch's trunc_normal_(std=0.02). The first head of version 3 and 1 keeps the bias of
 * a linear layer; that of version 2 begins with zeros. */
static void build_head(lvn_builder *b, const char *name, int layers, int64_t in, int64_t hidden,
                       int64_t out, bool zero_bias, head *h)
{
    char layer[96], parameter[112];
    h->layers = layers;
    for (int i = 0, at = 0; i < layers; i++) {
        const bool last = i == layers - 1;
        const char *dot = layers > 1 ? "." : "";
        snprintf(layer, sizeof layer, layers > 1 ? "%s%s%d" : "%s%s", name, dot, at++);
        h->linear[i] = lvn_nn_linear(b, layer, in, last ? out : hidden);
        snprintf(parameter, sizeof parameter, "%s.weight", layer);
        lvn_builder_set_init(b, parameter, LVN_INIT_NORMAL, 0.02);
        if (zero_bias) {
            snprintf(parameter, sizeof parameter, "%s.bias", layer);
            lvn_builder_set_init(b, parameter, LVN_INIT_ZEROS, 0.0);
        }
        if (!last) { /* then GELU, which has a number, too */
            snprintf(layer, sizeof layer, "%s.%d", name, at);
            h->norm[i] = lvn_nn_layer_norm(b, layer, hidden);
            at += 2;
        }
        in = hidden;
    }
}

static lvn_status distill_build(lvn_module *module, lvn_builder *b)
{
    distill *m = (distill *)module;
    const lvni_pretrain_settings *s = lvn_builder_arguments(b);
    const lvni_pretrain_distill_settings *d = &s->distill;
    m->s = *d;
    lvni_pretrain_embedding_build(b, NULL, true, s, &m->root.embedding);
    const int64_t in = m->root.embedding.features, out = lvni_nn_zoo_feature_dim(d->teacher);
    lvn_builder_block(b, "student_projection_head");
    if (d->version == 2) {
        build_head(b, "student_projection_head.mlp", (int)d->n_projection_layers, in,
                   d->projection_hidden_dim, d->n_teacher_blocks * out, true, &m->local);
    } else {
        const char *names[] = {"student_projection_head", "student_projection_head_global"};
        build_head(b, names[d->version == 3], 1, in, 0, out, false, &m->global);
        m->queue = lvn_builder_queue(b, "teacher_queue", d->queue_size, out);
        lvn_builder_couple(b);
    }
    if (d->version == 3) {
        build_head(b, "student_projection_head_local", 1, in, 0, out, false, &m->local);
    }
    m->lambda = lvn_builder_number(b, "lambda", .from = 0.0, .to = 1.0, .curve = LVN_CURVE_RANDOM);
    if (d->taught) {
        m->teacher = lvni_nn_zoo_teacher(b, LVNI_PRETRAIN_TEACHER, d->teacher, &s->backbone);
    }
    return lvn_builder_status(b);
}

static lvn_tensor *project(const head *h, lvn_tensor *x)
{
    for (int i = 0; i < h->layers; i++) {
        x = lvn_forward(h->linear[i], x);
        x = h->norm[i] == NULL ? x : lvn_gelu(lvn_forward(h->norm[i], x));
    }
    return x;
}

/* ---- losses ---- */

/* The sum over rows of P (ln P - ln Q), of softmax of logits (..., K); dropped: (K) or NULL,
 * classes that neither has, whose logits are -infinity. */
static lvn_tensor *divergence(lvn_tensor *teacher, lvn_tensor *student, lvn_tensor *dropped)
{
    lvn_tensor *p = lvn_softmax(teacher), *ln_p = lvn_log_softmax(teacher),
               *ln_q = lvn_log_softmax(student);
    lvn_tensor *difference = lvn_sub(ln_p, ln_q);
    if (dropped != NULL) { /* of infinities */
        difference = lvn_masked_fill(difference, dropped, 0.0);
    }
    return lvn_sum(lvn_mul(p, difference));
}

/* Rows against others (K, F), with -infinity where one is dropped. */
static lvn_tensor *compare(lvn_tensor *rows, lvn_tensor *others, double temperature,
                           lvn_tensor *dropped)
{
    lvn_tensor *x = lvn_mul_scalar(lvn_matmul(rows, others, .trans_b = true), 1.0 / temperature);
    return dropped == NULL ? x : lvn_masked_fill(x, dropped, -INFINITY);
}

/* (1, G + Q): true for rows of the queue that the step's G rows take the place of. */
static lvn_tensor *replaced(int64_t current, int64_t queue, lvn_tensor *next)
{
    lvn_tensor *at = lvni_pretrain_count_up(0, queue, 1);
    lvn_tensor *age = lvn_sub(at, lvn_reshape(next, 2, (const int64_t[]){1, 1}));
    age = lvn_where(lvn_lt_scalar(age, 0.0), lvn_add_scalar(age, (double)queue), age);
    lvn_tensor *kept = lvn_zeros(LVN_F32, LVN_SHAPE(1, current));
    lvn_tensor *gone = lvn_masked_fill(lvn_zeros(LVN_F32, LVN_SHAPE(1, queue)),
                                       lvn_lt_scalar(age, (double)current), 1.0);
    return lvn_gt_scalar(lvn_concat((lvn_tensor *[]){kept, gone}, 2, 1), 0.5);
}

lvn_tensor *lvni_pretrain_distill_global(lvn_tensor *teacher, lvn_tensor *student,
                                         lvn_tensor *current, lvn_tensor *queue, lvn_tensor *next,
                                         double temperature)
{
    const int64_t g = lvn_size(current, 0), q = lvn_size(queue, 0);
    lvn_tensor *dropped = g < q ? replaced(g, q, next) : NULL;
    lvn_tensor *others =
        g < q ? lvn_concat((lvn_tensor *[]){current, queue}, 2, 0) : lvn_slice(current, 0, 0, q);
    lvn_tensor *sum = divergence(compare(teacher, others, temperature, dropped),
                                 compare(student, others, temperature, dropped), dropped);
    return lvn_mul_scalar(sum, 1.0 / (double)lvn_size(teacher, 0));
}

lvn_tensor *lvni_pretrain_distill_local(lvn_tensor *teacher, lvn_tensor *student,
                                        double temperature)
{
    const double rows = (double)(lvn_size(teacher, 0) * lvn_size(teacher, 1));
    lvn_tensor *sum = divergence(compare(teacher, teacher, temperature, NULL),
                                 compare(student, student, temperature, NULL), NULL);
    return lvn_mul_scalar(sum, 1.0 / rows);
}

/* ---- a step ---- */

/* Each image with another one, in one ratio for the whole step (Zhang et al. 2018, "mixup"). */
static lvn_tensor *mix(const distill *m, lvn_tensor *images, lvn_step *step)
{
    lvn_tensor *lambda = lvn_number_tensor(m->lambda, step),
               *partner = lvn_random_permutation("mixup", lvn_size(images, 0));
    lvn_tensor *others = lvn_index_select(images, 0, partner);
    return lvn_add(others, lvn_mul(lvn_sub(images, others), lambda));
}

static lvni_nn_features teach(const distill *m, lvn_tensor *images)
{
    const bool was = lvn_set_training(false);
    const lvni_nn_features f =
        m->s.version != 2 ? lvni_nn_zoo_features(m->teacher, images)
                          : (lvni_nn_features){.map = lvni_nn_zoo_deep_map(
                                                   m->teacher, images, (int)m->s.n_teacher_blocks)};
    (void)lvn_set_training(was);
    return (lvni_nn_features){.map = lvn_detach(f.map),
                              .pooled = f.pooled == NULL ? NULL : lvn_detach(f.pooled)};
}

/* (N, h, w, F) -> (N, h w, F), rows of length 1. */
static lvn_tensor *positions(lvn_tensor *map)
{
    if (map == NULL) {
        return NULL;
    }
    const int64_t n = lvn_size(map, 0), f = lvn_size(map, 3);
    lvn_tensor *rows = lvni_pretrain_unit_rows(lvn_reshape(map, 2, (const int64_t[]){-1, f}));
    return lvn_reshape(rows, 3, (const int64_t[]){n, -1, f});
}

/* The student's map as the teacher's, of the teacher's height and width. */
static lvn_tensor *match(const distill *m, lvn_tensor *map, lvn_tensor *like)
{
    lvn_tensor *own = project(&m->local, map);
    return own == NULL || like == NULL ? NULL
                                       : lvn_resize2d(own, lvn_size(like, 1), lvn_size(like, 2),
                                                      .mode = LVN_RESIZE_BILINEAR);
}

static lvn_tensor *against_queue(const distill *m, lvn_tensor *teacher, lvn_tensor *student)
{
    lvn_tensor *seen = lvni_pretrain_unit_rows(teacher),
               *own = lvni_pretrain_unit_rows(project(&m->global, student));
    if (seen == NULL || lvn_buffer_push(m->queue, seen) != LVN_OK) {
        return NULL;
    }
    return lvni_pretrain_distill_global(seen, own, lvn_group_gather(seen),
                                        lvn_buffer_value(m->queue), lvni_nn_queue_next(m->queue),
                                        m->s.temperature_global);
}

static lvn_tensor *distill_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const distill *m = (const distill *)module;
    lvn_tensor *images = mix(m, lvni_pretrain_images(batch->image), step);
    const lvni_nn_features seen = teach(m, images),
                           own = lvni_pretrain_embed_map(&m->root.embedding, images);
    if (seen.map == NULL || own.pooled == NULL) {
        return NULL;
    }
    lvn_tensor *loss;
    if (m->s.version == 2) {
        loss = lvn_mean(lvn_square(lvn_sub(match(m, own.map, seen.map), seen.map)));
    } else {
        loss = against_queue(m, seen.pooled, own.pooled);
    }
    if (m->s.version == 3) {
        lvn_tensor *local = lvni_pretrain_distill_local(
            positions(seen.map), positions(match(m, own.map, seen.map)), m->s.temperature_local);
        lvn_log(step, "global_loss", loss);
        lvn_log(step, "local_loss", local);
        loss = lvn_add(loss, lvn_mul_scalar(local, m->s.loss_local_weight));
    }
    lvn_log(step, "loss", loss);
    lvni_pretrain_log_spread(step, own.pooled, batch->size);
    return loss;
}

const lvn_module_class lvni_pretrain_distill = {.name = "distillation",
                                                .size = sizeof(distill),
                                                .build = distill_build,
                                                .training_step = distill_step};
