/* Modules: networks and their parts. A user derives from lvn_module (first member) and fills a
 * lvn_module_class.
 *
 * A module never asks where it runs, and is read-only while a step runs: what a step changes
 * besides parameters is a registered buffer (lvn_buffer). build() makes children and parameters
 * through the builder; names make the path ("conv1.weight"), and may have dots themselves
 * ("encoder.conv1"). */
#ifndef LEVIN_NN_H
#define LEVIN_NN_H

#include <levin/data.h>
#include <levin/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lvn_module lvn_module;
/* collects parameters, buffers and children while a model is built */
typedef struct lvn_builder lvn_builder;
typedef struct lvn_buffer lvn_buffer;
/* The current step, as a module sees it; metrics go there (lvn_log). Made by levin alone: pass on
 * the pointer that was given, never a copy; fields may be added. */
typedef struct lvn_step {
    int64_t step; /* optimizer steps before this one; 0 in validation; in `validated` those done */
    int phase;    /* 0 .. n - 1 of the class's `phases`; 0 without, and in validation */
} lvn_step;

typedef struct lvn_module_class {
    const char *name;
    size_t size; /* sizeof of the derived struct */
    lvn_status (*build)(lvn_module *module, lvn_builder *builder);
    lvn_tensor *(*forward)(const lvn_module *module, lvn_tensor *x);
    /* Returns the loss, the mean over the micro-batch's samples, or over what lvn_step_weigh
     * counts. Called once per micro-batch. */
    lvn_tensor *(*training_step)(const lvn_module *module, const lvn_batch *batch, lvn_step *step);
    /* The same for validation; NULL: training_step is used (with dropout and batch norm in
     * evaluation mode). */
    lvn_tensor *(*validation_step)(const lvn_module *module, const lvn_batch *batch,
                                   lvn_step *step);
    /* optional: what build() made beside children, parameters and buffers */
    void (*destroy)(lvn_module *module);
    /* optional: the module on x, then `residual` added, where both are done in one pass over
     * memory */
    lvn_tensor *(*forward_residual)(const lvn_module *module, lvn_tensor *x, lvn_tensor *residual);
    /* optional: several optimizers in one step, one phase after the other over the whole batch (a
     * critic, then a generator). For each phase the names of the parameters that it trains, or of
     * modules above them, separated by commas, with '*' and '?'; then NULL. Every parameter is in
     * one phase; up to 8. In a phase training_step is called for every micro-batch, with the same
     * samples as in the others and step->phase, and returns the phase's loss: no other parameters
     * get a gradient, and those of phases before it are already updated. A buffer moves in the
     * phase that names it, and what others push into it is passed over. Metrics of all phases are
     * reported together. Validation is one pass, and needs a validation_step. A rank holds the
     * batches of all its micro-batches until the step is done. A failure between two phases saves
     * nothing: give checkpoint.every_n_steps. With the key optim.phases a phase has its own
     * optimizer, rate, schedule and clipping, and may be part of every n-th step alone (critic
     * steps); lvn_job.options may have it as a default. Those of the model's root count, not those
     * of modules inside of it. */
    const char *const *phases;
    /* optional, of the root: what follows from a validation. Called after each one of a training,
     * except the check before its first step, in every rank with the same numbers, before the
     * checkpoint is written: lvn_step_mean reads metrics of the validation, lvn_log_number adds
     * others (under val/), lvn_buffer_write gives buffers other values. An error it returns ends
     * the run with the error's message, before anything of this validation is saved. */
    lvn_status (*validated)(const lvn_module *module, lvn_step *step);
    void *reserved[1];
} lvn_module_class;

struct lvn_module {
    const lvn_module_class *cls;
    const char *path; /* "" for the root, else "layer1.conv" */
    void *reserved[4];
};

/* Run the module's forward in an inner scope of its own: activations that are not needed any more
 * are freed afterwards. */
