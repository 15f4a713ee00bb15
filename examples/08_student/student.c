/* A student with a teacher and a queue (MoCo: He et al. 2020, "Momentum contrast for unsupervised
 * visual representation learning"): a network learns from images without their classes.
 *
 *   levin cc examples/08_student/student.c -o student.so
 *   levin train ./student.so data=photos out=out/student
 *   levin predict ./student.so model=out/student data=photos output=photos.csv
 *
 * Each image comes twice. The student sees one view, the teacher the other; of all that the teacher
 * made of earlier images, and of this one, the student has to find the one that belongs to its
 * view. Three kinds of state besides parameters take part in that, and all of them are buffers
 * that move once per step:
 *
 *   teacher     follows the student's weights (lvn_builder_follow), slower and slower as the run
 *               ends. It is in evaluation mode, with running statistics that follow, too: those
 *               of the batch would give away which views belong together (Cai et al. 2021,
 *               "Exponential moving average normalization for self-supervised learning").
 *   bank,       queues (lvn_builder_queue) of the last keys, and of the classes of their images,
 *   classes     which serve the validation alone. Rows come in the order of micro-batches.
 *   prototypes  a function of both (lvn_builder_function): the mean key of each class. Validation
 *               counts the images whose key is nearest to the prototype of their class, and so does
 *               `levin predict`.
 *
 * A step that is skipped (16-mixed) moves none of them, and the result is the same to the bit on
 * any number of lanes, ranks and devices, and after a resume. */
#include <levin/levin.h>

#include <math.h>

enum { STAGES = 3, FEATURES = 64 };

typedef struct settings {
    int classes, key;
    int64_t bank;
    double temperature, temperature_end, momentum, momentum_end;
} settings;

/* ---- the network, of which there are two: (N, S, S, 3) -> keys (N, key) of length 1 ---- */

typedef struct encoder {
    lvn_module base;
    lvn_module *conv[STAGES], *norm[STAGES], *out;
} encoder;

static lvn_status encoder_build(lvn_module *module, lvn_builder *b)
{
    static const char *const conv[STAGES] = {"conv1", "conv2", "conv3"};
    static const char *const norm[STAGES] = {"norm1", "norm2", "norm3"};
    encoder *m = (encoder *)module;
    int in = 3;
    for (int i = 0; i < STAGES; i++) {
        const int out = FEATURES >> (STAGES - 1 - i); /* 16, 32, 64 */
        m->conv[i] =
            lvn_nn_conv2d(b, conv[i], in, out, 3, .stride = 2, .padding = 1, .no_bias = true);
        m->norm[i] = lvn_nn_batch_norm(b, norm[i], out, 0.1, .relu = true);
        in = out;
    }
    m->out = lvn_nn_linear(b, "out", FEATURES, ((const settings *)lvn_builder_arguments(b))->key);
    return lvn_builder_status(b);
}

static lvn_tensor *unit_rows(lvn_tensor *x)
{
    const int last = 1;
    return lvn_div(x, lvn_sqrt(lvn_add_scalar(lvn_sum_axes(lvn_square(x), &last, 1, true), 1e-12)));
}

static lvn_tensor *encoder_forward(const lvn_module *module, lvn_tensor *x)
{
    const encoder *m = (const encoder *)module;
    for (int i = 0; i < STAGES; i++) {
        x = lvn_forward(m->norm[i], lvn_forward(m->conv[i], x));
    }
    return unit_rows(lvn_cast(lvn_forward(m->out, lvn_global_avg_pool2d(x)), LVN_F32));
}

static const lvn_module_class encoder_class = {
    .name = "encoder", .size = sizeof(encoder), .build = encoder_build, .forward = encoder_forward};

/* ---- student, teacher, and what they remember ---- */

typedef struct pair {
    lvn_module base;
    settings s;
    lvn_module *student, *teacher;
    lvn_buffer *bank, *classes; /* (bank, key) and (bank, classes): a one for the class */
    lvn_buffer *prototypes;     /* (classes, key) */
    const lvn_number *temperature;
} pair;

/* Called after every step: the mean key of each class. */
static lvn_tensor *average_classes(const lvn_module *module, lvn_tensor *prototypes)
{
    const pair *m = (const pair *)module;
    (void)prototypes; /* as they were */
    return unit_rows(
        lvn_matmul(lvn_buffer_value(m->classes), lvn_buffer_value(m->bank), .trans_a = true));
}

static lvn_status pair_build(lvn_module *module, lvn_builder *b)
{
    pair *m = (pair *)module;
    m->s = *(const settings *)lvn_builder_arguments(b);
    m->student = lvn_builder_child(b, &encoder_class, "student");
    m->teacher = lvn_builder_child(b, &encoder_class, "teacher");
    lvn_builder_follow(b, m->teacher, m->student, .momentum = m->s.momentum,
                       .end = m->s.momentum_end);
    m->temperature =
        lvn_builder_number(b, "temperature", .from = m->s.temperature, .to = m->s.temperature_end);
    m->bank = lvn_builder_queue(b, "bank", m->s.bank, m->s.key, .init = LVN_INIT_NORMAL,
                                .bound = 1.0 / sqrt((double)m->s.key));
    m->classes = lvn_builder_queue(b, "classes", m->s.bank, m->s.classes);
    m->prototypes =
        lvn_builder_buffer(b, "prototypes", LVN_SHAPE(m->s.classes, m->s.key), 0.0, 1.0);
    return lvn_builder_function(b, m->prototypes, average_classes);
}

