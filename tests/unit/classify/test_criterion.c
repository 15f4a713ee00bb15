/* Label smoothing and weights per class against PyTorch, on every cut into micro-batches; how
 * weights are read. */
#include "core/vfs.h"
#include "golden_criterion.h"
#include "../sim/sim_support.h"
#include "kernels/sim/sim.h"
#include "recipes/classify/classify_mix.h"
#include "trainer/trainer.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 12, FEATURES = 3, CLASSES = 4 };

/* ---- the samples of golden_criterion.py ---- */

static int few_fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    (void)d;
    out[0] = (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 3, .shape = {1, 1, FEATURES}};
    out[1] = (lvn_field){.name = "label", .dtype = LVN_I64};
    return 2;
}

static int64_t few_length(const lvn_dataset *d)
{
    (void)d;
    return N;
}

static int64_t few_label(const lvn_dataset *d, int64_t sample)
{
    (void)d;
    return golden_labels[sample];
}

static lvn_status few_get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    for (int64_t f = 0; f < FEATURES; f++) {
        ((float *)field[0])[f] = (float)((5 * key->sample + 3 * f) % 13 - 6) / 8.0F;
    }
    *(int64_t *)field[1] = few_label(d, key->sample);
    return LVN_OK;
}

static const lvn_dataset_class few_class = {
    .name = "few", .fields = few_fields, .length = few_length, .label = few_label, .get = few_get};
static const char *const names[CLASSES] = {"a", "b: c", "d e", "f"};
static const lvn_dataset few = {.cls = &few_class, .n_classes = CLASSES, .class_names = names};

/* ---- the network ---- */

typedef struct linear {
    lvn_module base;
    lvn_module *head;
} linear;

static lvn_status linear_build(lvn_module *module, lvn_builder *b)
{
    ((linear *)module)->head = lvn_nn_linear(b, "head", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *linear_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_forward(((const linear *)module)->head, lvn_flatten(x, 1));
}

static lvn_tensor *linear_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    (void)step;
    return lvn_cross_entropy(lvn_forward(module, batch->image), batch->label);
}

static const lvn_module_class linear_class = {.name = "linear",
                                              .size = sizeof(linear),
                                              .build = linear_build,
                                              .forward = linear_forward,
                                              .training_step = linear_step};

static void set_parameters(const lvni_nn_model *m)
{
    for (int k = 0; k < CLASSES; k++) {
        for (int f = 0; f < FEATURES; f++) {
            m->weights[m->offset[0] + k * FEATURES + f] = (float)((7 * k + 5 * f) % 11 - 5) / 8.0F;
        }
        m->weights[m->offset[1] + k] = (float)(k - 1) / 4.0F;
    }
    lvni_nn_model_touch((lvni_nn_model *)(uintptr_t)m);
}

/* ---- reading ---- */

static lvn_status read_arguments(int n, const char *const *words, lvni_classify_criterion *out,
                                 lvni_core_str *note)
{
    const lvni_core_option_table *const keys[] = {&lvni_classify_criterion_options, NULL};
    lvni_core_config *c;
    assert_int_equal(lvni_core_config_create(keys, &c), LVN_OK);
    lvn_status s = lvni_core_config_load_arguments(c, n, words);
    if (s == LVN_OK) {
        s = lvni_classify_criterion_read(c, &few, out, note);
    }
    lvni_core_config_destroy(c);
    return s;
}

