/* Keeping a run: the state is copied between two steps, and a thread of its own writes the copy
 * (checkpoint, exported models) while training goes on. One save is active at a time; what failed
 * is reported at the next step or save, and at the end of the training. Called by checkpointing.c.
 */
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/str.h"
#include "core/thread.h"
#include "core/vfs.h"
#include "tensor/device.h"
#include "trainer/identity.h"
#include "trainer/logging_impl.h"
#include "trainer/loop_impl.h"
#include "trainer/snapshot.h"
#include "trainer/state_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* What is neither tensor nor position, as text. */
typedef struct texts {
    lvni_core_str last, best, metrics, run, machine, missed, pins, unreadable, val_unreadable;
    /* the list of those kept; the path of the new one, and, one per line, of those that leave */
    lvni_core_str kept, named, leaving;
} texts;

struct lvni_trainer_saver {
    /* the thread reads what stays as it is: options, names, shapes, places */
    const lvni_trainer *trainer;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t go, done;
    _Atomic bool hurry; /* the trainer's thread waits for it */
    bool busy, quit;    /* under the lock; what follows belongs to the thread while it is busy */
    lvni_trainer_state_arrays copy;
    lvni_trainer_state_entries entries; /* of the copy */
    texts texts;
    char schedule[192], scaler[128], layout[32], plateau[256], early[256], validated[24];
    char clock[96];
    char best_by[LVNI_STATE_BEST_BY_TEXT];
    lvni_ckpt_position at;
    bool best, written, shown; /* shown: to the hook */
    uint64_t begin_ns, took_ns;
    lvn_status status;
    lvn_error error;
};

static void texts_clear(texts *x)
{
    lvni_core_str_free(&x->last);
    lvni_core_str_free(&x->best);
    lvni_core_str_free(&x->metrics);
    lvni_core_str_free(&x->run);
    lvni_core_str_free(&x->machine);
    lvni_core_str_free(&x->missed);
    lvni_core_str_free(&x->pins);
    lvni_core_str_free(&x->unreadable);
    lvni_core_str_free(&x->val_unreadable);
    lvni_core_str_free(&x->kept);
    lvni_core_str_free(&x->named);
    lvni_core_str_free(&x->leaving);
    *x = (texts){0};
}

static lvn_status write_kept(const lvni_trainer *t, texts *x)
{
    const lvni_trainer_kept *l = &t->checkpointing.files;
    const lvni_trainer_kept_file *named = lvni_trainer_kept_new(l);
    lvni_trainer_kept_print(l, &x->kept);
    if (named != NULL) {
        lvni_trainer_choose_path(t, named->name, &x->named);
    }
    for (int64_t i = 0; i < l->n; i++) {
        if (l->file[i].state == LVNI_KEPT_LEAVES) {
            lvni_trainer_choose_path(t, l->file[i].name, &x->leaving);
            lvni_core_str_char(&x->leaving, '\n');
        }
    }
    LVN_TRY(lvni_core_str_status(&x->kept));
    LVN_TRY(lvni_core_str_status(&x->named));
    return lvni_core_str_status(&x->leaving);
}

/* path NULL: the run directory's last and best, and those that are kept */
static lvn_status write_texts(const lvni_trainer *t, const char *path, texts *x)
{
    texts_clear(x);
    if (path != NULL) {
        lvni_core_str_append(&x->last, path);
    } else {
        lvni_core_str_printf(&x->last, "%s/checkpoints/last.safetensors", t->o.out);
        lvni_core_str_printf(&x->best, "%s/checkpoints/best.safetensors", t->o.out);
        LVN_TRY(write_kept(t, x));
    }
    lvni_trainer_identity_print(t, &x->run, &x->machine);
    lvni_trainer_state_missed_print(t, &x->missed);
    lvni_core_pin_entries_print(t->o.plan.pins.entries, " ", &x->pins);
    lvni_trainer_unreadable_print(t, &x->unreadable, &x->val_unreadable);
    LVN_TRY(lvni_core_str_status(&x->missed));
    LVN_TRY(lvni_core_str_status(&x->pins));
    LVN_TRY(lvni_core_str_status(&x->unreadable));
    LVN_TRY(lvni_core_str_status(&x->val_unreadable));
    LVN_TRY(lvni_trainer_epoch_sums_write(&t->report.epoch_sum, &x->metrics));
    LVN_TRY(lvni_core_str_status(&x->last));
    LVN_TRY(lvni_core_str_status(&x->best));
    LVN_TRY(lvni_core_str_status(&x->run));
    return lvni_core_str_status(&x->machine);
}

/* ---- in the thread ---- */

