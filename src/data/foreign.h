/* Images of other kinds than JPEG and PNG, known by their first bytes: how they are called, which
 * of them levin_video.so decodes, and the command that converts the others below a folder. Called
 * by the files that list a folder (folder_impl.h) and by the recipes. */
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
    LVNI_FOREIGN_BIGTIFF,
    LVNI_FOREIGN_PNM, /* PBM, PGM, PPM, PAM */
    LVNI_FOREIGN_KINDS
} lvni_data_foreign;

/* Of each kind. */
typedef struct lvni_data_foreign_counts {
    int64_t n[LVNI_FOREIGN_KINDS];
} lvni_data_foreign_counts;

enum { LVNI_FOREIGN_BYTES = 18 }; /* that are needed to know one */

lvni_data_foreign lvni_data_foreign_of(const uint8_t *bytes, size_t n);
/* Those that are images as JPEG and PNG are, where levin_video.so is. */
bool lvni_data_foreign_is_read(lvni_data_foreign kind);
const char *lvni_data_foreign_name(lvni_data_foreign kind); /* "WebP" */
/* Is there a JPEG or PNG beside the file, made from it? x.png or x.jpg beside x.webp. */
bool lvni_data_foreign_is_converted(const char *path);
/* "6 HEIC images are not read; convert them: COMMAND", appended, for n_folders
 * folders. The command knows the images by what is in them, puts x.heic.png beside x.heic and
 * renames that to x.heic.orig, except for converted ones. */
void lvni_data_foreign_print(lvni_data_foreign kind, int64_t n, const char *const *folders,
                             size_t n_folders, lvni_core_str *out);

#endif
