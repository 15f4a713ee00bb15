/* The decoders of images, whole and in part. The checksums of PNG chunks are put right first,
 * else nearly every change ends there. */
#include "fuzz.h"

#include "data/image.h"

#include <string.h>

static uint32_t crc(const uint8_t *bytes, size_t n)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= bytes[i];
        for (int k = 0; k < 8; k++) {
            c = (c >> 1) ^ (0xedb88320u & (0u - (c & 1u)));
        }
    }
    return ~c;
}

static void put_right(uint8_t *png, size_t n)
{
    for (size_t at = 8; at + 12 <= n;) {
        const size_t length = (size_t)png[at] << 24 | (size_t)png[at + 1] << 16 |
                              (size_t)png[at + 2] << 8 | png[at + 3];
        if (length > n - at - 12) {
            return;
        }
        const uint32_t c = crc(png + at + 4, length + 4);
        for (int k = 0; k < 4; k++) {
            png[at + 8 + length + (size_t)k] = (uint8_t)(c >> (24 - 8 * k));
        }
        at += length + 12;
    }
}

static void decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t size,
                   const lvni_data_image_info *info, double need, const lvni_data_box *wanted)
{
    lvni_data_image out = {0};
    const lvn_status status =
        lvni_data_image_decode(scratch, bytes, size, "fuzz", info, need, wanted, &out);
    CHECK_REPORTED(status);
    CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT || status == LVN_ERR_UNSUPPORTED);
    if (status == LVN_OK) {
        const int columns = out.columns == 0 ? out.width : out.columns,
                  rows = out.columns == 0 ? out.height : out.rows;
        CHECK(columns > 0 && rows > 0 && out.left >= 0 && out.top >= 0 &&
              out.left + columns <= out.width && out.top + rows <= out.height);
        volatile uint8_t last = out.rgb[(size_t)columns * (size_t)rows * 3 - 1];
        (void)last;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    CHECK(scratch != NULL);
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    CHECK(bytes != NULL);
    memcpy(bytes, data, size);
    if (size > 8 && bytes[0] == 0x89) {
        put_right(bytes, size);
    }
    lvni_data_image_info info = {0};
    const lvn_status status = lvni_data_image_probe(scratch, bytes, size, "fuzz", &info);
    CHECK_REPORTED(status);
    if (status == LVN_OK) {
        CHECK(info.width > 0 && info.height > 0 && info.orientation >= 1 && info.orientation <= 8);
        if ((int64_t)info.width * info.height <= 1 << 18) {
            /* larger ones are slow and no different */
            decode(scratch, bytes, size, &info, 1.0, NULL);
            decode(scratch, bytes, size, &info, 0.3, NULL);
            const lvni_data_box part = {info.width * 0.25, info.height * 0.5, info.width * 0.5,
                                        info.height * 0.25};
            decode(scratch, bytes, size, &info, 1.0, &part);
        }
    }
    free(bytes);
    return 0;
}
