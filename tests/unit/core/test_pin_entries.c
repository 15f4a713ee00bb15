/* Pinned choices that backends record: what a key and a value may be, the first value stays, also
 * from several threads and where another rank was first, and text goes out as it came in. */
#include "core/alloc.h"
#include "core/pins.h"
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

TEST(the_first_value_stays)
{
    lvni_core_pin_entries *e;
    const char *first = NULL, *counts = NULL;
    assert_int_equal(lvni_core_pin_entries_create(&e), LVN_OK);
    assert_null(lvni_core_pin_entries_get(e, "sim.conv"));
    assert_int_equal(lvni_core_pin_entries_record(e, "sim.conv", "5", &first), LVN_OK);
    assert_string_equal(first, "5");
    assert_int_equal(lvni_core_pin_entries_record(e, "sim.conv", "6", &counts), LVN_OK);
    assert_ptr_equal(counts, first);
    assert_int_equal(lvni_core_pin_entries_record(e, "cuda.fft/3:x", "a-b+c", &counts), LVN_OK);
    assert_int_equal(lvni_core_pin_entries_record(e, "zz.last", "1", &counts), LVN_OK);
    assert_ptr_equal(lvni_core_pin_entries_get(e, "sim.conv"), first); /* nothing has moved */
    assert_int_equal(lvni_core_pin_entries_read(e, "sim.conv=5"), LVN_OK);
    assert_int_equal(lvni_core_pin_entries_read(e, "sim.conv=7"), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "pins: sim.conv is 5 and 7"));
    lvni_core_str text = {0};
    lvni_core_pin_entries_print(e, " ", &text);
    assert_string_equal(lvni_core_str_text(&text), "cuda.fft/3:x=a-b+c sim.conv=5 zz.last=1");
    lvni_core_str_free(&text);
    lvni_core_pin_entries_print(NULL, " ", &text);
    assert_int_equal(text.len, 0);
    lvni_core_pin_entries_destroy(e);
    lvni_core_pin_entries_destroy(NULL);
}

TEST(texts_are_checked)
{
    static const char *const bad[] = {"",        "sim.x",   "sim.x=",    "=5",          "sim=5",
                                      ".x=5",    "sim.=5",  "a b.c=5",   "a.b=5 6",     "a.b=[5]",
                                      "a.b=5,6", "a.b=c=d", "a.\"b\"=5", "a.b=\xc3\xa9"};
    char longest[2 * LVNI_PIN_TEXT + 2] = "a.", too_long[2 * LVNI_PIN_TEXT + 2];
    lvni_core_pin_entries *e;
    const char *counts = NULL;
    assert_int_equal(lvni_core_pin_entries_create(&e), LVN_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lvni_core_pin_entries_read(NULL, bad[i]), LVN_ERR_USAGE);
        assert_int_equal(lvni_core_pin_entries_read(e, bad[i]), LVN_ERR_USAGE);
    }
    assert_int_equal(lvni_core_pin_entries_record(e, "sim", "5", &counts), LVN_ERR_INVALID);
    assert_int_equal(lvni_core_pin_entries_record(e, "sim.x", "5 6", &counts), LVN_ERR_INVALID);
    memset(longest + 2, 'k', LVNI_PIN_TEXT - 3);
    longest[LVNI_PIN_TEXT - 1] = '\0';
    snprintf(too_long, sizeof too_long, "%sk=1", longest);
    assert_int_equal(lvni_core_pin_entries_read(e, too_long), LVN_ERR_USAGE);
    const size_t key = strlen(longest);
    longest[key] = '=';
    memset(longest + key + 1, 'v', LVNI_PIN_TEXT - 1);
    longest[key + LVNI_PIN_TEXT] = '\0';
    assert_int_equal(lvni_core_pin_entries_read(e, longest), LVN_OK);
    lvni_core_str text = {0};
    lvni_core_pin_entries_print(e, " ", &text);
    assert_string_equal(lvni_core_str_text(&text), longest); /* it alone is there */
    lvni_core_str_free(&text);
    lvni_core_pin_entries_destroy(e);
}

