/* The configuration: precedence, value grammar, messages, YAML, and that what is written reads back
 * the same. */
#include "config_rows.h"
#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "support/test.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

static lvni_core_config *config;

static int setup(void **state)
{
    (void)state;
    return make_config(&config) == LVN_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    lvni_core_config_destroy(config);
    config = NULL;
    return lvni_core_alloc_get_total().live_bytes == 0 ? 0 : -1;
}

TEST_EACH(setup, teardown);

static lvn_status words(const char *a, const char *b, const char *c)
{
    const char *list[] = {a, b, c};
    int n = 0;
    while (n < 3 && list[n] != NULL) {
        n++;
    }
    return lvni_core_config_load_arguments(config, n, list);
}

static lvn_status yaml(const char *text)
{
    return lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, strlen(text));
}

static void assert_message(lvn_status status, const char *expected)
{
    assert_int_equal(status, LVN_ERR_USAGE);
    assert_string_equal(lvn_last_error()->message, expected);
}

/* ---- layers ---- */

TEST(later_layers_win_whatever_the_order_of_calls)
{
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 10);
    assert_string_equal(lvni_core_config_origin(config, "max_epochs"), "default");
    assert_int_equal(lvni_core_config_layer(config, "max_epochs"), LVNI_LAYER_DEFAULT);
    assert_int_equal(words("max_epochs=4", NULL, NULL), LVN_OK);
    assert_int_equal(yaml("max_epochs: 3\nseed: 7\n"), LVN_OK);
    assert_int_equal(
        lvni_core_config_load_job(
            config, " max_epochs=20  batch_size=256 optim=adamw title='a b' names=[x, y] "),
        LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 4);
    assert_string_equal(lvni_core_config_origin(config, "max_epochs"), "command line");
    assert_int_equal(lvni_core_config_int(config, "seed"), 7);
    assert_string_equal(lvni_core_config_origin(config, "seed"), "c.yml:2");
    assert_int_equal(lvni_core_config_int(config, "batch_size"), 256);
    assert_string_equal(lvni_core_config_origin(config, "batch_size"), "job");
    assert_int_equal(lvni_core_config_layer(config, "batch_size"), LVNI_LAYER_JOB);
    assert_string_equal(lvni_core_config_str(config, "optim.name"), "adamw");
    assert_int_equal(lvni_core_config_choice(config, "optim.name"), 1);
    assert_string_equal(lvni_core_config_str(config, "title"), "a b");
    assert_int_equal(lvni_core_config_set(config, "max_epochs", "5", "environment"), LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 5);
    assert_string_equal(lvni_core_config_origin(config, "max_epochs"), "environment");
}

TEST(the_last_argument_wins)
{
    assert_int_equal(words("seed=1", "seed=2", "--seed=3"), LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "seed"), 3);
    assert_int_equal(words("seed=9", "~seed", NULL), LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "seed"), 0);
}

TEST(arguments_have_several_forms)
{
    assert_int_equal(words("--max-epochs", "6", "--overwrite"), LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 6);
    assert_true(lvni_core_config_bool(config, "overwrite"));
    assert_int_equal(words("--overwrite", "no", "+batch-size=12"), LVN_OK);
    assert_false(lvni_core_config_bool(config, "overwrite"));
    assert_int_equal(lvni_core_config_int(config, "batch_size"), 12);
    assert_int_equal(words("--overwrite", "++seed=-4", NULL), LVN_OK);
    assert_true(lvni_core_config_bool(config, "overwrite"));
    assert_int_equal(lvni_core_config_int(config, "seed"), -4);
    assert_message(
        words("photos", NULL, NULL),
        "`photos` is not understood: arguments are key=value or --key value  (command line)");
    assert_message(words("seed", "=", "3"),
                   "`seed` has no value: seed=VALUE, with no spaces around =  (command line)");
    assert_message(words("--seed", NULL, NULL),
                   "`--seed` needs a value: seed=VALUE  (command line)");
    assert_message(words("--seed", "--overwrite", NULL),
                   "`--seed` needs a value: seed=VALUE  (command line)");
    assert_int_equal(words("=3", NULL, NULL), LVN_ERR_USAGE);
    assert_int_equal(words("--", NULL, NULL), LVN_ERR_USAGE);
}

