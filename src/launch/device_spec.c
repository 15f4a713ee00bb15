/* Which of the visible devices (visible_devices.c) `devices` names (device_spec.h). Its text
 * becomes all, a number or a list of names, and the names become indices of visible devices. */
#include "launch/device_spec.h"

#include "core/alloc.h"
#include "core/str.h"
#include "launch/env_vars.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME = 96, MAX_COUNT = 4096, SENTENCE = 512 };

/* "0-3", "0", "none": the indices a user may give. */
static void print_indices(const lvni_launch_visible *visible, lvni_core_str *out)
{
    if (visible->n == 0) {
        lvni_core_str_append(out, "none");
    } else if (visible->n == 1) {
        lvni_core_str_append(out, "0");
    } else {
        lvni_core_str_printf(out, "0-%d", visible->n - 1);
    }
}

/* " (CUDA_VISIBLE_DEVICES=4,5)"; nothing when it is unset. */
static void print_value(const lvni_launch_visible *visible, lvni_core_str *out)
{
    if (visible->value != NULL) {
        lvni_core_str_printf(out, " (CUDA_VISIBLE_DEVICES=%s)", visible->value);
    }
}

/* ---- the text of devices ---- */

typedef enum form { NOT_GIVEN, ALL, NUMBER, LIST } form;

/* The text of a specification, without blanks, quotes and brackets around it. */
typedef struct spec {
    form form;
    int count;         /* NUMBER */
    const char *items; /* LIST: from here up to `end` */
    const char *end;
} spec;

/* "KEY SPEC: sentence; visible: 0-3 (CUDA_VISIBLE_DEVICES=...)" as LVN_ERR_USAGE. v may be NULL. */
LVN_PRINTF(3, 4)
static lvn_status fail(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                       const char *fmt, ...)
{
    char sentence[SENTENCE];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(sentence, sizeof sentence, fmt, args);
    va_end(args);
    lvni_core_str tail = {.len = 0};
    if (v != NULL) {
        lvni_core_str_append(&tail, "; visible: ");
        print_indices(v, &tail);
        print_value(v, &tail);
    }
    const lvn_status s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s %s: %s%s", r->key,
                                       r->spec, sentence, lvni_core_str_text(&tail));
    lvni_core_str_free(&tail);
    return s;
}

static bool is_text(const char *begin, const char *end, const char *text)
{
    const size_t n = (size_t)(end - begin);
    return n == strlen(text) && strncasecmp(begin, text, n) == 0;
}

/* Copies [begin, end) into text; false: too long to name a device. */
static bool copy_text(const char *begin, const char *end, char text[NAME])
{
    const size_t n = (size_t)(end - begin);
    const size_t kept = n < NAME ? n : NAME - 1;
    memcpy(text, begin, kept);
    text[kept] = '\0';
    return n < NAME;
}

static bool begins_uuid(const char *begin, const char *end)
{
    return end - begin >= 4 && (strncmp(begin, "GPU-", 4) == 0 || strncmp(begin, "MIG-", 4) == 0);
}

static lvn_status read_number(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                              const char *begin, const char *end, spec *out)
{
    char text[NAME];
    uint64_t number = 0;
    const bool negative = begin < end && *begin == '-';
    const bool fits = copy_text(begin + negative, end, text);
    if (!fits || !lvni_launch_env_digits(text, INT32_MAX, &number)) {
        copy_text(begin, end, text);
        return fail(r, v,
                    "cannot read '%s' as a number; give all, a number, a list such as 0,2, or the "
                    "beginning of a UUID",
                    text);
    }
    if (negative && number == 1) {
        out->form = ALL;
        return LVN_OK;
    }
    if (negative) {
        return fail(r, v, "a number of devices is 1 or more, and -1 means all");
    }
    if (number > MAX_COUNT) {
        return fail(r, v, "at most %d devices", MAX_COUNT);
    }
    out->form = NUMBER;
    out->count = (int)number;
    return LVN_OK;
}

