/* .npy files: the header alone, and whole. */
#include "fuzz_array.h"

#include "core/alloc.h"
#include "data/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    lvni_data_array header = {0}, a = {0};
    size_t data_at = 0;
    const lvn_status of_header = lvni_data_npy_parse_header(data, size, "fuzz", &header, &data_at);
    CHECK_REPORTED(of_header);
    CHECK(of_header != LVN_OK || (header.data == NULL && data_at <= size));
    const lvn_status status = lvni_data_npy_parse(data, size, "fuzz", &a);
    CHECK_REPORTED(status);
    CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT || status == LVN_ERR_UNSUPPORTED);
    CHECK(status != LVN_OK || of_header == LVN_OK);
    if (status == LVN_OK) {
        check_array(&a, data, size);
    }
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