TEST(files_lie_below_arguments_and_above_saved)
{
    char path[] = "/tmp/levin-config-XXXXXX";
    char word[64];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(lvni_core_file_write(path, "seed: 1\nmax-epochs: 2\n", 22), LVN_OK);
    snprintf(word, sizeof word, "config=%s", path);
    assert_int_equal(lvni_core_config_load_job(config, "seed=8 max_epochs=8"), LVN_OK);
    assert_int_equal(words("seed=5", word, NULL), LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "seed"), 5);
    assert_int_equal(lvni_core_config_int(config, "max_epochs"), 2);
    char origin[64];
    snprintf(origin, sizeof origin, "%s:2", path);
    assert_string_equal(lvni_core_config_origin(config, "max_epochs"), origin);
    assert_string_equal(lvni_core_config_str(config, "config"), path);
    assert_int_equal(words("--config", path, NULL), LVN_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(words("--config", path, NULL), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, path));
}

/* ---- values ---- */

TEST(numbers_are_strict)
{
    static const char *const bad[] = {
        "batch_size=abc",  "batch_size=12.5",   "batch_size=",
        "batch_size='12'", "batch_size=0x10",   "batch_size=9223372036854775808",
        "batch_size=0",    "batch_size='null'", "batch_size=1e3",
        "batch_size=1 2",  "optim.lr=nan",      "optim.lr=inf",
        "optim.lr=0x1p3",  "optim.lr=1e999",    "optim.lr=0",
        "optim.lr=1,5",    "optim.lr=e5",       "val_split=1",
        "val_split=-0.1",  "drop_last=2",       "drop_last=maybe",
        "wait=-inf",       "optim.lr=1.2.3",    "optim.lr=--1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(words(bad[i], NULL, NULL), LVN_ERR_USAGE);
        assert_non_null(strstr(lvn_last_error()->message, "expected"));
    }
    assert_int_equal(words("optim.lr=1e-3", "batch_size= 64 ", "drop_last=On"), LVN_OK);
    assert_true(lvni_core_config_float(config, "optim.lr") == 1e-3);
    assert_int_equal(lvni_core_config_int(config, "batch_size"), 64);
    assert_true(lvni_core_config_float(config, "batch_size") == 64.0);
    assert_true(lvni_core_config_bool(config, "drop_last"));
    assert_int_equal(words("optim.lr=5", "val_split=.5", "seed=-9223372036854775808"), LVN_OK);
    assert_true(lvni_core_config_float(config, "optim.lr") == 5.0);
    assert_true(lvni_core_config_int(config, "seed") == INT64_MIN);
    assert_true(isinf(lvni_core_config_float(config, "wait")));
}

/* What others write for nothing is "not given", in files and arguments alike. */
TEST(null_has_many_spellings)
{
    static const char *const nulls[] = {"null", "Null", "NULL", "None", "none", "~"};
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++) {
        char text[3][40];
        snprintf(text[0], sizeof text[0], "batch_size=%s", nulls[i]);
        snprintf(text[1], sizeof text[1], "drop_last=%s", nulls[i]);
        snprintf(text[2], sizeof text[2], "milestones=%s", nulls[i]);
        assert_int_equal(words(text[0], text[1], text[2]), LVN_OK);
        assert_int_equal(lvni_core_config_int(config, "batch_size"), 128);
        assert_int_equal(lvni_core_config_layer(config, "drop_last"), LVNI_LAYER_DEFAULT);
        char file[80];
        const int n = snprintf(file, sizeof file, "batch_size: %s\ndata: %s\n", nulls[i], nulls[i]);
        assert_int_equal(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "f", file, (size_t)n),
                         LVN_OK);
        assert_int_equal(lvni_core_config_int(config, "batch_size"), 128);
        assert_false(lvni_core_config_is_set(config, "data"));
    }
}