/* What leaves does so only when what comes is durable. */
static lvn_status remove_leaving(texts *x)
{
    char *from = x->leaving.data, *end;
    if (x->leaving.len == 0) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_folder_sync(lvni_core_str_text(&x->last)));
    for (; *from != '\0'; from = end + 1) {
        end = strchr(from, '\n');
        *end = '\0';
        LVN_TRY(lvni_core_file_remove(from));
    }
    return LVN_OK;
}

static lvn_status link_names(lvni_trainer_saver *s)
{
    texts *x = &s->texts;
    const char *last = lvni_core_str_text(&x->last);
    LVN_TRY(s->best ? lvni_ckpt_link(last, lvni_core_str_text(&x->best)) : LVN_OK);
    LVN_TRY(x->named.len > 0 ? lvni_ckpt_link(last, lvni_core_str_text(&x->named)) : LVN_OK);
    return remove_leaving(x);
}

static lvn_status write_checkpoint(lvni_trainer_saver *s)
{
    const texts *x = &s->texts;
    const lvni_trainer_options *o = &s->trainer->o;
    lvni_ckpt_st_meta extra[18] = {
        {.key = LVNI_STATE_EPOCH_METRICS, .value = lvni_core_str_text(&x->metrics)},
        {.key = LVNI_IDENTITY_RUN, .value = lvni_core_str_text(&x->run)},
        {.key = LVNI_IDENTITY_MACHINE, .value = lvni_core_str_text(&x->machine)},
        {.key = LVNI_IDENTITY_LAYOUT, .value = s->layout}};
    int64_t n = 4;
    if (x->missed.len > 0) {
        extra[n++] =
            (lvni_ckpt_st_meta){.key = LVNI_STATE_MISSED, .value = lvni_core_str_text(&x->missed)};
    }
    if (s->plateau[0] != '\0') {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_STATE_PLATEAU, .value = s->plateau};
    }
    if (s->early[0] != '\0') {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_STATE_EARLY, .value = s->early};
    }
    if (s->validated[0] != '\0') {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_STATE_VALIDATED, .value = s->validated};
    }
    if (s->clock[0] != '\0') {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_STATE_CLOCK, .value = s->clock};
    }
    if (s->best_by[0] != '\0') {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_STATE_BEST_BY, .value = s->best_by};
    }
    if (x->kept.len > 0) {
        extra[n++] =
            (lvni_ckpt_st_meta){.key = LVNI_STATE_KEPT, .value = lvni_core_str_text(&x->kept)};
    }
    if (x->pins.len > 0) {
        extra[n++] =
            (lvni_ckpt_st_meta){.key = LVNI_IDENTITY_PINS, .value = lvni_core_str_text(&x->pins)};
    }
    if (x->unreadable.len > 0) {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_STATE_UNREADABLE,
                                         .value = lvni_core_str_text(&x->unreadable)};
    }
    if (x->val_unreadable.len > 0) {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_STATE_VAL_UNREADABLE,
                                         .value = lvni_core_str_text(&x->val_unreadable)};
    }
    char files[24];
    lvni_trainer_identity_print_files(s->trainer, files);
    if (files[0] != '\0') {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_IDENTITY_FILES, .value = files};
    }
    if (o->run_id != NULL) {
        extra[n++] = (lvni_ckpt_st_meta){.key = LVNI_CKPT_RUN_ID, .value = o->run_id};
    }
    if (o->recipe.key != NULL) {
        extra[n++] = o->recipe;
    }
    if (o->card.key != NULL) {
        extra[n++] = o->card;
    }
    const lvni_ckpt_content content = {.at = s->at,
                                       .config = s->trainer->o.config_json,
                                       .schedule = s->schedule,
                                       .scaler = s->scaler[0] == '\0' ? NULL : s->scaler,
                                       .extra = extra,
                                       .n_extra = n,
                                       .tensors = s->entries.tensor,
                                       .n_tensors = s->entries.n};
    LVN_TRY(lvni_ckpt_save(lvni_core_str_text(&x->last), &content));
    s->written = true;
    return link_names(s);
}

static lvn_status write_all(lvni_trainer_saver *s)
{
    const lvni_trainer_options *o = &s->trainer->o;
    LVN_TRY(o->out != NULL ? write_checkpoint(s) : LVN_OK);
    if (o->export_model == NULL) {
        return LVN_OK;
    }
    const float *values = s->copy.average != NULL && o->use_ema ? s->copy.average : s->copy.values;
    LVN_TRY(o->export_model(o->user, "last", values, s->at.step));
    return s->best ? o->export_model(o->user, "best", values, s->at.step) : LVN_OK;
}

