/* From a class to a model: build, lay parameters and buffers out, initialise; lvn_forward; and how
 * parameters lie in files written for others. */
#include "nn/builder_impl.h"

#include "autograd/placing.h"
#include "autograd/recompute.h"
#include "core/error.h"
#include "kernels/flat.h"
#include "kernels/random.h"
#include "tensor/device.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 16 }; /* elements: 64 bytes */

static int64_t round_up(int64_t n, int64_t border)
{
    return (n + border - 1) / border * border;
}

static void point_at(lvn_tensor *t, float *memory)
{
    t->data = memory;
    t->storage->data = memory;
}

void lvni_nn_model_show(lvni_nn_model *m, float *values)
{
    float *at = values == NULL ? m->weights : values;
    for (int i = 0; i < m->n_parameters; i++) {
        point_at(m->parameters[i].tensor, at + m->offset[i]);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        point_at(m->buffers[i]->tensor, at + m->buffers[i]->value_offset);
    }
    lvni_nn_model_touch(m);
}

/* What is added up or stepped over blocks of the flat buffer must not depend on which blocks of the
 * network are beside each other in memory: each begins on a border. */
static void place_parameters(lvni_nn_model *m)
{
    int64_t at = 0;
    for (int k = 0, i = 0; k < m->n_blocks; k++) {
        const int end = k + 1 < m->n_blocks ? m->blocks[k + 1].first : m->n_parameters;
        m->blocks[k].begin = at = round_up(at, LVNI_FLAT_BLOCK);
        for (; i < end; i++) {
            m->offset[i] = at;
            at += round_up(m->parameters[i].numel, ALIGN);
        }
    }
    m->n_weights = m->offset[m->n_parameters] = at;
    for (int k = 0; k < m->n_blocks; k++) {
        m->blocks[k].end = k + 1 < m->n_blocks ? m->blocks[k + 1].begin : at;
    }
}

/* Means first: of the others there is no average. */
static void place_buffers(lvni_nn_model *m)
{
    m->n_values = m->n_weights;
    for (int others = 0; others < 2; others++) {
        for (int i = 0; i < m->n_buffers; i++) {
            lvn_buffer *b = m->buffers[i];
            if ((b->rule != LVNI_RULE_MEAN) == (others == 1)) {
                b->value_offset = m->n_values;
                m->n_values += round_up(b->numel, ALIGN);
            }
        }
        m->n_averaged = others == 0 ? m->n_values : m->n_averaged;
    }
}

void lvni_nn_model_lay_records(lvni_nn_model *m, int64_t micro_batches, int64_t samples)
{
    m->n_records = 0;
    for (int i = 0; i < m->n_buffers; i++) {
        lvn_buffer *b = m->buffers[i];
        b->queue.slots = micro_batches;
        b->queue.slot_rows = samples * b->queue.per_sample;
        b->offset = m->n_records;
        m->n_records += round_up(lvni_nn_buffer_record_length(b), ALIGN);
    }
}

static lvn_status lay_out(lvni_nn_model *m)
{
    m->offset = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)m->n_parameters + 1, sizeof *m->offset);
    if (m->offset == NULL) {
        return LVN_ERR_MEMORY;
    }
    place_parameters(m);
    m->trained_end = m->n_weights;
    place_buffers(m);
    lvni_nn_model_find_leaders(m);
    lvni_nn_model_lay_records(m, 1, 0);
    m->weights = lvni_tensor_mem_calloc(LVNI_TAG_MODEL, (size_t)m->n_values, sizeof *m->weights);
    if (m->weights == NULL) {
        return lvn_last_error()->code;
    }
    lvni_nn_model_show(m, NULL);
    return LVN_OK;
}

/* Values are a function of (seed, name, element) alone. */
static void fill(uint64_t seed, const char *name, lvn_init init, double bound, float *w, int64_t n)
{
    char purpose[256];
    snprintf(purpose, sizeof purpose, "init/%s", name);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose(purpose))};
    if (init == LVN_INIT_NORMAL) {
        lvni_kernels_random_normal(w, n, bound, &rng);
        return;
    }
    if (init == LVN_INIT_UNIFORM) {
        lvni_kernels_random_uniform(w, n, &rng);
    }
    for (int64_t k = 0; k < n; k++) {
        const double u = init == LVN_INIT_UNIFORM    ? (double)w[k] * 2.0 - 1.0
                         : init == LVN_INIT_CONSTANT ? 1.0
                                                     : 0.0;
        w[k] = init == LVN_INIT_ONES ? 1.0f : (float)(u * bound);
    }
}