TEST(lists_are_read_back)
{
    static const char *const expected[] = {"a.b=1", "sim.conv=5", "z"};
    const char *text = "a.b=1  sim.conv=5 z ";
    char entry[2 * LVNI_PIN_TEXT];
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(lvni_core_pin_entries_next(&text, entry));
        assert_string_equal(entry, expected[i]);
    }
    assert_false(lvni_core_pin_entries_next(&text, entry));
    char hostile[3000];
    memset(hostile, 'x', sizeof hostile - 1);
    hostile[sizeof hostile - 1] = '\0';
    text = hostile;
    assert_true(lvni_core_pin_entries_next(&text, entry));
    assert_int_equal(strlen(entry), sizeof entry - 1);
    assert_string_equal(text, "");
}

/* ---- lanes and ranks ---- */

enum { THREADS = 4, KEYS = 50 };

typedef struct lane {
    pthread_t thread;
    lvni_core_pin_entries *entries;
    int number;
    const char *counts[KEYS];
    lvn_status status;
} lane;

static void *record_all(void *argument)
{
    lane *l = argument;
    char key[16], value[16];
    snprintf(value, sizeof value, "%d", l->number);
    for (int k = 0; k < KEYS; k++) {
        snprintf(key, sizeof key, "test.k%d", k);
        const lvn_status s = lvni_core_pin_entries_record(l->entries, key, value, &l->counts[k]);
        l->status = s != LVN_OK ? s : l->status;
    }
    return NULL;
}

TEST(all_lanes_get_one_value)
{
    lane lanes[THREADS] = {{0}};
    lvni_core_pin_entries *e;
    assert_int_equal(lvni_core_pin_entries_create(&e), LVN_OK);
    for (int i = 0; i < THREADS; i++) {
        lanes[i].entries = e;
        lanes[i].number = i;
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, record_all, &lanes[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
        assert_int_equal(lanes[i].status, LVN_OK);
        assert_memory_equal(lanes[i].counts, lanes[0].counts, sizeof lanes[0].counts);
    }
    lvni_core_pin_entries_destroy(e);
}

static lvn_status another_was_first(void *user, const char *key, const char *value,
                                    char counts[LVNI_PIN_TEXT])
{
    (*(int *)user)++;
    if (strcmp(key, "test.lost") == 0) {
        LVN_FAIL(LVN_ERR_PEER, "a rank is gone");
    }
    snprintf(counts, LVNI_PIN_TEXT, "%s-of-rank-0", value);
    return LVN_OK;
}

TEST(other_ranks_are_asked_once)
{
    int asked = 0;
    lvni_core_pin_entries *e;
    const char *counts = NULL;
    assert_int_equal(lvni_core_pin_entries_create(&e), LVN_OK);
    lvni_core_pin_entries_agree_by(e, another_was_first, &asked);
    assert_int_equal(lvni_core_pin_entries_read(e, "test.given=1"), LVN_OK);
    assert_int_equal(lvni_core_pin_entries_record(e, "test.given", "2", &counts), LVN_OK);
    assert_string_equal(counts, "1");
    assert_int_equal(asked, 0); /* all ranks have read the same */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lvni_core_pin_entries_record(e, "test.x", "3", &counts), LVN_OK);
        assert_string_equal(counts, "3-of-rank-0");
        assert_int_equal(asked, 1);
    }
    assert_int_equal(lvni_core_pin_entries_record(e, "test.lost", "3", &counts), LVN_ERR_PEER);
    assert_null(lvni_core_pin_entries_get(e, "test.lost"));
    lvni_core_pin_entries_destroy(e);
}

TEST(running_out_of_memory_is_an_error)
{
    lvni_core_pin_entries *e;
    const char *counts = NULL;
    lvni_core_alloc_fail_at(1);
    assert_int_equal(lvni_core_pin_entries_create(&e), LVN_ERR_MEMORY);
    lvni_core_alloc_fail_at(0);
    assert_int_equal(lvni_core_pin_entries_create(&e), LVN_OK);
    lvni_core_alloc_fail_at(1);
    assert_int_equal(lvni_core_pin_entries_record(e, "a.b", "1", &counts), LVN_ERR_MEMORY);
    lvni_core_alloc_fail_at(0);
    assert_int_equal(lvni_core_pin_entries_record(e, "a.b", "2", &counts), LVN_OK);
    assert_string_equal(counts, "2");
    lvni_core_pin_entries_destroy(e);
}
