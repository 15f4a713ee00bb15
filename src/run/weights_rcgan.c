/* What rcGAN calls the tensors of its generator and critic: the keys of a state_dict of its
 * Lightning modules (mmGAN, riGAN, rcGAN), whose networks have one structure. Called by
 * weights_file.c. */
#include "run/weights.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names begin so here, and there. */
typedef struct rule {
    const char *ours, *theirs;
} rule;

static const rule residual[] = {
    {"skip.", "conv_1x1."},           {"unit1.conv.", "conv_block.0."},
    {"unit1.norm.", "conv_block.1."}, {"unit1.act.", "conv_block.2."},
    {"unit2.conv.", "conv_block.3."}, {"unit2.norm.", "conv_block.4."},
    {"unit2.act.", "conv_block.5."},  {NULL, NULL},
};
static const rule down[] = {
    {"unit.conv.", "conv_1."},
    {"unit.norm.", "bn."},
    {"norm.", "bn."},
    {"unit.act.", "activation."},
    {"half.", "conv_3."},
    {"res.", "res."},
    {NULL, NULL},
};
static const rule up[] = {
    {"up.conv.", "conv_1."},      {"up.norm.", "bn."},
    {"up.act.", "activation."},   {"merge.conv.", "layers.0."},
    {"merge.norm.", "layers.1."}, {"merge.act.", "layers.2."},
    {"res.", "layers.3."},        {NULL, NULL},
};
static const rule generator[] = {
    {"middle.conv.", "conv.0."},
    {"middle.norm.", "conv.1."},
    {"middle.act.", "conv.2."},
    {"head1.", "conv2.0."},
    {"head2.", "conv2.1."},
    {"res_layer_1.unit.conv.", "res_layer_1.0."},
    {"res_layer_1.unit.norm.", "res_layer_1.1."},
    {"res_layer_1.unit.act.", "res_layer_1.2."},
    {NULL, NULL},
};
static const rule critic[] = {
    {"input.", "initial_layers.0."}, {"output.", "dense.1."}, {NULL, NULL}};

/* Parts that are numbered: "down<i>.", and what their number is there. */
static const struct {
    const char *ours;
    const char *theirs; /* "%d" is the number */
    int factor, offset; /* of it */
    const rule *in_it;  /* NULL: nothing of it has another name */
} numbered[] = {
    {"generator.down", "generator.down_sample_layers.%d.", 1, 0, down},
    {"generator.up", "generator.up_sample_layers.%d.", -1, 3, up}, /* of its four levels */
    {"generator.res_layer_1.res", "generator.res_layer_1.%d.", 1, 3, residual},
    {"critic.stage", "discriminator.encoder_layers.%d.downsample.1.", 1, -1, NULL},
};

/* What the name begins with there; *name is moved behind it. */
static const char *apply(const rule *rules, const char **name)
{
    for (; rules != NULL && rules->ours != NULL; rules++) {
        const size_t n = strlen(rules->ours);
        if (strncmp(*name, rules->ours, n) == 0) {
            *name += n;
            return rules->theirs;
        }
    }
    return "";
}

/* A number and a dot behind `start`; NULL: the name is another. */
static const char *number_behind(const char *name, const char *start, int *number)
{
    char *end;
    const size_t n = strlen(start);
    if (strncmp(name, start, n) != 0 || !isdigit((unsigned char)name[n])) {
        return NULL;
    }
    *number = (int)strtol(name + n, &end, 10);
    return *end == '.' ? end + 1 : NULL;
}

void lvni_run_rcgan_name(const char *name, char out[LVNI_WEIGHT_NAME])
{
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++) {
        int k;
        char begin[96];
        const char *rest = number_behind(name, numbered[i].ours, &k);
        if (rest != NULL) {
            k = numbered[i].factor * k + numbered[i].offset;
            const char *dot = strstr(numbered[i].theirs, "%d");
            snprintf(begin, sizeof begin, "%.*s%d%s", (int)(dot - numbered[i].theirs),
                     numbered[i].theirs, k, dot + 2);
            const bool block = strncmp(rest, "res.", 4) == 0;
            const char *part = apply(numbered[i].in_it, &rest),
                       *inner = block ? apply(residual, &rest) : "";
            snprintf(out, LVNI_WEIGHT_NAME, "%s%s%s%s", begin, part, inner, rest);
            return;
        }
    }
    const char *of_generator = "generator.", *of_critic = "critic.", *part = "", *begin = "";
    if (strncmp(name, of_generator, strlen(of_generator)) == 0) {
        begin = of_generator;
        name += strlen(of_generator);
        part = apply(generator, &name);
    } else if (strncmp(name, of_critic, strlen(of_critic)) == 0) {
        begin = "discriminator.";
        name += strlen(of_critic);
        part = apply(critic, &name);
    }
    snprintf(out, LVNI_WEIGHT_NAME, "%s%s%s", begin, part, name);
}