static void fill_parameters(const lvni_nn_model *m, uint64_t seed, float *values)
{
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        fill(seed, p->name, p->init, p->bound, values + m->offset[i], p->numel);
    }
}

static void fill_buffers(const lvni_nn_model *m, const uint64_t *seed, float *values)
{
    for (int i = 0; i < m->n_buffers; i++) {
        lvn_buffer *b = m->buffers[i];
        float *v = values + b->value_offset;
        for (int64_t k = 0; k < b->numel; k++) {
            v[k] = b->constant != NULL ? b->constant[k] : (float)b->fill;
        }
        lvni_core_free(b->constant);
        b->constant = NULL;
        if (seed != NULL && b->init != LVN_INIT_ZEROS) {
            fill(*seed, b->name, b->init, b->bound, v, b->numel);
        }
    }
}

/* Buffers, and with a seed parameters; without they stay zeros. */
static lvn_status initialise(const lvni_nn_model *m, const uint64_t *seed)
{
    const bool here = lvni_tensor_device_of(m->weights) == NULL;
    float *values =
        here ? m->weights : lvni_core_calloc(LVNI_TAG_MODEL, (size_t)m->n_values, sizeof *values);
    if (values == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (seed != NULL) {
        fill_parameters(m, *seed, values);
    }
    fill_buffers(m, seed, values);
    for (int i = 0; i < m->n_buffers; i++) {
        if (m->buffers[i]->rule == LVNI_RULE_FOLLOW) {
            LVN_TRY(lvni_nn_model_copy_leader(m->buffers[i], values));
        }
    }
    if (here) {
        return LVN_OK;
    }
    const lvn_status s =
        lvni_tensor_mem_copy(m->weights, values, (size_t)m->n_values * sizeof *values);
    lvni_core_free(values);
    return s;
}

static lvn_status build(const lvn_module_class *cls, const void *arguments, const uint64_t *seed,
                        bool sync, lvni_nn_model **out)
{
    *out = NULL;
    lvni_nn_model *m = LVNI_NEW(LVNI_TAG_MODEL, lvni_nn_model);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_builder b = {.model = m, .path = "", .arguments = arguments, .sync_batch_norm = sync};
    m->root = lvn_builder_child(&b, cls, "");
    lvn_status s;
    LVNI_TRY_DONE(s, lvn_builder_status(&b));
    LVNI_TRY_DONE(s, lay_out(m));
    LVNI_TRY_DONE(s, initialise(m, seed));
    *out = m;
    return LVN_OK;
done:
    lvn_error_frame("building model %s", cls->name);
    lvni_nn_model_destroy(m);
    return s;
}

lvn_status lvni_nn_model_build_empty(const lvn_module_class *cls, const void *arguments,
                                     lvni_nn_model **out)
{
    return build(cls, arguments, NULL, false, out);
}

lvn_status lvni_nn_model_build(const lvn_module_class *cls, const void *arguments, uint64_t seed,
                               lvni_nn_model **out)
{
    return build(cls, arguments, &seed, false, out);
}

lvn_status lvni_nn_model_build_sync(const lvn_module_class *cls, const void *arguments,
                                    uint64_t seed, lvni_nn_model **out)
{
    return build(cls, arguments, &seed, true, out);
}

void lvni_nn_model_destroy(lvni_nn_model *m)
{
    if (m == NULL) {
        return;
    }
    for (int i = m->n_modules - 1; i >= 0; i--) {
        lvn_module *module = m->modules[i];
        if (module->cls->destroy != NULL) {
            module->cls->destroy(module);
        }
        char *path;
        memcpy(&path, &module->path, sizeof path);
        lvni_core_free(path);
        lvni_core_free(module);
    }
    for (int i = 0; i < m->n_parameters; i++) {
        lvni_cpu_weights_forget(m->parameters[i].tensor->id, m->parameters[i].tensor->id);
        lvn_release(m->parameters[i].tensor);
        lvni_core_free(m->parameters[i].name);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        lvni_cpu_weights_forget(m->buffers[i]->tensor->id, m->buffers[i]->tensor->id);
        lvn_release(m->buffers[i]->tensor);
        lvni_core_free(m->buffers[i]->constant);
        lvni_core_free(m->buffers[i]->name);
        lvni_core_free(m->buffers[i]);
    }
    for (int i = 0; i < m->n_blocks; i++) {
        lvni_core_free(m->blocks[i].name);
    }
    lvni_core_free(m->blocks);
    lvni_core_free(m->modules);
    lvni_core_free(m->parameters);
    lvni_core_free(m->buffers);
    lvni_tensor_mem_free(m->weights, (size_t)m->n_values, sizeof *m->weights);
    lvni_core_free(m->offset);
    lvni_core_free(m);
}

int64_t lvni_nn_model_count(const lvni_nn_model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_parameters; i++) {
        n += m->parameters[i].numel;
    }
    return n;
}