TEST(lists_have_three_forms)
{
    size_t n = 7;
    assert_int_equal(lvni_core_config_int_list(config, "milestones", &n) != NULL && n == 0, 1);
    static const char *const same[] = {"milestones=[1,3]", "milestones=1,3",
                                       "milestones= [ 1 , +3 ] "};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(words(same[i], NULL, NULL), LVN_OK);
        const int64_t *list = lvni_core_config_int_list(config, "milestones", &n);
        assert_int_equal(n, 2);
        assert_int_equal(list[0], 1);
        assert_int_equal(list[1], 3);
    }
    assert_int_equal(
        words("milestones=5", "names=[a b, 'it''s', \"q\\\"x,]\"]", "optim.betas=[0.5,0.75]"),
        LVN_OK);
    assert_int_equal(lvni_core_config_int_list(config, "milestones", &n)[0], 5);
    assert_int_equal(n, 1);
    const char *const *names = lvni_core_config_str_list(config, "names", &n);
    assert_int_equal(n, 3);
    assert_string_equal(names[0], "a b");
    assert_string_equal(names[1], "it's");
    assert_string_equal(names[2], "q\"x,]");
    assert_true(lvni_core_config_float_list(config, "optim.betas", &n)[1] == 0.75);
    assert_int_equal(words("milestones=(1, 3)", "optim.betas=(0.5,0.75)", "names=(a)"), LVN_OK);
    assert_int_equal(lvni_core_config_int_list(config, "milestones", &n)[1], 3);
    assert_true(lvni_core_config_float_list(config, "optim.betas", &n)[1] == 0.75);
    assert_string_equal(lvni_core_config_str_list(config, "names", &n)[0], "(a)");
    static const char *const bad[] = {"milestones=(1,3]",
                                      "milestones=(1,3",
                                      "milestones=1,3)",
                                      "milestones=[1,3)",
                                      "milestones=[1,",
                                      "milestones=1]",
                                      "milestones=[1,,2]",
                                      "milestones=[1,2,]",
                                      "milestones=[[1]]",
                                      "milestones=[1.5]",
                                      "milestones=['1']",
                                      "milestones=[",
                                      "milestones=]",
                                      "milestones={a: 1}",
                                      "names=['a]",
                                      "names=['a' b]",
                                      "optim.betas=[0.9]",
                                      "optim.betas=[0.9,1]",
                                      "optim.betas=[0.9,0.99,0.999]",
                                      "milestones=[1 2]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(words(bad[i], NULL, NULL), LVN_ERR_USAGE);
    }
}

TEST(unset_and_auto)
{
    assert_false(lvni_core_config_is_set(config, "num_workers"));
    assert_null(lvni_core_config_str(config, "devices"));
    assert_null(lvni_core_config_str(config, "title"));
    assert_int_equal(words("num_workers=4", "title=x", NULL), LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "num_workers"), 4);
    assert_int_equal(words("num_workers=auto", "title=null", NULL), LVN_OK);
    assert_false(lvni_core_config_is_set(config, "num_workers"));
    assert_int_equal(lvni_core_config_layer(config, "num_workers"), LVNI_LAYER_ARGUMENTS);
    assert_false(lvni_core_config_is_set(config, "title"));
    assert_int_equal(words("title='null'", "scheduler=none", NULL), LVN_OK);
    assert_string_equal(lvni_core_config_str(config, "title"), "null");
    /* a choice of that name */
    assert_string_equal(lvni_core_config_str(config, "scheduler.name"), "none");
}

TEST(choices_have_other_spellings)
{
    assert_int_equal(words("strategy=none", "optim=AdamW", "precision=float32"), LVN_OK);
    assert_string_equal(lvni_core_config_str(config, "strategy"), "single");
    assert_string_equal(lvni_core_config_str(config, "optim.name"), "adamw");
    assert_int_equal(lvni_core_config_choice(config, "precision"), 0);
}