LVN_API lvn_tensor *lvn_forward(const lvn_module *module, lvn_tensor *x);
/* The same with `residual` (of the result's shape) added: by the class's forward_residual, else by
 * lvn_add. */
LVN_API lvn_tensor *lvn_forward_residual(const lvn_module *module, lvn_tensor *x,
                                         lvn_tensor *residual);

/* ---- what training_step and validation_step report ---- */

/* Report a metric of the micro-batch (one element, a mean over the micro-batch's samples). Names:
 * up to 39 characters; up to 64 a step. They appear as train/NAME or val/NAME, averaged over
 * samples in micro-batch order, and over the calls and phases that report the same name. NULL
 * values are passed over (the scope failed); more than one element, a longer name or a 65th metric
 * fails the scope. */
LVN_API void lvn_log(lvn_step *step, const char *name, const lvn_tensor *value);
/* The same, averaged with a weight in place of the samples: a number, or a tensor of one element
 * (the valid key points, counted on the device: nothing waits for it). A value of weight 0 counts
 * for nothing, even if it is not a number; a metric without any weight is not reported. */
LVN_API void lvn_log_weighted(lvn_step *step, const char *name, const lvn_tensor *value,
                              double weight);
LVN_API void lvn_log_weighted_by(lvn_step *step, const char *name, const lvn_tensor *value,
                                 const lvn_tensor *weight);

/* In `validated`. The mean of the validation's metric; NaN: it has none of that name. */
LVN_API double lvn_step_mean(const lvn_step *step, const char *name);
/* A metric of the validation that was computed from others; names as lvn_log's. */
LVN_API void lvn_log_number(lvn_step *step, const char *name, double value);

/* In training_step: what the loss is a mean over, when these are not the samples but, for one, the
 * tokens that have a label. The step's gradient is the mean of the micro-batches' gradients with
 * these weights, so it does not depend on how samples were cut into micro-batches. The last call
 * counts; without one the weight is the number of samples, and so it stays for lvn_log and
 * lvn_buffer_push. In validation and prediction nothing happens.
 *
 * A weight is 0 or more and finite, else the run ends with an error. One of 0 leaves the
 * micro-batch out: its loss is not looked at, but its gradients are multiplied by 0, so its formula
 * must not divide by 0 (the means of lvn_cross_entropy do not). A step, or phase, in which all
 * weights are 0 learns nothing: parameters, buffers, optimizer state and averages stay as they
 * are. */
LVN_API void lvn_step_weigh(lvn_step *step, double weight);
/* The same by a tensor of one element; no gradient flows into it. */
LVN_API void lvn_step_weigh_by(lvn_step *step, const lvn_tensor *weight);

/* The micro-batch in host memory, whatever device computes: labels can be counted there without
 * waiting. Valid as long as the step's batch. */
LVN_API const lvn_batch *lvn_step_host(const lvn_step *step);

/* In a training_step: the micro-batch's samples of a stream (lvn_job.streams), with the stream's
 * fields (`image` is its field 0, `label` its field 1). NULL where it has none: its pass is over
 * (LVN_STREAM_ONCE), none of them could be read, or this is validation. A name that no stream has
 * fails the scope. */
LVN_API const lvn_batch *lvn_batch_stream(const lvn_batch *batch, const char *name);

/* ---- in build() ---- */
LVN_API lvn_status lvn_builder_status(const lvn_builder *b); /* of the first call that failed */
/* lvn_job.arguments; NULL in a child. */
LVN_API const void *lvn_builder_arguments(const lvn_builder *b);
/* A module of a class of your own as a child. NULL on failure. Owned by the model. */
LVN_API lvn_module *lvn_builder_child(lvn_builder *b, const lvn_module_class *cls,
                                      const char *name);

/* The module uses the ops of ops_group.h: the micro-batches of a group run at once. */
LVN_API void lvn_builder_couple(lvn_builder *b);

