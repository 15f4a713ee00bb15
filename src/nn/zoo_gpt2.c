/* GPT-2 (model.h): blocks of causal attention and a two-layer network, each behind a layer norm
 * and added to what runs through. First weights as in the paper: normal with deviation 0.02, those
 * in front of a sum divided by sqrt(2 layers). */
#include "nn/builder_impl.h"

#include "core/math.h"

#include <stdio.h>

enum { MOST_LAYERS = 64 };
static const double deviation = 0.02;

static lvn_module *linear(lvn_builder *b, const char *name, int64_t in, int64_t out, double bound)
{
    lvn_module *m = lvn_nn_linear(b, name, in, out, .conv1d = true);
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    if (m != NULL && lvn_builder_set_init(b, weight, LVN_INIT_NORMAL, bound) == LVN_OK) {
        lvn_builder_set_init(b, bias, LVN_INIT_ZEROS, 0.0);
    }
    return m;
}

static double in_front_of_a_sum(const lvni_nn_gpt2_arguments *a)
{
    return deviation / lvni_core_sqrt(2.0 * a->layers);
}

/* ---- attention ---- */

typedef struct attention {
    lvn_module base;
    int heads;
    lvn_module *c_attn, *c_proj;
} attention;

static lvn_status attention_build(lvn_module *module, lvn_builder *b)
{
    attention *m = (attention *)module;
    const lvni_nn_gpt2_arguments *a = lvn_builder_arguments(b);
    m->heads = a->heads;
    m->c_attn = linear(b, "c_attn", a->width, 3 * a->width, deviation);
    m->c_proj = linear(b, "c_proj", a->width, a->width, in_front_of_a_sum(a));
    return lvn_builder_status(b);
}

static lvn_tensor *attention_forward(const lvn_module *module, lvn_tensor *x) /* (N, T, C) */
{
    const attention *m = (const attention *)module;
    if (x == NULL) {
        return NULL;
    }
    const int64_t n = lvn_size(x, 0), t = lvn_size(x, 1), c = lvn_size(x, 2);
    lvn_tensor *qkv = lvn_reshape(lvn_forward(m->c_attn, x), 5,
                                  (const int64_t[]){n, t, 3, m->heads, c / m->heads});
    lvn_tensor *y = lvn_attention_qkv(qkv, .causal = true);
    return lvn_forward(m->c_proj, lvn_reshape(y, 3, (const int64_t[]){n, t, c}));
}

static const lvn_module_class attention_class = {.name = "gpt2_attention",
                                                 .size = sizeof(attention),
                                                 .build = attention_build,
                                                 .forward = attention_forward};

/* ---- the two-layer network ---- */

typedef struct mlp {
    lvn_module base;
    lvn_module *c_fc, *c_proj;
} mlp;

static lvn_status mlp_build(lvn_module *module, lvn_builder *b)
{
    mlp *m = (mlp *)module;
    const lvni_nn_gpt2_arguments *a = lvn_builder_arguments(b);
    m->c_fc = linear(b, "c_fc", a->width, 4 * a->width, deviation);
    m->c_proj = linear(b, "c_proj", 4 * a->width, a->width, in_front_of_a_sum(a));
    return lvn_builder_status(b);
}

static lvn_tensor *mlp_forward(const lvn_module *module, lvn_tensor *x)
{
    const mlp *m = (const mlp *)module;
    return lvn_forward(m->c_proj, lvn_gelu_tanh(lvn_forward(m->c_fc, x)));
}

static const lvn_module_class mlp_class = {
    .name = "gpt2_mlp", .size = sizeof(mlp), .build = mlp_build, .forward = mlp_forward};

/* ---- a block ---- */

typedef struct block {
    lvn_module base;
    lvn_module *ln_1, *attn, *ln_2, *mlp, *dropout;
} block;

static lvn_status block_build(lvn_module *module, lvn_builder *b)
{
    block *m = (block *)module;
    const lvni_nn_gpt2_arguments *a = lvn_builder_arguments(b);
    m->ln_1 = lvn_nn_layer_norm(b, "ln_1", a->width);
    m->attn = lvn_builder_child(b, &attention_class, "attn");
    m->ln_2 = lvn_nn_layer_norm(b, "ln_2", a->width);
    m->mlp = lvn_builder_child(b, &mlp_class, "mlp");
    m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
    return lvn_builder_status(b);
}

static lvn_tensor *block_forward(const lvn_module *module, lvn_tensor *x)
{
    const block *m = (const block *)module;
    x = lvn_add(x, lvn_forward(m->dropout, lvn_forward(m->attn, lvn_forward(m->ln_1, x))));
    return lvn_add(x, lvn_forward(m->dropout, lvn_forward(m->mlp, lvn_forward(m->ln_2, x))));
}

