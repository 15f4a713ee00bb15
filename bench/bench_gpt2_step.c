/* A training step of GPT-2 124M (4 texts of 64 tokens, AdamW) against PyTorch's with both of its
 * ways of AdamW (bench_duel.h).
 *
 * usage: bench_gpt2_step [gpt2 [PRECISION [TURNS [WGRAD_THREADS]]]], run by `make bench` */
#include "bench_duel.h"

#include "nn/model.h"

enum { TEXTS = 4, TOKENS = 64 };
static const lvni_nn_gpt2_arguments gpt2_124m = {
    .layers = 12, .heads = 12, .width = 768, .vocabulary = 50257, .positions = 1024};

static const bench_variant ways[BENCH_VARIANTS] = {{"as installed", "loop", false},
                                                   {"foreach, as installed", "foreach", false},
                                                   {"tuned", "loop", true},
                                                   {"foreach, tuned", "foreach", true}};

/* Token t of text n: words that repeat in an order, so that there is something to learn. */
static int64_t token(int64_t n, int64_t t)
{
    return (n * 7919 + t * (t + 3) * 31) % gpt2_124m.vocabulary;
}

static int text_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){.name = "ids", .dtype = LVN_I64, .ndim = 1, .shape = {TOKENS}};
    out[1] = (lvn_field){.name = "label", .dtype = LVN_I64, .ndim = 1, .shape = {TOKENS}};
    return 2;
}

static int64_t text_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return TEXTS;
}

static lvn_status text_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    (void)dataset;
    for (int64_t t = 0; t < TOKENS; t++) {
        ((int64_t *)field[0])[t] = token(key->sample, t);
        ((int64_t *)field[1])[t] = token(key->sample, t + 1);
    }
    return LVN_OK;
}

static const lvn_dataset_class text_class = {
    .name = "text", .fields = text_fields, .length = text_length, .get = text_get};

static lvn_status open_gpt2(const bench_duel *d, lvni_nn_model **model, lvn_dataset **data)
{
    (void)d;
    static lvn_dataset texts = {.cls = &text_class};
    *data = &texts;
    return lvni_nn_model_build(&lvni_nn_gpt2, &gpt2_124m, 1, model);
}

static void close_texts(lvn_dataset *data)
{
    (void)data; /* owns nothing */
}

#define DUEL(precision_, tolerance)                                                                \
    {                                                                                              \
        .net = "gpt2", .precision = precision_, .about = "4 texts of 64 tokens",                   \
        .script = "gpt2_step.py", .arg = "12", .variants = ways, .batch = TEXTS, .line = 2.0,      \
        .loss_tolerance = tolerance, .open = open_gpt2, .close = close_texts, .optim = {           \
            .kind = LVNI_OPTIM_ADAMW,                                                              \
            .lr = 1e-4,                                                                            \
            .beta1 = 0.9,                                                                          \
            .beta2 = 0.999,                                                                        \
            .eps = 1e-8,                                                                           \
            .weight_decay = 0.01                                                                   \
        }                                                                                          \
    }

static const bench_duel duels[] = {DUEL("32-true", 1e-3), DUEL("bf16-mixed", 0.1)};

int main(int argc, char **argv)
{
    return bench_duel_main(argc, argv, "gpt2_step", duels, sizeof duels / sizeof *duels);
}