/* Begin a block: the parameters made from here on, by this module and those in it, up to the next
 * call. A block is a piece of the network that may be placed on a device of its own, such as a
 * residual block: begin them in the order in which forward runs them. Its name is relative to the
 * module ("layer1.0"), and unique in the model. What is made before the first call is a block
 * without a name; a model that never calls this is one block. Every block begins at a multiple of
 * 4096 parameters in memory: make them of many parameters, not one for each small layer. */
LVN_API lvn_status lvn_builder_block(lvn_builder *b, const char *name);

typedef enum lvn_init {
    LVN_INIT_ZEROS,
    LVN_INIT_ONES,
    LVN_INIT_UNIFORM, /* in [-bound, bound) */
    /* mean 0, standard deviation `bound`. It is PyTorch's trunc_normal_(std=bound), too, whose
     * default bounds of -2 and 2 are 100 deviations away for 0.02. For bounds at 2 deviations give
     * 0.88 of it: the deviation that is left behind them. */
    LVN_INIT_NORMAL,
    LVN_INIT_CONSTANT /* `bound` */
} lvn_init;
/* An f32 parameter, owned by the model, with requires_grad. Initial values are a function of seed
 * and path alone. */
LVN_API lvn_tensor *lvn_builder_parameter(lvn_builder *b, const char *name, int ndim,
                                          const int64_t *shape, lvn_init init, double bound);

/* Other initial values for a parameter that this module or a part of it has already made, by its
 * name from here ("conv1.weight"). */
LVN_API lvn_status lvn_builder_set_init(lvn_builder *b, const char *name, lvn_init init,
                                        double bound);

/* State that a step changes: f32, saved in checkpoints. Every micro-batch may push values in a
 * step (in the phase that names the buffer; where none does, in each); after the last micro-batch
 *   value = (1 - momentum) * value + momentum * (weighted tree mean of what the micro-batches
 *     pushed).
 * A momentum that moves: lvn_builder_momentum. */
LVN_API lvn_buffer *lvn_builder_buffer(lvn_builder *b, const char *name, int ndim,
                                       const int64_t *shape, double fill, double momentum);
/* as it was before the step, or phase; borrowed */
LVN_API lvn_tensor *lvn_buffer_value(const lvn_buffer *buffer);
/* Push the micro-batch's value (same number of elements). Of several pushes in a micro-batch, as of
 * a network that runs more than once in a step, the mean counts; into a queue goes one. Outside
 * training, and in phases that do not train the buffer's module, nothing happens. */
LVN_API lvn_status lvn_buffer_push(const lvn_buffer *buffer, const lvn_tensor *value);

/* In `validated`: its values become these n. LVN_ERR_INVALID: it has another number of values. */
LVN_API lvn_status lvn_buffer_write(const lvn_buffer *buffer, const float *value, int64_t n);

/* A queue, or bank: the last `rows` rows that micro-batches pushed, as lvn_buffer_value (rows,
 * width). After the last micro-batch of a step the rows of all of them, in the order of the
 * micro-batches, take the place of the oldest, on every layout the same. */
typedef struct lvn_queue_options {
    size_t struct_size;
    int64_t rows_per_sample; /* that a micro-batch pushes, at most; 0: 1 */
    lvn_init init;           /* rows that there are before any is pushed, as of a parameter */
    double bound;
} lvn_queue_options;
/* Every micro-batch may push (n, width) f32 once per step, with another n in each, or nothing.
 * Labels go in as numbers, or as rows of lvn_one_hot. With every step the rows of the whole batch
 * are added up beside the gradients: batch_size * rows_per_sample * width floats, in each gradient
 * set. Saved are also the buffers NAME_filled (rows) and NAME_next (1). Up to 2^24 rows. */
LVN_API lvn_buffer *lvn_builder_queue_with(lvn_builder *b, const char *name, int64_t rows,
                                           int64_t width, const lvn_queue_options *o);
#define lvn_builder_queue(b, name, rows, width, ...)                                               \
    lvn_builder_queue_with(                                                                        \
        (b), (name), (rows), (width),                                                              \
        &(lvn_queue_options){.struct_size = sizeof(lvn_queue_options), __VA_ARGS__})