static void *saver_main(void *argument)
{
    lvni_trainer_saver *s = argument;
    lvni_core_thread_name("save", -1);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->quit) {
            pthread_cond_wait(&s->go, &s->lock);
        }
        if (!s->busy) {
            break;
        }
        pthread_mutex_unlock(&s->lock);
        lvni_core_thread_pace(&s->hurry);
        const uint64_t before = lvn_last_error()->serial;
        s->status = write_all(s);
        s->took_ns = lvni_core_now_ns() - s->begin_ns;
        if (s->status != LVN_OK) {
            s->error = *lvni_core_error_since(before);
        }
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_signal(&s->done);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- in the trainer's thread ---- */

static lvn_status make_copies(lvni_trainer_saver *s)
{
    const lvni_trainer *t = s->trainer;
    const lvni_optim *optim = t->engine->optim;
    const size_t values = (size_t)t->o.model->n_values * sizeof(float);
    s->copy.values = lvni_core_alloc(LVNI_TAG_CKPT, values);
    bool good = s->copy.values != NULL;
    s->copy.held = (lvni_optim_range){0, optim->n};
    for (int k = 0; k < optim->n_slots && good; k++) {
        const int64_t whole = lvni_optim_slot_length(optim->options, optim->n, optim->parameter,
                                                     optim->n_parameters, k);
        s->copy.slot[k] = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)whole * sizeof(float));
        good = s->copy.slot[k] != NULL;
    }
    if (good && t->engine->ema != NULL) {
        s->copy.average = lvni_core_alloc(LVNI_TAG_CKPT, values);
        good = s->copy.average != NULL;
    }
    return good ? lvni_trainer_state_list(t, &s->copy, &s->entries) : LVN_ERR_MEMORY;
}

static lvn_status create(const lvni_trainer *t, bool thread, lvni_trainer_saver **out)
{
    lvni_trainer_saver *s = LVNI_NEW(LVNI_TAG_CKPT, lvni_trainer_saver);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->trainer = t;
    lvni_trainer_identity_print_layout(t, s->layout);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->go, NULL);
    pthread_cond_init(&s->done, NULL);
    lvn_status status;
    LVNI_TRY_DONE(status, make_copies(s));
    if (thread && lvni_core_thread_start(&s->thread, saver_main, s) != 0) {
        status = lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                               "no memory to start the thread that writes checkpoints");
        goto done;
    }
    s->has_thread = thread;
    *out = s;
    return LVN_OK;
done:
    lvni_trainer_saver_destroy(s);
    return status;
}

void lvni_trainer_saver_destroy(lvni_trainer_saver *s)
{
    if (s == NULL) {
        return;
    }
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->quit = true;
        s->hurry = true;
        pthread_cond_signal(&s->go);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->go);
    pthread_mutex_destroy(&s->lock);
    lvni_trainer_state_entries_free(&s->entries);
    lvni_core_free(s->copy.values);
    lvni_core_free(s->copy.average);
    for (int k = 0; k < LVNI_OPTIM_SLOTS; k++) {
        lvni_core_free(s->copy.slot[k]);
    }
    texts_clear(&s->texts);
    lvni_core_free(s);
}

static lvn_status copy_state(lvni_trainer_saver *s)
{
    const lvni_trainer_state_arrays now = lvni_trainer_state_of(s->trainer);
    const size_t values = (size_t)s->trainer->o.model->n_values * sizeof(float);
    const lvni_optim *optim = s->trainer->engine->optim;
    LVN_TRY(lvni_trainer_snapshot_copy(s->copy.values, now.values, values));
    /* with a sharded stage lvni_trainer_save_gather has filled them */
    for (int k = 0; k < optim->n_slots && s->trainer->engine->sharded == NULL; k++) {
        const size_t bytes = (size_t)optim->slot_length[k] * sizeof(float);
        LVN_TRY(bytes == 0 ? LVN_OK
                           : lvni_trainer_snapshot_copy(s->copy.slot[k], now.slot[k], bytes));
    }
    return now.average == NULL ? LVN_OK
                               : lvni_trainer_snapshot_copy(s->copy.average, now.average, values);
}

/* What the run has decided by metrics. */
static void print_decisions(lvni_trainer_saver *s)
{
    const lvni_trainer *t = s->trainer;
    lvni_trainer_state_plateau_print(t, s->plateau, sizeof s->plateau);
    lvni_trainer_state_early_print(t, s->early, sizeof s->early);
    s->validated[0] = '\0';
    lvni_trainer_choose_print_monitor(t, s->best_by, sizeof s->best_by);
    if (t->o.val_every_n_batches > 0) {
        snprintf(s->validated, sizeof s->validated, "%lld", (long long)t->validated_step);
    }
}

