/* The arrays of a set of images (array_set.h). */
#include "data/array_set.h"

#include "core/alloc.h"
#include "core/inflate.h"
#include "core/str.h"
#include "core/vfs.h"
#include "core/zip.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names of IDX files: PREFIX, part, what, "-" or ".", "idx3-ubyte", perhaps ".gz" ---- */

enum { PREFIX = 64 };

/* Of the two parts, the validation's other name. */
static const char *const part_names[] = {"train-", "t10k-", "test-"};
static const char *const kinds[] = {"images", "labels"};

static bool is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The file of a part name and kind; false: there is none. Archives unpack to folders of the same
 * name. */
static bool find_file(const char *folder, const char *prefix, const char *part, int kind,
                      char path[PATH_MAX])
{
    static const char separators[] = "-.";
    static const char *const ends[] = {"", ".gz"};
    for (int i = 0; i < 4; i++) {
        const int n = snprintf(path, PATH_MAX, "%s/%s%s%s%cidx%d-ubyte%s", folder, prefix, part,
                               kinds[kind], separators[i / 2], kind == 0 ? 3 : 1, ends[i % 2]);
        if (n < PATH_MAX && is_regular(path)) {
            return true;
        }
    }
    return false;
}

/* The prefix and part name of a file of images; false: the name is another. */
static bool split_name(const char *name, char prefix[PREFIX], const char **part)
{
    for (size_t k = 0; k < sizeof part_names / sizeof *part_names; k++) {
        char middle[24];
        const int length = snprintf(middle, sizeof middle, "%simages", part_names[k]);
        const char *at = strstr(name, middle);
        const char *rest = at == NULL ? "" : at + length;
        const bool fits =
            (*rest == '-' || *rest == '.') &&
            (strcmp(rest + 1, "idx3-ubyte") == 0 || strcmp(rest + 1, "idx3-ubyte.gz") == 0);
        if (fits && (at == name || at[-1] == '-') && at - name < PREFIX) {
            snprintf(prefix, PREFIX, "%.*s", (int)(at - name), name);
            *part = part_names[k];
            return true;
        }
    }
    return false;
}

/* ---- folders of them ---- */

typedef struct found {
    char folder[PATH_MAX], prefix[PREFIX]; /* of the last one */
    int n;                                 /* sets */
    lvni_core_str files;                   /* their training images, "a, b" */
} found;

static void add_set(found *f, const char *folder, const char *prefix, const char *file)
{
    lvni_core_str_printf(&f->files, "%s%s", f->n > 0 ? ", " : "", file);
    snprintf(f->folder, sizeof f->folder, "%s", folder);
    snprintf(f->prefix, sizeof f->prefix, "%s", prefix);
    f->n++;
}

/* The set without a prefix, else all others, each by its training images. All names are looked at:
 * in which order they come depends on the file system. */
