/* What a run would take (memory.h): flat buffers by arithmetic; tensors, scratch memory and
 * reordered weights by a dry run of one micro-batch of each size and of a validation chunk, in a
 * lane's context of its own. On the host blocks that were once taken stay with their lane, so what
 * a micro-batch takes counts for the whole run. */
#include "trainer/memory.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "kernels/flat.h"
#include "kernels/kernels.h"
#include "tensor/ctx.h"
#include "tensor/device.h"
#include "tensor/device_blocks.h"
#include "trainer/deferred.h"
#include "trainer/phases.h"
#include "trainer/staged.h"
#include "trainer/units.h"

#include <string.h>

/* Samples of the micro-batches and validation chunks that a lane sees in an epoch: two in a step
 * and two in the epoch's last one, of the training set; a stream changes from one to another at a
 * micro-batch of its own. */
enum { MOST_SIZES = 4 + 2 * LVN_MAX_STREAMS };
typedef struct size_list {
    int n;
    /* of a batch, and of the one that is copied to the device meanwhile; n 0: none */
    lvni_trainer_samples at[MOST_SIZES], next[MOST_SIZES];
} size_list;
typedef struct sizes {
    size_list train, val;
    int64_t previews; /* the first of val has images of samples, too */
} sizes;

/* Of a lane on a device, without the gradient set. */
typedef struct lane_bytes {
    uint64_t most[2];                                /* in use at once: training, validation */
    uint64_t batch[MOST_SIZES], tensors[MOST_SIZES]; /* of each size of training */
} lane_bytes;

typedef struct dry_lane {
    lvni_tensor_ctx *ctx;
    lvni_tensor_device *device;
    const lvni_trainer_options *o;
    lvni_trainer_scaler scaler;
    lvni_trainer_memory_need *need;
    lvni_trainer_dry_group *group; /* coupled micro-batches */
    uint64_t set;                  /* bytes of a gradient set */
    uint64_t batch, next;          /* bytes of the newest batch, and of the one behind it */
    lane_bytes bytes;
    double flops;    /* of the newest batch */
    bool previews;   /* of the next one */
    uint64_t images; /* bytes of their copy in host memory */
} dry_lane;

static uint64_t in_use(lvni_tensor_device *device)
{
    return lvni_tensor_device_get_stats(device).in_use;
}

/* Forward and backward of a micro-batch, phase after phase; there: the same where lanes compute.
 * The gradient set has addresses alone, and is not the lane's. */
static lvn_status train_dry(dry_lane *lane, int in_group, const lvni_data_loader_batch *batch,
                            const lvni_data_loader_batch *on_device)
{
    const lvni_trainer_options *o = lane->o;
    lvni_nn_set *set;
    lvni_trainer_micro_batch_job job = {.batch = batch, .on_device = on_device};
    const uint64_t before = in_use(lane->device);
    LVN_TRY(lvni_nn_set_create(o->model, &set));
    lane->set = in_use(lane->device) - before;
    job.set = set;
    lane->ctx->group =
        lane->group == NULL ? NULL : lvni_trainer_dry_group_get(lane->group, in_group);
    lvn_status s = LVN_OK;
    for (int i = 0; i < lvni_trainer_phases_count(o->model); i++) {
        const lvni_trainer_pass pass = {.model = o->model,
                                        .seed = o->seed,
                                        .phase = i,
                                        .loss_factor =
                                            lvni_trainer_loss_factor(&o->plan, &lane->scaler),
                                        .scaled = lane->scaler.on};
        lvni_trainer_phases_begin(o->model, i, INT64_MAX);
        LVNI_TRY_DONE(s, lvni_trainer_run_micro_batch(&pass, &job));
    }
done:
    lane->ctx->group = NULL;
    lvni_nn_set_destroy(set);
    return s;
}

/* Behind the validation step, as evaluate.c has it. */
static lvn_status preview_dry(dry_lane *lane, const lvn_batch *batch)
{
    const lvni_trainer_preview *p = &lane->o->preview;
    LVN_TRY(lvn_scope_open());
    const lvn_tensor *y = p->images(lane->o->model->root, batch, p->user);
    lane->images = y == NULL ? 0 : (uint64_t)lvn_numel(y) * lvn_dtype_size(y->dtype);
    const lvn_status s = lvn_scope_close();
    if (s == LVN_ERR_MEMORY || s == LVN_ERR_DEVICE_MEMORY) {
        return s;
    }
    lvn_clear_error(); /* the recipe's mistakes end its first validation */
    return LVN_OK;
}

