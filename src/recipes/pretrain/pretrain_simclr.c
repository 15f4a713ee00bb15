/* method=simclr (Chen et al. 2020): of all images of the group the network has to find the other
 * view of each. */
#include "recipes/pretrain/pretrain.h"

#include <math.h>
#include <stdio.h>

enum { MOST_LAYERS = 8 }; /* of the head, as the key's range has it */

typedef struct simclr {
    lvni_pretrain_root root;
    lvn_module *linear[MOST_LAYERS], *norm[MOST_LAYERS]; /* norm NULL: without */
    int layers;
    double temperature;
} simclr;

/* The names are those of the sequence that the head is in other programs: linear, batch norm and
 * relu have numbers. */
static lvn_status simclr_build(lvn_module *module, lvn_builder *b)
{
    simclr *m = (simclr *)module;
    const lvni_pretrain_settings *s = lvn_builder_arguments(b);
    m->layers = (int)s->num_layers;
    m->temperature = s->temperature;
    lvni_pretrain_embedding_build(b, NULL, true, s, &m->root.embedding);
    lvn_builder_block(b, "projection_head");
    int64_t in = m->root.embedding.features;
    for (int i = 0, at = 0; i < m->layers; i++, at++) {
        char name[64];
        const bool last = i == m->layers - 1;
        const int64_t out = last ? s->output_dim : s->hidden_dim;
        snprintf(name, sizeof name, "projection_head.layers.%d", at++);
        m->linear[i] = lvn_nn_linear(b, name, in, out, .no_bias = s->batch_norm);
        if (s->batch_norm) {
            snprintf(name, sizeof name, "projection_head.layers.%d", at++);
            m->norm[i] = lvn_nn_batch_norm(b, name, (int)out, 0.1, .relu = !last);
        }
        in = out;
    }
    lvn_builder_couple(b); /* micro-batches look at each other */
    return lvn_builder_status(b);
}

static lvn_tensor *project(const simclr *m, lvn_tensor *x)
{
    for (int i = 0; i < m->layers; i++) {
        x = lvn_forward(m->linear[i], x);
        x = m->norm[i] != NULL ? lvn_forward(m->norm[i], x) : i < m->layers - 1 ? lvn_relu(x) : x;
    }
    return x;
}

/* ---- the loss ---- */

/* Rows of one view against those of the group, (G, P) of both views; row i is `begin` + i of its
 * own, in which its own place does not count, and its partner has that place in the other. */
static lvn_tensor *find_partners(lvn_tensor *rows, lvn_tensor *own, lvn_tensor *other,
                                 int64_t begin, double temperature, lvn_tensor **accuracy)
{
    static const int last = 1;
    const int64_t n = lvn_size(rows, 0), group = lvn_size(own, 0);
    lvn_tensor *all = lvn_concat((lvn_tensor *[]){own, other}, 2, 0);
    lvn_tensor *alike = lvn_mul_scalar(lvn_matmul(rows, all, .trans_b = true), 1.0 / temperature);
    lvn_tensor *itself =
        lvn_eq(lvni_pretrain_count_up(begin, n, 0), lvni_pretrain_count_up(0, 2 * group, 1));
    alike = lvn_masked_fill(alike, itself, -INFINITY); /* (N, 2 G) */
    lvn_tensor *partners = lvn_slice(other, 0, begin, begin + n),
               *partner = lvn_mul_scalar(lvn_sum_axes(lvn_mul(rows, partners), &last, 1, true),
                                         1.0 / temperature);
    lvn_tensor *others = lvn_masked_fill(alike,
                                         lvn_eq(lvni_pretrain_count_up(group + begin, n, 0),
                                                lvni_pretrain_count_up(0, 2 * group, 1)),
                                         -INFINITY);
    lvn_tensor *nearest = lvn_ge(lvn_detach(partner), lvn_max_axis(lvn_detach(others), 1, true));
    *accuracy = lvn_mean(lvn_masked_fill(lvn_zeros(LVN_F32, LVN_SHAPE(n, 1)), nearest, 1.0));
    return lvn_mean(lvn_sub(lvn_logsumexp(alike, 1), lvn_reshape(partner, 1, &n)));
}

static lvn_tensor *half_sum(lvn_tensor *a, lvn_tensor *b)
{
    return lvn_mul_scalar(lvn_add(a, b), 0.5);
}

lvn_tensor *lvni_pretrain_nt_xent(lvn_tensor *first, lvn_tensor *second, double temperature,
                                  lvn_tensor **accuracy)
{
    int64_t begin; /* this micro-batch's rows among those of the group */
    lvn_tensor *all_first = lvn_group_gather_at(first, &begin),
               *all_second = lvn_group_gather(second), *acc[2];
    lvn_tensor *a = find_partners(first, all_first, all_second, begin, temperature, &acc[0]),
               *b = find_partners(second, all_second, all_first, begin, temperature, &acc[1]);
    *accuracy = half_sum(acc[0], acc[1]);
    return half_sum(a, b);
}

static lvn_tensor *simclr_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const simclr *m = (const simclr *)module;
    const int64_t n = batch->size, v = lvn_size(batch->image, 1);
    lvn_tensor *features =
        lvni_pretrain_embed(&m->root.embedding, lvni_pretrain_images(batch->image));
    lvn_tensor *z = lvni_pretrain_unit_rows(project(m, features)); /* (2 N, P) */
    if (z == NULL) {
        return NULL;
    }
    const int64_t p = lvn_size(z, 1);
    z = lvn_reshape(z, 3, (const int64_t[]){n, v, p});
    lvn_tensor *first = lvn_reshape(lvn_slice(z, 1, 0, 1), 2, (const int64_t[]){n, p}),
               *second = lvn_reshape(lvn_slice(z, 1, 1, 2), 2, (const int64_t[]){n, p}), *accuracy;
    lvn_tensor *loss = lvni_pretrain_nt_xent(first, second, m->temperature, &accuracy);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", accuracy);
    lvni_pretrain_log_spread(step, features, n);
    return loss;
}

const lvn_module_class lvni_pretrain_simclr = {
    .name = "simclr", .size = sizeof(simclr), .build = simclr_build, .training_step = simclr_step};
