/* How fast a rank is (memory.h): a micro-batch of zeros, forward and backward, a few times, in a
 * context of its own. Nothing of the run depends on what it computes. */
#include "core/alloc.h"
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
    const lvni_data_loader_batch *batch, *there;
    lvni_trainer_scaler scaler;
    lvni_nn_set *set;
} measured;

static lvn_status run_once(const measured *m, double *seconds)
{
    const uint64_t begin = lvni_core_now_ns();
    const lvni_trainer_options *o = m->o;
    for (int i = 0; i < lvni_trainer_phases_count(o->model); i++) {
        lvni_trainer_micro_batch_job job = {.batch = m->batch, .there = m->there, .set = m->set};
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
static lvn_status run_some(measured *m, double *seconds)
{
    double all = 0.0, first, one;
    LVN_TRY(lvni_nn_set_create(m->o->model, &m->set));
    LVN_TRY(run_once(m, &first));
    for (int i = 0; i < MOST_TIMES && (i < LEAST_TIMES || all < ENOUGH_S); i++) {
        LVN_TRY(run_once(m, &one));
        *seconds = i == 0 || one < *seconds ? one : *seconds;
        all += one;
    }
    return LVN_OK;
}

/* In the context that computes. */
static lvn_status run_there(measured *m, double *seconds)
{
    lvni_tensor_device *device = lvni_tensor_ctx_get()->device;
    if (device == NULL) {
        m->there = m->batch;
        return run_some(m, seconds);
    }
    lvni_tensor_copies *copies;
    lvni_data_loader_batch copy = {0};
    LVN_TRY(lvni_tensor_copies_create(device, &copies));
    lvn_status s = lvni_trainer_device_batch_begin(m->batch, copies, &copy);
    m->there = &copy;
    s = s == LVN_OK ? run_some(m, seconds) : s;
    (void)lvni_tensor_device_sync();
    lvni_trainer_device_batch_free(&copy);
    lvni_tensor_copies_destroy(copies);
    m->there = NULL;
    return s;
}

lvn_status lvni_trainer_measure_micro_batch(const lvni_trainer_options *o, double *seconds)
{
    lvni_trainer_zeros zeros;
    measured m = {.o = o, .batch = &zeros.batch};
    lvni_tensor_ctx *mine = lvni_tensor_ctx_get();
    lvni_core_pins pins = o->plan.pins;
    pins.entries = NULL; /* what backends choose here does not count */
    lvni_trainer_scaler_init(&m.scaler, o->precision);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(o->plan.cores, &pins);
    lvn_status s = lvni_trainer_zeros_create(o, &zeros);
    s = ctx == NULL ? LVN_ERR_MEMORY : s;
    if (s == LVN_OK) {
        const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
        ctx->device = mine->device;
        ctx->low = lvni_trainer_precision_low(o->precision);
        lvni_tensor_ctx_set(ctx);
        s = run_there(&m, seconds);
        lvni_nn_set_destroy(m.set);
        if (s == LVN_OK && lvni_tensor_device_failed()) {
            s = lvni_tensor_device_take_error();
        }
        lvni_tensor_ctx_set(mine);
        lvni_tensor_fp_leave(before);
    }
    lvni_trainer_zeros_free(&zeros);
    lvni_tensor_ctx_destroy(ctx);
    return s;
}
