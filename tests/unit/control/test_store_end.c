/* How runs end: a common step, the first cause, and a store that outlives its ranks. */
#include "control_support.h"

#include "core/error.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Stopping together ---- */

/* Steps need all ranks, as training steps do: rank r+1 cannot finish step s before rank r has begun
 * it. */
typedef struct ring_step {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t begun[GROUP_MAX];
} ring_step;

static ring_step ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void step_together(const group *g, int rank, int64_t step)
{
    pthread_mutex_lock(&ring.lock);
    ring.begun[rank] = step + 1;
    pthread_cond_broadcast(&ring.moved);
    for (int r = 0; r < g->world; r++) {
        while (ring.begun[r] <= step) {
            pthread_cond_wait(&ring.moved, &ring.lock);
        }
    }
    pthread_mutex_unlock(&ring.lock);
}

static lvn_status train(group_rank *r)
{
    bool stop = false;
    int64_t step = 100; /* resumed */
    for (; !stop; step++) {
        LVN_TRY(lvni_control_boundary(r->control, step, &stop));
        if (stop) {
            break;
        }
        if (r->rank == 1 && step == 130) {
            lvni_control_request_stop(r->control, 15);
        }
        if (r->rank == 2 && step == 131) {
            /* the first request to arrive is the reason on all ranks */
            lvni_control_request_stop(r->control, 10);
        }
        step_together(r->g, r->rank, step);
        if (r->rank == 3) {
            pause_ms(1); /* one is slower than the others */
        }
    }
    r->number = step * 100 + lvni_control_stop_reason(r->control);
    return LVN_OK;
}

TEST(all_stop_at_one_step)
{
    group g;
    memset(ring.begun, 0, sizeof ring.begun);
    group_init(&g, 4);
    g.body = train;
    group_run(&g);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(g.ranks[r].status, LVN_OK);
        assert_int_equal(g.ranks[r].number, g.ranks[0].number);
        assert_true(g.ranks[r].number % 100 == 15 || g.ranks[r].number % 100 == 10);
        assert_true(g.ranks[r].number / 100 > 130);
        assert_int_equal(g.ranks[r].aborts, 0);
    }
    group_end(&g);
}

/* The hard case: one rank holds at its boundary while another, one boundary further, waits inside
 * its step for the first. The answer must not wait for the second one's next boundary. */
static lvn_status cross(group_rank *r)
{
    bool stop = false;
    LVN_TRY(lvni_control_boundary(r->control, 4, &stop));
    if (r->rank == 1) {
        /* passed: it is in step 5, which needs rank 0 to begin step 5 */
        LVN_TRY(lvni_control_boundary(r->control, 5, &stop));
        r->number = stop;
        LVN_TRY(control_barrier(r->control, "rank 1 is inside", 10));
        step_together(r->g, 1, 5);
    } else {
        LVN_TRY(control_barrier(r->control, "rank 1 is inside", 10));
        lvni_control_request_stop(r->control, 2);
        pause_ms(100); /* by now STOP_ASK has reached all ranks */
        LVN_TRY(lvni_control_boundary(r->control, 5, &stop)); /* must not hold for ever */
        r->number = stop;
        step_together(r->g, 0, 5);
    }
    LVN_TRY(lvni_control_boundary(r->control, 6, &stop));
    r->number = r->number * 10 + stop;
    return LVN_OK;
}

TEST(holding_never_locks_a_step_up)
{
    group g;
    memset(ring.begun, 0, sizeof ring.begun);
    group_init(&g, 2);
    g.body = cross;
    group_run(&g);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(g.ranks[r].status, LVN_OK);
        assert_int_equal(g.ranks[r].number, 1); /* on at 5, stop at 6 */
    }
    group_end(&g);
}

static lvn_status stop_before_the_first_step(group_rank *r)
{
    bool stop = false;
    if (r->rank == 0) {
        lvni_control_request_stop(r->control, 15);
    }
    LVN_TRY(control_barrier(r->control, "asked", 10));
    pause_ms(50);
    LVN_TRY(lvni_control_boundary(r->control, 70, &stop));
    r->number = stop;
    return LVN_OK;
}

