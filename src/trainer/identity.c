/* What the bits of a run follow from (identity.h): written into checkpoints, compared when one is
 * restored. */
#include "trainer/identity.h"

#include "core/error.h"
#include "core/hash.h"
#include "core/machine.h"
#include "core/str.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "kernels/kernels.h"
#include "log/run_log.h"

#include <levin/version.h>
#include <stdio.h>
#include <string.h>

/* The pinned choices stand between two runs of keys. */
enum { N_KEYS = 8, PINS_AT = 2, STREAM_PARTS = 2, VALUE = 48, STREAM_NAME = 40 };
/* At most: with a length of the epoch, and streams. */
enum { N_PARTS = N_KEYS + LVNI_PIN_COUNT + 3 + STREAM_PARTS * LVN_MAX_STREAMS };

/* FROZEN, as files have it: the name in the `run` entry of every checkpoint, whatever the key is
 * called. Letter by letter, so that no rename of the word changes it. */
static const char stored_parts[] = {'s', 'h', 'a', 'r', 'd', 's', '\0'};

/* The other names in the entry are frozen, too (tests/golden/frozen_names.txt): a key that is
 * renamed has its new name in .name and .old_value alone. */
typedef struct key_row {
    const char *stored;         /* in the entry */
    const char *name, *meaning; /* the key of today */
    const char *old_value;      /* what to give to have it back; the value follows */
} key_row;

static const key_row keys[N_KEYS] = {
    {"effective_batch", "effective_batch", "samples of an optimizer step",
     "give batch_size so that batch_size x accumulate_grad_batches is "},
    {stored_parts, "micro_batches", "parts of an effective batch", "give micro_batches="},
    {"n_samples", "n_samples", "training samples",
     "give the training data of then (data, val_split), samples: "},
    {"drop_last", "drop_last", "leave out the short last step", "give drop_last="},
    {"seed", "seed", "seed of the run", "give seed="},
    {"group", "group", "micro-batches that see each other's values", "give group="},
    {"sampler", "sampler", "how samples are drawn", "give sampler="},
    {"data", "data", "names and order of the training samples",
     "give the training data of then (data, val_split), identity "},
};

/* One `stored=value` of the entry. */
typedef struct part {
    key_row key; /* of a pinned choice without old_value */
    char value[VALUE];
    /* that stands in no entry: files from before there was the key have it; NULL: none */
    const char *unwritten;
    char name[STREAM_NAME];
} part;

typedef struct parts {
    int n;
    part at[N_PARTS];
} parts;

static const char *order_name(lvn_order order)
{
    return order == LVN_ORDER_SEQUENCE      ? "sequence"
           : order == LVN_ORDER_REPLACEMENT ? "replacement"
                                            : "shuffle";
}

uint64_t lvni_trainer_identity_of_data(const lvn_dataset *d)
{
    const int64_t n = d->cls->length(d);
    const int64_t step = n > LVNI_DATA_SHUFFLED_MAX ? n >> 20 : 1; /* all of them take minutes */
    uint64_t h = lvni_core_hash(LVNI_CORE_HASH, &n, sizeof n);
    for (int64_t i = 0; i < n; i += step) {
        const int64_t sample = lvni_data_dataset_index(d, i);
        const char *name = d->cls->sample_name == NULL ? NULL : d->cls->sample_name(d, sample);
        h = name == NULL ? lvni_core_hash(h, &sample, sizeof sample)
                         : lvni_core_hash(h, name, strlen(name) + 1);
    }
    return h;
}

