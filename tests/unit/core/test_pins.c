/* The record of pinned choices: rules, limits and text of its fields. */
#include "core/pins.h"
#include "support/test.h"

#include <string.h>

TEST(rules_choose_what_is_not_given)
{
    static const struct {
        int given;
        int64_t cores, micro_batches;
        int chosen;
    } rows[] = {{0, 2, 1, 2},  {0, 2, 4, 1},   {0, 400, 4, 16},
                {0, 24, 8, 3}, {5, 400, 4, 5}, {1, 8, 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_core_pins pins = {.wgrad_threads = rows[i].given};
        const lvni_core_pin_facts facts = {.cores = rows[i].cores,
                                           .micro_batches = rows[i].micro_batches};
        lvni_core_pins_choose(&pins, &facts);
        assert_int_equal(pins.wgrad_threads, rows[i].chosen);
    }
}

TEST(rows_and_fields_are_one)
{
    lvni_core_pins pins = {0};
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        const lvni_core_pin *row = &lvni_core_pin_table[i];
        assert_true(row->key != NULL && row->backend != NULL && row->meaning != NULL);
        assert_true(row->min >= 1 && row->min <= row->max); /* 0 means: not given */
        *lvni_core_pins_at(&pins, i) = row->max;
        assert_int_equal(lvni_core_pins_get(&pins, i), row->max);
    }
    assert_int_equal(pins.wgrad_threads, 16);
    assert_string_equal(lvni_core_pin_table[LVNI_PIN_wgrad_threads].key, "wgrad_threads");
    assert_int_equal(lvni_core_pins_least().wgrad_threads, 1);
    lvni_core_str text = {0};
    lvni_core_pins_print(&pins, &text);
    assert_string_equal(lvni_core_str_text(&text), " wgrad_threads=16");
    lvni_core_str_free(&text);
}
