/* method=dinov2 (Oquab et al. 2023, "DINOv2: learning robust visual features without supervision"):
 * dino on class tokens, and beside it the student has to predict what the teacher answers for
 * patches that it does not see itself (iBOT), and to keep class tokens apart (KoLeo). The losses
 * are pretrain_dinov2_loss.c's, the masks pretrain_masks.c's. */
#include "recipes/pretrain/pretrain_dino.h"

#include "autograd/tape.h"
#include "nn/step_metrics.h"

enum { GLOBAL = LVNI_PRETRAIN_GLOBAL };

/* It has no dropout and no batch norm, and a teacher no stochastic depth: training mode is its
 * evaluation mode. */
typedef struct network {
    lvni_pretrain_embedding embedding;
    lvni_pretrain_head head, patch_head; /* the second with ibot_separate_head */
} network;

typedef struct dinov2 {
    lvni_pretrain_root root; /* with the teacher's embedding */
    network student, teacher;
    /* Softmax centering: (K); (K + 1), sums over the masked patches of a step and their number, of
     * which the mean of the next follows; (K). sinkhorn_knopp has none. */
    lvn_buffer *center, *patch_sums, *patch_center;
    const lvn_number *temperature, *momentum; /* of the teacher */
    double student_temp, center_momentum;
    int64_t output_dim;
    int patch; /* pixels of a side */
    lvni_pretrain_dinov2_settings s;
} dinov2;

/* ---- the networks ---- */

static lvn_module *build_network(lvn_builder *b, const char *name, bool leads,
                                 const lvni_pretrain_settings *s, network *n)
{
    lvn_module *part = lvni_pretrain_part(b, name);
    lvni_pretrain_embedding_build(b, name, leads, s, &n->embedding);
    lvni_pretrain_head_form form = {.in = n->embedding.features,
                                    .hidden = s->hidden_dim,
                                    .bottleneck = s->dino.bottleneck_dim,
                                    .out = s->output_dim,
                                    .gain = true};
    if (leads) {
        lvn_builder_block(b, "student.projection_head");
    }
    lvni_pretrain_head_build(b, name, "projection_head", &form, &n->head);
    if (s->dinov2.ibot_separate_head) {
        form.bottleneck = s->dinov2.ibot_bottleneck_dim;
        lvni_pretrain_head_build(b, name, "ibot_projection_head", &form, &n->patch_head);
    }
    return part;
}

/* The mean over all masked patches of the step, however many each micro-batch had: the number of
 * its samples, which buffers are weighed by, is not theirs. */
static lvn_tensor *move_patch_center(const lvn_module *module, lvn_tensor *value)
{
    const dinov2 *m = (const dinov2 *)module;
    lvn_tensor *sums = lvn_buffer_value(m->patch_sums),
               *n = lvn_slice(sums, 0, m->output_dim, m->output_dim + 1);
    lvn_tensor *none = lvn_le_scalar(n, 0.0),
               *mean = lvn_div(lvn_slice(sums, 0, 0, m->output_dim), lvn_masked_fill(n, none, 1.0));
    lvn_tensor *moved = lvn_add(lvn_mul_scalar(value, m->center_momentum),
                                lvn_mul_scalar(mean, 1.0 - m->center_momentum));
    return lvn_where(none, value, moved);
}

static void build_centers(dinov2 *m, lvn_builder *b)
{
    m->center =
        lvn_builder_buffer(b, "center", LVN_SHAPE(m->output_dim), 0.0, 1.0 - m->center_momentum);
    m->patch_sums = lvn_builder_buffer(b, "patch_sums", LVN_SHAPE(m->output_dim + 1), 0.0, 1.0);
    m->patch_center = lvn_builder_buffer(b, "patch_center", LVN_SHAPE(m->output_dim), 0.0, 0.0);
    lvn_builder_function(b, m->patch_center, move_patch_center);
}

static lvn_status dinov2_build(lvn_module *module, lvn_builder *b)
{
    dinov2 *m = (dinov2 *)module;
    const lvni_pretrain_settings *s = lvn_builder_arguments(b);
    const lvni_pretrain_dino_settings *d = &s->dino;
    lvn_module *student = build_network(b, "student", true, s, &m->student),
               *teacher = build_network(b, "teacher", false, s, &m->teacher);
    lvn_builder_follow(b, teacher, student, .momentum = d->momentum_start, .end = d->momentum_end);
    m->root.embedding = m->teacher.embedding;
    m->output_dim = s->output_dim;
    m->patch = lvni_nn_zoo_patch(s->model);
    m->student_temp = d->student_temp;
    m->center_momentum = d->center_momentum;
    m->s = s->dinov2;
    if (m->s.sinkhorn_knopp) {
        lvn_builder_couple(b);
    } else {
        build_centers(m, b);
    }
    m->temperature =
        lvn_builder_number(b, "teacher_temp", .from = d->warmup_teacher_temp, .to = d->teacher_temp,
                           .steps = d->warmup_teacher_temp_steps);
    m->momentum = lvn_builder_number(b, "teacher_momentum", .from = d->momentum_start,
                                     .to = d->momentum_end, .curve = LVN_CURVE_COSINE);
    return lvn_builder_status(b);
}

