/* Weights from files, by name (weights.h). */
#include "recipes/weights.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/vfs.h"
#include "tensor/device.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 4 }; /* names in one list of a message */

/* Names with their shapes; the first few. */
typedef struct names {
    lvni_str text;
    int n;
} names;

static void add_name(names *list, const char *fmt, ...) LVN_PRINTF(2, 3);
static void add_name(names *list, const char *fmt, ...)
{
    if (list->n++ >= SHOWN) {
        return;
    }
    char one[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(one, sizeof one, fmt, args);
    va_end(args);
    lvni_str_append(&list->text, list->n > 1 ? ", " : "");
    lvni_str_append(&list->text, one);
}

static void end_names(names *list)
{
    if (list->n > SHOWN) {
        lvni_str_printf(&list->text, ", and %d more", list->n - SHOWN);
    }
}

typedef struct load {
    const lvni_model *model;
    const lvni_st_file *file;
    const char *path, *prefix;
    bool checkpoint; /* levin's own layout */
    bool average;    /* of a checkpoint: the averaged weights */
    char head[256];  /* "fc.": parameters under it are passed over; "" without reset_head */
    bool head_differs;
    float *memory, *here; /* one tensor in the order of the file, and in this model's */
    names missing, different, unused;
} load;

static const lvni_st_tensor *find(const load *l, const char *prefix, const char *name)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return lvni_st_find(l->file, full);
}

/* The one under which most parameters are found: those of wrappers around a PyTorch model, and of models inside of others. */
static const char *choose_prefix(const load *l)
{
    static const char *const prefixes[] = {"", "module.", "model.", "backbone.", "_orig_mod."};
    const char *best = prefixes[0];
    int most = 0;
    if (l->checkpoint) {
        return l->average ? LVNI_CKPT_AVERAGE : LVNI_CKPT_MODEL;
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        int n = 0;
        for (int k = 0; k < l->model->n_parameters; k++) {
            n += find(l, prefixes[i], l->model->parameters[k].name) != NULL;
        }
        if (n > most) {
            most = n;
            best = prefixes[i];
        }
    }
    return best;
}

/* "fc." of "fc.bias": the layer made last. */
static void head_of(const lvni_model *m, char head[256])
{
    snprintf(head, 256, "%s", m->n_parameters > 0 ? m->parameters[m->n_parameters - 1].name : "");
    char *dot = strrchr(head, '.');
    if (dot != NULL) {
        dot[1] = '\0';
    }
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool same(const lvni_st_tensor *e, int ndim, const int64_t *shape)
{
    return e->ndim == ndim && memcmp(e->shape, shape, (size_t)ndim * sizeof *shape) == 0;
}

/* One tensor; parameter NULL: it lies in the file as it does here. */
static lvn_status take(load *l, const char *name, lvn_tensor *t, const lvni_parameter *parameter)
{
    const lvni_st_tensor *e = find(l, l->prefix, name);
    int64_t shape[LVN_MAX_NDIM];
    char mine[96], theirs[96], head[256];
    if (parameter != NULL && !l->checkpoint) {
        lvni_parameter_file_shape(parameter, shape);
    } else {
        memcpy(shape, t->shape, sizeof shape);
    }
    lvni_shape_string(t->ndim, shape, mine);
    if (e == NULL) {
        add_name(&l->missing, "%s %s", name, mine);
        return LVN_OK;
    }
    if (!same(e, t->ndim, shape)) {
        head_of(l->model, head);
        l->head_differs = l->head_differs || starts_with(name, head);
        add_name(&l->different, "%s is %s, this model needs %s", name, lvni_shape_string(e->ndim, e->shape, theirs), mine);
        return LVN_OK;
    }
    LVN_TRY(lvni_st_read_f32(e, l->memory));
    if (parameter != NULL && !l->checkpoint) {
        lvni_parameter_from_file(parameter, l->memory, l->here);
        return lvni_mem_copy(t->data, l->here, (size_t)lvn_numel(t) * sizeof(float));
    }
    return lvni_mem_copy(t->data, l->memory, (size_t)lvn_numel(t) * sizeof(float));
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), e = strlen(end);
    return n >= e && strcmp(text + n - e, end) == 0;
}

/* What the model has no place for. PyTorch's counter of batches means nothing to a fixed momentum; of a checkpoint only the model counts. */
static void list_unused(load *l)
{
    for (int64_t i = 0; i < lvni_st_count(l->file); i++) {
        const lvni_st_tensor *e = lvni_st_at(l->file, i);
        const bool inside = starts_with(e->name, l->prefix);
        if ((l->checkpoint && !inside) || ends_with(e->name, ".num_batches_tracked") ||
            (inside && (lvni_model_has(l->model, e->name + strlen(l->prefix)) || (l->head[0] != '\0' && starts_with(e->name + strlen(l->prefix), l->head))))) {
            continue;
        }
        char shape[96];
        add_name(&l->unused, "%s %s", e->name, lvni_shape_string(e->ndim, e->shape, shape));
    }
    end_names(&l->unused);
}

