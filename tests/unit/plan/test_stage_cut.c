/* The cut against all cuts, written down as a recursion, and the order of work against its promise:
 * no stage keeps more tapes than it should, and a step of equal stages waits as long as is
 * known. */
#include "core/rng.h"
#include "plan/stage_order.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { MOST_UNITS = 12, MOST_DEVICES = 4, MODELS = 500 };

typedef struct model {
    lvni_plan_unit unit[MOST_UNITS];
    lvni_plan_stage_device device[MOST_DEVICES];
    lvni_plan_cut_options o;
} model;

static uint32_t number(uint32_t round, uint64_t i, uint32_t below)
{
    const lvni_core_rng rng = {.key = {{3, 5}}, .a = round};
    return lvni_core_rng_u32(&rng, i) % below;
}

/* Whole numbers, so that there are ties, and sums are exact. */
static void draw(uint32_t round, model *m)
{
    memset(m, 0, sizeof *m);
    const int units = 1 + (int)number(round, 0, MOST_UNITS);
    int stages = 1 + (int)number(round, 1, MOST_DEVICES);
    stages = stages > units ? units : stages;
    for (int i = 0; i < units; i++) {
        const uint64_t e = 10 + 5 * (uint64_t)i;
        m->unit[i] = (lvni_plan_unit){.work = 1 + number(round, e, 9),
                                      .crossing = number(round, e + 1, 4),
                                      .fixed = number(round, e + 2, 50),
                                      .kept = number(round, e + 3, 20),
                                      .input = number(round, e + 4, 10)};
    }
    const bool unequal = number(round, 2, 2) == 0, bounded = number(round, 3, 3) > 0;
    for (int i = 0; i < stages; i++) {
        const uint64_t e = 100 + 2 * (uint64_t)i;
        m->device[i] = (lvni_plan_stage_device){
            .speed = unequal ? 1 << number(round, e, 3) : 1,
            .memory = !bounded ? 0 : 100 + (unequal ? number(round, e + 1, 300) : 150)};
    }
    m->o = (lvni_plan_cut_options){.unit = m->unit,
                                   .n_units = units,
                                   .device = m->device,
                                   .stages = stages,
                                   .micro_batches = 1 + (int)number(round, 4, 6),
                                   .forwards_first = number(round, 5, 4) == 0};
}

/* What stage `stage` takes, in the words of the header. */
static double take(const model *m, int stage, int begin, int end, int device)
{
    double work = 0.0;
    uint64_t bytes = 0;
    const int s = m->o.micro_batches, behind = m->o.stages - stage;
    const uint64_t tapes = (uint64_t)(m->o.forwards_first || behind > s ? s : behind);
    for (int i = begin; i < end; i++) {
        work += m->unit[i].work;
        bytes += m->unit[i].fixed + tapes * m->unit[i].kept;
    }
    const lvni_plan_stage_device *d = &m->device[device];
    bytes += begin > 0 ? tapes * m->unit[begin].input : 0;
    work = work / d->speed + (begin > 0 ? m->unit[begin].crossing : 0.0);
    return d->memory != 0 && bytes > d->memory ? (double)INFINITY : work;
}

/* All cuts of all orders: devices before borders, the earlier first. */
static void try_borders(const model *m, lvni_plan_cut *now, int stage, double most,
                        lvni_plan_cut *best)
{
    const int begin = now->begin[stage];
    if (stage == m->o.stages) {
        if (begin == m->o.n_units && most < best->most) {
            *best = *now;
            best->most = most;
        }
        return;
    }
    for (int end = begin + 1; end <= m->o.n_units; end++) {
        now->begin[stage + 1] = end;
        try_borders(m, now, stage + 1, fmax(most, take(m, stage, begin, end, now->device[stage])),
                    best);
    }
}

static void try_devices(const model *m, lvni_plan_cut *now, int stage, unsigned used,
                        lvni_plan_cut *best)
{
    if (stage == m->o.stages) {
        try_borders(m, now, 0, 0.0, best);
        return;
    }
    for (int i = 0; i < m->o.stages; i++) {
        if ((used >> i & 1u) == 0) {
            now->device[stage] = i;
            try_devices(m, now, stage + 1, used | 1u << i, best);
        }
    }
}

