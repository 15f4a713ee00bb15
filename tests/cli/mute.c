/* A recipe whose callbacks fail without a reason, one at a time: the place that the environment
 * variable MUTE_AT names returns the status MUTE_CODE, or NULL, and sets no error. With
 * MUTE_EXIT=1 it calls exit(0) instead. Compiled and run by test_shared_recipe.py. */
#include <levin/levin.h>
#include <stdlib.h>
#include <string.h>

static bool is_here(const char *place)
{
    const char *at = getenv("MUTE_AT");
    if (at == NULL || strcmp(at, place) != 0) {
        return false;
    }
    if (getenv("MUTE_EXIT") != NULL) {
        exit(0);
    }
    return true;
}

static void crash_at(const char *place)
{
    if (is_here(place)) {
        volatile int *volatile p = NULL;
        *p = 1;
    }
}

static lvn_status status_at(const char *place)
{
    return is_here(place) ? (lvn_status)atoi(getenv("MUTE_CODE")) : LVN_OK;
}

/* ---- data: numbers and their signs ---- */

typedef struct numbers {
    lvn_dataset base;
    bool validates;
} numbers;

static int numbers_fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    (void)d;
    out[0] = (lvn_field){.name = "x", .dtype = LVN_F32, .ndim = 1, .shape = {2}};
    out[1] = (lvn_field){.name = "y", .dtype = LVN_I64};
    return is_here("fields") ? atoi(getenv("MUTE_CODE")) : 2;
}

static int64_t numbers_length(const lvn_dataset *d)
{
    (void)d;
    return is_here("length") ? atoi(getenv("MUTE_CODE")) : 16;
}

static lvn_status state_open(const lvn_dataset *d, void **state)
{
    *state = NULL;
    LVN_TRY(status_at("worker_open"));
    return ((const numbers *)d)->validates ? status_at("val worker_open") : LVN_OK;
}

static void state_close(const lvn_dataset *d, void *state)
{
    (void)d, (void)state;
}

static lvn_status state_get(const lvn_dataset *d, void *state, const lvn_sample_key *key,
                            void *const field[])
{
    (void)state;
    LVN_TRY(status_at("worker_get"));
    LVN_TRY(((const numbers *)d)->validates ? status_at("val worker_get") : LVN_OK);
    const float x[2] = {(float)(key->sample % 7) - 3.0f, 1.0f};
    const int64_t y = x[0] > 0.0f;
    memcpy(field[0], x, sizeof x);
    memcpy(field[1], &y, sizeof y);
    return LVN_OK;
}

static void numbers_destroy(lvn_dataset *d)
{
    free(d);
}

static const lvn_dataset_class numbers_class = {.name = "numbers",
                                                .fields = numbers_fields,
                                                .length = numbers_length,
                                                .worker_open = state_open,
                                                .worker_close = state_close,
                                                .worker_get = state_get,
                                                .destroy = numbers_destroy};

static lvn_dataset *numbers_open(bool validates)
{
    numbers *d = calloc(1, sizeof *d);
    if (d != NULL) {
        *d = (numbers){.base = {.cls = &numbers_class}, .validates = validates};
    }
    return d == NULL ? NULL : &d->base;
}

/* ---- the network ---- */

typedef struct net {
    lvn_module base;
    lvn_module *layer;
    lvn_buffer *mean;
} net;

static lvn_tensor *moved(const lvn_module *m, lvn_tensor *value)
{
    (void)m;
    return is_here("buffer") ? NULL : lvn_mul_scalar(value, 0.5);
}

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    LVN_TRY(status_at("build"));
    m->layer = lvn_nn_linear(b, "layer", 2, 2);
    m->mean = lvn_builder_buffer(b, "mean", LVN_SHAPE(1), 1.0, 0.1);
    lvn_builder_function(b, m->mean, moved);
    return lvn_builder_status(b);
}

static lvn_tensor *doubled(lvn_function_call *call, lvn_tensor *const *in)
{
    (void)call;
    return is_here("function forward") ? NULL : lvn_mul_scalar(in[0], 2.0);
}

static lvn_status doubled_back(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    (void)call;
    if (is_here("function no gradient")) {
        return LVN_OK;
    }
    LVN_TRY(status_at("function backward"));
    dx[0] = lvn_mul_scalar(dy, 2.0);
    return dx[0] == NULL ? lvn_last_error()->code : LVN_OK;
}

static const lvn_function doubling = {
    .name = "doubling", .forward = doubled, .backward = doubled_back};

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    const net *m = (const net *)module;
    lvn_tensor *y = is_here("forward") ? NULL : lvn_forward(m->layer, x);
    return y == NULL ? NULL : lvn_apply(&doubling, &y, 1, NULL);
}

static lvn_tensor *loss_of(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *loss = lvn_cross_entropy(lvn_forward(m, batch->field[0]), batch->field[1]);
    lvn_log(step, "loss", loss);
    return loss;
}

static lvn_tensor *net_train(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    crash_at("crash");
    if (is_here("abort")) {
        abort();
    }
    return is_here("training_step") ? NULL : loss_of(m, batch, step);
}

static lvn_tensor *net_validate(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    return is_here("validation_step") ? NULL : loss_of(m, batch, step);
}

static lvn_status net_validated(const lvn_module *m, lvn_step *step)
{
    (void)m, (void)step;
    return status_at("validated");
}

static const lvn_module_class net_class = {.name = "net",
                                           .size = sizeof(net),
                                           .build = net_build,
                                           .forward = net_forward,
                                           .training_step = net_train,
                                           .validation_step = net_validate,
                                           .validated = net_validated};

/* ---- the recipe ---- */

static lvn_status fill(lvn_job *job)
{
    job->module = is_here("no module") ? NULL : &net_class;
    job->train = is_here("no data") ? NULL : numbers_open(false);
    job->val = numbers_open(true);
    return LVN_OK;
}

static lvn_status open_training(const lvn_keys *k, lvn_job *job)
{
    (void)k;
    LVN_TRY(status_at("open"));
    return fill(job);
}

static lvn_status write_card(const lvn_keys *k, const lvn_job *job, lvn_card *card)
{
    (void)k, (void)job, (void)card;
    return status_at("write_card");
}

static lvn_status open_use(const lvn_keys *k, const lvn_card *card, lvn_use how, lvn_job *job)
{
    (void)k, (void)card, (void)how;
    LVN_TRY(status_at("use open"));
    return fill(job);
}

static lvn_tensor *predict(const lvn_module *root, const lvn_batch *batch)
{
    crash_at("predict crash");
    return is_here("predict") ? NULL : lvn_softmax(lvn_forward(root, batch->field[0]));
}

static const char *column(const lvn_card *card, int i)
{
    (void)card, (void)i;
    return is_here("column") ? NULL : "class";
}

static const lvn_recipe_use use = {
    .write_card = write_card, .open = open_use, .predict = predict, .column = column};

static const lvn_recipe recipe = {.abi = LVN_RECIPE_ABI,
                                  .name = "mute",
                                  .help = "signs of numbers",
                                  .options = "max_epochs=1 batch_size=8",
                                  .open = open_training,
                                  .use = &use};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return is_here("table") ? NULL : &recipe;
}