/* One step of plain descent over all samples; checks loss and gradient against case g. */
static void check_step(size_t g, int micro_batches, lvni_trainer_precision precision,
                       double tolerance)
{
    lvni_classify_mix mix;
    lvni_core_str note = {0};
    lvni_classify_mix_init(&mix, &linear_class, 0.0, 0.0);
    assert_int_equal(read_arguments(2,
                                    (const char *const[]){golden[g].weights, golden[g].smoothing},
                                    &mix.criterion, &note),
                     LVN_OK);
    lvni_trainer_options o = {.train = &few,
                              .optim = {.kind = LVNI_OPTIM_SGD, .lr = 1.0},
                              .precision = precision,
                              .max_epochs = -1,
                              .max_steps = -1,
                              .quiet = true,
                              .config_json = "{}",
                              .log_every_n_steps = 1};
    const lvni_plan_options plan = {.n_samples = N,
                                    .batch_size = N,
                                    .micro_batches = micro_batches,
                                    .lanes = 2,
                                    .pins.wgrad_threads = 1,
                                    .eval_batch_size = 4,
                                    .cores = 2};
    assert_int_equal(lvni_nn_model_build(&mix.cls, NULL, 1, &o.model), LVN_OK);
    set_parameters(o.model);
    assert_int_equal(lvni_plan_make(&plan, &o.plan), LVN_OK);
    lvni_trainer *t;
    assert_int_equal(lvni_trainer_create(&o, &t), LVN_OK);
    const lvni_data_loader_options loader = {.dataset = &few, .plan = &t->o.plan, .training = true};
    assert_int_equal(lvni_data_loader_create(&loader, &t->loader), LVN_OK);
    lvni_trainer_step_result r;
    assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
    assert_false(r.phase[0].skipped);
    if (!(fabs(lvni_trainer_metric_mean(&r.metrics, "loss") - golden[g].loss) < tolerance)) {
        fail_msg("%s %s, %d micro-batches: the loss is %.9g", golden[g].weights,
                 golden[g].smoothing, micro_batches, lvni_trainer_metric_mean(&r.metrics, "loss"));
    }
    float moved[16];
    memcpy(moved, o.model->weights + o.model->offset[0], 12 * sizeof *moved);
    memcpy(moved + 12, o.model->weights + o.model->offset[1], 4 * sizeof *moved);
    set_parameters(o.model);
    for (int i = 0; i < 16; i++) {
        const float before =
            o.model->weights[i < 12 ? o.model->offset[0] + i : o.model->offset[1] + i - 12];
        if (!(fabs((double)(before - moved[i]) - golden[g].gradient[i]) < tolerance)) {
            fail_msg("%s %s, %d micro-batches: gradient %d is %.9g, not %.9g", golden[g].weights,
                     golden[g].smoothing, micro_batches, i, (double)(before - moved[i]),
                     golden[g].gradient[i]);
        }
    }
    lvni_trainer_destroy(t);
    lvni_nn_model_destroy(o.model);
    lvni_classify_criterion_free(&mix.criterion);
    lvni_core_str_free(&note);
}

TEST(a_step_is_that_of_pytorch_however_it_is_cut)
{
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        for (int micro_batches = 1; micro_batches <= 5; micro_batches++) {
            check_step(g, micro_batches, LVNI_PRECISION_32, 1e-6);
        }
        check_step(g, 3, LVNI_PRECISION_16_MIXED, 2e-3);
    }
}