static void look_in(const char *path, const char *below, found *f)
{
    char folder[PATH_MAX], file[PATH_MAX], prefix[PREFIX];
    const char *part;
    if (snprintf(folder, sizeof folder, "%s%s", path, below) >= PATH_MAX) {
        return;
    }
    if (find_file(folder, "", part_names[0], 0, file)) {
        add_set(f, folder, "", file);
        return;
    }
    DIR *dir = opendir(folder);
    const struct dirent *e = dir == NULL ? NULL : readdir(dir);
    for (; e != NULL; e = readdir(dir)) {
        if (split_name(e->d_name, prefix, &part) && part == part_names[0] &&
            find_file(folder, prefix, part, 0, file) &&
            strcmp(strrchr(file, '/') + 1, e->d_name) == 0) {
            add_set(f, folder, prefix, file);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* In the folder itself, else where torchvision puts them below its root. */
static void look(const char *path, found *f)
{
    static const char *const roots[] = {"/MNIST/raw", "/FashionMNIST/raw", "/KMNIST/raw",
                                        "/EMNIST/raw"};
    *f = (found){0};
    look_in(path, "", f);
    if (f->n == 0) {
        look_in(path, "/raw", f);
    }
    const bool nothing = f->n == 0;
    for (size_t i = 0; nothing && i < sizeof roots / sizeof *roots; i++) {
        look_in(path, roots[i], f);
    }
}

bool lvni_data_array_set_is_folder(const char *path)
{
    found f;
    look(path, &f);
    lvni_core_str_free(&f.files);
    return f.n > 0;
}

/* The first bytes of a file; 0: it cannot be read, or is none: opening it as what it is reports
 * why. */
static size_t first_bytes(const char *path, uint8_t b[8])
{
    int fd;
    uint64_t size;
    if (lvni_core_regular_open(path, &fd, &size) != LVN_OK) {
        lvn_clear_error();
        return 0;
    }
    const ssize_t n = lvni_core_vfs_get()->read(fd, b, 8);
    lvni_core_vfs_get()->close(fd);
    return n < 0 ? 0 : (size_t)n;
}

static bool is_zip(const char *path)
{
    uint8_t b[8];
    return lvni_core_zip_is(b, first_bytes(path, b));
}

bool lvni_data_array_set_is_file(const char *path)
{
    uint8_t b[8];
    const size_t have = first_bytes(path, b);
    return lvni_data_npy_is(b, have) || lvni_core_inflate_is_gzip(b, have) ||
           lvni_core_zip_is(b, have) ||
           (have >= 4 && b[0] == 0 && b[1] == 0 && b[2] >= 8 && b[2] <= 14);
}

/* ---- opening files ---- */

static lvn_status open_images(lvni_data_array_set *s, const char *path)
{
    lvni_data_array_part *p = &s->part[s->n];
    snprintf(p->images_name, sizeof p->images_name, "%s", path);
    LVN_TRY(lvni_data_array_open(path, &p->images));
    s->n++;
    return LVN_OK;
}

static lvn_status open_labels(lvni_data_array_part *p, const char *path)
{
    snprintf(p->labels_name, sizeof p->labels_name, "%s", path);
    return lvni_data_array_open(path, &p->labels);
}

static lvn_status open_idx_labels(lvni_data_array_set *s, const char *folder, const char *prefix,
                                  const char *part)
{
    char path[PATH_MAX];
    if (!find_file(folder, prefix, part, 1, path)) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "%s has %s%simages-idx3-ubyte, but no %s%slabels-idx1-ubyte (or with .gz) with "
                 "their classes",
                 folder, prefix, part, prefix, part);
    }
    return open_labels(&s->part[s->n - 1], path);
}

/* Training and validation part, by a prefix. */
static lvn_status open_parts(lvni_data_array_set *s, const char *folder, const char *prefix,
                             bool with_labels)
{
    char path[PATH_MAX];
    for (size_t k = 0; k < sizeof part_names / sizeof *part_names && s->n < 2; k++) {
        if (!find_file(folder, prefix, part_names[k], 0, path)) {
            continue;
        }
        LVN_TRY(open_images(s, path));
        LVN_TRY(with_labels ? open_idx_labels(s, folder, prefix, part_names[k]) : LVN_OK);
    }
    return LVN_OK;
}

static lvn_status open_folder(lvni_data_array_set *s, const char *path, const found *f,
                              bool with_labels)
{
    LVN_TRY(lvni_core_str_status(&f->files));
    if (f->n > 1) {
        LVN_FAIL(LVN_ERR_USAGE, "%s holds %d sets; give the training images of one as data=: %s",
                 path, f->n, lvni_core_str_text(&f->files));
    }
    return open_parts(s, f->folder, f->prefix, with_labels);
}

/* ---- one file ---- */

static void folder_of(const char *file, char folder[PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    snprintf(folder, PATH_MAX, "%.*s", slash == NULL ? 1 : (int)(slash - file) + (slash == file),
             slash == NULL ? "." : file);
}

/* labels= is not given: labels.npy beside the file, or what its name stands for. */
static lvn_status find_labels(lvni_data_array_set *s, const char *file)
{
    char folder[PATH_MAX], beside[PATH_MAX], prefix[PREFIX];
    const char *slash = strrchr(file, '/'), *part;
    folder_of(file, folder);
    const int n = snprintf(beside, sizeof beside, "%s/labels.npy", folder);
    if (n < PATH_MAX && is_regular(beside)) {
        LVN_TRY(open_images(s, file));
        return open_labels(&s->part[0], beside);
    }
    if (!split_name(slash == NULL ? file : slash + 1, prefix, &part)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s holds images; labels= is missing: a .npy or IDX file with a whole "
                 "number per image",
                 file);
    }
    if (part == part_names[0]) {
        return open_parts(s, folder, prefix, true);
    }
    LVN_TRY(open_images(s, file));
    return open_idx_labels(s, folder, prefix, part);
}

static lvn_status open_file(lvni_data_array_set *s, const char *file, const char *labels,
                            bool with_labels)
{
    return with_labels && labels == NULL ? find_labels(s, file) : open_images(s, file);
}

/* ---- .npz: arrays by name ---- */

/* As Keras, MedMNIST and users of numpy.savez call them; images before labels. */
typedef struct pair {
    const char *images, *labels;
} pair;

static const pair train_names[] = {{"x_train", "y_train"},
                                   {"train_images", "train_labels"},
                                   {"X_train", "y_train"},
                                   {"images", "labels"},
                                   {"x", "y"},
                                   {"X", "y"},
                                   {"data", "labels"},
                                   {"data", "target"},
                                   {"arr_0", "arr_1"}},
                  val_names[] = {{"x_val", "y_val"},
                                 {"val_images", "val_labels"},
                                 {"x_test", "y_test"},
                                 {"test_images", "test_labels"},
                                 {"X_test", "y_test"}};

static lvni_core_zip_entry *find_array(const lvni_core_zip *zip, const char *name)
{
    char entry[40];
    const int n = snprintf(entry, sizeof entry, "%s.npy", name);
    return lvni_core_zip_find(zip, "", 0, entry, (size_t)n);
}

enum { HEADER = 1 << 16 };

static lvn_status check_declared_size(const lvni_core_zip_entry *e, const lvni_data_array *a,
                                      size_t at, const char *full)
{
    const uint64_t need = (uint64_t)a->count * lvni_data_array_type_bytes(a->type);
    if (need != e->bytes - at) {
        char text[192];
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged: %s of %s are %llu bytes, and %llu are there", full,
                 lvni_data_array_shape_text(a, text), lvni_data_array_type_name(a->type),
                 (unsigned long long)need, (unsigned long long)(e->bytes - at));
    }
    return lvni_data_array_check_packed(a, full, e->packed,
                                        "save it with numpy.savez, which packs nothing");
}

