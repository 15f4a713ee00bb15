/* Which ops of a forward pass run here, and what is sent for them (placing.h). */
#include "autograd/placing.h"

#include "autograd/tape_impl.h"
#include "core/alloc.h"
#include "core/error.h"
#include "tensor/device.h"

#include <string.h>

enum { EVERYWHERE = -1, NO_UNIT = -1, FIRST_ROOM = 1024 };

/* Of a tensor that not all ranks have, or that all have and that gets a gradient from one. */
typedef struct entry {
    uint64_t id;          /* 0: free */
    int holder;           /* the latest stage that has it */
    bool all;             /* all ranks computed it */
    lvn_tensor *received; /* held */
} entry;

struct lvni_autograd_stages {
    const lvni_autograd_passing *passing;
    struct lvni_tensor_device *here;
    bool forward; /* the forward pass is under way */
    int unit;     /* stage of the unit that runs */
    int op;       /* stage of the newest op */
    int edges;
    int *parameter; /* stage + 1 of each that was used */
    int n_parameters;
    entry *table;
    size_t room, used;
};

static lvni_autograd_stages *current(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx == NULL || ctx->tape == NULL ? NULL : ctx->tape->stages;
}

/* Its ops are to be looked at. */
static lvni_autograd_stages *placing(void)
{
    lvni_autograd_stages *s = current();
    return s == NULL || !s->forward || s->passing->stages < 2 ? NULL : s;
}

/* ---- tensors ---- */

static entry *place_of(entry *table, size_t room, uint64_t id)
{
    size_t i = (size_t)(id * 0x9e3779b97f4a7c15u) & (room - 1);
    while (table[i].id != 0 && table[i].id != id) {
        i = (i + 1) & (room - 1);
    }
    return &table[i];
}

static entry *find(const lvni_autograd_stages *s, const lvn_tensor *t)
{
    entry *e = place_of(s->table, s->room, t->id);
    return e->id == 0 ? NULL : e;
}

static lvn_status grow(lvni_autograd_stages *s)
{
    const size_t room = s->room == 0 ? FIRST_ROOM : 2 * s->room;
    entry *table = lvni_core_calloc(LVNI_TAG_TENSOR, room, sizeof *table);
    if (table == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < s->room; i++) {
        if (s->table[i].id != 0) {
            *place_of(table, room, s->table[i].id) = s->table[i];
        }
    }
    lvni_core_free(s->table);
    s->table = table;
    s->room = room;
    return LVN_OK;
}

/* The entry of t, new ones as given. */
static entry *add(lvni_autograd_stages *s, const lvn_tensor *t, int holder, bool all)
{
    entry *e = find(s, t);
    if (e != NULL) {
        return e;
    }
    if (2 * (s->used + 1) > s->room && grow(s) != LVN_OK) {
        (void)lvni_autograd_op_fail(NULL);
        return NULL;
    }
    e = place_of(s->table, s->room, t->id);
    *e = (entry){.id = t->id, .holder = holder, .all = all};
    s->used++;
    return e;
}

/* ---- begin and end ---- */

static void free_stages(lvni_autograd_stages *s)
{
    lvni_core_free(s->table);
    lvni_core_free(s->parameter);
    lvni_core_free(s);
}

lvn_status lvni_autograd_stages_begin(const lvni_autograd_passing *passing, int n_parameters)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    lvni_autograd_stages *s = LVNI_NEW(LVNI_TAG_TENSOR, lvni_autograd_stages);
    if (tape == NULL || s == NULL) {
        lvni_core_free(s);
        return LVN_ERR_MEMORY;
    }
    *s = (lvni_autograd_stages){.passing = passing,
                                .here = lvni_tensor_ctx_get()->device,
                                .forward = true,
                                .unit = NO_UNIT,
                                .op = EVERYWHERE,
                                .n_parameters = n_parameters};
    s->parameter =
        lvni_core_calloc(LVNI_TAG_TENSOR, (size_t)n_parameters + 1, sizeof *s->parameter);
    if (s->parameter == NULL || grow(s) != LVN_OK) {
        free_stages(s);
        return LVN_ERR_MEMORY;
    }
    tape->stages = s;
    return LVN_OK;
}

void lvni_autograd_stages_forward_done(void)
{
    lvni_autograd_stages *s = current();
    if (s == NULL) {
        return;
    }
    s->forward = false;
    s->op = EVERYWHERE;
    lvni_tensor_ctx_get()->device = s->here;
    for (size_t i = 0; i < s->room; i++) {
        lvn_release(s->table[i].received);
        s->table[i].received = NULL;
    }
}

void lvni_autograd_stages_end(void)
{
    lvni_autograd_stages *s = current();
    if (s != NULL) {
        lvni_autograd_stages_forward_done();
        lvni_tensor_ctx_get()->tape->stages = NULL;
        free_stages(s);
    }
}

/* ---- modules ---- */

enum { NOT_ENTERED, ENTERED, UNIT }; /* what enter returns */