static lvn_status read_spec(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                            spec *out)
{
    *out = (spec){.form = NOT_GIVEN};
    if (r->spec == NULL) {
        return LVN_OK;
    }
    const char *begin = r->spec, *end = begin + strlen(begin);
    lvni_launch_trim(&begin, &end);
    if (end - begin >= 2 && (*begin == '"' || *begin == '\'') && end[-1] == *begin) {
        begin++;
        end--;
        lvni_launch_trim(&begin, &end);
    }
    if (begin == end) {
        return fail(r, v, "the value is empty; give all, a number, or a list such as 0,2");
    }
    if (is_text(begin, end, "auto")) {
        return LVN_OK;
    }
    if (is_text(begin, end, "all")) {
        out->form = ALL;
        return LVN_OK;
    }
    const bool bracket = *begin == '[';
    if (bracket != (end[-1] == ']') || (bracket && end - begin == 1)) {
        return fail(r, v, "the brackets do not match");
    }
    if (bracket || memchr(begin, ',', (size_t)(end - begin)) != NULL || begins_uuid(begin, end)) {
        *out = (spec){.form = LIST, .items = begin + bracket, .end = end - bracket};
        return LVN_OK;
    }
    return read_number(r, v, begin, end, out);
}

/* The visible device whose UUID begins with `text`. */
static lvn_status find_uuid(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                            const char *text, int *index)
{
    int found = -1;
    for (int i = 0; i < v->n; i++) {
        const char *uuid = v->device[i].uuid;
        if (uuid == NULL || strncmp(uuid, text, strlen(text)) != 0) {
            continue;
        }
        if (found >= 0) {
            return fail(r, v, "both %s and %s begin with %s", v->device[found].uuid, uuid, text);
        }
        found = i;
    }
    if (found < 0) {
        return fail(r, v, "no visible device has a UUID that begins with %s", text);
    }
    *index = found;
    return LVN_OK;
}

static lvn_status find_index(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                             const char *begin, const char *end, int *index)
{
    char text[NAME];
    uint64_t number;
    const bool fits = copy_text(begin, end, text);
    if (fits && begins_uuid(begin, end)) {
        return find_uuid(r, v, text, index);
    }
    if (fits && *text == '-' && lvni_launch_env_digits(text + 1, INT32_MAX, &number)) {
        return fail(r, v, "%s is not the index of a device", text);
    }
    if (!fits || !lvni_launch_env_digits(text, INT32_MAX, &number)) {
        return fail(r, v, "cannot read '%s' as a number or the beginning of a UUID", text);
    }
    if (number >= (uint64_t)v->n && !(r->launched && v->n == 1)) {
        return fail(r, v, "there is no device %s", text);
    }
    *index = (int)number;
    return LVN_OK;
}

static lvn_status add_index(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                            int index, lvni_launch_device_choice *out)
{
    for (int i = 0; i < out->n; i++) {
        if (out->index[i] == index && !r->allow_shared) {
            return fail(r, v,
                        "device %d is listed twice; allow_shared_device=true lets ranks share one",
                        index);
        }
    }
    if (out->n == MAX_COUNT) {
        return fail(r, v, "at most %d devices", MAX_COUNT);
    }
    int *more = lvni_core_realloc(LVNI_TAG_CORE, out->index, (size_t)(out->n + 1) * sizeof *more);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->index = more;
    more[out->n++] = index;
    return LVN_OK;
}

/* A rank that sees only one of the devices in its list uses that one: its launcher chose it. */
static void show_only_one(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                          lvni_launch_device_choice *out)
{
    for (int i = 0; r->launched && v->n == 1 && i < out->n; i++) {
        out->index[i] = 0;
    }
}

/* The next item of a list from *at on, which moves past it. "3," is the list of device 3. */
static bool next_item(const spec *s, const char **at, const char **begin, const char **end)
{
    while (*at < s->end) {
        const char *comma = memchr(*at, ',', (size_t)(s->end - *at));
        *begin = *at;
        *end = comma != NULL ? comma : s->end;
        *at = comma != NULL ? comma + 1 : s->end;
        lvni_launch_trim(begin, end);
        if (*begin < *end) {
            return true;
        }
    }
    return false;
}