/* Before memory is taken for it: is the entry what the array's own header has, and not far more
 * than its packed bytes? */
static lvn_status check_size(const lvni_core_zip *zip, const lvni_core_zip_entry *e,
                             const char *full)
{
    const size_t n = e->bytes < HEADER ? (size_t)e->bytes : HEADER;
    size_t at = 0;
    lvni_data_array a;
    LVN_TRY(lvni_core_zip_check(zip, e));
    char *header = lvni_core_alloc(LVNI_TAG_DATA, HEADER);
    lvn_status s = header == NULL ? LVN_ERR_MEMORY : lvni_core_zip_read_begin(zip, e, header, n);
    s = s == LVN_OK ? lvni_data_npy_parse_header(header, n, full, &a, &at) : s;
    lvni_core_free(header);
    return s == LVN_OK ? check_declared_size(e, &a, at, full) : s;
}

static lvn_status read_array(const lvni_core_zip *zip, const char *name, char full[PATH_MAX],
                             lvni_data_array *out)
{
    const lvni_core_zip_entry *e = find_array(zip, name);
    snprintf(full, PATH_MAX, "%s: %s", zip->path, name);
    LVN_TRY(check_size(zip, e, full));
    char *bytes = lvni_core_alloc(LVNI_TAG_DATA, e->bytes > 0 ? (size_t)e->bytes : 1);
    if (bytes == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = lvni_core_zip_read(zip, e, true, bytes);
    if (s == LVN_OK) {
        s = lvni_data_npy_parse(bytes, (size_t)e->bytes, full, out);
    }
    if (s != LVN_OK) {
        lvni_core_free(bytes);
        *out = (lvni_data_array){0};
        return s;
    }
    out->owned = bytes;
    return LVN_OK;
}

static lvn_status read_part(lvni_data_array_set *s, const lvni_core_zip *zip, const pair *names,
                            bool with_labels)
{
    lvni_data_array_part *p = &s->part[s->n++];
    LVN_TRY(read_array(zip, names->images, p->images_name, &p->images));
    return with_labels ? read_array(zip, names->labels, p->labels_name, &p->labels) : LVN_OK;
}

static lvn_status report_names(const lvni_core_zip *zip)
{
    enum { SHOWN = 20, END = sizeof ".npy" - 1 };
    lvni_core_str names = {0};
    int shown = 0;
    for (int64_t i = 0; i < zip->n_entries && shown < SHOWN; i++) {
        const lvni_core_zip_entry *e = &zip->entries[i];
        if (e->name_bytes > END && memcmp(e->name + e->name_bytes - END, ".npy", END) == 0) {
            lvni_core_str_printf(&names, "%s%.*s", shown++ > 0 ? ", " : "",
                                 (int)(e->name_bytes - END), e->name);
        }
    }
    lvn_status s = lvni_core_str_status(&names);
    if (s == LVN_OK && shown == 0) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s is a zip archive without arrays (.npy): unpack it, and give the "
                          "folder of its images as data=",
                          zip->path);
    }
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s holds the arrays %s; levin takes images and labels called x_train "
                          "and y_train, train_images and train_labels, or images and labels: save "
                          "it with such names, or as two .npy files",
                          zip->path, lvni_core_str_text(&names));
    }
    lvni_core_str_free(&names);
    return s;
}

