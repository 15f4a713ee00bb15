/* The batch plan: what the two dialects resolve to, who gets which samples, and the sentences for
 * numbers that do not fit. */
#include "plan/plan.h"
#include "support/test.h"

#include <string.h>

static lvni_plan make(const lvni_plan_options *o)
{
    lvni_plan p;
    memset(&p, 0, sizeof p);
    if (lvni_plan_make(o, &p) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return p;
}

#define PLAN(...) make(&(lvni_plan_options){.n_samples = 341, __VA_ARGS__})
#define REFUSED(sentence, ...)                                                                     \
    refused(&(lvni_plan_options){.n_samples = 341, __VA_ARGS__}, sentence)

static void refused(const lvni_plan_options *o, const char *sentence)
{
    lvni_plan p = {.micro_batches = -5};
    assert_int_equal(lvni_plan_make(o, &p), LVN_ERR_USAGE);
    assert_string_equal(lvn_last_error()->message, sentence);
    assert_int_equal(p.micro_batches, -5); /* untouched */
}

TEST(both_dialects_give_one_plan)
{
    const lvni_plan a = PLAN(.batch_size = 30, .micro_batches = 6);
    const lvni_plan b = PLAN(.batch_size_per_device = 5, .accumulate_grad_batches = 6);
    assert_int_equal(a.effective_batch, 30);
    assert_int_equal(a.micro_batches, 6);
    assert_int_equal(b.effective_batch, 30);
    assert_int_equal(b.micro_batches, 6);
    assert_int_equal(a.steps_per_epoch, b.steps_per_epoch);
    assert_int_equal(a.eval_batch_size, 30);
    assert_int_equal(b.eval_batch_size, 5); /* what the device holds at one time */
    assert_int_equal(a.pins.wgrad_threads, b.pins.wgrad_threads);
    /* S = W x A */
    const lvni_plan c = PLAN(.batch_size = 16, .accumulate_grad_batches = 4, .devices = 2);
    assert_int_equal(c.effective_batch, 64);
    assert_int_equal(c.micro_batches, 8);
    /* both, agreeing */
    const lvni_plan d = PLAN(.batch_size_per_device = 8, .batch_size = 16, .devices = 2);
    assert_int_equal(d.effective_batch, 16);
    const lvni_plan e =
        PLAN(.effective_batch = 30, .micro_batches = 6, .batch_size_per_device = 5, .devices = 3);
    assert_int_equal(e.effective_batch, 30); /* a resumed run keeps its E */
    assert_int_equal(e.micro_batches, 6);
}

TEST(accumulation_may_go_by_the_epoch)
{
    const lvni_plan_factor factor[] = {{.epoch = 2, .factor = 4}, {.epoch = 5, .factor = 2}};
    const lvni_plan p = PLAN(.batch_size = 8, .devices = 2, .factor = factor, .n_factors = 2);
    assert_int_equal(p.effective_batch, 32);
    assert_int_equal(p.micro_batches, 8);
    const int64_t steps[] = {43, 43, 11, 11, 11, 22, 22};
    int64_t before = 0;
    for (int64_t e = 0; e < 7; e++) {
        const lvni_plan q = lvni_plan_in_epoch(&p, e);
        assert_int_equal(lvni_plan_steps_of(&p, e), steps[e]);
        assert_int_equal(lvni_plan_steps_before(&p, e), before);
        int64_t next = 0;
        for (int64_t t = 0; t < steps[e]; t++, before++) {
            int64_t epoch = 0;
            assert_int_equal(lvni_plan_locate(&p, before, &epoch), t);
            assert_int_equal(epoch, e);
            for (int s = 0; s < q.micro_batches; s++) {
                const lvni_plan_range r = lvni_plan_micro_batch(&q, t, s);
                assert_true(r.count == 0 || r.start == next); /* each sample once, in order */
                assert_true(r.count <= 4);
                assert_true(q.accumulate > 1 || s % 4 == 0 || r.count == 0); /* both ranks work */
                next += r.count;
            }
        }
        assert_int_equal(next, 341);
    }
    int64_t epoch = 3;
    assert_int_equal(lvni_plan_locate(&p, 24, &epoch), 2); /* 11 + 11 steps are two epochs */
    assert_int_equal(epoch, 5);
    assert_int_equal(lvni_plan_steps_before(&p, INT64_MAX), INT64_MAX);
}

TEST(an_epoch_may_be_limited)
{
    const lvni_plan whole = PLAN(.batch_size = 32),
                    two = PLAN(.batch_size = 32, .limit_batches = 2),
                    half = PLAN(.batch_size = 32, .limit_part = 0.5),
                    more = PLAN(.batch_size = 32, .limit_batches = 99),
                    windows =
                        PLAN(.batch_size = 32, .accumulate_grad_batches = 4, .limit_batches = 5);
    assert_int_equal(whole.steps_per_epoch, 11);
    assert_int_equal(whole.last_step, 21);
    assert_int_equal(two.steps_per_epoch, 2);
    assert_int_equal(two.last_step, 32); /* whole, as it is not the order's end */
    assert_int_equal(half.steps_per_epoch, 5);
    assert_int_equal(more.steps_per_epoch, 11);
    assert_int_equal(more.last_step, 21);
    assert_int_equal(windows.steps_per_epoch, 2);
    REFUSED("limit_train_batches=0.05 leaves no step of the epoch's 11; smallest that works: "
            "0.091, or a number of batches",
            .batch_size = 32, .limit_part = 0.05);
    assert_int_equal(lvni_plan_eval_limit(&whole, 341, 0, 0), 11);
    assert_int_equal(lvni_plan_eval_limit(&whole, 341, 3, 0), 3);
    assert_int_equal(lvni_plan_eval_limit(&whole, 341, 0, 0.5), 5);
    assert_int_equal(lvni_plan_eval_limit(&whole, 341, 0, 0.01), 0);
}

/* What users of other programs count with: samples of a device x devices x accumulation, and of a
 * global batch the quotient, rounded up, as the largest share. */
TEST(devices_get_the_shares_users_expect)
{
    static const struct {
        int64_t per_device;
        int accumulated;
        int devices;
        int64_t effective;
    } products[] = {{8, 2, 4, 64}, {8, 1, 4, 32}, {5, 3, 1, 15}, {1, 4, 7, 28}};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const lvni_plan p = PLAN(.batch_size_per_device = products[i].per_device,
                                 .accumulate_grad_batches = products[i].accumulated,
                                 .devices = products[i].devices);
        assert_int_equal(p.effective_batch, products[i].effective);
        assert_int_equal(p.micro_batches, products[i].devices * products[i].accumulated);
    }
    static const struct {
        int64_t batch_size;
        int devices;
        int64_t share; /* the largest */
    } shares[] = {{16, 1, 16}, {16, 2, 8}, {16, 3, 6}, {16, 4, 4},
                  {16, 5, 4},  {12, 2, 6}, {5, 4, 2}};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        int64_t most = 0, all = 0;
        for (int rank = 0; rank < shares[i].devices; rank++) {
            const lvni_plan p = PLAN(.batch_size = shares[i].batch_size,
                                     .devices = shares[i].devices, .rank = rank);
            int64_t own = 0;
            for (int s = p.micro_batch_begin; s < p.micro_batch_end; s++) {
                own += lvni_plan_micro_batch(&p, 0, s).count;
            }
            most = own > most ? own : most;
            all += own;
        }
        assert_int_equal(most, shares[i].share);
        assert_int_equal(all, shares[i].batch_size);
    }
}

