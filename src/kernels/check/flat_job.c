/* Memory, numbers and comparison of the checks of flat buffers (flat_job.h). */
#include "kernels/check/flat_job.h"

#include "core/alloc.h"
#include "core/rng.h"

#include <math.h>
#include <string.h>

/* ---- memory of the device ---- */

void *lvni_check_put(lvni_check_job *j, const void *host, size_t bytes, size_t shift)
{
    if (j->rooms == LVNI_CHECK_ROOMS) {
        lvn_error_set(LVN_ERR_INTERNAL, __FILE__, __LINE__,
                      "%s: more than %d buffers in a check; lvni_check_free_rooms comes between",
                      j->name, LVNI_CHECK_ROOMS);
        return NULL;
    }
    lvni_check_room *r = &j->room[j->rooms];
    if (lvni_check_room_make(j->device, host, bytes, shift, r) != LVN_OK) {
        return NULL;
    }
    j->rooms++;
    return lvni_check_room_part(r);
}

float *lvni_check_put_floats(lvni_check_job *j, const float *x, int64_t n)
{
    return lvni_check_put(j, x, (size_t)n * sizeof *x, j->shift);
}

lvn_status lvni_check_get(const lvni_check_job *j, const void *p, void *host)
{
    LVN_TRY(lvni_tensor_device_take_error());
    int i = 0;
    while (lvni_check_room_part(&j->room[i]) != p) {
        i++;
    }
    return lvni_check_room_read(&j->room[i], j->name, host);
}

/* ---- numbers ---- */

void lvni_check_draw(const lvni_check_job *j, uint32_t key, float *x)
{
    const lvni_core_rng rng = {.key = {{key, 7}}};
    for (int64_t i = 0; i <= j->n; i++) {
        x[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
    }
}

lvn_status lvni_check_fail_at(const lvni_check_job *j, const char *what, int64_t i, double have,
                              double want)
{
    LVN_FAIL(LVN_ERR_MISMATCH, "%s %lld of %lld is %.9g, must be %.9g (%zu bytes off a border)",
             what, (long long)i, (long long)j->n, have, want, j->shift);
}

lvn_status lvni_check_expect(lvni_check_job *j, const char *what, const float *have,
                             const double *want, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++) {
        const double h = (double)have[i], error = fabs(h - want[i]) / (1.0 + fabs(want[i]));
        if (h != want[i] && !(error <= tolerance)) {
            return lvni_check_fail_at(j, what, i, h, want[i]);
        }
        if (tolerance > 0.0 && h != want[i]) {
            j->worst = fmax(j->worst, error / tolerance);
        }
    }
    return LVN_OK;
}

lvn_status lvni_check_expect_same(const lvni_check_job *j, const char *what, const float *have,
                                  const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&have[i], &want[i], sizeof *have) != 0) {
            return lvni_check_fail_at(j, what, i, (double)have[i], (double)want[i]);
        }
    }
    return LVN_OK;
}

/* ---- the step block ---- */

const lvn_step_block lvni_check_step = {.given = {.number = {0.0, 0.3}},
                                        .phase[LVNI_CHECK_PHASE] = {.lr = 0.02,
                                                                    .decay = 0.75,
                                                                    .momentum = 0.85,
                                                                    .grad_scale = 0.25,
                                                                    .correction1 = 0.271,
                                                                    .correction2 = 0.002997,
                                                                    .t = 7.0,
                                                                    .updated = 1,
                                                                    .first = 1},
                                        .average = {.factor = 0.002, .updated = 1}};

lvn_status lvni_check_put_step(lvni_check_job *j, lvni_check_step_kind kind,
                               const lvn_step_block **out)
{
    *out = NULL;
    if (kind == LVNI_CHECK_NO_STEP) {
        return LVN_OK;
    }
    lvn_step_block block = lvni_check_step;
    block.phase[LVNI_CHECK_PHASE].updated = kind != LVNI_CHECK_UPDATES_NOT;
    block.average.updated = kind != LVNI_CHECK_UPDATES_NOT;
    block.average.copies = kind == LVNI_CHECK_COPIES;
    *out = lvni_check_put(j, &block, sizeof block, 0);
    return *out == NULL ? lvn_last_error()->code : LVN_OK;
}

/* ---- arrays of the host ---- */

lvn_status lvni_check_job_make(lvni_check_job *j)
{
    for (int i = 0; i < LVNI_CHECK_ARRAYS; i++) {
        j->x[i] = lvni_core_calloc(LVNI_TAG_KERNEL, LVNI_CHECK_MOST + 1, sizeof *j->x[i]);
        j->truth[i] = lvni_core_calloc(LVNI_TAG_KERNEL, LVNI_CHECK_MOST + 1, sizeof *j->truth[i]);
        LVN_TRY(j->x[i] == NULL || j->truth[i] == NULL ? LVN_ERR_MEMORY : LVN_OK);
    }
    j->back = lvni_core_calloc(LVNI_TAG_KERNEL, LVNI_CHECK_MOST + 1, sizeof *j->back);
    return j->back == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_check_free_rooms(lvni_check_job *j)
{
    while (j->rooms > 0) {
        lvni_check_room_free(&j->room[--j->rooms]);
    }
}

void lvni_check_job_free(lvni_check_job *j)
{
    lvni_check_free_rooms(j);
    for (int i = 0; i < LVNI_CHECK_ARRAYS; i++) {
        lvni_core_free(j->x[i]);
        lvni_core_free(j->truth[i]);
    }
    lvni_core_free(j->back);
}
