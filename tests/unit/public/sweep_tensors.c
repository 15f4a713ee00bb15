/* Scenarios of the sweep: status.h, tensor.h, version.h, and of ops.h what has no row in the
 * gradient tests. */
#include "sweep.h"

#include <levin/device.h>
#include <levin/pins.h>

#include "tensor/ctx.h"

#include <string.h>

/* Closes the scope, whose status goes first: made is what came of the ops, back the status of
 * lvn_backward. */
static lvn_status done(bool made, lvn_status back)
{
    const lvn_status status = lvn_scope_close();
    return status != LVN_OK ? status : back != LVN_OK ? back : made ? LVN_OK : LVN_ERR_INTERNAL;
}

static lvn_status errors(const void *argument)
{
    (void)argument;
    lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%s", "set");
    lvn_error_append("; %s", "more");
    lvn_error_frame("on the way up %d", 1);
    const lvn_error copy = *lvn_last_error();
    lvn_clear_error();
    const bool good = lvn_error_adopt(&copy) == LVN_ERR_IO &&
                      strcmp(lvn_last_error()->frames[0], "on the way up 1") == 0 &&
                      lvn_status_name(LVN_ERR_IO) != NULL && lvn_status_text(LVN_ERR_IO) != NULL &&
                      lvn_version() != NULL;
    lvn_clear_error();
    return good ? LVN_OK : LVN_ERR_INTERNAL;
}

static lvn_status tensors(const void *argument)
{
    (void)argument;
    float two[2] = {1, 2};
    lvn_tensor *made = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 3)),
               *over = lvn_tensor_wrap(two, LVN_F32, LVN_SHAPE(2));
    const bool both = made != NULL && over != NULL;
    const bool good =
        !both ||
        (lvn_tensor_dtype(made) == LVN_F32 && lvn_ndim(made) == 2 && lvn_size(made, 1) == 3 &&
         lvn_numel(made) == 6 && lvn_data(made) != NULL && lvn_const_data(over) == two &&
         lvn_item(made) != 0.0 && lvn_dtype_size(LVN_F32) == 4 && lvn_dtype_name(LVN_F32) != NULL);
    lvn_release(lvn_retain(made));
    lvn_release(made);
    lvn_release(over);
    return !both ? lvn_last_error()->code : good ? LVN_OK : LVN_ERR_INTERNAL;
}

static lvn_status leaves(lvn_tensor **x, lvn_tensor **kept)
{
    *x = lvn_require_grad(lvn_tensor_create(LVN_F32, LVN_SHAPE(3)));
    *kept = NULL;
    return *x == NULL ? lvn_last_error()->code : LVN_OK;
}

static lvn_status walk_back(lvn_tensor *x, lvn_tensor **kept)
{
    LVN_TRY(lvn_scope_open());
    LVN_TRY(lvn_scope_open()); /* a failure in here closes with the thread */
    *kept = lvn_keep(lvn_square(x));
    lvn_tensor *loss = lvn_sum(lvn_mul(x, *kept));
    lvn_status status = lvn_scope_status();
    if (status == LVN_OK) {
        status = lvn_backward_scaled(loss, 2.0);
    }
    if (status == LVN_OK) {
        lvn_zero_grad(x);
        status = lvn_backward(lvn_sum(lvn_square(x)));
    }
    const bool was = lvn_set_grad_enabled(false);
    lvn_set_grad_enabled(was);
    const lvn_status inner = lvn_scope_close(), outer = lvn_scope_close();
    status = status != LVN_OK ? status : inner != LVN_OK ? inner : outer;
    return status == LVN_OK && lvn_gradient(x) == NULL ? LVN_ERR_INTERNAL : status;
}

static lvn_status scopes(const void *argument)
{
    (void)argument;
    lvn_tensor *x, *kept;
    LVN_TRY(leaves(&x, &kept));
    const lvn_status status = walk_back(x, &kept);
    lvn_release(kept);
    lvn_release(x);
    return status;
}

/* Inputs of the ops below: (4, 3) in x, (3) in c, labels (4). */
static _Thread_local lvn_tensor *x, *c, *labels;