TEST(steps_and_micro_batches_of_an_epoch)
{
    const lvni_plan p = PLAN(.batch_size = 32, .micro_batches = 6);
    assert_int_equal(p.steps_per_epoch, 11);
    assert_int_equal(p.last_step, 21);
    const int64_t full[] = {6, 6, 5, 5, 5, 5}, last[] = {4, 4, 4, 3, 3, 3};
    int64_t at = 0;
    for (int64_t t = 0; t < p.steps_per_epoch; t++) {
        assert_int_equal(lvni_plan_step(&p, t).start, 32 * t);
        assert_int_equal(lvni_plan_step(&p, t).count, t == 10 ? 21 : 32);
        for (int s = 0; s < 6; s++) {
            const lvni_plan_range r = lvni_plan_micro_batch(&p, t, s);
            assert_int_equal(r.start, at);
            assert_int_equal(r.count, t == 10 ? last[s] : full[s]);
            at += r.count;
        }
    }
    assert_int_equal(at, 341);
    const lvni_plan dropped = PLAN(.batch_size = 32, .drop_last = true);
    assert_int_equal(dropped.steps_per_epoch, 10);
    assert_int_equal(dropped.last_step, 32);
    const lvni_plan few =
        make(&(lvni_plan_options){.n_samples = 4, .batch_size = 30, .micro_batches = 6});
    assert_int_equal(few.steps_per_epoch, 1);
    assert_int_equal(lvni_plan_micro_batch(&few, 0, 3).count, 1);
    /* micro-batches without samples */
    assert_int_equal(lvni_plan_micro_batch(&few, 0, 4).count, 0);
    const lvni_plan exact = make(&(lvni_plan_options){.n_samples = 64, .batch_size = 32});
    assert_int_equal(exact.steps_per_epoch, 2);
    assert_int_equal(exact.last_step, 32);
}