static lvn_status judge(load *l)
{
    lvni_str text = {0};
    end_names(&l->missing);
    end_names(&l->different);
    if (l->missing.n + l->different.n == 0) {
        return LVN_OK;
    }
    lvni_str_printf(&text, "%s does not fit this model:", l->path);
    if (l->missing.n > 0) {
        lvni_str_printf(&text, " %d missing: %s;", l->missing.n, lvni_str_text(&l->missing.text));
    }
    if (l->different.n > 0) {
        lvni_str_printf(&text, " %d of another shape: %s;", l->different.n, lvni_str_text(&l->different.text));
    }
    if (l->unused.n > 0) {
        lvni_str_printf(&text, " %d in the file that it has no place for: %s;", l->unused.n, lvni_str_text(&l->unused.text));
    }
    if (l->head_differs) {
        lvni_str_append(&text, " reset_head=true draws the last layer anew");
    }
    lvn_status s = lvni_str_status(&text);
    if (s == LVN_OK) {
        size_t n = strlen(lvni_str_text(&text));
        n -= lvni_str_text(&text)[n - 1] == ';';
        s = lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__, "%.*s", (int)n, lvni_str_text(&text));
    }
    lvni_str_free(&text);
    return s;
}

static lvn_status run(load *l, lvni_model *m)
{
    int64_t largest = 1;
    for (int i = 0; i < m->n_parameters; i++) {
        largest = m->parameters[i].numel > largest ? m->parameters[i].numel : largest;
    }
    for (int i = 0; i < m->n_buffers; i++) {
        largest = m->buffers[i]->numel > largest ? m->buffers[i]->numel : largest;
    }
    l->memory = lvni_alloc(LVNI_TAG_CKPT, (size_t)largest * sizeof *l->memory);
    l->here = lvni_alloc(LVNI_TAG_CKPT, (size_t)largest * sizeof *l->here);
    if (l->memory == NULL || l->here == NULL) {
        return LVN_ERR_MEMORY;
    }
    l->prefix = choose_prefix(l);
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_parameter *p = &m->parameters[i];
        if (l->head[0] == '\0' || !starts_with(p->name, l->head)) {
            LVN_TRY(take(l, p->name, p->tensor, p));
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        LVN_TRY(take(l, m->buffers[i]->name, m->buffers[i]->tensor, NULL));
    }
    list_unused(l);
    lvni_model_touch(m);
    return judge(l);
}

static lvn_status load_from(lvni_model *model, const lvni_st_file *file, const char *path, bool reset_head, bool average, lvni_weights_report *report)
{
    load l = {.model = model, .file = file, .path = path, .average = average, .checkpoint = lvni_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL};
    if (reset_head) {
        head_of(model, l.head);
    }
    const lvn_status s = run(&l, model);
    if (report != NULL) {
        const size_t n = strlen(l.head);
        *report = (lvni_weights_report){.prefix = l.checkpoint || l.prefix == NULL ? "" : l.prefix, .unused = l.unused.text};
        lvni_str_append_n(&report->head, l.head, n > 0 ? n - 1 : 0);
        l.unused.text = (lvni_str){0};
    }
    lvni_free(l.memory);
    lvni_free(l.here);
    lvni_str_free(&l.missing.text);
    lvni_str_free(&l.different.text);
    lvni_str_free(&l.unused.text);
    return s;
}

lvn_status lvni_model_load_shown(lvni_model *model, const lvni_st_file *file, const char *path, bool average)
{
    return load_from(model, file, path, false, average, NULL);
}

/* What torch.save writes: a zip archive, or in old versions a pickle that begins with its magic number. */
static bool is_pickle(const char *path)
{
    char start[4] = {0};
    const lvni_vfs *vfs = lvni_vfs_get();
    const int fd = vfs->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    const ssize_t n = vfs->read(fd, start, sizeof start);
    vfs->close(fd);
    return n == (ssize_t)sizeof start && (memcmp(start, "PK\3\4", 4) == 0 || memcmp(start, "\x80\x02\x8a\x0a", 4) == 0);
}

static lvn_status open_file(const char *path, char **name, lvni_st_file **file)
{
    LVN_TRY(lvni_ckpt_file_of(path, name));
    lvn_status s = lvni_st_open(*name, LVNI_ST_VERIFY, file);
    if (s != LVN_OK && is_pickle(*name)) {
        s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                          "%s was written by torch.save and can run code when it is read; weights= takes safetensors. In Python: "
                          "safetensors.torch.save_file(torch.load(\"%s\", map_location=\"cpu\"), \"weights.safetensors\")",
                          *name, *name);
    }
    if (s != LVN_OK) {
        lvni_free(*name);
    }
    return s;
}

lvn_status lvni_model_load(lvni_model *model, const char *path, bool reset_head, lvni_weights_report *report)
{
    char *name;
    lvni_st_file *file;
    if (report != NULL) {
        *report = (lvni_weights_report){.prefix = ""};
    }
    LVN_TRY(open_file(path, &name, &file));
    const lvn_status s = load_from(model, file, name, reset_head, false, report);
    lvni_st_close(file);
    lvni_free(name);
    return s;
}

lvn_status lvni_weights_classes(const lvni_model *model, const char *path, int *n)
{
    char *name;
    lvni_st_file *file;
    LVN_TRY(open_file(path, &name, &file));
    load l = {.model = model, .file = file, .checkpoint = lvni_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL};
    char weight[300];
    head_of(model, l.head);
    snprintf(weight, sizeof weight, "%sweight", l.head);
    const lvni_st_tensor *e = find(&l, choose_prefix(&l), weight);
    lvn_status s = LVN_OK;
    if (e == NULL || e->ndim != 2 || e->shape[0] < 1 || e->shape[0] > 1000000) {
        s = lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__, "%s has no %s (classes, features): it holds another network than model=%s", name,
                          weight, model->root->cls->name);
    } else {
        *n = (int)e->shape[0];
    }
    lvni_st_close(file);
    lvni_free(name);
    return s;
}

void lvni_weights_report_free(lvni_weights_report *report)
{
    lvni_str_free(&report->head);
    lvni_str_free(&report->unused);
}
