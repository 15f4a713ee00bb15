/* Modules that follow another one (lvn_builder_follow): what were their parameters become buffers
 * without a gradient, each of which moves towards its leader after the optimizer's step. So they
 * are saved and exported by name as other buffers are, and no optimizer, gradient set or reduction
 * knows of them. And those that stay as they are (lvni_nn_builder_fix). */
#include "nn/builder_impl.h"

#include "kernels/flat.h"
#include "tensor/device.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 256 };

static bool is_below(const char *name, const char *path)
{
    const size_t n = strlen(path);
    return strncmp(name, path, n) == 0 && name[n] == '.';
}

/* ---- building ---- */

typedef struct pair {
    lvn_builder *b;
    const lvn_module *module, *leader;
    int rule; /* of the model's follow_rule */
} pair;

/* "student.conv.weight" for "teacher.conv.weight" */
static void find_name(const pair *p, const char *name, char out[NAME])
{
    snprintf(out, NAME, "%s%s%s", p->leader->path, p->leader->path[0] != '\0' ? "." : "",
             name + strlen(p->module->path) + 1);
}

static const lvn_tensor *find_parameter(const pair *p, const char *name)
{
    const lvni_nn_model *m = p->b->model;
    char leader[NAME];
    find_name(p, name, leader);
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, leader) == 0) {
            return m->parameters[i].tensor;
        }
    }
    return NULL;
}

static const lvn_tensor *find_mean(const pair *p, const char *name)
{
    const lvni_nn_model *m = p->b->model;
    char leader[NAME];
    find_name(p, name, leader);
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        if (strcmp(b->name, leader) == 0 && b->rule == LVNI_RULE_MEAN) {
            return b->tensor;
        }
    }
    return NULL;
}

static lvn_status check(const pair *p, const char *name, const lvn_tensor *t,
                        const lvn_tensor *leader)
{
    char full[NAME], mine[96], theirs[96];
    find_name(p, name, full);
    if (leader == NULL || leader == t) {
        LVN_FAIL(LVN_ERR_INVALID, "%s cannot follow %s: no parameter or mean has this name", name,
                 full);
    }
    if (!lvni_tensor_same_shape(t, leader)) {
        LVN_FAIL(LVN_ERR_INVALID, "%s %s cannot follow %s %s: their shapes must be the same", name,
                 lvni_tensor_shape_string(t->ndim, t->shape, mine), full,
                 lvni_tensor_shape_string(leader->ndim, leader->shape, theirs));
    }
    return LVN_OK;
}

/* Parameter i is a buffer from here on; NULL: there was no memory for it. */
static lvn_buffer *turn_parameter(lvn_builder *b, int i, lvni_nn_rule rule)
{
    lvni_nn_model *m = b->model;
    const lvni_nn_parameter from = m->parameters[i];
    lvn_buffer *buffer = lvni_nn_builder_add_buffer(b);
    if (buffer == NULL) {
        return NULL;
    }
    buffer->name = from.name;
    buffer->tensor = from.tensor;
    buffer->numel = from.numel;
    buffer->rule = rule;
    buffer->file = from;
    from.tensor->requires_grad = false;
    from.tensor->param = -1;
    m->n_parameters--;
    memmove(m->parameters + i, m->parameters + i + 1,
            (size_t)(m->n_parameters - i) * sizeof *m->parameters);
    for (int k = i; k < m->n_parameters; k++) {
        m->parameters[k].tensor->param = k;
    }
    for (int k = 0; k < m->n_blocks; k++) {
        m->blocks[k].first -= m->blocks[k].first > i ? 1 : 0;
    }
    return buffer;
}

static lvn_status let_follow(const pair *p, int i)
{
    const lvni_nn_parameter *from = &p->b->model->parameters[i];
    const lvn_tensor *leader = find_parameter(p, from->name);
    LVN_TRY(check(p, from->name, from->tensor, leader));
    lvn_buffer *buffer = turn_parameter(p->b, i, LVNI_RULE_FOLLOW);
    if (buffer == NULL) {
        return lvn_last_error()->code;
    }
    buffer->follow = (lvni_nn_follower){.rule = p->rule, .leader = leader};
    return LVN_OK;
}

