/* `levin predict embed` (pretrain.h): features of images as a table, JSON lines, an array or a file
 * of PyTorch; of each image one row, or the map that is pooled into it. Rows come in the order of
 * the images, whatever ranks compute them, and how many can be read shows at the end. */
#include "recipes/pretrain/pretrain.h"

#include "ckpt/torch_file.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "data/array.h"
#include "images/image_data.h"
#include "run/inference.h"
#include "run/options.h"
#include "run/output_file.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const lvni_core_option output_rows[] = {
    {.name = "image_size",
     .type = LVNI_OPT_INT_LIST,
     .unit = "pixels",
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Side of the square that an image is stretched to, or [height,width]; auto: that of "
             "the training."},
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "embeddings.csv",
     .help = "File to write, a line for each image: a table (.csv) or JSON lines (.jsonl); or an "
             "array (.npy), arrays `embeddings` and `filenames` (.npz), a dict of both for "
             "torch.load (.pt); -: stdout."},
    {.name = "format",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|csv|lightly_csv|jsonl|npy|npz|torch",
     .fallback = "auto",
     .help = "Of output=; auto: by its ending. lightly_csv: a table with columns `filenames`, "
             "`embedding_0` ..., `labels`, all 0, as custom embeddings for Lightly are."},
    {.name = "overwrite",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Replace output= where it exists, which is an error otherwise."},
    {.name = "features",
     .type = LVNI_OPT_CHOICE,
     .choices = "pool|patches",
     .fallback = "pool",
     .help = "pool: a row of numbers for each image; patches: the backbone's last map (channels, "
             "height, width), as .npy, .npz or .pt."},
};
const lvni_core_option_table lvni_pretrain_output_options =
    LVNI_OPTION_TABLE("predict", output_rows);

typedef enum format { CSV, LIGHTLY_CSV, JSON_LINES, NPY, NPZ, TORCH, FORMATS } format;

static const struct {
    const char *name, *ending, *what;
} formats[FORMATS] = {
    [CSV] = {"csv", ".csv", "a table"},
    [LIGHTLY_CSV] = {"lightly_csv", ".csv", "a table"},
    [JSON_LINES] = {"jsonl", ".jsonl", "JSON lines"},
    [NPY] = {"npy", ".npy", "an array"},
    [NPZ] = {"npz", ".npz", "an archive of arrays"},
    [TORCH] = {"torch", ".pt", "a file of PyTorch"},
};

static bool is_array(format f)
{
    return f >= NPY;
}

/* FORMATS: the name shows none. */
static format format_of_name(const char *output)
{
    if (lvni_run_output_ends_in(output, ".pth", strlen(".pth"))) {
        return TORCH;
    }
    for (int i = 0; i < FORMATS; i++) {
        const char *ending = formats[i].ending;
        if (i != LIGHTLY_CSV && lvni_run_output_ends_in(output, ending, strlen(ending))) {
            return (format)i;
        }
    }
    return FORMATS;
}

static format format_of(const lvni_core_config *c)
{
    const char *name = lvni_core_config_str(c, "format");
    for (int i = 0; i < FORMATS; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return (format)i;
        }
    }
    if (lvni_core_config_bool(c, "json")) {
        return JSON_LINES;
    }
    const format f = format_of_name(lvni_core_config_str(c, "output"));
    return f == FORMATS ? CSV : f; /* - */
}

static bool has_patches(const lvni_core_config *c)
{
    return strcmp(lvni_core_config_str(c, "features"), "patches") == 0;
}

/* ---- arguments ---- */

/* format= chooses, and a name that ends like another one is a mistake. */
static lvn_status check_name(const lvni_core_config *c, format f)
{
    const char *output = lvni_core_config_str(c, "output");
    const format named = format_of_name(output);
    if (lvni_core_config_bool(c, "json") && f != JSON_LINES) {
        LVN_FAIL(LVN_ERR_USAGE, "format=%s and json=true: JSON lines are format=jsonl",
                 formats[f].name);
    }
    if (named != FORMATS && strcmp(formats[named].ending, formats[f].ending) != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "format=%s writes %s, and output=%s ends as %s does; use output=NAME%s",
                 formats[f].name, formats[f].what, output, formats[named].what, formats[f].ending);
    }
    return LVN_OK;
}

/* Features may have taken hours, and the name has a default. */
static lvn_status check_unused(const lvni_core_config *c)
{
    const char *output = lvni_core_config_str(c, "output");
    if (!lvni_run_output_is_stdout(c) && !lvni_core_config_bool(c, "overwrite") &&
        lvni_core_path_exists(output)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=%s exists: overwrite=true replaces it, or give another name", output);
    }
    return LVN_OK;
}

static lvn_status check_size(const lvni_core_config *c)
{
    size_t n;
    (void)lvni_core_config_int_list(c, "image_size", &n);
    if (n > 2) {
        LVN_FAIL(LVN_ERR_USAGE, "image_size has %zu numbers: give a side, or [height,width]  (%s)",
                 n, lvni_core_config_origin(c, "image_size"));
    }
    return LVN_OK;
}

