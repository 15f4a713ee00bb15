/* test_golden FILE: a network of the zoo with the weights that make_goldens.py gave PyTorch:
 * logits, loss, gradients and running statistics are those of PyTorch in double precision. */
#include "golden_nets.h"
#include "golden_support.h"
#include "support/test.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "run/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *golden_path;

static const double LOGITS = 1e-5; /* relative to the largest of the tensor */

typedef struct problem {
    lvni_ckpt_st_file *file;
    lvni_nn_model *model;
    lvni_nn_set *set;
    lvn_tensor *image, *labels;
    int batch, classes;
    double worst_logits, worst_gradient;
} problem;

static int set_up(void **state)
{
    problem *p = LVNI_NEW(LVNI_TAG_MODEL, problem);
    assert_non_null(p);
    if (lvni_ckpt_st_open(golden_path, LVNI_ST_VERIFY, &p->file) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    p->batch = golden_number(p->file, "batch");
    p->classes = golden_number(p->file, "classes");
    const lvni_nn_zoo_arguments a = {.image_size = golden_number(p->file, "size"),
                                     .n_classes = p->classes};
    const char *name = lvni_ckpt_st_meta_get(p->file, "model");
    assert_non_null(name);
    assert_int_equal(lvni_nn_model_build_empty(golden_class(name), &a, &p->model), LVN_OK);
    assert_int_equal(lvni_nn_set_create(p->model, &p->set), LVN_OK);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    problem *p = *state;
    lvn_release(p->image);
    lvn_release(p->labels);
    lvni_nn_set_destroy(p->set);
    lvni_nn_model_destroy(p->model);
    lvni_ckpt_st_close(p->file);
    lvni_core_free(p);
    return 0;
}

TEST_EACH(set_up, tear_down);

/* What the file's list of lines "OURS THEIRS" calls a tensor; in `out`. */
static const char *their_name(const char *names, const char *ours, char out[128])
{
    const size_t n = strlen(ours);
    for (const char *line = names; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, ours, n) == 0 && line[n] == ' ') {
            snprintf(out, 128, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return out;
        }
    }
    fail_msg("the golden file does not name %s", ours);
    return "";
}

/* Queries, keys and values, one after the other in `whole`, as three tensors of their own. */
static int split(const lvni_ckpt_st_tensor *whole, lvni_ckpt_st_tensor entry[3], char name[3][128])
{
    static const char first[] = ".query.", *const parts[] = {"query", "key", "value"};
    const char *at = strstr(whole->name, first);
    if (at == NULL) {
        entry[0] = *whole;
        return 1;
    }
    int64_t third = 1;
    for (int i = 0; i < whole->ndim; i++) {
        third *= whole->shape[i];
    }
    third /= 3;
    for (int i = 0; i < 3; i++) {
        snprintf(name[i], sizeof name[i], "%.*s.%s.%s", (int)(at - whole->name), whole->name,
                 parts[i], at + sizeof first - 1);
        entry[i] = *whole;
        entry[i].name = name[i];
        entry[i].shape[0] /= 3;
        entry[i].data = (const float *)whole->data + i * third;
    }
    return 3;
}

/* The weights into a file as the other library writes it. */
static void write_theirs(const problem *p, const char *names, const char *path)
{
    const int n = p->model->n_parameters;
    const size_t most = 3 * (size_t)n;
    lvni_ckpt_st_tensor *entry = lvni_core_calloc(LVNI_TAG_MODEL, most, sizeof *entry);
    char(*name)[128] = lvni_core_calloc(LVNI_TAG_MODEL, most, sizeof *name), own[128];
    float **data = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *data);
    if (entry == NULL || name == NULL || data == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    int entries = 0;
    for (int i = 0; i < n; i++) {
        const lvni_nn_parameter *q = &p->model->parameters[i];
        data[i] = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)q->numel * sizeof(float));
        assert_non_null(data[i]);
        lvni_nn_parameter_to_file(q, LVNI_F32(q->tensor), data[i]);
        lvni_ckpt_st_tensor whole = {
            .name = their_name(names, q->name, own), .dtype = LVN_F32, .data = data[i]};
        whole.ndim = lvni_nn_parameter_file_shape(q, whole.shape);
        const int parts = split(&whole, entry + entries, name + entries);
        if (parts == 1) {
            snprintf(name[entries], sizeof name[entries], "%s", own);
            entry[entries].name = name[entries];
        }
        entries += parts;
    }
    assert_int_equal(lvni_ckpt_st_save(path, entry, entries, NULL, 0), LVN_OK);
    for (int i = 0; i < n; i++) {
        lvni_core_free(data[i]);
    }
    lvni_core_free(data);
    lvni_core_free(name);
    lvni_core_free(entry);
}

