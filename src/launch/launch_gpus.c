/* GPUs without a driver library (launch_gpus.h): /proc/driver/nvidia/gpus/PCI/information holds
 * UUID and number of the device file, /sys/bus/pci/devices/PCI/numa_node the memory node.
 * Containers may show all of them and have the device files of a few. */
#include "launch/launch_gpus.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 256, INFORMATION_MAX = 64 << 10 };

static bool has_file(const char *root, int minor)
{
    char path[512];
    snprintf(path, sizeof path, "%s/dev/nvidia%d", root, minor);
    return lvni_core_path_exists(path);
}

/* The text behind "Name:" and blanks, up to the end of its line; "" when there is no such line. */
static void field(const char *text, const char *name, char *out, size_t room)
{
    const char *at = strstr(text, name);
    out[0] = '\0';
    if (at != NULL) {
        at += strlen(name);
        at += strspn(at, ": \t");
        snprintf(out, room, "%.*s", (int)strcspn(at, "\n"), at);
    }
}

static int numa_of(const char *root, const char *pci)
{
    char path[512];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/numa_node", root, pci);
    char *data;
    size_t bytes;
    if (!lvni_core_path_exists(path) || lvni_core_file_read(path, 64, &data, &bytes) != LVN_OK) {
        return -1;
    }
    const int node = (int)strtol(data, NULL, 10);
    lvni_core_free(data);
    return node;
}

/* false: its device file is not here. */
static bool read_one(const char *root, const char *pci, lvni_launch_gpu *out)
{
    char path[512], minor[16];
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus/%s/information", root, pci);
    char *data;
    size_t bytes;
    if (lvni_core_file_read(path, INFORMATION_MAX, &data, &bytes) != LVN_OK) {
        return false;
    }
    field(data, "Device Minor", minor, sizeof minor);
    field(data, "GPU UUID", out->uuid, sizeof out->uuid);
    lvni_core_free(data);
    if (strchr(out->uuid, '?') != NULL) { /* not initialised yet */
        out->uuid[0] = '\0';
    }
    snprintf(out->pci, sizeof out->pci, "%.31s", pci);
    out->numa = numa_of(root, pci);
    return minor[0] != '\0' && has_file(root, (int)strtol(minor, NULL, 10));
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const lvni_launch_gpu *)a)->pci, ((const lvni_launch_gpu *)b)->pci);
}

static int list_reported(const char *root, lvni_launch_gpu *gpus)
{
    char path[512];
    int n = 0;
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus", root);
    DIR *d = opendir(path);
    for (const struct dirent *e = NULL; d != NULL && n < GPUS_MAX && (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.' && read_one(root, e->d_name, &gpus[n]);
    }
    if (d != NULL) {
        closedir(d);
    }
    qsort(gpus, (size_t)n, sizeof *gpus, by_address);
    return n;
}

lvn_status lvni_launch_gpus_find(const char *root, lvni_launch_gpu **gpus, int *n)
{
    *gpus = lvni_core_calloc(LVNI_TAG_CORE, GPUS_MAX, sizeof **gpus);
    if (*gpus == NULL) {
        return LVN_ERR_MEMORY;
    }
    *n = list_reported(root, *gpus);
    if (*n == 0) { /* sandboxes hide /proc/driver: the device files alone */
        for (int minor = 0; minor < GPUS_MAX; minor++) {
            if (has_file(root, minor)) {
                (*gpus)[(*n)++] = (lvni_launch_gpu){.numa = -1};
            }
        }
    }
    lvn_clear_error();
    return LVN_OK;
}
