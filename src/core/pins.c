/* The table of pinned choices and their rules (pins.h). */
#include "core/pins.h"

#include <stddef.h>

static int64_t cores_of_a_micro_batch(const lvni_core_pin_facts *f)
{
    return f->cores / f->micro_batches;
}

const lvni_core_pin lvni_core_pin_table[LVNI_PIN_COUNT] = {
#define LVNI_PIN(name, of, smallest, largest, by, what)                                            \
    {.key = #name, .backend = of, .meaning = what, .min = smallest, .max = largest, .rule = by},
#include "core/pins.def"
#undef LVNI_PIN
};

static const size_t offsets[LVNI_PIN_COUNT] = {
#define LVNI_PIN(name, backend, min, max, rule, meaning) offsetof(lvni_core_pins, name),
#include "core/pins.def"
#undef LVNI_PIN
};

int *lvni_core_pins_at(lvni_core_pins *p, int i)
{
    return (int *)((char *)p + offsets[i]);
}

int lvni_core_pins_get(const lvni_core_pins *p, int i)
{
    return *(const int *)((const char *)p + offsets[i]);
}

void lvni_core_pins_choose(lvni_core_pins *p, const lvni_core_pin_facts *facts)
{
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        const lvni_core_pin *row = &lvni_core_pin_table[i];
        int *field = lvni_core_pins_at(p, i);
        if (*field == 0) {
            const int64_t value = row->rule(facts);
            *field = value < row->min ? row->min : value > row->max ? row->max : (int)value;
        }
    }
}

lvni_core_pins lvni_core_pins_least(void)
{
    lvni_core_pins p = {0};
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        *lvni_core_pins_at(&p, i) = lvni_core_pin_table[i].min;
    }
    return p;
}

void lvni_core_pins_print(const lvni_core_pins *p, lvni_core_str *out)
{
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        lvni_core_str_printf(out, " %s=%d", lvni_core_pin_table[i].key, lvni_core_pins_get(p, i));
    }
}
