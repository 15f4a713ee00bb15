/* What the checks of `levin doctor` share: the report, which is printed line by line so that a
 * driver that hangs shows where, and what later checks need of earlier ones. For this folder
 * only. */
#ifndef LEVIN_CLI_DOCTOR_H
#define LEVIN_CLI_DOCTOR_H

#include "core/str.h"

typedef enum lvni_cli_level { LVNI_LEVEL_OK, LVNI_LEVEL_WARN, LVNI_LEVEL_FAIL } lvni_cli_level;

typedef struct lvni_cli_doctor {
    bool json;
    int n, failed;    /* lines; of them FAIL */
    const char *root; /* "": this machine; a folder with its own proc/, sys/ and dev/ for tests */

    /* GPUs, as the driver shows them */
    lvni_cli_level driver;  /* of its line */
    int n_devices;          /* visible to this process */
    char driver_text[1024]; /* why there are none */
    /* GPUs, as the backend cuda shows them */
    int n_usable;
    char backend_text[1024]; /* why there are none */
} lvni_cli_doctor;

/* "ok NAME: ...". The text of each %s and %c is escaped (core/escape.h). */
void lvni_cli_doctor_add(lvni_cli_doctor *d, lvni_cli_level level, const char *name,
                         const char *fmt, ...) LVN_PRINTF(4, 5);
/* "    fix: ..." of the line before, at most one. */
void lvni_cli_doctor_fix(lvni_cli_doctor *d, const char *fmt, ...) LVN_PRINTF(2, 3);
/* The first bytes of root/path, without the newline at the end; "" when it cannot be read. */
void lvni_cli_doctor_read(const lvni_cli_doctor *d, const char *path, char *out, size_t room);

/* The checks, in the order of the report. */
void lvni_cli_doctor_machine(lvni_cli_doctor *d); /* processors, memory, limits */
void lvni_cli_doctor_driver(lvni_cli_doctor *d);  /* the NVIDIA driver and its devices */
void lvni_cli_doctor_backend(lvni_cli_doctor *d); /* levin_backend_cuda.so */
void lvni_cli_doctor_variables(lvni_cli_doctor *d);

#endif
