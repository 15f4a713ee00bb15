/* The space of a sweep: texts of values, declarations that are refused, what is drawn; and a plan
 * on a disk and with memory that fail. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"
#include "sweep/sweep_options.h"
#include "sweep/sweep_space.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char dir[64];

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-plan-XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int end(void **state)
{
    (void)state;
    char command[96];
    lvni_core_vfs_fail_at("open", 0, 0);
    lvni_core_alloc_fail_at(0);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

TEST_EACH(begin, end);

/* ---- values ---- */

TEST(values_have_the_shortest_text)
{
    static const struct {
        const char *text, *type, *want; /* NULL: refused */
    } rows[] = {{"16", NULL, "16"},       {"007", NULL, "007"},       {"1e-3", NULL, "0.001"},
                {"0.10", NULL, "0.1"},    {"1e-05", NULL, "1e-05"},   {"1e3", NULL, "1000"},
                {".5", NULL, "0.5"},      {"-2.50", NULL, "-2.5"},    {"+3", NULL, "+3"},
                {"0x10", NULL, "0x10"},   {"inf", NULL, "inf"},       {"1.2.3", NULL, "1.2.3"},
                {"adamw", NULL, "adamw"}, {"'1e-3'", NULL, "1e-3"},   {"\"a b\"", NULL, "a b"},
                {"''", NULL, ""},         {"[0,1]", NULL, "[0,1]"},   {"1e-3", "str", "1e-3"},
                {"16", "float", "16"},    {"1e-3", "float", "0.001"}, {"x", "float", NULL},
                {"16", "int", "16"},      {"1.5", "int", NULL},       {"Yes", "bool", "true"},
                {"0", "bool", "false"},   {"2", "bool", NULL},        {"1e999", NULL, "1e999"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = NULL;
        const lvn_status s = lvni_sweep_value(rows[i].text, rows[i].type, &text);
        if (s != (rows[i].want == NULL ? LVN_ERR_USAGE : LVN_OK) ||
            (s == LVN_OK && strcmp(text, rows[i].want) != 0)) {
            fail_msg("`%s` as %s: %s", rows[i].text, rows[i].type != NULL ? rows[i].type : "any",
                     s == LVN_OK ? text : lvn_last_error()->message);
        }
        lvni_core_free(text);
    }
}

/* Elements joined with `;`. */
static void splits(const char *text, const char *want)
{
    char **elements = NULL;
    lvni_core_str joined = {0};
    const lvn_status s = lvni_sweep_split(text, &elements);
    for (int64_t i = 0; s == LVN_OK && i < lvni_sweep_texts_count(elements); i++) {
        lvni_core_str_printf(&joined, "%s%s", i > 0 ? ";" : "", elements[i]);
    }
    if (s != (want == NULL ? LVN_ERR_USAGE : LVN_OK) ||
        strcmp(lvni_core_str_text(&joined), want != NULL ? want : "") != 0) {
        fail_msg("%s: `%s`", text, lvni_core_str_text(&joined));
    }
    lvni_core_str_free(&joined);
    lvni_sweep_texts_free(elements);
}

TEST(commas_in_brackets_and_quotes_are_of_a_value)
{
    splits("a", "a");
    splits(" a , b ", "a;b");
    splits("[a,b]", "a;b");
    splits("[[0,1],[2]]", "[0,1];[2]");
    splits("[0,1],[2]", "[0,1];[2]");
    splits("'a,b',\"c]\"", "'a,b';\"c]\"");
    splits("it's,b", "it's;b");
    splits("{p: 1, q: 2},x", "{p: 1, q: 2};x");
    splits("[['a,b'],c]", "['a,b'];c");
    splits("a,,b", NULL);
    splits("", NULL);
    splits("[]", NULL);
    splits("[a", NULL);
    splits("a]", NULL);
    splits("'a", NULL);
}

/* ---- declarations ---- */

TEST(wrong_declarations_are_refused)
{
    static const char *const rows[][3] = {
        {"list", "a", "has no `=`"},
        {"list", "=1", "is not a name"},
        {"list", "a b=1", "is not a name"},
        {"list", "trial=1", "{trial} is the trial's own"},
        {"list", "a=", "a value is empty"},
        {"list", "a=x:int", "is not a whole number"},
        {"list", "there=2", "is declared twice"},
        {"range", "a=1", "LOW and HIGH"},
        {"range", "a=2:1", "LOW the smaller one"},
        {"range", "a=0:1:log", "a logarithm needs LOW above 0"},
        {"range", "a=0.5:2:int", "int needs whole numbers"},
        {"range", "a=1:2:3:4", "4; NAME=LOW:HIGH"},
        {"range", "a=1:9:log1", "log1; NAME"},
        {"range", "a=1:3:5:int", "has 2 whole numbers, fewer than the 5"},
        {"range", "a=-9e18:9e18:5:int", "int needs whole numbers"},
        {"sample", "a=1,2", "is not a distribution"},
        {"sample", "a=uniform(1)", "two numbers are expected"},
        {"sample", "a=uniform(2,1)", "the first limit is the smaller one"},
        {"sample", "a=loguniform(0,1)", "limits above 0"},
        {"sample", "a=normal(0,0)", "the deviation is above 0"},
        {"sample", "a=int(0,1.5)", "whole numbers"},
        {"sample", "a=choice(x||y)", "a value is empty"},
        {"when", "there=1: b=2", "is not understood"},
        {"when", "other==1: b=2", "is not a parameter that is declared before"},
        {"when", "drawn==1: b=2", "a condition needs a list"},
        {"when", "there==1: there=2", "is declared twice"},
        {"when", "there==1: m=2", "have no value in common"},
        {"zip", "there", "two names or more"},
        {"zip", "there,other", "is not a parameter"},
        {"zip", "there,two", "those that go together have equally many"},
        {"zip", "there,there", "twice in one"},
        {"zip", "drawn,there", "cannot go together"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_sweep_space space = {0};
        assert_int_equal(lvni_sweep_space_add(&space, "list", "there=1", 0), LVN_OK);
        assert_int_equal(lvni_sweep_space_add(&space, "list", "two=1,2", 0), LVN_OK);
        assert_int_equal(lvni_sweep_space_add(&space, "sample", "drawn=uniform(0,1)", 0), LVN_OK);
        assert_int_equal(lvni_sweep_space_add(&space, "when", "there==1: m=1", 0), LVN_OK);
        const lvn_status s = lvni_sweep_space_add(&space, rows[i][0], rows[i][1], 0);
        if (s != LVN_ERR_USAGE || strstr(lvn_last_error()->message, rows[i][2]) == NULL) {
            fail_msg("%s %s: %s", rows[i][0], rows[i][1],
                     s == LVN_OK ? "accepted" : lvn_last_error()->message);
        }
        lvni_sweep_space_free(&space);
    }
}

/* ---- what is drawn ---- */

/* A refused declaration leaves its column behind, which no parameter fills. */
TEST(what_was_refused_is_not_drawn)
{
    static const char *const refused[][2] = {{"list", "a=x:int"},
                                             {"range", "b=2:1"},
                                             {"sample", "c=uniform(2,1)"},
                                             {"when", "k==9: e=2"}};
    lvni_sweep_space space = {0};
    lvni_sweep_points points;
    lvni_core_str notes = {0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(lvni_sweep_space_add(&space, refused[i][0], refused[i][1], 0),
                         LVN_ERR_USAGE);
    }
    assert_int_equal(lvni_sweep_space_add(&space, "list", "k=1,2", 0), LVN_OK);
    const lvni_sweep_draw draw = {.strategy = "grid"};
    assert_int_equal(lvni_sweep_space_finish(&space, false, &notes), LVN_OK);
    assert_int_equal(lvni_sweep_space_draw(&space, &draw, &points, &notes), LVN_OK);
    assert_int_equal(points.n, 2);
    const int64_t last = points.n_parameters - 1;
    assert_string_equal(points.values[last], "1");
    assert_string_equal(points.values[points.n_parameters + last], "2");
    lvni_sweep_points_free(&points);
    lvni_core_str_free(&notes);
    lvni_sweep_space_free(&space);
}

static void declare(lvni_sweep_space *space, const char *kind, const char *text)
{
    if (lvni_sweep_space_add(space, kind, text, 3) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

/* Plans are equal on every machine, and stay so. */
TEST(draws_never_change)
{
    static const char *const want[] = {"0.10578347407378563", "2", "0.025899263294493245", "b"};
    lvni_sweep_space space = {0};
    lvni_sweep_points points;
    lvni_core_str notes = {0};
    declare(&space, "sample", "u=uniform(0,1)");
    declare(&space, "sample", "i=int(1,6)");
    declare(&space, "sample", "n=normal(0,1)");
    declare(&space, "list", "c=a,b,c");
    const lvni_sweep_draw draw = {.strategy = "random", .seed = 3, .trials = 1000};
    assert_int_equal(lvni_sweep_space_finish(&space, false, &notes), LVN_OK);
    assert_int_equal(lvni_sweep_space_draw(&space, &draw, &points, &notes), LVN_OK);
    assert_int_equal(points.n, 1000);
    for (int k = 0; k < 4; k++) {
        assert_string_equal(points.values[7 * 4 + k], want[k]);
    }
    double u = 0.0, n = 0.0, square = 0.0;
    int faces[7] = {0};
    for (int64_t i = 0; i < points.n; i++) {
        const double x = lvni_core_strtod(points.values[4 * i + 2], NULL);
        u += lvni_core_strtod(points.values[4 * i], NULL) / 1000.0;
        n += x / 1000.0;
        square += x * x / 1000.0;
        faces[atoi(points.values[4 * i + 1])]++;
    }
    assert_true(fabs(u - 0.5) < 0.04 && fabs(n) < 0.12 && fabs(square - 1.0) < 0.2);
    for (int k = 1; k <= 6; k++) {
        assert_true(faces[k] > 120 && faces[k] < 220);
    }
    lvni_sweep_points_free(&points);
    lvni_core_str_free(&notes);
    lvni_sweep_space_free(&space);
}

/* 20 lists of 10 are more than can be counted, and 9 trials of them are not. */
TEST(large_spaces_end)
{
    lvni_sweep_space space = {0};
    lvni_sweep_points points;
    lvni_core_str notes = {0};
    for (int k = 0; k < 20; k++) {
        char text[40];
        snprintf(text, sizeof text, "p%d=0,1,2,3,4,5,6,7,8,9", k);
        declare(&space, "list", text);
    }
    assert_int_equal(lvni_sweep_space_finish(&space, false, &notes), LVN_OK);
    const char *const strategies[] = {"grid", "random"};
    for (int k = 0; k < 2; k++) {
        const lvni_sweep_draw draw = {.strategy = strategies[k], .trials = 9};
        assert_int_equal(lvni_sweep_space_draw(&space, &draw, &points, &notes), LVN_OK);
        assert_int_equal(points.n, 9);
        lvni_sweep_points_free(&points);
    }
    assert_string_equal(lvni_core_str_text(&notes), "");
    lvni_core_str_free(&notes);
    lvni_sweep_space_free(&space);
}

/* ---- a plan, with memory and a disk that fail ---- */

static const lvni_core_option_table *const keys[] = {&lvni_sweep_plan_table, NULL};

/* Plans and writes; what was there is extended. */
static lvn_status plan_all(const char *out)
{
    static char prog[] = "prog", lr[] = "{lr}";
    char *words[] = {prog, lr, NULL}, file[120];
    snprintf(file, sizeof file, "%s/sweep.json", out + 4);
    const char *const args[] = {out,
                                "--list",
                                "lr=1e-3,1e-2",
                                "--list",
                                "o=sgd,adam",
                                "--when",
                                "o==sgd: m=0.9",
                                "--sample",
                                "x=int(1,9)",
                                lvni_core_path_exists(file) ? "extend=true" : "extend=false"};
    lvni_sweep_options o;
    lvni_sweep_made made;
    LVN_TRY(lvni_sweep_options_load(keys, sizeof args / sizeof *args, args, NULL, &o));
    const lvni_sweep_command command = {.words = words};
    lvn_status s = lvni_sweep_make(&o, &command, &made);
    if (s == LVN_OK) {
        s = lvni_sweep_plan_write(&made.plan, &made.points);
        lvni_sweep_made_free(&made);
    }
    lvni_sweep_options_free(&o);
    return s;
}

static void check_plan(const char *folder)
{
    lvni_sweep_plan plan;
    assert_int_equal(lvni_sweep_plan_read(folder, &plan), LVN_OK);
    assert_int_equal(plan.n_trials, 4);
    for (int64_t i = 0; i < 4; i++) {
        lvni_sweep_trial t;
        assert_int_equal(lvni_sweep_trial_read(&plan, i, &t), LVN_OK);
        assert_string_equal(t.argv[1], i < 2 ? "0.001" : "0.01");
        lvni_sweep_trial_free(&t);
    }
    lvni_sweep_plan_free(&plan);
}

TEST(memory_that_fails_leaves_nothing_half_done)
{
    char out[96];
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    snprintf(out, sizeof out, "out=%s/a", dir);
    for (int64_t k = 1;; k++) {
        lvni_core_alloc_fail_at(k);
        const lvn_status s = plan_all(out);
        const bool over = lvni_core_alloc_fail_at(0) > 0;
        if (over) {
            assert_int_equal(s, LVN_OK);
            break;
        }
        if (s != LVN_ERR_MEMORY) {
            fail_msg("allocation %lld: %s", (long long)k, lvn_last_error()->message);
        }
        lvn_clear_error();
        if (lvni_core_alloc_get_total().live_bytes != live) {
            fail_msg("allocation %lld: memory is left", (long long)k);
        }
    }
    check_plan(out + 4);
}

TEST(a_disk_that_fails_leaves_no_plan_or_a_whole_one)
{
    static const char *const kinds[] = {"open",   "write", "short", "close",
                                        "rename", "mkdir", "fsync"};
    int n = 0, refused = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool failed = true;
        for (int64_t k = 1; failed; k++, n++) {
            char out[96], file[120];
            snprintf(out, sizeof out, "out=%s/%d", dir, n);
            snprintf(file, sizeof file, "%s/sweep.json", out + 4);
            lvni_core_vfs_fail_at(kinds[i], k, ENOSPC);
            const lvn_status s = plan_all(out);
            failed = lvni_core_vfs_calls(kinds[i]) >= k;
            lvni_core_vfs_fail_at(kinds[i], 0, 0);
            if (s == LVN_OK || lvni_core_path_exists(file)) {
                check_plan(out + 4); /* also where the folder's sync alone failed */
            }
            refused += s != LVN_OK;
            lvn_clear_error();
            assert_int_equal(plan_all(out), LVN_OK); /* planned again */
            check_plan(out + 4);
        }
    }
    assert_true(refused > 20);
}
