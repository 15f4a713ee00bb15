/* Early stopping: what ends a run, in which order it is looked at, and what a checkpoint keeps. */
#include "trainer/early.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static const lvni_trainer_early_options usual = {
    .monitor = "val/loss", .patience = 2, .stopping_threshold = NAN, .divergence_threshold = NAN};

static lvni_trainer_early_options larger_is_better(double min_delta, double stop, double diverged)
{
    lvni_trainer_early_options o = usual;
    o.larger_is_better = true;
    o.min_delta = min_delta;
    o.stopping_threshold = stop;
    o.divergence_threshold = diverged;
    return o;
}

/* The number of the value that ends the run, from 1 on; 0: none of them. */
static int end_of(const lvni_trainer_early_options *o, const double *value, int n,
                  lvni_trainer_early *e)
{
    lvni_trainer_early_begin(e);
    for (int i = 0; i < n; i++) {
        if (lvni_trainer_early_follow(e, o, value[i])) {
            return i + 1;
        }
    }
    return 0;
}
#define END(o, e, ...)                                                                             \
    end_of(o, (const double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double), e)

TEST(patience_counts_looks_in_a_row)
{
    lvni_trainer_early e;
    const lvni_trainer_early_options o = usual;
    assert_int_equal(END(&o, &e, 3, 3, 2, 2.5, 2, 1), 5); /* equal does not count as better */
    assert_int_equal(e.reason, LVNI_EARLY_PATIENCE);
    assert_true(e.best == 2);
    assert_int_equal(END(&o, &e, 3, 4, 2, 3, 1, 2), 0);
    const lvni_trainer_early_options more = larger_is_better(0.5, (double)NAN, (double)NAN);
    assert_int_equal(END(&more, &e, 1, 1.5, 1.4), 3); /* 1.5 is not more than 0.5 better */
    assert_int_equal(END(&more, &e, 1, 1.6, 2.2, 2.3), 0);
}

TEST(one_value_may_end_the_run)
{
    lvni_trainer_early e;
    lvni_trainer_early_options o = usual;
    o.stopping_threshold = 0.1;
    o.divergence_threshold = 9;
    assert_int_equal(END(&o, &e, 5, 0.1), 2);
    assert_int_equal(e.reason, LVNI_EARLY_GOOD);
    assert_int_equal(END(&o, &e, 5, 9), 2);
    assert_int_equal(e.reason, LVNI_EARLY_DIVERGED);
    assert_int_equal(END(&o, &e, 5, (double)NAN), 2);
    assert_int_equal(e.reason, LVNI_EARLY_NOT_FINITE);
    const lvni_trainer_early_options more = larger_is_better(0, 0.9, 0.1);
    assert_int_equal(END(&more, &e, 0.5, 0.9), 2);
    assert_int_equal(END(&more, &e, 0.5, 0.05), 2);
    assert_int_equal(e.reason, LVNI_EARLY_DIVERGED);
}

TEST(an_end_stays_and_is_reported_once)
{
    lvni_trainer_early e;
    const lvni_trainer_early_options o = usual;
    assert_int_equal(END(&o, &e, 1, 2, 3), 3);
    assert_false(lvni_trainer_early_follow(&e, &o, 0.5)); /* on the way to min_epochs */
    assert_int_equal(e.reason, LVNI_EARLY_PATIENCE);
}

TEST(a_checkpoint_keeps_it)
{
    char text[200];
    static const char by[] = "min val/loss";
    bool same;
    lvni_trainer_early e, again;
    lvni_trainer_early_options o = usual, patient = usual;
    patient.patience = 3;
    assert_int_equal(END(&o, &e, 0.1, 2), 0);
    lvni_trainer_early_print(&e, by, text, sizeof text);
    assert_true(lvni_trainer_early_read(text, &o, by, &again, &same));
    assert_true(same && again.best == 0.1);
    assert_true(lvni_trainer_early_follow(&again, &o, 1));
    lvni_trainer_early_print(&again, by, text, sizeof text);
    assert_true(lvni_trainer_early_read(text, &o, by, &again, &same));
    assert_int_equal(again.reason, LVNI_EARLY_PATIENCE);
    assert_true(lvni_trainer_early_read(text, &patient, by, &again, &same));
    assert_int_equal(again.reason, LVNI_EARLY_GOES_ON); /* with more of it */
    assert_true(lvni_trainer_early_read(text, &o, "max val/loss", &again, &same));
    assert_true(!same && isnan(again.best));
    assert_int_equal(again.reason, LVNI_EARLY_GOES_ON);
    /* that of an older version */
    assert_true(
        lvni_trainer_early_read("best=3ff0000000000000 waited=2 reason=3", &o, by, &again, &same));
    assert_true(same && again.best == 1.0 && again.reason == LVNI_EARLY_PATIENCE);
    for (const char **bad =
             (const char *[]){"", "best=1", "best=0 waited=-1 reason=0", "best=0 waited=1 reason=5",
                              "best=0 waited=1 reason=0 ", "best=0 waited=1 reason=0 last=0", NULL};
         *bad != NULL; bad++) {
        assert_false(lvni_trainer_early_read(*bad, &o, by, &again, &same));
    }
}

/* As if the run had always had the threshold that it is resumed with. */
TEST(another_threshold_counts)
{
    char text[200];
    bool same;
    lvni_trainer_early e, again;
    lvni_trainer_early_options o = usual, lower = usual;
    o.stopping_threshold = 0.5;
    lower.stopping_threshold = 0.1;
    lvni_trainer_early_begin(&e);
    assert_false(lvni_trainer_early_follow(&e, &o, 0.7));
    assert_true(lvni_trainer_early_follow(&e, &o, 0.4));
    lvni_trainer_early_print(&e, "min val/loss", text, sizeof text);
    assert_true(lvni_trainer_early_read(text, &o, "min val/loss", &again, &same));
    assert_int_equal(again.reason, LVNI_EARLY_GOOD);
    assert_true(lvni_trainer_early_read(text, &lower, "min val/loss", &again, &same));
    assert_int_equal(again.reason, LVNI_EARLY_GOES_ON);
    assert_true(again.best == 0.4 && again.waited == 0);
}
