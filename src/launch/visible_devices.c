/* CUDA_VISIBLE_DEVICES as a list of devices (visible_devices.h). */
#include "launch/visible_devices.h"

#include "core/alloc.h"
#include "launch/env_vars.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 1024, WORD = 96 };

/* The device that `word` names: its place among the physical ones, -1 for a slice, -2 when it fits
 * nothing. */
static int find_device(const char *word, int n_physical, const char *const *uuids)
{
    uint64_t number;
    if (lvni_launch_env_digits(word, INT32_MAX, &number)) {
        return number < (uint64_t)n_physical ? (int)number : -2;
    }
    if (strncmp(word, "MIG-", 4) == 0) {
        return -1;
    }
    if (strncmp(word, "GPU-", 4) != 0) {
        return -2;
    }
    int found = uuids == NULL ? -1 : -2; /* without UUIDs to compare with it is believed */
    for (int i = 0; uuids != NULL && i < n_physical; i++) {
        if (uuids[i] != NULL && strncmp(uuids[i], word, strlen(word)) == 0) {
            found = found == -2 ? i : -3;
        }
    }
    return found == -3 ? -2 : found;
}

static lvn_status add(lvni_launch_visible *v, const char *name, int physical, const char *uuid)
{
    for (int i = 0; i < v->n; i++) {
        const lvni_launch_visible_device *d = &v->device[i];
        if (strcmp(d->name, name) == 0 || (physical >= 0 && d->physical == physical)) {
            LVN_FAIL(LVN_ERR_USAGE, "CUDA_VISIBLE_DEVICES=%s names %s twice", v->value, name);
        }
    }
    LVN_ARG(v->n < MAX_DEVICES, "more than %d devices", MAX_DEVICES);
    lvni_launch_visible_device *more =
        lvni_core_realloc(LVNI_TAG_CORE, v->device, (size_t)(v->n + 1) * sizeof *more);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    v->device = more;
    lvni_launch_visible_device *d = &more[v->n];
    *d = (lvni_launch_visible_device){.physical = physical,
                                      .name = lvni_core_strdup(LVNI_TAG_CORE, name)};
    d->uuid = uuid != NULL ? lvni_core_strdup(LVNI_TAG_CORE, uuid) : NULL;
    v->n++; /* now, so that it is freed whatever failed */
    return d->name == NULL || (uuid != NULL && d->uuid == NULL) ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status add_all(lvni_launch_visible *v, int n_physical, const char *const *uuids)
{
    for (int i = 0; i < n_physical; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        LVN_TRY(add(v, name, i, uuids != NULL ? uuids[i] : NULL));
    }
    return LVN_OK;
}

/* Copies the next word between commas, without blanks around it. */
static const char *next_argument(const char *p, char word[WORD])
{
    size_t n = strcspn(p, ",");
    const char *after = p[n] == ',' ? p + n + 1 : NULL;
    while (n > 0 && (*p == ' ' || *p == '\t')) {
        p++;
        n--;
    }
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t')) {
        n--;
    }
    /* what is as long as that names nothing */
    snprintf(word, WORD, "%.*s", (int)(n < WORD ? n : 0), p);
    return after;
}

static lvn_status add_listed(lvni_launch_visible *v, int n_physical, const char *const *uuids)
{
    char word[WORD];
    for (const char *p = v->value; p != NULL;) {
        p = next_argument(p, word);
        const int found = find_device(word, n_physical, uuids);
        if (found == -2) {
            break; /* the driver stops here as well: "0,-1,1" shows device 0 alone */
        }
        const char *uuid = found >= 0 ? (uuids != NULL ? uuids[found] : NULL) : word;
        LVN_TRY(add(v, word, found, uuid));
    }
    return LVN_OK;
}

lvn_status lvni_launch_visible_make(const char *value, int n_physical, const char *const *uuids,
                                    lvni_launch_visible *out)
{
    lvni_launch_visible v = {.n = 0};
    lvn_status s = LVN_OK;
    if (value != NULL) {
        v.value = lvni_core_strdup(LVNI_TAG_CORE, value);
        s = v.value == NULL ? LVN_ERR_MEMORY : add_listed(&v, n_physical, uuids);
    } else {
        s = add_all(&v, n_physical, uuids);
    }
    if (s != LVN_OK) {
        lvni_launch_visible_free(&v);
        return s;
    }
    *out = v;
    return LVN_OK;
}

void lvni_launch_visible_free(lvni_launch_visible *visible)
{
    for (int i = 0; i < visible->n; i++) {
        lvni_core_free(visible->device[i].name);
        lvni_core_free(visible->device[i].uuid);
    }
    lvni_core_free(visible->device);
    lvni_core_free(visible->value);
    memset(visible, 0, sizeof *visible);
}

void lvni_launch_visible_print(const lvni_launch_visible *visible, lvni_core_str *out)
{
    if (visible->n == 0) {
        lvni_core_str_append(out, "none");
    } else if (visible->n == 1) {
        lvni_core_str_append(out, "0");
    } else {
        lvni_core_str_printf(out, "0-%d", visible->n - 1);
    }
}

void lvni_launch_visible_print_value(const lvni_launch_visible *visible, lvni_core_str *out)
{
    if (visible->value != NULL) {
        lvni_core_str_printf(out, " (CUDA_VISIBLE_DEVICES=%s)", visible->value);
    }
}
