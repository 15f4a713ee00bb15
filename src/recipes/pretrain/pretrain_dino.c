/* method=dino (Caron et al. 2021, "Emerging properties in self-supervised vision transformers"): a
 * student sees all views of an image, a teacher that follows it the large ones, and from every view
 * the student has to predict the output of the teacher for another. */
#include "recipes/pretrain/pretrain_dino.h"

typedef struct network {
    lvni_pretrain_embedding embedding;
    lvni_pretrain_head head;
} network;

typedef struct dino {
    lvni_pretrain_root root; /* with the teacher's embedding */
    network student, teacher;
    lvn_buffer *center;                       /* (K) */
    const lvn_number *temperature, *momentum; /* of the teacher */
    double student_temp;
} dino;

/* ---- the networks ---- */

/* The leader's parameters lie in blocks; those of the teacher will be buffers. */
static lvn_module *build_network(lvn_builder *b, const char *name, bool leads,
                                 const lvni_pretrain_settings *s, network *n)
{
    lvn_module *part = lvni_pretrain_part(b, name);
    lvni_pretrain_embedding_build(b, name, leads, s, &n->embedding);
    if (leads) {
        lvn_builder_block(b, "student.projection_head");
    }
    lvni_pretrain_head_build(b, name, "projection_head",
                             &(lvni_pretrain_head_form){.in = n->embedding.features,
                                                        .hidden = s->hidden_dim,
                                                        .bottleneck = s->dino.bottleneck_dim,
                                                        .out = s->output_dim,
                                                        .batch_norm = s->batch_norm,
                                                        .gain = !s->dino.norm_last_layer},
                             &n->head);
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

/* Views (N, V, H, W, 3) -> (N V, K); *features: what the head got. */
static lvn_tensor *see(const network *n, lvn_tensor *views, lvn_tensor **features)
{
    *features = lvni_pretrain_embed(&n->embedding, lvni_pretrain_images(views));
    return *features == NULL ? NULL : lvni_pretrain_project(&n->head, *features);
}

/* Rows (N V, K) as logarithms of probabilities (N, V, K). */
static lvn_tensor *log_probabilities(const dino *m, lvn_tensor *rows, int64_t n)
{
    return lvni_pretrain_by_sample(lvn_log_softmax(lvn_mul_scalar(rows, 1.0 / m->student_temp)), n);
}

static lvn_tensor *dino_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    static const int rows = 0;
    const dino *m = (const dino *)module;
    const int64_t n = batch->size;
    lvn_tensor *features, *unused, *local, *global = lvni_pretrain_split_views(batch, &local);
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
    lvn_tensor *loss = lvni_pretrain_dino_loss(lvni_pretrain_by_sample(lvn_softmax(sharp), n),
                                               of_global, of_local);
    lvn_log(step, "loss", loss);
    lvn_log(step, "teacher_temp", temperature);
    lvn_log(step, "teacher_momentum", lvn_number_tensor(m->momentum, step));
    lvni_pretrain_log_spread(step, features, n);
    lvn_log_weighted(step, "teacher_information", lvni_pretrain_information(sharp),
                     n > 1 ? (double)n : 0.0);
    return loss;
}

const lvn_module_class lvni_pretrain_dino = {
    .name = "dino", .size = sizeof(dino), .build = dino_build, .training_step = dino_step};
