/* A built model: its modules, and its parameters and buffers in flat memory. Made by
 * lvni_nn_model_build; used by optim/ (flat steps), trainer/ (micro-batch sets, checkpoints) and
 * recipes/. */
#ifndef LEVIN_NN_MODEL_H
#define LEVIN_NN_MODEL_H

#include "autograd/tape.h"

#include <levin/backend.h>
#include <levin/nn.h>

/* How a parameter lies in levin and in files written for others. */
typedef enum lvni_nn_layout {
    LVNI_LAYOUT_PLAIN,
    /* (O, H, W, I) here, (O, I, H, W) there; transposed convolutions (I, H, W, O) and (I, O, H,
     * W); of sequences (O, L, I) and (O, I, L) */
    LVNI_LAYOUT_CONV,
    LVNI_LAYOUT_TRANSPOSED, /* (O, I) here, (I, O) there */
    LVNI_LAYOUT_FLATTEN     /* a linear layer behind a flattened image: (O, H W C) here, (O, C H W)
                               there */
} lvni_nn_layout;

typedef struct lvni_nn_parameter {
    char *name; /* "conv1.weight" */
    lvn_tensor *tensor;
    int64_t numel;
    int phase;    /* of a step, in which it is trained; -1: never. The trainer's */
    int64_t thaw; /* the first step that trains it. The trainer's */
    lvn_init init;
    double bound;
    lvni_nn_layout layout;
    int64_t image[3]; /* LVNI_LAYOUT_FLATTEN: height, width, channels */
} lvni_nn_parameter;

/* The parameter's shape in files written for others. Returns the number of axes. */
int lvni_nn_parameter_file_shape(const lvni_nn_parameter *p, int64_t shape[LVN_MAX_NDIM]);
/* Its elements from one order to the other. */
void lvni_nn_parameter_to_file(const lvni_nn_parameter *p, const float *here, float *file);
void lvni_nn_parameter_from_file(const lvni_nn_parameter *p, const float *file, float *here);

typedef struct lvni_nn_model lvni_nn_model;

/* A piece of the network (lvn_builder_block): a range of the parameters and of the flat buffer. */
typedef struct lvni_nn_block {
    char *name; /* "layer1.0"; "" without a name */
    int first;  /* its first parameter: its last one is in front of the next block's first */
    /* in elements: `begin` is a border of LVNI_FLAT_BLOCK, `end` the next block's begin, or
     * n_weights. Empty where the block has no parameters. */
    int64_t begin, end;
} lvni_nn_block;

/* What a step makes of a buffer. */
typedef enum lvni_nn_rule {
    LVNI_RULE_MEAN,   /* moves to the mean of what was pushed */
    LVNI_RULE_QUEUE,  /* rows that were pushed take the place of the oldest */
    LVNI_RULE_FOLLOW, /* was a parameter, or a mean, and moves towards another one */
    LVNI_RULE_PART,   /* belongs to another buffer, which moves it */
    LVNI_RULE_FIXED   /* was a parameter, or a constant, and stays as it is */
} lvni_nn_rule;

/* Rows that micro-batches push, in the order of the micro-batches. */
typedef struct lvni_nn_queue {
    int64_t rows, width;
    int64_t per_sample;        /* rows that a micro-batch may push for each sample */
    int64_t slots, slot_rows;  /* micro-batches of a step, rows that each has room for */
    lvn_buffer *filled, *next; /* (rows): 1 where there is a row; (1): where the next one goes */
} lvni_nn_queue;

/* How the buffers of a module move towards those that they follow: of the way that is left,
 * 1 - momentum. */
typedef struct lvni_nn_follow_rule {
    double momentum, end; /* of the first step; of the run's last one */
} lvni_nn_follow_rule;
enum { LVNI_NN_NAME = 200 }; /* characters of a parameter's or buffer's name */
enum { LVNI_FOLLOW_RULES = LVN_STEP_FOLLOWS };

typedef struct lvni_nn_follower {
    int rule; /* of the model's */
    const lvn_tensor *leader;
    const char *name; /* the leader's; the model's */
    int64_t offset;   /* of the leader's values in the model's `weights` */
} lvni_nn_follower;

