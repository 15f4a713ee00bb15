/* GPT-2 (Radford et al. 2019): a decoder of text. The root module of a language model; used by
 * recipes and benchmarks. */
#ifndef LEVIN_NN_ZOO_GPT2_H
#define LEVIN_NN_ZOO_GPT2_H

#include <levin/nn.h>

/* Arguments of build(). The 124M model: {12, 12, 768, 50257, 1024}. */
typedef struct lvni_nn_gpt2_arguments {
    int layers, heads;
    int64_t width, vocabulary, positions;
    double dropout;
} lvni_nn_gpt2_arguments;

/* forward: ids (N, T) i64, T <= positions -> logits (N, T, vocabulary). training_step: field 0 of
 * the batch are ids (N, T), field 1 the ids that follow them (N, T; -100 counts for nothing); loss:
 * mean cross entropy of the micro-batch's tokens. Parameters have the names of Hugging Face's files
 * (h.0.attn.c_attn.weight), whose (in, out) weights lie as (out, in) here; the head shares
 * wte.weight. */
extern const lvn_module_class lvni_nn_gpt2;

#endif