static void compute_at(lvni_autograd_stages *s, int stage)
{
    s->op = stage;
    lvni_tensor_ctx_get()->device =
        stage == EVERYWHERE || stage == s->passing->stage ? s->here : s->passing->away;
}

int lvni_autograd_stages_enter(const char *path, const lvn_tensor *x)
{
    lvni_autograd_stages *s = current();
    if (s == NULL || !s->forward || s->unit != NO_UNIT) {
        return NOT_ENTERED;
    }
    const int stage = s->passing->enter(s->passing->user, path, x);
    if (stage < 0) {
        return ENTERED;
    }
    s->unit = stage;
    compute_at(s, stage);
    return UNIT;
}

void lvni_autograd_stages_leave(int entered, const char *path)
{
    lvni_autograd_stages *s = current();
    if (s == NULL || entered == NOT_ENTERED) {
        return;
    }
    s->unit = entered == UNIT ? NO_UNIT : s->unit;
    if (s->passing->leave != NULL && s->forward) {
        s->passing->leave(s->passing->user, path);
    }
}

/* ---- messages on the tape ---- */

/* Of a tensor that was sent: its gradient comes back. */
static lvn_status send_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    (void)dy;
    const lvni_autograd_passing *p = current()->passing;
    lvn_tensor *grad = NULL;
    bool wants;
    LVN_TRY(p->receive(p->user, n->attr.passing.stage, n->attr.passing.edge, true, &n->in_desc,
                       &grad, &wants));
    return grad == NULL ? LVN_OK : lvni_autograd_grad_give(n, 0, grad);
}

/* Of one that was received: its gradient goes back. */
static lvn_status receive_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_autograd_passing *p = current()->passing;
    return p->send(p->user, n->attr.passing.stage, n->attr.passing.edge, true, dy, false);
}

/* A node whose output is x again; *out: owned by the caller. */
static lvn_status record(const char *name, lvni_autograd_backward_rule rule, lvn_tensor *x,
                         int stage, int edge, lvn_tensor **out)
{
    *out = lvni_tensor_view(x, x->ndim, x->shape);
    if (*out == NULL) {
        return lvn_last_error()->code;
    }
    /* what needs it first may want no gradient, and another op of that stage may */
    const bool before = lvn_set_grad_enabled(true);
    lvni_autograd_node *node = lvni_autograd_record(name, rule, *out, &x, 1);
    lvn_set_grad_enabled(before);
    if (node != NULL) {
        node->syncs = true;
        node->attr.passing.stage = stage;
        node->attr.passing.edge = edge;
    }
    return lvn_scope_status();
}

static lvn_status send(const lvni_autograd_stages *s, int to, int edge, lvn_tensor *t)
{
    const lvni_autograd_passing *p = s->passing;
    const bool wants = t->node != NULL || t->requires_grad;
    lvn_tensor *same = NULL;
    LVN_TRY(p->send(p->user, to, edge, false, t, wants));
    LVN_TRY(wants ? record("send", send_backward, t, to, edge, &same) : LVN_OK);
    lvn_release(same);
    return LVN_OK;
}

static lvn_status receive(const lvni_autograd_stages *s, int from, int edge, const lvn_tensor *t,
                          lvn_tensor **out)
{
    const lvni_autograd_passing *p = s->passing;
    const lvni_tensor_desc desc = lvni_tensor_get_desc(t);
    bool wants = false;
    LVN_TRY(p->receive(p->user, from, edge, false, &desc, out, &wants));
    if (!wants) {
        return LVN_OK;
    }
    lvn_tensor *leaf = lvn_require_grad(*out);
    const lvn_status status = record("receive", receive_backward, leaf, from, edge, out);
    lvn_release(leaf);
    return status;
}

/* ---- ops ---- */

static lvn_status refuse_order(const char *op, int stage, int holder)
{
    const char *path = lvni_tensor_ctx_get()->module_path;
    LVN_FAIL(LVN_ERR_UNSUPPORTED,
             "strategy=balance: %s%s%s is of stage %d and needs a tensor that stage %d has made or "
             "used: nothing goes back to an earlier stage; another cut (balance.cuts) may have "
             "both in one",
             op, path[0] != '\0' ? " in " : "", path, stage, holder);
}

static lvn_status refuse_sharing(const char *op, const char *what, int stage, int other)
{
    const char *path = lvni_tensor_ctx_get()->module_path;
    LVN_FAIL(LVN_ERR_UNSUPPORTED,
             "strategy=balance: %s%s%s is of stage %d and uses %s that stage %d uses, too: its "
             "gradient would be in two places; another cut (balance.cuts) may have both in one",
             op, path[0] != '\0' ? " in " : "", path, stage, what, other);
}