/* What a module reads in a step (lvn_builder_number). */
enum { LVNI_NUMBERS = LVN_STEP_NUMBERS, LVNI_NUMBER_NAME = 32 };
struct lvn_number {
    char name[LVNI_NUMBER_NAME];
    int index; /* in model->number */
    const lvn_module *module;
    lvn_curve curve;
    double from, to;
    int64_t steps, epochs; /* on the way; both 0: those of the run */
    lvn_stair stair[LVN_MAX_STAIRS];
    int n_stairs;
    int64_t begin; /* LVN_CURVE_RAMP, and a rise for each epoch after it */
    double rise;
};
/* It has another value in some steps than in others. */
bool lvni_nn_number_moves(const lvn_number *number);
/* It is on its way from one value to another. */
bool lvni_nn_number_is_curve(const lvn_number *number);

struct lvn_buffer {
    char *name;
    lvn_tensor *tensor;
    const lvni_nn_model *model; /* whose it is */
    lvni_nn_rule rule;
    int index; /* in model->buffers */
    /* the only one of a step that moves it; -1: each. The trainer's */
    int phase;
    int64_t numel, offset; /* in the set's record part */
    int64_t value_offset;  /* of its values in the model's `weights` */
    double fill;           /* at the start, unless `init` draws */
    float *constant;       /* all of them instead, while the model is built; NULL: none. Owned */
    bool is_constant;      /* lvni_nn_builder_constant */
    lvn_init init;
    double bound;
    double momentum;              /* LVNI_RULE_MEAN, unless a number moves it */
    const lvn_number *moved;      /* the model's; NULL: none */
    lvni_nn_queue queue;          /* LVNI_RULE_QUEUE */
    lvni_nn_follower follow;      /* LVNI_RULE_FOLLOW */
    lvn_buffer_function function; /* of the new value; NULL: none */
    const lvn_module *module;     /* that made the function's buffer */
    bool left_out;                /* of checkpoints: it comes from elsewhere at every start */
    bool needed;                  /* LVNI_RULE_FIXED: a file of the network without it is not one */
    lvni_nn_parameter file; /* how it lies in files: as the parameter that it was; else all zero */
};

struct lvni_nn_model {
    lvn_module *root;
    lvn_module **modules; /* all, root first; owned */
    int n_modules;
    lvni_nn_parameter *parameters;
    int n_parameters;
    lvn_buffer **buffers;
    int n_buffers;
    lvni_nn_block
        *blocks; /* in the order of their parameters; together they are all of `weights` */
    int n_blocks;
    float *weights;    /* flat: parameter i at offset[i]; gaps for alignment are zero */
    int64_t *offset;   /* n_parameters + 1 entries, in elements, multiples of 16 */
    int64_t n_weights; /* length of the flat buffer */
    int64_t n_values;  /* n_weights, and behind them the buffers' values, with gaps */
    /* of n_values: an average of weights is one of these; it has the others as they are */
    int64_t n_averaged;
    bool coupled; /* micro-batches look at others of their group (lvn_builder_couple) */
    lvni_nn_follow_rule follow_rule[LVNI_FOLLOW_RULES];
    int n_follow_rules;
    lvn_number number[LVNI_NUMBERS];
    int n_numbers;
    int64_t n_records; /* length of a set's record part (lvni_nn_model_lay_records) */
    /* What steps add up of the flat buffer, on borders of blocks: outside, sets are undefined.
     * All of it, unless a trainer trains less. */
    int64_t trained_begin, trained_end;
};

/* Build the network and set its weights from the seed. */
lvn_status lvni_nn_model_build(const lvn_module_class *cls, const void *arguments, uint64_t seed,
                               lvni_nn_model **out);
/* The same with every batch norm over the samples of the micro-batch's group. */
lvn_status lvni_nn_model_build_sync(const lvn_module_class *cls, const void *arguments,
                                    uint64_t seed, lvni_nn_model **out);
/* Without values, for weights that are loaded: all zero. */
lvn_status lvni_nn_model_build_empty(const lvn_module_class *cls, const void *arguments,
                                     lvni_nn_model **out);
void lvni_nn_model_destroy(lvni_nn_model *model);
/* The classes of lvn_nn_batch_norm and lvn_nn_layer_norm. */
bool lvni_nn_is_norm(const lvn_module_class *cls);
/* Call after the weights were changed in place: reordered copies are out of date. */
void lvni_nn_model_touch(lvni_nn_model *model);
/* Let parameters and buffers stand for other n_values values (an average, for example) laid out as
 * `weights`; borrowed. NULL: for the model's own again. `weights` itself stays as it is. */
void lvni_nn_model_show(lvni_nn_model *model, float *values);
/* Room in sets for what the micro-batches of a step push, the largest of which has so many samples;
 * before sets are made. Until then queues have none. */