/* The value of keys[i]. */
static void print_key(const lvni_trainer *t, int i, char out[VALUE])
{
    const lvni_plan *p = &t->o.plan;
    switch (i) {
    case 0: snprintf(out, VALUE, "%lld", (long long)p->effective_batch); break;
    case 1: snprintf(out, VALUE, "%d", p->micro_batches); break;
    case 2: snprintf(out, VALUE, "%lld", (long long)p->n_samples); break;
    case 3: snprintf(out, VALUE, "%s", p->drop_last ? "true" : "false"); break;
    case 4: snprintf(out, VALUE, "%llu", (unsigned long long)t->o.seed); break;
    case 5: /* of modules that are not coupled nothing depends on it */
        snprintf(out, VALUE, "%d", p->coupled ? p->group : 1);
        break;
    case 6: snprintf(out, VALUE, "%s", t->o.balanced ? "balanced" : order_name(t->o.order)); break;
    default:
        snprintf(out, VALUE, "%016llx", (unsigned long long)t->checkpointing.data_identity);
        break;
    }
}

static part *add_part(parts *all, key_row key)
{
    part *p = &all->at[all->n++];
    p->key = key;
    return p;
}

/* Its samples of a step, order and epoch rule; its data. */
static void add_stream(const lvni_trainer *t, int i, parts *all)
{
    static const char *const rules[] = {[LVNI_PLAN_CYCLE] = "cycle",
                                        [LVNI_PLAN_ONCE] = "once",
                                        [LVNI_PLAN_SHORTENS] = "shortens",
                                        [LVNI_PLAN_LENGTHENS] = "lengthens"};
    const lvni_plan_stream *s = &t->o.plan.stream[i];
    part *p = add_part(all, (key_row){.meaning = "samples of a step, order and epoch rule",
                                      .old_value = "give it again, "});
    p->unwritten = "none";
    snprintf(p->name, STREAM_NAME, "stream.%.23s", s->name);
    snprintf(p->value, VALUE, "%lld,%s,%s", (long long)s->batch, order_name(t->o.stream[i].order),
             rules[s->rule]);
    p = add_part(all, (key_row){.meaning = "names and order of the stream's samples",
                                .old_value = "give the stream's data of then, identity "});
    p->unwritten = "none";
    snprintf(p->name, STREAM_NAME, "stream.%.23s.data", s->name);
    snprintf(p->value, VALUE, "%016llx", (unsigned long long)t->checkpointing.stream_identity[i]);
}

/* Accumulation by the epoch; the hash of what is too long for the entry. */
static void add_factors(const lvni_plan *plan, parts *all)
{
    lvni_core_str text = {0};
    lvni_plan_print_factors(plan, &text);
    part *p = add_part(all, (key_row){.stored = "accumulation",
                                      .name = "accumulate_grad_batches",
                                      .meaning = "batches of a step, by the epoch",
                                      .old_value = "give accumulate_grad_batches="});
    p->unwritten = "none";
    if (text.len < VALUE) {
        snprintf(p->value, VALUE, "%s", plan->n_factors > 0 ? lvni_core_str_text(&text) : "none");
    } else {
        snprintf(p->value, VALUE, "hash-%016llx",
                 (unsigned long long)lvni_core_hash(LVNI_CORE_HASH, lvni_core_str_text(&text),
                                                    text.len));
    }
    lvni_core_str_free(&text);
}

static void add_optional(const lvni_trainer *t, parts *all)
{
    part *p = add_part(all, (key_row){.stored = "steps_per_epoch",
                                      .name = "steps_per_epoch",
                                      .meaning = "steps of an epoch, where it is not one pass",
                                      .old_value = "have the epoch as it was, steps_per_epoch="});
    p->unwritten = "0";
    snprintf(p->value, VALUE, "%lld",
             (long long)(t->o.plan.cycles ? t->o.plan.steps_per_epoch : 0));
    p = add_part(all, (key_row){.stored = "streams",
                                .name = "streams",
                                .meaning = "streams beside the training set",
                                .old_value = "have as many as then, "});
    p->unwritten = "0";
    snprintf(p->value, VALUE, "%d", t->o.plan.n_streams);
    add_factors(&t->o.plan, all);
    for (int i = 0; i < t->o.plan.n_streams; i++) {
        add_stream(t, i, all);
    }
}

