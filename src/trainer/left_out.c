/* Samples that could not be read (left_out.h): how many a run leaves out, what ranks exchange
 * about them, and what a checkpoint has of them. */
#include "trainer/left_out.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/hash.h"
#include "log/run_log.h"
#include "trainer/identity.h"
#include "trainer/loop_impl.h"
#include "trainer/state_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- over all ranks ---- */

/* The rank whose part of what all sent has this byte. */
static int rank_of(const size_t *size, size_t at)
{
    int rank = 0;
    for (; at >= size[rank]; rank++) {
        at -= size[rank];
    }
    return rank;
}

static lvn_status settle_all(lvni_data_unreadable *u, lvni_dist_comm *comm,
                             const lvni_core_str *mine, size_t *size, int64_t step)
{
    void *all = NULL;
    size_t at = 0, bytes = 0;
    LVN_TRY(lvni_dist_comm_all_gather_sized(comm, lvni_core_str_text(mine), mine->len, &all, size));
    for (int rank = 0; rank < lvni_dist_comm_world(comm); rank++) {
        bytes += size[rank];
    }
    lvn_status s = lvni_data_unreadable_settle(u, all, bytes, step, &at);
    lvni_core_free(all);
    const bool all_fail = s != LVN_OK && s != LVN_ERR_MEMORY && bytes > 0;
    if (all_fail && rank_of(size, at) != lvni_dist_comm_rank(comm)) {
        const lvn_error error = *lvn_last_error();
        s = lvni_dist_comm_barrier(comm); /* which that rank does not enter */
        s = s == LVN_OK ? lvn_error_adopt(&error) : s;
    }
    return s;
}

lvn_status lvni_trainer_unreadable_settle(lvni_data_unreadable *u, lvni_dist_comm *comm,
                                          int64_t step)
{
    lvni_core_str mine = {0};
    size_t *size = NULL, at;
    lvni_data_unreadable_pack(u, &mine);
    lvn_status s = lvni_core_str_status(&mine);
    if (s == LVN_OK && comm == NULL) {
        s = lvni_data_unreadable_settle(u, lvni_core_str_text(&mine), mine.len, step, &at);
    } else if (s == LVN_OK) {
        size = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lvni_dist_comm_world(comm), sizeof *size);
        s = size == NULL ? LVN_ERR_MEMORY : settle_all(u, comm, &mine, size, step);
    }
    lvni_core_free(size);
    lvni_core_str_free(&mine);
    return s;
}

/* ---- a run's ---- */

/* One bad photo is found when it is decoded, perhaps after days: no reason to end a run. A disk
 * that has gone away is. */
int64_t lvni_trainer_unreadable_limit(bool skips, bool photos, int64_t n)
{
    enum { FEW = 10, ONE_IN = 100 };
    if (skips) {
        return -1;
    }
    return !photos ? 0 : n / ONE_IN > FEW ? n / ONE_IN : FEW;
}

static int64_t limit_of(const lvni_trainer_options *o, int64_t n)
{
    return lvni_trainer_unreadable_limit(o->skip_unreadable, o->headers_read, n);
}

lvn_status lvni_trainer_unreadable_create(lvni_trainer *t)
{
    const lvni_trainer_options *o = &t->o;
    const lvni_data_unreadable_options train = {.dataset = o->train,
                                                .stream = o->stream,
                                                .n_streams = o->plan.n_streams,
                                                .what = "training",
                                                .limit = limit_of(o, o->plan.n_samples)};
    LVN_TRY(train.limit == 0 ? LVN_OK : lvni_data_unreadable_create(&train, &t->unreadable));
    if (o->val == NULL) {
        return LVN_OK;
    }
    const lvni_data_unreadable_options val = {
        .dataset = o->val, .what = "validation", .limit = limit_of(o, o->val->cls->length(o->val))};
    return val.limit == 0 ? LVN_OK : lvni_data_unreadable_create(&val, &t->val_unreadable);
}

void lvni_trainer_unreadable_report(const lvni_trainer *t, lvni_data_unreadable *u)
{
    lvni_core_str text = {0};
    if (t->o.plan.rank == 0 && u != NULL && lvni_data_unreadable_report(u, &text)) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
}

/* With on_error=skip: a run that learned nothing must not end as if it had. */
lvn_status lvni_trainer_unreadable_check_rest(const lvni_trainer *t)
{
    const bool none =
        t->unreadable != NULL && lvni_data_unreadable_count(t->unreadable) == t->o.plan.n_samples;
    if (none || t->at.samples_seen == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "none of the training samples read in %lld step%s (of %lld sample%s in all) could "
                 "be used: "
                 "see the warnings for their names",
                 (long long)t->at.step, lvni_core_plural(t->at.step, "", "s"),
                 (long long)t->o.plan.n_samples, lvni_core_plural(t->o.plan.n_samples, "", "s"));
    }
    return LVN_OK;
}

/* ---- in checkpoints: "data=IDENTITY", then the lines of data/unreadable.h ---- */

enum { IDENTITY = 64 };

/* Which samples the positions are of, and what their files hold: one that was replaced is to be
 * read again. */
static void print_identity(const lvni_trainer *t, bool val, char out[IDENTITY])
{
    uint64_t h = val ? lvni_trainer_identity_of_data(t->o.val) : t->checkpointing.data_identity;
    for (int i = 0; i < t->o.plan.n_streams && !val; i++) {
        h = lvni_core_hash(h, &t->checkpointing.stream_identity[i], sizeof h);
    }
    snprintf(out, IDENTITY, "data=%016llx files=%016llx\n", (unsigned long long)h,
             (unsigned long long)t->o.data_files);
}

static void print_set(const lvni_trainer *t, bool val, int64_t step, lvni_core_str *out)
{
    char identity[IDENTITY];
    lvni_core_str lines = {0};
    const lvni_data_unreadable *u = val ? t->val_unreadable : t->unreadable;
    if (u != NULL) {
        lvni_data_unreadable_print(u, step, &lines);
    }
    if (lines.len > 0) {
        print_identity(t, val, identity);
        lvni_core_str_append(out, identity);
        lvni_core_str_append(out, lvni_core_str_text(&lines));
    }
    out->failed = out->failed || lines.failed;
    lvni_core_str_free(&lines);
}

void lvni_trainer_unreadable_print(const lvni_trainer *t, lvni_core_str *train, lvni_core_str *val)
{
    print_set(t, false, t->at.step, train);
    print_set(t, true, INT64_MAX, val);
}

static lvn_status read_set(const lvni_trainer *t, const lvni_ckpt *ckpt, bool val)
{
    const char *key = val ? LVNI_STATE_VAL_UNREADABLE : LVNI_STATE_UNREADABLE;
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, key);
    lvni_data_unreadable *u = val ? t->val_unreadable : t->unreadable;
    char identity[IDENTITY] = "";
    if (u == NULL) {
        return LVN_OK;
    }
    if (text != NULL) {
        print_identity(t, val, identity);
    }
    const size_t n = strlen(identity);
    const bool same = text != NULL && strncmp(text, identity, n) == 0;
    const lvn_status s = lvni_data_unreadable_read(u, same ? text + n : "");
    if (s == LVN_ERR_CORRUPT) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its metadata %s is %.200s, not a list of samples",
                 ckpt->path, key, text);
    }
    return s;
}

lvn_status lvni_trainer_unreadable_read(const lvni_trainer *t, const lvni_ckpt *ckpt)
{
    LVN_TRY(read_set(t, ckpt, false));
    return read_set(t, ckpt, true);
}