/* (rows): 1 where a row was pushed, 0 where none was yet; borrowed. NULL: not a queue. */
LVN_API lvn_tensor *lvn_queue_filled(const lvn_buffer *queue);

/* A module that follows another one of the model, as a teacher does: after the optimizer has
 * updated its phase,
 *   weight = momentum * weight + (1 - momentum) * (the weight of the same name in `leader`).
 * What were parameters of `module`, which is built as `leader` is, are then buffers: saved and
 * exported by name, and not trained. They begin as copies. lvn_forward of it records no gradient,
 * and is in the same mode, training or evaluation, as all of the model. A skipped step moves
 * nothing. */
typedef struct lvn_follow_options {
    size_t struct_size;
    double momentum; /* 0: 0.996 */
    /* what momentum becomes by the run's last step, along half a cosine (Grill et al. 2020,
     * "BYOL"); 0: it stays. Needs a run with an end: max_epochs or max_steps */
    double end;
    /* the running statistics of `module` are its own, of what passes through it; else they follow,
     * too */
    bool own_statistics;
} lvn_follow_options;
LVN_API lvn_status lvn_builder_follow_with(lvn_builder *b, lvn_module *module,
                                           const lvn_module *leader, const lvn_follow_options *o);
#define lvn_builder_follow(b, module, leader, ...)                                                 \
    lvn_builder_follow_with(                                                                       \
        (b), (module), (leader),                                                                   \
        &(lvn_follow_options){.struct_size = sizeof(lvn_follow_options), __VA_ARGS__})

/* What a buffer becomes after a step: called when it has its new value (of lvn_builder_buffer or
 * lvn_builder_queue; without pushes the one it had), once, or with phases of which none names it in
 * each, with the module in whose build() it was made; returns a tensor of the same shape, made by
 * ops, such as rows of length 1. Of other buffers it sees new values of those that were made before
 * it. There is no gradient, and the mode is evaluation. In a skipped step nothing changes. NULL: it
 * failed, and so does the step. */
typedef lvn_tensor *(*lvn_buffer_function)(const lvn_module *module, lvn_tensor *value);
LVN_API lvn_status lvn_builder_function(lvn_builder *b, lvn_buffer *buffer,
                                        lvn_buffer_function function);

/* A number that training_step reads and that goes from one value to another in the run: the
 * temperature of a teacher, the weight of a loss. It is a function of the step's number alone, the
 * same after a resume and on every layout. */
typedef enum lvn_curve {
    LVN_CURVE_LINEAR, /* from + (to - from) t / n in step t = 0, 1, ... of n; then `to` */
    LVN_CURVE_COSINE, /* along half a cosine: `to` in the last of the n steps, and then */
    LVN_CURVE_STAIRS, /* `from`, and from epoch `stair[i].epoch` on `stair[i].value` */
    /* drawn in every step, uniform in [from, to), the same for all micro-batches: it follows from
     * seed, module, name and step */
    LVN_CURVE_RANDOM,
    /* `from` through epoch `begin`, then `rise` more in each epoch until it is `to` */
    LVN_CURVE_RAMP
} lvn_curve;
enum { LVN_MAX_STAIRS = 16 };
typedef struct lvn_stair {
    int64_t epoch; /* counted from 0 */
    double value;
} lvn_stair;
typedef struct lvn_number_options {
    size_t struct_size;
    double from, to;
    lvn_curve curve;
    /* on the way; both 0: those of the run, which then needs an end: max_epochs or max_steps */
    int64_t steps, epochs;
    /* LVN_CURVE_STAIRS, which reads no `to`: epochs rise, up to LVN_MAX_STAIRS; copied */
    const lvn_stair *stair;
    int n_stairs;
    /* LVN_CURVE_RAMP: an epoch, counted from 0; a `rise` below 0 is a fall */
    int64_t begin;
    double rise;
} lvn_number_options;
typedef struct lvn_number lvn_number;
/* Names: up to 31 characters, unique in a module; up to 16 numbers in a model. The handle is the
 * model's. NULL on failure. */