/* A file names the classes, in any order; the mean over the samples is 1. */
TEST(weights_come_from_a_file)
{
    char path[] = "/tmp/levin-criterion-XXXXXX", word[64];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(word, sizeof word, "class_weights=%s", path);
    static const struct {
        const char *text, *reports; /* NULL: it is right */
    } files[] = {{"f: 7\nb: c: 0.5\n\n  d e :3\r\na: 1", NULL},
                 {"a: 1\nb: c: 2\nd e: 3\n", "no weight for the class f"},
                 {"a: 1\nb: 2\n", ":2: there is no such class"},
                 {"a: 1\na: 1\n", ":2: the class a has a weight already"},
                 {"a: one\n", ":1: this is not a class name, a colon and a number"},
                 {"a:\n2: 1\n", ":1: this is not a class name, a colon and a number"},
                 {"a: 1 2\n", ":1: this is not a class name, a colon and a number"},
                 {"a: -1\n", "the weight of the class a is -1, it must be above 0"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lvni_classify_criterion c = {0};
        lvni_core_str note = {0};
        assert_int_equal(lvni_core_file_write(path, files[i].text, strlen(files[i].text)), LVN_OK);
        assert_int_equal(read_arguments(1, (const char *const[]){word}, &c, &note),
                         files[i].reports == NULL ? LVN_OK : LVN_ERR_USAGE);
        if (files[i].reports == NULL) {
            if (c.class_weight == NULL) {
                fail();
                return;
            }
            const float *w =
                c.class_weight->data; /* raw 1 0.5 3 7, 6 3 2 1 samples: mean 20.5 / 12 */
            assert_true(fabs((double)w[0] - 12.0 / 20.5) < 1e-6 &&
                        fabs((double)w[1] - 6.0 / 20.5) < 1e-6);
            assert_true(fabs((double)w[2] - 36.0 / 20.5) < 1e-6 &&
                        fabs((double)w[3] - 84.0 / 20.5) < 1e-6);
            assert_non_null(strstr(lvni_core_str_text(&note),
                                   "class weights a 0.5854, b: c 0.2927, d e 1.756, f 4.098"));
        } else if (strstr(lvn_last_error()->message, files[i].reports) == NULL) {
            fail_msg("%s", lvn_last_error()->message);
        }
        lvni_classify_criterion_free(&c);
        lvni_core_str_free(&note);
    }
    unlink(path);
}

TEST(mistakes_in_a_list_are_named)
{
    static const char *const bad[][2] = {
        {"class_weights=[1,2,3]", "has 3 weights, but there are 4 classes"},
        {"class_weights=[1,2,3,4,5]", "has 5 weights, but there are 4 classes"},
        {"class_weights=[1,2,3,x]", "is not a list of numbers"},
        {"class_weights=[1,2,3,4]5", "is not a list of numbers"},
        {"class_weights=[]", "has 0 weights, but there are 4 classes"},
        {"class_weights=[1,2,3,inf]", "the weight of the class f is inf"},
        {"class_weights=[1,0,3,4]", "the weight of the class b: c is 0"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lvni_classify_criterion c = {0};
        lvni_core_str note = {0};
        assert_int_equal(read_arguments(1, bad[i], &c, &note), LVN_ERR_USAGE);
        if (strstr(lvn_last_error()->message, bad[i][1]) == NULL) {
            fail_msg("%s", lvn_last_error()->message);
        }
        lvni_classify_criterion_free(&c);
        lvni_core_str_free(&note);
    }
}

/* ---- on a device ---- */

/* The host waits for the step alone, and not for the weights of its micro-batches; the bits are
 * those of the CPU. */
static void train_on(lvn_device device, float values[16], uint64_t *waits)
{
    enum { STEPS = 4, MICRO_BATCHES = 5 };
    lvni_classify_mix mix;
    lvni_core_str note = {0};
    lvni_trainer *t;
    lvni_trainer_step_result r;
    assert_int_equal(lvn_device_use(device), LVN_OK);
    lvni_classify_mix_init(&mix, &linear_class, 0.0, 0.0);
    assert_int_equal(read_arguments(1, (const char *const[]){"class_weights=[1,0.5,3,7]"},
                                    &mix.criterion, &note),
                     LVN_OK);
    lvni_trainer_options o = {.train = &few,
                              .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.1},
                              .max_epochs = -1,
                              .max_steps = -1,
                              .quiet = true,
                              .config_json = "{}",
                              .log_every_n_steps = 1};
    const lvni_plan_options plan = {.n_samples = N,
                                    .batch_size = N,
                                    .micro_batches = MICRO_BATCHES,
                                    .lanes = 1,
                                    .pins.wgrad_threads = 1,
                                    .eval_batch_size = 4,
                                    .cores = 1};
    assert_int_equal(lvni_nn_model_build(&mix.cls, NULL, 1, &o.model), LVN_OK);
    assert_int_equal(lvni_plan_make(&plan, &o.plan), LVN_OK);
    assert_int_equal(lvni_trainer_create(&o, &t), LVN_OK);
    const lvni_data_loader_options loader = {.dataset = &few, .plan = &t->o.plan, .training = true};
    assert_int_equal(lvni_data_loader_create(&loader, &t->loader), LVN_OK);
    uint64_t before = 0;
    for (int i = -1; i < STEPS; i++) {
        assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
        before = i < 0 ? lvni_sim_get_counters(0).drained : before;
    }
    *waits = lvni_sim_get_counters(0).drained - before;
    assert_true(device.kind == LVN_DEVICE_CPU || *waits <= STEPS);
    const lvni_nn_model *m = o.model;
    assert_int_equal(lvni_tensor_mem_copy(values, m->weights + m->offset[0], 12 * sizeof *values),
                     LVN_OK);
    assert_int_equal(
        lvni_tensor_mem_copy(values + 12, m->weights + m->offset[1], 4 * sizeof *values), LVN_OK);
    lvni_trainer_destroy(t);
    lvni_nn_model_destroy(o.model);
    lvni_classify_criterion_free(&mix.criterion);
    lvni_core_str_free(&note);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

TEST(weights_are_not_waited_for)
{
    float here[16], there[16];
    uint64_t waits;
    train_on(LVN_CPU, here, &waits);
    train_on(LVN_SIM(0), there, &waits);
    assert_true(waits > 0); /* the device is slow enough to be waited for */
    assert_memory_equal(here, there, sizeof here);
}

BEFORE_ALL()
{
    setenv("LEVIN_SIM_KERNEL_US", "200", 1);
    sim_start("1", "64MiB");
    return lvni_cpu_start();
}