TEST(ranks_own_contiguous_micro_batches)
{
    for (int s = 1; s <= 40; s++) {
        for (int w = 1; w <= s; w++) {
            int next = 0;
            for (int rank = 0; rank < w; rank++) {
                const lvni_plan p =
                    PLAN(.batch_size = 64, .micro_batches = s, .devices = w, .rank = rank);
                assert_int_equal(p.micro_batch_begin, next);
                assert_true(p.micro_batch_end > p.micro_batch_begin);
                next = p.micro_batch_end;
            }
            assert_int_equal(next, s);
        }
    }
    const lvni_plan p = PLAN(.batch_size = 960, .micro_batches = 96, .devices = 12, .rank = 7);
    assert_int_equal(p.sub_trees, 1);
    assert_int_equal(p.waiting_sets, 3);
    assert_int_equal(lvni_plan_sets(&p), p.lanes + 3);
}

/* Costs that are 1 / share give the shares back; otherwise no move of one micro-batch would let the
 * slowest rank end earlier. */
TEST(shares_follow_speed)
{
    const double slow_first[] = {4.0, 1.0, 1.0}, given[] = {1.0 / 4, 1.0 / 49, 1.0 / 1};
    const double equal[] = {2.0, 2.0, 2.0, 2.0, 2.0};
    int bounds[6];
    lvni_plan_balance(slow_first, 3, 9, bounds);
    assert_memory_equal(bounds, ((const int[]){0, 1, 5, 9}), 4 * sizeof *bounds);
    lvni_plan_balance(slow_first, 3, 3, bounds);
    assert_memory_equal(bounds, ((const int[]){0, 1, 2, 3}), 4 * sizeof *bounds);
    lvni_plan_balance(given, 3, 54, bounds);
    assert_memory_equal(bounds, ((const int[]){0, 4, 53, 54}), 4 * sizeof *bounds);
    lvni_plan_balance(equal, 5, 13, bounds); /* as without shares */
    for (int rank = 0; rank < 5; rank++) {
        const lvni_plan p = PLAN(.batch_size = 64, .micro_batches = 13, .devices = 5, .rank = rank);
        assert_int_equal(p.micro_batch_begin, bounds[rank]);
        assert_int_equal(p.micro_batch_end, bounds[rank + 1]);
    }
    const int own[] = {0, 1, 8};
    const lvni_plan p = PLAN(.batch_size = 64, .micro_batches = 8, .devices = 2, .bounds = own);
    assert_int_equal(p.micro_batch_end, 1);
    assert_int_equal(lvni_plan_most_micro_batches(&p), 7);
    assert_int_equal(lvni_plan_micro_batches_of(&p, 1).start, 1);
    lvni_plan other;
    const int none[] = {0, 0, 8}, too_few[] = {0, 1, 7};
    lvni_plan_options o = {
        .n_samples = 341, .batch_size = 64, .micro_batches = 8, .devices = 2, .bounds = none};
    assert_int_equal(lvni_plan_make(&o, &other), LVN_ERR_INVALID);
    o.bounds = too_few;
    assert_int_equal(lvni_plan_make(&o, &other), LVN_ERR_INVALID);
}

