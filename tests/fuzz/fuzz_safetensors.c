/* The reader of safetensors files, checkpoints included; input that begins with a brace is the
 * index of several, beside which lie three files that are whole, two of them with one name, and one
 * that is cut off. */
#include "fuzz.h"

#include "ckpt/checkpoint.h"
#include "ckpt/torch_file.h"
#include "core/alloc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void look_at(const lvni_ckpt_st_file *file)
{
    volatile uint8_t sum = 0;
    for (int64_t i = 0; i < lvni_ckpt_st_count_others(file); i++) {
        const lvni_ckpt_st_other *t = lvni_ckpt_st_other_at(file, i);
        CHECK(lvni_ckpt_st_find_other(file, t->name) == t && t->what[0] != '\0');
        CHECK(lvni_ckpt_st_find(file, t->name) == NULL);
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(file, i);
        CHECK(lvni_ckpt_st_find(file, t->name) == t);
        CHECK(i == 0 || strcmp(lvni_ckpt_st_at(file, i - 1)->name, t->name) < 0);
        size_t bytes = lvn_dtype_size(t->dtype);
        for (int k = 0; k < t->ndim; k++) {
            bytes *= (size_t)t->shape[k];
        }
        CHECK(bytes == t->bytes);
        if (bytes > 0) { /* both ends are there */
            sum = (uint8_t)(sum + ((const uint8_t *)t->data)[0] +
                            ((const uint8_t *)t->data)[bytes - 1]);
        }
        (void)lvni_ckpt_st_tensor_ok(file, i);
    }
    (void)lvni_ckpt_st_meta_get(file, "format");
    (void)lvni_ckpt_st_header_ok(file);
}

/* ---- an index ---- */

static char folder[] = "/tmp/levin-fuzz-XXXXXX";
static const struct {
    const char *name, *header;
    size_t data; /* bytes of zeros behind it */
} parts[] = {
    {"a",
     "{\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"q\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[8,11]}}",
     11},
    {"b", "{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", 8},
    {"c", "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 3},
    {"d",
     "{\"w\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0,3]},"
     "\"z\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[3,5]}}",
     5},
};

static void put(const char *name, const void *start, size_t n, const void *rest, size_t n_rest)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path); /* file systems may write one that is cut to nothing to the disk */
    const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, start, n) == (ssize_t)n);
    CHECK(write(fd, rest, n_rest) == (ssize_t)n_rest);
    close(fd);
}

static void remove_folder(void)
{
    static const char *const names[] = {"a", "b", "c", "d", "m.index.json"};
    char path[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    static const char zeros[16];
    CHECK(mkdtemp(folder) != NULL);
    atexit(remove_folder);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char whole[256];
        const uint64_t n = strlen(parts[i].header);
        memcpy(whole, &n, sizeof n);
        memcpy(whole + sizeof n, parts[i].header, (size_t)n);
        put(parts[i].name, whole, sizeof n + (size_t)n, zeros, parts[i].data);
    }
}

static void open_index(const uint8_t *data, size_t size)
{
    static bool made;
    char path[64];
    if (!made) {
        make_folder();
        made = true;
    }
    put("m.index.json", data, size, "", 0);
    snprintf(path, sizeof path, "%s/m.index.json", folder);
    static const unsigned how[] = {0, LVNI_ST_VERIFY};
    for (int i = 0; i < 2; i++) {
        lvni_ckpt_st_file *file = NULL;
        const char *inner = NULL;
        const lvn_status status = lvni_ckpt_tensors_open(path, how[i], NULL, &inner, &file);
        CHECK_REPORTED(status);
        CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT || status == LVN_ERR_UNSUPPORTED ||
              status == LVN_ERR_NOT_FOUND || status == LVN_ERR_IO);
        if (status == LVN_OK) {
            look_at(file);
        }
        lvni_ckpt_st_close(file);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    if (size > 0 && data[0] == '{') {
        open_index(data, size);
    }
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    static const unsigned how[] = {0, LVNI_ST_VERIFY, LVNI_ST_HEADER_ONLY};
    for (int i = 0; i < 3; i++) {
        lvni_ckpt_st_file *file = NULL;
        const lvn_status status = lvni_ckpt_st_open(path, how[i], &file);
        CHECK_REPORTED(status);
        CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT || status == LVN_ERR_UNSUPPORTED);
        if (status == LVN_OK && how[i] != LVNI_ST_HEADER_ONLY) {
            look_at(file);
        }
        lvni_ckpt_st_close(file);
    }
    lvni_ckpt *ckpt = NULL;
    const lvn_status status = lvni_ckpt_load(path, &ckpt);
    CHECK_REPORTED(status);
    lvni_ckpt_free(ckpt);
    close(fd);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