/* The first pair of names that is there is a part. Without labels the images are enough. */
static lvn_status find_part(lvni_data_array_set *s, const lvni_core_zip *zip, const pair *names,
                            size_t n, bool with_labels)
{
    for (size_t i = 0; i < n; i++) {
        if (find_array(zip, names[i].images) != NULL &&
            (!with_labels || find_array(zip, names[i].labels) != NULL)) {
            return read_part(s, zip, &names[i], with_labels);
        }
    }
    return LVN_OK;
}

static lvn_status read_npz(lvni_data_array_set *s, const lvni_core_zip *zip, bool with_labels)
{
    LVN_TRY(find_part(s, zip, train_names, sizeof train_names / sizeof *train_names, with_labels));
    if (s->n == 0) {
        return report_names(zip);
    }
    return find_part(s, zip, val_names, sizeof val_names / sizeof *val_names, with_labels);
}

static lvn_status open_npz(lvni_data_array_set *s, const char *path, bool with_labels)
{
    int fd;
    uint64_t bytes;
    lvni_core_zip zip = {0};
    LVN_TRY(lvni_core_regular_open(path, &fd, &bytes));
    lvn_status status = lvni_core_zip_open(path, fd, bytes, &zip);
    if (status == LVN_OK) {
        status = read_npz(s, &zip, with_labels);
    }
    lvni_core_zip_close(&zip);
    lvni_core_vfs_get()->close(fd);
    return status;
}

/* ---- all of them ---- */

lvn_status lvni_data_array_set_open(const char *path, const char *labels, bool with_labels,
                                    lvni_data_array_set *out)
{
    found f;
    *out = (lvni_data_array_set){0};
    look(path, &f);
    const lvn_status s = f.n > 0        ? open_folder(out, path, &f, with_labels)
                         : is_zip(path) ? open_npz(out, path, with_labels && labels == NULL)
                                        : open_file(out, path, labels, with_labels);
    lvni_core_str_free(&f.files);
    if (s != LVN_OK || !with_labels || labels == NULL) {
        return s;
    }
    if (out->n > 1) { /* the labels are those of the first part */
        lvni_data_array_free(&out->part[1].images);
        out->n = 1;
    }
    return open_labels(&out->part[0], labels);
}

void lvni_data_array_set_free(lvni_data_array_set *s)
{
    for (int p = 0; p < 2; p++) {
        lvni_data_array_free(&s->part[p].images);
        lvni_data_array_free(&s->part[p].labels);
    }
    s->n = 0;
}