static lvn_status check_output(const lvni_core_config *c)
{
    const format f = format_of(c);
    const bool given = strcmp(lvni_core_config_str(c, "format"), "auto") != 0;
    const lvni_run_output_kind kind = {
        .what = is_array(f) ? "features of images as an array are bytes" : "features of images",
        .endings = ".csv|.jsonl|.npy|.npz|.pt|.pth",
        .others = "or format=",
        .binary = is_array(f)};
    if (has_patches(c) && !is_array(f)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "features=patches has a map (channels, height, width) for each image, and a line "
                 "of %s has one row of numbers; use output=NAME.npy, .npz or .pt",
                 f == JSON_LINES ? "JSON" : "a table");
    }
    LVN_TRY(given ? check_name(c, f) : LVN_OK);
    LVN_TRY(given && !lvni_run_output_is_stdout(c)
                ? lvni_core_file_check(lvni_core_config_str(c, "output"))
                : lvni_run_output_check(c, &kind));
    return check_unused(c);
}

static lvn_status check_arguments(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    LVN_TRY(lvni_images_source_check(c));
    LVN_TRY(check_size(c));
    return check_output(c);
}

/* ---- rows, of rank 0 ---- */

typedef struct rows {
    format format;
    float *value; /* (as many as there are images, dim) */
    int64_t dim;
    int64_t channels;      /* of a map; 0: none */
    _Atomic int64_t width; /* of a map; lanes write it, all the same */
    lvni_core_str names;   /* each with its zero */
} rows;

static const char *column(const lvni_run_inference *use, int i)
{
    static _Thread_local char name[32];
    (void)use;
    snprintf(name, sizeof name, "embedding_%d", i);
    return name;
}

static lvn_status begin(lvni_run_inference *u)
{
    rows *w = u->own = LVNI_NEW(LVNI_TAG_DATA, rows);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->format = format_of(u->config);
    u->lines = w->format == JSON_LINES;
    if (has_patches(u->config)) {
        w->channels =
            lvni_nn_zoo_feature_dim(lvni_core_config_str(u->exported->job.keys, "model.name"));
    }
    return LVN_OK;
}

/* (N, K) of a batch: K is the row, or of a map channels x height x width. */
static lvn_tensor *features(const lvn_module *root, const lvn_batch *batch, void *user)
{
    static const int channels_first[] = {0, 3, 1, 2};
    const lvni_run_inference *u = user;
    if (!has_patches(u->config)) {
        return lvni_pretrain_features(root, batch, NULL);
    }
    const lvn_module *backbone = ((const lvni_pretrain_root *)root)->embedding.backbone;
    lvn_tensor *map = lvni_nn_zoo_features(backbone, batch->image).map;
    if (map == NULL) {
        return NULL;
    }
    atomic_store(&((rows *)u->own)->width, lvn_size(map, 2));
    return lvn_flatten(lvn_permute(map, channels_first, 4), 1);
}

static lvn_status take_table_row(lvni_run_inference *u, const char *name, const float *value,
                                 int64_t dim)
{
    const bool lightly = ((const rows *)u->own)->format == LIGHTLY_CSV;
    lvni_core_str *to = &u->text;
    if (u->n++ == 0) {
        lvni_core_str_append(to, lightly ? "filenames" : "filename");
        for (int64_t i = 0; i < dim; i++) {
            lvni_core_str_printf(to, ",embedding_%lld", (long long)i);
        }
        lvni_core_str_append(to, lightly ? ",labels\n" : "\n");
    }
    lvni_run_csv_field(to, name);
    for (int64_t i = 0; i < dim; i++) {
        lvni_core_str_printf(to, ",%.9g", (double)value[i]); /* nine digits give the f32 back */
    }
    lvni_core_str_append(to, lightly ? ",0\n" : "\n");
    return lvni_core_str_status(to);
}