/* ---- messages ---- */

TEST(unknown_keys_name_the_nearest)
{
    assert_message(words("bachsize=3", NULL, NULL),
                   "unknown key `bachsize`; did you mean `batch_size`?  (command line)");
    assert_message(words("lr=3", NULL, NULL),
                   "unknown key `lr`; did you mean `optim.lr`?  (command line)");
    assert_message(words("max_epohcs=3", NULL, NULL),
                   "unknown key `max_epohcs`; did you mean `max_epochs`?  (command line)");
    assert_message(words("--gpuss", "3", NULL),
                   "unknown key `gpuss`; did you mean `gpus` (devices)?  (command line)");
    assert_message(words("xyzzy=3", NULL, NULL), "unknown key `xyzzy`  (command line)");
    lvni_core_config_set_help(config, "levin help train");
    assert_message(words("xyzzy=3", NULL, NULL),
                   "unknown key `xyzzy`; all keys: `levin help train`  (command line)");
    assert_message(yaml("seed: 1\noptim:\n  lrr: 3\n"),
                   "unknown key `optim.lrr`; did you mean `optim.lr`?  (c.yml:3)");
    assert_message(yaml("optimm:\n  lr: 3\n"),
                   "unknown key `optimm`; did you mean `optim` (optim.name)?  (c.yml:2)");
    char word[400];
    memset(word, 'k', sizeof word);
    word[398] = '=';
    word[399] = '\0';
    assert_int_equal(words(word, NULL, NULL), LVN_ERR_USAGE);
}

TEST(wrong_types_report_what_is_expected_and_where)
{
    assert_message(yaml("seed: 1\nbatch_size: abc\n"),
                   "batch_size `abc`: expected a whole number, at least 1 (in samples)  (c.yml:2)");
    assert_message(yaml("batch_size: \"12\"\n"),
                   "batch_size `12`: expected a whole number, at least 1 (in samples), not a text "
                   "in quotes  (c.yml:1)");
    assert_message(words("val_split=1.5", NULL, NULL),
                   "val_split `1.5`: expected a number, at least 0 and below 1  (command line)");
    assert_message(
        words("num_workers=-1", NULL, NULL),
        "num_workers `-1`: expected a whole number, at least 0, or auto  (command line)");
    assert_message(
        words("strategy=dpp", NULL, NULL),
        "strategy `dpp`: expected one of single, dp, ddp; did you mean `dp`?  (command line)");
    assert_message(words("drop_last=maybe", NULL, NULL),
                   "drop_last `maybe`: expected true or false  (command line)");
    assert_message(words("optim.betas=1", NULL, NULL),
                   "optim.betas `1`: expected a list of numbers, at least 0 and below 1, 2 of them "
                   " (command line)");
    assert_message(words("title=\xff", NULL, NULL),
                   "title: the value is not valid UTF-8: \\xff  (command line)");
}

TEST(aliases_that_disagree_are_a_mistake)
{
    assert_int_equal(words("gpus=1", "devices=1", NULL), LVN_OK);
    assert_message(words("gpus=2", "devices=1", NULL),
                   "`gpus` (2) and `devices` (1) are two names of `devices` and differ; give one  "
                   "(command line)");
    /* another source: the order of layers decides */
    assert_int_equal(yaml("devices: 3\n"), LVN_OK);
    assert_string_equal(lvni_core_config_str(config, "devices"), "2");
    assert_message(
        yaml("gpus: 2\ndevices: 2\n"),
        "`devices`: this file sets `devices` already, by this or another name  (c.yml:2)");
}

