/* Values that name others: aliases and merge keys of YAML, and ${...}. */
#include "config_rows.h"
#include "support/test.h"

#include <stdlib.h>

static lvni_core_config *config;

static int begin(void **state)
{
    (void)state;
    return make_config(&config) == LVN_OK ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    lvni_core_config_destroy(config);
    return 0;
}
TEST_EACH(begin, end);

/* A file, then a command line. */
static lvn_status read_both(const char *text, int n, const char *const *args)
{
    lvni_core_config_destroy(config);
    assert_int_equal(make_config(&config), LVN_OK);
    const lvn_status status =
        lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, strlen(text));
    return status == LVN_OK ? lvni_core_config_load_arguments(config, n, args) : status;
}

static void read_file(const char *text)
{
    if (read_both(text, 0, NULL) != LVN_OK) {
        fail_msg("%s: %s", text, lvn_last_error()->message);
    }
}

static void assert_refused(const char *text, const char *message)
{
    assert_int_equal(read_both(text, 0, NULL), LVN_ERR_USAGE);
    if (strstr(lvn_last_error()->message, message) == NULL) {
        fail_msg("`%s` is not in `%s`", message, lvn_last_error()->message);
    }
}

/* ---- aliases ---- */

TEST(an_alias_is_what_its_anchor_names)
{
    size_t n;
    read_file("seed: &s 7\nmax_epochs: *s\nnames: [&a one, *a, two]\nviews: &v [[0, 1], [*s]]\n"
              "other: *v\n");
    assert_int_equal(lvni_core_config_int(config, "seed"), 7);
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 7);
    assert_string_equal(lvni_core_config_str_list(config, "names", &n)[1], "one");
    assert_string_equal(lvni_core_config_str(config, "views"), "[[0,1],[7]]");
    assert_string_equal(lvni_core_config_str(config, "other"), "[[0,1],[7]]");
}

TEST(the_last_anchor_of_a_name_counts)
{
    read_file("seed: &s 7\nnum_workers: &s 8\nmax_epochs: *s\n");
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 8);
}

TEST(keys_of_a_map_come_before_those_it_is_merged_with)
{
    read_file("other: &a {lr: 3, name: adamw}\n"
              "optim:\n  <<: [{lr: 0.5}, *a]\n"
              "<<: {seed: 3, max_epochs: 4, <<: {batch_size: 2, seed: 9}}\nseed: 1\n");
    assert_true(lvni_core_config_float(config, "optim.lr") == 0.5);
    assert_string_equal(lvni_core_config_str(config, "optim.name"), "adamw");
    assert_int_equal(lvni_core_config_int(config, "seed"), 1);
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 4);
    assert_int_equal(lvni_core_config_int(config, "batch_size"), 2);
}

TEST(aliases_of_aliases_have_an_end)
{
    lvni_core_str text = {0};
    lvni_core_str_append(&text, "views:\n  - &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 12; i++) {
        lvni_core_str_printf(&text, "  - &a%d [", i);
        for (int k = 0; k < 10; k++) {
            lvni_core_str_printf(&text, "%s*a%d", k > 0 ? ", " : "", i - 1);
        }
        lvni_core_str_append(&text, "]\n");
    }
    assert_refused(lvni_core_str_text(&text), "aliases repeat more than 50000 values");
    lvni_core_str_free(&text);
}

/* Each of them would take 100 bytes and more. */
TEST(what_anchors_and_lists_hold_has_an_end)
{
    static const char *const begin_end[][3] = {
        {"views: [&a [&b [", "], &c [&d [", "anchors and merge keys name more than 100000 values"},
        {"views: [[", "], [", "maps and lists of more than 65536 values"}};
    for (size_t i = 0; i < 2; i++) {
        lvni_core_str text = {0};
        lvni_core_str_append(&text, begin_end[i][0]);
        for (int k = 0; k < 80000; k++) {
            lvni_core_str_append(&text, k % 4000 == 3999 ? begin_end[i][1] : "1,");
        }
        assert_refused(lvni_core_str_text(&text), begin_end[i][2]);
        lvni_core_str_free(&text);
    }
}

/* ---- values of any depth ---- */

TEST(a_map_is_its_json_text)
{
    static const char *const args[] = {"views={Rotate: {p: 0.4, kwargs: {rotate: [-25, 25]}}}"};
    read_file("views:\n  Rotate:\n    p: 0.4\n    kwargs: {rotate: [-25, 25], names: ['1', x],"
              " on: true, off: ~}\n");
    assert_string_equal(lvni_core_config_str(config, "views"),
                        "{\"Rotate\":{\"p\":0.40000000000000002,\"kwargs\":{\"rotate\":[-25,25],"
                        "\"names\":[\"1\",\"x\"],\"on\":true,\"off\":null}}}");
    assert_int_equal(read_both("", 1, args), LVN_OK);
    assert_string_equal(
        lvni_core_config_str(config, "views"),
        "{\"Rotate\":{\"p\":0.40000000000000002,\"kwargs\":{\"rotate\":[-25,25]}}}");
    read_file("views: dlc\n");
    assert_string_equal(lvni_core_config_str(config, "views"), "dlc");
}

/* ---- ${...} ---- */