TEST(what_the_machine_chooses)
{
    assert_int_equal(PLAN(.batch_size = 32, .cores = 2).pins.wgrad_threads, 2);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 4, .cores = 2).pins.wgrad_threads, 1);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 4, .cores = 64).pins.wgrad_threads,
                     16);
    assert_int_equal(PLAN(.batch_size = 64, .micro_batches = 4, .cores = 64, .cores_all = 400)
                         .pins.wgrad_threads,
                     16);
    assert_int_equal(
        PLAN(.batch_size = 64, .micro_batches = 8, .cores = 8, .cores_all = 24).pins.wgrad_threads,
        3);
    assert_int_equal(
        PLAN(.batch_size = 64, .micro_batches = 4, .cores = 4, .devices = 2).pins.wgrad_threads, 2);
    assert_int_equal(
        PLAN(.batch_size = 32, .pins.wgrad_threads = 3, .cores = 64).pins.wgrad_threads, 3);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 6, .cores = 2).lanes, 2);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 6, .cores = 2, .lanes = 3).lanes, 3);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 6, .cores = 2, .lanes = 9).lanes, 6);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 6, .cores = 8, .devices = 3).lanes, 2);
    assert_int_equal(PLAN(.batch_size = 32).group, 1);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 6).group, 6);
    const lvni_plan coupled =
        PLAN(.batch_size = 32, .micro_batches = 6, .group = 3, .cores = 2, .coupled = true);
    assert_int_equal(coupled.lanes, 3);
    assert_true(coupled.lanes_raised);
    /* rank 1 of two owns micro-batches 4 to 7 of eight: a whole group */
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 8, .group = 4, .devices = 2, .rank = 1,
                          .coupled = true)
                         .lanes,
                     4);
    assert_int_equal(PLAN(.batch_size = 8).eval_batch_size, 8);
    assert_int_equal(PLAN(.batch_size = 64, .micro_batches = 4).eval_batch_size, 64);
    assert_int_equal(PLAN(.batch_size = 256, .micro_batches = 8).eval_batch_size, 64);
    assert_int_equal(PLAN(.batch_size = 256, .micro_batches = 2).eval_batch_size, 128);
    assert_int_equal(PLAN(.batch_size = 256, .eval_batch_size = 10).eval_batch_size, 10);
    /* accumulation is for batches that do not fit at once */
    assert_int_equal(PLAN(.batch_size = 40, .accumulate_grad_batches = 4).eval_batch_size, 40);
    assert_int_equal(PLAN(.batch_size_per_device = 8, .devices = 2, .accumulate_grad_batches = 3)
                         .eval_batch_size,
                     16);
    assert_int_equal(PLAN(.batch_size = 100, .accumulate_grad_batches = 2).eval_batch_size, 100);
}

