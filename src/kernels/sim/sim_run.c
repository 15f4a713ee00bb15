/* Kernels of simulated accelerators: a call of a cpu (or ref) kernel becomes a command of a stream.
 * The command carries headers of its own with the addresses that the device may touch, so no caller
 * has to hold the tensors: memory that is released meanwhile goes only to commands that come
 * later. */
#include "core/hash.h"
#include "kernels/kernels_decl.h"
#include "kernels/sim/sim.h"

#include <levin/pins.h>
#include <string.h>

/* ---- ops ---- */

enum { MOST = LVN_KERNEL_INPUTS + LVN_KERNEL_OUTPUTS, ATTR_BYTES = 192 };

typedef struct call {
    lvn_kernel kernel;
    const lvn_op *op;
    bool given[MOST]; /* inputs, then outputs */
    lvn_tensor header[MOST];
    lvni_tensor_storage storage; /* of all of them: borrowed memory */
    bool other_team;             /* candidate 1 */
    bool has_attr;
    alignas(16) unsigned char attr[ATTR_BYTES];
} call;
_Static_assert(sizeof(call) <= LVNI_SIM_COMMAND_BYTES, "a command holds a kernel call");

static lvn_status run_call(void *payload)
{
    call *c = payload;
    lvn_kernel_args args = {.attr = c->has_attr ? c->attr : NULL, .op = c->op};
    for (int i = 0; i < MOST; i++) {
        c->header[i].storage = &c->storage;
        c->header[i].version += lvni_sim_replay() << 32; /* its weights are other ones */
        if (c->given[i] && i < LVN_KERNEL_INPUTS) {
            args.in[i] = &c->header[i];
        } else if (c->given[i]) {
            args.out[i - LVN_KERNEL_INPUTS] = &c->header[i];
        }
    }
    if (c->other_team) { /* of this command: the next one has its own */
        lvni_core_pins *pins = &lvni_tensor_ctx_get()->pins;
        pins->wgrad_threads = pins->wgrad_threads == 1 ? 2 : pins->wgrad_threads - 1;
    }
    return c->kernel(&args);
}

static void fill_header(lvn_tensor *header, const lvn_tensor *t)
{
    atomic_store_explicit(&header->refs, 1, memory_order_relaxed);
    header->dtype = t->dtype;
    header->ndim = t->ndim;
    memcpy(header->shape, t->shape, sizeof header->shape);
    header->param = t->param; /* with id and version: the key of reordered copies */
    header->id = t->id;
    header->version = t->version;
    header->data = lvni_sim_alias(t->data);
}

/* ---- candidates (LEVIN_SIM_QUICKEST) ---- */

/* Types and shapes. */
static uint64_t problem_of(const call *c)
{
    uint64_t h = lvni_core_hash_text(LVNI_CORE_HASH, c->op->name);
    for (int i = 0; i < MOST; i++) {
        const lvn_tensor *t = &c->header[i];
        h = lvni_core_hash(h, &c->given[i], sizeof c->given[i]);
        h = lvni_core_hash(h, &t->dtype, sizeof t->dtype);
        h = lvni_core_hash(h, t->shape, (size_t)t->ndim * sizeof *t->shape);
    }
    return h;
}

/* Looked up in each call: the lists are short here. */
static lvn_status choose(const lvni_sim_device *d, call *c)
{
    const lvn_autotune now = lvn_autotune_now();
    if (d->quickest < 0 || now.run == 0 ||
        (c->op->number != LVNI_OP_linear_grad_weight &&
         c->op->number != LVNI_OP_conv2d_grad_weight)) {
        return LVN_OK;
    }
    const uint64_t problem = problem_of(c);
    int choice = lvn_autotune_choice("product", problem);
    if (now.measures && choice == 0) {
        choice = d->quickest;
        LVN_TRY(lvn_autotune_record("product", problem, &choice));
    }
    c->other_team = choice == 1;
    return LVN_OK;
}

