/* Making and taking apart a trainer (trainer.h). */
#include "trainer/loop_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "trainer/identity.h"

#include <math.h>
#include <string.h>

static void engine_options(const lvni_trainer_options *o, lvni_trainer_engine_options *out)
{
    *out = (lvni_trainer_engine_options){.model = o->model,
                                         .plan = o->plan,
                                         .optim = o->optim,
                                         .rules = o->rules,
                                         .schedule = o->schedule,
                                         .plateau = o->plateau,
                                         .weight_decay = o->weight_decay,
                                         .ema = o->ema,
                                         .precision = o->precision,
                                         .gradient_clip_val = o->gradient_clip_val,
                                         .detect_anomaly = o->detect_anomaly,
                                         .on_bad_batch = o->on_bad_batch,
                                         .seed = o->seed,
                                         .graph = o->graph,
                                         .comm = o->comm,
                                         .bucket_bytes = o->bucket_bytes,
                                         .sharded_stage = o->sharded_stage,
                                         .units = o->units,
                                         .signal_in_message = o->control == NULL};
    memcpy(out->phase, o->phase, sizeof out->phase);
}

lvn_status lvni_trainer_check(const lvni_trainer_options *options)
{
    lvni_trainer_engine_options engine;
    engine_options(options, &engine);
    return lvni_trainer_engine_check(&engine);
}

lvn_status lvni_trainer_create(const lvni_trainer_options *options, lvni_trainer **out)
{
    *out = NULL;
    lvni_trainer *t = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer);
    if (t == NULL) {
        return LVN_ERR_MEMORY;
    }
    t->o = *options;
    t->report = (lvni_trainer_logging){.o = &t->o, .start_ns = lvni_core_now_ns()};
    t->at = (lvni_ckpt_position){.best_score = (double)NAN, .best_step = -1};
    t->checkpointing.saved_step = t->checkpointing.gathered_step = -1;
    t->validated_step = -1;
    t->validated_ns = lvni_core_now_ns();
    lvni_trainer_early_begin(&t->early);
    t->checkpointing.data_identity = lvni_trainer_identity_of_data(options->train);
    for (int i = 0; i < options->plan.n_streams; i++) {
        t->checkpointing.stream_identity[i] =
            lvni_trainer_identity_of_data(options->stream[i].dataset);
    }
    lvni_trainer_engine_options engine;
    engine_options(options, &engine);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_trainer_engine_create(&engine, &t->engine));
    LVNI_TRY_DONE(s, lvni_trainer_unreadable_create(t));
    *out = t;
    return LVN_OK;
done:
    lvni_trainer_destroy(t);
    return s;
}

void lvni_trainer_show_average(const lvni_trainer *t, bool average)
{
    if (t->engine->ema != NULL && t->o.use_ema) {
        lvni_nn_model_show(t->o.model, average ? t->engine->ema->value : NULL);
    }
}

void lvni_trainer_destroy(lvni_trainer *t)
{
    if (t == NULL) {
        return;
    }
    lvni_trainer_saver_destroy(t->checkpointing.saver); /* first: it reads model and optimizer */
    lvni_trainer_logging_close(&t->report);
    lvni_trainer_engine_destroy(t->engine); /* it may hold batches of the loader */
    lvni_data_loader_destroy(t->loader);
    lvni_data_loader_destroy(t->val_loader);
    lvni_data_unreadable_destroy(t->unreadable);
    lvni_data_unreadable_destroy(t->val_unreadable);
    lvni_trainer_kept_free(&t->checkpointing.files);
    lvni_core_free(t);
}