TEST(evaluation_has_no_padding)
{
    const lvni_plan p = PLAN(.batch_size = 32, .devices = 2, .eval_batch_size = 20);
    assert_int_equal(lvni_plan_eval_chunks(&p, 68), 4);
    assert_int_equal(lvni_plan_eval_chunk(&p, 68, 3).start, 60);
    assert_int_equal(lvni_plan_eval_chunk(&p, 68, 3).count, 8);
    assert_int_equal(lvni_plan_eval_chunks(&p, 60), 3);
    assert_int_equal(lvni_plan_eval_chunks_of(&p, 60, 0).count, 2);
    assert_int_equal(lvni_plan_eval_chunks_of(&p, 60, 1).start, 2);
    assert_int_equal(lvni_plan_eval_chunks(&p, 0), 0);
}

static void assert_waves(const lvni_plan *p, int n, const int *counts)
{
    int micro_batch = p->micro_batch_begin;
    for (int i = 0; i < n; i++) {
        const lvni_plan_range wave = lvni_plan_wave(p, micro_batch);
        assert_int_equal(wave.start, micro_batch);
        assert_int_equal(wave.count, counts[i]);
        micro_batch += counts[i];
    }
    assert_int_equal(micro_batch, p->micro_batch_end);
}

#define WAVES(plan, ...)                                                                           \
    assert_waves(&(plan), (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

TEST(waves_keep_groups_together)
{
    const lvni_plan free_ones = PLAN(.batch_size = 32, .micro_batches = 8, .group = 4, .cores = 3);
    WAVES(free_ones, 3, 3, 2);
    const lvni_plan fours =
        PLAN(.batch_size = 32, .micro_batches = 8, .group = 4, .cores = 3, .coupled = true);
    WAVES(fours, 4, 4);
    const lvni_plan pairs =
        PLAN(.batch_size = 32, .micro_batches = 8, .group = 2, .cores = 5, .coupled = true);
    WAVES(pairs, 4, 4);
    const lvni_plan single =
        PLAN(.batch_size = 32, .micro_batches = 5, .group = 1, .cores = 2, .coupled = true);
    WAVES(single, 2, 2, 1);
    const lvni_plan all = PLAN(.batch_size = 32, .micro_batches = 6, .cores = 1, .coupled = true);
    WAVES(all, 6);
    /* rank 1 of three owns micro-batches 4 to 7 of twelve, parts of the groups 3-5 and 6-8 */
    const lvni_plan shared = PLAN(.batch_size = 32, .micro_batches = 12, .group = 3, .devices = 3,
                                  .rank = 1, .cores = 8, .coupled = true);
    WAVES(shared, 2, 2);
    /* rank 0 of two owns 0 to 4 of ten in groups of two: two whole groups and half of one go
     * together */
    const lvni_plan half = PLAN(.batch_size = 32, .micro_batches = 10, .group = 2, .devices = 2,
                                .cores = 8, .coupled = true);
    WAVES(half, 5);
}

TEST(coupled_micro_batches_see_a_round_of_the_devices)
{
    assert_int_equal(PLAN(.batch_size = 32, .devices = 4, .coupled = true).group, 4);
    assert_int_equal(
        PLAN(.batch_size = 32, .devices = 4, .accumulate_grad_batches = 2, .coupled = true).group,
        4);
    assert_int_equal(PLAN(.batch_size = 32, .accumulate_grad_batches = 4, .coupled = true).group,
                     1);
    assert_int_equal(
        PLAN(.batch_size = 32, .micro_batches = 8, .accumulate_grad_batches = 4, .coupled = true)
            .group,
        2);
    assert_int_equal(
        PLAN(.batch_size = 32, .micro_batches = 8, .accumulate_grad_batches = 3, .coupled = true)
            .group,
        2);
    assert_int_equal(
        PLAN(.batch_size = 32, .micro_batches = 3, .accumulate_grad_batches = 8, .coupled = true)
            .group,
        1);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 8, .accumulate_grad_batches = 4,
                          .group = 8, .coupled = true)
                         .group,
                     8);
    assert_int_equal(PLAN(.batch_size = 32, .micro_batches = 8, .accumulate_grad_batches = 4,
                          .group_all = true, .coupled = true)
                         .group,
                     8);
    assert_int_equal(
        PLAN(.batch_size = 32, .micro_batches = 8, .group = 2, .group_all = true, .coupled = true)
            .group,
        2);
}