static lvn_status sim_kernel(const lvn_kernel_args *args)
{
    const lvn_op *op = args->op;
    call c;
    memset(&c, 0, sizeof c);
    int kind = LVN_DEVICE_CPU;
    atomic_store_explicit(&c.storage.refs, 1, memory_order_relaxed);
    c.storage.borrowed = true;
    for (int i = 0; i < MOST; i++) {
        const lvn_tensor *t =
            i < LVN_KERNEL_INPUTS ? args->in[i] : args->out[i - LVN_KERNEL_INPUTS];
        if (t != NULL && (i >= LVN_KERNEL_INPUTS || i < op->n_in)) {
            c.given[i] = true;
            fill_header(&c.header[i], t);
            kind = i < op->n_in && t->dtype == LVN_F64 ? LVN_DEVICE_REF : kind;
        }
    }
    LVN_ARG(op->attr_size <= ATTR_BYTES, "%s: attributes of %zu bytes are too large for a device",
            op->name, op->attr_size);
    c.op = op;
    c.has_attr = op->attr_size > 0;
    memcpy(c.attr, c.has_attr ? args->attr : "", op->attr_size);
    c.kernel = lvni_kernels_row(kind, (lvni_kernels_op)op->number)->run;
    const lvni_sim_stream *stream = args->stream;
    LVN_TRY(choose(stream->engine->device, &c));
    if (op->number == LVNI_OP_dropout) {
        lvn_philox *rng = &((lvn_dropout_attr *)(void *)c.attr)->rng;
        rng->a_there = lvni_sim_alias(rng->a_there);
    }
    return lvni_sim_submit(args->stream, op->name, run_call, &c, sizeof c);
}

/* ---- flat buffers ---- */

typedef enum flat_what {
    ADD,
    LERP,
    SUMSQ,
    SGD,
    TRUST,
    ADAMW,
    RMSPROP,
    LION,
    LAMB_MOMENTS,
    LAMB,
    ADAFACTOR,
    ROUND,
    RECORD,
    APPLY,
    APPEND,
    NUMBER,
    SEED,
    DECIDE,
    FINISH
} flat_what;

typedef struct flat_call {
    flat_what what;
    float *a, *m, *v, *u;
    const float *b, *d;
    double *partial, *of_w, *of_g;
    int64_t n;
    float s;
    const lvn_step_average *average;
    lvn_step_block *block;
    const void *value; /* of a number; the losses of a decision; the factor of a seed */
    const double *weight;
    void *to; /* of a seed */
    double number;
    union {
        lvn_flat_sgd sgd;
        lvn_flat_trust trust;
        lvn_flat_adamw adamw;
        lvn_flat_rmsprop rmsprop;
        lvn_flat_lion lion;
        lvn_flat_lamb lamb;
        lvn_flat_adafactor adafactor;
        lvn_dtype dtype;
        lvn_step_decision decision;
        lvn_flat_append append;
        lvn_flat_mean mean;
    } p;
} flat_call;

