/* Results as rows, and trials that run once more: without memory, and on disks that fail. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"
#include "sweep/sweep_control.h"
#include "sweep/sweep_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];
static lvni_sweep_plan plan;

enum { TRIALS = 4 };

static lvni_sweep_alive unknown(const lvni_sweep_owner *owner, void *user)
{
    (void)owner;
    (void)user;
    return LVNI_SWEEP_UNKNOWN;
}

static void end_trial(int64_t trial, lvni_sweep_state state, double value)
{
    const lvni_sweep_result result = {.state = state,
                                      .exit_code = state == LVNI_SWEEP_FAILED,
                                      .has_value = true,
                                      .value = value,
                                      .last = value,
                                      .seconds = 3661,
                                      .checkpoint = "run/best"};
    lvni_sweep_owner self;
    lvni_core_str path = {0};
    bool won;
    lvni_sweep_owner_self(&self);
    lvni_sweep_trial_path(&plan, trial, &path);
    assert_int_equal(lvni_sweep_claim(lvni_core_str_text(&path), 1, &self, &won), LVN_OK);
    assert_true(won);
    assert_int_equal(
        lvni_sweep_leave(lvni_core_str_text(&path), 1, LVNI_SWEEP_END_ENDED, &self, &result, &won),
        LVN_OK);
    assert_true(won);
    lvni_core_str_free(&path);
}

/* 0 pending, 1 is the worse and 2 the better one, 3 has failed. */
static int begin(void **state)
{
    (void)state;
    static char name[] = "rows", grid[] = "grid", loss[] = "loss", x[] = "x", true_[] = "true",
                values[TRIALS][4] = {"a|b", "1", "2", "3"};
    static char *parameters[] = {x, NULL}, *command[] = {true_, NULL};
    strcpy(dir, "/tmp/levin-rows-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    lvni_sweep_plan made = {.dir = dir,
                            .name = name,
                            .strategy = grid,
                            .parameters = parameters,
                            .command = command,
                            .metric = loss,
                            .dead_after_s = 300};
    char *texts[TRIALS];
    for (int i = 0; i < TRIALS; i++) {
        texts[i] = values[i];
    }
    const lvni_sweep_points points = {.n = TRIALS, .n_parameters = 1, .values = texts};
    if (lvni_sweep_plan_write(&made, &points) != LVN_OK ||
        lvni_sweep_plan_read(dir, &plan) != LVN_OK) {
        return -1;
    }
    end_trial(1, LVNI_SWEEP_DONE, 0.5);
    end_trial(2, LVNI_SWEEP_DONE, 0.25);
    end_trial(3, LVNI_SWEEP_FAILED, NAN);
    return 0;
}

static int end(void **state)
{
    (void)state;
    char remove[96];
    lvni_sweep_plan_free(&plan);
    snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
    return system(remove);
}

TEST_EACH(begin, end);

static lvn_status write_table(lvni_sweep_format format, lvni_core_str *out)
{
    lvni_sweep_table t;
    LVN_TRY(lvni_sweep_table_read(&plan, true, unknown, NULL, &t));
    lvni_sweep_table_sort(&t);
    const lvn_status s = lvni_sweep_table_write(&t, t.n, format, out);
    if (s == LVN_OK) {
        assert_int_equal(lvni_sweep_table_best(&t)->trial.index, 2);
        assert_int_equal(t.rows[0].trial.index, 2);
        assert_int_equal(t.rows[TRIALS - 1].trial.index, 3);
    }
    lvni_sweep_table_free(&t);
    return s;
}

TEST(without_memory)
{
    for (int format = LVNI_SWEEP_TEXT; format <= LVNI_SWEEP_CSV; format++) {
        lvni_core_str whole = {0};
        assert_int_equal(write_table((lvni_sweep_format)format, &whole), LVN_OK);
        lvn_status s = LVN_ERR_MEMORY;
        for (int64_t k = 1; s != LVN_OK; k++) {
            lvni_core_str out = {0};
            lvni_core_alloc_fail_at(k);
            s = write_table((lvni_sweep_format)format, &out);
            lvni_core_alloc_fail_at(0);
            assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
            if (s == LVN_OK) {
                assert_string_equal(lvni_core_str_text(&out), lvni_core_str_text(&whole));
            }
            lvni_core_str_free(&out);
        }
        lvni_core_str_free(&whole);
    }
}

static lvni_sweep_state look(int64_t trial)
{
    lvni_sweep_reader *reader;
    lvni_sweep_look found;
    assert_int_equal(lvni_sweep_reader_create(&plan, unknown, NULL, NULL, &reader), LVN_OK);
    assert_int_equal(lvni_sweep_reader_look(reader, trial, &found), LVN_OK);
    lvni_sweep_reader_destroy(reader);
    return found.state;
}

static lvn_status again(int64_t trial)
{
    return lvni_sweep_again(&plan, trial, &(lvni_sweep_look){.attempt = 1});
}

/* A rename that fails leaves the trial as it was, and a later call does it. */
TEST(once_more_on_a_disk_that_fails)
{
    lvni_core_vfs_fail_at("rename", 1, EIO);
    assert_int_equal(again(3), LVN_ERR_IO);
    lvni_core_vfs_fail_at("rename", 0, 0);
    assert_int_equal(look(3), LVNI_SWEEP_FAILED);
    assert_int_equal(again(3), LVN_OK);
    assert_int_equal(look(3), LVNI_SWEEP_PENDING);
    assert_int_equal(again(3), LVN_OK); /* done already */
    assert_int_equal(look(3), LVNI_SWEEP_PENDING);
}

/* Killed between its two links an owner has left no result; left.1 counts. */
TEST(once_more_without_a_result)
{
    char path[128];
    snprintf(path, sizeof path, "%s/trials/000003/result", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(look(3), LVNI_SWEEP_FAILED);
    lvni_core_vfs_fail_at("link", 1, EIO);
    assert_int_equal(again(3), LVN_ERR_IO);
    lvni_core_vfs_fail_at("link", 0, 0);
    assert_int_equal(look(3), LVNI_SWEEP_FAILED);
    assert_int_equal(again(3), LVN_OK);
    assert_int_equal(again(3), LVN_OK);
    assert_int_equal(look(3), LVNI_SWEEP_PENDING);
}

TEST(stops_come_and_go)
{
    lvni_core_vfs_fail_at("write", 1, ENOSPC);
    assert_int_equal(lvni_sweep_stop(&plan, -1), LVN_ERR_IO);
    lvni_core_vfs_fail_at("write", 0, 0);
    assert_false(lvni_sweep_is_stopped(&plan, -1));
    assert_int_equal(lvni_sweep_stop(&plan, -1), LVN_OK);
    assert_int_equal(lvni_sweep_stop(&plan, 2), LVN_OK);
    assert_int_equal(lvni_sweep_stop(&plan, 2), LVN_OK);
    assert_true(lvni_sweep_is_stopped(&plan, -1) && lvni_sweep_is_stopped(&plan, 2));
    assert_false(lvni_sweep_is_stopped(&plan, 1));
    assert_int_equal(lvni_sweep_unstop(&plan), LVN_OK);
    assert_false(lvni_sweep_is_stopped(&plan, -1) || lvni_sweep_is_stopped(&plan, 2));
}
