/* The listing of a folder of images. The input makes the folder: a line "f PATH" is a file, "d
 * PATH" a folder, "l PATH" a link to the folder itself, "k PATH" a link to nowhere. */
#include "fuzz.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "data/image_folder.h"

#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES = 24, PATH_ROOM = 600 };

static char root[64];

/* No way out of the root, and no name that a file system refuses. */
static bool allowed(const char *path)
{
    return path[0] != '\0' && path[0] != '/' && strstr(path, "..") == NULL && strlen(path) < 200;
}

static void make(char kind, const char *path)
{
    char full[PATH_ROOM];
    snprintf(full, sizeof full, "%s/%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    (void)lvni_core_mkdirs(full);
    *slash = '/';
    int fd = -1;
    switch (kind) {
    case 'd': (void)mkdir(full, 0755); break;
    case 'l': fd = symlink(root, full); break;
    case 'k': fd = symlink("nowhere", full); break;
    default: fd = open(full, O_CREAT | O_WRONLY | O_CLOEXEC, 0644); break;
    }
    if (kind == 'f' && fd >= 0) {
        close(fd);
    }
}

static void make_all(const uint8_t *data, size_t size)
{
    char line[256];
    size_t n = 0;
    int lines = 0;
    for (size_t i = 0; i <= size && lines < LINES; i++) {
        if (i < size && data[i] != '\n' && n + 1 < sizeof line) {
            line[n++] = (char)data[i];
            continue;
        }
        line[n] = '\0';
        if (n > 2 && strchr("fdlk", line[0]) != NULL && line[1] == ' ' && allowed(line + 2)) {
            make(line[0], line + 2);
            lines++;
        }
        n = 0;
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind;
    return at->level == 0 ? 0 : remove(path);
}

static void check(const lvni_data_image_scan *scan, lvni_data_scan_mode mode)
{
    CHECK(scan->n > 0 && scan->begin[0] == 0 && scan->begin[LVNI_PARTS] == scan->n);
    for (int64_t i = 0; i < scan->n; i++) {
        char full[PATH_ROOM];
        snprintf(full, sizeof full, "%s/%s", root, lvni_data_image_scan_name(scan, i));
        struct stat info;
        CHECK(lstat(full, &info) == 0); /* a link to nowhere is reported when it is read */
        const bool first = i == scan->begin[LVNI_PART_TRAIN] || i == scan->begin[LVNI_PART_VAL] ||
                           i == scan->begin[LVNI_PART_TEST];
        CHECK(first || strcmp(lvni_data_image_scan_name(scan, i - 1),
                              lvni_data_image_scan_name(scan, i)) < 0);
        CHECK(mode == LVNI_SCAN_FLAT ? scan->label == NULL
                                     : scan->label[i] >= 0 && scan->label[i] < scan->n_classes);
    }
    char before[PATH_ROOM] = "", name[4 * PATH_ROOM];
    for (int i = 0; i < scan->n_classes; i++) { /* printable, in the order of the folders' bytes */
        const char *text = scan->class_names[i];
        for (size_t at = 0, n = strlen(text), k; at < n; at += k) {
            k = lvni_core_escape_plain(text + at, n - at);
            CHECK(k > 0);
        }
        snprintf(name, sizeof name, "%s", text);
        CHECK(lvni_core_unescape_name(name) < sizeof before);
        CHECK(strcmp(before, name) < 0);
        memcpy(before, name, strlen(name) + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    if (root[0] == '\0') {
        snprintf(root, sizeof root, "%s/levin-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        CHECK(mkdtemp(root) != NULL);
    }
    make_all(data, size);
    static const lvni_data_scan_mode modes[] = {LVNI_SCAN_CLASSES, LVNI_SCAN_FLAT, LVNI_SCAN_EVAL};
    for (int i = 0; i < 3; i++) {
        lvni_data_image_scan *scan = NULL;
        const lvn_status status = lvni_data_image_scan_open(root, modes[i], &scan);
        CHECK_REPORTED(status);
        CHECK(status == LVN_OK || status == LVN_ERR_USAGE);
        if (status == LVN_OK) {
            check(scan, modes[i]);
        }
        lvni_data_image_scan_release(scan);
    }
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}

__attribute__((destructor)) static void remove_root(void)
{
    (void)rmdir(root);
}