TEST(groups_know_their_ranks)
{
    /* ranks own 3, 3, 2, 2, 2 */
    const lvni_plan p =
        PLAN(.batch_size = 32, .micro_batches = 12, .group = 4, .devices = 5, .coupled = true);
    const int start[] = {0, 1, 3}, count[] = {2, 2, 2};
    for (int g = 0; g < 3; g++) {
        assert_int_equal(lvni_plan_ranks_of_group(&p, g).start, start[g]);
        assert_int_equal(lvni_plan_ranks_of_group(&p, g).count, count[g]);
    }
    assert_true(lvni_plan_shares_groups(&p));
    const lvni_plan within =
        PLAN(.batch_size = 32, .micro_batches = 12, .group = 4, .devices = 3, .coupled = true);
    assert_false(lvni_plan_shares_groups(&within));
    assert_int_equal(lvni_plan_ranks_of_group(&within, 2).count, 1);
    const lvni_plan all =
        PLAN(.batch_size = 32, .micro_batches = 12, .group = 12, .devices = 2, .coupled = true);
    assert_true(lvni_plan_shares_groups(&all));
}

TEST(what_does_not_fit_is_reported)
{
    REFUSED("no batch size: give batch_size (over all devices) or batch_size_per_device",
            .micro_batches = 2);
    REFUSED("batch_size 6 cannot be cut into 8 micro-batches (micro_batches=8): at least one "
            "sample each; "
            "smallest that "
            "works: 8",
            .batch_size = 6, .micro_batches = 8);
    REFUSED("batch_size 2 x 2 = 4 samples cannot be cut into 8 micro-batches (4 devices x 2 "
            "accumulation "
            "steps): at "
            "least one sample "
            "each; smallest that works: 4 (or devices=2)",
            .batch_size = 2, .accumulate_grad_batches = 2, .devices = 4);
    REFUSED("batch_size_per_device 3 cannot be cut into 5 micro-batches (micro_batches=5): at "
            "least one sample each; "
            "smallest that works: 5",
            .batch_size_per_device = 3, .micro_batches = 5);
    REFUSED("effective batch 4 cannot be cut into 6 micro-batches (micro_batches=6): at least one "
            "sample each; "
            "largest "
            "number of micro-batches that "
            "works: 4",
            .effective_batch = 4, .micro_batches = 6);
    REFUSED("batch_size=30 and batch_size_per_device=8 disagree: 8 per device on 2 devices is 16; "
            "give one "
            "of them",
            .batch_size = 30, .batch_size_per_device = 8, .devices = 2);
    REFUSED("5 devices cannot share 4 micro-batches: at least one micro-batch each; nearest that "
            "works: "
            "devices=4 (or "
            "micro_batches=5)",
            .batch_size = 30, .devices = 5, .micro_batches = 4);
    REFUSED(
        "group=4 does not divide 6 micro-batches: every group needs as many; nearest that works: 3",
        .batch_size = 30, .micro_batches = 6, .group = 4);
    REFUSED("drop_last=true leaves no step: 341 samples are fewer than the effective batch of 400; "
            "nearest "
            "that works: an "
            "effective batch of 341, or drop_last=false",
            .batch_size = 400, .drop_last = true);
    REFUSED("batch_size=-1 is not a number from 1 to 2147483647 (or leave it out)",
            .batch_size = -1);
    REFUSED("wgrad_threads=17 is not a number from 1 to 16 (or leave it out)", .batch_size = 1,
            .pins.wgrad_threads = 17);
    REFUSED("an effective batch of 2000000000 samples x 2 accumulation steps is too large: at most "
            "2147483647",
            .batch_size = 2000000000, .accumulate_grad_batches = 2);
    refused(&(lvni_plan_options){.batch_size = 3},
            "the training set has no samples: nothing to plan; give data with at least one");
}