TEST(what_comes_later_is_reported)
{
    assert_int_equal(words("devices=1", "num_nodes=1", "precision=32"), LVN_OK);
    assert_int_equal(lvni_core_config_finish(config), LVN_OK);
    assert_int_equal(words("devices=2", NULL, NULL), LVN_OK);
    assert_message(lvni_core_config_finish(config),
                   "devices 2: several devices come with a later version; this one trains on one "
                   "device (devices=1)  (command line)");
    assert_int_equal(words("devices=1", "precision=bf16-mixed", NULL), LVN_OK);
    assert_message(lvni_core_config_finish(config),
                   "precision bf16-mixed: this value comes with a later version; this one knows "
                   "32|64  (command line)");
    assert_int_equal(words("precision=64", "num_nodes=2", NULL), LVN_OK);
    assert_message(
        lvni_core_config_finish(config),
        "num_nodes 2: this key comes with a later version; leave it at 1  (command line)");
}

TEST(a_later_value_of_a_lower_layer_does_no_harm)
{
    assert_int_equal(yaml("precision: 16-mixed\ndevices: 4\n"), LVN_OK);
    assert_int_equal(words("precision=32", "devices=1", NULL), LVN_OK);
    assert_int_equal(lvni_core_config_finish(config), LVN_OK);
}

/* ---- YAML ---- */

TEST(yaml_maps_nest_and_sequences_are_lists)
{
    size_t n = 0;
    assert_int_equal(
        yaml("# comment\noptim:\n  name: adamw\n  lr: 1e-3\n  betas:\n    - 0.5\n    - 0.25\n"
             "milestones: [10, 20]\ndata: /photos/a b\ndata.count: 5\nnames: ['a, b', c, "
             "\"d\\\"\", '[e]']\n"
             "title: \"yes\"\ndrop_last: yes\ndevices: [0, 1]\nscheduler:\n"),
        LVN_ERR_USAGE); /* the empty scheduler is not a choice; all before it is read */
    assert_non_null(
        strstr(lvn_last_error()->message, "scheduler.name ``: expected one of none, cosine"));
    assert_string_equal(lvni_core_config_str(config, "optim.name"), "adamw");
    assert_true(lvni_core_config_float(config, "optim.lr") == 1e-3);
    assert_true(lvni_core_config_float_list(config, "optim.betas", &n)[1] == 0.25);
    assert_int_equal(lvni_core_config_int_list(config, "milestones", &n)[1], 20);
    assert_string_equal(lvni_core_config_str(config, "data"), "/photos/a b");
    assert_int_equal(lvni_core_config_int(config, "data.count"), 5);
    const char *const *names = lvni_core_config_str_list(config, "names", &n);
    assert_int_equal(n, 4);
    assert_string_equal(names[0], "a, b");
    assert_string_equal(names[2], "d\"");
    assert_string_equal(names[3], "[e]");
    assert_string_equal(lvni_core_config_str(config, "title"), "yes");
    assert_true(lvni_core_config_bool(config, "drop_last"));
    assert_string_equal(lvni_core_config_str(config, "devices"), "[0,1]");
}

TEST(yaml_short_forms_and_empty_parts)
{
    assert_int_equal(yaml(""), LVN_OK);
    assert_int_equal(yaml("# nothing\n"), LVN_OK);
    assert_int_equal(yaml("---\noptim: adamw\nscheduler: cosine\n"), LVN_OK);
    assert_string_equal(lvni_core_config_str(config, "optim.name"), "adamw");
    assert_int_equal(yaml("{\"optim\": {\"lr\": 0.5}, \"names\": [\"x\"], \"title\": null}"),
                     LVN_OK); /* JSON */
    assert_true(lvni_core_config_float(config, "optim.lr") == 0.5);
}