static parts parts_of(const lvni_trainer *t)
{
    parts all = {0};
    for (int i = 0; i < N_KEYS; i++) {
        for (int k = 0; i == PINS_AT && k < LVNI_PIN_COUNT; k++) {
            const lvni_core_pin *pin = &lvni_core_pin_table[k];
            part *p = add_part(
                &all, (key_row){.stored = pin->key, .name = pin->key, .meaning = pin->meaning});
            snprintf(p->value, VALUE, "%d", lvni_core_pins_get(&t->o.plan.pins, k));
        }
        print_key(t, i, add_part(&all, keys[i])->value);
    }
    add_optional(t, &all);
    return all;
}

static const char *stored_name(const part *p)
{
    return p->key.stored != NULL ? p->key.stored : p->name;
}

void lvni_trainer_identity_machine(lvni_core_str *out)
{
    char cpu[LVNI_CPU_MODEL];
    lvni_core_str_printf(out, "levin %s, %s", LEVIN_VERSION, lvni_kernels_describe());
    if (lvni_kernels_are_of_cpu() && lvni_core_cpu_model(cpu)) {
        /* oneDNN also cuts its sums by the caches of the model */
        lvni_core_str_printf(out, ", %s", cpu);
    }
}

static void print_machine(const lvni_trainer *t, lvni_core_str *out)
{
    if (t->o.machine != NULL) {
        lvni_core_str_append(out, t->o.machine);
    } else {
        lvni_trainer_identity_machine(out);
    }
}

void lvni_trainer_identity_print(const lvni_trainer *t, lvni_core_str *run, lvni_core_str *machine)
{
    const parts all = parts_of(t);
    for (int i = 0; i < all.n; i++) {
        const part *p = &all.at[i];
        if (p->unwritten == NULL || strcmp(p->value, p->unwritten) != 0) {
            lvni_core_str_printf(run, "%s%s=%s", i > 0 ? " " : "", stored_name(p), p->value);
        }
    }
    print_machine(t, machine);
}

/* "batch=3 micro_batches=2": the value of a name, cut to its room; false when it is not there. */
static bool find_value(const char *text, const char *name, char out[VALUE])
{
    const size_t n = strlen(name);
    for (const char *at = text; *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (length > n && strncmp(at, name, n) == 0 && at[n] == '=') {
            snprintf(out, VALUE, "%.*s", (int)(length - n - 1 < VALUE ? length - n - 1 : VALUE),
                     at + n + 1);
            return true;
        }
        at += length;
    }
    return false;
}

static lvn_status report_difference(const lvni_ckpt *ckpt, const key_row *key, const char *was,
                                    const char *is)
{
    if (ckpt->at.step_in_epoch > 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s was written within epoch %lld, after its step %lld, by a run with %s=%s (%s), "
                 "and this one has %s=%s: %s%s, or start a "
                 "new run from its weights (weights=%s)",
                 ckpt->path, (long long)ckpt->at.epoch + 1, (long long)ckpt->at.step_in_epoch,
                 key->name, was, key->meaning, key->name, is, key->old_value, was, ckpt->path);
    }
    lvni_log_line(LVNI_LOG_WARNING,
                  "%s=%s (%s) was %s in the saved run: from epoch %lld on this is another run",
                  key->name, is, key->meaning, was, (long long)ckpt->at.epoch + 1);
    return LVN_OK;
}

/* Checkpoints of before have no model of the CPU. */
static bool is_same_machine(const char *was, const char *is)
{
    const size_t n = strlen(was);
    return strncmp(was, is, n) == 0 &&
           (is[n] == '\0' || (lvni_kernels_are_of_cpu() && strncmp(is + n, ", ", 2) == 0));
}