void lvni_nn_model_lay_records(lvni_nn_model *model, int64_t micro_batches, int64_t samples);
/* Elements of a buffer's part in the records. */
int64_t lvni_nn_buffer_record_length(const lvn_buffer *buffer);
/* Elements of all parameters, without the gaps of the flat buffer. */
int64_t lvni_nn_model_count(const lvni_nn_model *model);
/* a parameter or buffer of that name */
bool lvni_nn_model_has(const lvni_nn_model *model, const char *name);
/* A buffer of these values that no step moves. A resumed run and a trained model have those of
 * their file, a run that begins with weights= its own. NULL on failure. */
lvn_buffer *lvni_nn_builder_constant(lvn_builder *b, const char *name, int ndim,
                                     const int64_t *shape, const double *value);
/* Of the parameter made last; image: height, width, channels for LVNI_LAYOUT_FLATTEN, else NULL. */
void lvni_nn_builder_set_layout(lvn_builder *b, lvni_nn_layout layout, const int64_t *image);

/* A micro-batch's results: gradients, then records of buffers, in one flat f32 block, so that
 * merging two micro-batches is one addition. */
typedef struct lvni_nn_set {
    float *data; /* n_weights + n_records */
    lvni_autograd_gradients gradients;
    bool *recorded; /* per buffer */
    double weight;  /* of the micro-batch: samples */
    const lvni_nn_model *model;
    bool borrowed; /* `data` is not the set's own */
} lvni_nn_set;

lvn_status lvni_nn_set_create(const lvni_nn_model *model, lvni_nn_set **out);
/* The same over n_weights + n_records zeros that live longer than the set. */
lvn_status lvni_nn_set_create_in(const lvni_nn_model *model, float *data, lvni_nn_set **out);
void lvni_nn_set_destroy(lvni_nn_set *set);
/* Before a micro-batch: nothing written yet. */
void lvni_nn_set_begin(lvni_nn_set *set, double weight);
/* After a micro-batch: parts that the micro-batch did not write become zero, as far as they are
 * added up. */
void lvni_nn_set_finish(lvni_nn_set *set);
/* Elements of a set. A failure is the device's, as one of its kernels would be. */
void lvni_nn_set_zero(float *p, int64_t n);
/* (1): the row of a queue that the next push takes, after the oldest ones. */
lvn_tensor *lvni_nn_queue_next(const lvn_buffer *queue);
/* New buffer values from the step's merged set; numbers: the model's in this step (NULL: it has
 * none); block: NULL, or of the device on which all this lies: nothing unless the phase updated. */
void lvni_nn_model_apply_records(lvni_nn_model *model, const lvni_nn_set *total,
                                 const double *numbers, const lvn_step_block *block, int phase);

/* follow.c: those that follow move in this phase, by given[rule].factor of the way, or as
 * there[rule] has it: NULL, or of the block of the device on which all this lies. */
void lvni_nn_model_follow(lvni_nn_model *model, int phase, const lvn_step_average *given,
                          const lvn_step_average *on_device);
/* The buffer, which follows, becomes what its leader is; values: laid out as `weights`. */
lvn_status lvni_nn_model_copy_leader(const lvn_buffer *buffer, float *values);

/* The model zoo: a class per name of `model=`. Arguments of its build(): */
typedef struct lvni_nn_zoo_arguments {
    int image_size, n_classes;
    double dropout;
    /* of a vision transformer, a ConvNeXt or an EfficientNet: probability that an image passes a
     * layer by, or that of the last layer where it grows with the layers */
    double drop_path;
    int channels; /* of an image; 0: 3 */
    bool masked;  /* it is trained with masks, and its mask token with it */
} lvni_nn_zoo_arguments;
/* Choices of model=, those that can be backbones. */
#define LVNI_ZOO_BACKBONES                                                                         \
    "resnet18|resnet34|resnet50|resnet101|resnet152|convnext_tiny|convnext_small|convnext_base|"   \
    "convnext_large|efficientnet_b0|efficientnet_b1|efficientnet_b2|"                              \
    "vit_s_16|vit_b_16|vit_tiny_patch16_224|"                                                      \
    "vit_small_patch16_224|vit_base_patch16_224|dino_vits16|dino_vitb16|"                          \
    "vits14|vitb14|vits14-noreg|vitb14-noreg|vits14-notpretrained|vitb14-notpretrained|"           \
    "vits14-noreg-notpretrained|vitb14-noreg-notpretrained"
/* "torchvision/resnet18", "timm/resnet18.a1_in1k", "vit_base_patch16_224": the name here of what
 * others call so; NULL: none. */