static void described_as(const lvni_plan *p, const char *want)
{
    lvni_core_str text = {0};
    lvni_plan_describe_batch(p, &text);
    lvni_core_str_char(&text, '\n');
    lvni_plan_describe_work(p, &text);
    lvni_core_str_char(&text, '\n');
    lvni_plan_describe_pin(p, &text);
    lvni_core_str_char(&text, '\n');
    assert_string_equal(lvni_core_str_text(&text), want);
    lvni_core_str_free(&text);
}

TEST(messages_are_plain)
{
    const lvni_plan two = PLAN(.batch_size = 64, .devices = 2, .accumulate_grad_batches = 1,
                               .micro_batches = 4, .cores = 2);
    described_as(
        &two,
        "effective batch 64 = 4 micro-batches x 16; rank 0 owns micro-batches 0-1, rank 1 owns "
        "micro-batches 2-3\n"
        "an epoch of 341 samples is 6 steps, the last of 21; evaluation in chunks of 64\n"
        "rank 0 computes 2 micro-batches at once (lanes=2) with 2 cores; 3 gradient sets: 1 "
        "waiting "
        "in the tree, 2 "
        "active; a rank exchanges 1 sub-tree\n"
        "the same bits elsewhere: micro_batches=4 wgrad_threads=1 group=4 eval_batch_size=64\n");
    const lvni_plan one = PLAN(.batch_size = 32, .micro_batches = 6, .drop_last = true);
    described_as(
        &one,
        "effective batch 32 = 6 micro-batches x 6 or 5 (the first 2 have 6); rank 0 owns "
        "micro-batches 0-5\n"
        "an epoch of 341 samples is 10 steps, 21 left out each time (drop_last); evaluation in "
        "chunks of 32\n"
        "rank 0 computes 1 micro-batch at once (lanes=1) with 1 core; 3 gradient sets: 2 waiting "
        "in the "
        "tree, 1 "
        "active\n"
        "the same bits elsewhere: micro_batches=6 wgrad_threads=1 group=6 eval_batch_size=32\n");
    const lvni_plan many = PLAN(.batch_size = 100, .devices = 10, .micro_batches = 11);
    lvni_core_str text = {0};
    lvni_plan_describe_batch(&many, &text);
    assert_non_null(strstr(lvni_core_str_text(&text),
                           "; rank 0 owns micro-batches 0-1, rank 1 owns "
                           "micro-batch 2, ..., rank 9 owns micro-batch 10"));
    lvni_core_str_free(&text);
}

/* ---- streams ---- */

#define STREAM(...) (&(lvni_plan_stream){.name = "clips", __VA_ARGS__})