TEST(a_rank_that_has_not_begun_stops_at_its_first_boundary)
{
    group g;
    group_init(&g, 3);
    g.body = stop_before_the_first_step;
    group_run(&g);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(g.ranks[r].status, LVN_OK);
        assert_int_equal(g.ranks[r].number, 1);
    }
    group_end(&g);
}

/* ---- The first cause ---- */

static int peer_first_ms;

static lvn_status fail_with_transport_error(group_rank *r)
{
    lvn_status status = LVN_OK;
    bool stop = false;
    LVN_TRY(lvni_control_boundary(r->control, 812, &stop));
    LVN_TRY(control_barrier(r->control, "begin", 10));
    if (r->rank == 2) {
        pause_ms(peer_first_ms > 0 ? peer_first_ms : 0);
        lvni_control_fail(r->control, &(lvni_control_cause){.kind = LVNI_CAUSE_NAN,
                                                            .step = 812,
                                                            .message = "the loss is not finite"});
    } else if (r->rank == 0) {
        pause_ms(peer_first_ms < 0 ? -peer_first_ms : 0);
        lvni_control_fail(r->control, &(lvni_control_cause){.kind = LVNI_CAUSE_PEER,
                                                            .step = 812,
                                                            .message = "connection reset by peer"});
    } else {
        lvni_control_bytes *all = NULL;
        /* a wait that the end must cut short */
        status = lvni_control_gather(r->control, "never", "x", 1, 10, &all);
    }
    return status == LVN_OK ? lvni_control_check(r->control) : status;
}

TEST(the_real_cause_is_named)
{
    /* the transport error 50 ms before, together with, after the failure */
    static const int cases[] = {50, 0, -50};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        group g;
        group_init(&g, 4);
        g.body = fail_with_transport_error;
        g.keep = true;
        g.store_options.settle_s = 0.5; /* ten times the 50 ms */
        peer_first_ms = cases[i];
        group_run(&g);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(g.ranks[r].status, LVN_ERR_PEER);
            assert_true(saw_abort(&g.ranks[r]));
            assert_int_equal(g.ranks[r].cause.rank, 2);
            assert_int_equal(g.ranks[r].cause.kind, LVNI_CAUSE_NAN);
            assert_int_equal(g.ranks[r].cause.step, 812);
            assert_int_equal(g.ranks[r].cause.pid, getpid());
            assert_string_equal(g.ranks[r].cause.message, "the loss is not finite");
            assert_non_null(strstr(g.ranks[r].error.message, "rank 2 ("));
            assert_non_null(strstr(g.ranks[r].error.message,
                                   ") failed first at step 812: the loss is not finite"));
            assert_int_equal(lvni_core_exit_of_error(&g.ranks[r].error), LVNI_EXIT_PEER);
            assert_true(seconds_between(g.ranks[r].began_ns, g.ranks[r].ended_ns) < 2);
            bool stop = true;
            assert_int_equal(lvni_control_boundary(g.ranks[r].control, 813, &stop), LVN_ERR_PEER);
            assert_int_equal(lvni_control_set(g.ranks[r].control, "k", "v", 1), LVN_ERR_PEER);
            assert_int_equal(lvni_control_leave(g.ranks[r].control), LVN_OK);
        }
        group_end(&g);
    }
}

static lvn_status only_peers(group_rank *r)
{
    pause_ms(r->rank * 300);
    lvni_control_cause heard = {.kind = LVNI_CAUSE_PEER, .step = 3, .message = "another"};
    if (r->rank == 0) {
        snprintf(heard.message, sizeof heard.message, "nccl: remote error");
    }
    lvni_control_fail(r->control, &heard);
    return lvni_control_check(r->control);
}

TEST(without_a_real_cause_the_first_report_counts)
{
    group g;
    group_init(&g, 2);
    g.body = only_peers;
    g.store_options.settle_s = 1;
    group_run(&g);
    for (int r = 0; r < 2; r++) {
        assert_true(saw_abort(&g.ranks[r]));
        assert_int_equal(g.ranks[r].cause.rank, 0);
        assert_int_equal(g.ranks[r].cause.kind, LVNI_CAUSE_PEER);
        assert_string_equal(g.ranks[r].cause.message, "nccl: remote error");
    }
    group_end(&g);
}