static int count_items(const spec *s)
{
    int n = 0;
    for (const char *at = s->items, *begin, *end; next_item(s, &at, &begin, &end);) {
        n++;
    }
    return n;
}

static lvn_status choose_list(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                              const spec *s, lvni_launch_device_choice *out)
{
    for (const char *at = s->items, *begin, *end; next_item(s, &at, &begin, &end);) {
        int index = -1;
        LVN_TRY(find_index(r, v, begin, end, &index));
        LVN_TRY(add_index(r, v, index, out));
    }
    if (out->n == 0) {
        return fail(r, v, "the list names no device");
    }
    if (r->nproc > 0 && r->nproc != out->n) {
        return fail(r, v, "the list has %d devices, but %d processes are asked for (--nproc)",
                    out->n, r->nproc);
    }
    show_only_one(r, v, out);
    return LVN_OK;
}

static lvn_status choose_first(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                               int count, lvni_launch_device_choice *out)
{
    if (count > v->n && !(r->launched && v->n == 1)) {
        return fail(r, v, "only %d %s visible", v->n,
                    lvni_core_plural(v->n, "device is", "devices are"));
    }
    lvni_launch_device_request shared = *r;
    shared.allow_shared = true;
    for (int i = 0; i < count; i++) {
        LVN_TRY(add_index(&shared, v, i, out));
    }
    show_only_one(r, v, out);
    return LVN_OK;
}

static lvn_status no_device(const lvni_launch_device_request *r, const spec *asked,
                            lvni_launch_accelerator accelerator, lvni_core_notices *n)
{
    if (accelerator == LVNI_ACCELERATOR_SIM) {
        const lvn_status s = lvni_core_notice_error(n, 106, "no simulated device is visible");
        lvni_launch_env_found(r->env, "LEVIN_SIM_DEVICES", n);
        lvni_launch_env_found(r->env, "CUDA_VISIBLE_DEVICES", n);
        lvni_core_notice_fix(n, "LEVIN_SIM_DEVICES=%d, or accelerator=cpu",
                             asked->form == NUMBER ? asked->count
                             : r->nproc > 0        ? r->nproc
                                                   : 2);
        return s;
    }
    if (accelerator == LVNI_ACCELERATOR_LOADED) {
        const lvn_status s =
            lvni_core_notice_error(n, 106, "the backend %s has no device here", r->backend);
        lvni_core_notice_fix(n, "accelerator=cpu");
        return s;
    }
    const char *value = lvni_launch_env_raw(r->env, "CUDA_VISIBLE_DEVICES");
    const lvn_status s = lvni_core_notice_error(
        n, 106, "GPUs are asked for, but this process sees none%s",
        value != NULL && *value == '\0' ? ": CUDA_VISIBLE_DEVICES is empty" : "");
    n->own = true;
    lvni_core_notice_found(n, "%s %s, 0 GPUs visible", r->key, r->spec == NULL ? "auto" : r->spec);
    lvni_launch_env_found(r->env, "CUDA_VISIBLE_DEVICES", n);
    lvni_launch_env_found(r->env, "SLURM_GPUS_ON_NODE", n);
    lvni_launch_env_found(r->env, "SLURM_JOB_GPUS", n);
    lvni_core_notice_fix(n,
                         "under Slurm ask for them: #SBATCH --gpus-per-node=D (or --gres=gpu:D)");
    lvni_core_notice_fix(
        n, "elsewhere look at the driver (nvidia-smi), or run on the CPU: accelerator=cpu");
    return s;
}

static lvn_status choose_cpu(const lvni_launch_device_request *r, const spec *s,
                             lvni_launch_device_choice *out)
{
    if (s->form == LIST) { /* the CPU may be what accelerator=auto has become */
        const int n = count_items(s);
        return fail(r, NULL, "a list names GPUs; on the CPU give the number of ranks: devices=%d",
                    n > 0 ? n : 1);
    }
    out->accelerator = LVNI_ACCELERATOR_CPU;
    out->n = s->form == NUMBER && s->count > 0 ? s->count : 1;
    out->given = s->form == NUMBER;
    out->no_gpu = r->accelerator == LVNI_ACCELERATOR_AUTO && !(s->form == NUMBER && s->count == 0);
    return LVN_OK;
}

