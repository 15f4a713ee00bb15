/* Which checkpoints are kept: the list, what a checkpoint has of it, and the names' pattern. */
#include "core/alloc.h"
#include "trainer/kept.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double none = (double)NAN;

/* A checkpoint that is saved with success, if it is wanted. */
static bool save(lvni_trainer_kept *l, int64_t k, int64_t step, double score)
{
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)step);
    if (!lvni_trainer_kept_wants(l, k, score)) {
        return false;
    }
    assert_int_equal(lvni_trainer_kept_add(l, k, name, step, score, false), LVN_OK);
    lvni_trainer_kept_commit(l);
    return true;
}

/* "kept STEP" and "leaves STEP" of all, in order. */
static const char *steps_of(const lvni_trainer_kept *l)
{
    static char text[200];
    size_t n = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < l->n; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%lld", i > 0 ? " " : "",
                              l->file[i].state == LVNI_KEPT_LEAVES ? "-" : "",
                              (long long)l->file[i].step);
    }
    return text;
}

TEST(the_best_stay)
{
    lvni_trainer_kept l = {0};
    assert_false(save(&l, 0, 1, 9));
    assert_true(save(&l, 2, 1, 1));
    assert_true(save(&l, 2, 2, 3));
    assert_false(save(&l, 2, 3, 1)); /* of equal ones the earlier stays */
    assert_true(save(&l, 2, 4, 2));
    assert_string_equal(steps_of(&l), "2 4");
    assert_false(save(&l, 2, 5, none));
    assert_true(save(&l, 3, 6, none)); /* there is room, with a larger k */
    assert_false(save(&l, 3, 7, none));
    assert_true(save(&l, 3, 8, -5)); /* anything is better */
    assert_string_equal(steps_of(&l), "2 4 8");
    assert_true(save(&l, 1, 9, 4)); /* and with a smaller one */
    assert_string_equal(steps_of(&l), "9");
    assert_true(save(&l, -1, 10, none));
    assert_string_equal(steps_of(&l), "9 10");
    lvni_trainer_kept_free(&l);
}

TEST(the_latest_of_equals_leaves)
{
    lvni_trainer_kept l = {0};
    assert_true(save(&l, 2, 1, 1));
    assert_true(save(&l, 2, 2, 1));
    assert_true(save(&l, 2, 3, 2));
    assert_string_equal(steps_of(&l), "1 3");
    lvni_trainer_kept_free(&l);
}

TEST(a_failed_save_changes_nothing)
{
    lvni_trainer_kept l = {0};
    assert_true(save(&l, 1, 1, 1));
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "two", 2, 2, false), LVN_OK);
    assert_string_equal(steps_of(&l), "-1 2");
    assert_string_equal(lvni_trainer_kept_new(&l)->name, "two");
    lvni_trainer_kept_undo(&l, 2); /* the same step again: it is still to come */
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "two", 2, 2, false), LVN_OK);
    assert_string_equal(steps_of(&l), "-1 2");
    lvni_trainer_kept_undo(&l, 3);
    assert_string_equal(steps_of(&l), "1");
    assert_null(lvni_trainer_kept_new(&l));
    lvni_trainer_kept_free(&l);
}

TEST(a_name_that_is_taken_gets_a_version)
{
    lvni_trainer_kept l = {0};
    static const char *const names[] = {"a", "a-v1", "a-v2", "last-v1", "best-v1"};
    static const char *const given[] = {"a", "a", "a", "last", "best"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(lvni_trainer_kept_add(&l, -1, given[i], i + 1, none, false), LVN_OK);
        assert_string_equal(l.file[i].name, names[i]);
    }
    lvni_trainer_kept_free(&l);
}

TEST(a_checkpoint_has_the_list)
{
    lvni_trainer_kept l = {0}, back;
    lvni_core_str text = {0}, again = {0};
    assert_true(save(&l, 2, 1, -0.25));
    assert_true(save(&l, 2, 2, none));
    assert_int_equal(lvni_trainer_kept_add(&l, 2, "with a space", 3, 1, false), LVN_OK);
    lvni_trainer_kept_print(&l, &text);
    assert_int_equal(lvni_trainer_kept_read(lvni_core_str_text(&text), &back), LVN_OK);
    assert_string_equal(steps_of(&back), "1 -2 3");
    lvni_trainer_kept_print(&back, &again);
    assert_string_equal(lvni_core_str_text(&again), lvni_core_str_text(&text));
    assert_null(lvni_trainer_kept_new(&back)); /* the checkpoint that was read has been written */
    lvni_core_str_free(&text);
    lvni_core_str_free(&again);
    lvni_trainer_kept_free(&l);
    lvni_trainer_kept_free(&back);
}

