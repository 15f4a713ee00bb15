/* Which devices are visible (device_spec.h): CUDA_VISIBLE_DEVICES becomes a list of devices. */
#include "launch/device_spec.h"

#include "core/alloc.h"
#include "launch/env_vars.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 1024, NAME = 96 };

/* The device of this name: its place among the physical ones, -1 for a slice, -2 when it fits
 * nothing. */
static int find_device(const char *name, int n_physical, const char *const *uuids)
{
    uint64_t number;
    if (lvni_launch_env_digits(name, INT32_MAX, &number)) {
        return number < (uint64_t)n_physical ? (int)number : -2;
    }
    if (strncmp(name, "MIG-", 4) == 0) {
        return -1;
    }
    if (strncmp(name, "GPU-", 4) != 0) {
        return -2;
    }
    int found = uuids == NULL ? -1 : -2; /* without UUIDs to compare with it is believed */
    for (int i = 0; uuids != NULL && i < n_physical; i++) {
        if (uuids[i] != NULL && strncmp(uuids[i], name, strlen(name)) == 0) {
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

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

void lvni_launch_trim(const char **begin, const char **end)
{
    while (*begin < *end && blank(**begin)) {
        (*begin)++;
    }
    while (*begin < *end && blank((*end)[-1])) {
        (*end)--;
    }
}

/* Copies the next name between commas, without blanks around it. */
static const char *next_name(const char *p, char name[NAME])
{
    const char *end = p + strcspn(p, ","), *after = *end == ',' ? end + 1 : NULL;
    lvni_launch_trim(&p, &end);
    const ptrdiff_t n = end - p; /* a name as long as the array is not a device */
    snprintf(name, NAME, "%.*s", (int)(n < NAME ? n : 0), p);
    return after;
}

static lvn_status add_listed(lvni_launch_visible *v, int n_physical, const char *const *uuids)
{
    char name[NAME];
    for (const char *p = v->value; p != NULL;) {
        p = next_name(p, name);
        const int found = find_device(name, n_physical, uuids);
        if (found == -2) {
            break; /* the driver stops here as well: "0,-1,1" shows device 0 alone */
        }
        const char *uuid = found >= 0 ? (uuids != NULL ? uuids[found] : NULL) : name;
        LVN_TRY(add(v, name, found, uuid));
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