static lvn_status validate_dry(dry_lane *lane, const lvni_data_loader_batch *batch,
                               const lvni_data_loader_batch *on_device)
{
    const lvn_module *root = lane->o->model->root;
    lvni_nn_step step;
    lvni_nn_step_begin(&step, (double)batch->batch.size);
    step.host = &batch->batch;
    lane->ctx->at = (lvni_tensor_position){0};
    const bool before = lvn_set_grad_enabled(false);
    lvn_status s;
    const lvni_trainer_evaluation *rows = &lane->o->evaluation;
    LVNI_TRY_DONE(s, lvn_scope_open());
    if (rows->output != NULL) {
        rows->output(root, &on_device->batch, rows->user);
    } else {
        (root->cls->validation_step != NULL
             ? root->cls->validation_step
             : root->cls->training_step)(root, &on_device->batch, &step.now);
    }
    LVNI_TRY_DONE(s, lvn_scope_close());
    if (lane->previews) {
        LVNI_TRY_DONE(s, preview_dry(lane, &on_device->batch));
    }
done:
    lvn_set_grad_enabled(before);
    return s;
}

/* Is there room for the next batch on the device, which threads of the loader or an earlier phase
 * made ready (prefetch.c)? */
static bool has_next(const lvni_trainer_options *o)
{
    return o->workers > 0 || lvni_trainer_phases_count(o->model) > 1;
}

/* The run will have a copy on its device, and that of the next batch. ahead of size 0: there is
 * none. */
static lvn_status copy_and_train_dry(dry_lane *lane, int in_group,
                                     const lvni_data_loader_batch *batch,
                                     const lvni_data_loader_batch *ahead)
{
    lvni_tensor_copies *copies;
    lvni_data_loader_batch copy = {0}, next = {0};
    LVN_TRY(lvni_tensor_copies_create(lane->device, &copies));
    const uint64_t before = in_use(lane->device);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_trainer_device_batch_begin(batch, copies, NULL, &copy));
    lane->batch = in_use(lane->device) - before;
    if (ahead->batch.size > 0 && has_next(lane->o)) {
        LVNI_TRY_DONE(s, lvni_trainer_device_batch_begin(ahead, copies, NULL, &next));
    }
    lane->next = in_use(lane->device) - before - lane->batch;
    s = train_dry(lane, in_group, batch, &copy);
done:
    lvni_trainer_device_batch_free(&next);
    lvni_trainer_device_batch_free(&copy);
    lvni_tensor_copies_destroy(copies);
    return s;
}

static lvn_status copy_and_validate_dry(dry_lane *lane, const lvni_data_loader_batch *batch,
                                        const lvni_data_loader_batch *ahead)
{
    lvni_tensor_copies *copies = NULL;
    lvni_data_loader_batch copy = {0}, next = {0};
    double *slots = lvni_tensor_mem_calloc(LVNI_TAG_TRAINER, LVNI_EVALUATION_SLOTS, sizeof *slots);
    lvn_status s;
    LVNI_TRY_DONE(s, slots == NULL ? lvn_last_error()->code
                                   : lvni_tensor_copies_create(lane->device, &copies));
    LVNI_TRY_DONE(s, lvni_trainer_device_batch_begin(batch, copies, NULL, &copy));
    if (ahead->batch.size > 0 && lane->o->workers > 0) {
        LVNI_TRY_DONE(s, lvni_trainer_device_batch_begin(ahead, copies, NULL, &next));
    }
    s = validate_dry(lane, batch, &copy);
done:
    lvni_trainer_device_batch_free(&next);
    lvni_trainer_device_batch_free(&copy);
    lvni_tensor_copies_destroy(copies);
    lvni_tensor_mem_free(slots, LVNI_EVALUATION_SLOTS, sizeof *slots);
    return s;
}

/* Batches are made and freed in the caller's context: the loader has its own. */
static lvn_status run_dry(dry_lane *lane, const lvni_trainer_samples *z,
                          const lvni_trainer_samples *next, bool training)
{
    lvni_trainer_zeros zeros, ahead = {0};
    const lvni_data_loader_batch *batch = &zeros.batch;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_trainer_zeros_make(lane->o, training, z, &zeros));
    if (next->n > 0) {
        LVNI_TRY_DONE(s, lvni_trainer_zeros_make(lane->o, training, next, &ahead));
    }
    lvni_tensor_ctx *mine = lvni_tensor_ctx_get();
    lvni_tensor_ctx_set(lane->ctx);
    const double before = lvni_kernels_dry_flops();
    if (mine->device == NULL) {
        s = training ? train_dry(lane, (int)z->in_group, batch, batch)
                     : validate_dry(lane, batch, batch);
    } else {
        s = training ? copy_and_train_dry(lane, (int)z->in_group, batch, &ahead.batch)
                     : copy_and_validate_dry(lane, batch, &ahead.batch);
    }
    lane->flops = lvni_kernels_dry_flops() - before;
    lvni_tensor_ctx_set(mine);
