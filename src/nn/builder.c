/* The builder: modules, parameters and buffers are collected by path (nn.h); memory is laid out
 * later (model.c). */
#include "nn/builder_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/options_struct.h"

#include <stdio.h>
#include <string.h>

void *lvni_nn_builder_fail(lvn_builder *b, lvn_status code)
{
    if (b->status == LVN_OK) {
        if (lvn_last_error()->code == LVN_OK) { /* a user's build() has cleared it */
            lvn_error_set(code, __FILE__, __LINE__, "building a module failed: %s",
                          lvn_status_name(code));
        }
        b->status = code;
        b->error = *lvn_last_error();
    }
    return NULL;
}

lvn_status lvn_builder_status(const lvn_builder *b)
{
    return b->status == LVN_OK ? LVN_OK : lvn_error_adopt(&b->error);
}

void lvn_builder_couple(lvn_builder *b)
{
    b->model->coupled = true;
}

const void *lvn_builder_arguments(const lvn_builder *b)
{
    return b->arguments;
}

void lvni_nn_builder_set_layout(lvn_builder *b, lvni_nn_layout layout, const int64_t *image)
{
    if (b->status == LVN_OK) {
        lvni_nn_parameter *p = &b->model->parameters[b->model->n_parameters - 1];
        p->layout = layout;
        if (image != NULL) {
            memcpy(p->image, image, sizeof p->image);
        }
    }
}

/* "path.name", or "name" below the root */
static char *join(const char *path, const char *name)
{
    const size_t a = strlen(path), n = a + strlen(name) + 2;
    char *s = lvni_core_alloc(LVNI_TAG_MODEL, n);
    if (s != NULL) {
        snprintf(s, n, "%s%s%s", path, a > 0 ? "." : "", name);
    }
    return s;
}

/* Only the root may do without a name. */
static bool good_name(const char *name, const char *what, const char *path)
{
    if (name != NULL && name[0] != '\0') {
        return true;
    }
    lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "a %s of %s%s needs a name", what,
                  path[0] != '\0' ? "module " : "the model", path);
    return false;
}

/* Room for one element more in an array that doubles. */
static bool grow(void **array, int n, size_t size)
{
    if (n > 0 && (n & (n - 1)) != 0) {
        return true; /* powers of two are the only sizes at which the array is full */
    }
    void *more = lvni_core_realloc(LVNI_TAG_MODEL, *array, (size_t)(n == 0 ? 1 : 2 * n) * size);
    if (more == NULL) {
        return false;
    }
    *array = more;
    return true;
}

static const char *name_of(const lvn_module_class *cls)
{
    return cls->name != NULL ? cls->name : "without a name";
}

/* `size` is the user's to set, and what build() writes behind it would be other memory. */
static bool good_class(const lvn_module_class *cls, const char *path)
{
    if (cls == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "a child of %s%s has no class (NULL)",
                      path[0] != '\0' ? "module " : "the model", path);
        return false;
    }
    if (cls->size < sizeof(lvn_module)) {
        lvn_error_set(
            LVN_ERR_INVALID, __FILE__, __LINE__,
            "the module class %s has size %zu, less than the %zu of a module: give sizeof "
            "of the struct that begins with an lvn_module",
            name_of(cls), cls->size, sizeof(lvn_module));
        return false;
    }
    return true;
}

lvn_module *lvni_nn_builder_new_module(lvn_builder *b, const lvn_module_class *cls,
                                       const char *name)
{
    lvni_nn_model *m = b->model;
    if (b->status != LVN_OK) {
        return NULL;
    }
    if (!good_class(cls, b->path)) {
        return lvni_nn_builder_fail(b, LVN_ERR_INVALID);
    }
    if (m->n_modules > 0 && !good_name(name, "child", b->path)) {
        return lvni_nn_builder_fail(b, LVN_ERR_INVALID);
    }
    void *list = m->modules;
    lvn_module *module = lvni_core_calloc(LVNI_TAG_MODEL, 1, cls->size);
    char *path = join(b->path, name);
    if (module == NULL || path == NULL || !grow(&list, m->n_modules, sizeof *m->modules)) {
        lvni_core_free(module);
        lvni_core_free(path);
        return lvni_nn_builder_fail(b, LVN_ERR_MEMORY);
    }
    m->modules = list;
    m->modules[m->n_modules++] = module;
    module->cls = cls;
    module->path = path;
    return module;
}

