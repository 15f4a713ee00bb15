/* Images of kinds that are not read, known by their first bytes: how they are called, and the
 * command that converts the ones below a folder. Called by the files that list a folder
 * (folder_impl.h) and by the recipes. */
#ifndef LEVIN_DATA_FOREIGN_H
#define LEVIN_DATA_FOREIGN_H

#include "core/str.h"

typedef enum lvni_data_foreign {
    LVNI_FOREIGN_NONE,
    LVNI_FOREIGN_WEBP,
    LVNI_FOREIGN_TIFF,
    LVNI_FOREIGN_GIF,
    LVNI_FOREIGN_BMP,
    LVNI_FOREIGN_HEIC,
    LVNI_FOREIGN_AVIF,
    LVNI_FOREIGN_KINDS
} lvni_data_foreign;

/* Of each kind. */
typedef struct lvni_data_foreign_counts {
    int64_t n[LVNI_FOREIGN_KINDS];
} lvni_data_foreign_counts;

enum { LVNI_FOREIGN_BYTES = 18 }; /* that are needed to know one */

lvni_data_foreign lvni_data_foreign_of(const uint8_t *bytes, size_t n);
const char *lvni_data_foreign_name(lvni_data_foreign kind); /* "WebP" */
/* Is there a JPEG or PNG beside the file, made from it? x.png or x.jpg beside x.webp. */
bool lvni_data_foreign_is_converted(const char *path);
/* "6 WebP images are not read, only JPEG and PNG; convert them: COMMAND", appended, for n_folders
 * folders. The command knows the images by what is in them, puts x.webp.png beside x.webp and
 * renames that to x.webp.orig, except for converted ones. */
void lvni_data_foreign_print(lvni_data_foreign kind, int64_t n, const char *const *folders,
                             size_t n_folders, lvni_core_str *out);

#endif
