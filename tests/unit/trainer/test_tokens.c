/* Micro-batches with other numbers of valid tokens: GPT-2's step weighs each by its tokens, so the
 * gradient is the one of the whole batch, and the same bits on every layout. */
#include "rank_support.h"

#include "sim_support.h"

#include <math.h>
#include <string.h>

enum { TEXTS = 24, TOKENS = 8, VOCABULARY = 11 };

static const lvni_nn_gpt2_arguments tiny = {
    .layers = 1, .heads = 2, .width = 8, .vocabulary = VOCABULARY, .positions = TOKENS};

/* ---- texts ---- */

static int text_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){.name = "ids", .dtype = LVN_I64, .ndim = 1, .shape = {TOKENS}};
    out[1] = (lvn_field){.name = "next", .dtype = LVN_I64, .ndim = 1, .shape = {TOKENS}};
    return 2;
}

static int64_t text_length(const lvn_dataset *dataset)
{
    return ((const memory *)(const void *)dataset)->n;
}

/* A quarter has no token that counts, the others 1 to 7. */
static lvn_status text_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    const int64_t valid = key->sample % 4 == 0 ? 0 : 1 + key->sample * 5 % 7;
    int64_t *ids = field[0], *next = field[1];
    (void)dataset;
    for (int64_t t = 0; t < TOKENS; t++) {
        ids[t] = (key->sample * 7 + t * t) % VOCABULARY;
        next[t] = t < valid ? (key->sample * 3 + t) % VOCABULARY : -100;
    }
    return LVN_OK;
}

static const lvn_dataset_class text_class = {
    .name = "texts", .fields = text_fields, .length = text_length, .get = text_get};

static void texts_init(memory *m)
{
    memory_init(m, TEXTS, 0);
    m->base.cls = &text_class;
}

/* ---- tests ---- */

/* Weights after a step of descent from all texts, cut into so many micro-batches. */
static double *descend(const memory *texts, int micro_batches, int64_t *n, double *loss)
{
    const setting s = {.cls = &lvni_nn_gpt2,
                       .arguments = &tiny,
                       .batch_size = TEXTS,
                       .micro_batches = micro_batches,
                       .lanes = 1};
    bench b;
    lvni_trainer_step_result r;
    bench_open(&b, texts, &s);
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
    *n = b.model->n_weights;
    double *w = test_malloc((size_t)*n * sizeof *w);
    for (int64_t i = 0; i < *n; i++) {
        w[i] = (double)b.model->weights[i];
    }
    *loss = lvni_trainer_metric_mean(&r.metrics, "loss");
    bench_close(&b);
    return w;
}

TEST(the_gradient_is_that_of_the_whole_batch)
{
    static const int cuts[] = {2, 5, 8, 24};
    memory texts;
    int64_t n;
    double loss;
    texts_init(&texts);
    double *whole = descend(&texts, 1, &n, &loss);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        double of_parts;
        double *w = descend(&texts, cuts[i], &n, &of_parts);
        for (int64_t k = 0; k < n; k++) {
            if (!(fabs(w[k] - whole[k]) <= 2e-6)) {
                fail_msg("%d micro-batches, weight %lld: %.9g, must be %.9g", cuts[i], (long long)k,
                         w[k], whole[k]);
            }
        }
        assert_true(fabs(of_parts - loss) <= 1e-6);
        test_free(w);
    }
    test_free(whole);
}

TEST(the_bits_are_those_of_one_rank)
{
    enum { STEPS = 9 };
    memory texts;
    texts_init(&texts);
    setting s = {
        .cls = &lvni_nn_gpt2,
        .arguments = &tiny,
        .batch_size = 8,
        .micro_batches = 4,
        .lanes = 1,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
        .clip = 0.5};
    const uint64_t want = ranks_hash_of_one(&texts, &s, STEPS, LVN_CPU);
    assert_true(ranks_hash_of_one(&texts, &s, STEPS, LVN_SIM(0)) == want);
    ranks_agree("tokens", &texts, &s, 3, STEPS, want);
    ranks_agree_on("tokens", &texts, &s, 2, STEPS, want, LVN_DEVICE_SIM);
    s.lanes = 2;
    assert_true(ranks_hash_of_one(&texts, &s, STEPS, LVN_CPU) == want);
}

/* Tokens are counted by ops: nothing of a step is read on the host. */
TEST(the_step_is_captured)
{
    enum { STEPS = 8, WATCHED = 3 };
    uint64_t hash[2];
    memory texts;
    texts_init(&texts);
    for (int on = 0; on < 2; on++) {
        const setting s = {.cls = &lvni_nn_gpt2,
                           .arguments = &tiny,
                           .batch_size = 8,
                           .micro_batches = 4,
                           .lanes = 2,
                           .graph = on ? LVNI_GRAPH_ON : LVNI_GRAPH_OFF};
        bench b;
        assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
        bench_open(&b, &texts, &s);
        bench_steps(&b, STEPS);
        hash[on] = bench_hash(&b);
        assert_int_equal(lvni_trainer_graph_replays(b.trainer->engine->graph),
                         on ? STEPS - WATCHED : 0);
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
    assert_true(hash[0] == hash[1]);
}

BEFORE_ALL()
{
    sim_start("2", "64MiB");
    return 0;
}