static lvn_status turn_parameters(const pair *p, int *n)
{
    const lvni_nn_model *m = p->b->model;
    for (int i = 0; i < m->n_parameters;) {
        if (is_below(m->parameters[i].name, p->module->path)) {
            LVN_TRY(let_follow(p, i));
            ++*n;
        } else {
            i++;
        }
    }
    return LVN_OK;
}

static lvn_status turn_means(const pair *p)
{
    const lvni_nn_model *m = p->b->model;
    for (int i = 0; i < m->n_buffers; i++) {
        lvn_buffer *b = m->buffers[i];
        if (b->rule == LVNI_RULE_MEAN && is_below(b->name, p->module->path)) {
            const lvn_tensor *leader = find_mean(p, b->name);
            LVN_TRY(check(p, b->name, b->tensor, leader));
            b->rule = LVNI_RULE_FOLLOW;
            b->follow = (lvni_nn_follower){.rule = p->rule, .leader = leader};
        }
    }
    return LVN_OK;
}

static lvn_status add_rule(lvn_builder *b, const lvn_follow_options *o)
{
    lvni_nn_model *m = b->model;
    const double momentum = o->momentum > 0.0 ? o->momentum : 0.996,
                 end = o->end > 0.0 ? o->end : momentum;
    if (!(o->momentum >= 0.0 && momentum <= 1.0 && o->end >= 0.0 && end <= 1.0)) {
        LVN_FAIL(
            LVN_ERR_INVALID,
            "lvn_builder_follow: a momentum from %g to %g; both must be above 0, and at most 1",
            o->momentum, o->end);
    }
    if (m->n_follow_rules == LVNI_FOLLOW_RULES) {
        LVN_FAIL(LVN_ERR_INVALID, "more than %d modules of a model follow another",
                 LVNI_FOLLOW_RULES);
    }
    m->follow_rule[m->n_follow_rules++] = (lvni_nn_follow_rule){momentum, end};
    return LVN_OK;
}

static lvn_status follow(const pair *p, const lvn_follow_options *o)
{
    const lvni_nn_model *m = p->b->model;
    int n = 0;
    if (p->module->path[0] == '\0' || is_below(p->leader->path, p->module->path) ||
        strcmp(p->leader->path, p->module->path) == 0) {
        LVN_FAIL(LVN_ERR_INVALID, "the module %s cannot follow %s, which is a part of it",
                 p->module->path[0] != '\0' ? p->module->path : "(root)", p->leader->path);
    }
    LVN_TRY(add_rule(p->b, o));
    LVN_TRY(turn_parameters(p, &n));
    LVN_TRY(o->own_statistics ? LVN_OK : turn_means(p));
    if (n == 0) {
        LVN_FAIL(LVN_ERR_INVALID, "the module %s has no parameters to follow %s with",
                 p->module->path, p->leader->path);
    }
    for (int i = 0; i < m->n_modules; i++) {
        lvn_module *part = m->modules[i];
        if (part == p->module || is_below(part->path, p->module->path)) {
            lvni_nn_module_set_follows(part);
        }
    }
    return LVN_OK;
}

lvn_status lvn_builder_follow_with(lvn_builder *b, lvn_module *module, const lvn_module *leader,
                                   const lvn_follow_options *options)
{
    lvn_follow_options o;
    if (b->status != LVN_OK ||
        !lvni_nn_builder_options(b, "builder_follow", &o, sizeof o, options)) {
        return b->status;
    }
    lvn_status s = module != NULL && leader != NULL
                       ? follow(&(pair){.b = b,
                                        .module = module,
                                        .leader = leader,
                                        .rule = b->model->n_follow_rules},
                                &o)
                       : lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                                       "lvn_builder_follow was given NULL as a module");
    if (s != LVN_OK) {
        lvni_nn_builder_fail(b, s);
    }
    return b->status;
}

