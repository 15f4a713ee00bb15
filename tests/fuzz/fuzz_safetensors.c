/* The reader of safetensors files, checkpoints included. */
#include "fuzz.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
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