static bool is_zero(const spec *s)
{
    return s->form == NUMBER && s->count == 0;
}

/* gpus=0 is the CPU, devices=0 nothing. */
static lvn_status check_zero(const lvni_launch_device_request *r)
{
    const bool on_cpu = r->accelerator == LVNI_ACCELERATOR_CPU;
    if (!r->gpus) {
        return fail(r, NULL, "give at least 1; %s",
                    on_cpu ? "devices=1 is one rank on the CPU (accelerator=cpu)"
                           : "to use no GPU set accelerator=cpu (--accelerator cpu)");
    }
    if (!on_cpu && r->accelerator != LVNI_ACCELERATOR_AUTO) {
        return fail(r, NULL, "0 asks for the CPU, and accelerator for %s",
                    r->accelerator == LVNI_ACCELERATOR_LOADED ? r->backend
                    : r->accelerator == LVNI_ACCELERATOR_SIM  ? "sim"
                                                              : "GPUs");
    }
    return LVN_OK;
}

/* accelerator=auto: where there is no GPU, unless GPUs are asked for. */
static bool is_on_cpu(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                      const spec *s)
{
    if (r->accelerator == LVNI_ACCELERATOR_CPU || is_zero(s)) {
        return true;
    }
    const bool asks_gpus = s->form == LIST || (r->gpus && s->form != NOT_GIVEN);
    return r->accelerator == LVNI_ACCELERATOR_AUTO && v->n == 0 && !asks_gpus;
}

static lvn_status choose(const lvni_launch_device_request *r, const lvni_launch_visible *v,
                         lvni_core_notices *notices, lvni_launch_device_choice *out)
{
    spec s;
    LVN_TRY(read_spec(r, r->accelerator == LVNI_ACCELERATOR_CPU ? NULL : v, &s));
    LVN_TRY(is_zero(&s) ? check_zero(r) : LVN_OK);
    if (is_on_cpu(r, v, &s)) {
        return choose_cpu(r, &s, out);
    }
    out->accelerator =
        r->accelerator == LVNI_ACCELERATOR_AUTO ? LVNI_ACCELERATOR_CUDA : r->accelerator;
    if (v->n == 0) {
        return no_device(r, &s, out->accelerator, notices);
    }
    out->given = s.form == LIST || s.form == NUMBER;
    out->listed = s.form == LIST;
    return s.form == LIST ? choose_list(r, v, &s, out)
                          : choose_first(r, v, s.form == NUMBER ? s.count : v->n, out);
}

lvn_status lvni_launch_device_choose(const lvni_launch_device_request *request,
                                     const lvni_launch_visible *visible, lvni_core_notices *notices,
                                     lvni_launch_device_choice *out)
{
    lvni_launch_device_choice made = {.n = 0};
    const lvn_status s = choose(request, visible, notices, &made);
    if (s != LVN_OK) {
        lvni_launch_device_choice_free(&made);
        return s;
    }
    *out = made;
    return LVN_OK;
}

int lvni_launch_device_spec_count(const char *text)
{
    const lvni_launch_device_request r = {.key = "devices", .spec = text};
    spec s;
    return read_spec(&r, NULL, &s) != LVN_OK ? 0
           : s.form == LIST                  ? count_items(&s)
           : s.form == NUMBER                ? s.count
                                             : 0;
}

void lvni_launch_device_choice_free(lvni_launch_device_choice *choice)
{
    lvni_core_free(choice->index);
    memset(choice, 0, sizeof *choice);
}

void lvni_launch_device_choice_print(const lvni_launch_device_choice *choice,
                                     const lvni_launch_visible *visible, lvni_core_str *out)
{
    for (int i = 0; i < choice->n && choice->index != NULL; i++) {
        bool before = false; /* a shared device is shown once */
        for (int j = 0; j < i; j++) {
            before = before || choice->index[j] == choice->index[i];
        }
        if (!before) {
            lvni_core_str_append(out, i > 0 ? "," : "");
            lvni_core_str_append(out, visible->device[choice->index[i]].name);
        }
    }
}