done:
    lvni_trainer_zeros_free(&ahead);
    lvni_trainer_zeros_free(&zeros);
    return s;
}

static uint64_t record_most(dry_lane *lane, bool training)
{
    const uint64_t most =
        lvni_tensor_device_get_stats(lane->device).most - (training ? lane->set : 0);
    uint64_t *recorded = &lane->bytes.most[training ? 0 : 1];
    *recorded = most > *recorded ? most : *recorded;
    lvni_tensor_device_forget_most(lane->device);
    return most;
}

static void record_size(dry_lane *lane, int i)
{
    lane_bytes *b = &lane->bytes;
    const uint64_t most = record_most(lane, true), batches = lane->batch + lane->next;
    b->batch[i] = lane->batch;
    b->tensors[i] = most > batches ? most - batches : 0;
}

/* Every size once; on the host a lane keeps what the largest of each took. */
static lvn_status run_lane(dry_lane *lane, const sizes *z)
{
    for (int i = 0; i < z->train.n; i++) {
        const int64_t samples = z->train.at[i].n;
        lane->need->refused = samples;
        LVN_TRY(run_dry(lane, &z->train.at[i], &z->train.next[i], true));
        record_size(lane, i);
        if (samples > lane->need->flops_samples) {
            lane->need->sample_flops = lane->flops / (double)samples;
            lane->need->flops_samples = samples;
        }
    }
    for (int i = 0; i < z->val.n; i++) {
        lane->need->refused = z->val.at[i].n;
        lane->previews = i == 0 && z->previews != 0;
        LVN_TRY(run_dry(lane, &z->val.at[i], &z->val.next[i], false));
        (void)record_most(lane, false);
    }
    lane->need->refused = 0;
    return LVN_OK;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void read_lane(const dry_lane *lane, lvni_trainer_memory_need *need)
{
    lvni_tensor_ctx *mine = lvni_tensor_ctx_get();
    lvni_tensor_ctx_set(lane->ctx);
    const lvni_cpu_need kernels = lvni_cpu_get_need();
    lvni_tensor_ctx_set(mine);
    need->device_lane = lvni_tensor_device_of(lane->o->model->weights) != NULL
                            ? larger(lane->bytes.most[0], lane->bytes.most[1])
                            : lvni_tensor_device_get_stats(lane->device).held;
    need->lane = need->device_lane + lvni_tensor_cache_bytes(lane->ctx->cache) + kernels.scratch +
                 lane->images;
    need->copies = kernels.weights > need->copies ? kernels.weights : need->copies;
}

/* Every op of a step and of validation was looked up. */
static lvn_status check_kernels(const dry_lane *lane)
{
    lvni_tensor_ctx *mine = lvni_tensor_ctx_get();
    lvni_tensor_ctx_set(lane->ctx);
    const lvn_status s = lvni_kernels_check_missing();
    lvni_tensor_ctx_set(mine);
    lane->need->lacks_kernels = s == LVN_ERR_UNSUPPORTED;
    return s;
}

static lvn_status measure_lane(const lvni_trainer_options *o, const sizes *z,
                               lvni_trainer_memory_need *need, lane_bytes *bytes)
{
    const int lanes = o->plan.lanes, team = o->plan.cores / lanes > 1 ? o->plan.cores / lanes : 1;
    dry_lane *lane = LVNI_NEW(LVNI_TAG_TRAINER, dry_lane);
    if (lane == NULL) {
        return LVN_ERR_MEMORY;
    }
    lane->o = o;
    lane->need = need;
    lvni_trainer_scaler_init(&lane->scaler, o->precision);
    lvni_core_pins pins = o->plan.pins;
    pins.entries = NULL; /* nothing computes, so nothing is chosen */
    lane->ctx = lvni_tensor_ctx_create(team, &pins);
    lvn_status s;
    LVNI_TRY_DONE(s, lane->ctx == NULL ? LVN_ERR_MEMORY
                                       : lvni_tensor_device_create_dry(
                                             lvni_tensor_ctx_get()->device, &lane->device));
    if (o->plan.coupled) {
        LVNI_TRY_DONE(s, lvni_trainer_dry_group_create(o->plan.group, &lane->group));
    }
    lane->ctx->device = lane->device;
    lane->ctx->low = lvni_trainer_precision_low(o->precision);
    LVNI_TRY_DONE(s, run_lane(lane, z));
    if (lvni_tensor_device_stands_for(lane->device) != NULL) {
        LVNI_TRY_DONE(s, check_kernels(lane));
    }
    read_lane(lane, need);
    *bytes = lane->bytes;
done:
    lvni_tensor_ctx_destroy(lane->ctx);
    lvni_tensor_device_destroy_dry(lane->device);
    lvni_trainer_dry_group_destroy(lane->group);
    lvni_core_free(lane);
    return s;
}

/* The lane's next micro-batch, with its units recorded. */
static lvn_status record_units(dry_lane *lane, lvni_trainer_units *units)
{
    const lvni_trainer_options *o = lane->o;
    const lvni_trainer_samples size = {.n = lvni_plan_largest_micro_batch(&o->plan)}, none = {0};
    lvni_tensor_ctx *mine = lvni_tensor_ctx_get();
    lvni_autograd_passing passing;
    lvni_tensor_ctx_set(lane->ctx);
    lvn_status s = lvni_trainer_units_record(units, &passing, o->model->n_parameters);
    lvni_tensor_ctx_set(mine);
    LVN_TRY(s);
    s = run_dry(lane, &size, &none, true);
    lvni_tensor_ctx_set(lane->ctx);
    lvni_autograd_stages_end();
    if (s == LVN_OK) {
        s = lvni_trainer_units_end(units, o->model, o->plan.devices);
    }
    lvni_tensor_ctx_set(mine);
    return s;
}

lvn_status lvni_trainer_predict_units(const lvni_trainer_options *o, lvni_trainer_units *units)
{
    dry_lane *lane = LVNI_NEW(LVNI_TAG_TRAINER, dry_lane);
    if (lane == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_trainer_memory_need need = {0};
    lane->o = o;
    lane->need = &need;
    lvni_trainer_scaler_init(&lane->scaler, o->precision);
    lvni_core_pins pins = o->plan.pins;
    pins.entries = NULL; /* nothing computes, so nothing is chosen */
    lane->ctx = lvni_tensor_ctx_create(1, &pins);
    lvn_status s;
    LVNI_TRY_DONE(s, lane->ctx == NULL ? LVN_ERR_MEMORY
                                       : lvni_tensor_device_create_dry(
                                             lvni_tensor_ctx_get()->device, &lane->device));
    lane->ctx->device = lane->device;
    lane->ctx->low = lvni_trainer_precision_low(o->precision);
    s = record_units(lane, units);
done:
    lvni_tensor_ctx_destroy(lane->ctx);
    lvni_tensor_device_destroy_dry(lane->device);
    lvni_core_free(lane);
    return s;
}

static void add_size(const lvni_trainer_samples *one, const lvni_trainer_samples *next,
                     size_list *list)
{
    int i = 0;
    while (i < list->n && memcmp(&list->at[i], one, sizeof *one) != 0) {
        i++;
    }
    if (one->n <= 0 || i == MOST_SIZES) {
        return;
    }
    list->at[i] = *one;
    list->next[i] = next->n > list->next[i].n ? *next : list->next[i];
    list->n = i == list->n ? i + 1 : list->n;
}

static int count_in_group(const lvni_plan *p, int64_t step, int micro_batch)
{
    const int begin = micro_batch / p->group * p->group;
    int n = 0;
    for (int i = begin; i < begin + p->group && i < p->micro_batches && p->coupled; i++) {
        n += lvni_plan_micro_batch(p, step, i).count > 0;
    }
    return n;
}

static lvni_trainer_samples samples_of(const lvni_plan *p, int64_t step, int micro_batch)
{
    lvni_trainer_samples one = {.n = lvni_plan_micro_batch(p, step, micro_batch).count,
                                .in_group = count_in_group(p, step, micro_batch)};
    for (int i = 0; i < p->n_streams; i++) {
        one.stream[i] = lvni_plan_stream_micro_batch(p, i, step, step, micro_batch).count;
    }
    return one;
}

/* What is copied while it is computed: that of the next step, where a step is one wave; of two
 * steps in an epoch one may be short, and the only step of a run has none behind it. Else about as
 * many samples. */
static lvni_trainer_samples next_of(const lvni_trainer_options *o, int64_t step, int micro_batch)
{
    const lvni_plan *p = &o->plan;
    const int64_t steps = p->steps_per_epoch;
    const bool waves =
        lvni_plan_wave(p, p->micro_batch_begin).count < p->micro_batch_end - p->micro_batch_begin;
    if (waves || p->n_streams > 0 || lvni_trainer_phases_count(o->model) > 1) {
        return samples_of(p, step, micro_batch);
    }
    const bool last = step + 1 == steps;
    return last && o->max_epochs == 1 ? (lvni_trainer_samples){0}
                                      : samples_of(p, last ? 0 : step + 1, micro_batch);
}

static void add_micro_batch(const lvni_trainer_options *o, int64_t step, int micro_batch, sizes *z)
{
    const lvni_trainer_samples one = samples_of(&o->plan, step, micro_batch),
                               next = next_of(o, step, micro_batch);
    add_size(&one, &next, &z->train);
}

/* The short last step comes at the end of an epoch. */
static bool ends_epoch(const lvni_trainer_options *o)
{
    return o->max_steps < 0 || o->max_steps >= o->plan.steps_per_epoch;
}

static lvn_status use_zeros(const lvni_trainer_options *o, const lvni_trainer_samples *z,
                            lvni_trainer_zeros_use use, void *user)
{
    lvni_trainer_zeros zeros;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_trainer_zeros_make(o, true, z, &zeros));
    s = use(user, &zeros.batch);
done:
    lvni_trainer_zeros_free(&zeros);
    return s;
}

lvn_status lvni_trainer_zeros_each(const lvni_trainer_options *o, lvni_trainer_zeros_use use,
                                   void *user)
{
    sizes z = {0};
    for (int i = 0; i < o->plan.micro_batches; i++) {
        add_micro_batch(o, 0, i, &z);
        add_micro_batch(o, o->plan.steps_per_epoch - 1, i, &z);
    }
    for (int i = 0; i < z.train.n; i++) {
        LVN_TRY(use_zeros(o, &z.train.at[i], use, user));
    }
    return LVN_OK;
}

/* A sample that is alone in its group, on any rank: a network may need two. */
static void add_alone(const lvni_trainer_options *o, sizes *z)
{
    const lvni_plan *p = &o->plan;
    const int64_t last = p->steps_per_epoch - 1;
    for (int i = 0; i < p->micro_batches && p->coupled && ends_epoch(o); i++) {
        if (lvni_plan_micro_batch(p, last, i).count == 1 && count_in_group(p, last, i) == 1) {
            add_micro_batch(o, last, i, z);
        }
    }
}

/* Micro-batches and chunks are dealt to the lanes in turn (waves.c, evaluate.c). */
static sizes sizes_of(const lvni_trainer_options *o, int lane)
{
    const lvni_plan *p = &o->plan;
    sizes z = {0};
    lvni_plan_range wave = {.start = p->micro_batch_begin};
    for (; wave.start < p->micro_batch_end; wave.start += wave.count) {
        wave = lvni_plan_wave(p, (int)wave.start);
        const int micro_batch = (int)wave.start + lane;
        if (lane >= wave.count) {
            continue;
        }
        add_micro_batch(o, 0, micro_batch, &z);
        if (ends_epoch(o)) {
            add_micro_batch(o, p->steps_per_epoch - 1, micro_batch, &z);
        }
    }
    if (lane == 0) {
        add_alone(o, &z);
    }
    const int64_t n = lvni_trainer_validation_length(o);
    const lvni_plan_range own =
        n > 0 ? lvni_plan_eval_chunks_of(p, n, p->rank) : (lvni_plan_range){0};
    for (int64_t i = lane; i < own.count; i += p->lanes) {
        const lvni_trainer_samples one = {.n = lvni_plan_eval_chunk(p, n, own.start + i).count};
        const int64_t next = i + p->lanes;
        const lvni_trainer_samples ahead = {
            .n = next < own.count ? lvni_plan_eval_chunk(p, n, own.start + next).count : 0};
        add_size(&one, &ahead, &z.val);
    }
    z.previews = o->preview.images != NULL && p->rank == 0 && lane == 0;
    return z;
}

/* Of all lanes on a device: they train together, or validate together. */
typedef struct device_bytes {
    uint64_t lanes;         /* as they were counted alone */
    uint64_t training, val; /* where steps are submitted one by one */
    uint64_t ahead;         /* batches of the next step, behind one, and during validation */
    /* of a captured step: its batches, one that is copied to its place, tensors */
    uint64_t batches, one_batch, tensors;
    uint64_t other; /* of the other step of an epoch, whose batches do not fit into these places */
} device_bytes;

static int find_size(const size_list *list, const lvni_trainer_samples *one)
{
    int i = 0;
    while (i < list->n && memcmp(&list->at[i], one, sizeof *one) != 0) {
        i++;
    }
    return i < list->n ? i : -1;
}

/* The first step that is captured is one with all its samples, and of every second step the one
 * behind those that are watched, which is short. */
static int64_t captured_step(const lvni_plan *p)
{
    return p->steps_per_epoch == 2 ? LVNI_GRAPH_WATCHED % 2 : 0;
}

/* A captured step has a place for each of its batches (graph_batches.c). */
static void add_lane(const lvni_trainer_options *o, int lane, const size_list *list,
                     const lane_bytes *b, device_bytes *d)
{
    const lvni_plan *p = &o->plan;
    const int64_t captured = captured_step(p), other = captured == 0 ? p->steps_per_epoch - 1 : 0;
    uint64_t tensors = 0, tensors_other = 0;
    lvni_plan_range wave = {.start = p->micro_batch_begin};
    for (; wave.start < p->micro_batch_end; wave.start += wave.count) {
        wave = lvni_plan_wave(p, (int)wave.start);
        const int micro_batch = (int)wave.start + lane;
        const lvni_trainer_samples one = samples_of(p, captured, micro_batch),
                                   of_other = samples_of(p, other, micro_batch),
                                   first = samples_of(p, 0, micro_batch);
        const int i = lane < wave.count ? find_size(list, &one) : -1,
                  k = lane < wave.count ? find_size(list, &of_other) : -1,
                  of_first = lane < wave.count ? find_size(list, &first) : -1;
        if (i >= 0) {
            d->batches += b->batch[i];
            d->one_batch = larger(d->one_batch, b->batch[i]);
            tensors = larger(tensors, b->tensors[i]);
        }
        if (of_first >= 0 && wave.start == p->micro_batch_begin && o->workers > 0) {
            d->ahead += b->batch[of_first];
        }
        if (k >= 0 && k != i) {
            d->other += b->batch[k];
            tensors_other = larger(tensors_other, b->tensors[k]);
        }
    }
    d->tensors += tensors;
    d->other += tensors_other;
}

/* Lanes with the same sizes take the same. */
static lvn_status measure_lanes(const lvni_trainer_options *o, lvni_trainer_memory_need *need,
                                device_bytes *d)
{
    sizes before = {0};
    uint64_t largest = 0;
    lane_bytes b = {0};
    *d = (device_bytes){0};
    for (int i = 0; i < o->plan.lanes; i++) {
        const sizes z = sizes_of(o, i);
        if (i == 0 || memcmp(&z, &before, sizeof z) != 0) {
            LVN_TRY(measure_lane(o, &z, need, &b));
        }
        before = z;
        need->lanes += need->lane;
        largest = larger(largest, need->lane);
        d->lanes += need->device_lane;
        d->training += b.most[0];
        d->val += b.most[1];
        add_lane(o, i, &z.train, &b, d);
    }
    need->lane = largest;
    return LVN_OK;
}

/* Is there a step behind a validation, of which the first batches are there already? */
static bool goes_on(const lvni_trainer_options *o)
{
    return o->max_epochs != 1 || o->val_every_n_batches > 0 || o->val_every_s > 0.0;
}

/* As graph.c decides it before the first step; what a model does in one it sees later. */
static bool may_capture(const lvni_trainer_options *o, const lvni_tensor_device *device)
{
    const lvni_plan *p = &o->plan;
    const bool few =
        (o->max_steps >= 0 && o->max_steps <= LVNI_GRAPH_WATCHED) ||
        (o->max_epochs >= 0 && (int64_t)o->max_epochs * p->steps_per_epoch <= LVNI_GRAPH_WATCHED);
    return o->graph != LVNI_GRAPH_OFF && !few && p->devices == 1 && !(p->coupled && p->group > 1) &&
           lvni_tensor_device_backend(device)->capture_begin != NULL &&
           p->micro_batch_end - p->micro_batch_begin <= lvni_data_loader_copied(p);
}

/* Tensors and batches of all lanes, beside what lies on the device all the time. */
static void count_lanes(const lvni_trainer_options *o, const lvni_tensor_device *device,
                        const device_bytes *d, lvni_trainer_memory_need *need)
{
    uint64_t training = d->training, val = d->val > 0 && goes_on(o) ? d->val + d->ahead : d->val;
    const bool fits =
        o->graph == LVNI_GRAPH_ON || /* as graph_batches.c has it */
        need->device_fixed + larger(training, val) + d->batches < need->device_limit / 10 * 9;
    if (may_capture(o, device) && fits) {
        const uint64_t step = larger(d->tensors, d->other), copies = larger(d->ahead, d->one_batch);
        training = larger(training, d->batches + larger(step, copies));
        val += d->val > 0 ? d->batches : 0;
    }
    const uint64_t all = larger(training, val);
    need->device_val = val > training ? val - training : 0;
    need->device = need->device_fixed + all;
    need->lanes += all > d->lanes ? all - d->lanes : 0;
}

static lvn_status add_loader(const lvni_trainer_options *o, const lvn_dataset *dataset,
                             lvni_trainer_memory_need *need)
{
    size_t bytes = 0;
    const lvni_data_loader_options l = {.dataset = dataset,
                                        .plan = &o->plan,
                                        .training = dataset == o->train,
                                        .balanced = o->balanced,
                                        .order = o->order,
                                        .stream = o->stream,
                                        .whole_steps = lvni_trainer_phases_count(o->model) > 1,
                                        .workers = o->workers,
                                        .max_epochs =
                                            o->max_epochs > 0 ? (uint32_t)o->max_epochs : 0};
    LVN_TRY(dataset == NULL ? LVN_OK : lvni_data_loader_predict(&l, &bytes));
    need->batches += bytes;
    return LVN_OK;
}

/* Bytes of a block of the device's allocator. */
static uint64_t block(uint64_t bytes)
{
    return bytes > 0 ? lvni_tensor_device_round(bytes) : 0;
}

/* Of the optimizer's state: on the host, and in blocks of a device's allocator, where what it has
 * beside its state counts, too. With strategy=sharded that of a part of the weights; saved is all.
 */
typedef struct optim_bytes {
    uint64_t host, device, saved;
} optim_bytes;

static bool is_sharded(const lvni_trainer_options *o)
{
    return o->sharded_stage > 0 && o->plan.devices > 1;
}

/* As lvni_trainer_create will: nothing is recorded for frozen parameters. */
static lvn_status assign_phases(const lvni_trainer_options *o, optim_bytes *bytes)
{
    const lvni_nn_model *m = o->model;
    lvni_optim_parameter *p;
    LVN_TRY(lvni_trainer_parameters(m, &o->rules, &p));
    lvni_trainer_phases_assign(o->model, p);
    lvni_optim_options optim[LVNI_PHASES];
    lvni_trainer_optim_of_phases(&o->optim, o->phase, optim);
    const lvni_optim_range own =
        is_sharded(o) ? lvni_trainer_sharded_part(m->n_weights, o->plan.devices, o->plan.rank)
                      : (lvni_optim_range){0, m->n_weights};
    *bytes = (optim_bytes){.device = block(lvni_optim_trust_bytes(optim, p, m->n_parameters))};
    for (int k = 0; k < LVNI_OPTIM_SLOTS; k++) {
        const uint64_t slot =
            (uint64_t)lvni_optim_slot_length(optim, own.end - own.begin, p, m->n_parameters, k) *
            sizeof(float);
        bytes->saved +=
            (uint64_t)lvni_optim_slot_length(optim, m->n_weights, p, m->n_parameters, k) *
            sizeof(float);
        bytes->host += slot;
        bytes->device += block(slot);
    }
    lvn_status s;
    if (is_sharded(o)) {
        LVNI_TRY_DONE(s, lvni_optim_check_parts(optim, p, m->n_parameters));
    }
    s = lvni_optim_check_groups(optim, p, m->n_parameters);
done:
    lvni_core_free(p);
    return s;
}

static void count_device(const lvni_trainer_options *o, uint64_t optimizer, const device_bytes *d,
                         lvni_trainer_memory_need *need)
{
    const lvni_nn_model *m = o->model;
    const uint64_t element = sizeof *m->weights, values = block((uint64_t)m->n_values * element);
    lvni_tensor_device *device = lvni_tensor_device_of(m->weights);
    if (device == NULL) {
        return;
    }
    need->device_name = lvni_tensor_device_name(device);
    need->device_limit = lvni_tensor_device_get_stats(device).limit;
    /* the total over all ranks comes back from the host */
    const uint64_t sets = (uint64_t)lvni_plan_sets(&o->plan) + (o->plan.devices > 1 ? 1 : 0);
    need->device_fixed = values + (o->ema.decay > 0.0 ? values : 0) + optimizer +
                         sets * block((uint64_t)(m->n_weights + m->n_records) * element);
    need->device_fixed += lvni_trainer_deferred_bytes(&o->plan, lvni_trainer_phases_count(m),
                                                      lvni_kernels_flat_blocks(m->n_weights)) +
                          block(lvni_trainer_staged_bytes(o));
    count_lanes(o, device, d, need);
}

/* Of an exported model: only weights that have another layout there are copied
 * (run/export.c). */
static uint64_t count_export(const lvni_nn_model *m)
{
    uint64_t bytes = 0;
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        bytes +=
            p->layout == LVNI_LAYOUT_PLAIN ? 0 : (uint64_t)lvn_numel(p->tensor) * sizeof(float);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvni_nn_parameter *was = &m->buffers[i]->file;
        bytes += was->layout == LVNI_LAYOUT_PLAIN ? 0 : (uint64_t)was->numel * sizeof(float);
    }
    return bytes;
}