static lvn_status run_flat(void *payload)
{
    const flat_call *c = payload;
    switch (c->what) {
    case ADD: return lvni_cpu_flat_add(NULL, c->a, c->b, c->n);
    case LERP: return lvni_cpu_flat_lerp(NULL, c->a, c->b, c->s, c->n, c->average);
    case SUMSQ: return lvni_cpu_flat_block_sumsq(NULL, c->b, c->n, c->partial);
    case SGD: return lvni_cpu_flat_sgd(NULL, c->a, c->b, c->m, c->n, &c->p.sgd);
    case TRUST: return lvni_cpu_flat_trust(NULL, c->partial, c->of_w, c->of_g, c->n, &c->p.trust);
    case ADAMW: return lvni_cpu_flat_adamw(NULL, c->a, c->b, c->m, c->v, c->n, &c->p.adamw);
    case RMSPROP:
        return lvni_cpu_flat_rmsprop(NULL, c->a, c->b, c->v, c->m, c->u, c->n, &c->p.rmsprop);
    case LION: return lvni_cpu_flat_lion(NULL, c->a, c->b, c->m, c->n, &c->p.lion);
    case LAMB_MOMENTS:
        return lvni_cpu_flat_lamb_moments(NULL, c->d, c->b, c->m, c->v, c->n, c->partial,
                                          &c->p.lamb);
    case LAMB: return lvni_cpu_flat_lamb(NULL, c->a, c->b, c->d, c->n, &c->p.lamb);
    case ADAFACTOR:
        return lvni_cpu_flat_adafactor(NULL, c->a, c->b, c->m, c->v, c->n, &c->p.adafactor);
    case ROUND: return lvni_cpu_flat_round_bf16(NULL, c->a, c->n);
    case RECORD: return lvni_cpu_flat_record(NULL, c->a, c->b, c->n, c->s);
    case APPLY: return lvni_cpu_flat_apply_record(NULL, c->a, c->b, c->n, &c->p.mean);
    case APPEND: return lvni_cpu_flat_append(NULL, c->a, c->m, c->v, c->b, &c->p.append);
    case NUMBER: return lvni_cpu_flat_number(NULL, c->partial, c->value, c->p.dtype);
    case SEED: return lvni_cpu_flat_seed(NULL, c->to, c->p.dtype, c->number, c->weight, c->value);
    case DECIDE:
        return lvni_cpu_flat_decide(NULL, c->block, c->partial, c->n, c->value, &c->p.decision);
    case FINISH: return lvni_cpu_flat_finish(NULL, c->block);
    }
    return LVN_OK;
}

static lvn_status submit_flat(void *stream, flat_call c)
{
    c.a = lvni_sim_alias(c.a);
    c.b = lvni_sim_alias(c.b);
    c.m = lvni_sim_alias(c.m);
    c.v = lvni_sim_alias(c.v);
    c.u = lvni_sim_alias(c.u);
    c.d = lvni_sim_alias(c.d);
    c.partial = lvni_sim_alias(c.partial);
    c.of_w = lvni_sim_alias(c.of_w);
    c.of_g = lvni_sim_alias(c.of_g);
    c.average = lvni_sim_alias(c.average);
    c.block = lvni_sim_alias(c.block);
    c.value = lvni_sim_alias(c.value);
    c.to = lvni_sim_alias(c.to);
    c.weight = lvni_sim_alias(c.weight);
    c.p.lamb.trust = c.what == LAMB ? lvni_sim_alias(c.p.lamb.trust) : c.p.lamb.trust;
    c.p.adafactor.scratch =
        c.what == ADAFACTOR ? lvni_sim_alias(c.p.adafactor.scratch) : c.p.adafactor.scratch;
    c.p.sgd.trust = c.what == SGD ? lvni_sim_alias(c.p.sgd.trust) : c.p.sgd.trust;
    if (c.what == DECIDE) {
        c.p.decision.weights = lvni_sim_alias(c.p.decision.weights);
    }
    if (c.what == APPLY) {
        c.p.mean.moved = lvni_sim_alias(c.p.mean.moved);
    }
    const lvn_step_phase *none = NULL, **step = c.what == SGD       ? &c.p.sgd.step
                                                : c.what == TRUST   ? &c.p.trust.step
                                                : c.what == ADAMW   ? &c.p.adamw.step
                                                : c.what == RMSPROP ? &c.p.rmsprop.step
                                                : c.what == LION    ? &c.p.lion.step
                                                : c.what == LAMB || c.what == LAMB_MOMENTS
                                                    ? &c.p.lamb.step
                                                : c.what == ADAFACTOR ? &c.p.adafactor.step
                                                : c.what == APPEND    ? &c.p.append.step
                                                : c.what == APPLY     ? &c.p.mean.step
                                                                      : &none;
    *step = lvni_sim_alias(*step);
    return lvni_sim_submit(stream, "flat buffers", run_flat, &c, sizeof c);
}

static lvn_status flat_add(void *stream, float *a, const float *b, int64_t n)
{
    return submit_flat(stream, (flat_call){.what = ADD, .a = a, .b = b, .n = n});
}