TEST(streams_decide_the_epoch)
{
    /* 341 samples in steps of 32: 11 steps, the last of 21 */
    const struct {
        lvni_plan_rule rule;
        int64_t n, batch, given, steps, last;
    } rows[] = {
        {LVNI_PLAN_CYCLE, 40, 8, 0, 11, 21},      {LVNI_PLAN_ONCE, 400, 8, 0, 11, 21},
        {LVNI_PLAN_SHORTENS, 41, 8, 0, 6, 32},    {LVNI_PLAN_SHORTENS, 400, 8, 0, 11, 21},
        {LVNI_PLAN_LENGTHENS, 401, 8, 0, 51, 32}, {LVNI_PLAN_LENGTHENS, 40, 8, 0, 11, 21},
        {LVNI_PLAN_LENGTHENS, 401, 8, 7, 7, 32},  {LVNI_PLAN_CYCLE, 40, 8, 11, 11, 32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const lvni_plan p =
            PLAN(.batch_size = 32, .micro_batches = 4, .steps_per_epoch = rows[i].given,
                 .stream =
                     STREAM(.n_samples = rows[i].n, .batch = rows[i].batch, .rule = rows[i].rule),
                 .n_streams = 1);
        assert_int_equal(p.steps_per_epoch, rows[i].steps);
        assert_int_equal(p.last_step, rows[i].last);
        assert_int_equal(p.cycles, rows[i].steps != 11 || rows[i].given > 0);
    }
    const lvni_plan_stream two[] = {
        {.name = "a", .n_samples = 401, .batch = 8, .rule = LVNI_PLAN_LENGTHENS},
        {.name = "b", .n_samples = 100, .batch = 8, .rule = LVNI_PLAN_SHORTENS}};
    assert_int_equal(PLAN(.batch_size = 32, .stream = two, .n_streams = 2).steps_per_epoch, 13);
    lvni_plan endless = make(&(lvni_plan_options){
        .n_samples = LVNI_PLAN_ENDLESS, .batch_size = 32, .max_steps = 90, .drop_last = true});
    assert_int_equal(endless.steps_per_epoch, 90);
    endless = make(&(lvni_plan_options){
        .n_samples = LVNI_PLAN_ENDLESS, .batch_size = 32, .max_steps = 90, .steps_per_epoch = 20});
    assert_int_equal(endless.steps_per_epoch, 20);
    assert_int_equal(lvni_plan_step(&endless, 19).count, 32);
}

TEST(streams_are_cut_as_the_step)
{
    const lvni_plan p = PLAN(.batch_size = 32, .micro_batches = 4,
                             .stream = STREAM(.n_samples = 1000, .ratio = 0.3, .order = "shuffled"),
                             .n_streams = 1);
    assert_int_equal(p.stream[0].batch, 10); /* 9.6 */
    assert_int_equal(lvni_plan_stream_largest(&p, 0), 3);
    int64_t at = 70;
    for (int m = 0; m < 4; m++) { /* 3, 3, 2, 2 */
        const lvni_plan_range r = lvni_plan_stream_micro_batch(&p, 0, 2, 7, m);
        assert_int_equal(r.start, at);
        assert_int_equal(r.count, m < 2 ? 3 : 2);
        at += r.count;
    }
    lvni_core_str text = {0};
    lvni_plan_describe_streams(&p, &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "stream clips: 10 samples in a step, 3 or 2 in a micro-batch, of 1000, "
                        "shuffled; pass after pass (100 steps)");
    lvni_core_str_free(&text);
}

TEST(streams_that_do_not_fit)
{
    REFUSED("the stream clips has 0 samples; 1 to 4294967295 are possible", .batch_size = 32,
            .stream = STREAM(.n_samples = 0, .batch = 8), .n_streams = 1);
    REFUSED("the stream clips has 3 samples in a step, which cannot be cut into 4 micro-batches: "
            "at least one sample each; smallest that works: 4 (or micro_batches=3)",
            .batch_size = 32, .micro_batches = 4, .stream = STREAM(.n_samples = 9, .batch = 3),
            .n_streams = 1);
    REFUSED("the stream clips would have 6.4e+10 samples in a step (2e+09 for each of 32); 1 to "
            "2147483647 are possible",
            .batch_size = 32, .stream = STREAM(.n_samples = 9, .ratio = 2e9), .n_streams = 1);
    REFUSED("the stream clips has no length: it cannot decide the epoch's", .batch_size = 32,
            .stream =
                STREAM(.n_samples = LVNI_PLAN_ENDLESS, .batch = 8, .rule = LVNI_PLAN_SHORTENS),
            .n_streams = 1);
    refused(&(lvni_plan_options){.n_samples = LVNI_PLAN_ENDLESS, .batch_size = 32},
            "the training set has no length: give steps_per_epoch (or max_steps, which is then one "
            "epoch)");
}