/* What all ranks have gets its gradient from one stage. */
static lvn_status check_shared(lvni_autograd_stages *s, const char *op, lvn_tensor *t, int stage)
{
    if (stage == EVERYWHERE) {
        return LVN_OK;
    }
    if (t->param >= 0 && t->param < s->n_parameters) {
        int *used = &s->parameter[t->param];
        const int before = *used;
        *used = stage + 1;
        return before == 0 || before == stage + 1 || !t->requires_grad
                   ? LVN_OK
                   : refuse_sharing(op, "a parameter", stage, before - 1);
    }
    if (t->node == NULL && !t->requires_grad) {
        return LVN_OK;
    }
    const entry *e = add(s, t, stage, true);
    return e == NULL            ? LVN_ERR_MEMORY
           : e->holder == stage ? LVN_OK
                                : refuse_sharing(op, "a tensor of all ranks", stage, e->holder);
}

/* *t where an op of `stage` has it. */
static lvn_status bring(lvni_autograd_stages *s, const char *op, lvn_tensor **t, int stage)
{
    entry *e = find(s, *t);
    if (e == NULL || e->all) {
        return check_shared(s, op, *t, stage);
    }
    const int from = e->holder, mine = s->passing->stage;
    if (stage < from) {
        return refuse_order(op, stage, from);
    }
    lvn_tensor *here = e->received != NULL ? e->received : *t;
    if (stage > from) {
        const int edge = s->edges++;
        e->holder = stage;
        if (from == mine) {
            LVN_TRY(send(s, stage, edge, here));
        } else if (stage == mine) {
            LVN_TRY(receive(s, from, edge, *t, &e->received));
            here = e->received;
        }
    }
    *t = stage == mine ? here : *t;
    /* a function's forward, or an op made of ops, gets this one in its place (may move e) */
    return here == *t && add(s, here, stage, false) == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static int stage_of_op(const lvni_autograd_stages *s, lvn_tensor *const *in, int n)
{
    int stage = s->unit;
    for (int i = 0; i < n && s->unit == NO_UNIT; i++) {
        const entry *e = in[i] == NULL ? NULL : find(s, in[i]);
        stage = e != NULL && !e->all && e->holder > stage ? e->holder : stage;
    }
    return stage;
}

static bool place(lvni_autograd_stages *s, const char *op, lvn_tensor **in, int n, int stage)
{
    compute_at(s, EVERYWHERE); /* what is received comes here */
    for (int i = 0; i < n; i++) {
        if (in[i] != NULL && bring(s, op, &in[i], stage) != LVN_OK) {
            (void)lvni_autograd_op_fail(op);
            return false;
        }
    }
    compute_at(s, stage);
    return true;
}

bool lvni_autograd_stages_op(const char *op, lvn_tensor **in, int n)
{
    lvni_autograd_stages *s = placing();
    return s == NULL || place(s, op, in, n, stage_of_op(s, in, n));
}

bool lvni_autograd_stages_away(void)
{
    const lvni_autograd_stages *s = placing();
    return s != NULL && s->op != EVERYWHERE && s->op != s->passing->stage;
}

lvn_tensor *lvni_autograd_stages_here(lvn_tensor *t)
{
    const lvni_autograd_stages *s = placing();
    const entry *e = s == NULL || t == NULL || lvni_autograd_stages_away() ? NULL : find(s, t);
    return e != NULL && e->received != NULL ? e->received : t;
}

bool lvni_autograd_stages_made(const lvn_tensor *t)
{
    lvni_autograd_stages *s = placing();
    if (s == NULL || t->param >= 0) {
        return true;
    }
    if (lvni_autograd_stages_absent(t) && find(s, t) == NULL && !lvni_autograd_stages_away()) {
        const char *path = lvni_tensor_ctx_get()->module_path;
        lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                      "strategy=balance: an operation%s%s of stage %d uses a tensor of another "
                      "stage in a way that stages do not see; use strategy=ddp",
                      path[0] != '\0' ? " in " : "", path, s->passing->stage);
        return false;
    }
    return s->op == EVERYWHERE || add(s, t, s->op, false) != NULL;
}

bool lvni_autograd_stages_at_last(const char *what, lvn_tensor **t)
{
    lvni_autograd_stages *s = placing();
    if (s == NULL || *t == NULL) {
        return s == NULL;
    }
    const int last = s->passing->stages - 1;
    return place(s, what, t, 1, last) && s->passing->stage == last;
}

bool lvni_autograd_stages_absent(const lvn_tensor *t)
{
    lvni_tensor_device *d = t == NULL ? NULL : lvni_tensor_device_of(t->data);
    return d != NULL && placing() != NULL && lvni_tensor_device_is_dry(d);
}

bool lvni_autograd_stages_several(void)
{
    return current() != NULL && current()->passing->stages > 1;
}

lvn_status lvni_autograd_stages_check_whole(const char *call)
{
    const lvni_autograd_stages *s = placing();
    if (s != NULL) {
        const char *path = lvni_tensor_ctx_get()->module_path;
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "strategy=balance: %s%s%s, called in stage %d of a forward pass: gradients inside "
                 "of a step go through one device so far; use strategy=ddp",
                 call, path[0] != '\0' ? " in " : "", path, s->passing->stage);
    }
    return LVN_OK;
}