static lvn_status flat_lerp(void *stream, float *a, const float *b, float t, int64_t n,
                            const lvn_step_average *step)
{
    return submit_flat(stream,
                       (flat_call){.what = LERP, .a = a, .b = b, .n = n, .s = t, .average = step});
}

static lvn_status flat_block_sumsq(void *stream, const float *g, int64_t n, double *partial)
{
    return submit_flat(stream, (flat_call){.what = SUMSQ, .b = g, .n = n, .partial = partial});
}

static lvn_status flat_sgd(void *stream, float *w, const float *g, float *momentum, int64_t n,
                           const lvn_flat_sgd *p)
{
    return submit_flat(
        stream, (flat_call){.what = SGD, .a = w, .b = g, .m = momentum, .n = n, .p = {.sgd = *p}});
}

static lvn_status flat_trust(void *stream, double *trust, double *of_w, double *of_g, int64_t n,
                             const lvn_flat_trust *p)
{
    return submit_flat(stream, (flat_call){.what = TRUST,
                                           .partial = trust,
                                           .of_w = of_w,
                                           .of_g = of_g,
                                           .n = n,
                                           .p = {.trust = *p}});
}

static lvn_status flat_adamw(void *stream, float *w, const float *g, float *m, float *v, int64_t n,
                             const lvn_flat_adamw *p)
{
    return submit_flat(
        stream,
        (flat_call){.what = ADAMW, .a = w, .b = g, .m = m, .v = v, .n = n, .p = {.adamw = *p}});
}

static lvn_status flat_rmsprop(void *stream, float *w, const float *g, float *v, float *mean,
                               float *momentum, int64_t n, const lvn_flat_rmsprop *p)
{
    return submit_flat(stream, (flat_call){.what = RMSPROP,
                                           .a = w,
                                           .b = g,
                                           .m = mean,
                                           .v = v,
                                           .u = momentum,
                                           .n = n,
                                           .p = {.rmsprop = *p}});
}

static lvn_status flat_lion(void *stream, float *w, const float *g, float *m, int64_t n,
                            const lvn_flat_lion *p)
{
    return submit_flat(
        stream, (flat_call){.what = LION, .a = w, .b = g, .m = m, .n = n, .p = {.lion = *p}});
}

static lvn_status flat_lamb_moments(void *stream, const float *w, const float *g, float *m,
                                    float *v, int64_t n, double *sums, const lvn_flat_lamb *p)
{
    return submit_flat(stream, (flat_call){.what = LAMB_MOMENTS,
                                           .d = w,
                                           .b = g,
                                           .m = m,
                                           .v = v,
                                           .n = n,
                                           .partial = sums,
                                           .p = {.lamb = *p}});
}

static lvn_status flat_lamb(void *stream, float *w, const float *m, const float *v, int64_t n,
                            const lvn_flat_lamb *p)
{
    return submit_flat(
        stream, (flat_call){.what = LAMB, .a = w, .b = m, .d = v, .n = n, .p = {.lamb = *p}});
}

static lvn_status flat_adafactor(void *stream, float *w, const float *g, float *row_var,
                                 float *col_var, int64_t n, const lvn_flat_adafactor *p)
{
    return submit_flat(stream, (flat_call){.what = ADAFACTOR,
                                           .a = w,
                                           .b = g,
                                           .m = row_var,
                                           .v = col_var,
                                           .n = n,
                                           .p = {.adafactor = *p}});
}

static lvn_status flat_round_bf16(void *stream, float *w, int64_t n)
{
    return submit_flat(stream, (flat_call){.what = ROUND, .a = w, .n = n});
}

static lvn_status flat_record(void *stream, float *record, const float *value, int64_t n,
                              float weight)
{
    return submit_flat(stream,
                       (flat_call){.what = RECORD, .a = record, .b = value, .n = n, .s = weight});
}

static lvn_status flat_apply_record(void *stream, float *buffer, const float *record, int64_t n,
                                    const lvn_flat_mean *p)
{
    return submit_flat(
        stream, (flat_call){.what = APPLY, .a = buffer, .b = record, .n = n, .p = {.mean = *p}});
}

