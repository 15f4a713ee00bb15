/* A step allocates nothing after warm-up: levin's own counters stand still, over epoch borders
 * too. */
#include "trainer_support.h"

#include "core/alloc.h"
#include "kernels/kernels.h"

#include <stdio.h>

TEST(counters_stand_still)
{
    memory data;
    /* an epoch: 20, 20 and 5 samples, so one micro-batch of the third step is empty */
    memory_init(&data, 45, 8);
    const struct {
        int lanes, workers, group; /* group: of coupled micro-batches, 0: they are not */
    } layouts[] = {{1, 0, 0}, {2, 2, 0}, {3, 1, 0}, {6, 0, 0}, {2, 0, 2}, {6, 1, 6}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const setting s = {.cls = lvni_nn_zoo_find("cnn"),
                           .batch_size = 20,
                           .micro_batches = 6,
                           .lanes = layouts[i].lanes,
                           .group = layouts[i].group,
                           .sync = layouts[i].group > 0,
                           .workers = layouts[i].workers,
                           .optim = {.kind = LVNI_OPTIM_ADAMW,
                                     .lr = 1e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8},
                           .clip = 0.5};
        bench b;
        bench_open(&b, &data, &s);
        bench_steps(&b, 9);
        uint64_t before[LVNI_TAG_COUNT];
        for (int tag = 0; tag < LVNI_TAG_COUNT; tag++) {
            before[tag] = lvni_core_alloc_get_stats((lvni_core_tag)tag).calls;
        }
        bench_steps(&b, 12); /* steps 10 to 21 */
        for (int tag = 0; tag < LVNI_TAG_COUNT; tag++) {
            const uint64_t calls =
                lvni_core_alloc_get_stats((lvni_core_tag)tag).calls - before[tag];
            if (calls != 0) {
                fail_msg("%d lanes, %d workers: %d allocations under tag %d in twelve steps",
                         layouts[i].lanes, layouts[i].workers, (int)calls, tag);
            }
        }
        bench_close(&b);
    }
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
