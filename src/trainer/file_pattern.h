/* checkpoint.filename: a file's name from step, epoch and metrics, with Lightning's patterns:
 * "{epoch:03d}-{step}", "{val/loss:.2f}". Called by the options' check, choose.c and monitors.c. */
#ifndef LEVIN_TRAINER_FILE_PATTERN_H
#define LEVIN_TRAINER_FILE_PATTERN_H

#include "core/str.h"

#include <stdbool.h>
#include <stdint.h>

enum { LVNI_PATTERN_NAME = 64, LVNI_FILE_NAME = 200 };

/* One {name:format}. */
typedef struct lvni_trainer_pattern_field {
    char name[LVNI_PATTERN_NAME];   /* as it is written */
    char metric[LVNI_PATTERN_NAME]; /* "val/loss", also of {val_loss}; "": epoch or step */
    bool zeros;
    int width, precision; /* precision -1: not given */
    char kind;            /* d f e g; 0: not given */
} lvni_trainer_pattern_field;

typedef enum lvni_trainer_pattern_part {
    LVNI_PATTERN_END,
    LVNI_PATTERN_TEXT, /* up to where *at is now */
    LVNI_PATTERN_FIELD,
    LVNI_PATTERN_BAD
} lvni_trainer_pattern_part;

/* The part at *at, which is moved behind it. */
lvni_trainer_pattern_part lvni_trainer_pattern_next(const char **at,
                                                    lvni_trainer_pattern_field *field);
/* What a pattern must be, where it is not; NULL: nothing is wrong. */
const char *lvni_trainer_pattern_wrong(const char *pattern);

typedef struct lvni_trainer_pattern_values {
    int64_t epoch, step;
    double (*metric)(const void *user, const char *metric); /* NaN: it has no value now */
    const void *user;
} lvni_trainer_pattern_values;

/* The name, without ending; names: with "name=" before each value. A '/' becomes a '_'. */
void lvni_trainer_pattern_print(const char *pattern, bool names,
                                const lvni_trainer_pattern_values *values, lvni_core_str *out);

#endif
