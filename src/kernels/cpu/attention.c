/* Scaled dot-product attention, head by head (tpl_attention.h). Called through the op table.
 *
 * A head of a sample is one piece of work, forward and gradient: a table of scores for
 * LVNI_QUERY_BLOCK queries at a time, so memory grows with the number of keys and not with its
 * square. The gradient computes the scores again from q, k and the saved logarithms of sums (Dao et
 * al. 2022). Each member of the team has its own work memory. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include "tensor/ctx.h"

#include <string.h>

/* A tensor seen head by head: rows of positions, `sample` and `head` elements from one to the
 * next. */
typedef struct head_view {
    void *data; /* NULL: not wanted */
    int64_t step, sample, head;
} head_view;

typedef struct attention_job {
    int64_t samples, heads, slots, work; /* slots: members of the team, each with `work` floats */
    head_view q, k, v, y, dy, dq, dk, dv;
    lvni_cpu_elem elem;
    size_t size;                   /* of an element */
    lvni_cpu_attention_head shape; /* sizes and attributes */
    float *log_sums, *memory;
    bool gradient;
} attention_job;

static head_view plain(const lvn_tensor *t)
{
    if (t == NULL) {
        return (head_view){.data = NULL};
    }
    const int64_t step = t->shape[2] * t->shape[3];
    return (head_view){
        .data = t->data, .step = step, .sample = t->shape[1] * step, .head = t->shape[3]};
}

/* Part 0, 1, 2 of a packed tensor (N, T, 3, H, D): q, k, v. */
static head_view part(const lvn_tensor *t, int which)
{
    const int64_t width = t->shape[3] * t->shape[4];
    return (head_view){.data = lvni_cpu_elem_to(t->data, which * width, lvn_dtype_size(t->dtype)),
                       .step = 3 * width,
                       .sample = t->shape[1] * 3 * width,
                       .head = t->shape[4]};
}

static void *at(const attention_job *j, const head_view *v, int64_t n, int64_t h)
{
    return lvni_cpu_elem_to(v->data, n * v->sample + h * v->head, j->size);
}

static void one_head(const attention_job *j, int64_t n, int64_t h, float *work)
{
    lvni_cpu_attention_head one = j->shape;
    one.q = at(j, &j->q, n, h);
    one.k = at(j, &j->k, n, h);
    one.v = at(j, &j->v, n, h);
    one.q_step = j->q.step;
    one.k_step = j->k.step;
    one.v_step = j->v.step;
    one.y = at(j, &j->y, n, h);
    one.y_step = j->y.step;
    one.log_sums = j->log_sums + (n * j->heads + h) * one.queries;
    one.work = work;
    if (!j->gradient) {
        lvni_cpu_isa()->attention[j->elem](&one);
        return;
    }
    one.dy = at(j, &j->dy, n, h);
    one.dq = at(j, &j->dq, n, h);
    one.dk = at(j, &j->dk, n, h);
    one.dv = at(j, &j->dv, n, h);
    lvni_cpu_isa()->attention_grad[j->elem](&one);
}

static void slots_range(const void *job, int64_t begin, int64_t end)
{
    const attention_job *j = job;
    const int64_t all = j->samples * j->heads;
    for (int64_t slot = begin; slot < end; slot++) {
        for (int64_t i = all * slot / j->slots; i < all * (slot + 1) / j->slots; i++) {
            one_head(j, i / j->heads, i % j->heads, j->memory + slot * j->work);
        }
    }
}

static lvn_status run(attention_job *j)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const int64_t all = j->samples * j->heads, team = ctx == NULL ? 1 : ctx->team;
    const lvni_cpu_attention_head *s = &j->shape;
    if (all == 0 || s->queries == 0) {
        return LVN_OK;
    }
    j->slots = team < all ? team : all;
    j->work =
        lvni_cpu_padded(lvni_cpu_attention_work(s->queries, s->keys, s->d, s->e, j->gradient));
    j->memory =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(j->slots * j->work) * sizeof *j->memory);
    if (j->memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_cpu_par(j->slots, 1, all / j->slots * s->queries * s->keys * (s->d + s->e) / 8 + 1,
                 slots_range, j);
    return LVN_OK;
}

static void set_type(attention_job *j, lvn_dtype dtype)
{
    j->elem = lvni_cpu_elem_of(dtype);
    j->size = lvn_dtype_size(dtype);
}

static void set_attributes(attention_job *j, const lvn_kernel_args *args)
{
    const lvn_attention_attr *attr = args->attr;
    j->shape.scale = (float)attr->scale;
    j->shape.causal = attr->causal;
}

/* q, k, v: inputs first to first + 2. */
static attention_job plain_job(const lvn_kernel_args *args, int first)
{
    const lvn_tensor *q = args->in[first], *k = args->in[first + 1], *v = args->in[first + 2];
    attention_job j = {
        .samples = q->shape[0], .heads = q->shape[2], .q = plain(q), .k = plain(k), .v = plain(v)};
    set_type(&j, q->dtype);
    j.shape.queries = q->shape[1];
    j.shape.keys = k->shape[1];
    j.shape.d = q->shape[3];
    j.shape.e = v->shape[3];
    set_attributes(&j, args);
    return j;
}

static attention_job packed_job(const lvn_kernel_args *args, int first)
{
    const lvn_tensor *t = args->in[first];
    attention_job j = {.samples = t->shape[0],
                       .heads = t->shape[3],
                       .q = part(t, 0),
                       .k = part(t, 1),
                       .v = part(t, 2)};
    set_type(&j, t->dtype);
    j.shape.queries = j.shape.keys = t->shape[1];
    j.shape.d = j.shape.e = t->shape[4];
    set_attributes(&j, args);
    return j;
}

static lvn_status forward(const lvn_kernel_args *args, attention_job j)
{
    j.y = plain(args->out[0]);
    j.log_sums = LVNI_F32(args->out[1]);
    return run(&j);
}

lvn_status lvni_cpu_attention(const lvn_kernel_args *args)
{
    return forward(args, plain_job(args, 0));
}

lvn_status lvni_cpu_attention_qkv(const lvn_kernel_args *args)
{
    return forward(args, packed_job(args, 0));
}

/* dy, then the inputs of the forward pass, y and the log-sums at `kept`. */
static void set_gradient(attention_job *j, const lvn_kernel_args *args, int kept)
{
    j->gradient = true;
    j->dy = plain(args->in[0]);
    j->y = plain(args->in[kept]);
    j->log_sums = args->in[kept + 1]->data;
}

lvn_status lvni_cpu_attention_grad(const lvn_kernel_args *args)
{
    attention_job j = plain_job(args, 1);
    set_gradient(&j, args, 4);
    j.dq = plain(args->out[0]);
    j.dk = plain(args->out[1]);
    j.dv = plain(args->out[2]);
    if (j.shape.queries == 0) { /* no queries: k and v have no influence */
        for (int i = 1; i < 3; i++) {
            if (args->out[i] != NULL) {
                memset(args->out[i]->data, 0, (size_t)lvn_numel(args->out[i]) * j.size);
            }
        }
    }
    return run(&j);
}

lvn_status lvni_cpu_attention_qkv_grad(const lvn_kernel_args *args)
{
    attention_job j = packed_job(args, 1);
    set_gradient(&j, args, 2);
    j.dq = part(args->out[0], 0);
    j.dk = part(args->out[0], 1);
    j.dv = part(args->out[0], 2);
    return run(&j);
}