/* What stands beside the texts. */
static lvn_status take(lvni_trainer_saver *s)
{
    LVN_TRY(copy_state(s));
    lvni_trainer_state_updates_print(s->trainer, s->schedule, sizeof s->schedule);
    print_decisions(s);
    lvni_trainer_clock_print(s->trainer, s->clock, sizeof s->clock);
    lvni_trainer_scaler_print(&s->trainer->engine->scaler, s->scaler, sizeof s->scaler);
    s->at = s->trainer->at;
    return LVN_OK;
}

lvn_status lvni_trainer_save_at(const lvni_trainer *t, const char *path)
{
    lvni_trainer_saver *s;
    LVN_TRY(create(t, false, &s));
    lvn_status status;
    LVNI_TRY_DONE(status, write_texts(t, path, &s->texts));
    LVNI_TRY_DONE(status, take(s));
    status = write_checkpoint(s);
done:
    lvni_trainer_saver_destroy(s);
    return status;
}

static bool writes(const lvni_trainer *t)
{
    return t->o.out != NULL || t->o.export_model != NULL;
}

static void wait_until_idle(lvni_trainer_saver *s)
{
    pthread_mutex_lock(&s->lock);
    s->hurry = true;
    while (s->busy) {
        pthread_cond_wait(&s->done, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Whether the save before has failed is found out later, by rank 0 alone. */
lvn_status lvni_trainer_save_gather(lvni_trainer *t)
{
    const lvni_optim *optim = t->engine->optim;
    if (t->engine->sharded == NULL || t->checkpointing.gathered_step == t->at.step) {
        return LVN_OK;
    }
    lvni_trainer_saver **saver = &t->checkpointing.saver;
    if (t->o.plan.rank == 0 && writes(t)) {
        LVN_TRY(*saver == NULL ? create(t, true, saver) : LVN_OK);
        wait_until_idle(*saver);
    }
    t->checkpointing.gathered_step = -1;
    for (int k = 0; k < optim->n_slots; k++) {
        LVN_TRY(lvni_trainer_sharded_gather(t->engine->sharded, optim->slot[k], 0, optim->n,
                                            *saver == NULL ? NULL : (*saver)->copy.slot[k]));
    }
    t->checkpointing.gathered_step = t->at.step;
    return LVN_OK;
}

lvn_status lvni_trainer_save_start(lvni_trainer *t, bool best)
{
    if (!writes(t)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_trainer_save_wait(t));
    LVN_TRY(t->checkpointing.saver == NULL ? create(t, true, &t->checkpointing.saver) : LVN_OK);
    lvni_trainer_saver *s = t->checkpointing.saver;
    s->begin_ns = lvni_core_now_ns();
    LVN_TRY(lvni_trainer_choose_begin_save(t));
    LVN_TRY(t->o.out == NULL ? LVN_OK : write_texts(t, NULL, &s->texts));
    LVN_TRY(take(s));
    s->best = best;
    s->written = s->shown = false;
    pthread_mutex_lock(&s->lock);
    s->hurry = false;
    s->busy = true;
    pthread_cond_signal(&s->go);
    pthread_mutex_unlock(&s->lock);
    return lvni_trainer_logging_histograms(&t->report, s->at.step, s->copy.values);
}

/* What a save that is done has brought; an error is reported once. */
static lvn_status collect(lvni_trainer *t)
{
    lvni_trainer_saver *s = t->checkpointing.saver;
    t->checkpointing.saved_step = s->written ? s->at.step : t->checkpointing.saved_step;
    const lvn_status status = s->status;
    s->status = LVN_OK;
    if (s->written && !s->shown && status == LVN_OK) {
        lvni_trainer_kept_commit(&t->checkpointing.files);
    }
    if (s->written && !s->shown && t->o.hooks.checkpoint != NULL) {
        t->o.hooks.checkpoint(t->o.hooks.user, s->at.step);
    }
    s->shown = true;
    t->checkpointing.longest_ns =
        s->took_ns > t->checkpointing.longest_ns ? s->took_ns : t->checkpointing.longest_ns;
    return status == LVN_OK ? LVN_OK
                            : lvni_core_error_collect(status, &s->error, "the checkpoint's thread");
}

lvn_status lvni_trainer_save_poll(lvni_trainer *t)
{
    if (t->checkpointing.saver == NULL) {
        return LVN_OK;
    }
    pthread_mutex_lock(&t->checkpointing.saver->lock);
    const bool busy = t->checkpointing.saver->busy;
    pthread_mutex_unlock(&t->checkpointing.saver->lock);
    return busy ? LVN_OK : collect(t);
}

lvn_status lvni_trainer_save_wait(lvni_trainer *t)
{
    if (t->checkpointing.saver == NULL) {
        return LVN_OK;
    }
    wait_until_idle(t->checkpointing.saver);
    return collect(t);
}