LVN_API const lvn_number *lvn_builder_number_with(lvn_builder *b, const char *name,
                                                  const lvn_number_options *o);
#define lvn_builder_number(b, name, ...)                                                           \
    lvn_builder_number_with(                                                                       \
        (b), (name),                                                                               \
        &(lvn_number_options){.struct_size = sizeof(lvn_number_options), __VA_ARGS__})
/* The momentum of a buffer of lvn_builder_buffer is the number, which goes from one value in 0 .. 1
 * to another, and the one that the buffer was made with is not read. Skipped steps count. */
LVN_API lvn_status lvn_builder_momentum(lvn_builder *b, lvn_buffer *buffer,
                                        const lvn_number *number);
/* In the step that training_step was given; `to` in validation, and where there is no step (NULL).
 * It is a number of the host: used as an argument of an op (lvn_mul_scalar) it is part of the call,
 * and a step that a device has captured repeats it as it was. */
LVN_API double lvn_number_value(const lvn_number *number, const lvn_step *step);
/* The same as an f32 tensor (1) without gradient, which the device reads where it computes: a step
 * that was captured has the number of its own. NULL: the scope has failed. */
LVN_API lvn_tensor *lvn_number_tensor(const lvn_number *number, const lvn_step *step);

/* Training mode (dropout, batch statistics) or evaluation. */
LVN_API bool lvn_is_training(void);
/* In a training_step: the mode of what the calling thread runs from here on, as of a teacher that
 * is in evaluation mode; returns the mode before, to set again. Elsewhere the mode is evaluation,
 * and stays. */
LVN_API bool lvn_set_training(bool training);

/* ---- layers; weights start as in PyTorch: uniform in +-1 / sqrt(fan in) (Kaiming uniform with a =
 * sqrt(5), He et al. 2015) ---- */
typedef struct lvn_nn_conv2d_options {
    size_t struct_size;
    int stride, padding, dilation, groups; /* 0: 1, 0, 1, 1 */
    bool no_bias;
    /* height, width; entries that are not 0 replace the one number along their axis */
    int kernel_hw[2], stride_hw[2], padding_hw[2], dilation_hw[2];
} lvn_nn_conv2d_options;
/* x (N, H, W, in) -> (N, H', W', out) as lvn_conv2d; parameters weight (out, kernel, kernel, in /
 * groups) and bias (out). */
LVN_API lvn_module *lvn_nn_conv2d_with(lvn_builder *b, const char *name, int in, int out,
                                       int kernel, const lvn_nn_conv2d_options *o);
#define lvn_nn_conv2d(b, name, in, out, kernel, ...)                                               \
    lvn_nn_conv2d_with(                                                                            \
        (b), (name), (in), (out), (kernel),                                                        \
        &(lvn_nn_conv2d_options){.struct_size = sizeof(lvn_nn_conv2d_options), __VA_ARGS__})

typedef struct lvn_nn_conv1d_options {
    size_t struct_size;
    int stride, padding, dilation, groups; /* 0: 1, 0, 1, 1 */
    bool no_bias;
} lvn_nn_conv1d_options;
/* x (N, L, in) -> (N, L', out) as lvn_conv1d; parameters weight (out, kernel, in / groups), in
 * files (out, in / groups, kernel), and bias (out). */
LVN_API lvn_module *lvn_nn_conv1d_with(lvn_builder *b, const char *name, int in, int out,
                                       int kernel, const lvn_nn_conv1d_options *o);
#define lvn_nn_conv1d(b, name, in, out, kernel, ...)                                               \
    lvn_nn_conv1d_with(                                                                            \
        (b), (name), (in), (out), (kernel),                                                        \
        &(lvn_nn_conv1d_options){.struct_size = sizeof(lvn_nn_conv1d_options), __VA_ARGS__})

