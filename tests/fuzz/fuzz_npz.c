/* .npz files: zip archives, stored or compressed, and the arrays in them that are a set. */
#include "fuzz_array.h"

#include "core/alloc.h"
#include "data/array_set.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Its bytes are its own, so that reading its elements is all that can be checked. */
static void check_part(const lvni_data_array *a)
{
    const size_t bytes = (size_t)a->count * lvni_data_array_type_bytes(a->type);
    CHECK(a->data != NULL && a->owned != NULL);
    check_array(a, a->data, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || memcmp(data, "PK\3\4", 4) != 0) {
        return 0; /* the other targets' part */
    }
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    for (int with_labels = 0; with_labels < 2; with_labels++) {
        lvni_data_array_set set;
        const lvn_status status = lvni_data_array_set_open(path, NULL, with_labels == 1, &set);
        CHECK_REPORTED(status);
        CHECK(status != LVN_OK || set.n > 0);
        for (int p = 0; status == LVN_OK && p < set.n; p++) {
            check_part(&set.part[p].images);
            if (with_labels == 1) {
                check_part(&set.part[p].labels);
            }
        }
        lvni_data_array_set_free(&set);
    }
    close(fd);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
