/* levin doctor: each GPU as the driver shows it, and which of them reach each other's memory. */
#include "cli/doctor_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DEVICES = 64, NAME = 96 };

/* CUdevice_attribute of the CUDA driver API */
enum { COMPUTE_MODE = 20, PCI_BUS = 33, PCI_DEVICE = 34, PCI_DOMAIN = 50, MAJOR = 75, MINOR = 76 };
/* CUcomputemode */
enum { MODE_DEFAULT = 0, MODE_PROHIBITED = 2 };

static int attribute(const lvni_cli_cuda *c, int which, int device)
{
    int value = 0;
    return c->attribute(&value, which, device) == 0 ? value : 0;
}

/* As nvidia-smi -L writes it. */
static void print_uuid(const lvni_cli_cuda *c, int device, char out[48])
{
    unsigned char b[16];
    if (c->uuid(b, device) != 0) {
        snprintf(out, 48, "UUID unknown");
        return;
    }
    size_t n = (size_t)snprintf(out, 48, "GPU-");
    for (int i = 0; i < 16; i++) {
        const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        n += (size_t)snprintf(out + n, 48 - n, "%s%02x", dash ? "-" : "", b[i]);
    }
}

/* Asked in a context, which also shows that the device works; 0: done. */
static int ask_memory(const lvni_cli_cuda *c, int device, size_t *unused, size_t *total)
{
    void *context = NULL;
    int e = c->retain(&context, device);
    if (e != 0) {
        return e;
    }
    e = c->push(context);
    if (e == 0) {
        e = c->memory(unused, total);
        (void)c->pop(&context);
    }
    (void)c->release(device);
    return e;
}

typedef struct device {
    int id, index; /* the driver's, ours */
    char text[256];
} device;

static void describe(const lvni_cli_cuda *c, device *v)
{
    char name[NAME] = "?", uuid[48];
    (void)c->name(name, sizeof name, v->id);
    name[sizeof name - 1] = '\0';
    print_uuid(c, v->id, uuid);
    snprintf(v->text, sizeof v->text, "%s, compute capability %d.%d, PCI %04x:%02x:%02x.0, %s",
             name, attribute(c, MAJOR, v->id), attribute(c, MINOR, v->id),
             (unsigned)attribute(c, PCI_DOMAIN, v->id), (unsigned)attribute(c, PCI_BUS, v->id),
             (unsigned)attribute(c, PCI_DEVICE, v->id), uuid);
}

static void report_unusable(lvni_cli_doctor *d, const device *v, int mode, int error)
{
    char code[64], name[24];
    snprintf(name, sizeof name, "gpu %d", v->index);
    lvni_cli_doctor_add(d, LVNI_LEVEL_FAIL, name, "%s: it cannot be opened: %s%s", v->text,
                        lvni_cli_cuda_error(error, code),
                        mode == MODE_PROHIBITED ? ", its compute mode is prohibited"
                        : mode != MODE_DEFAULT  ? ", its compute mode is exclusive"
                                                : "");
    if (mode != MODE_DEFAULT) {
        lvni_cli_doctor_fix(d,
                            "nvidia-smi -i %d -c DEFAULT (as root), or end the process that "
                            "holds it",
                            v->index);
    } else {
        lvni_cli_doctor_fix(d, "nvidia-smi -q -d ECC,PAGE_RETIREMENT and `dmesg | grep Xid` show "
                               "what is wrong with it; CUDA_VISIBLE_DEVICES without it leaves it "
                               "out");
    }
}

static void check_device(lvni_cli_doctor *d, const lvni_cli_cuda *c, const device *v)
{
    char name[24], of[LVNI_BYTES_TEXT], rest[LVNI_BYTES_TEXT];
    size_t unused = 0, total = 0;
    const int mode = attribute(c, COMPUTE_MODE, v->id), e = ask_memory(c, v->id, &unused, &total);
    if (e != 0) {
        report_unusable(d, v, mode, e);
        return;
    }
    const bool taken = unused / 9 < total / 10;
    snprintf(name, sizeof name, "gpu %d", v->index);
    lvni_cli_doctor_add(d, taken || mode != MODE_DEFAULT ? LVNI_LEVEL_WARN : LVNI_LEVEL_OK, name,
                        "%s, memory %s, free %s (%" PRIu64 " %%)%s", v->text,
                        lvni_core_bytes_text(total, of), lvni_core_bytes_text(unused, rest),
                        total == 0 ? 0 : ((uint64_t)unused * 100 + total / 2) / total,
                        mode != MODE_DEFAULT ? ", compute mode exclusive" : "");
    if (taken) {
        lvni_cli_doctor_fix(d, "others use it: `nvidia-smi` lists their processes; end them, or "
                               "leave it out with CUDA_VISIBLE_DEVICES");
    } else if (mode != MODE_DEFAULT) {
        lvni_cli_doctor_fix(d,
                            "one process at a time may use it; nvidia-smi -i %d -c DEFAULT (as "
                            "root) lets ranks share it",
                            v->index);
    }
}

/* A row for each device: y where it reaches that one, n where not, - itself. */
static int print_peers(const lvni_cli_cuda *c, const device *all, int n, lvni_core_str *out)
{
    int missing = 0;
    for (int i = 0; i < n; i++) {
        lvni_core_str_printf(out, "%s%d:", i > 0 ? " " : "", i);
        for (int k = 0; k < n; k++) {
            int can = 0;
            const bool has = i == k || (c->can_access(&can, all[i].id, all[k].id) == 0 && can != 0);
            lvni_core_str_char(out, i == k ? '-' : has ? 'y' : 'n');
            missing += !has;
        }
    }
    return missing;
}

static void check_peers(lvni_cli_doctor *d, const lvni_cli_cuda *c, const device *all, int n)
{
    lvni_core_str matrix = {0};
    const int missing = print_peers(c, all, n, &matrix);
    if (missing == 0) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "peers",
                            "each of the %d GPUs reaches the others' "
                            "memory: %s",
                            n, lvni_core_str_text(&matrix));
    } else {
        lvni_cli_doctor_add(d, LVNI_LEVEL_WARN, "peers",
                            "%d of %d pairs of GPUs do not reach each other's memory: %s", missing,
                            n * (n - 1), lvni_core_str_text(&matrix));
        lvni_cli_doctor_fix(d, "their copies go through host memory, which is slower; `nvidia-smi "
                               "topo -p2p r` shows why (other sockets, ACS or IOMMU on, a virtual "
                               "machine)");
    }
    lvni_core_str_free(&matrix);
}

void lvni_cli_doctor_devices(lvni_cli_doctor *d, const lvni_cli_cuda *c)
{
    device all[DEVICES];
    int n = 0;
    for (int i = 0; i < d->n_devices && n < DEVICES; i++) {
        all[n] = (device){.index = i};
        if (c->get(&all[n].id, i) == 0) {
            describe(c, &all[n]);
            check_device(d, c, &all[n++]);
        }
    }
    if (n > 1) {
        check_peers(d, c, all, n);
    }
}