static void check_model(uint32_t round, int *refused)
{
    model m;
    draw(round, &m);
    lvni_plan_cut now = {.stages = m.o.stages}, best = {.most = (double)INFINITY}, cut;
    try_devices(&m, &now, 0, 0, &best);
    const lvn_status s = lvni_plan_cut_make(&m.o, &cut);
    if (isinf(best.most)) {
        assert_true(s == LVN_ERR_USAGE);
        *refused += 1;
        return;
    }
    assert_true(s == LVN_OK && cut.most == best.most);
    for (int i = 0; i < m.o.stages; i++) {
        assert_true(cut.begin[i + 1] == best.begin[i + 1] && cut.device[i] == best.device[i]);
    }
}

TEST(equals_all_cuts)
{
    int refused = 0;
    for (uint32_t round = 0; round < MODELS; round++) {
        check_model(round, &refused);
    }
    assert_true(refused > 10 && refused < MODELS / 2); /* both happen */
}

TEST(refuses_what_does_not_fit)
{
    model m;
    draw(0, &m);
    lvni_plan_cut cut;
    m.o.n_units = 1;
    m.o.stages = 2;
    assert_true(lvni_plan_cut_make(&m.o, &cut) == LVN_ERR_USAGE);
    m.o.n_units = 3;
    cut.begin[1] = 3;
    assert_true(lvni_plan_cut_take(&m.o, &cut) == LVN_ERR_USAGE);
    cut.begin[1] = 2;
    assert_true(lvni_plan_cut_take(&m.o, &cut) == LVN_OK && cut.begin[2] == 3 &&
                cut.device[1] == 1);
}

/* Each micro-batch once forward and once backward, in their order; the tapes of the play. */
static void check_order(const lvni_plan_stage_order *o)
{
    lvni_plan_stage_times times[LVNI_PLAN_STAGES];
    lvni_plan_stage_play play;
    for (int i = 0; i < o->stages; i++) {
        int next[2] = {0, 0};
        for (int k = 0; k < 2 * o->micro_batches; k++) {
            const lvni_plan_stage_work w = lvni_plan_stage_work_at(o, i, k);
            assert_true(w.micro_batch == next[w.backward]);
            next[w.backward]++;
            assert_true(next[1] <= next[0]);
        }
        assert_true(next[0] == o->micro_batches && next[1] == o->micro_batches);
        times[i] = (lvni_plan_stage_times){1.0, 2.0, 0.0};
    }
    assert_true(lvni_plan_stage_play_through(o, lvni_plan_stage_work_at, times, &play) == LVN_OK);
    for (int i = 0; i < o->stages; i++) {
        assert_true(play.tapes[i] == lvni_plan_stage_tapes(o, i));
        assert_true(play.tapes[i] <= o->stages - i || o->forwards_first);
    }
    /* equal stages: each waits for the others' passes of one micro-batch */
    const double step = 3.0 * (o->micro_batches + o->stages - 1);
    assert_true(fabs(play.step - step) < 1e-9);
    assert_true(fabs(play.bubble - (1.0 - 3.0 * o->micro_batches / step)) < 1e-9);
}

TEST(keeps_no_more_tapes)
{
    for (int stages = 1; stages <= 6; stages++) {
        for (int n = 1; n <= 12; n++) {
            check_order(&(lvni_plan_stage_order){stages, n, false});
            check_order(&(lvni_plan_stage_order){stages, n, true});
        }
    }
}

/* The backward passes of the first stage in another order than those of the second. */
static lvni_plan_stage_work crossed(const lvni_plan_stage_order *o, int stage, int k)
{
    lvni_plan_stage_work w = lvni_plan_stage_work_at(o, stage, k);
    if (stage == 1 && !w.backward) {
        w.micro_batch = o->micro_batches - 1 - w.micro_batch;
    }
    return w;
}

TEST(finds_stages_that_wait)
{
    const lvni_plan_stage_order o = {2, 4, false};
    const lvni_plan_stage_times times[2] = {{1.0, 1.0, 0.1}, {1.0, 1.0, 0.1}};
    lvni_plan_stage_play play;
    assert_true(lvni_plan_stage_play_through(&o, crossed, times, &play) == LVN_ERR_INTERNAL);
    assert_true(strstr(lvn_last_error()->message, "wait for each other") != NULL);
}
