/* The configuration's parsers under arbitrary bytes, and with every allocation failing once. */
#include "config_rows.h"
#include "core/alloc.h"
#include "core/config_impl.h"
#include "core/rng.h"
#include "support/test.h"

#include <stdlib.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static const char *const seeds[] = {
    "optim:\n  name: adamw\n  lr: 1e-3\n  betas: [0.9, 0.99]\nmilestones:\n  - 1\n  - 2\ntitle: "
    "\"a\\\"b\\u00e4\"\nnames: ['x, y', z]\n",
    "{\"optim\": {\"lr\": 0.5}, \"names\": [\"x\", \"y\"], \"title\": null, \"val_split\": 1e-2}",
    "---\ntitle: |\n  many\n  lines\ndata: &a /x\ndata.count: *a\n...\n? seed\n: !!int 3\n<<: {a: "
    "b}\n",
    "views: &v {a: [1, {b: 2.5e0}], c: ~}\nother: [*v, '${x}']\ndata: /a\ntitle: ${data}/${seed}\n"
    "optim: &o {lr: 0.5}\n<<: [{seed: 7}, {<<: {drop_last: yes}}]\n",
};
static const char *const jobs[] = {
    "max_epochs=20 batch_size=256 optim=adamw names=[a, 'b c', \"d\\\"\"] --overwrite ~seed "
    "--optim.lr 3 "
    "+val_split=.5",
    "title='a long text with [brackets], \"quotes\", back\\slashes and = signs, so that most "
    "changes do no "
    "harm to it'",
    "names=[one word, 'two, words', \"three \\\" words\", four, five, six, seven, eight, nine, "
    "ten, "
    "'eleven', twelve, a:b]",
};

static uint32_t next_random(void)
{
    static uint64_t element;
    static const lvni_core_rng rng = {.key = {{1, 2}}};
    return lvni_core_rng_u32(&rng, element++);
}

/* Changes, deletes, doubles or cuts a few places. */
static size_t mutate(char *text, size_t n, size_t room)
{
    static const char special[] = "[]{}:,'\"\\|>&*!?-#%@`~=\n\t \0\xff\xc3";
    const uint32_t changes = 1 + next_random() % 4;
    for (uint32_t i = 0; i < changes && n > 2; i++) {
        const size_t at = next_random() % n;
        const size_t length = 1 + next_random() % (n - at < 9 ? n - at : 9);
        switch (next_random() % 5) {
        case 0: text[at] = (char)(next_random() & 0xFF); break;
        case 1: text[at] = special[next_random() % (sizeof special - 1)]; break;
        case 2:
            memmove(text + at, text + at + length, n - at - length);
            n -= length;
            break;
        case 3:
            if (n + length < room) {
                memmove(text + at + length, text + at, n - at);
                n += length;
            }
            break;
        default: n = n > 20 && next_random() % 8 == 0 ? at : n; break;
        }
    }
    return n;
}

/* What was accepted must survive being written and read again. */
static void check_round_trip(const lvni_core_config *config)
{
    lvni_core_str text = {0};
    lvni_core_str twice = {0};
    lvni_core_config *again = NULL;
    assert_int_equal(lvni_core_config_write_yaml(config, &text), LVN_OK);
    assert_int_equal(make_config(&again), LVN_OK);
    if (lvni_core_config_load_yaml(again, LVNI_LAYER_SAVED, "saved", text.data, text.len) !=
        LVN_OK) {
        fail_msg("%s in\n%s", lvn_last_error()->message, text.data);
    }
    assert_int_equal(lvni_core_config_write_yaml(again, &twice), LVN_OK);
    assert_string_equal(text.data, twice.data);
    lvni_core_config_destroy(again);
    lvni_core_str_free(&text);
    lvni_core_str_free(&twice);
}

TEST(mutated_yaml_never_breaks_the_reader)
{
    enum { ROOM = 1024, ROUNDS = 3000 };
    int accepted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const char *seed = seeds[i % 3];
        char *text = malloc(ROOM); /* a block of its own, so that reading past the end shows */
        assert_non_null(text);
        size_t n = strlen(seed);
        memcpy(text, seed, n);
        n = mutate(text, n, ROOM);
        char *exact = malloc(n > 0 ? n : 1);
        assert_non_null(exact);
        memcpy(exact, text, n);
        lvni_core_config *config = NULL;
        assert_int_equal(make_config(&config), LVN_OK);
        const lvn_status status =
            lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "m.yml", exact, n);
        assert_true(status == LVN_OK || status == LVN_ERR_USAGE);
        if (status == LVN_OK) {
            accepted++;
            check_round_trip(config);
        } else {
            assert_non_null(strstr(lvn_last_error()->message, "m.yml"));
        }
        lvni_core_config_destroy(config);
        free(exact);
        free(text);
    }
    /* the mutations are neither harmless nor all deadly */
    assert_true(accepted > 100 && accepted < ROUNDS);
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, 0);
}

TEST(mutated_arguments_never_break_the_parser)
{
    enum { ROOM = 1024, ROUNDS = 3000 };
    int accepted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char text[ROOM];
        size_t n = strlen(jobs[i % 3]);
        memcpy(text, jobs[i % 3], n);
        n = mutate(text, n, ROOM - 1);
        text[n] = '\0';
        lvni_core_config *config = NULL;
        assert_int_equal(make_config(&config), LVN_OK);
        const lvn_status status = lvni_core_config_load_job(config, text);
        assert_true(status == LVN_OK || status == LVN_ERR_USAGE);
        if (status == LVN_OK) {
            accepted++;
            check_round_trip(config);
        }
        lvni_core_config_destroy(config);
    }
    assert_true(accepted > 100 && accepted < ROUNDS);
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, 0);
}

