/* Write RGB images as PNG files. Called by contact_sheet.c, the commands and tests. */
#ifndef LEVIN_DATA_PNG_WRITE_H
#define LEVIN_DATA_PNG_WRITE_H

#include <levin/status.h>

/* rgb (height, width, 3). The file appears whole or not at all. LVN_ERR_IO with path and reason. */
lvn_status lvni_data_png_write(const char *path, const uint8_t *rgb, int width, int height);

#endif