TEST(refused_yaml_is_located)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"seed: 1\nseed: 2\n", "c.yml:2:1: the key `seed` stands twice in one map"},
        {"max-epochs: 1\nmax_epochs: 2\n",
         "c.yml:2:1: the key `max_epochs` stands twice in one map"},
        {"optim: {lr: 1}\noptim.lr: 2\n",
         "`optim.lr`: this file sets `optim.lr` already, by this or another name  (c.yml:2)"},
        {"seed: *a\n",
         "c.yml:1:7: an alias (*name) of an anchor (&name) that does not stand above"},
        {"views: &a [*a]\n", "c.yml:1:12: an alias inside of what its own anchor names"},
        {"views: [{a: 1, a: 2}]\n", "c.yml:1:16: a key stands twice in one map"},
        {"seed: !!int 1\n",
         "c.yml:1:7: tags (!name) are not accepted; the option table knows the type"},
        {"seed: 1\n---\nseed: 2\n",
         "c.yml:2:1: a second document; one file holds one configuration"},
        {"- 1\n- 2\n", "c.yml:1:1: expected `key: value` lines"},
        {"seed\n", "c.yml:1:1: expected `key: value` lines"},
        {"milestones: [[1]]\n", "c.yml:1:14: a list holds plain values only, not lists or maps"},
        {"seed: {a: 1}\n", "seed: expected a value, not a map  (c.yml:1)"},
        {"? [a]\n: 1\n", "c.yml:1:3: a key is a name, not a list or a map"},
        {"<<: 3\n", "c.yml:1:5: a merge key (<<) takes a map, or a list of maps"},
        {"<<: [{seed: 1}, 3]\n", "c.yml:1:17: a merge key (<<) takes a map, or a list of maps"},
        {"views: {<<: [3]}\n", "c.yml:1:9: a merge key (<<) takes a map, or a list of maps"},
        {"a b: 1\n", "c.yml:1:1: a key has at most 128 bytes and no blanks"},
        {"title: \"a\\0b\"\n", "c.yml:1:8: a zero byte inside a value"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_message(yaml(rows[i].text), rows[i].message);
    }
    assert_message(yaml("optim:\n  lr: 1\n max_epochs: 2\n"),
                   /* syntax */
                   "c.yml:3:2: did not find expected key while parsing a block mapping");
    assert_message(yaml("title: 'open\n"),
                   "c.yml:2:1: found unexpected end of stream while scanning a quoted scalar");
    assert_int_equal(yaml("title: \xff\n"), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "c.yml: byte 7"));
}

TEST(yaml_has_limits)
{
    enum { BIG = (1 << 20) + 1 };
    char *text = malloc(BIG);
    assert_non_null(text);
    memset(text, ' ', BIG);
    assert_int_equal(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, BIG),
                     LVN_ERR_USAGE);
    assert_int_equal(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, BIG - 1),
                     LVN_OK);
    memcpy(text, "names: [", 8);
    for (int i = 0; i < 5000; i++) {
        memcpy(text + 8 + 2 * i, i < 4999 ? "a," : "a]", 2);
    }
    assert_message(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, 10008),
                   "c.yml:1:8201: the list has more than 4096 elements");
    memcpy(text, "title: ", 7);
    memset(text + 7, 'a', 270000);
    assert_int_equal(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, 270007),
                     LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "longer than 262144 bytes"));
    memset(text, '[', 100000);
    assert_int_equal(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, 100000),
                     LVN_ERR_USAGE);
    memset(text, '{', 100000);
    assert_int_equal(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "c.yml", text, 100000),
                     LVN_ERR_USAGE);
    free(text);
}

/* ---- writing ---- */

static void fill(void)
{
    static const char *const all[] = {"batch_size=12",
                                      "optim.lr=0.30000000000000004",
                                      "val_split=1e-05",
                                      "title= a: #b \"q\" \\ \t\xc2\x85\xe2\x80\xa8 \xc3\xa4 ",
                                      "names=[null, 'a, b', '', x-1, '1', 'it''s', '[', -]",
                                      "milestones=[3,-4]",
                                      "scheduler=cosine",
                                      "data=/a/b_c.d",
                                      "num_workers=auto",
                                      "overwrite=true",
                                      "seed=-9223372036854775808",
                                      "optim.betas=[0.1,1e-30]",
                                      "wait=inf"};
    assert_int_equal(
        lvni_core_config_load_arguments(config, (int)(sizeof all / sizeof all[0]), all), LVN_OK);
}