static const lvn_module_class block_class = {
    .name = "gpt2_block", .size = sizeof(block), .build = block_build, .forward = block_forward};

/* ---- tables: modules only for their names ---- */

typedef struct table {
    lvn_module base;
    int64_t rows, width;
    lvn_tensor *weight; /* (rows, width) */
} table;

static lvn_status table_build(lvn_module *module, lvn_builder *b)
{
    table *m = (table *)module;
    m->weight = lvn_builder_parameter(b, "weight", 2, (const int64_t[]){m->rows, m->width},
                                      LVN_INIT_NORMAL, deviation);
    return lvn_builder_status(b);
}

static const lvn_module_class table_class = {
    .name = "gpt2_table", .size = sizeof(table), .build = table_build};

static table *add_table(lvn_builder *b, const char *name, int64_t rows, int64_t width)
{
    table *m = (table *)(void *)lvni_nn_builder_new_module(b, &table_class, name);
    if (m == NULL) {
        return NULL;
    }
    m->rows = rows;
    m->width = width;
    return (table *)(void *)lvni_nn_builder_build(b, &m->base);
}

/* ---- the whole ---- */

typedef struct gpt2 {
    lvn_module base;
    int layers;
    table *wte, *wpe;
    lvn_module *dropout, *h[MOST_LAYERS], *ln_f;
} gpt2;

static lvn_status gpt2_build(lvn_module *module, lvn_builder *b)
{
    gpt2 *m = (gpt2 *)module;
    const lvni_nn_gpt2_arguments *a = lvn_builder_arguments(b);
    LVN_ARG(a->layers >= 1 && a->layers <= MOST_LAYERS, "gpt2: layers is %d, it must be 1 to %d",
            a->layers, MOST_LAYERS);
    LVN_ARG(a->heads >= 1 && a->width >= 1 && a->width % a->heads == 0,
            "gpt2: %d heads do not divide a width of %lld", a->heads, (long long)a->width);
    LVN_ARG(a->vocabulary >= 1 && a->positions >= 1,
            "gpt2: a vocabulary of %lld and %lld positions are not possible",
            (long long)a->vocabulary, (long long)a->positions);
    m->layers = a->layers;
    lvn_builder_block(b, "embeddings");
    m->wte = add_table(b, "wte", a->vocabulary, a->width);
    m->wpe = add_table(b, "wpe", a->positions, a->width);
    m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
    for (int i = 0; i < a->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "h.%d", i);
        lvn_builder_block(b, name);
        m->h[i] = lvn_builder_child(b, &block_class, name);
    }
    lvn_builder_block(b, "head");
    m->ln_f = lvn_nn_layer_norm(b, "ln_f", a->width);
    return lvn_builder_status(b);
}

static lvn_tensor *gpt2_forward(const lvn_module *module, lvn_tensor *x)
{
    const gpt2 *m = (const gpt2 *)module;
    if (x != NULL && lvn_ndim(x) != 2) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "gpt2: ids have %d axes, they must have 2 (texts, tokens)", lvn_ndim(x));
        return lvni_autograd_op_fail("gpt2");
    }
    x = lvn_forward(m->dropout, lvn_embedding(m->wte->weight, x, .positions = m->wpe->weight));
    for (int i = 0; i < m->layers; i++) {
        x = lvn_forward(m->h[i], x);
    }
    return lvn_linear(lvn_forward(m->ln_f, x), m->wte->weight, NULL);
}

enum { NO_LABEL = -100 };

/* Tokens that the loss is a mean over, counted where the labels are; exact up to 2^24. */
static lvn_tensor *count_tokens(const lvn_batch *batch)
{
    lvn_tensor *no = lvn_zeros(LVN_F32, LVN_SHAPE(1)), *yes = lvn_add_scalar(no, 1.0);
    return lvn_sum(lvn_where(lvn_ne_scalar(batch->label, NO_LABEL), yes, no));
}

static lvn_tensor *gpt2_training_step(const lvn_module *module, const lvn_batch *batch,
                                      lvn_step *step)
{
    lvn_tensor *loss = lvn_cross_entropy(lvn_forward(module, batch->image), batch->label),
               *tokens = count_tokens(batch);
    lvn_log_weighted_by(step, "loss", loss, tokens);
    lvn_step_weigh_by(step, tokens);
    return loss;
}

const lvn_module_class lvni_nn_gpt2 = {.name = "gpt2",
                                       .size = sizeof(gpt2),
                                       .build = gpt2_build,
                                       .forward = gpt2_forward,
                                       .training_step = gpt2_training_step};