/* ---- a step ---- */

/* Class tokens and patches, as the heads get them or give them out. */
typedef struct tokens {
    lvn_tensor *class, *patch; /* (rows, D) */
} tokens;

/* One pass for both where they share the head. */
static tokens project(const dinov2 *m, const network *n, tokens x)
{
    if (x.class == NULL || x.patch == NULL) {
        return (tokens){NULL, NULL};
    }
    if (m->s.ibot_separate_head) {
        return (tokens){lvni_pretrain_project(&n->head, x.class),
                        lvni_pretrain_project(&n->patch_head, x.patch)};
    }
    const int64_t rows = lvn_size(x.class, 0), all = rows + lvn_size(x.patch, 0);
    lvn_tensor *y =
        lvni_pretrain_project(&n->head, lvn_concat((lvn_tensor *[]){x.class, x.patch}, 2, 0));
    return (tokens){lvn_slice(y, 0, 0, rows), lvn_slice(y, 0, rows, all)};
}

/* Of the masked patches alone. hide: as the student sees the images. */
static tokens look(const network *n, lvn_tensor *images, const lvni_pretrain_masked *masked,
                   bool hide)
{
    const lvni_nn_features f =
        hide ? lvni_nn_zoo_masked_features(n->embedding.backbone, images, masked->mask)
             : lvni_nn_zoo_features(n->embedding.backbone, images);
    if (f.map == NULL) {
        return (tokens){NULL, NULL};
    }
    lvn_tensor *patches = lvn_reshape(f.map, 2, (const int64_t[]){-1, n->embedding.features});
    return (tokens){f.pooled, lvn_index_select(patches, 0, masked->index)};
}

/* Class tokens of the step's samples, each in the mean of its micro-batch; patches in sums. */
static lvn_status push_centers(const dinov2 *m, tokens logits, lvn_tensor *counts, int64_t n)
{
    static const int rows = 0;
    lvn_tensor *sums[] = {lvn_sum_axes(lvn_mul(logits.patch, counts), &rows, 1, false),
                          lvn_sum_axes(counts, &rows, 1, false)};
    lvn_tensor *each = lvn_mul_scalar(lvn_concat(sums, 2, 0), 1.0 / (double)n);
    LVN_TRY(lvn_buffer_push(m->center, lvn_mean_axes(logits.class, &rows, 1, false)));
    return lvn_buffer_push(m->patch_sums, each);
}

/* Probabilities; *sharp: logits of those of the class tokens that softmax has. */
static tokens spread(const dinov2 *m, tokens logits, lvn_tensor *temperature, lvn_tensor *counts,
                     int64_t n, lvn_tensor **sharp)
{
    if (logits.patch == NULL) {
        return (tokens){NULL, NULL};
    }
    if (m->s.sinkhorn_knopp) {
        *sharp = lvn_div(logits.class, temperature);
        const lvni_pretrain_head *h = &m->teacher.head,
                                 *p = m->s.ibot_separate_head ? &m->teacher.patch_head : h;
        lvn_tensor *bound = lvni_pretrain_project_bound(h),
                   *patch_bound = p == h ? bound : lvni_pretrain_project_bound(p);
        return (tokens){lvni_pretrain_sinkhorn(logits.class, bound, temperature, NULL),
                        lvni_pretrain_sinkhorn(logits.patch, patch_bound, temperature, counts)};
    }
    *sharp = lvn_div(lvn_sub(logits.class, lvn_buffer_value(m->center)), temperature);
    lvn_tensor *patch =
        lvn_div(lvn_sub(logits.patch, lvn_buffer_value(m->patch_center)), temperature);
    return push_centers(m, logits, counts, n) == LVN_OK
               ? (tokens){lvn_softmax(*sharp), lvn_softmax(patch)}
               : (tokens){NULL, NULL};
}

/* Of the micro-batch's crops, which have their places in the step. */
static bool draw_masks(const dinov2 *m, const lvn_tensor *images, const lvn_step *step, int64_t n,
                       lvni_pretrain_masked *out)
{
    const lvni_nn_step *now = (const lvni_nn_step *)(const void *)step;
    const lvni_tensor_position *at = &lvni_tensor_ctx_get()->at;
    const lvni_pretrain_masking masking = {.height = (int)lvn_size(images, 1) / m->patch,
                                           .width = (int)lvn_size(images, 2) / m->patch,
                                           .probability = m->s.mask_probability,
                                           .ratio = {m->s.mask_ratio_min, m->s.mask_ratio_max}};
    const lvni_pretrain_crops crops = {
        .seed = at->seed, .step = at->step, .first = GLOBAL * now->step_first, .n = GLOBAL * n};
    return lvni_pretrain_masked_draw(&masking, &crops, out);
}