/* ---- The store's own end ---- */

static lvn_status leave_one_by_one(group_rank *r)
{
    pause_ms(r->rank * 50);
    return LVN_OK;
}

TEST(the_store_waits_until_all_have_left)
{
    group g;
    group_init(&g, 3);
    g.keep = true;
    group_run(&g);
    assert_int_equal(lvni_control_store_wait(g.store, 0.05), LVN_ERR_TIMEOUT);
    assert_non_null(strstr(lvn_last_error()->message, "3 ranks are still connected"));
    group_end(&g);
    group_init(&g, 3);
    g.body = leave_one_by_one;
    group_run(&g);
    assert_int_equal(lvni_control_store_wait(g.store, -1), LVN_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(g.ranks[r].status, LVN_OK);
        assert_int_equal(g.ranks[r].aborts, 0);
    }
    group_end(&g);
}

TEST(names_of_causes)
{
    char text[64];
    const lvni_control_cause cause = {
        .kind = LVNI_CAUSE_OOM, .rank = 3, .step = -1, .host = "n08", .message = "no memory"};
    lvni_control_cause_sentence(&cause, text, sizeof text);
    assert_string_equal(text, "rank 3 (n08) failed first: no memory");
    lvni_control_cause_sentence(&cause, text, 10);
    assert_string_equal(text, "rank 3 (n");
    lvni_control_cause heard = {.kind = LVNI_CAUSE_PEER,
                                .rank = 1,
                                .step = 3,
                                .pid = 7,
                                .named = true,
                                .host = "n09",
                                .message = "rank 0 (n08) failed first at step 3: lost"};
    lvni_control_cause_sentence(&heard, text, sizeof text);
    assert_string_equal(text, "rank 0 (n08) failed first at step 3: lost");
    heard.kind = LVNI_CAUSE_ERROR; /* a rank that fails by itself is named, whatever its message */
    lvni_control_cause_sentence(&heard, text, sizeof text);
    assert_string_equal(text, "rank 1 (n09, pid 7) failed first at step 3: rank 0 (n08) failed");
    heard.kind = LVNI_CAUSE_PEER;
    heard.named = false; /* the field counts, and no word of the message */
    lvni_control_cause_sentence(&heard, text, sizeof text);
    assert_string_equal(text, "rank 1 (n09, pid 7) failed first at step 3: rank 0 (n08) failed");
    heard = (lvni_control_cause){.kind = LVNI_CAUSE_PEER,
                                 .rank = 1,
                                 .step = -1,
                                 .host = "n09",
                                 .message = "its peer is gone"};
    lvni_control_cause_sentence(&heard, text, sizeof text);
    assert_string_equal(text, "rank 1 (n09) failed first: its peer is gone");
    heard = (lvni_control_cause){.kind = LVNI_CAUSE_ERROR,
                                 .rank = 1,
                                 .step = -1,
                                 .host = "n09",
                                 .place = "step 5, micro-batch 1",
                                 .message = "a (7)"};
    lvni_control_cause_sentence(&heard, text, sizeof text);
    assert_string_equal(text, "rank 1 (n09) failed first: a (7) (in step 5, micro-batch 1)");
    assert_string_equal(lvni_control_cause_name(LVNI_CAUSE_OOM), "oom");
    assert_string_equal(lvni_control_cause_name((lvni_control_cause_kind)99), "?");
    assert_int_equal(lvni_control_cause_of_status(LVN_ERR_DEVICE_MEMORY), LVNI_CAUSE_OOM);
    assert_int_equal(lvni_control_cause_of_status(LVN_ERR_NON_FINITE), LVNI_CAUSE_NAN);
    assert_int_equal(lvni_control_cause_of_status(LVN_ERR_PEER), LVNI_CAUSE_PEER);
    assert_int_equal(lvni_control_cause_of_status(LVN_ERR_IO), LVNI_CAUSE_ERROR);
}
