/* Groups of micro-batches that lie on several ranks: the bits of one rank, ranks without samples,
 * and failures, which no rank waits for. */
#include "contrast_support.h"
#include "rank_support.h"

#include "kernels/kernels.h"

#include <string.h>

static void compare_with_one(const memory *data, const setting *s, const char *what)
{
    const uint64_t want = ranks_hash_of_one(data, s, 5, LVN_CPU);
    for (int world = 2; world <= MOST_RANKS; world++) {
        ranks_agree(what, data, s, world, 5, want);
    }
}

/* Groups of 2, 3 and 6 micro-batches of 6, on 2 to 6 ranks: within ranks, across two of them,
 * across all. Steps of 20, 20 and 5 samples (an empty micro-batch), unreadable samples, clipping,
 * an average. */
TEST(bits_do_not_depend_on_ranks)
{
    memory vectors, images;
    memory_init(&vectors, 45, 0);
    memory_init(&images, 45, 8);
    for (int i = 0; i < 45; i += 7) {
        vectors.unreadable[i] = true;
    }
    const int groups[] = {2, 3, 6};
    for (int i = 0; i < 3; i++) {
        setting s = {.batch_size = 20,
                     .micro_batches = 6,
                     .group = groups[i],
                     .lanes = 1,
                     .skip = true,
                     .clip = 0.5,
                     .ema = {.decay = 0.9},
                     .optim = {.kind = LVNI_OPTIM_ADAMW,
                               .lr = 1e-2,
                               .weight_decay = 0.01,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8}};
        s.cls = &contrast_class;
        compare_with_one(&vectors, &s, "contrast");
        s.cls = lvni_nn_zoo_find("cnn");
        s.sync = true;
        compare_with_one(&images, &s, "sync_batchnorm");
    }
}

/* Most samples are unreadable: ranks whose micro-batches have none take part without them. */
TEST(ranks_without_samples_take_part)
{
    memory data;
    memory_init(&data, 48, 0);
    for (int i = 0; i < 48; i++) {
        data.unreadable[i] = i % 5 != 0;
    }
    const setting s = {.cls = &contrast_class,
                       .batch_size = 12,
                       .micro_batches = 6,
                       .group = 6,
                       .lanes = 1,
                       .skip = true};
    compare_with_one(&data, &s, "few samples");
    memset(data.unreadable, true, sizeof data.unreadable);
    compare_with_one(&data, &s, "no samples");
}

TEST(failures_end_all_ranks)
{
    memory data;
    memory_init(&data, 24, 0);
    const setting s = {
        .cls = &contrast_class, .batch_size = 24, .micro_batches = 6, .group = 6, .lanes = 1};
    rank_run run[MOST_RANKS];
    for (int world = 2; world <= 3; world++) {
        for (int i = 0; i < 10; i++) {
            contrast_bad_sample = i;
            contrast_bad = CONTRAST_FAILS;
            ranks_run(&data, &s, world, 1, run);
            int own = 0;
            for (int k = 0; k < world; k++) {
                assert_non_null(strstr(run[k].error.message, "cannot be broadcast"));
                own += run[k].status == LVN_ERR_SHAPE;
                assert_true(run[k].status == LVN_ERR_SHAPE || run[k].status == LVN_ERR_PEER);
            }
            assert_int_equal(own, 1);
            contrast_bad = CONTRAST_STAYS_AWAY;
            ranks_run(&data, &s, world, 1, run);
            for (int k = 0; k < world; k++) {
                assert_true(run[k].status == LVN_ERR_MISMATCH || run[k].status == LVN_ERR_PEER);
                assert_non_null(strstr(run[k].error.message,
                                       "the micro-batches of a group must make the same calls"));
            }
        }
    }
    contrast_bad_sample = -1;
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