/* Names of files are any bytes but zero: control characters, other encodings, what looks like an
 * escape. They are saved as they are from every directory. */
TEST(any_path_comes_back)
{
    static const char letters[] = "\\\\xx5ce9\xe9\xff\x1b\n\r\t \"'#:{}[],&*%\xc2\x85\xe2\x80\xa8"
                                  "a/";
    for (int i = 0; i < 4000; i++) {
        char path[16];
        const size_t n = 1 + next_random() % (sizeof path - 1);
        for (size_t k = 0; k < n; k++) {
            path[k] = letters[next_random() % (sizeof letters - 1)];
        }
        path[0] = '/'; /* others are written from the root on */
        path[n < sizeof path ? n : sizeof path - 1] = '\0';
        if (path[strspn(path, " \t\r\n")] == '\0') {
            continue; /* refused as empty */
        }
        lvni_core_config *config = NULL, *again = NULL;
        assert_int_equal(make_config(&config), LVN_OK);
        assert_int_equal(
            lvni_core_config_assign(config, &(lvni_core_assignment){.key = "data",
                                                                    .text = path,
                                                                    .quoted = true,
                                                                    .layer = LVNI_LAYER_ARGUMENTS,
                                                                    .origin = "test"}),
            LVN_OK);
        lvni_core_str text = {0};
        assert_int_equal(
            (i % 2 == 0 ? lvni_core_config_write_yaml : lvni_core_config_to_json)(config, &text),
            LVN_OK);
        assert_true(lvni_core_utf8_valid(text.data));
        assert_int_equal(make_config(&again), LVN_OK);
        assert_int_equal(
            lvni_core_config_load_yaml(again, LVNI_LAYER_SAVED, "saved", text.data, text.len),
            LVN_OK);
        char whole[PATH_MAX + 32], here[PATH_MAX];
        assert_non_null(getcwd(here, sizeof here));
        snprintf(whole, sizeof whole, "%s/%s", here, path);
        assert_string_equal(lvni_core_config_str(again, "data"), path[0] == '/' ? path : whole);
        lvni_core_config_destroy(config);
        lvni_core_config_destroy(again);
        lvni_core_str_free(&text);
    }
}

/* Everything a start does with its configuration. */
static lvn_status load_and_write(lvni_core_config *config, lvni_core_str *yaml, lvni_core_str *json)
{
    static const char *const words[] = {"seed=3", "names=['a',b]", "optim.betas=[0.5,0.6]",
                                        "~title"};
    static const char file[] = "optim:\n  lr: 0.5\nmilestones: [1, 2]\ntitle: \"x\"\n";
    LVN_TRY(lvni_core_config_load_job(config, "max_epochs=20 optim=adamw num_nodes=1 data='a b'"));
    LVN_TRY(lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "f.yml", file, sizeof file - 1));
    LVN_TRY(lvni_core_config_load_arguments(config, 4, words));
    LVN_TRY(lvni_core_config_finish(config));
    LVN_TRY(lvni_core_config_set(config, "num_workers", "2", "resolved"));
    LVN_TRY(lvni_core_config_write_yaml(config, yaml));
    return lvni_core_config_to_json(config, json);
}

static lvn_status whole_start(lvni_core_str *yaml, lvni_core_str *json)
{
    lvni_core_config *config = NULL;
    LVN_TRY(make_config(&config));
    const lvn_status status = load_and_write(config, yaml, json);
    lvni_core_config_destroy(config);
    return status;
}

TEST(every_allocation_may_fail)
{
    int64_t k = 1;
    for (lvn_status status = LVN_ERR_MEMORY; status == LVN_ERR_MEMORY && k < 5000; k++) {
        lvni_core_str yaml = {0};
        lvni_core_str json = {0};
        lvni_core_alloc_fail_at(k);
        status = whole_start(&yaml, &json);
        lvni_core_alloc_fail_at(0);
        if (status != LVN_OK && status != LVN_ERR_MEMORY) {
            fail_msg("%s at allocation %d", lvn_last_error()->message, (int)k);
        }
        assert_true(status == LVN_OK || lvn_last_error()->code == LVN_ERR_MEMORY);
        lvni_core_str_free(&yaml);
        lvni_core_str_free(&json);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, 0);
    }
    assert_true(k > 100 && k < 5000);
}

/* Also where the text is wrong: the message itself needs memory. */
TEST(a_wrong_value_with_failing_memory)
{
    lvn_status status = LVN_ERR_MEMORY;
    for (int64_t k = 1; status == LVN_ERR_MEMORY && k < 100; k++) {
        static const char *const words[] = {"optim.betas=[0.5,'q']"};
        lvni_core_config *config = NULL;
        assert_int_equal(make_config(&config), LVN_OK);
        lvni_core_alloc_fail_at(k);
        status = lvni_core_config_load_arguments(config, 1, words);
        lvni_core_alloc_fail_at(0);
        lvni_core_config_destroy(config);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, 0);
    }
    assert_int_equal(status, LVN_ERR_USAGE);
}