bool lvni_nn_builder_options(lvn_builder *b, const char *call, void *own, size_t bytes,
                             const void *given)
{
    const lvn_status s = lvni_core_options_copy(call, own, bytes, given);
    return s == LVN_OK || lvni_nn_builder_fail(b, s) != NULL;
}

lvn_module *lvni_nn_builder_build(lvn_builder *b, lvn_module *module)
{
    if (module == NULL) {
        return NULL;
    }
    const char *outside = b->path;
    const lvn_module *around = b->module;
    b->path = module->path;
    b->module = module;
    const uint64_t before = lvn_last_error()->serial;
    const lvn_status s = module->cls->build == NULL ? LVN_OK : module->cls->build(module, b);
    b->path = outside;
    b->module = around;
    if (b->status == LVN_OK) {
        (void)lvni_core_error_of_callback(s, before, "build() of the module class %s",
                                          name_of(module->cls));
    }
    return s == LVN_OK ? module : lvni_nn_builder_fail(b, s);
}

lvn_module *lvn_builder_child(lvn_builder *b, const lvn_module_class *cls, const char *name)
{
    return lvni_nn_builder_build(b, lvni_nn_builder_new_module(b, cls, name));
}

/* Name, and a tensor of the right shape whose memory comes later. */
static lvn_tensor *new_tensor(lvn_builder *b, const char *name, int ndim, const int64_t *shape,
                              char **full)
{
    static float nowhere; /* model.c points the tensor at its flat memory */
    if (b->status != LVN_OK) {
        return NULL;
    }
    if (!good_name(name, "parameter or buffer", b->path)) {
        return lvni_nn_builder_fail(b, LVN_ERR_INVALID);
    }
    *full = join(b->path, name);
    if (*full == NULL) {
        return lvni_nn_builder_fail(b, LVN_ERR_MEMORY);
    }
    if (strlen(*full) > LVNI_NN_NAME) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "the name of a parameter or buffer has %zu characters, and checkpoints have "
                      "room for %d: %s",
                      strlen(*full), LVNI_NN_NAME, *full);
        lvni_core_free(*full);
        return lvni_nn_builder_fail(b, LVN_ERR_INVALID);
    }
    if (lvni_nn_model_has(b->model, *full)) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "the model has two parameters or buffers named %s", *full);
        lvni_core_free(*full);
        return lvni_nn_builder_fail(b, LVN_ERR_INVALID);
    }
    lvn_tensor *t = lvn_tensor_wrap(&nowhere, LVN_F32, ndim, shape);
    if (t == NULL) {
        lvni_core_free(*full);
        return lvni_nn_builder_fail(b, lvn_last_error()->code);
    }
    return t;
}