TEST(those_of_another_monitor_stay)
{
    lvni_trainer_kept l = {0}, back;
    lvni_core_str text = {0};
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "a", 1, 5, false), LVN_OK);
    assert_int_equal(lvni_trainer_kept_set_aside(&l), 1);
    assert_int_equal(lvni_trainer_kept_set_aside(&l), 0);
    assert_true(lvni_trainer_kept_wants(&l, 1, -9));
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "a", 1, -9, false),
                     LVN_OK); /* of the same step, too */
    assert_string_equal(l.file[1].name, "a-v1");
    lvni_trainer_kept_commit(&l);
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "a", 2, -8, false), LVN_OK);
    assert_string_equal(l.file[2].name, "a-v2");
    lvni_trainer_kept_undo(&l, 3);
    assert_int_equal(l.file[0].state, LVNI_KEPT_OTHER);
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "a", 3, -7, false), LVN_OK);
    lvni_trainer_kept_commit(&l);
    assert_int_equal(l.n, 2);
    lvni_trainer_kept_print(&l, &text);
    assert_int_equal(lvni_trainer_kept_read(lvni_core_str_text(&text), &back), LVN_OK);
    assert_int_equal(back.file[0].state, LVNI_KEPT_OTHER);
    assert_int_equal(back.file[1].state, LVNI_KEPT_THERE);
    lvni_core_str_free(&text);
    lvni_trainer_kept_free(&l);
    lvni_trainer_kept_free(&back);
}

TEST(those_of_an_epoch_stay_whatever_comes)
{
    lvni_trainer_kept l = {0};
    assert_true(save(&l, 1, 1, 5));
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "epoch", 2, -9, true), LVN_OK);
    assert_int_equal(l.file[0].state, LVNI_KEPT_THERE); /* it goes for none that stays */
    lvni_trainer_kept_commit(&l);
    assert_int_equal(lvni_trainer_kept_add(&l, 1, "epoch", 2, -9, true), LVN_OK); /* saved twice */
    assert_int_equal(l.n, 2);
    assert_true(save(&l, 1, 3, 6));
    assert_int_equal(l.n, 2);
    assert_string_equal(l.file[0].name, "epoch");
    assert_string_equal(l.file[1].name, "3");
    lvni_trainer_kept_free(&l);
}

/* A name of the list is deleted sometimes: it must not lead to another folder. */
TEST(other_texts_are_refused)
{
    static const char *const bad[] = {
        "kept",
        "kept 1 0000000000000000 a",
        "kept 1 0000000000000000 \n",
        "kept 1 0000000000000000 a\nkept",
        "keeps 1 0000000000000000 a\n",
        "leaves 1 0000000000000000 ../../a\n",
        "leaves 1 0000000000000000 .a\n",
        "leaves x 0000000000000000 a\n",
    };
    lvni_trainer_kept l;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lvni_trainer_kept_read(bad[i], &l), LVN_ERR_CORRUPT);
        assert_null(l.file);
    }
    char longer[400] = "kept 1 0000000000000000 ";
    memset(longer + strlen(longer), 'a', 300);
    longer[324] = '\n';
    assert_int_equal(lvni_trainer_kept_read(longer, &l), LVN_ERR_CORRUPT);
    assert_int_equal(lvni_trainer_kept_read("", &l), LVN_OK);
    assert_int_equal(l.n, 0);
}

static double value_of(const void *user, const char *metric)
{
    return strcmp(metric, "val/loss") == 0 ? *(const double *)user : none;
}

static void assert_prints(const char *pattern, bool names, const char *expected)
{
    const double loss = 0.123456;
    const lvni_trainer_pattern_values values = {
        .epoch = 5, .step = 1200, .metric = value_of, .user = &loss};
    lvni_core_str out = {0};
    assert_null(lvni_trainer_pattern_wrong(pattern));
    lvni_trainer_pattern_print(pattern, names, &values, &out);
    assert_string_equal(lvni_core_str_text(&out), expected);
    lvni_core_str_free(&out);
}

TEST(names_follow_the_pattern)
{
    assert_prints("{epoch}", true, "epoch=5");
    assert_prints("{epoch:03d}", true, "epoch=005");
    assert_prints("{epoch:3}", false, "  5");
    assert_prints("{epoch:02d}-{val/loss:.2f}", true, "epoch=05-val_loss=0.12");
    assert_prints("epoch={epoch}-loss={val_loss:.2f}", false, "epoch=5-loss=0.12");
    assert_prints("{val_loss:.1e}_{val/loss:08.3f}", false, "1.2e-01_0000.123");
    assert_prints("a{val/loss}b{step:07}c", false, "a0.123456b0001200c");
    assert_prints("{val/loss:.2g}-{train/loss:.2f}", true, "val_loss=0.12-train_loss=nan");
}

TEST(bad_patterns_are_refused)
{
    static const char *const bad[] = {
        "",          "name",     ".{epoch}",       " {epoch}",      "a/{epoch}", "{epoch",
        "epoch}",    "{}",       "{loss}",         "{epoch:.2f}",   "{step:.1}", "{val/loss:d}",
        "{epoch:x}", "{val/}",   "{val/loss:.2q}", "{val/loss:.f}", "{epoch}\n", "{epoch:003d}",
        "{{epoch}}", "{epoch}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (lvni_trainer_pattern_wrong(bad[i]) == NULL) {
            fail_msg("%s is taken", bad[i]);
        }
    }
}