typedef struct lvn_nn_conv_transpose2d_options {
    size_t struct_size;
    int stride, padding, output_padding, groups, dilation; /* 0: 1, 0, 0, 1, 1 */
    bool no_bias;
    /* height, width; entries that are not 0 replace the one number along their axis */
    int kernel_hw[2], stride_hw[2], padding_hw[2], output_padding_hw[2], dilation_hw[2];
} lvn_nn_conv_transpose2d_options;
/* x (N, H, W, in) -> (N, H', W', out) as lvn_conv_transpose2d; parameters weight (in, kernel,
 * kernel, out / groups) and bias (out). As in PyTorch the fan in of the initial values is out /
 * groups * kernel^2. */
LVN_API lvn_module *lvn_nn_conv_transpose2d_with(lvn_builder *b, const char *name, int in, int out,
                                                 int kernel,
                                                 const lvn_nn_conv_transpose2d_options *o);
#define lvn_nn_conv_transpose2d(b, name, in, out, kernel, ...)                                     \
    lvn_nn_conv_transpose2d_with(                                                                  \
        (b), (name), (in), (out), (kernel),                                                        \
        &(lvn_nn_conv_transpose2d_options){.struct_size = sizeof(lvn_nn_conv_transpose2d_options), \
                                           __VA_ARGS__})

typedef struct lvn_nn_linear_options {
    size_t struct_size;
    bool no_bias;
    /* height, width, channels of the image whose lvn_flatten is the input; zeros: not an image */
    int64_t image[3];
    bool conv1d; /* files hold the weight as (in, out), as those of GPT-2 do */
} lvn_nn_linear_options;
/* x (N, in) -> (N, out); parameters weight (out, in) and bias (out). A flattened image lies in the
 * order (H, W, C) here and (C, H, W) in PyTorch: with .image = {H, W, C} files written for others,
 * and read from them, have the weights in PyTorch's order. */
LVN_API lvn_module *lvn_nn_linear_with(lvn_builder *b, const char *name, int64_t in, int64_t out,
                                       const lvn_nn_linear_options *o);
#define lvn_nn_linear(b, name, in, out, ...)                                                       \
    lvn_nn_linear_with(                                                                            \
        (b), (name), (in), (out),                                                                  \
        &(lvn_nn_linear_options){.struct_size = sizeof(lvn_nn_linear_options), __VA_ARGS__})

typedef struct lvn_nn_batch_norm_options {
    size_t struct_size;
    double eps; /* 0: 1e-5 */
    bool relu;  /* of the result; with lvn_forward_residual: of the sum */
    /* in training the statistics of all micro-batches of the group (lvn_builder_couple), as with
     * sync_batchnorm=true */
    bool sync;
    const lvn_number *momentum; /* as lvn_builder_momentum has it; NULL: it stays */
} lvn_nn_batch_norm_options;
/* x (..., channels) -> the same shape: over all axes but the last. Parameters weight, bias
 * (channels); in training the micro-batch's own statistics; the registered buffers running_mean,
 * running_var (channels) move by `momentum` per step (0.1 is usual; 0: they stay) and serve
 * evaluation. */
LVN_API lvn_module *lvn_nn_batch_norm_with(lvn_builder *b, const char *name, int channels,
                                           double momentum, const lvn_nn_batch_norm_options *o);
#define lvn_nn_batch_norm(b, name, channels, momentum, ...)                                        \
    lvn_nn_batch_norm_with((b), (name), (channels), (momentum),                                    \
                           &(lvn_nn_batch_norm_options){                                           \
                               .struct_size = sizeof(lvn_nn_batch_norm_options), __VA_ARGS__})

typedef struct lvn_nn_layer_norm_options {
    size_t struct_size;
    double eps; /* 0: 1e-5 */
} lvn_nn_layer_norm_options;
/* x (..., features) -> the same shape, as lvn_layer_norm; parameters weight, bias (features). */
LVN_API lvn_module *lvn_nn_layer_norm_with(lvn_builder *b, const char *name, int64_t features,
                                           const lvn_nn_layer_norm_options *o);
