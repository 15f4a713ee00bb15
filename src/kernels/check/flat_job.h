/* What the checks of flat buffers share (check_flat.c): memory of the device with guards, numbers
 * to fill it with, a step block, and comparison. */
#ifndef LEVIN_KERNELS_CHECK_FLAT_JOB_H
#define LEVIN_KERNELS_CHECK_FLAT_JOB_H

#include "kernels/check/check.h"

enum { LVNI_CHECK_MOST = 20003, LVNI_CHECK_ARRAYS = 5, LVNI_CHECK_ROOMS = 12 };
enum { LVNI_CHECK_PHASE = 2 }; /* of the step block */
#define LVNI_CHECK_CLOSE 2e-6  /* f32 by a formula of several steps */

typedef enum lvni_check_step_kind {
    LVNI_CHECK_NO_STEP,
    LVNI_CHECK_UPDATES,
    LVNI_CHECK_UPDATES_NOT,
    LVNI_CHECK_STEP_KINDS,
    LVNI_CHECK_COPIES = LVNI_CHECK_STEP_KINDS /* of averages alone */
} lvni_check_step_kind;

/* One run of a check. */
typedef struct lvni_check_job {
    const char *name;
    lvni_tensor_device *device;
    int64_t n;
    size_t shift;                       /* bytes that buffers lie behind a border */
    float *x[LVNI_CHECK_ARRAYS], *back; /* LVNI_CHECK_MOST + 1 numbers each */
    double *truth[LVNI_CHECK_ARRAYS];
    lvni_check_room room[LVNI_CHECK_ROOMS]; /* given up after the run */
    int rooms;
    double worst;
} lvni_check_job;

lvn_status lvni_check_job_make(lvni_check_job *j);
void lvni_check_job_free(lvni_check_job *j);

/* An address of the device that holds these bytes (NULL: NaN); NULL with an error. */
void *lvni_check_put(lvni_check_job *j, const void *host, size_t bytes, size_t shift);
float *lvni_check_put_floats(lvni_check_job *j, const float *x, int64_t n);
/* *out: a block in memory of the device, or NULL for LVNI_CHECK_NO_STEP. Its phase
 * LVNI_CHECK_PHASE and its average are those of lvni_check_step. */
lvn_status lvni_check_put_step(lvni_check_job *j, lvni_check_step_kind kind,
                               const lvn_step_block **out);
extern const lvn_step_block lvni_check_step;
/* After what was submitted; p is what was put. */
lvn_status lvni_check_get(const lvni_check_job *j, const void *p, void *host);
void lvni_check_free_rooms(lvni_check_job *j);
#define LVNI_CHECK_NEED(pointer)                                                                   \
    do {                                                                                           \
        if ((pointer) == NULL) {                                                                   \
            return lvn_last_error()->code;                                                         \
        }                                                                                          \
    } while (0)

/* n + 1 normal numbers. */
void lvni_check_draw(const lvni_check_job *j, uint32_t key, float *x);
/* LVN_ERR_MISMATCH, with the place. */
lvn_status lvni_check_fail_at(const lvni_check_job *j, const char *what, int64_t i, double have,
                              double want);
/* Relative to 1 + |want|; 0: exactly. */
lvn_status lvni_check_expect(lvni_check_job *j, const char *what, const float *have,
                             const double *want, int64_t n, double tolerance);
/* To the bit. */
lvn_status lvni_check_expect_same(const lvni_check_job *j, const char *what, const float *have,
                                  const float *want, int64_t n);

/* Of its block; NULL: there is none. An address of the device, not read. */
static inline const lvn_step_phase *lvni_check_phase_of(const lvn_step_block *on_device)
{
    return on_device == NULL ? NULL : &on_device->phase[LVNI_CHECK_PHASE];
}

/* Of check_optim.c. */
lvn_status lvni_check_sgd(lvni_check_job *j);
lvn_status lvni_check_adamw(lvni_check_job *j);
lvn_status lvni_check_rmsprop(lvni_check_job *j);
lvn_status lvni_check_lion(lvni_check_job *j);
lvn_status lvni_check_lamb_moments(lvni_check_job *j);
lvn_status lvni_check_lamb(lvni_check_job *j);

/* Of check_adafactor.c. */
lvn_status lvni_check_adafactor(lvni_check_job *j);

/* Of check_step.c. */
lvn_status lvni_check_number(lvni_check_job *j);
lvn_status lvni_check_seed(lvni_check_job *j);
lvn_status lvni_check_decide(lvni_check_job *j);
lvn_status lvni_check_finish(lvni_check_job *j);
lvn_status lvni_check_trust(lvni_check_job *j);

/* Of check_append.c. */
lvn_status lvni_check_append(lvni_check_job *j);

#endif