lvn_status lvni_trainer_predict_memory(const lvni_trainer_options *o,
                                       lvni_trainer_memory_need *need)
{
    const lvni_nn_model *m = o->model;
    lvni_nn_model_lay_records(o->model, o->plan.micro_batches,
                              lvni_plan_largest_micro_batch(&o->plan));
    const uint64_t element = sizeof *m->weights, weights = (uint64_t)m->n_weights * element,
                   values = (uint64_t)m->n_values * element;
    const uint64_t average = o->ema.decay > 0.0 ? values : 0;
    optim_bytes optim;
    LVN_TRY(assign_phases(o, &optim));
    *need = (lvni_trainer_memory_need){.weights = values + average,
                                       .gradients = (uint64_t)lvni_plan_sets(&o->plan) *
                                                    (weights + (uint64_t)m->n_records * element),
                                       .optimizer = optim.host};
    if (o->plan.devices > 1) { /* the total over all ranks */
        need->sum = weights + (uint64_t)m->n_records * element;
        need->gradients += need->sum;
    }
    if (is_sharded(o)) { /* parts on their way */
        need->gradients += lvni_trainer_sharded_bytes(m->n_weights, o->plan.devices);
    }
    if (o->plan.devices > 1 && lvni_tensor_device_of(m->weights) != NULL) {
        /* host memory beside the device's: what ranks read, and what the device copies */
        const lvni_plan *p = &o->plan;
        need->gradients += 2 *
                           (uint64_t)lvni_plan_tree_owed(p->micro_batches, p->micro_batch_begin,
                                                         p->micro_batch_end) *
                           need->sum;
    }
    if (o->out != NULL || o->export_model != NULL) {
        need->saving =
            values + average + optim.saved + (o->export_model != NULL ? count_export(m) : 0);
    }
    device_bytes device;
    LVN_TRY(measure_lanes(o, need, &device));
    count_device(o, optim.device, &device, need);
    LVN_TRY(add_loader(o, o->train, need));
    const bool validates = lvni_trainer_validation_length(o) > 0;
    LVN_TRY(validates ? add_loader(o, o->val, need) : LVN_OK);
    const uint64_t train = o->worker_bytes, val = validates ? o->val_worker_bytes : 0;
    if (o->workers > 0) { /* each loader has its own */
        need->decoding = (uint64_t)o->workers * (train + val);
    } else {
        need->decoding = train > val ? train : val;
    }
    need->total = need->weights + need->gradients + need->optimizer + need->saving + need->batches +
                  need->decoding + need->copies + need->lanes;
    return LVN_OK;
}

