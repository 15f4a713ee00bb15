/* levin doctor: can levin_backend_cuda.so be loaded, does it find devices and open them, and with
 * which libraries does it compute there. */
#include "cli/doctor.h"
#include "tensor/backend.h"

#include <stdio.h>
#include <string.h>

static const char NAME[] = "cuda";
#define BUILD "`make LEVIN_CUDA=on` builds it where nvcc is, `make cuda` fetches nvcc first"
#define AFTER_DRIVER "the driver comes first: what its line names"

/* Libraries that the backend needs, by the beginning of their names, with where they come from. */
static const struct library {
    const char *begins, *is;
} libraries[] = {
    {"libcudnn", "cuDNN (package libcudnn9-cuda-NN, or pip's nvidia-cudnn-cuNN)"},
    {"libcublas", "cuBLAS with cuBLASLt (package libcublas-NN-N of the CUDA toolkit)"},
    {"libcudart", "the CUDA runtime (package cuda-cudart-NN-N of the CUDA toolkit)"},
    {"libnvrtc", "NVRTC (package cuda-nvrtc-NN-N of the CUDA toolkit)"},
    {"libnccl", "NCCL (package libnccl2)"},
};

/* Where a GPU waits for it this is what is wrong; else as bad as what the driver's line reports. */
static lvni_cli_level level_of(const lvni_cli_doctor *d)
{
    return d->n_devices > 0 ? LVNI_LEVEL_FAIL : d->driver;
}

static void report(lvni_cli_doctor *d, lvni_cli_level level)
{
    lvni_cli_doctor_add(d, level, "backend cuda", "%s", d->backend_text);
}

static void explain_absent(lvni_cli_doctor *d)
{
    const lvni_cli_level level = level_of(d);
    snprintf(d->backend_text, sizeof d->backend_text, "%s", lvn_last_error()->message);
    if (level == LVNI_LEVEL_OK) { /* nothing is wrong: in the line itself */
        lvni_cli_doctor_add(d, level, "backend cuda", "%s; " BUILD, d->backend_text);
        return;
    }
    report(d, level);
    lvni_cli_doctor_fix(d, BUILD "; or LEVIN_BACKEND_PATH=FOLDER, where levin_backend_cuda.so is");
}

/* dlerror's text: "libcudnn.so.9: cannot open shared object file: No such file or directory". */
static void explain_unloadable(lvni_cli_doctor *d)
{
    const lvni_cli_level level = level_of(d);
    snprintf(d->backend_text, sizeof d->backend_text, "%s", lvn_last_error()->message);
    report(d, level == LVNI_LEVEL_OK ? LVNI_LEVEL_WARN : level);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const char *at = strstr(d->backend_text, libraries[i].begins);
        if (at != NULL && strstr(at, "cannot open shared object file") != NULL) {
            lvni_cli_doctor_fix(d,
                                "install %s, of the toolkit that levin was built with; or put "
                                "the folder of %.*s into LD_LIBRARY_PATH",
                                libraries[i].is, (int)strcspn(at, ":"), at);
            return;
        }
    }
    if (strstr(d->backend_text, "libcuda.so.1: cannot open") != NULL) {
        lvni_cli_doctor_fix(d, AFTER_DRIVER);
        return;
    }
    lvni_cli_doctor_fix(d, "build levin_backend_cuda.so again on this machine, with the headers of "
                           "this levin and with what ldd lists as not found");
}

static void explain_count(lvni_cli_doctor *d, lvn_status s)
{
    snprintf(d->backend_text, sizeof d->backend_text, "%s",
             s != LVN_OK ? lvn_last_error()->message : "it finds no device");
    const lvni_cli_level level = level_of(d);
    report(d, level);
    if (level != LVNI_LEVEL_OK) {
        lvni_cli_doctor_fix(d, d->n_devices > 0
                                   ? "what the sentence names; `nvidia-smi` shows the driver's "
                                     "version and which CUDA it is for"
                                   : AFTER_DRIVER);
    }
}

/* Libraries that a run does without, by what a device's fingerprint has in their place. */
static const struct absence {
    const char *finding, *name, *package, *then;
} absences[] = {
    {"NVRTC 0", "NVRTC", "cuda-nvrtc-NN-N, or pip's nvidia-cuda-nvrtc",
     "attention on Hopper is slower"},
    {"cuFFT 0", "cuFFT", "libcufft-NN-N, or pip's nvidia-cufft", "Fourier transforms are slower"},
};

static void report_libraries(lvni_cli_doctor *d, int index, const char *fingerprint)
{
    const struct absence *absent = NULL;
    for (size_t i = 0; i < sizeof absences / sizeof *absences && absent == NULL; i++) {
        const char *at = strstr(fingerprint, absences[i].finding);
        const char after = at == NULL ? '0' : at[strlen(absences[i].finding)];
        absent = after == ',' || after == '\0' ? &absences[i] : NULL;
    }
    lvni_cli_doctor_add(d, absent != NULL ? LVNI_LEVEL_WARN : LVNI_LEVEL_OK, "libraries",
                        "cuda:%d: %s", index, fingerprint);
    if (absent != NULL) {
        lvni_cli_doctor_fix(d,
                            "%s was not found: %s; install package %s, or put its folder into "
                            "LD_LIBRARY_PATH",
                            absent->name, absent->then, absent->package);
    }
}

/* Each is opened and closed again. One that computes as the one before it has no line. */
static void open_devices(lvni_cli_doctor *d, const lvn_backend *b, int n)
{
    char before[sizeof((lvn_device_info *)0)->fingerprint] = "";
    for (int i = 0; i < n; i++) {
        lvn_device_info info = {0};
        void *device = NULL;
        if (b->open(i, &device, &info) != LVN_OK) {
            lvni_cli_doctor_add(d, LVNI_LEVEL_FAIL, "libraries", "%s", lvn_last_error()->message);
            lvni_cli_doctor_fix(d, "what the sentence names");
            continue;
        }
        b->close(device);
        if (strcmp(info.fingerprint, before) != 0) {
            report_libraries(d, i, info.fingerprint);
        }
        snprintf(before, sizeof before, "%s", info.fingerprint);
    }
}

void lvni_cli_doctor_backend(lvni_cli_doctor *d)
{
    int kind, n = 0;
    const lvn_status found = lvni_tensor_backend_find(NAME, &kind);
    if (found == LVN_ERR_NOT_FOUND) {
        explain_absent(d);
    } else if (found != LVN_OK) {
        explain_unloadable(d);
    } else {
        const lvn_status counted = lvni_tensor_backend_get(kind)->count(&n);
        if (counted != LVN_OK || n < 1) {
            explain_count(d, counted);
        } else {
            d->n_usable = n;
            lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "backend cuda", "usable, %d device%s", n,
                                lvni_core_plural(n, "", "s"));
            open_devices(d, lvni_tensor_backend_get(kind), n);
        }
    }
    lvn_clear_error();
}
