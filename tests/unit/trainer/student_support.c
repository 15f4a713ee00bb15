/* A network with a teacher and a queue (student_support.h). */
#include "student_support.h"

int64_t student_overflows_at = -1;
_Atomic int student_calls;
_Atomic double student_factor[STUDENT_STEPS], student_extra[STUDENT_STEPS];

/* (N, FEATURES) -> (N, KEY): w x + b less a running mean of its own. */
typedef struct encoder {
    lvn_module base;
    lvn_module *linear;
    lvn_buffer *mean;
} encoder;

static lvn_status encoder_build(lvn_module *module, lvn_builder *b)
{
    encoder *m = (encoder *)module;
    m->linear = lvn_nn_linear(b, "linear", FEATURES, KEY);
    m->mean = lvn_builder_buffer(b, "mean", LVN_SHAPE(KEY), 0.0, 0.1);
    return lvn_builder_status(b);
}

static lvn_tensor *encoder_forward(const lvn_module *module, lvn_tensor *x)
{
    const encoder *m = (const encoder *)module;
    const int rows = 0;
    lvn_tensor *z = lvn_forward(m->linear, x),
               *mean = lvn_cast(lvn_mean_axes(lvn_detach(z), &rows, 1, false), LVN_F32);
    if (mean == NULL || lvn_buffer_push(m->mean, mean) != LVN_OK) {
        return NULL;
    }
    return lvn_sub(z, lvn_buffer_value(m->mean));
}

static const lvn_module_class encoder_class = {
    .name = "encoder", .size = sizeof(encoder), .build = encoder_build, .forward = encoder_forward};

typedef struct student {
    lvn_module base;
    lvn_module *encoder, *teacher, *target, *head; /* head: of the phased one */
    lvn_buffer *bank, *ones;
    const lvn_number *factor, *extra;
} student;

static lvn_tensor *unit_rows(const lvn_module *module, lvn_tensor *rows)
{
    const int last = 1;
    student_calls += module->path[0] == '\0' ? 1 : 0;
    return lvn_div(rows,
                   lvn_sqrt(lvn_add_scalar(lvn_sum_axes(lvn_square(rows), &last, 1, true), 1e-12)));
}

static lvn_status student_build(lvn_module *module, lvn_builder *b)
{
    student *m = (student *)module;
    m->encoder = lvn_builder_child(b, &encoder_class, "encoder");
    m->teacher = lvn_builder_child(b, &encoder_class, "teacher");
    m->target = lvn_builder_child(b, &encoder_class, "target");
    lvn_builder_follow(b, m->teacher, m->encoder, .momentum = 0.9, .end = 1.0);
    lvn_builder_follow(b, m->target, m->encoder, .momentum = 0.5, .own_statistics = true);
    m->factor = lvn_builder_number(b, "factor", .from = 1.0, .to = 0.5, .steps = 4);
    m->extra = lvn_builder_number(b, "extra", .from = 0.25, .curve = LVN_CURVE_COSINE);
    m->ones = lvn_builder_buffer(b, "ones", LVN_SHAPE(1), 0.0, 1.0);
    lvn_builder_momentum(b, m->ones,
                         lvn_builder_number(b, "pace", .from = 0.5, .to = 0.125, .steps = 3));
    m->bank = lvn_builder_queue(b, "bank", BANK_ROWS, KEY, .init = LVN_INIT_NORMAL, .bound = 0.1);
    return lvn_builder_function(b, m->bank, unit_rows);
}

int64_t student_pushes(int64_t sample, int64_t size)
{
    return sample % (size + 1);
}

static bool push(const student *m, const lvn_batch *batch, lvn_tensor *z)
{
    const int64_t n = student_pushes(batch->sample[0], batch->size);
    if (n == 0) {
        return true;
    }
    lvn_tensor *rows = lvn_cast(lvn_slice(z, 0, 0, n), LVN_F32);
    return rows != NULL && lvn_buffer_push(m->bank, rows) == LVN_OK;
}

static lvn_tensor *student_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const student *m = (const student *)module;
    lvn_tensor *z = lvn_forward(m->encoder, batch->image),
               *keys = lvn_forward(m->teacher, batch->image),
               *target = lvn_forward(m->target, batch->image);
    lvn_tensor *one = lvn_add_scalar(lvn_zeros(LVN_F32, LVN_SHAPE(1)), 1.0);
    if (!push(m, batch, keys) || one == NULL || lvn_buffer_push(m->ones, one) != LVN_OK) {
        return NULL;
    }
    lvn_tensor *alike = lvn_matmul(z, lvn_transpose(lvn_buffer_value(m->bank), 0, 1)),
               *there = lvn_mul(lvn_sigmoid(alike), lvn_queue_filled(m->bank)),
               *loss = lvn_add(lvn_mean(there), lvn_mean(lvn_square(lvn_sub(z, target))));
    const double factor = lvn_number_value(m->factor, step),
                 extra = lvn_number_value(m->extra, step);
    student_factor[step->step % STUDENT_STEPS] = factor;
    student_extra[step->step % STUDENT_STEPS] = extra;
    loss = lvn_add(lvn_mul_scalar(loss, factor), lvn_mul_scalar(lvn_mean(z), extra));
    if (step->step == student_overflows_at) {
        loss = lvn_mul_scalar(lvn_mul_scalar(loss, 1e30), 1e30);
    }
    lvn_log(step, "loss", loss);
    return loss;
}

const lvn_module_class student_class = {.name = "student",
                                        .size = sizeof(student),
                                        .build = student_build,
                                        .training_step = student_step};

static lvn_status phased_build(lvn_module *module, lvn_builder *b)
{
    ((student *)module)->head = lvn_nn_linear(b, "head", KEY, 1);
    return student_build(module, b);
}

static lvn_tensor *phased_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const student *m = (const student *)module;
    return step->phase == 0
               ? student_step(module, batch, step)
               : lvn_mean(lvn_square(lvn_add_scalar(
                     lvn_forward(m->head, lvn_forward(m->encoder, batch->image)), 1.0)));
}

static const char *const phases[] = {"encoder", "head", NULL};

const lvn_module_class phased_student_class = {.name = "phased_student",
                                               .size = sizeof(student),
                                               .build = phased_build,
                                               .training_step = phased_step,
                                               .phases = phases};