static lvn_status report_machine(const lvni_trainer *t, const lvni_ckpt *ckpt)
{
    const char *was = lvni_ckpt_st_meta_get(ckpt->file, LVNI_IDENTITY_MACHINE);
    lvni_core_str is = {0};
    print_machine(t, &is);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&is));
    if (was != NULL && !is_same_machine(was, lvni_core_str_text(&is))) {
        if (t->o.same_hardware) {
            s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                              "same_hardware=require: this checkpoint was written on %s, this "
                              "machine is %s: resume it on a machine of that kind, or give "
                              "same_hardware=warn",
                              was, lvni_core_str_text(&is));
        } else {
            lvni_log_line(LVNI_LOG_WARNING,
                          "not reproducible: this checkpoint was written on %s, this machine is "
                          "%s: results are the same within rounding, not to the bit",
                          was, lvni_core_str_text(&is));
        }
    }
done:
    lvni_core_str_free(&is);
    return s;
}

void lvni_trainer_identity_print_files(const lvni_trainer *t, char out[24])
{
    snprintf(out, 24, "%016llx", (unsigned long long)t->o.data_files);
    out[t->o.data_files == 0 ? 0 : 16] = '\0';
}

/* The names are those of the saved run, or were reported. Checkpoints of before have no value. */
static lvn_status check_files(const lvni_trainer *t, const lvni_ckpt *ckpt)
{
    const char *was = lvni_ckpt_st_meta_get(ckpt->file, LVNI_IDENTITY_FILES);
    char is[24];
    lvni_trainer_identity_print_files(t, is);
    if (was == NULL || is[0] == '\0' || strcmp(was, is) == 0) {
        return LVN_OK;
    }
    if (t->o.same_files) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data_changed=error: files of data= have another size or other first 4 KiB, or "
                 "other labels, than when %s was written: bring the files of then back, or give "
                 "data_changed=warn",
                 ckpt->path);
    }
    lvni_log_line(LVNI_LOG_WARNING,
                  "not reproducible: files of data= have another size or other first 4 KiB, or "
                  "other labels, than when this checkpoint was written, under the same names: from "
                  "here on it is "
                  "another run (data_changed=error refuses that)");
    return LVN_OK;
}

void lvni_trainer_identity_print_layout(const lvni_trainer *t, char out[32])
{
    snprintf(out, 32, "ranks=%d", t->o.plan.devices);
}

static bool is_as_saved(const lvni_ckpt *ckpt, const char *key, const lvni_core_str *now)
{
    const char *was = lvni_ckpt_st_meta_get(ckpt->file, key);
    return was != NULL && strcmp(was, lvni_core_str_text(now)) == 0;
}

lvn_status lvni_trainer_identity_report_layout(const lvni_trainer *t, const lvni_ckpt *ckpt)
{
    const char *saved = lvni_ckpt_st_meta_get(ckpt->file, LVNI_IDENTITY_LAYOUT);
    char value[VALUE];
    int was = 0;
    const int is = t->o.plan.devices;
    if (saved == NULL || !find_value(saved, "ranks", value) || sscanf(value, "%d", &was) != 1 ||
        was < 1 || was == is) {
        return LVN_OK;
    }
    lvni_core_str run = {0}, machine = {0};
    lvni_trainer_identity_print(t, &run, &machine);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&run));
    LVNI_TRY_DONE(s, lvni_core_str_status(&machine));
    const bool same = is_as_saved(ckpt, LVNI_IDENTITY_RUN, &run) &&
                      is_as_saved(ckpt, LVNI_IDENTITY_MACHINE, &machine);
    lvni_log_line(LVNI_LOG_INFO, "%d rank%s wrote this checkpoint, %d resume%s%s", was,
                  lvni_core_plural(was, "", "s"), is, lvni_core_plural(is, "s", ""),
                  same ? ": the results do not depend on the number of ranks" : "");
done:
    lvni_core_str_free(&run);
    lvni_core_str_free(&machine);
    return s;
}

