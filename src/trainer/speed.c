/* How fast a rank is, and which algorithms are the quickest there (memory.h): micro-batches of
 * zeros, forward and backward, in a context of its own. Nothing of the run but the choices depends
 * on what it computes. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "tensor/ctx.h"
#include "tensor/device.h"
#include "trainer/memory.h"
#include "trainer/phases.h"

/* the first does not count: memory is taken, primitives are made */
enum { MOST_TIMES = 10, LEAST_TIMES = 3 };
static const double ENOUGH_S = 0.1;

typedef struct measured {
    const lvni_trainer_options *o;
    const lvni_data_loader_batch *batch, *on_device;
    lvni_trainer_scaler scaler;
    lvni_nn_set *set;
    lvni_tensor_ctx *ctx, *before;
    unsigned fp;
} measured;

static lvn_status run_once(const measured *m, double *seconds)
{
    const uint64_t begin = lvni_core_now_ns();
    const lvni_trainer_options *o = m->o;
    for (int i = 0; i < lvni_trainer_phases_count(o->model); i++) {
        lvni_trainer_micro_batch_job job = {
            .batch = m->batch, .on_device = m->on_device, .set = m->set};
        const lvni_trainer_pass pass = {.model = o->model,
                                        .seed = o->seed,
                                        .phase = i,
                                        .loss_factor =
                                            lvni_trainer_loss_factor(&o->plan, &m->scaler),
                                        .scaled = true}; /* a loss of zeros may be anything */
        lvni_trainer_phases_begin(o->model, i, INT64_MAX);
        LVN_TRY(lvni_trainer_run_micro_batch(&pass, &job));
    }
    LVN_TRY(lvni_tensor_device_sync());
    *seconds = lvni_core_seconds_since(begin);
    return LVN_OK;
}

/* The shortest: what else the machine does only makes it longer. */
static lvn_status run_some(const measured *m, double *seconds)
{
    double all = 0.0, first, one;
    LVN_TRY(run_once(m, &first));
    for (int i = 0; i < MOST_TIMES && (i < LEAST_TIMES || all < ENOUGH_S); i++) {
        LVN_TRY(run_once(m, &one));
        *seconds = i == 0 || one < *seconds ? one : *seconds;
        all += one;
    }
    return LVN_OK;
}

/* In the context that computes. */
static lvn_status run_on_device(measured *m, lvn_status (*run)(const measured *, double *),
                                double *seconds)
{
    lvni_tensor_device *device = m->ctx->device;
    if (device == NULL) {
        m->on_device = m->batch;
        return run(m, seconds);
    }
    lvni_tensor_copies *copies;
    lvni_data_loader_batch copy = {0};
    LVN_TRY(lvni_tensor_copies_create(device, &copies));
    lvn_status s;
    m->on_device = &copy;
    LVNI_TRY_DONE(s, lvni_trainer_device_batch_begin(m->batch, copies, NULL, &copy));
    s = run(m, seconds);
done:
    (void)lvni_tensor_device_sync();
    lvni_trainer_device_batch_free(&copy);
    lvni_tensor_copies_destroy(copies);
    m->on_device = NULL;
    return s;
}

/* ---- the context ---- */

static lvn_status begin(measured *m, const lvni_core_pins *pins)
{
    m->before = lvni_tensor_ctx_get();
    lvni_trainer_scaler_init(&m->scaler, m->o->precision);
    m->ctx = m->before == NULL ? NULL : lvni_tensor_ctx_create(m->o->plan.cores, pins);
    if (m->ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    m->ctx->device = m->before->device;
    m->ctx->low = lvni_trainer_precision_low(m->o->precision);
    return LVN_OK;
}

static void enter(measured *m)
{
    m->fp = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    lvni_tensor_ctx_set(m->ctx);
}

static lvn_status leave(const measured *m, lvn_status s)
{
    if (s == LVN_OK && lvni_tensor_device_failed()) {
        s = lvni_tensor_device_take_error();
    }
    lvni_tensor_ctx_set(m->before);
    lvni_tensor_fp_leave(m->fp);
    return s;
}

static void end(const measured *m)
{
    if (m->set != NULL) {
        lvni_tensor_ctx_set(m->ctx);
        lvni_nn_set_destroy(m->set);
        lvni_tensor_ctx_set(m->before);
    }
    lvni_tensor_ctx_destroy(m->ctx);
}

/* ---- speed ---- */

lvn_status lvni_trainer_measure_micro_batch(const lvni_trainer_options *o, double *seconds)
{
    lvni_trainer_zeros zeros;
    measured m = {.o = o, .batch = &zeros.batch};
    lvni_core_pins pins = o->plan.pins;
    pins.entries = NULL; /* what backends choose here does not count */
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_trainer_zeros_create(o, &zeros));
    LVNI_TRY_DONE(s, begin(&m, &pins));
    enter(&m);
    s = lvni_nn_set_create(o->model, &m.set);
    s = leave(&m, s == LVN_OK ? run_on_device(&m, run_some, seconds) : s);
done:
    lvni_trainer_zeros_free(&zeros);
    end(&m);
    return s;
}

/* ---- choices ---- */

static lvn_status measure_size(void *user, const lvni_data_loader_batch *batch)
{
    measured *m = user;
    double seconds;
    m->batch = batch;
    enter(m);
    lvn_status s = m->set == NULL ? lvni_nn_set_create(m->o->model, &m->set) : LVN_OK;
    return leave(m, s == LVN_OK ? run_on_device(m, run_once, &seconds) : s);
}

lvn_status lvni_trainer_measure_choices(const lvni_trainer_options *o, int *problems, int *others)
{
    measured m = {.o = o};
    lvni_trainer_dry_group *group = NULL;
    *problems = *others = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, begin(&m, &o->plan.pins));
    if (o->plan.coupled) { /* the others of its group have zeros */
        LVNI_TRY_DONE(s, lvni_trainer_dry_group_create(o->plan.group, &group));
    }
    m.ctx->group = group == NULL ? NULL : lvni_trainer_dry_group_get(group, o->plan.group);
    m.ctx->tuning.measures = true;
    s = lvni_trainer_zeros_each(o, measure_size, &m);
    m.ctx->group = NULL;
    *problems = m.ctx->tuning.measured;
    *others = m.ctx->tuning.others;
done:
    end(&m);
    lvni_trainer_dry_group_destroy(group);
    return s;
}