static void assert_same_values(const lvni_core_config *a, const lvni_core_config *b)
{
    static const char *const texts[] = {"title",   "data",       "scheduler.name",
                                        "devices", "optim.name", "strategy"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *x = lvni_core_config_str(a, texts[i]);
        const char *y = lvni_core_config_str(b, texts[i]);
        assert_true((x == NULL && y == NULL) || (x != NULL && y != NULL && strcmp(x, y) == 0));
    }
    static const char *const floats[] = {"optim.lr", "val_split", "seed", "batch_size", "wait"};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        assert_true(lvni_core_config_float(a, floats[i]) == lvni_core_config_float(b, floats[i]));
    }
    assert_true(lvni_core_config_int(a, "seed") == lvni_core_config_int(b, "seed"));
    size_t n = 0;
    size_t m = 0;
    const char *const *names = lvni_core_config_str_list(a, "names", &n);
    const char *const *again = lvni_core_config_str_list(b, "names", &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(names[i], again[i]);
    }
    assert_memory_equal(lvni_core_config_float_list(a, "optim.betas", &n),
                        lvni_core_config_float_list(b, "optim.betas", &m), 16);
    assert_memory_equal(lvni_core_config_int_list(a, "milestones", &n),
                        lvni_core_config_int_list(b, "milestones", &m), 16);
    assert_int_equal(lvni_core_config_is_set(a, "num_workers"),
                     lvni_core_config_is_set(b, "num_workers"));
}

TEST(what_is_written_reads_back_the_same)
{
    fill();
    for (int form = 0; form < 2; form++) {
        lvni_core_str text = {0};
        lvni_core_str twice = {0};
        lvni_core_config *again = NULL;
        assert_int_equal(form == 0 ? lvni_core_config_write_yaml(config, &text)
                                   : lvni_core_config_to_json(config, &text),
                         LVN_OK);
        assert_int_equal(make_config(&again), LVN_OK);
        assert_int_equal(
            lvni_core_config_load_yaml(again, LVNI_LAYER_SAVED, "saved", text.data, text.len),
            LVN_OK);
        assert_same_values(config, again);
        assert_false(lvni_core_config_bool(again, "overwrite")); /* not saved */
        assert_int_equal(form == 0 ? lvni_core_config_write_yaml(again, &twice)
                                   : lvni_core_config_to_json(again, &twice),
                         LVN_OK);
        assert_string_equal(text.data, twice.data);
        lvni_core_config_destroy(again);
        lvni_core_str_free(&text);
        lvni_core_str_free(&twice);
    }
}

TEST(the_written_yaml_is_plain_to_read)
{
    fill();
    lvni_core_str text = {0};
    assert_int_equal(lvni_core_config_write_yaml(config, &text), LVN_OK);
    static const char *const lines[] = {"\nbatch_size: 12\n",    "\nval_split: 1.0e-05\n",
                                        "\noptim.name: sgd\n",   "\nnum_workers: auto\n",
                                        "\ndata: /a/b_c.d\n",    "\nmilestones: [3, -4]\n",
                                        "\nprecision: \"32\"\n", "\nwait: .inf\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_non_null(strstr(text.data, lines[i]));
    }
    assert_null(strstr(text.data, "overwrite"));
    assert_null(strstr(text.data, "gpus"));
    lvni_core_str_free(&text);
}