static lvn_tensor *log_probabilities(const dinov2 *m, lvn_tensor *rows)
{
    return lvn_log_softmax(lvn_mul_scalar(rows, 1.0 / m->student_temp));
}

/* Of both large views, (N 2, D). */
static lvn_tensor *koleo(lvn_tensor *class, int64_t n)
{
    lvn_tensor *views = lvni_pretrain_by_sample(class, n), *loss[GLOBAL];
    for (int v = 0; v < GLOBAL; v++) {
        loss[v] = lvni_pretrain_koleo_loss(lvn_reshape(lvn_slice(views, 1, v, v + 1), 2,
                                                       (const int64_t[]){n, lvn_size(class, 1)}));
    }
    return lvn_add(loss[0], loss[1]);
}

/* The weighted sum of what is logged. */
static lvn_tensor *add_losses(const dinov2 *m, lvn_step *step, lvn_tensor *dino[2],
                              lvn_tensor *ibot, lvn_tensor *apart)
{
    const lvni_pretrain_dinov2_settings *s = &m->s;
    lvn_tensor *loss = lvn_mul_scalar(dino[0], s->dino_loss_weight);
    if (dino[1] != NULL) {
        loss = lvn_add(loss, lvn_mul_scalar(dino[1], s->dino_loss_weight));
    }
    loss = lvn_add(loss, lvn_mul_scalar(ibot, s->ibot_loss_weight));
    loss = lvn_add(loss, lvn_mul_scalar(apart, s->koleo_loss_weight));
    lvn_log(step, "loss", loss); /* first: of an epoch's line others may be left out */
    lvn_log(step, "dino_global_loss", dino[0]);
    if (dino[1] != NULL) {
        lvn_log(step, "dino_local_loss", dino[1]);
    }
    lvn_log(step, "ibot_loss", ibot);
    lvn_log(step, "koleo_loss", apart);
    return loss;
}

/* Losses of the student, which sees the large views with masks and the small ones without. */
static lvn_tensor *learn(const dinov2 *m, lvn_step *step, lvn_tensor *images, lvn_tensor *local,
                         const lvni_pretrain_masked *masked, tokens aim)
{
    const int64_t large = lvn_size(images, 0), n = large / GLOBAL;
    tokens own = look(&m->student, images, masked, true);
    lvn_tensor *apart = own.class == NULL ? NULL : koleo(own.class, n), *dino[2];
    if (local != NULL) {
        lvn_tensor *all[] = {
            own.class, lvni_pretrain_embed(&m->student.embedding, lvni_pretrain_images(local))};
        own.class = lvn_concat(all, 2, 0);
    }
    own = project(m, &m->student, own);
    if (own.class == NULL) {
        return NULL;
    }
    lvn_tensor *class = log_probabilities(m, own.class),
               *small = local == NULL ? NULL : lvn_slice(class, 0, large, lvn_size(class, 0));
    lvni_pretrain_dino_losses(lvni_pretrain_by_sample(aim.class, n),
                              lvni_pretrain_by_sample(lvn_slice(class, 0, 0, large), n),
                              small == NULL ? NULL : lvni_pretrain_by_sample(small, n), dino);
    lvn_tensor *ibot =
        lvni_pretrain_ibot_loss(aim.patch, log_probabilities(m, own.patch), masked->weight, large);
    return add_losses(m, step, dino, ibot, apart);
}

static lvn_tensor *dinov2_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const dinov2 *m = (const dinov2 *)module;
    const int64_t n = batch->size;
    lvn_tensor *local, *images = lvni_pretrain_images(lvni_pretrain_split_views(batch, &local)),
                       *temperature = lvn_number_tensor(m->temperature, step), *sharp = NULL;
    lvni_pretrain_masked masked;
    if (images == NULL || !draw_masks(m, images, step, n, &masked)) {
        return NULL;
    }
    const tokens seen = look(&m->teacher, images, &masked, false),
                 answer = project(m, &m->teacher, seen),
                 aim = spread(m, (tokens){lvn_detach(answer.class), lvn_detach(answer.patch)},
                              temperature, masked.counts, n, &sharp);
    lvn_tensor *loss = aim.class == NULL ? NULL : learn(m, step, images, local, &masked, aim);
    lvn_log(step, "teacher_temp", temperature);
    lvn_log(step, "teacher_momentum", lvn_number_tensor(m->momentum, step));
    if (loss != NULL) {
        lvni_pretrain_log_spread(step, seen.class, n);
        lvn_log_weighted(step, "teacher_information", lvni_pretrain_information(sharp),
                         n > 1 ? (double)n : 0.0);
    }
    return loss;
}

const lvn_module_class lvni_pretrain_dinov2 = {
    .name = "dinov2", .size = sizeof(dinov2), .build = dinov2_build, .training_step = dinov2_step};