void lvni_trainer_memory_add_thread(lvni_trainer_memory_need *sum,
                                    const lvni_trainer_memory_need *more)
{
    const uint64_t sets = more->gradients - more->sum;
    sum->gradients += sets;
    sum->lanes += more->lanes;
    sum->batches += more->batches;
    sum->decoding += more->decoding;
    sum->total += sets + more->lanes + more->batches + more->decoding;
}

uint64_t lvni_trainer_memory_on_host(const lvni_trainer_memory_need *n, bool simulated)
{
    return simulated ? n->total : n->total > n->device ? n->total - n->device : 0;
}

void lvni_trainer_memory_print(const lvni_trainer_memory_need *n, int lanes, lvni_core_str *out)
{
    const double mib = 1.0 / (1 << 20);
    char text[LVNI_BYTES_TEXT];
    lvni_core_str_printf(out, "memory: about %s at peak", lvni_core_bytes_text(n->total, text));
    if (n->device_name != NULL) {
        lvni_core_str_printf(out, ", %s of it on %s", lvni_core_bytes_text(n->device, text),
                             n->device_name);
    }
    lvni_core_str_printf(out, " (MiB: weights %.1f, gradients %.1f, optimizer %.1f, ",
                         (double)n->weights * mib, (double)n->gradients * mib,
                         (double)n->optimizer * mib);
    lvni_core_str_printf(out, "%d lane%s %.1f, weights reordered %.1f, batches %.1f, ", lanes,
                         lvni_core_plural(lanes, "", "s"), (double)n->lanes * mib,
                         (double)n->copies * mib, (double)n->batches * mib);
    if (n->decoding > 0) {
        lvni_core_str_printf(out, "decoding %.1f, ", (double)n->decoding * mib);
    }
    lvni_core_str_printf(out, "saving %.1f)", (double)n->saving * mib);
}
