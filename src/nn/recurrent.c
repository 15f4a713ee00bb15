/* Recurrent cells with parameters; names, shapes and initial values are PyTorch's. */
#include "core/math.h"
#include "nn/builder_impl.h"

typedef struct cell {
    lvn_module base;
    int64_t in, hidden;
    int gates;
    lvn_nn_cell_options options;
    /* (gates hidden, in), (gates hidden, hidden), (gates hidden) or NULL */
    lvn_tensor *weight_ih, *weight_hh, *bias_ih, *bias_hh;
} cell;

static lvn_status cell_build(lvn_module *module, lvn_builder *b)
{
    cell *m = (cell *)module;
    LVN_ARG(m->in > 0 && m->hidden > 0, "%s: a cell of %lld features from %lld is not possible",
            module->path, (long long)m->hidden, (long long)m->in);
    const double bound = 1.0 / lvni_core_sqrt((double)m->hidden);
    const int64_t rows = m->gates * m->hidden;
    m->weight_ih = lvn_builder_parameter(b, "weight_ih", 2, (const int64_t[]){rows, m->in},
                                         LVN_INIT_UNIFORM, bound);
    m->weight_hh = lvn_builder_parameter(b, "weight_hh", 2, (const int64_t[]){rows, m->hidden},
                                         LVN_INIT_UNIFORM, bound);
    if (!m->options.no_bias) {
        m->bias_ih = lvn_builder_parameter(b, "bias_ih", 1, &rows, LVN_INIT_UNIFORM, bound);
        m->bias_hh = lvn_builder_parameter(b, "bias_hh", 1, &rows, LVN_INIT_UNIFORM, bound);
    }
    return lvn_builder_status(b);
}

static const lvn_module_class gru_class = {
    .name = "gru_cell", .size = sizeof(cell), .build = cell_build};
static const lvn_module_class lstm_class = {
    .name = "lstm_cell", .size = sizeof(cell), .build = cell_build};

static lvn_module *make(lvn_builder *b, const lvn_module_class *cls, const char *name, int gates,
                        const int64_t sizes[2], const char *call, const lvn_nn_cell_options *o)
{
    cell *m = (cell *)(void *)lvni_nn_builder_new_module(b, cls, name);
    if (m == NULL || !lvni_nn_builder_options(b, call, &m->options, sizeof m->options, o)) {
        return NULL;
    }
    m->in = sizes[0];
    m->hidden = sizes[1];
    m->gates = gates;
    return lvni_nn_builder_build(b, &m->base);
}

lvn_module *lvn_nn_gru_cell_with(lvn_builder *b, const char *name, int64_t in, int64_t hidden,
                                 const lvn_nn_cell_options *o)
{
    return make(b, &gru_class, name, 3, (const int64_t[]){in, hidden}, "nn_gru_cell", o);
}

lvn_module *lvn_nn_lstm_cell_with(lvn_builder *b, const char *name, int64_t in, int64_t hidden,
                                  const lvn_nn_cell_options *o)
{
    return make(b, &lstm_class, name, 4, (const int64_t[]){in, hidden}, "nn_lstm_cell", o);
}

/* The module's parameters, where it is of this class. */
static const cell *cell_of(const lvn_module *module, const lvn_module_class *cls)
{
    if (module != NULL && module->cls == cls) {
        return (const cell *)module;
    }
    lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                  "%s: the module is %s; it must be made by lvn_nn_%s", cls->name,
                  module == NULL ? "NULL" : module->cls->name, cls->name);
    lvni_autograd_op_fail(cls->name);
    return NULL;
}

lvn_tensor *lvn_nn_gru_cell_step(const lvn_module *module, lvn_tensor *x, lvn_tensor *h)
{
    const cell *m = cell_of(module, &gru_class);
    return m == NULL ? NULL
                     : lvn_gru_cell(x, h, m->weight_ih, m->weight_hh, m->bias_ih, m->bias_hh);
}

lvn_tensor *lvn_nn_lstm_cell_step(const lvn_module *module, lvn_tensor *x, lvn_tensor *h,
                                  lvn_tensor *c, lvn_tensor **c_next)
{
    const cell *m = cell_of(module, &lstm_class);
    *c_next = NULL;
    return m == NULL
               ? NULL
               : lvn_lstm_cell(x, h, c, m->weight_ih, m->weight_hh, m->bias_ih, m->bias_hh, c_next);
}