void lvni_nn_model_touch(lvni_nn_model *m)
{
    for (int i = 0; i < m->n_parameters; i++) {
        m->parameters[i].tensor->version++;
    }
    for (int i = 0; i < m->n_buffers; i++) {
        m->buffers[i]->tensor->version++;
    }
}

static bool can_forward(const lvn_module *module)
{
    if (module == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_forward was given NULL as the module");
    } else if (module->cls->forward == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_forward: the class %s has no forward", module->cls->name);
    } else {
        return true;
    }
    return false;
}

typedef lvn_tensor *run_function(const lvn_module *module, lvn_tensor *x);

static lvn_tensor *run_call(const lvni_autograd_call *c)
{
    return c->function != NULL ? c->function(c->module, c->x)
                               : c->module->cls->forward_residual(c->module, c->x, c->residual);
}

/* run: NULL for forward_residual, which the class has. is_unit: it is recomputed. */
static lvn_tensor *run_module(const lvn_module *module, lvn_tensor *x, run_function *run,
                              lvn_tensor *residual, bool is_unit)
{
    const lvni_autograd_call call = {run_call, module, module->path, module->cls->name,
                                     run,      x,      residual};
    /* outside of all scopes closing one would drop the tape */
    const bool inner = lvni_autograd_scope_depth() > 0;
    if (x == NULL || (inner && lvn_scope_open() != LVN_OK)) {
        return lvni_autograd_op_fail("forward");
    }
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const char *outside = ctx->module_path;
    ctx->module_path = module->path;
    const bool quiet = lvni_nn_module_follows(module),
               recording = quiet && lvn_set_grad_enabled(false);
    const uint64_t before = lvn_last_error()->serial;
    const int entered = lvni_autograd_stages_enter(module->path, x);
    lvni_autograd_first_run first = {.on = false};
    if (is_unit) {
        lvni_autograd_recompute_begin(&first, module->path);
    }
    lvn_tensor *y = run_call(&call);
    if (y == NULL && !lvni_autograd_scope_failed()) {
        lvni_core_error_of_null(before, "%s() of the module class %s%s%s",
                                run != NULL ? "forward" : "forward_residual", module->cls->name,
                                module->path[0] == '\0' ? "" : ", at ", module->path);
        (void)lvni_autograd_op_fail(NULL);
    }
    lvni_autograd_stages_leave(entered, module->path);
    ctx->module_path = outside;
    if (quiet) {
        (void)lvn_set_grad_enabled(recording);
    }
    if (!inner) {
        return y;
    }
    y = y == x || y == residual ? lvn_retain(y) : lvn_keep(y);
    lvn_scope_close(); /* a failure has marked the scope outside */
    if (!lvni_autograd_recompute_end(&first, &call, y)) {
        lvn_release(y);
        return NULL;
    }
    return y == NULL ? NULL : lvni_autograd_adopt(y);
}

static lvn_tensor *forward(const lvn_module *module, lvn_tensor *x, run_function *run,
                           lvn_tensor *residual)
{
    return run_module(module, x, run, residual, lvni_nn_module_is_unit(module));
}

lvn_tensor *lvn_forward(const lvn_module *module, lvn_tensor *x)
{
    return can_forward(module) ? forward(module, x, module->cls->forward, NULL)
                               : lvni_autograd_op_fail("forward");
}