TEST(a_value_of_another_key)
{
    size_t n;
    read_file("title: ${data}/videos\ndata: /project\nseed: ${max_epochs}\nmax_epochs: 4\n"
              "num_workers: ${seed}\nmilestones: [1, '${seed}']\nviews: '${title}'\n"
              "optim: {lr: 0.5, betas: ['${.lr}', '${..val_split}']}\nval_split: 0.25\n");
    assert_string_equal(lvni_core_config_str(config, "title"), "/project/videos");
    assert_string_equal(lvni_core_config_str(config, "views"), "/project/videos");
    assert_int_equal(lvni_core_config_int(config, "num_workers"), 4);
    assert_int_equal(lvni_core_config_int_list(config, "milestones", &n)[1], 4);
    assert_true(lvni_core_config_float_list(config, "optim.betas", &n)[0] == 0.5);
    assert_true(lvni_core_config_float_list(config, "optim.betas", &n)[1] == 0.25);
    assert_string_equal(lvni_core_config_origin(config, "seed"), "c.yml:3");
}

TEST(what_wins_is_what_is_named)
{
    static const char *const args[] = {"data=/other", "seed=${data.count}", "data.count=5"};
    assert_int_equal(read_both("data: /project\ntitle: ${data}\nseed: ${title}\n", 3, args),
                     LVN_OK);
    assert_string_equal(lvni_core_config_str(config, "title"), "/other");
    assert_int_equal(lvni_core_config_int(config, "seed"), 5);
}

TEST(a_list_and_nothing_are_values_as_well)
{
    size_t n;
    read_file("names: ${other}\nother: [a, b]\nnum_workers: ${title}\n");
    assert_string_equal(lvni_core_config_str_list(config, "names", &n)[1], "b");
    assert_false(lvni_core_config_is_set(config, "num_workers"));
}

TEST(a_path_of_here_is_one_of_everywhere)
{
    read_file("data: x\ntitle: ${data}/y\n");
    const char *title = lvni_core_config_str(config, "title");
    assert_true(title[0] == '/');
    assert_string_equal(title + strlen(title) - 4, "/x/y");
}

TEST(environment_time_and_text)
{
    assert_int_equal(setenv("LEVIN_START_TIME", "86400", 1), 0);
    assert_int_equal(setenv("LEVIN_TEST_OPEN", "7", 1), 0);
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    read_file("title: ${now:%Y-%m-%d}/${oc.env:LEVIN_TEST_NONE,${data.count}}\n"
              "seed: ${oc.env:LEVIN_TEST_OPEN}\ndata: \\${seed}\nother: ${anything}\n");
    assert_string_equal(lvni_core_config_str(config, "title"), "1970-01-02/1000");
    assert_int_equal(lvni_core_config_int(config, "seed"), 7);
    assert_string_equal(lvni_core_config_str(config, "data"), "${seed}");
    assert_string_equal(lvni_core_config_str(config, "other"), "${anything}");
}

TEST(text_is_saved_as_text)
{
    lvni_core_str text = {0};
    lvni_core_config *again;
    read_file("title: 'a\\${seed}\\\\${b'\nother: '\\${x}'\n");
    assert_string_equal(lvni_core_config_str(config, "title"), "a${seed}\\${b");
    assert_int_equal(lvni_core_config_write_yaml(config, &text), LVN_OK);
    for (int layer = LVNI_LAYER_SAVED; layer <= LVNI_LAYER_FILE; layer++) {
        assert_int_equal(make_config(&again), LVN_OK);
        assert_int_equal(lvni_core_config_load_yaml(again, (lvni_core_layer)layer, "s",
                                                    lvni_core_str_text(&text), text.len),
                         LVN_OK);
        assert_int_equal(lvni_core_config_resolve(again), LVN_OK);
        assert_string_equal(lvni_core_config_str(again, "title"), "a${seed}\\${b");
        assert_string_equal(lvni_core_config_str(again, "other"), "\\${x}");
        lvni_core_config_destroy(again);
    }
    lvni_core_str_free(&text);
}

TEST(what_cannot_be_resolved)
{
    assert_refused("seed: ${max_epochs}\nmax_epochs: ${seed}\n",
                   "`seed` needs itself: it is needed by `max_epochs` for `seed`  (c.yml:1)");
    assert_refused("seed: ${seed}\n", "`seed` needs itself");
    assert_refused("title: ${datta}\n", "title: ${datta} is the value of no key here");
    assert_refused("title: ${..data}\n", "title: ${..data} is the value of no key here");
    assert_refused("title: ${data\n", "title `${data`: ${ without its }");
    assert_refused("title: ${now:}\n", "expected a form of time");
    assert_refused("title: ${oc.env:LEVIN_TEST_NONE}\n",
                   "${oc.env:LEVIN_TEST_NONE}: the environment has no such variable");
    assert_refused("title: ${oc.select:x}\n", "expected oc.env, now or LP_ROOT_PATH");
    assert_int_equal(unsetenv("LP_ROOT_PATH"), 0);
    assert_refused("data: ${LP_ROOT_PATH:}/x\n", "set the variable LP_ROOT_PATH");
    assert_refused("title: abc\nseed: ${title}\n", "seed `abc`: expected a whole number");
}
