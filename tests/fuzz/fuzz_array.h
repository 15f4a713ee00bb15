/* What must hold for an array that a parser accepted. */
#ifndef LEVIN_TESTS_FUZZ_ARRAY_H
#define LEVIN_TESTS_FUZZ_ARRAY_H

#include "fuzz.h"

#include "data/array.h"

static inline void check_array(const lvni_data_array *a, const uint8_t *bytes, size_t size)
{
    enum { MOST = 64 };
    const size_t one = lvni_data_array_type_bytes(a->type);
    CHECK(a->count >= 0 && a->ndim >= 0 && a->ndim <= LVNI_ARRAY_MAX_NDIM);
    CHECK(a->data >= bytes && a->data <= bytes + size &&
          (size_t)a->count <= (size_t)(bytes + size - a->data) / one);
    float f32[MOST];
    int64_t i64[MOST];
    const int64_t n = a->count < MOST ? a->count : MOST;
    double pairs[2 * MOST];
    const lvn_status real = a->type < LVNI_ARRAY_C64 ? LVN_OK : LVN_ERR_DTYPE;
    CHECK(lvni_data_array_read_f32(a, 0, n, f32) == real &&
          lvni_data_array_read_f32(a, a->count - n, n, f32) == real);
    CHECK(lvni_data_array_read_complex(a, 0, n, pairs) == LVN_OK &&
          lvni_data_array_read_complex(a, a->count - n, n, pairs) == LVN_OK);
    CHECK_REPORTED(lvni_data_array_read_i64(a, 0, n, i64));
    CHECK(lvni_data_array_read_f32(a, a->count, 1, f32) == LVN_ERR_INVALID);
    char text[192];
    CHECK(lvni_data_array_shape_text(a, text)[0] == '(');
}

#endif