lvn_tensor *lvni_nn_module_run(const lvn_module *module, lvn_tensor *x, run_function *run)
{
    return run_module(module, x, run, NULL,
                      run == module->cls->forward && lvni_nn_module_is_unit(module));
}

lvn_tensor *lvni_nn_module_run_part(const lvn_module *module, const lvn_module *child,
                                    lvn_tensor *x, run_function *run)
{
    return run_module(module, x, run, NULL, lvni_nn_module_is_unit(child));
}

lvn_tensor *lvn_forward_residual(const lvn_module *module, lvn_tensor *x, lvn_tensor *residual)
{
    if (!can_forward(module) || residual == NULL) {
        return lvni_autograd_op_fail("forward_residual");
    }
    if (module->cls->forward_residual == NULL) {
        return lvn_add(forward(module, x, module->cls->forward, NULL), residual);
    }
    return forward(module, x, NULL, residual);
}

bool lvn_is_training(void)
{
    return lvni_tensor_ctx_get()->at.training;
}

bool lvn_set_training(bool training)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const bool before = ctx->at.training;
    ctx->at.training = training && ctx->records != NULL;
    return before;
}

bool lvni_nn_model_has(const lvni_nn_model *model, const char *name)
{
    for (int i = 0; i < model->n_parameters; i++) {
        if (strcmp(model->parameters[i].name, name) == 0) {
            return true;
        }
    }
    for (int i = 0; i < model->n_buffers; i++) {
        if (strcmp(model->buffers[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- parameters in files: PyTorch keeps channels before rows and columns ---- */

/* (first, H, W, C) here, (first, C, H, W) there. */
static void view_of(const lvni_nn_parameter *p, int64_t v[4])
{
    if (p->layout == LVNI_LAYOUT_CONV) {
        const int64_t *shape = p->tensor->shape;
        const bool rows = p->tensor->ndim == 4;
        v[0] = shape[0];
        v[1] = rows ? shape[1] : 1;
        v[2] = rows ? shape[2] : shape[1];
        v[3] = rows ? shape[3] : shape[2];
    } else if (p->layout == LVNI_LAYOUT_TRANSPOSED) {
        v[0] = v[2] = 1; /* one image of O pixels with I channels */
        v[1] = p->tensor->shape[0];
        v[3] = p->tensor->shape[1];
    } else {
        v[0] = p->tensor->shape[0];
        memcpy(v + 1, p->image, 3 * sizeof *v);
    }
}

int lvni_nn_parameter_file_shape(const lvni_nn_parameter *p, int64_t shape[LVN_MAX_NDIM])
{
    const lvn_tensor *t = p->tensor;
    memcpy(shape, t->shape, (size_t)t->ndim * sizeof *shape);
    if (p->layout == LVNI_LAYOUT_CONV) {
        shape[1] = t->shape[t->ndim - 1];
        memcpy(shape + 2, t->shape + 1, (size_t)(t->ndim - 2) * sizeof *shape);
    }
    if (p->layout == LVNI_LAYOUT_TRANSPOSED) {
        shape[0] = t->shape[1];
        shape[1] = t->shape[0];
    }
    return t->ndim;
}

static void permute(const lvni_nn_parameter *p, const float *from, float *to, bool to_file)
{
    int64_t v[4];
    view_of(p, v);
    const int64_t hw = v[1] * v[2], c = v[3];
    for (int64_t o = 0; o < v[0]; o++, from += hw * c, to += hw * c) {
        for (int64_t i = 0; i < hw; i++) {
            for (int64_t k = 0; k < c; k++) {
                const int64_t here = i * c + k, there = k * hw + i;
                to[to_file ? there : here] = from[to_file ? here : there];
            }
        }
    }
}

void lvni_nn_parameter_to_file(const lvni_nn_parameter *p, const float *here, float *file)
{
    if (p->layout == LVNI_LAYOUT_PLAIN) {
        memcpy(file, here, (size_t)p->numel * sizeof *file);
    } else {
        permute(p, here, file, true);
    }
}

void lvni_nn_parameter_from_file(const lvni_nn_parameter *p, const float *file, float *here)
{
    if (p->layout == LVNI_LAYOUT_PLAIN) {
        memcpy(here, file, (size_t)p->numel * sizeof *here);
    } else {
        permute(p, file, here, false);
    }
}