static bool has_block(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_blocks; i++) {
        if (strcmp(m->blocks[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* `name` is the block's from here on; NULL: there was no memory for it. */
static lvn_status begin_block(lvn_builder *b, char *name)
{
    lvni_nn_model *m = b->model;
    void *list = m->blocks;
    if (name == NULL || !grow(&list, m->n_blocks, sizeof *m->blocks)) {
        lvni_core_free(name);
        lvni_nn_builder_fail(b, LVN_ERR_MEMORY);
        return b->status;
    }
    m->blocks = list;
    if (has_block(m, name)) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "the model has two blocks named %s: give each a name of its own", name);
        lvni_core_free(name);
        lvni_nn_builder_fail(b, LVN_ERR_INVALID);
        return b->status;
    }
    m->blocks[m->n_blocks++] = (lvni_nn_block){.name = name, .first = m->n_parameters};
    return LVN_OK;
}

lvn_status lvn_builder_block(lvn_builder *b, const char *name)
{
    if (b->status == LVN_OK && !good_name(name, "block", b->path)) {
        lvni_nn_builder_fail(b, LVN_ERR_INVALID);
    }
    return b->status == LVN_OK ? begin_block(b, join(b->path, name)) : b->status;
}

bool lvni_nn_builder_good_init(lvn_builder *b, const char *name, lvn_init init)
{
    const lvn_status s = lvni_core_options_enum(name, "init", (int)init, LVN_INIT_CONSTANT);
    return s == LVN_OK || lvni_nn_builder_fail(b, s) != NULL;
}

lvn_tensor *lvn_builder_parameter(lvn_builder *b, const char *name, int ndim, const int64_t *shape,
                                  lvn_init init, double bound)
{
    lvni_nn_model *m = b->model;
    char *full;
    const bool good = lvni_nn_builder_good_init(b, name, init) &&
                      (m->n_blocks > 0 || begin_block(b, join("", "")) == LVN_OK);
    lvn_tensor *t = good ? new_tensor(b, name, ndim, shape, &full) : NULL;
    void *list = m->parameters;
    if (t == NULL || !grow(&list, m->n_parameters, sizeof *m->parameters)) {
        if (t != NULL) {
            lvni_core_free(full);
            lvn_release(t);
        }
        return lvni_nn_builder_fail(b, LVN_ERR_MEMORY);
    }
    m->parameters = list;
    t->requires_grad = true;
    t->param = m->n_parameters;
    m->parameters[m->n_parameters++] = (lvni_nn_parameter){
        .name = full, .tensor = t, .numel = lvn_numel(t), .init = init, .bound = bound};
    return t;
}

lvn_status lvn_builder_set_init(lvn_builder *b, const char *name, lvn_init init, double bound)
{
    if (b->status != LVN_OK || !lvni_nn_builder_good_init(b, name, init)) {
        return b->status;
    }
    char *full = join(b->path, name);
    if (full == NULL) {
        lvni_nn_builder_fail(b, LVN_ERR_MEMORY);
        return LVN_ERR_MEMORY;
    }
    lvni_nn_parameter *p = NULL;
    for (int i = 0; i < b->model->n_parameters && p == NULL; i++) {
        p = strcmp(b->model->parameters[i].name, full) == 0 ? &b->model->parameters[i] : NULL;
    }
    if (p == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "there is no parameter %s to give other initial values", full);
        lvni_nn_builder_fail(b, LVN_ERR_INVALID);
    } else {
        p->init = init;
        p->bound = bound;
    }
    lvni_core_free(full);
    return b->status;
}

lvn_buffer *lvni_nn_builder_add_buffer(lvn_builder *b)
{
    lvni_nn_model *m = b->model;
    void *list = m->buffers;
    lvn_buffer *buffer = LVNI_NEW(LVNI_TAG_MODEL, lvn_buffer);
    if (buffer == NULL || !grow(&list, m->n_buffers, sizeof *m->buffers)) {
        lvni_core_free(buffer);
        return (lvn_buffer *)lvni_nn_builder_fail(b, LVN_ERR_MEMORY);
    }
    m->buffers = list;
    *buffer = (lvn_buffer){.model = m, .index = m->n_buffers, .phase = -1};
    m->buffers[m->n_buffers++] = buffer;
    return buffer;
}

lvn_buffer *lvni_nn_builder_new_buffer(lvn_builder *b, const char *name, int ndim,
                                       const int64_t *shape, lvni_nn_rule rule)
{
    char *full;
    lvn_tensor *t = new_tensor(b, name, ndim, shape, &full);
    lvn_buffer *buffer = t == NULL ? NULL : lvni_nn_builder_add_buffer(b);
    if (buffer == NULL) {
        if (t != NULL) {
            lvni_core_free(full);
            lvn_release(t);
        }
        return NULL;
    }
    buffer->name = full;
    buffer->tensor = t;
    buffer->rule = rule;
    buffer->numel = lvn_numel(t);
    return buffer;
}
