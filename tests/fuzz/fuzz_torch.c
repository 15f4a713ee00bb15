/* The reader of files of torch.save: the archive, and a pickle of which nothing is executed. As the
 * CRC-32 of an archive would keep most inputs from the pickle, the input is also taken as a pickle.
 */
#include "fuzz.h"

#include "ckpt/torch_impl.h"
#include "core/alloc.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void look_at(const lvni_ckpt_st_file *file)
{
    volatile uint8_t sum = 0;
    for (int64_t i = 0; i < lvni_ckpt_st_count_others(file); i++) {
        const lvni_ckpt_st_other *t = lvni_ckpt_st_other_at(file, i);
        CHECK(t->name[0] != '\0' && lvni_ckpt_st_find_other(file, t->name) != NULL);
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
    }
}

static void open_archive(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    static const unsigned how[] = {0, LVNI_ST_VERIFY, LVNI_ST_HEADER_ONLY};
    static const char *const keys[] = {NULL, NULL, "ema.model"};
    for (int i = 0; i < 3; i++) {
        lvni_ckpt_st_file *file = NULL;
        const char *inner;
        const lvn_status status = lvni_ckpt_torch_open(path, how[i], keys[i], &inner, &file);
        CHECK_REPORTED(status);
        CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT || status == LVN_ERR_UNSUPPORTED);
        if (status == LVN_OK && how[i] != LVNI_ST_HEADER_ONLY) {
            look_at(file);
        }
        lvni_ckpt_st_close(file);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t largest;
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    open_archive(data, size);
    lvni_ckpt_pickle pickle;
    const lvn_status status = lvni_ckpt_pickle_parse("fuzz", (const char *)data, size, &pickle);
    CHECK_REPORTED(status);
    CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT || status == LVN_ERR_UNSUPPORTED);
    CHECK(status != LVN_OK || pickle.top < pickle.n_nodes);
    lvni_ckpt_pickle_free(&pickle);
    largest = size > largest ? size : largest; /* what is in memory is bounded by the file */
    CHECK(lvni_core_alloc_get_total().peak_bytes <= ((uint64_t)1 << 20) + 128 * largest);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