/* The teacher's keys; dropout and batch norm as in evaluation. */
static lvn_tensor *keys_of(const pair *m, lvn_tensor *x)
{
    const bool training = lvn_set_training(false);
    lvn_tensor *keys = lvn_forward(m->teacher, x); /* no gradient */
    (void)lvn_set_training(training);
    return keys;
}

static lvn_tensor *pair_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pair *m = (const pair *)module;
    const int last = 1;
    lvn_tensor *q = lvn_forward(m->student, batch->image), *k = keys_of(m, batch->field[2]);
    lvn_tensor *own = lvn_sum_axes(lvn_mul(q, k), &last, 1, true), /* (N, 1) */
        *others = lvn_matmul(q, lvn_buffer_value(m->bank), .trans_b = true);
    lvn_tensor *alike = lvn_mul_scalar(lvn_concat((lvn_tensor *[]){own, others}, 2, 1),
                                       1.0 / lvn_number_value(m->temperature, step));
    lvn_tensor *first = lvn_zeros(LVN_I64, LVN_SHAPE(batch->size)); /* the first column is right */
    lvn_tensor *loss = lvn_cross_entropy(alike, first);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(alike, first));
    lvn_tensor *one = lvn_one_hot(batch->label, m->s.classes, LVN_F32);
    const bool pushed = k != NULL && one != NULL && lvn_buffer_push(m->bank, k) == LVN_OK &&
                        lvn_buffer_push(m->classes, one) == LVN_OK;
    return pushed ? loss : NULL;
}

/* Which class's prototype is nearest: (N, classes) */
static lvn_tensor *scores_of(const lvn_module *module, const lvn_batch *batch)
{
    const pair *m = (const pair *)module;
    return lvn_matmul(keys_of(m, batch->image), lvn_buffer_value(m->prototypes), .trans_b = true);
}

static lvn_tensor *pair_validate(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *right = lvn_accuracy(scores_of(module, batch), batch->label);
    lvn_tensor *wrong = lvn_add_scalar(lvn_neg(right), 1.0);
    lvn_log(step, "acc", right);
    lvn_log(step, "loss", wrong); /* the least is the best */
    return wrong;
}

static const lvn_module_class pair_class = {.name = "student",
                                            .size = sizeof(pair),
                                            .build = pair_build,
                                            .training_step = pair_step,
                                            .validation_step = pair_validate};

/* ---- the recipe ---- */

static const lvn_key keys[] = {
    {"data", LVN_KEY_PATH, NULL,
     "Folder with one sub-folder of images per class, or builtin:shapes."},
    {"image_size", LVN_KEY_INT, "32", "Side of the square images in pixels."},
    {"min_scale", LVN_KEY_FLOAT, "0.4", "Smallest part of an image that a view shows."},
    {"key", LVN_KEY_INT, "32", "Numbers in which views are compared."},
    {"bank", LVN_KEY_INT, "512", "Keys of earlier images that a view is compared with."},
    {"temperature", LVN_KEY_FLOAT, "0.2", "Of the loss: what cosines are divided by."},
    {"temperature_end", LVN_KEY_FLOAT, "0", "What it becomes by the last step; 0: it stays."},
    {"teacher.momentum", LVN_KEY_FLOAT, "0.95", "Of the teacher, in the first step."},
    {"teacher.momentum_end", LVN_KEY_FLOAT, "1", "What it becomes by the last step."},
};

static lvn_status open_images(const lvn_keys *k, lvn_job *job)
{
    const char *data = lvn_key_text(k, "data");
    const int size = (int)lvn_key_int(k, "image_size");
    if (data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "data= is missing: a folder with one sub-folder of images per "
                                "class, or builtin:shapes");
    }
    job->train = LVN_IMAGE_FOLDER(data, .resize = size, .views = 2, .part = LVN_IMAGES_TRAIN,
                                  .min_scale = lvn_key_float(k, "min_scale"), .color_jitter = 0.4,
                                  .hue = 0.1, .jitter = 0.8, .grey = 0.2);
    job->val = LVN_IMAGE_FOLDER(data, .resize = size, .part = LVN_IMAGES_VAL);
    if (job->train == NULL || job->val == NULL) {
        return lvn_last_error()->code;
    }
    const double temperature = lvn_key_float(k, "temperature"),
                 temperature_end = lvn_key_float(k, "temperature_end");
    static settings s; /* read when the network is built, in every rank of the process */
    s = (settings){.classes = job->train->n_classes,
                   .key = (int)lvn_key_int(k, "key"),
                   .bank = lvn_key_int(k, "bank"),
                   .temperature = temperature,
                   .temperature_end = temperature_end != 0.0 ? temperature_end : temperature,
                   .momentum = lvn_key_float(k, "teacher.momentum"),
                   .momentum_end = lvn_key_float(k, "teacher.momentum_end")};
    job->module = &pair_class;
    job->arguments = &s;
    if (s.key < 1 || s.bank < 1 || !(s.temperature > 0.0 && s.temperature_end > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "key=%d bank=%lld temperature=%g temperature_end=%g: at least 1, 1, and above 0",
                 s.key, (long long)s.bank, s.temperature, s.temperature_end);
    }
    return LVN_OK;
}

static const lvn_recipe_use use = {.predict = scores_of};

static const lvn_recipe recipe = {
    .abi = LVN_RECIPE_ABI,
    .name = "student",
    .help = "images without classes: a student finds its teacher's view among earlier ones (MoCo)",
    .keys = keys,
    .n_keys = sizeof keys / sizeof *keys,
    .options = "max_epochs=20 batch_size=64 optim=adamw optim.lr=2e-3 scheduler=cosine",
    .open = open_images,
    .use = &use,
};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}
