/* Which of measured checkpoints is the best, as a table and as JSON (run/best_checkpoint.h). */
#include "run/best_checkpoint.h"

#include "support/test.h"
#include <math.h>

TEST(of_acceptable_ones)
{
    static const lvni_run_choice_table cfid = {.score = "cfid",
                                               .distance = "psnr_diff",
                                               .unit = "dB"},
                                       rmse = {
                                           .score = "rmse", .distance = "psnr_diff", .unit = "dB"};
    const lvni_run_candidate e[] = {{10, 1.5, 0.9, false},
                                    {11, 3.0, 0.2, true},
                                    {12, 2.0, -0.24, true},
                                    {13, (double)NAN, 0.01, true},
                                    {14, 2.0, 0.1, true}};
    lvni_run_choice c = lvni_run_choose_best(e, 5, false);
    assert_int_equal(c.best, 2);
    assert_int_equal(c.closest, 3);
    const lvni_run_candidate bad[] = {{4, 1.0, 0.9, false}, {5, 2.0, -0.4, false}};
    lvni_core_str text = {0};
    lvni_run_choice_print(bad, 2, &cfid, &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "  epoch          cfid  psnr_diff  acceptable\n"
                        "      4             1     0.9000  no\n"
                        "      5             2    -0.4000  no\n"
                        "no epoch is acceptable; closest: epoch 5, 0.4000 dB from the target\n");
    lvni_core_str_clear(&text);
    lvni_run_choice_print(e + 2, 1, &rmse, &text);
    assert_string_equal(lvni_core_str_text(&text), "  epoch          rmse  psnr_diff  acceptable\n"
                                                   "*    12             2    -0.2400  yes\n"
                                                   "best: epoch 12, where rmse is smallest\n");
    lvni_core_str_clear(&text);
    const lvni_run_candidate unknown[] = {{7, (double)NAN, (double)NAN, false}};
    lvni_run_choice_print(unknown, 1, &rmse, &text);
    assert_string_equal(lvni_core_str_text(&text), "  epoch          rmse  psnr_diff  acceptable\n"
                                                   "      7             -          -  no\n"
                                                   "no epoch is acceptable\n");
    lvni_core_str_clear(&text);
    lvni_run_choice_json(unknown, 1, &rmse, &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "\"epochs\": [{\"epoch\": 7, \"rmse\": null, \"psnr_diff\": null, "
                        "\"acceptable\": false}], \"best\": null, \"closest\": null");
    lvni_core_str_clear(&text);
    lvni_run_choice_json(e + 2, 1, &cfid, &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "\"epochs\": [{\"epoch\": 12, \"cfid\": 2, \"psnr_diff\": -0.24, "
                        "\"acceptable\": true}], \"best\": 12, \"closest\": 12");
    lvni_core_str_clear(&text);
    lvni_run_choice_print(e, 0, &rmse, &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "  epoch          rmse  psnr_diff  acceptable\nno epoch is acceptable\n");
    lvni_core_str_free(&text);
}

/* Without a rule of what is acceptable, and with more of the score being better. */
TEST(of_all)
{
    static const lvni_run_choice_table acc = {.score = "acc", .more_is_better = true};
    const double nan = (double)NAN;
    const lvni_run_candidate e[] = {
        {1, 0.5, nan, true}, {2, 0.75, nan, true}, {3, nan, nan, true}, {4, 0.75, nan, true}};
    lvni_core_str text = {0};
    lvni_run_choice_print(e, 4, &acc, &text);
    assert_string_equal(lvni_core_str_text(&text), "  epoch           acc\n"
                                                   "      1           0.5\n"
                                                   "*     2          0.75\n"
                                                   "      3             -\n"
                                                   "      4          0.75\n"
                                                   "best: epoch 2, where acc is largest\n");
    lvni_core_str_clear(&text);
    lvni_run_choice_json(e + 1, 2, &acc, &text);
    assert_string_equal(lvni_core_str_text(&text), "\"epochs\": [{\"epoch\": 2, \"acc\": 0.75}, "
                                                   "{\"epoch\": 3, \"acc\": null}], \"best\": 2");
    lvni_core_str_clear(&text);
    lvni_run_choice_print(e + 2, 1, &acc, &text);
    assert_string_equal(lvni_core_str_text(&text), "  epoch           acc\n"
                                                   "      3             -\n"
                                                   "no epoch has a finite score\n");
    lvni_core_str_free(&text);
    assert_int_equal(lvni_run_choose_best(e, 4, false).best, 0);
}
