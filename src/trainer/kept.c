/* The list of checkpoints that are kept (kept.h). */
#include "trainer/kept.h"

#include "core/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double rank_of(double score)
{
    return isnan(score) ? -(double)INFINITY : score;
}

/* Is it one of those that compete? */
static bool counts(const lvni_trainer_kept_file *f)
{
    return f->state == LVNI_KEPT_THERE || f->state == LVNI_KEPT_NEW;
}

static int64_t count(const lvni_trainer_kept *l)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        n += counts(&l->file[i]);
    }
    return n;
}

/* The one that goes first, of equals the latest; NULL: there is none. */
static lvni_trainer_kept_file *find_worst(const lvni_trainer_kept *l)
{
    lvni_trainer_kept_file *worst = NULL;
    for (int64_t i = 0; i < l->n; i++) {
        lvni_trainer_kept_file *f = &l->file[i];
        if (counts(f) && (worst == NULL || rank_of(f->score) <= rank_of(worst->score))) {
            worst = f;
        }
    }
    return worst;
}

bool lvni_trainer_kept_wants(const lvni_trainer_kept *l, int64_t k, double score)
{
    if (k < 0 || count(l) < k) {
        return k != 0;
    }
    const lvni_trainer_kept_file *worst = find_worst(l);
    return k > 0 && rank_of(score) > rank_of(worst->score);
}

static bool is_taken(const lvni_trainer_kept *l, const char *name)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (strcmp(l->file[i].name, name) == 0) {
            return true;
        }
    }
    return strcmp(name, "last") == 0 || strcmp(name, "best") == 0;
}

static lvn_status make_room(lvni_trainer_kept *l)
{
    if (l->n < l->room) {
        return LVN_OK;
    }
    const int64_t room = l->room == 0 ? 8 : l->room * 2;
    lvni_trainer_kept_file *file =
        lvni_core_realloc(LVNI_TAG_TRAINER, l->file, (size_t)room * sizeof *file);
    if (file == NULL) {
        return LVN_ERR_MEMORY;
    }
    l->file = file;
    l->room = room;
    return LVN_OK;
}

lvn_status lvni_trainer_kept_add(lvni_trainer_kept *l, int64_t k, const char *name, int64_t step,
                                 double score, bool stays)
{
    for (int64_t i = 0; i < l->n; i++) {
        const bool same = counts(&l->file[i]) || (stays && l->file[i].state == LVNI_KEPT_OTHER);
        if (l->file[i].step == step && same) {
            return LVN_OK;
        }
    }
    LVN_TRY(make_room(l));
    while (k > 0 && !stays && count(l) >= k) {
        find_worst(l)->state = LVNI_KEPT_LEAVES;
    }
    lvni_trainer_kept_file f = {
        .step = step, .score = score, .stays = stays, .state = LVNI_KEPT_NEW};
    snprintf(f.name, sizeof f.name, "%.*s", LVNI_FILE_NAME - 1, name);
    for (int version = 1; is_taken(l, f.name); version++) {
        snprintf(f.name, sizeof f.name, "%.*s-v%d", LVNI_FILE_NAME - 1, name, version);
    }
    l->file[l->n++] = f;
    return LVN_OK;
}

const lvni_trainer_kept_file *lvni_trainer_kept_new(const lvni_trainer_kept *l)
{
    const lvni_trainer_kept_file *f = l->n > 0 ? &l->file[l->n - 1] : NULL;
    return f != NULL && f->state == LVNI_KEPT_NEW ? f : NULL;
}

void lvni_trainer_kept_remove(lvni_trainer_kept *l, int64_t i)
{
    memmove(&l->file[i], &l->file[i + 1], (size_t)(l->n - i - 1) * sizeof *l->file);
    l->n--;
}

void lvni_trainer_kept_commit(lvni_trainer_kept *l)
{
    for (int64_t i = l->n - 1; i >= 0; i--) {
        if (l->file[i].state == LVNI_KEPT_LEAVES) {
            lvni_trainer_kept_remove(l, i);
        } else if (l->file[i].state == LVNI_KEPT_NEW) {
            l->file[i].state = l->file[i].stays ? LVNI_KEPT_OTHER : LVNI_KEPT_THERE;
        }
    }
}

int64_t lvni_trainer_kept_set_aside(lvni_trainer_kept *l)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        n += counts(&l->file[i]);
        l->file[i].state = counts(&l->file[i]) ? LVNI_KEPT_OTHER : l->file[i].state;
    }
    return n;
}

void lvni_trainer_kept_undo(lvni_trainer_kept *l, int64_t step)
{
    const lvni_trainer_kept_file *failed = lvni_trainer_kept_new(l);
    if (failed == NULL || failed->step == step) {
        return;
    }
    l->n--;
    for (int64_t i = 0; i < l->n; i++) {
        if (l->file[i].state == LVNI_KEPT_LEAVES) {
            l->file[i].state = LVNI_KEPT_THERE;
        }
    }
}

void lvni_trainer_kept_free(lvni_trainer_kept *l)
{
    lvni_core_free(l->file);
    *l = (lvni_trainer_kept){0};
}

/* ---- as text ---- */

static const char *const state_name[] = {"kept", "kept", "leaves", "other"};

static bool read_state(const char *name, lvni_trainer_kept_state *out)
{
    for (int i = 0; i <= LVNI_KEPT_OTHER; i++) {
        if (i != LVNI_KEPT_NEW && strcmp(name, state_name[i]) == 0) {
            *out = (lvni_trainer_kept_state)i;
            return true;
        }
    }
    return false;
}

/* Numbers as their bits: exact in every locale. */
void lvni_trainer_kept_print(const lvni_trainer_kept *l, lvni_core_str *out)
{
    for (int64_t i = 0; i < l->n; i++) {
        unsigned long long bits;
        memcpy(&bits, &l->file[i].score, sizeof bits);
        lvni_core_str_printf(out, "%s %lld %016llx %s\n", state_name[l->file[i].state],
                             (long long)l->file[i].step, bits, l->file[i].name);
    }
}

/* A name that leads out of the folder must not be deleted. */
static bool read_line(const char *at, size_t length, lvni_trainer_kept_file *out)
{
    char state[8];
    long long step;
    unsigned long long bits;
    int name = 0;
    if (sscanf(at, "%7s %lld %16llx %n", state, &step, &bits, &name) != 3 || name == 0 ||
        (size_t)name >= length || length - (size_t)name >= sizeof out->name) {
        return false;
    }
    *out = (lvni_trainer_kept_file){.step = step};
    memcpy(&out->score, &bits, sizeof out->score);
    memcpy(out->name, at + name, length - (size_t)name);
    return read_state(state, &out->state) && strchr(out->name, '/') == NULL && out->name[0] != '.';
}

lvn_status lvni_trainer_kept_read(const char *text, lvni_trainer_kept *out)
{
    *out = (lvni_trainer_kept){0};
    for (const char *at = text; *at != '\0';) {
        const size_t length = strcspn(at, "\n");
        lvni_trainer_kept_file f;
        lvn_status s =
            at[length] == '\n' && read_line(at, length, &f) ? make_room(out) : LVN_ERR_CORRUPT;
        if (s != LVN_OK) {
            lvni_trainer_kept_free(out);
            return s;
        }
        out->file[out->n++] = f;
        at += length + 1;
    }
    return LVN_OK;
}