const char *lvni_nn_zoo_respell(const char *text);
/* "cnn", "resnet18", ..., in their spelling, too; NULL when unknown */
const lvn_module_class *lvni_nn_zoo_find(const char *name);
bool lvni_nn_zoo_any_size(const char *name);     /* its weights fit images of other sizes */
bool lvni_nn_zoo_any_channels(const char *name); /* also others than 3 */
double lvni_nn_zoo_dropout(const char *name);    /* what model.dropout=auto means */
double lvni_nn_zoo_drop_path(const char *name);  /* what pretraining begins with */
bool lvni_nn_zoo_has_paths(const char *name);    /* that images can pass by */
bool lvni_nn_zoo_is_transformer(const char *name);
int lvni_nn_zoo_patch(const char *name); /* pixels of a side, which divide those of images; or 1 */
int lvni_nn_zoo_least_side(const char *name); /* pixels of the smallest image that it takes */
/* Positions that the last map has along a side of so many pixels; 0: there is no map. */
int lvni_nn_zoo_map_side(const char *name, int side);
/* The name is of published weights, which a file must have: "vits14", not "vits14-notpretrained" */
bool lvni_nn_zoo_needs_weights(const char *name);
/* Files of the network's authors have the layer that makes logits; else backbones have none. */
bool lvni_nn_zoo_has_classifier(const char *name);

/* A network of the zoo as the backbone of another model. */
/* Elements of a feature; 0 for unknown names. */
int lvni_nn_zoo_feature_dim(const char *name);
/* In build(): the network `model` as the child `name`. Its classifier is there with the network's
 * own names, saved and exported, and not trained; DINOv2's has none. NULL on failure. */
lvn_module *lvni_nn_zoo_backbone(lvn_builder *b, const char *name, const char *model,
                                 const lvni_nn_zoo_arguments *arguments);
/* The same of a network that stays as it is, with all that it has: no checkpoint has it, its
 * weights are read from elsewhere at every start. Run it in evaluation mode (lvn_set_training). */
lvn_module *lvni_nn_zoo_teacher(lvn_builder *b, const char *name, const char *model,
                                const lvni_nn_zoo_arguments *arguments);
typedef struct lvni_nn_features {
    /* (N, h, w, C): the last feature map, or the normalised patch tokens, of images of any size
     * that patches divide; NULL of mlp */
    lvn_tensor *map;
    lvn_tensor *pooled; /* (N, C): the map's mean over positions, or the normalised class token */
} lvni_nn_features;
/* Of images (N, S, S, 3), by a network that was made as a backbone or as a root. NULL, after a
 * failure of the scope. */
lvni_nn_features lvni_nn_zoo_features(const lvn_module *network, lvn_tensor *x);
/* The same of a vision transformer of DINOv2 whose patches are hidden, by its mask token, where
 * mask (N, h w, 1; bool) is true. */
lvni_nn_features lvni_nn_zoo_masked_features(const lvn_module *network, lvn_tensor *x,
                                             lvn_tensor *mask);
bool lvni_nn_zoo_has_masks(const char *name);
/* (N, h, w, layers C): the maps of the last layers (normalised patch tokens), in their order. More
 * than one: of transformers alone, of up to LVNI_ZOO_LAYERS. */
enum { LVNI_ZOO_LAYERS = 12 };
lvn_tensor *lvni_nn_zoo_deep_map(const lvn_module *network, lvn_tensor *x, int layers);
lvn_tensor *lvni_nn_zoo_map(const lvn_module *network, lvn_tensor *x);
lvn_tensor *lvni_nn_zoo_pooled(const lvn_module *network, lvn_tensor *x); /* without the map */

/* ---- GPT-2 (Radford et al. 2019): a decoder of text ----
 * The root module of a language model; used by benchmarks and tests. */

/* Arguments of build(). The 124M model: {12, 12, 768, 50257, 1024}. */
typedef struct lvni_nn_gpt2_arguments {
    int layers, heads;
    int64_t width, vocabulary, positions;
    double dropout;
} lvni_nn_gpt2_arguments;

/* forward: ids (N, T) i64, T <= positions -> logits (N, T, vocabulary). training_step: field 0 of
 * the batch are ids (N, T), field 1 the ids that follow them (N, T; -100 counts for nothing); loss:
 * mean cross entropy of the micro-batch's tokens, whose number is its weight. Parameters have the
 * names of Hugging Face's files (h.0.attn.c_attn.weight), whose (in, out) weights lie as (out, in)
 * here; the head shares wte.weight. */
extern const lvn_module_class lvni_nn_gpt2;

#endif