static void fix(lvn_builder *b, int i)
{
    const lvni_nn_parameter from = b->model->parameters[i];
    lvn_buffer *buffer = turn_parameter(b, i, LVNI_RULE_FIXED);
    if (buffer != NULL) {
        buffer->init = from.init;
        buffer->bound = from.bound;
    }
}

lvn_status lvni_nn_builder_fix(lvn_builder *b, const lvn_module *module)
{
    const lvni_nn_model *m = b->model;
    for (int i = 0; b->status == LVN_OK && i < m->n_parameters;) {
        if (is_below(m->parameters[i].name, module->path)) {
            fix(b, i);
        } else {
            i++;
        }
    }
    return lvn_builder_status(b);
}

lvn_status lvni_nn_builder_fix_parameter(lvn_builder *b, const char *name)
{
    char full[NAME];
    snprintf(full, NAME, "%s%s%s", b->path, b->path[0] != '\0' ? "." : "", name);
    for (int i = 0; b->status == LVN_OK && i < b->model->n_parameters; i++) {
        if (strcmp(b->model->parameters[i].name, full) == 0) {
            fix(b, i);
            break;
        }
    }
    return lvn_builder_status(b);
}

/* ---- in a model ---- */

void lvni_nn_model_find_leaders(lvni_nn_model *m)
{
    for (int i = 0; i < m->n_buffers; i++) {
        lvn_buffer *b = m->buffers[i];
        if (b->rule != LVNI_RULE_FOLLOW && b->rule != LVNI_RULE_FIXED) {
            continue;
        }
        b->tensor->param = m->n_parameters + i; /* a weight, with reordered copies (backends) */
        if (b->rule == LVNI_RULE_FIXED) {
            continue;
        }
        const lvn_tensor *leader = b->follow.leader;
        if (leader->param >= 0 && leader->param < m->n_parameters) {
            b->follow.offset = m->offset[leader->param];
            b->follow.name = m->parameters[leader->param].name;
        }
        for (int k = 0; k < m->n_buffers && leader->param < 0; k++) {
            if (m->buffers[k]->tensor == leader) {
                b->follow.offset = m->buffers[k]->value_offset;
                b->follow.name = m->buffers[k]->name;
            }
        }
    }
}

lvn_status lvni_nn_model_copy_leader(const lvn_buffer *b, float *values)
{
    return lvni_tensor_mem_copy(values + b->value_offset, values + b->follow.offset,
                                (size_t)b->numel * sizeof *values);
}

/* Neighbours that lie behind each other as their leaders do: one call of the kernel. Zeros between
 * them stay zeros. */
static int run_end(const lvni_nn_model *m, int first)
{
    const lvn_buffer *a = m->buffers[first];
    int end = first + 1;
    for (; end < m->n_buffers; end++) {
        const lvn_buffer *b = m->buffers[end];
        if (b->rule != LVNI_RULE_FOLLOW || b->phase != a->phase ||
            b->follow.rule != a->follow.rule ||
            b->value_offset - a->value_offset != b->follow.offset - a->follow.offset) {
            break;
        }
    }
    return end;
}

void lvni_nn_model_follow(lvni_nn_model *m, int phase, const lvn_step_average *given,
                          const lvn_step_average *on_device)
{
    for (int i = 0, end; i < m->n_buffers; i = end) {
        const lvn_buffer *b = m->buffers[i];
        end = i + 1;
        if (b->rule != LVNI_RULE_FOLLOW || (b->phase >= 0 && b->phase != phase)) {
            continue;
        }
        end = run_end(m, i);
        const lvn_buffer *last = m->buffers[end - 1];
        const int rule = b->follow.rule;
        lvni_kernels_flat_lerp(m->weights + b->value_offset, m->weights + b->follow.offset,
                               (float)given[rule].factor,
                               last->value_offset + last->numel - b->value_offset,
                               on_device != NULL ? &on_device[rule] : NULL);
        for (int k = i; k < end; k++) {
            m->buffers[k]->tensor->version++;
        }
    }
}