/* From here on the model has its weights out of a file with the names of the other library. */
static void load_theirs(problem *p, const char *names)
{
    char folder[] = "/tmp/levin-golden-XXXXXX", path[64];
    lvni_run_weights_report report;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/theirs.safetensors", folder);
    write_theirs(p, names, path);
    golden_fill(p->model, 77, "other");
    const lvni_run_weights_source from = {.path = path};
    const lvn_status s = lvni_run_model_load(p->model, &from, &report);
    unlink(path);
    rmdir(folder);
    if (s != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    assert_string_equal(report.naming, lvni_ckpt_st_meta_get(p->file, "naming"));
    assert_int_equal(report.taken, report.all);
    assert_string_equal(lvni_core_str_text(&report.unused), "");
    lvni_run_weights_report_free(&report);
}

/* Forward and backward; logits and loss against the file. */
static void run(problem *p, bool training)
{
    const char *mode = training ? "train/" : "eval/";
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const uint64_t seed = (uint64_t)golden_number(p->file, training ? "train_seed" : "eval_seed");
    int64_t n;
    golden_fill(p->model, seed, lvni_ckpt_st_meta_get(p->file, "last"));
    if (lvni_ckpt_st_meta_get(p->file, "names") != NULL) {
        load_theirs(p, lvni_ckpt_st_meta_get(p->file, "names"));
    }
    const int64_t size = golden_number(p->file, "size");
    p->image = golden_tensor(seed, "image", 4, (const int64_t[]){p->batch, size, size, 3});
    ctx->at = (lvni_tensor_position){.training = training};
    ctx->gradients = &p->set->gradients;
    ctx->records = p->set;
    lvni_nn_set_begin(p->set, p->batch);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *logits = lvn_forward(p->model->root, p->image);
    /* one per image, or per pixel */
    p->labels = golden_labels(lvn_numel(logits) / p->classes, p->classes);
    lvn_tensor *loss =
        lvn_cross_entropy(lvn_reshape(logits, 2, (const int64_t[]){-1, p->classes}), p->labels);
    if (loss == NULL) {
        fail_msg("%s", lvn_last_error()->message);
    }
    const double *want = golden_values(p->file, mode, "logits", &n);
    assert_int_equal(lvn_numel(logits), n);
    golden_compare(want, n, LVNI_F32(logits), LOGITS, "logits", &p->worst_logits);
    want = golden_values(p->file, mode, "loss", &n);
    assert_true(fabs(lvn_item(loss) - want[0]) <= LOGITS * fabs(want[0]));
    assert_int_equal(lvn_backward(loss), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_set_finish(p->set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    ctx->at = (lvni_tensor_position){0};
}

static void compare_gradients(problem *p, const char *prefix)
{
    const int n = golden_compare_gradients(p->file, prefix, p->set, 1e-6, &p->worst_gradient);
    assert_int_equal(n, p->model->n_parameters);
}

static void report(const problem *p)
{
    print_message("  largest relative differences: logits %.1e, gradients %.1e\n", p->worst_logits,
                  p->worst_gradient);
}

TEST(training_is_as_in_pytorch)
{
    problem *p = *state;
    if (lvni_ckpt_st_meta_get(p->file, "train_seed") == NULL) {
        print_message("  training is the same for this network\n");
        skip();
    }
    run(p, true);
    compare_gradients(p, "train/grad/");
    lvni_nn_model_apply_records(p->model, p->set, NULL, NULL, 0);
    assert_int_equal(golden_compare_buffers(p->file, "train/buffer/", p->model, LOGITS),
                     p->model->n_buffers);
    report(p);
}

TEST(features_are_as_in_pytorch)
{
    problem *p = *state;
    if (lvni_ckpt_st_find(p->file, "eval/features/pooled") == NULL) {
        print_message("  not a network of the zoo\n");
        skip();
    }
    const uint64_t seed = (uint64_t)golden_number(p->file, "eval_seed");
    const int64_t size = golden_number(p->file, "size");
    double worst = 0.0;
    int64_t n;
    golden_fill(p->model, seed, lvni_ckpt_st_meta_get(p->file, "last"));
    p->image = golden_tensor(seed, "image", 4, (const int64_t[]){p->batch, size, size, 3});
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_nn_features f = lvni_nn_zoo_features(p->model->root, p->image);
    if (f.map == NULL || f.pooled == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    golden_compare_row(golden_values(p->file, "eval/features/", "map", &n), LVNI_CF32(f.map),
                       lvn_numel(f.map), "map", 0.0, &worst);
    golden_compare_row(golden_values(p->file, "eval/features/", "pooled", &n), LVNI_CF32(f.pooled),
                       lvn_numel(f.pooled), "pooled", 0.0, &worst);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    print_message("  largest relative difference: %.1e\n", worst);
}

TEST(evaluation_is_as_in_pytorch)
{
    problem *p = *state;
    run(p, false);
    compare_gradients(p, "eval/grad/");
    report(p);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_golden FILE\n");
        return 2;
    }
    golden_path = argv[1];
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    return test_main(1, argv);
}