static void make_inputs(const void *argument)
{
    (void)argument;
    x = lvn_require_grad(lvn_tensor_create(LVN_F32, LVN_SHAPE(4, 3)));
    c = lvn_tensor_create(LVN_F32, LVN_SHAPE(3));
    labels = lvn_tensor_create(LVN_I64, LVN_SHAPE(4));
}

static void drop_inputs(const void *argument)
{
    (void)argument;
    lvn_release(x);
    lvn_release(c);
    lvn_release(labels);
}

static lvn_status classification(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *y = lvn_batch_norm_eval(x, c, c, c, c, 1e-5);
    lvn_tensor *loss = lvn_cross_entropy(y, labels);
    lvn_tensor *others =
        lvn_add(lvn_nll_loss(lvn_log_softmax(y), labels, .class_weight = c), lvn_l1_loss(y, x));
    loss = lvn_add(lvn_add(loss, others), lvn_bce_with_logits(y, lvn_detach(x), .pos_weight = c));
    loss = lvn_add(loss, lvn_sum(lvn_embedding(x, labels)));
    const bool made = lvn_accuracy(y, labels) != NULL && lvn_argmax(y, 1, false) != NULL;
    return done(made, loss == NULL ? LVN_OK : lvn_backward(loss));
}

static lvn_status random_numbers(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *y = lvn_sum(
        lvn_mul(lvn_index_select(x, 0, lvn_random_permutation("order", 4)),
                lvn_add(lvn_random_uniform(NULL, "a", 4, 3), lvn_random_normal(NULL, "b", 4, 3))));
    return done(y != NULL, y == NULL ? LVN_OK : lvn_backward(y));
}

static lvn_status dropout(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvni_tensor_ctx_get()->at.training = true;
    lvn_tensor *y = lvn_sum(lvn_dropout(x, 0.5));
    return done(y != NULL, y == NULL ? LVN_OK : lvn_backward(y));
}

static lvn_status gradients(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *y = lvn_square(lvn_cast(lvn_cast(x, LVN_F64), LVN_F32));
    lvn_tensor *slope = lvn_grad(lvn_sum(y), x, .create_graph = true), *both[1] = {NULL};
    (void)lvn_grads_with(lvn_sum(slope), (lvn_tensor *[]){x}, 1, both, NULL);
    return done(lvn_add(lvn_detach(both[0]), lvn_zeros(LVN_F32, LVN_SHAPE(4, 3))) != NULL, LVN_OK);
}

static lvn_status parts(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *column[2], *rows = lvn_index_select(x, 0, labels),
                           *picked = lvn_gather(x, 1, lvn_reshape(labels, LVN_SHAPE(4, 1)));
    const lvn_status split = lvn_split(rows, 1, (const int64_t[]){1, 2}, 2, column);
    lvn_tensor *y =
        lvn_sum(lvn_mul(lvn_add(lvn_mul(column[1], column[0]), lvn_sign(column[0])), picked));
    return done(split == LVN_OK && y != NULL, y == NULL ? LVN_OK : lvn_backward(y));
}

static lvn_status whole_numbers(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *steps = lvn_add(lvn_round(x), lvn_add(lvn_floor(x), lvn_ceil(x)));
    lvn_tensor *places = lvn_argsort(x, 1, false);
    lvn_tensor *y =
        lvn_mul(lvn_gather(lvn_mul(x, steps), 1, places), lvn_one_hot(labels, 3, LVN_F32));
    return done(y != NULL, y == NULL ? LVN_OK : lvn_backward(lvn_sum(y)));
}

/* Of four points, an image with a keypoint each. */
static lvn_status drawn_maps(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *points = lvn_reshape(lvn_slice(lvn_detach(x), 1, 0, 2), LVN_SHAPE(4, 1, 2)),
               *kind = lvn_slice(lvn_detach(x), 1, 2, 3);
    return done(lvn_heatmap2d(points, kind, 4, 6, 1.0, 1.25) != NULL, LVN_OK);
}