#define lvn_nn_layer_norm(b, name, features, ...)                                                  \
    lvn_nn_layer_norm_with((b), (name), (features),                                                \
                           &(lvn_nn_layer_norm_options){                                           \
                               .struct_size = sizeof(lvn_nn_layer_norm_options), __VA_ARGS__})

typedef struct lvn_nn_cell_options {
    size_t struct_size;
    bool no_bias;
} lvn_nn_cell_options;
/* Recurrent cells: parameters weight_ih (3 or 4 hidden, in), weight_hh (3 or 4 hidden, hidden),
 * bias_ih and bias_hh (3 or 4 hidden), which start uniform in +-1 / sqrt(hidden). A cell has more
 * than one input: the functions below run it, lvn_forward does not. */
LVN_API lvn_module *lvn_nn_gru_cell_with(lvn_builder *b, const char *name, int64_t in,
                                         int64_t hidden, const lvn_nn_cell_options *o);
#define lvn_nn_gru_cell(b, name, in, hidden, ...)                                                  \
    lvn_nn_gru_cell_with(                                                                          \
        (b), (name), (in), (hidden),                                                               \
        &(lvn_nn_cell_options){.struct_size = sizeof(lvn_nn_cell_options), __VA_ARGS__})
LVN_API lvn_module *lvn_nn_lstm_cell_with(lvn_builder *b, const char *name, int64_t in,
                                          int64_t hidden, const lvn_nn_cell_options *o);
#define lvn_nn_lstm_cell(b, name, in, hidden, ...)                                                 \
    lvn_nn_lstm_cell_with(                                                                         \
        (b), (name), (in), (hidden),                                                               \
        &(lvn_nn_cell_options){.struct_size = sizeof(lvn_nn_cell_options), __VA_ARGS__})
/* lvn_gru_cell and lvn_lstm_cell with the module's parameters. */
LVN_API lvn_tensor *lvn_nn_gru_cell_step(const lvn_module *module, lvn_tensor *x, lvn_tensor *h);
LVN_API lvn_tensor *lvn_nn_lstm_cell_step(const lvn_module *module, lvn_tensor *x, lvn_tensor *h,
                                          lvn_tensor *c, lvn_tensor **c_next);

/* lvn_prelu with a parameter weight (n), one slope for all channels (n = 1) or one for each, which
 * starts at 0.25. */
LVN_API lvn_module *lvn_nn_prelu(lvn_builder *b, const char *name, int n);

/* Any shape; 0 <= p < 1. */
LVN_API lvn_module *lvn_nn_dropout(lvn_builder *b, const char *name, double p);

/* ---- networks ---- */
typedef struct lvn_nn_unet_options {
    size_t struct_size;
    int width; /* channels at the image's size, doubled at each level below; 0: 64 */
    int depth; /* how often the image is halved, up to 7; 0: 4 */
    /* levels go up by a 1x1 convolution and interpolation instead of a transposed convolution; any
     * image size */
    bool bilinear;
} lvn_nn_unet_options;
/* x (N, H, W, in) -> (N, H, W, out), H and W multiples of 2^depth (Ronneberger, Fischer & Brox
 * 2015, with batch norm and padding). Parts: down0 .. down<depth>, up<level>, merge<level>, head;
 * down and merge are conv1, bn1, conv2, bn2. */
LVN_API lvn_module *lvn_nn_unet_with(lvn_builder *b, const char *name, int in, int out,
                                     const lvn_nn_unet_options *o);
#define lvn_nn_unet(b, name, in, out, ...)                                                         \
    lvn_nn_unet_with(                                                                              \
        (b), (name), (in), (out),                                                                  \
        &(lvn_nn_unet_options){.struct_size = sizeof(lvn_nn_unet_options), __VA_ARGS__})

#ifdef __cplusplus
}
#endif
#endif
