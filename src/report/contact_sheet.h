/* A page of images with a coloured frame each (green: predicted right, red: wrong, grey: unknown)
 * and two short lines of text below. Called by the predict command and `make demo`. */
#ifndef LEVIN_REPORT_CONTACT_SHEET_H
#define LEVIN_REPORT_CONTACT_SHEET_H

#include <levin/status.h>

typedef enum lvni_report_verdict {
    LVNI_VERDICT_NONE,
    LVNI_VERDICT_RIGHT,
    LVNI_VERDICT_WRONG
} lvni_report_verdict;

typedef struct lvni_report_sheet_item {
    const uint8_t *rgb; /* (size, size, 3), size as given to lvni_report_contact_sheet_write */
    lvni_report_verdict verdict;
    const char *line1,
        *line2; /* UTF-8; what is too long for the tile loses its middle; NULL: empty */
} lvni_report_sheet_item;

/* n >= 1 images in rows of `columns`, written as PNG or SVG (canvas.h). Small images are enlarged
 * by a whole factor. */
lvn_status lvni_report_contact_sheet_write(const char *path, const lvni_report_sheet_item *items,
                                           int n, int columns, int size);

#endif
