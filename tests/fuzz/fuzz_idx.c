/* IDX files, also packed with gzip. */
#include "fuzz_array.h"

#include "core/alloc.h"
#include "core/inflate.h"
#include "data/array.h"

#include <string.h>

static void parse(const uint8_t *bytes, size_t size)
{
    lvni_data_array a = {0};
    const lvn_status status = lvni_data_idx_parse(bytes, size, "fuzz", &a);
    CHECK_REPORTED(status);
    CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT);
    if (status == LVN_OK) {
        check_array(&a, bytes, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    parse(data, size);
    if (lvni_core_inflate_is_gzip(data, size)) {
        char *bytes = lvni_core_alloc(LVNI_TAG_DATA, size);
        size_t n = size;
        CHECK(bytes != NULL);
        memcpy(bytes, data, size);
        const lvn_status status = lvni_data_idx_unpack("fuzz", &bytes, &n);
        CHECK_REPORTED(status);
        if (status == LVN_OK) {
            parse((const uint8_t *)bytes, n);
        }
        lvni_core_free(bytes);
    }
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
