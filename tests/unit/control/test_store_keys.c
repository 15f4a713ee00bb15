/* Keys, counters, gathers and barriers of several ranks. */
#include "control_support.h"

#include "core/alloc.h"

#include <stdio.h>
#include <string.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            LVN_FAIL(LVN_ERR_INTERNAL, "line %d: does not hold: %s", __LINE__, #condition);        \
        }                                                                                          \
    } while (0)

static void run_and_pass(group *g)
{
    group_run(g);
    for (int r = 0; r < g->world; r++) {
        if (g->ranks[r].status != LVN_OK) {
            print_message("rank %d: %s\n", r, g->ranks[r].error.message);
        }
        assert_int_equal(g->ranks[r].status, LVN_OK);
        assert_int_equal(g->ranks[r].aborts, 0);
    }
    assert_int_equal(lvni_control_store_wait(g->store, 10), LVN_OK);
    group_end(g);
}

static lvn_status ring(group_rank *r)
{
    char key[32], *bytes = NULL;
    size_t n = 0;
    const char value[5] = {'a', '\0', (char)('0' + r->rank), '\0', 'z'};
    snprintf(key, sizeof key, "handle %d", r->rank);
    pause_ms(r->rank * 20); /* some ask before it is there */
    LVN_TRY(lvni_control_set(r->control, key, value, sizeof value));
    snprintf(key, sizeof key, "handle %d", (r->rank + 1) % r->g->world);
    LVN_TRY(lvni_control_get(r->control, key, 10, &bytes, &n));
    const bool same = n == 5 && bytes[0] == 'a' && bytes[2] == '0' + (r->rank + 1) % r->g->world &&
                      bytes[5] == '\0';
    lvni_core_free(bytes);
    EXPECT(same);
    return control_barrier(r->control, "end", 10);
}

TEST(values_travel_between_ranks)
{
    group g;
    group_init(&g, 4);
    g.body = ring;
    run_and_pass(&g);
}

static lvn_status count(group_rank *r)
{
    int64_t value = 0;
    for (int i = 0; i < 50; i++) {
        LVN_TRY(lvni_control_add(r->control, "n", r->rank + 1, &value));
    }
    LVN_TRY(control_barrier(r->control, "counted", 10));
    LVN_TRY(lvni_control_add(r->control, "n", 0, &value));
    EXPECT(value == 50 * (1 + 2 + 3 + 4));
    return lvni_control_add(r->control, "down", -1, &value);
}

TEST(counters_lose_nothing)
{
    group g;
    group_init(&g, 4);
    g.body = count;
    run_and_pass(&g);
}

static lvn_status gather_twice(group_rank *r)
{
    char text[64];
    for (int turn = 0; turn < 2; turn++) { /* one name may be used again */
        lvni_control_bytes *all = NULL;
        memset(text, 'a' + r->rank, sizeof text);
        LVN_TRY(lvni_control_gather(r->control, "facts", text, (size_t)r->rank * 7 + (size_t)turn,
                                    10, &all));
        bool good = true;
        for (int q = 0; q < r->g->world; q++) {
            good = good && all[q].n == (size_t)q * 7 + (size_t)turn &&
                   strlen(all[q].data) == all[q].n &&
                   (all[q].n == 0 || all[q].data[all[q].n - 1] == 'a' + q);
        }
        lvni_core_free(all);
        EXPECT(good);
    }
    return LVN_OK;
}

TEST(gather_brings_everything_to_every_rank)
{
    group g;
    group_init(&g, 5);
    g.body = gather_twice;
    run_and_pass(&g);
}

static lvn_status large(group_rank *r)
{
    enum { N = 3 << 20 };
    char *mine = lvni_core_alloc(LVNI_TAG_CONTROL, N);
    EXPECT(mine != NULL);
    memset(mine, 'A' + r->rank, N);
    lvni_control_bytes *all = NULL;
    const lvn_status status = lvni_control_gather(r->control, "large", mine, N, 20, &all);
    lvni_core_free(mine);
    LVN_TRY(status);
    bool good = true;
    for (int q = 0; q < r->g->world; q++) {
        good = good && all[q].n == N && all[q].data[0] == 'A' + q && all[q].data[N - 1] == 'A' + q;
    }
    lvni_core_free(all);
    EXPECT(good);
    return LVN_OK;
}

TEST(megabytes_pass)
{
    group g;
    group_init(&g, 3);
    g.body = large;
    run_and_pass(&g);
}

static bool reports(const char *text)
{
    return strstr(lvn_last_error()->message, text) != NULL;
}

static lvn_status mistakes(group_rank *r)
{
    char *bytes = NULL, long_key[300];
    size_t n = 0;
    int64_t value = 0;
    lvni_control_bytes *all = NULL;
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    EXPECT(lvni_control_set(r->control, "", "x", 1) == LVN_ERR_INVALID);
    EXPECT(lvni_control_set(r->control, long_key, "x", 1) == LVN_ERR_INVALID);
    EXPECT(lvni_control_set(r->control, "k", "x", LVNI_CONTROL_MAX_VALUE + 1) == LVN_ERR_INVALID);
    EXPECT(lvni_control_get(r->control, "nothing", 0.05, &bytes, &n) == LVN_ERR_TIMEOUT &&
           reports("'nothing'") && bytes == NULL);
    LVN_TRY(lvni_control_set(r->control, "v", "x", 1));
    EXPECT(lvni_control_add(r->control, "v", 1, &value) == LVN_ERR_INVALID && reports("value"));
    LVN_TRY(lvni_control_add(r->control, "c", 1, &value));
    EXPECT(lvni_control_set(r->control, "c", "x", 1) == LVN_ERR_INVALID && reports("counter"));
    EXPECT(lvni_control_get(r->control, "c", 1, &bytes, &n) == LVN_ERR_INVALID);
    LVN_TRY(control_barrier(r->control, "all", 10));
    if (r->rank != 1) { /* rank 1 stays away */
        EXPECT(lvni_control_gather(r->control, "alone", "x", 1, 0.1, &all) == LVN_ERR_TIMEOUT &&
               reports("rank 1 did not come") && all == NULL);
    }
    return control_barrier(r->control, "end", 10);
}

TEST(mistakes_are_reported_and_harm_nothing)
{
    group g;
    group_init(&g, 3);
    g.store_options.heartbeat_s = 0.1; /* how often it looks at the clock */
    g.body = mistakes;
    run_and_pass(&g);
}

static lvn_status leave_early(group_rank *r)
{
    lvni_control_bytes *all = NULL;
    if (r->rank == 2) {
        pause_ms(50);
        return LVN_OK; /* leaves */
    }
    EXPECT(lvni_control_gather(r->control, "g", "x", 1, 10, &all) == LVN_ERR_PEER &&
           reports("rank 2 has left"));
    EXPECT(lvni_control_gather(r->control, r->rank == 0 ? "h" : "i", "x", 1, 10, &all) ==
               LVN_ERR_PEER &&
           reports("has left"));
    return LVN_OK;
}

TEST(a_rank_that_left_is_not_waited_for)
{
    group g;
    group_init(&g, 3);
    g.body = leave_early;
    run_and_pass(&g);
}
