/* A recipe that exports one module of its model (lvni_run_job.exported_part): the teacher's
 * backbone of a student and a teacher, as safetensors and for torch.load, under the names of the
 * network alone; classify begins with it, and the model takes it back. */
#include "ckpt/checkpoint.h"
#include "ckpt/torch_file.h"
#include "core/error.h"
#include "kernels/kernels.h"
#include "run/options.h"
#include "run/recipe.h"
#include "run/weights.h"
#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 8, SAMPLES = 8, CLASSES = 7 };
static const char TEACHER[] = "teacher.backbone", STUDENT[] = "student.backbone";

static char dir[40];

/* ---- a recipe ---- */

static int image_fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    (void)d;
    out[0] = (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 3, .shape = {SIDE, SIDE, 3}};
    return 1;
}

static int64_t image_length(const lvn_dataset *d)
{
    (void)d;
    return SAMPLES;
}

static lvn_status image_get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    (void)d;
    for (int k = 0; k < SIDE * SIDE * 3; k++) {
        ((float *)field[0])[k] = (float)((key->sample * 37 + k * 11) % 17) / 17.0f - 0.5f;
    }
    return LVN_OK;
}

static const lvn_dataset_class images_class = {
    .name = "images", .fields = image_fields, .length = image_length, .get = image_get};
static const lvn_dataset images = {.cls = &images_class};

typedef struct pretrained {
    lvn_module base;
    lvn_module *student, *teacher, *head;
} pretrained;

static lvn_status pretrained_build(lvn_module *module, lvn_builder *b)
{
    pretrained *m = (pretrained *)module;
    const lvni_nn_zoo_arguments a = {.image_size = SIDE, .n_classes = CLASSES};
    m->student = lvni_nn_zoo_backbone(b, STUDENT, "cnn", &a);
    m->teacher = lvni_nn_zoo_backbone(b, TEACHER, "cnn", &a);
    lvn_builder_follow(b, m->teacher, m->student, .momentum = 0.5, .own_statistics = true);
    m->head = lvn_nn_linear(b, "projection", 128, 4);
    return lvn_builder_status(b);
}

static lvn_tensor *pretrained_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pretrained *m = (const pretrained *)module;
    lvn_tensor *aim = lvn_slice(lvni_nn_zoo_pooled(m->teacher, batch->image), 1, 0, 4);
    lvn_tensor *y = lvn_forward(m->head, lvni_nn_zoo_pooled(m->student, batch->image));
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_sub(y, aim)));
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class pretrained_class = {.name = "pretrained",
                                                  .size = sizeof(pretrained),
                                                  .build = pretrained_build,
                                                  .training_step = pretrained_step};

static lvn_status open_job(lvni_run_job *job)
{
    job->cls = &pretrained_class;
    job->model = "cnn";
    job->train = &images;
    job->exported_part = TEACHER;
    return LVN_OK;
}

static const lvni_run_recipe recipe = {.name = "part",
                                       .use = "",
                                       .help = "",
                                       .keys = lvni_run_job_keys,
                                       .open = open_job,
                                       .card = &lvni_run_general_card,
                                       .noun = "backbone",
                                       .export_keys = lvni_run_export_keys};

/* ---- files ---- */

static const char *path_of(const char *name)
{
    static char path[3][160];
    static int at;
    at = (at + 1) % 3;
    snprintf(path[at], sizeof path[at], "%s/run/%s", dir, name);
    return path[at];
}