static lvn_status take_array_row(lvni_run_inference *u, const char *name, const float *value,
                                 int64_t dim)
{
    rows *w = u->own;
    const int64_t most = u->data->cls->length(u->data);
    if (w->value == NULL) {
        w->dim = dim;
        w->value = lvni_core_calloc(LVNI_TAG_DATA, (size_t)most, (size_t)dim * sizeof *w->value);
    }
    if (w->value == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(w->value + u->n++ * dim, value, (size_t)dim * sizeof *value);
    lvni_core_str_escape(&w->names, name, strlen(name), LVNI_ESCAPE_NAME);
    lvni_core_str_append_n(&w->names, "", 1);
    return lvni_core_str_status(&w->names);
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t dim)
{
    char number[24];
    const format f = ((const rows *)u->own)->format;
    const char *name = lvni_run_sample_name(u, sample, number);
    return f == JSON_LINES ? lvni_run_take_row(u, sample, value, dim)
           : is_array(f)   ? take_array_row(u, name, value, dim)
                           : take_table_row(u, name, value, dim);
}

/* ---- files ---- */

/* (N, dim), or (N, channels, height, width) of maps. */
static int shape_of(const rows *w, int64_t n, int64_t shape[4])
{
    const bool maps = w->channels > 0;
    const int64_t width = maps ? atomic_load(&w->width) : 1;
    shape[0] = n;
    shape[1] = maps ? w->channels : w->dim;
    shape[2] = maps ? w->dim / (w->channels * width) : 1;
    shape[3] = width;
    return maps ? 4 : 2;
}

/* Characters of 32 bits, (n, *longest), in the byte order of the machine, as NumPy has text. */
static uint32_t *make_characters(const rows *w, int64_t n, size_t *longest)
{
    const char *at = w->names.data;
    *longest = 1;
    for (int64_t i = 0; i < n; i++) {
        const size_t bytes = strlen(at);
        *longest = bytes > *longest ? bytes : *longest;
        at += bytes + 1;
    }
    uint32_t *text = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n * *longest, sizeof *text);
    at = w->names.data;
    for (int64_t i = 0; text != NULL && i < n; i++) {
        const size_t bytes = strlen(at);
        for (size_t from = 0, to = 0, length; from < bytes; from += length) {
            length = lvni_core_utf8_char(at + from, bytes - from, &text[(size_t)i * *longest + to]);
            length = length > 0 ? length : 1;
            to++;
        }
        at += bytes + 1;
    }
    return text;
}

static lvn_status write_npz(const rows *w, const char *path, int ndim, const int64_t *shape)
{
    char type[24];
    size_t longest;
    uint32_t *text = make_characters(w, shape[0], &longest);
    if (text == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(type, sizeof type, "<U%zu", longest);
    lvni_data_npz_array arrays[] = {{.name = "embeddings.npy",
                                     .descr = "<f4",
                                     .ndim = ndim,
                                     .data = w->value,
                                     .bytes = (size_t)(shape[0] * w->dim) * sizeof *w->value},
                                    {.name = "filenames.npy",
                                     .descr = type,
                                     .ndim = 1,
                                     .shape = {shape[0]},
                                     .data = text,
                                     .bytes = (size_t)shape[0] * longest * sizeof *text},
                                    {.name = NULL}};
    memcpy(arrays[0].shape, shape, (size_t)ndim * sizeof *shape);
    const lvn_status s = lvni_data_npz_write(path, arrays, "write a .npy file");
    lvni_core_free(text);
    return s;
}

static lvn_status write_torch(const rows *w, const char *path, int ndim, const int64_t *shape)
{
    const int64_t n = shape[0];
    const char **name = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *name);
    if (name == NULL) {
        return LVN_ERR_MEMORY;
    }
    const char *at = w->names.data;
    for (int64_t i = 0; i < n; i++) {
        name[i] = at;
        at += strlen(at) + 1;
    }
    lvni_ckpt_st_tensor t = {
        .name = "embeddings", .dtype = LVN_F32, .ndim = ndim, .data = w->value};
    memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    const lvni_ckpt_torch_texts texts = {.name = "filenames", .text = name, .n = n};
    const lvn_status s = lvni_ckpt_torch_save_texts(path, &texts, &t, 1);
    lvni_core_free(name);
    return s;
}

static lvn_status finish(lvni_run_inference *u)
{
    int64_t shape[4];
    const rows *w = u->own;
    const char *path = lvni_run_output_path(u->config);
    if (!is_array(w->format)) {
        return lvni_run_write_rows(u);
    }
    LVN_TRY(lvni_run_check_rows(u));
    const int ndim = shape_of(w, u->n, shape);
    LVN_TRY(w->format == NPY   ? lvni_data_npy_write_f32(path, ndim, shape, w->value)
            : w->format == NPZ ? write_npz(w, path, ndim, shape)
                               : write_torch(w, path, ndim, shape));
    if (lvni_run_output_is_stdout(u->config)) {
        return LVN_OK;
    }
    lvni_core_print(stdout, "features (%lld, %lld", (long long)shape[0], (long long)shape[1]);
    for (int i = 2; i < ndim; i++) {
        lvni_core_print(stdout, ", %lld", (long long)shape[i]);
    }
    lvni_core_print(stdout, ") in %s\n", path);
    return LVN_OK;
}

static void end(lvni_run_inference *u)
{
    rows *w = u->own;
    if (w != NULL) {
        lvni_core_free(w->value);
        lvni_core_str_free(&w->names);
        lvni_core_free(w);
    }
}

const lvni_run_results lvni_pretrain_embeddings = {.check = check_arguments,
                                                   .begin = begin,
                                                   .output = features,
                                                   .column = column,
                                                   .row = take_row,
                                                   .finish = finish,
                                                   .end = end};