/* `was`: "key=value". Choices that this run does not have come later (take_pins). */
static lvn_status check_pin(const lvni_trainer *t, const lvni_ckpt *ckpt, char *was)
{
    if (lvni_core_pin_entries_read(NULL, was) != LVN_OK) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its metadata " LVNI_IDENTITY_PINS " has %s, not backend.name=value",
                 ckpt->path, was);
    }
    char *value = strchr(was, '=');
    *value++ = '\0';
    const char *is = t->o.plan.pins.entries == NULL
                         ? NULL
                         : lvni_core_pin_entries_get(t->o.plan.pins.entries, was);
    if (is == NULL || strcmp(is, value) == 0) {
        return LVN_OK;
    }
    char give[2 * LVNI_PIN_TEXT + 16];
    snprintf(give, sizeof give, "give pins=%s=", was);
    const key_row key = {.name = was, .meaning = "a choice of its backend", .old_value = give};
    return report_difference(ckpt, &key, value, is);
}

static lvn_status check_pins(const lvni_trainer *t, const lvni_ckpt *ckpt)
{
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, LVNI_IDENTITY_PINS);
    char was[2 * LVNI_PIN_TEXT];
    while (text != NULL && lvni_core_pin_entries_next(&text, was)) {
        LVN_TRY(check_pin(t, ckpt, was));
    }
    return LVN_OK;
}

lvn_status lvni_trainer_identity_take_pins(const lvni_trainer *t, const lvni_ckpt *ckpt)
{
    lvni_core_pin_entries *mine = t->o.plan.pins.entries;
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, LVNI_IDENTITY_PINS);
    char entry[2 * LVNI_PIN_TEXT], key[LVNI_PIN_TEXT];
    while (mine != NULL && text != NULL && lvni_core_pin_entries_next(&text, entry)) {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(entry, "="), entry);
        LVN_TRY(lvni_core_pin_entries_get(mine, key) == NULL
                    ? lvni_core_pin_entries_read(mine, entry)
                    : LVN_OK);
    }
    return LVN_OK;
}

/* The value in the saved run, where it has one and that is another. */
static bool has_changed(const char *run, const part *is, char was[VALUE])
{
    bool found = run != NULL && find_value(run, stored_name(is), was);
    if (!found && run != NULL && is->unwritten != NULL) {
        snprintf(was, VALUE, "%s", is->unwritten);
        found = true;
    }
    return found && strcmp(was, is->value) != 0;
}

bool lvni_trainer_identity_differs(const lvni_trainer *t, const lvni_ckpt *ckpt, const char *key)
{
    const char *run = lvni_ckpt_st_meta_get(ckpt->file, LVNI_IDENTITY_RUN);
    const parts now = parts_of(t);
    char was[VALUE];
    for (int i = 0; i < now.n; i++) {
        const part *is = &now.at[i];
        if (strcmp(is->key.name != NULL ? is->key.name : is->name, key) == 0) {
            return has_changed(run, is, was);
        }
    }
    return false;
}

lvn_status lvni_trainer_identity_check(const lvni_trainer *t, const lvni_ckpt *ckpt)
{
    const char *run = lvni_ckpt_st_meta_get(ckpt->file, LVNI_IDENTITY_RUN);
    const parts now = parts_of(t);
    bool same_number = true, same_names = true;
    for (int i = 0; i < now.n; i++) {
        char was[VALUE], give[64];
        const part *is = &now.at[i];
        if (!has_changed(run, is, was)) {
            continue;
        }
        key_row key = is->key;
        key.name = key.name == NULL ? is->name : key.name;
        snprintf(give, sizeof give, "give %s=", key.name);
        key.old_value = key.old_value == NULL ? give : key.old_value;
        const bool names = strcmp(stored_name(is), "data") == 0;
        same_names = same_names && !names;
        /* of more or fewer samples the names are others, too */
        LVN_TRY(names && !same_number ? LVN_OK : report_difference(ckpt, &key, was, is->value));
        same_number = same_number && strcmp(stored_name(is), "n_samples") != 0;
    }
    LVN_TRY(same_names ? check_files(t, ckpt) : LVN_OK);
    LVN_TRY(check_pins(t, ckpt));
    return report_machine(t, ckpt);
}
