/* Choices that backends of devices measure for a run (levin/pins.h, autotune=true). They are
 * entries of its pinned choices: KIND.autotune is what they were measured on, and
 * KIND.LIBRARY-PROBLEM the candidate that computes a problem, unless it is the first. */
#include "core/hash.h"
#include "core/str.h"
#include "tensor/ctx.h"
#include "tensor/device.h"

#include <levin/pins.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what they were measured on ---- */

static void print_key(const lvni_tensor_device *d, char key[LVNI_PIN_TEXT])
{
    snprintf(key, LVNI_PIN_TEXT, "%.64s.autotune", lvni_tensor_device_backend(d)->name);
}

/* The fingerprint in the letters of a pinned choice, and a hash of all of it. */
static void print_origin(const lvni_tensor_device *d, char value[LVNI_PIN_TEXT])
{
    enum { HASH = 9 };
    const char *text = lvni_tensor_device_info(d)->fingerprint;
    const uint64_t hash = lvni_core_hash_text(LVNI_CORE_HASH, text);
    size_t n = 0;
    for (const char *at = text; *at != '\0'; at++) {
        const bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                            (*at >= '0' && *at <= '9') || *at == '.';
        if (n < LVNI_PIN_TEXT - 1 - HASH && (letter || (n > 0 && value[n - 1] != '_'))) {
            value[n++] = *at;
            value[n - 1] = letter ? *at : '_';
        }
    }
    snprintf(value + n, LVNI_PIN_TEXT - n, "-%08x", (unsigned)(hash ^ hash >> 32));
}

const char *lvni_tensor_tuning_of(lvni_core_pin_entries *entries, const lvni_tensor_device *d)
{
    char key[LVNI_PIN_TEXT];
    if (entries == NULL || d == NULL) {
        return NULL;
    }
    print_key(d, key);
    return lvni_core_pin_entries_get(entries, key);
}

bool lvni_tensor_tuning_foreign(lvni_core_pin_entries *entries, const lvni_tensor_device *d)
{
    char own[LVNI_PIN_TEXT];
    const char *origin = lvni_tensor_tuning_of(entries, d);
    if (origin == NULL) {
        return false;
    }
    print_origin(d, own);
    return strcmp(origin, own) != 0;
}

lvn_status lvni_tensor_tuning_begin(lvni_core_pin_entries *entries, const lvni_tensor_device *d)
{
    char key[LVNI_PIN_TEXT], own[LVNI_PIN_TEXT];
    const char *counts;
    print_key(d, key);
    print_origin(d, own);
    return lvni_core_pin_entries_record(entries, key, own, &counts);
}

/* ---- for backends ---- */

/* Asked for each kernel that a library may compute: what was found out is kept. */
static uint64_t run_of(lvni_tensor_ctx *ctx)
{
    lvni_tensor_tuning *t = &ctx->tuning;
    lvni_core_pin_entries *e = ctx->pins.entries;
    if (e == NULL || ctx->device == NULL) {
        return 0;
    }
    const uint64_t version = lvni_core_pin_entries_version(e);
    if (t->version != version || t->device != ctx->device) {
        const bool has = lvni_tensor_tuning_of(e, ctx->device) != NULL &&
                         !lvni_tensor_tuning_foreign(e, ctx->device);
        t->run = has ? lvni_core_pin_entries_list(e) : 0;
        t->version = version;
        t->device = ctx->device;
    }
    return t->run;
}

lvn_autotune lvn_autotune_now(void)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return (lvn_autotune){0};
    }
    const uint64_t run = run_of(ctx);
    return (lvn_autotune){.run = run, .measures = run != 0 && ctx->tuning.measures};
}

enum { LIBRARY = 31 };

static void print_problem(const lvni_tensor_ctx *ctx, const char *library, uint64_t problem,
                          char key[LVNI_PIN_TEXT])
{
    snprintf(key, LVNI_PIN_TEXT, "%.64s.%.*s-%016llx",
             lvni_tensor_device_backend(ctx->device)->name, (int)LIBRARY, library,
             (unsigned long long)problem);
}

/* 0 for what is not one: a configuration may hold anything. */
static int read_choice(const char *value)
{
    char *end;
    const long n = strtol(value, &end, 10);
    return end == value || *end != '\0' || n < 0 || n > INT16_MAX ? 0 : (int)n;
}

int lvn_autotune_choice(const char *library, uint64_t problem)
{
    char key[LVNI_PIN_TEXT];
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (library == NULL || ctx == NULL || run_of(ctx) == 0) {
        return 0;
    }
    print_problem(ctx, library, problem, key);
    const char *value = lvni_core_pin_entries_get(ctx->pins.entries, key);
    return value == NULL ? 0 : read_choice(value);
}

lvn_status lvn_autotune_record(const char *library, uint64_t problem, int *choice)
{
    char key[LVNI_PIN_TEXT], value[16];
    const char *counts;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    LVN_ARG(library != NULL && strlen(library) <= LIBRARY && choice != NULL && *choice >= 0 &&
                *choice <= INT16_MAX,
            "lvn_autotune_record: a library's name, up to %d letters, and a candidate from 0 to %d "
            "are needed, got %s and %d",
            (int)LIBRARY, INT16_MAX, library == NULL ? "NULL" : library,
            choice == NULL ? -1 : *choice);
    LVN_ARG(ctx != NULL && ctx->tuning.measures && run_of(ctx) != 0,
            "lvn_autotune_record: %s: choices are measured before the first step of a run with "
            "autotune=true, and not now",
            library);
    print_problem(ctx, library, problem, key);
    snprintf(value, sizeof value, "%d", *choice);
    counts = lvni_core_pin_entries_get(ctx->pins.entries, key);
    if (counts == NULL && *choice != 0) { /* the first is that of problems without an entry */
        LVN_TRY(lvni_core_pin_entries_record(ctx->pins.entries, key, value, &counts));
    }
    *choice = counts == NULL ? 0 : read_choice(counts);
    ctx->tuning.measured++;
    ctx->tuning.others += *choice != 0;
    return LVN_OK;
}