static lvni_ckpt_st_file *open_file(const char *name)
{
    lvni_ckpt_st_file *file;
    const char *inner;
    if (lvni_ckpt_tensors_open(path_of(name), LVNI_ST_VERIFY, NULL, &inner, &file) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return file;
}

static void train(const char *steps, bool again)
{
    char out[80], max[40];
    snprintf(out, sizeof out, "out=%s/run", dir);
    snprintf(max, sizeof max, "max_steps=%s", steps);
    const char *const args[] = {
        out,         max,          "batch_size=4", "accelerator=cpu",
        "devices=1", "quiet=true", "optim.lr=0.1", again ? "resume=true" : "resume=false"};
    if (lvni_run_train(&recipe, sizeof args / sizeof *args, args) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

static lvni_nn_model *build(const lvn_module_class *cls, int classes)
{
    lvni_nn_model *m;
    const lvni_nn_zoo_arguments a = {.image_size = SIDE, .n_classes = classes};
    assert_int_equal(lvni_nn_model_build(cls, &a, 5, &m), LVN_OK);
    return m;
}

/* Each tensor of the network alone, with the values of the checkpoint behind "model/PART.". */
static void assert_values(const lvni_ckpt_st_file *file, const lvni_ckpt_st_file *checkpoint)
{
    lvni_nn_model *alone = build(lvni_nn_zoo_find("cnn"), CLASSES);
    static float here[100000], there[100000], as_file[100000];
    for (int i = 0; i < alone->n_parameters + alone->n_buffers; i++) {
        const lvni_nn_parameter *p = i < alone->n_parameters ? &alone->parameters[i] : NULL;
        const char *name = p != NULL ? p->name : alone->buffers[i - alone->n_parameters]->name;
        char full[160];
        snprintf(full, sizeof full, LVNI_CKPT_MODEL "%s.%s", TEACHER, name);
        const lvni_ckpt_st_tensor *mine = lvni_ckpt_st_find(file, name),
                                  *saved = lvni_ckpt_st_find(checkpoint, full);
        if (mine == NULL || saved == NULL) {
            fail_msg("there is no %s or no %s", name, full);
            return;
        }
        assert_int_equal(mine->bytes, saved->bytes);
        assert_int_equal(lvni_ckpt_st_read_f32(mine, here), LVN_OK);
        assert_int_equal(lvni_ckpt_st_read_f32(saved, there), LVN_OK);
        if (p != NULL) {
            lvni_nn_parameter_to_file(p, there, as_file);
        }
        assert_memory_equal(here, p != NULL ? as_file : there, mine->bytes);
    }
    /* and three counters of batch norm */
    assert_int_equal(lvni_ckpt_st_count(file), alone->n_parameters + alone->n_buffers + 3);
    assert_int_equal(lvni_ckpt_st_find(file, "norm2.num_batches_tracked")->dtype, LVN_I64);
    lvni_nn_model_destroy(alone);
}

static void check_exports(void)
{
    lvni_ckpt_st_file *last = open_file("exported_models/exported_last.safetensors"),
                      *torch = open_file("exported_models/exported_last.pt"),
                      *checkpoint = open_file("checkpoints/last.safetensors");
    assert_values(last, checkpoint);
    assert_values(torch, checkpoint);
    assert_string_equal(lvni_ckpt_st_meta_get(last, LVNI_EXPORT_UNTRAINED), "head");
    assert_string_equal(lvni_ckpt_st_meta_get(last, LVNI_CARD_RECIPE), "part");
    assert_non_null(strstr(lvni_ckpt_st_meta_get(last, LVNI_CARD), "\"model\":\"cnn\""));
    lvni_ckpt_st_close(last);
    lvni_ckpt_st_close(torch);
    lvni_ckpt_st_close(checkpoint);
}

TEST(one_module_is_exported_under_its_own_names)
{
    train("2", false);
    check_exports();
    assert_int_equal(access(path_of("exported_models/exported_best.pt"), R_OK), 0);
}

TEST(a_resumed_run_makes_both_files_again)
{
    train("2", false);
    assert_int_equal(unlink(path_of("exported_models/exported_last.pt")), 0);
    assert_int_equal(unlink(path_of("exported_models/exported_last.safetensors")), 0);
    train("2", true);
    check_exports();
    train("4", true);
    check_exports();
}

static void load(lvni_nn_model *m, const lvni_run_weights_source *from,
                 lvni_run_weights_report *report)
{
    if (lvni_run_model_load(m, from, report) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

static const float *values(const lvni_nn_model *m, const char *prefix, const char *name)
{
    char full[160];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, full) == 0) {
            return LVNI_CF32(m->parameters[i].tensor);
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        if (strcmp(m->buffers[i]->name, full) == 0) {
            return LVNI_CF32(m->buffers[i]->tensor);
        }
    }
    fail_msg("the model has no %s", full);
    return NULL;
}

TEST(a_classifier_begins_with_it)
{
    train("2", false);
    const char *path = path_of("exported_models/exported_last.safetensors");
    lvni_run_weights_report report;
    for (int classes = 3; classes <= CLASSES; classes += CLASSES - 3) { /* as many as it has, too */
        lvni_nn_model *m = build(lvni_nn_zoo_find("cnn"), classes),
                      *fresh = build(lvni_nn_zoo_find("cnn"), classes);
        load(m, &(lvni_run_weights_source){.path = path}, &report);
        assert_string_equal(lvni_core_str_text(&report.head), "head");
        assert_true(report.untrained);
        assert_int_equal(report.taken, 9 + 6);
        assert_string_equal(lvni_core_str_text(&report.unused), "");
        lvni_run_weights_report_free(&report);
        assert_memory_equal(values(m, "", "head.weight"), values(fresh, "", "head.weight"),
                            sizeof(float) * 128 * 3);
        assert_memory_not_equal(values(m, "", "conv3.weight"), values(fresh, "", "conv3.weight"),
                                sizeof(float) * 64);
        lvni_nn_model_destroy(m);
        lvni_nn_model_destroy(fresh);
    }
    /* the run itself is of another model: it gives the one that it exported */
    lvni_nn_model *of_run = build(lvni_nn_zoo_find("cnn"), 3),
                  *of_file = build(lvni_nn_zoo_find("cnn"), 3);
    load(of_run, &(lvni_run_weights_source){.path = path_of("")}, &report);
    assert_true(report.untrained);
    lvni_run_weights_report_free(&report);
    load(of_file, &(lvni_run_weights_source){.path = path}, NULL);
    assert_memory_equal(values(of_run, "", "conv3.weight"), values(of_file, "", "conv3.weight"),
                        sizeof(float) * 64);
    lvni_nn_model_destroy(of_run);
    lvni_nn_model_destroy(of_file);
    /* without training there is no classifier in it */
    lvni_nn_model *m = build(lvni_nn_zoo_find("cnn"), 1);
    int n;
    assert_int_equal(lvni_run_weights_classes(m, &(lvni_run_weights_source){.path = path}, &n),
                     LVN_ERR_MISMATCH);
    assert_non_null(strstr(lvn_last_error()->message, "levin train classify weights="));
    lvni_nn_model_destroy(m);
}

/* Of an export, of torch.load's file and of a checkpoint: the part alone changes. */
TEST(a_part_is_loaded_alone)
{
    static const char *const files[] = {"exported_models/exported_last.safetensors",
                                        "exported_models/exported_last.pt",
                                        "checkpoints/last.safetensors"};
    train("2", false);
    lvni_nn_model *alone = build(lvni_nn_zoo_find("cnn"), CLASSES);
    load(alone, &(lvni_run_weights_source){.path = path_of(files[1])}, NULL);
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        lvni_nn_model *m = build(&pretrained_class, 0), *fresh = build(&pretrained_class, 0);
        lvni_run_weights_report report;
        load(m, &(lvni_run_weights_source){.path = path_of(files[k]), .part = TEACHER}, &report);
        assert_int_equal(report.taken, 11 + 6);
        assert_int_equal(report.all, 11 + 6);
        lvni_run_weights_report_free(&report);
        assert_memory_equal(values(m, "teacher.backbone.", "conv3.weight"),
                            values(alone, "", "conv3.weight"), sizeof(float) * 9 * 64 * 128);
        assert_memory_equal(values(m, "teacher.backbone.", "head.weight"),
                            values(alone, "", "head.weight"), sizeof(float) * 128 * CLASSES);
        assert_memory_equal(values(m, "", "projection.weight"),
                            values(fresh, "", "projection.weight"), sizeof(float) * 128 * 4);
        assert_memory_equal(values(m, "student.backbone.", "conv3.weight"),
                            values(fresh, "student.backbone.", "conv3.weight"),
                            sizeof(float) * 9 * 64 * 128);
        lvni_nn_model_destroy(m);
        lvni_nn_model_destroy(fresh);
    }
    lvni_nn_model_destroy(alone);
}

/* A file with a classifier of other classes, or of another network. */
TEST(a_part_takes_files_of_other_classes)
{
    lvni_nn_model *other = build(lvni_nn_zoo_find("cnn"), 2), *m = build(&pretrained_class, 0);
    char path[80];
    snprintf(path, sizeof path, "%s/other.pt", dir);
    assert_int_equal(
        lvni_run_export_model(
            &(lvni_run_export_content){.model = other, .values = other->weights, .step = -1}, path),
        LVN_OK);
    lvni_run_weights_report report;
    load(m, &(lvni_run_weights_source){.path = path, .part = STUDENT}, &report);
    assert_int_equal(report.taken, 9 + 6);
    assert_string_equal(lvni_core_str_text(&report.unused), "");
    lvni_run_weights_report_free(&report);
    assert_memory_equal(values(m, "student.backbone.", "norm2.weight"),
                        values(other, "", "norm2.weight"), sizeof(float) * 64);
    lvni_nn_model_destroy(other);
    other = build(lvni_nn_zoo_find("mlp"), 2);
    assert_int_equal(
        lvni_run_export_model(
            &(lvni_run_export_content){.model = other, .values = other->weights, .step = -1}, path),
        LVN_OK);
    assert_int_equal(
        lvni_run_model_load(m, &(lvni_run_weights_source){.path = path, .part = STUDENT}, NULL),
        LVN_ERR_MISMATCH);
    assert_non_null(strstr(lvn_last_error()->message, "does not fit this model, cnn: 15 missing"));
    lvni_nn_model_destroy(other);
    lvni_nn_model_destroy(m);
}

/* A run directory of its own for each test. */
static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/levin-part-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int forget(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int remove_dir(void **state)
{
    (void)state;
    return nftw(dir, forget, 8, FTW_DEPTH | FTW_PHYS);
}

TEST_EACH(make_dir, remove_dir);

BEFORE_ALL()
{
    return lvni_cpu_start();
}
