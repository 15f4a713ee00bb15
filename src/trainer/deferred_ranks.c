/* Steps that are read late, with several ranks (deferred.h): every rank knows all losses before it
 * decides, so that all decide the same, and all metrics when it reads the step. */
#include "trainer/deferred.h"

#include "kernels/flat.h"
#include "tensor/device.h"
#include "trainer/comm_thread.h"
#include "trainer/step_message.h"

#include <math.h>
#include <string.h>

lvni_trainer_deferred_place lvni_trainer_deferred_here(const lvni_trainer_deferred *l)
{
    return (lvni_trainer_deferred_place){l->next, l->phase};
}

int64_t lvni_trainer_deferred_micro_batches(const lvni_trainer_deferred *l)
{
    return l->plan->micro_batches;
}

/* Losses, weights, then a message. */
size_t lvni_trainer_deferred_numbers_room(const lvni_trainer_deferred *l)
{
    const int64_t most = lvni_plan_most_micro_batches(l->plan);
    return (size_t)most * 2 * sizeof(double) + lvni_trainer_message_limit(most);
}

/* Of the phase, in the block's copy. */
static double *landed(const lvni_trainer_deferred *l, lvni_trainer_deferred_place place)
{
    lvn_step_block *block = l->step[place.step].landing;
    return (double *)(void *)(block + 1) +
           (lvni_trainer_deferred_loss(l, place.phase, l->first) - l->numbers);
}

lvn_status lvni_trainer_deferred_send_numbers(const lvni_trainer_deferred *l,
                                              lvni_trainer_deferred_place place, void *stream)
{
    return lvni_tensor_device_backend(l->device)->copy(
        stream, landed(l, place), lvni_trainer_deferred_loss(l, place.phase, l->first),
        (size_t)l->n * (2 + LVNI_METRIC_SLOTS) * sizeof(double));
}

lvn_status lvni_trainer_deferred_write_numbers(lvni_trainer_deferred *l,
                                               lvni_trainer_deferred_place place, void *out,
                                               size_t *bytes)
{
    double *losses = landed(l, place), *weights = losses + l->n;
    const size_t numbers = (size_t)l->n * 2 * sizeof *losses;
    lvni_trainer_message_begin(&l->message);
    for (int64_t i = 0; i < l->n; i++) {
        lvni_nn_step *part = &l->step[place.step].part[(int64_t)place.phase * l->n + i];
        if (part->terms != NULL) { /* else it had no samples */
            lvni_nn_step_fold(part, weights + l->n + i * LVNI_METRIC_SLOTS);
        }
        weights[i] = isnan(part->weight) ? weights[i] : part->weight;
        LVN_TRY(lvni_trainer_message_add(&l->message, part, 0));
    }
    memcpy(out, losses, numbers);
    memcpy((char *)out + numbers, l->message.data, l->message.size);
    *bytes = numbers + l->message.size;
    return LVN_OK;
}

static lvn_status add_part(void *user, const lvni_trainer_message_part *part,
                           const lvni_nn_step *metrics)
{
    (void)part;
    return lvni_nn_metrics_add(user, metrics);
}

lvn_status lvni_trainer_deferred_read_numbers(lvni_trainer_deferred *l,
                                              lvni_trainer_deferred_place place, int rank,
                                              const void *message, size_t bytes, double *losses)
{
    lvni_nn_step *all = &l->step[place.step].all[place.phase];
    const lvni_plan_range of = lvni_plan_micro_batches_of(l->plan, rank);
    const size_t n = (size_t)of.count * sizeof *losses;
    const char *weights = (const char *)message + n;
    if (bytes < 2 * n) {
        LVN_FAIL(LVN_ERR_CORRUPT, "rank %d's message of %zu bytes has no %lld losses and weights",
                 rank, bytes, (long long)of.count);
    }
    memcpy(losses + of.start, message, n);
    memcpy(losses + l->plan->micro_batches + of.start, weights, n);
    return lvni_trainer_message_read(weights + n, bytes - 2 * n, NULL, add_part, all);
}

void lvni_trainer_deferred_expect(lvni_trainer_deferred *l, lvni_trainer_deferred_place place,
                                  lvni_trainer_comm_thread *thread, uint64_t job)
{
    l->thread = thread;
    l->step[place.step].job = job;
}

/* The sums are the device's, as with one rank. */
lvn_status lvni_trainer_deferred_receive_losses(const lvni_trainer_deferred *l, void *stream,
                                                const double *losses)
{
    return lvni_tensor_device_backend(l->device)->copy(
        stream, l->losses, losses, (size_t)l->plan->micro_batches * 2 * sizeof *losses);
}

lvn_status lvni_trainer_deferred_exchanged(const lvni_trainer_deferred *l, int step)
{
    const uint64_t job = l->step[step].job;
    return job == 0 ? LVN_OK : lvni_trainer_comm_thread_wait(l->thread, job);
}