/* Neither written nor taken from what an early version wrote, but as free as any key elsewhere. */
TEST(layout_is_not_saved)
{
    lvni_core_str text = {0};
    assert_int_equal(yaml("lanes: 3\n"), LVN_OK);
    assert_int_equal(lvni_core_config_int(config, "lanes"), 3);
    assert_int_equal(lvni_core_config_write_yaml(config, &text), LVN_OK);
    assert_int_equal(lvni_core_config_to_json(config, &text), LVN_OK);
    assert_null(strstr(text.data, "lanes"));
    lvni_core_str_free(&text);
    lvni_core_config *other;
    assert_int_equal(make_config(&other), LVN_OK);
    assert_int_equal(
        lvni_core_config_load_yaml(other, LVNI_LAYER_SAVED, "saved", "lanes: 7\nseed: 5\n", 16),
        LVN_OK);
    assert_int_equal(lvni_core_config_int(other, "lanes"), 1);
    assert_int_equal(lvni_core_config_int(other, "seed"), 5);
    lvni_core_config_destroy(other);
}

TEST(the_json_is_json)
{
    fill();
    lvni_core_str text = {0};
    assert_int_equal(lvni_core_config_to_json(config, &text), LVN_OK);
    json_t *json = json_loads(text.data, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_object_get(json, "batch_size")), 12);
    assert_true(json_real_value(json_object_get(json, "optim.lr")) == 0.30000000000000004);
    assert_int_equal(json_array_size(json_object_get(json, "names")), 8);
    assert_string_equal(json_string_value(json_object_get(json, "title")),
                        lvni_core_config_str(config, "title"));
    json_decref(json);
    lvni_core_str_free(&text);
}

/* ---- tables ---- */

TEST(mistakes_in_tables_are_found)
{
    static const lvni_core_option twice[] = {{.name = "a", .type = LVNI_OPT_INT},
                                             {.name = "a", .type = LVNI_OPT_INT}};
    static const lvni_core_option lost[] = {LVNI_OPTION_ALIAS("b", "nothing")};
    static const lvni_core_option unfit[] = {
        {.name = "c", .type = LVNI_OPT_INT, .fallback = "1.5"}};
    static const lvni_core_option empty[] = {{.name = "d", .type = LVNI_OPT_CHOICE}};
    const lvni_core_option_table tables[] = {
        LVNI_OPTION_TABLE("t", twice), LVNI_OPTION_TABLE("t", lost), LVNI_OPTION_TABLE("t", unfit),
        LVNI_OPTION_TABLE("t", empty)};
    for (int i = 0; i < 4; i++) {
        lvni_core_config *none = NULL;
        const lvni_core_option_table *const keys[] = {&tables[i], NULL};
        assert_int_equal(lvni_core_config_create(keys, &none), LVN_ERR_INTERNAL);
        assert_null(none);
    }
}

TEST(the_help_shows_every_row)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    lvni_core_config *job = NULL;
    assert_int_equal(lvni_core_config_create(test_keys, &job), LVN_OK);
    assert_int_equal(lvni_core_config_load_job(job, "optim=adamw"), LVN_OK);
    lvni_core_option_print_help(test_keys, NULL, out);
    lvni_core_option_print_help(test_keys, job, out);
    lvni_core_config_destroy(job);
    fclose(out);
    assert_non_null(strstr(text, "  batch_size                 whole number, samples, default 128\n"
                                 "      Samples of one step over all devices.\n"));
    assert_non_null(
        strstr(text, "\noptimizer\n  optim.name                 sgd|adamw, default sgd\n      "
                     "The optimizer.  Also: optim.\n"));
    assert_non_null(strstr(text, "  optim.name                 sgd|adamw, default adamw\n"));
    assert_null(strstr(text, "\n  gpus"));
    free(text);
}

TEST(distances)
{
    assert_int_equal(lvni_core_edit_distance("", "abc"), 3);
    assert_int_equal(lvni_core_edit_distance("batch", "batch"), 0);
    assert_int_equal(lvni_core_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(lvni_core_edit_distance("epohcs", "epochs"), 1); /* neighbours swapped */
    assert_int_equal(lvni_core_edit_distance("LR", "lr"), 0);
    char a[200];
    memset(a, 'a', sizeof a - 1);
    a[199] = '\0';
    assert_int_equal(lvni_core_edit_distance(a, "b"), 63); /* only the beginning counts */
}