static lvn_status comparisons(const void *argument)
{
    (void)argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *const of_two[] = {lvn_eq(x, c), lvn_ne(x, c), lvn_lt(x, c),
                                  lvn_le(x, c), lvn_gt(x, c), lvn_ge(x, c)};
    lvn_tensor *const of_one[] = {lvn_eq_scalar(labels, 0.0), lvn_ne_scalar(x, 0.0),
                                  lvn_lt_scalar(x, 0.0),      lvn_le_scalar(x, 0.0),
                                  lvn_gt_scalar(x, 0.0),      lvn_ge_scalar(x, 0.0)};
    bool made = lvn_argmin(x, 1, false) != NULL;
    for (int i = 0; i < 6; i++) {
        made = made && of_two[i] != NULL && of_one[i] != NULL;
    }
    lvn_tensor *y = lvn_sum(lvn_where(of_two[0], x, c));
    return done(made && y != NULL, y == NULL ? LVN_OK : lvn_backward(y));
}

static lvn_tensor *cube(lvn_function_call *call, lvn_tensor *const *in)
{
    call->saved[0] = in[0];
    return lvn_mul(lvn_square(in[0]), in[0]);
}

static lvn_status cube_back(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    dx[0] = lvn_mul(dy, lvn_mul_scalar(lvn_square(call->saved[0]), 3.0));
    return dx[0] == NULL ? lvn_last_error()->code : LVN_OK;
}

static lvn_status own_op(const void *argument)
{
    (void)argument;
    static const lvn_function f = {.name = "cube", .forward = cube, .backward = cube_back};
    LVN_TRY(lvn_scope_open());
    lvn_tensor *y = lvn_sum(lvn_apply(&f, (lvn_tensor *[]){x}, 1, NULL));
    return done(y != NULL, y == NULL ? LVN_OK : lvn_backward(y));
}

static lvn_status devices(const void *argument)
{
    (void)argument;
    float two[2] = {1, 2};
    lvn_tensor *host = lvn_tensor_wrap(two, LVN_F32, LVN_SHAPE(2)),
               *there = lvn_to_device(host, LVN_SIM(0));
    lvn_device found = LVN_CPU;
    lvn_status s = there == NULL ? lvn_last_error()->code : lvn_device_find("sim:0", &found);
    s = s == LVN_OK ? lvn_device_use(found) : s;
    if (s == LVN_OK) {
        const bool good = lvn_device_count(LVN_DEVICE_SIM) == 1 &&
                          lvn_device_in_use().kind == LVN_DEVICE_SIM &&
                          lvn_tensor_device(there).kind == LVN_DEVICE_SIM;
        lvn_tensor *back = lvn_to_device(there, LVN_CPU);
        s = back == NULL ? lvn_last_error()->code : lvn_device_wait();
        if (s == LVN_OK && !(good && ((const float *)lvn_const_data(back))[1] == 2.0f)) {
            s = LVN_ERR_INTERNAL;
        }
        lvn_release(back);
        lvn_device_use(LVN_CPU);
    }
    lvn_release(there);
    lvn_release(host);
    return s;
}

static lvn_status exchange(const void *argument)
{
    (void)argument;
    lvn_tensor *t = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 3));
    lvn_dlpack *out = lvn_to_dlpack(t, LVN_DLPACK_READ_ONLY); /* copied when it comes back */
    lvn_dlpack_old *old = lvn_to_dlpack_old(t);
    lvn_tensor *copy = out == NULL ? NULL : lvn_from_dlpack(out),
               *same = old == NULL ? NULL : lvn_from_dlpack_old(old);
    const bool made = copy != NULL && same != NULL;
    const bool shared = made && lvn_const_data(same) == lvn_const_data(t) &&
                        lvn_const_data(copy) != lvn_const_data(t);
    if (out != NULL && copy == NULL) {
        out->deleter(out);
    }
    if (old != NULL && same == NULL) {
        old->deleter(old);
    }
    lvn_release(copy);
    lvn_release(same);
    lvn_release(t);
    return !made ? lvn_last_error()->code : shared ? LVN_OK : LVN_ERR_INTERNAL;
}

