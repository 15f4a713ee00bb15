/* Images of other kinds (foreign.h). */
#include "data/foreign.h"

#include "core/escape.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* As file(1) calls them, a pattern of the shell: its versions differ. */
static const struct {
    const char *name, *type;
} kinds[LVNI_FOREIGN_KINDS] = {
    [LVNI_FOREIGN_WEBP] = {"WebP", "image/webp"},
    [LVNI_FOREIGN_TIFF] = {"TIFF", "image/tiff"},
    [LVNI_FOREIGN_GIF] = {"GIF", "image/gif"},
    [LVNI_FOREIGN_BMP] = {"BMP", "image/*bmp"},
    [LVNI_FOREIGN_HEIC] = {"HEIC", "image/hei*"},
    [LVNI_FOREIGN_AVIF] = {"AVIF", "image/avif"},
    [LVNI_FOREIGN_BIGTIFF] = {"BigTIFF", "image/tiff"},
    [LVNI_FOREIGN_PNM] = {"PNM", "image/x-portable*"},
};

static bool has(const uint8_t *bytes, size_t n, size_t at, const char *text, size_t length)
{
    return n >= at + length && memcmp(bytes + at, text, length) == 0;
}

/* Two letters are not enough: a header of a known length follows. */
static bool is_bmp(const uint8_t *bytes, size_t n)
{
    static const uint8_t lengths[] = {12, 40, 52, 56, 64, 108, 124};
    return has(bytes, n, 0, "BM", 2) && has(bytes, n, 6, "\0\0\0\0", 4) &&
           has(bytes, n, 15, "\0\0\0", 3) && memchr(lengths, bytes[14], sizeof lengths) != NULL;
}

/* A text may begin so, too: a width or a comment follows, or the first line of a PAM. */
static bool is_pnm(const uint8_t *bytes, size_t n)
{
    if (n < 4 || bytes[0] != 'P' || bytes[1] < '1' || bytes[1] > '7') {
        return false;
    }
    if (bytes[1] == '7') {
        return has(bytes, n, 2, "\nWIDTH ", 7) || has(bytes, n, 2, "\n#", 2);
    }
    size_t at = 2;
    while (at < n &&
           (bytes[at] == ' ' || bytes[at] == '\t' || bytes[at] == '\r' || bytes[at] == '\n')) {
        at++;
    }
    return at > 2 && at < n && (bytes[at] == '#' || (bytes[at] >= '0' && bytes[at] <= '9'));
}

static lvni_data_foreign of_brand(const uint8_t *brand)
{
    static const char heic[] = "heic heix heim heis hevc hevx hevm hevs mif1 msf1",
                      avif[] = "avif avis";
    for (const char *p = heic; p < heic + sizeof heic - 1; p += 5) {
        if (memcmp(brand, p, 4) == 0) {
            return LVNI_FOREIGN_HEIC;
        }
    }
    const bool is_avif = memcmp(brand, avif, 4) == 0 || memcmp(brand, avif + 5, 4) == 0;
    return is_avif ? LVNI_FOREIGN_AVIF : LVNI_FOREIGN_NONE;
}

lvni_data_foreign lvni_data_foreign_of(const uint8_t *bytes, size_t n)
{
    if (has(bytes, n, 0, "RIFF", 4) && has(bytes, n, 8, "WEBP", 4)) {
        return LVNI_FOREIGN_WEBP;
    }
    if (has(bytes, n, 0, "II*\0", 4) || has(bytes, n, 0, "MM\0*", 4)) {
        return LVNI_FOREIGN_TIFF;
    }
    if (has(bytes, n, 0, "II+\0", 4) || has(bytes, n, 0, "MM\0+", 4)) {
        return LVNI_FOREIGN_BIGTIFF;
    }
    if (is_pnm(bytes, n)) {
        return LVNI_FOREIGN_PNM;
    }
    if (has(bytes, n, 0, "GIF87a", 6) || has(bytes, n, 0, "GIF89a", 6)) {
        return LVNI_FOREIGN_GIF;
    }
    if (n >= 12 && has(bytes, n, 4, "ftyp", 4)) {
        return of_brand(bytes + 8);
    }
    return is_bmp(bytes, n) ? LVNI_FOREIGN_BMP : LVNI_FOREIGN_NONE;
}

bool lvni_data_foreign_is_read(lvni_data_foreign kind)
{
    return kind == LVNI_FOREIGN_WEBP || kind == LVNI_FOREIGN_TIFF || kind == LVNI_FOREIGN_GIF ||
           kind == LVNI_FOREIGN_BMP || kind == LVNI_FOREIGN_PNM;
}

const char *lvni_data_foreign_name(lvni_data_foreign kind)
{
    return kinds[kind].name;
}

bool lvni_data_foreign_is_converted(const char *path)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG"};
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    if (dot == NULL || (slash != NULL && dot < slash)) {
        return false;
    }
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char beside[PATH_MAX];
        const int n =
            snprintf(beside, sizeof beside, "%.*s%s", (int)(dot - path), path, endings[i]);
        if (n < PATH_MAX && access(beside, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

void lvni_data_foreign_print(lvni_data_foreign kind, int64_t n, const char *const *folders,
                             size_t n_folders, lvni_core_str *out)
{
    lvni_core_str_printf(out, "%lld %s image%s not read; convert %s: find", (long long)n,
                         kinds[kind].name, lvni_core_plural(n, " is", "s are"),
                         lvni_core_plural(n, "it", "them"));
    for (size_t i = 0; i < n_folders; i++) {
        lvni_core_str_char(out, ' ');
        lvni_core_shell_quote(out, folders[i]);
    }
    /* The same endings as above; x.jpg that is a WebP is not beside itself. */
    lvni_core_str_printf(
        out,
        " -type f -exec sh -c 'for f; do case $(file -b --mime-type \"$f\") in "
        "%s) d=; for e in png jpg jpeg PNG JPG JPEG; do g=${f%%.*}.$e; "
        "[ \"$f\" = \"$g\" ] || [ ! -e \"$g\" ] || d=y; done; "
        "[ $d ] || { convert \"$f[0]\" -auto-orient \"$f.png\" && mv \"$f\" \"$f.orig\"; };; "
        "esac; done' sh {} +  (file and ImageMagick)",
        kinds[kind].type);
}
