/* GPT-2: names, shapes and layout of its parameters; logits, loss and gradients of a tiny one
 * against PyTorch's in f64. The numbers come from the network of bench/gpt2_step.py with the
 * weights, ids and labels below. */
#include "nn/model.h"
#include "nn/step_metrics.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { TEXTS = 2, TOKENS = 5, VOCABULARY = 11 };
static const lvni_nn_gpt2_arguments tiny = {
    .layers = 2, .heads = 2, .width = 6, .vocabulary = VOCABULARY, .positions = 7};

static lvni_nn_model *make(const lvni_nn_gpt2_arguments *arguments)
{
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&lvni_nn_gpt2, arguments, 3, &m), LVN_OK);
    return m;
}

static const lvni_nn_parameter *find(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return &m->parameters[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

TEST(parameters_have_the_names_of_the_files)
{
    static const char *const in_block[] = {
        "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
        "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
        "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};
    lvni_nn_model *m = make(&tiny);
    assert_int_equal(m->n_parameters, 2 + 2 * 12 + 2);
    assert_string_equal(m->parameters[0].name, "wte.weight");
    assert_string_equal(m->parameters[1].name, "wpe.weight");
    for (int i = 0; i < 12; i++) {
        assert_memory_equal(m->parameters[2 + i].name, "h.0.", 4);
        assert_string_equal(m->parameters[2 + i].name + 4, in_block[i]);
        assert_string_equal(m->parameters[14 + i].name + 4, in_block[i]);
    }
    assert_string_equal(m->parameters[26].name, "ln_f.weight");
    static const char *const blocks[] = {"embeddings", "h.0", "h.1", "head"};
    static const int firsts[] = {0, 2, 14, 26};
    assert_int_equal(m->n_blocks, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(m->blocks[i].name, blocks[i]);
        assert_int_equal(m->blocks[i].first, firsts[i]);
    }
    const lvni_nn_parameter *w = find(m, "h.1.mlp.c_fc.weight");
    assert_true(w->tensor->shape[0] == 24 && w->tensor->shape[1] == 6);
    int64_t shape[LVN_MAX_NDIM];
    float file[24 * 6], back[24 * 6];
    assert_int_equal(lvni_nn_parameter_file_shape(w, shape), 2);
    assert_true(shape[0] == 6 && shape[1] == 24);
    const float *here = w->tensor->data;
    lvni_nn_parameter_to_file(w, here, file);
    assert_true(file[1] == here[6] && file[24] == here[1] && file[24 + 1] == here[6 + 1]);
    lvni_nn_parameter_from_file(w, file, back);
    assert_memory_equal(back, here, sizeof back);
    lvni_nn_model_destroy(m);
}

TEST(impossible_sizes_are_refused)
{
    lvni_nn_gpt2_arguments a = tiny;
    lvni_nn_model *m;
    a.heads = 4;
    assert_int_equal(lvni_nn_model_build(&lvni_nn_gpt2, &a, 1, &m), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "4 heads do not divide a width of 6"));
    a = tiny;
    a.layers = 0;
    assert_int_equal(lvni_nn_model_build(&lvni_nn_gpt2, &a, 1, &m), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "layers is 0"));
}

static lvn_tensor *make_ids(int64_t add)
{
    lvn_tensor *t = lvn_tensor_create(LVN_I64, 2, (const int64_t[]){TEXTS, TOKENS});
    assert_non_null(t);
    for (int64_t i = 0; i < TEXTS * TOKENS; i++) {
        const int64_t n = i / TOKENS, place = i % TOKENS;
        ((int64_t *)t->data)[i] = (3 * n + 5 * place + n * place + add) % VOCABULARY;
    }
    return t;
}

static void set_weights(lvni_nn_model *m)
{
    for (int k = 0; k < m->n_parameters; k++) {
        for (int64_t i = 0; i < m->parameters[k].numel; i++) {
            LVNI_F32(m->parameters[k].tensor)[i] = (float)(0.3 * sin(1.7 * (double)i + k));
        }
    }
    lvni_nn_model_touch(m);
}

static double squares(const lvni_nn_model *m, const lvni_nn_set *set, const char *name)
{
    const lvni_nn_parameter *p = find(m, name);
    const float *g = set->gradients.data + set->gradients.offset[p - m->parameters];
    double sum = 0.0;
    for (int64_t i = 0; i < p->numel; i++) {
        sum += (double)g[i] * (double)g[i];
    }
    return sum;
}

static void assert_close(double have, double want)
{
    if (!(fabs(have - want) <= 2e-5 * fabs(want))) {
        fail_msg("%.9g, must be %.9g", have, want);
    }
}

TEST(a_tiny_one_agrees_with_pytorch)
{
    lvni_nn_model *m = make(&tiny);
    set_weights(m);
    lvni_nn_set *set;
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    lvn_tensor *ids = make_ids(0), *labels = make_ids(4);
    ((int64_t *)labels->data)[TOKENS + 2] = -100; /* counts for nothing */
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    ctx->at = (lvni_tensor_position){.training = true};
    ctx->gradients = &set->gradients;
    lvni_nn_set_begin(set, 1.0);
    const lvn_batch batch = {.size = TEXTS, .image = ids, .label = labels};
    lvni_nn_step step;
    lvni_nn_step_begin(&step, TEXTS);
    step.host = &batch;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *logits = lvn_forward(m->root, ids);
    assert_int_equal(lvn_ndim(logits), 3);
    const float *row = (const float *)logits->data + (TOKENS + 3) * VOCABULARY;
    assert_close((double)row[0], -0.1279802621832019);
    assert_close((double)row[2], 0.3675779944473114);
    lvn_tensor *loss = lvni_nn_gpt2.training_step(m->root, &batch, &step.now);
    assert_close(lvn_item(loss), 2.434472141985668);
    assert_true(step.weight == TEXTS * TOKENS - 1 && step.metric[0].weight == step.weight);
    assert_int_equal(lvn_backward(loss), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_set_finish(set);
    ctx->gradients = NULL;
    /* of the head and of the ids */
    assert_close(squares(m, set, "wte.weight"), 0.07804199329317764);
    assert_close(squares(m, set, "wpe.weight"), 0.0004281472778263126);
    assert_close(squares(m, set, "h.0.ln_1.weight"), 2.199125729102098e-05);
    assert_close(squares(m, set, "h.0.attn.c_attn.weight"), 6.87079064810192e-05);
    assert_close(squares(m, set, "h.1.attn.c_attn.bias"), 0.00010068026480675404);
    assert_close(squares(m, set, "h.1.mlp.c_proj.weight"), 0.00019744320591968387);
    assert_close(squares(m, set, "ln_f.bias"), 0.012722860106314085);
    lvn_release(ids);
    lvn_release(labels);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}