static lvn_status pins(const void *argument)
{
    (void)argument;
    const char *counts = NULL;
    lvni_core_pin_entries *run = NULL;
    LVN_TRY(lvni_core_pin_entries_create(&run));
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvn_status s = ctx == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (ctx != NULL) {
        ctx->pins.entries = run;
        s = lvn_pin_record("sweep.choice", "5", &counts);
        if (s == LVN_OK && lvn_pin_get("sweep.choice") != counts) {
            s = LVN_ERR_INTERNAL;
        }
        /* of devices, and before a run's first step */
        int choice = 1;
        if (s == LVN_OK && (lvn_autotune_now().run != 0 || lvn_autotune_now().measures ||
                            lvn_autotune_choice("sweep", 5) != 0 ||
                            lvn_autotune_record("sweep", 5, &choice) != LVN_ERR_INVALID)) {
            s = LVN_ERR_INTERNAL;
        }
        ctx->pins.entries = NULL;
    }
    lvni_core_pin_entries_destroy(run);
    return s;
}

static lvn_status factors(const void *argument)
{
    (void)argument;
    lvn_tensor *a = lvn_tensor_create(LVN_F64, LVN_SHAPE(3, 3)), *u = NULL, *v = NULL, *s = NULL,
               *t = NULL;
    lvn_status status = a == NULL ? lvn_last_error()->code : lvn_eigh(a, &s, &v);
    if (status == LVN_OK) {
        status = lvn_svd(a, &u, NULL, &t);
        lvn_release(s);
        lvn_release(v);
    }
    if (status == LVN_OK) {
        lvn_release(u);
        lvn_release(t);
    }
    lvn_release(a);
    return status;
}

static const scenario rows[] = {
    {.calls = "status_name status_text last_error clear_error error_set error_frame error_append "
              "error_adopt version",
     .run = errors},
    {.calls = "tensor_create tensor_wrap retain release tensor_dtype ndim size numel data "
              "const_data item dtype_size dtype_name",
     .run = tensors},
    {.calls =
         "to_device tensor_device device_use device_find device_in_use device_count device_wait",
     .run = devices},
    {.calls = "scope_open scope_close scope_status keep require_grad backward backward_scaled "
              "gradient zero_grad set_grad_enabled",
     .run = scopes},
    {.calls =
         "batch_norm_eval_with cross_entropy_with nll_loss_with l1_loss_with bce_with_logits_with "
         "embedding_with accuracy argmax",
     .run = classification,
     .before = make_inputs,
     .after = drop_inputs},
    {.calls = "random_uniform_with random_normal_with random_permutation",
     .run = random_numbers,
     .before = make_inputs,
     .after = drop_inputs},
    {.calls = "dropout", .run = dropout, .before = make_inputs, .after = drop_inputs},
    {.calls = "grad_with grads_with cast detach zeros",
     .run = gradients,
     .before = make_inputs,
     .after = drop_inputs},
    {.calls =
         "eq ne lt le gt ge eq_scalar ne_scalar lt_scalar le_scalar gt_scalar ge_scalar argmin",
     .run = comparisons,
     .before = make_inputs,
     .after = drop_inputs},
    {.calls = "round floor ceil argsort one_hot",
     .run = whole_numbers,
     .before = make_inputs,
     .after = drop_inputs},
    {.calls = "heatmap2d", .run = drawn_maps, .before = make_inputs, .after = drop_inputs},
    {.calls = "index_select gather split sign",
     .run = parts,
     .before = make_inputs,
     .after = drop_inputs},
    {.calls = "eigh svd", .run = factors},
    {.calls = "pin_get pin_record autotune_now autotune_choice autotune_record", .run = pins},
    {.calls = "to_dlpack to_dlpack_old from_dlpack from_dlpack_old", .run = exchange},
    {.calls = "apply", .run = own_op, .before = make_inputs, .after = drop_inputs},
};

const scenario_table sweep_tensors = {rows, sizeof rows / sizeof *rows};