static lvn_status flat_append(void *stream, float *queue, float *filled, float *next,
                              const float *record, const lvn_flat_append *p)
{
    return submit_flat(
        stream,
        (flat_call){
            .what = APPEND, .a = queue, .m = filled, .v = next, .b = record, .p = {.append = *p}});
}

static lvn_status flat_number(void *stream, double *slot, const void *value, lvn_dtype dtype)
{
    return submit_flat(
        stream,
        (flat_call){.what = NUMBER, .partial = slot, .value = value, .p = {.dtype = dtype}});
}

static lvn_status flat_seed(void *stream, void *value, lvn_dtype dtype, double number,
                            const double *weight, const double *factor)
{
    return submit_flat(stream, (flat_call){.what = SEED,
                                           .to = value,
                                           .value = factor,
                                           .weight = weight,
                                           .number = number,
                                           .p = {.dtype = dtype}});
}

static lvn_status flat_decide(void *stream, lvn_step_block *block, double *sums, int64_t n,
                              const double *losses, const lvn_step_decision *decision)
{
    return submit_flat(stream, (flat_call){.what = DECIDE,
                                           .block = block,
                                           .partial = sums,
                                           .n = n,
                                           .value = losses,
                                           .p = {.decision = *decision}});
}

static lvn_status flat_finish(void *stream, lvn_step_block *block)
{
    return submit_flat(stream, (flat_call){.what = FINISH, .block = block});
}

/* ---- the table ---- */

/* What the cpu's kernel takes, and f64 through ref's. */
static const lvn_backend_kernel rows[] = {
#define LVNI_OP(name, inputs, outputs, attr_type, op_flags, text)                                  \
    {#name, sim_kernel, LVNI_CPU_TYPES(op_flags) | 1u << LVN_F64,                                  \
     (unsigned)(op_flags) / LVNI_BESIDE, NULL},
#include "kernels/ops.def"
#undef LVNI_OP
};

const lvn_backend lvni_sim_backend = {
    .version = LVN_BACKEND_VERSION,
    .table_size = sizeof(lvn_backend),
    .name = "sim",
    .count = lvni_sim_count,
    .open = lvni_sim_open,
    .close = lvni_sim_close,
    .take = lvni_sim_take,
    .give = lvni_sim_give,
    .host_take = lvni_sim_host_take,
    .host_give = lvni_sim_host_give,
    .stream_create = lvni_sim_stream_create,
    .stream_destroy = lvni_sim_stream_destroy,
    .stream_wait = lvni_sim_stream_wait,
    .stream_failed = lvni_sim_stream_failed,
    .stream_clear = lvni_sim_stream_clear,
    .event_create = lvni_sim_event_create,
    .event_destroy = lvni_sim_event_destroy,
    .event_record = lvni_sim_event_record,
    .event_follow = lvni_sim_event_follow,
    .event_wait = lvni_sim_event_wait,
    .host_call = lvni_sim_host_call,
    .copy = lvni_sim_copy,
    .upload = lvni_sim_upload,
    .zero = lvni_sim_zero,
    .kernels = rows,
    .n_kernels = LVNI_OP_COUNT,
    .flat = {.add = flat_add,
             .lerp = flat_lerp,
             .block_sumsq = flat_block_sumsq,
             .sgd = flat_sgd,
             .trust = flat_trust,
             .adamw = flat_adamw,
             .rmsprop = flat_rmsprop,
             .lion = flat_lion,
             .lamb_moments = flat_lamb_moments,
             .lamb = flat_lamb,
             .adafactor = flat_adafactor,
             .round_bf16 = flat_round_bf16,
             .record = flat_record,
             .apply_record = flat_apply_record,
             .append = flat_append,
             .number = flat_number,
             .seed = flat_seed,
             .decide = flat_decide,
             .finish = flat_finish},
    .capture_begin = lvni_sim_capture_begin,
    .capture_end = lvni_sim_capture_end,
    .graph_replay = lvni_sim_graph_replay,
    .graph_destroy = lvni_sim_graph_destroy,
    .native_stream = lvni_sim_native_stream,
};
