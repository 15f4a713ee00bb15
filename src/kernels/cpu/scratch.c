/* Scratch memory of the cpu kernels (scratch.h). */
#include "kernels/cpu/scratch.h"

#include "core/alloc.h"
#include "core/math.h"
#include "kernels/kernels.h"
#include "tensor/device.h"

#include <stdatomic.h>

typedef struct weights_note {
    uint64_t id, format;
} weights_note;

typedef struct scratch {
    void *data[LVNI_SCRATCH_SLOTS];
    size_t bytes[LVNI_SCRATCH_SLOTS];
    /* of dry runs, which a context may have between its own calls (autograd/placing.h) */
    size_t noted[LVNI_SCRATCH_SLOTS];
    weights_note *note;
    int n_notes, note_room;
    uint64_t noted_bytes;
} scratch;

static void end_scratch(void *state)
{
    scratch *s = state;
    for (int i = 0; i < LVNI_SCRATCH_SLOTS; i++) {
        lvni_core_free(s->data[i]);
    }
    lvni_core_free(s->note);
}

static const lvni_tensor_state_class scratch_class = {.bytes = sizeof(scratch), .end = end_scratch};

static scratch *get(void)
{
    return lvni_tensor_ctx_state(&scratch_class);
}

static _Atomic uint32_t spoiled; /* the bits of a float */

void lvni_kernels_scratch_spoil(float with)
{
    atomic_store(&spoiled, lvni_core_f32_bits(with));
}

static void *spoil(void *data, size_t bytes)
{
    const uint32_t with = atomic_load_explicit(&spoiled, memory_order_relaxed);
    for (size_t i = 0; with != 0 && data != NULL && i < bytes / sizeof with; i++) {
        ((uint32_t *)data)[i] = with;
    }
    return data;
}

void *lvni_cpu_scratch(lvni_cpu_scratch_slot slot, size_t bytes)
{
    scratch *s = get();
    if (s == NULL) {
        return NULL;
    }
    if (lvni_tensor_device_dry_run()) {
        const size_t need = (bytes + 4095) / 4096 * 4096;
        s->noted[slot] = need > s->noted[slot] ? need : s->noted[slot];
        return s;
    }
    if (s->data[slot] == NULL || s->bytes[slot] < bytes) {
        /* The old contents are dead: free first, so that the peak is one buffer. */
        lvni_core_free(s->data[slot]);
        const size_t rounded = (bytes + 4095) / 4096 * 4096;
        s->data[slot] = lvni_core_alloc(LVNI_TAG_KERNEL, rounded);
        s->bytes[slot] = s->data[slot] == NULL ? 0 : rounded;
    }
    return spoil(s->data[slot], bytes);
}

lvn_status lvni_cpu_scratch_record_weights(uint64_t id, uint64_t format, size_t bytes)
{
    scratch *s = get();
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < s->n_notes; i++) {
        if (s->note[i].id == id && s->note[i].format == format) {
            return LVN_OK;
        }
    }
    if (s->n_notes == s->note_room) {
        const int room = s->note_room == 0 ? 64 : 2 * s->note_room;
        weights_note *more =
            lvni_core_realloc(LVNI_TAG_KERNEL, s->note, (size_t)room * sizeof *more);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        s->note = more;
        s->note_room = room;
    }
    s->note[s->n_notes++] = (weights_note){.id = id, .format = format};
    s->noted_bytes += bytes;
    return LVN_OK;
}

lvni_cpu_need lvni_cpu_get_need(void)
{
    const scratch *s = get();
    lvni_cpu_need need = {0};
    for (int i = 0; s != NULL && i < LVNI_SCRATCH_SLOTS; i++) {
        need.scratch += s->noted[i] > s->bytes[i] ? s->noted[i] : s->bytes[i];
    }
    need.weights = s == NULL ? 0 : s->noted_bytes;
    return need;
}
