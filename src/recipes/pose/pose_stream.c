/* The stream of clips of a training (pose_stream.h). */
#include "recipes/pose/pose_stream.h"

#include "core/error.h"
#include "recipes/pose/pose_clip_augment.h"
#include "recipes/pose/pose_context.h"

#include <stdio.h>
#include <string.h>

enum { LEAST_STEPS = 10 };
#define LOSSES "model.losses_to_use"
#define STEPS "steps_per_epoch"

bool lvni_pose_uses_clips(const lvni_pose_settings *s)
{
    for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
        if (s->unsupervised[i].used) {
            return true;
        }
    }
    return false;
}

/* What the length of clips is given by. */
typedef struct given {
    const char *key;
    int64_t frames;  /* its value */
    int64_t without; /* frames of each clip that have no result */
} given;

static given given_of(const lvni_pose_settings *s)
{
    return s->type == LVNI_POSE_CONTEXT
               ? (given){"dali.context.train.batch_size", s->context_clip, LVNI_POSE_WINDOW - 1}
               : (given){"dali.base.train.sequence_length", s->clip, 0};
}

/* Frames of a step: as many results as so many clips of one device have, dealt out over the micro-
 * batches. */
static lvn_status count_frames(const given *g, const lvni_plan *plan, int64_t *batch)
{
    const int64_t usable = plan->accumulate * (g->frames - g->without), m = plan->micro_batches,
                  least = (m + plan->accumulate - 1) / plan->accumulate + g->without;
    if (usable < m) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s=%lld leaves %lld frame%s with a result in a step, which cannot be dealt out "
                 "to %lld micro-batches: at least one each; smallest that works: %s=%lld (or "
                 "micro_batches=%lld)",
                 g->key, (long long)g->frames, (long long)usable, lvni_core_plural(usable, "", "s"),
                 (long long)m, g->key, (long long)least, (long long)(usable > 1 ? usable : 1));
    }
    *batch = usable + m * g->without;
    return LVN_OK;
}

/* Steps between frames, of which the largest clip has none. */
static lvn_status check_terms(const lvni_pose_settings *s, const given *g, const lvni_plan *plan,
                              int64_t batch)
{
    const int64_t m = plan->micro_batches, longest = (batch + m - 1) / m;
    for (int i = LVNI_POSE_TEMPORAL; i < LVNI_POSE_UNSUPERVISED; i++) {
        if (s->unsupervised[i].used && longest - g->without < 2) {
            LVN_FAIL(LVN_ERR_USAGE,
                     LOSSES " %s compares neighbours in a clip, and %s=%lld on %lld micro-batch%s "
                            "makes clips of one frame with a result: give at least %lld, or fewer "
                            "micro_batches",
                     lvni_pose_unsupervised_names[i], g->key, (long long)g->frames, (long long)m,
                     lvni_core_plural(m, "", "es"),
                     (long long)(m / plan->accumulate + 1 + g->without));
        }
    }
    return LVN_OK;
}

/* Whatever the devices: of the effective batch alone. */
static int64_t count_own(const lvni_core_config *c, int64_t samples, const lvni_plan *plan)
{
    const int64_t e = plan->effective_batch, a = plan->accumulate, own = (samples + e - 1) / e;
    const lvni_run_limit limit = lvni_run_read_limit(c, "limit_train_batches");
    if (limit.batches > 0) {
        return (limit.batches + a - 1) / a;
    }
    return own > LEAST_STEPS ? own : LEAST_STEPS;
}

/* With a number of steps every one has a full batch of labelled frames. */
static lvn_status set_steps(lvni_core_config *c, int64_t steps)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)steps);
    return lvni_core_config_set(c, STEPS, text, "frames without labels");
}

/* The effective batch does not depend on steps_per_epoch, and a part of an epoch
 * (limit_train_batches=0.1) is one of the steps that it gets here. */
static lvn_status plan_steps(lvni_core_config *c, int64_t samples, const lvni_run_rank *rank,
                             lvni_plan *plan)
{
    int64_t steps;
    if (strchr(lvni_core_config_str(c, "accumulate_grad_batches"), ':') != NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 LOSSES ": accumulate_grad_batches has to be one number where a step has frames "
                        "without labels; it changes with the epoch");
    }
    if (!lvni_core_config_is_set(c, STEPS)) {
        LVN_TRY(set_steps(c, INT32_MAX));
        LVN_TRY(lvni_run_count_steps(c, samples, rank, plan, &steps));
        LVN_TRY(set_steps(c, count_own(c, samples, plan)));
    }
    return lvni_run_count_steps(c, samples, rank, plan, &steps);
}

/* on_error=stop, where it is given: one damaged video among others is left out else. */
static bool stops_at_damage(const lvni_core_config *c)
{
    static const char key[] = "on_error";
    return lvni_core_config_layer(c, key) != LVNI_LAYER_DEFAULT &&
           strcmp(lvni_core_config_str(c, key), "stop") == 0;
}

lvn_status lvni_pose_stream_open(lvni_core_config *c, const lvni_pose_settings *s,
                                 const lvni_run_rank *rank, int64_t samples, lvni_pose_stream *out)
{
    lvni_plan plan;
    int64_t batch = 0;
    const given g = given_of(s);
    *out = (lvni_pose_stream){.stream = {.dataset = NULL}};
    if (!lvni_pose_uses_clips(s)) {
        return LVN_OK;
    }
    LVN_TRY(plan_steps(c, samples, rank, &plan));
    LVN_TRY(count_frames(&g, &plan, &batch));
    LVN_TRY(check_terms(s, &g, &plan, batch));
    const lvni_pose_clips_options o = {
        .folder = s->video_dir,
        .dir = lvni_core_config_bool(c, "resume") ? lvni_core_config_str(c, "out") : NULL,
        .height = s->height,
        .width = s->width,
        .seed = s->clip_seed,
        .augments = lvni_pose_clip_augments(s->imgaug),
        .batch = batch,
        .micro_batches = plan.micro_batches,
        .leads = rank == NULL || rank->rank == 0,
        .stops = stops_at_damage(c)};
    lvn_dataset *dataset;
    LVN_TRY(lvni_pose_clips_open(&o, &dataset));
    lvni_pose_clips_describe(dataset, &out->info);
    out->stream = (lvn_stream){.name = LVNI_POSE_CLIPS,
                               .dataset = dataset,
                               .batch = batch,
                               .order = LVN_ORDER_SEQUENCE,
                               .rule = LVN_STREAM_CYCLE};
    return LVN_OK;
}

void lvni_pose_stream_describe(const lvni_pose_stream *s, lvni_core_str *out)
{
    const lvni_pose_clips_info *i = &s->info;
    if (s->stream.dataset == NULL) {
        return;
    }
    lvni_core_str_printf(out, "clips of %lld", (long long)i->longest);
    if (i->shortest != i->longest) {
        lvni_core_str_printf(out, " or %lld", (long long)i->shortest);
    }
    lvni_core_str_printf(out, " frame%s, %lld in %d video%s", lvni_core_plural(i->longest, "", "s"),
                         (long long)i->clips, i->videos, lvni_core_plural(i->videos, "", "s"));
}

void lvni_pose_stream_close(lvni_pose_stream *s)
{
    lvn_dataset_destroy(s->stream.dataset);
    s->stream.dataset = NULL;
}
