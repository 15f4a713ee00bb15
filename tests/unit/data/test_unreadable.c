/* Samples that could not be read: counted once, in the order of samples, whatever rank noted them;
 * one too many changes nothing; lines for a checkpoint are read back, and nothing else is. */
#include "data/unreadable.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { N = 1000 };

static int64_t set_length(const lvn_dataset *d)
{
    return d->n_classes; /* the test's own use of it */
}

static const lvn_dataset_class set_class = {.name = "set", .length = set_length};
static lvn_dataset set = {.cls = &set_class, .n_classes = N},
                   clips = {.cls = &set_class, .n_classes = LVN_ENDLESS};
static const lvn_stream stream = {.name = "clips", .dataset = &clips};

static lvni_data_unreadable *make(int64_t limit)
{
    lvni_data_unreadable *u;
    const lvni_data_unreadable_options o = {
        .dataset = &set, .stream = &stream, .n_streams = 1, .what = "training", .limit = limit};
    assert_int_equal(lvni_data_unreadable_create(&o, &u), LVN_OK);
    return u;
}

static void note(lvni_data_unreadable *u, int64_t at, int source, int64_t position)
{
    char why[64];
    snprintf(why, sizeof why, "%d/%lld.jpg: cut\nshort", source, (long long)position);
    const lvni_data_unreadable_sample s = {
        .at = at, .position = position, .source = source, .status = LVN_ERR_CORRUPT, .why = why};
    assert_int_equal(lvni_data_unreadable_note(u, &s), LVN_OK);
}

/* What all of `n` have noted counts on all of them. */
static lvn_status settle(lvni_data_unreadable *const *u, int n, int64_t step, size_t *at)
{
    lvni_core_str all = {0};
    lvn_status s = LVN_OK;
    for (int i = 0; i < n; i++) {
        lvni_data_unreadable_pack(u[i], &all);
    }
    for (int i = 0; i < n; i++) {
        size_t where;
        const lvn_status now = lvni_data_unreadable_settle(u[i], lvni_core_str_text(&all), all.len,
                                                           step, i == 0 ? at : &where);
        assert_int_equal(i == 0 ? now : s, now);
        s = now;
        assert_int_equal(lvni_data_unreadable_noted(u[i]), 0);
    }
    lvni_core_str_free(&all);
    return s;
}

static void assert_report(lvni_data_unreadable *u, const char *want)
{
    lvni_core_str text = {0};
    assert_true(lvni_data_unreadable_report(u, &text) == (want[0] != '\0'));
    assert_string_equal(lvni_core_str_text(&text), want);
    lvni_core_str_free(&text);
}

TEST(ranks_count_alike_and_once)
{
    size_t at;
    lvni_data_unreadable *u[2] = {make(-1), make(-1)};
    note(u[0], 2, 0, 30); /* chunks in turn: of rank 0 the third and the fifth, of rank 1 ... */
    note(u[0], 4, 0, 50);
    note(u[1], 1, 0, 70);
    note(u[1], 1, 1, 5);
    note(u[1], 3, 0, 30); /* also rank 0's */
    assert_int_equal(settle(u, 2, 0, &at), LVN_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lvni_data_unreadable_count(u[i]), 3);
        assert_report(
            u[i],
            "3 unreadable training samples left out (on_error=skip): 0/70.jpg: cut\\x0ashort; "
            "0/30.jpg: cut\\x0ashort; 0/50.jpg: cut\\x0ashort; 1 unreadable training sample of the "
            "stream clips left out (on_error=skip): 1/5.jpg: cut\\x0ashort");
        assert_report(u[i], "");
    }
    note(u[0], 0, 0, 70); /* known, though rank 1 found it */
    assert_int_equal(lvni_data_unreadable_noted(u[0]), 0);
    note(u[0], 0, 0, 71);
    assert_int_equal(settle(u, 2, 1, &at), LVN_OK);
    assert_report(u[1], "1 more unreadable training sample left out (on_error=skip), 4 in all: "
                        "0/71.jpg: cut\\x0ashort");
    for (int i = 0; i < 2; i++) {
        lvni_data_unreadable_destroy(u[i]);
    }
}

TEST(one_too_many_changes_nothing)
{
    size_t at;
    lvni_data_unreadable *u[2] = {make(7), make(7)};
    for (int i = 0; i < 6; i++) {
        note(u[i % 2], i, 0, i);
    }
    assert_int_equal(settle(u, 2, 0, &at), LVN_OK);
    lvni_core_str before = {0}, after = {0};
    lvni_data_unreadable_print(u[0], INT64_MAX, &before);
    for (int i = 0; i < 6; i++) {
        note(u[i % 2], i, 0, 10 + i);
    }
    assert_int_equal(settle(u, 2, 1, &at), LVN_ERR_CORRUPT);
    assert_string_equal(lvn_last_error()->message,
                        "8 of 1000 training samples could not be read, and a run leaves out 7 at "
                        "most (on_error=skip: any number): 0/11.jpg: cut\\x0ashort; before it "
                        "0/0.jpg: cut\\x0ashort; 0/1.jpg: cut\\x0ashort; 0/2.jpg: "
                        "cut\\x0ashort; 0/3.jpg: cut\\x0ashort; 0/4.jpg: cut\\x0ashort; and 2 "
                        "more");
    assert_true(at > 0); /* of rank 1, which has the second half */
    lvni_data_unreadable_print(u[0], INT64_MAX, &after);
    assert_string_equal(lvni_core_str_text(&before), lvni_core_str_text(&after));
    note(u[0], 0, 0, 10); /* as if nothing had been */
    assert_int_equal(lvni_data_unreadable_noted(u[0]), 1);
    note(u[0], 0, 1, 10); /* each source has its own limit */
    assert_int_equal(settle(u, 1, 1, &at), LVN_OK);
    assert_int_equal(lvni_data_unreadable_count(u[0]), 7);
    for (int i = 0; i < 2; i++) {
        lvni_data_unreadable_destroy(u[i]);
    }
    lvni_core_str_free(&before);
    lvni_core_str_free(&after);
    lvn_clear_error();
}

TEST(a_dead_disk_is_not_a_flood_of_names)
{
    size_t at;
    lvni_data_unreadable *u = make(-1);
    for (int i = 0; i < N; i++) {
        note(u, i / 10, 0, N - 1 - i);
    }
    assert_int_equal(settle(&u, 1, 0, &at), LVN_OK);
    lvni_core_str text = {0};
    assert_true(lvni_data_unreadable_report(u, &text));
    assert_memory_equal(lvni_core_str_text(&text), "1000 unreadable training samples left out ",
                        42);
    assert_non_null(strstr(lvni_core_str_text(&text), "; 0/980.jpg: cut\\x0ashort; and 980 more"));
    lvni_core_str_free(&text);
    lvni_data_unreadable_print(u, INT64_MAX, &text);
    assert_memory_equal(lvni_core_str_text(&text),
                        "positions 0 0-999\nreason 0 999 0/999.jpg: ", 42);
    lvni_core_str_free(&text);
    lvni_data_unreadable_destroy(u);
}

TEST(lines_are_read_back)
{
    static const int64_t position[] = {9, 3, 4, 5, 700, 999, 0};
    size_t at;
    lvni_core_str text = {0}, again = {0};
    lvni_data_unreadable *u = make(7), *read = make(7);
    for (int i = 0; i < 7; i++) { /* a step each */
        note(u, 0, 0, position[i]);
        assert_int_equal(settle(&u, 1, i, &at), LVN_OK);
    }
    note(u, 0, 1, INT64_C(1) << 40);
    assert_int_equal(settle(&u, 1, 7, &at), LVN_OK);
    lvni_data_unreadable_print(u, 5, &text);
    assert_memory_equal(lvni_core_str_text(&text),
                        "positions 0 3-5,9,700\nreason 0 9 0/9.jpg: cut\\x0ashort\n", 53);
    lvni_core_str_free(&text);
    lvni_data_unreadable_print(u, 8, &text);
    assert_non_null(strstr(lvni_core_str_text(&text), "positions 0 0,3-5,9,700,999\n"));
    assert_non_null(strstr(lvni_core_str_text(&text), "count 1 1\n"));
    assert_int_equal(lvni_data_unreadable_read(read, lvni_core_str_text(&text)), LVN_OK);
    assert_report(read, "");
    lvni_data_unreadable_print(read, 0, &again);
    assert_string_equal(lvni_core_str_text(&text), lvni_core_str_text(&again));
    for (int i = 0; i < 7; i++) {
        note(read, 0, 0, position[i]);
    }
    assert_int_equal(lvni_data_unreadable_noted(read), 0);
    note(u, 0, 0, 8);
    note(read, 0, 0, 8);
    lvni_data_unreadable *both[2] = {u, read};
    assert_int_equal(settle(both, 2, 8, &at), LVN_ERR_CORRUPT); /* with the same message */
    assert_non_null(strstr(lvn_last_error()->message, "0/9.jpg: cut\\x0ashort; 0/3.jpg"));
    assert_int_equal(lvni_data_unreadable_read(read, ""), LVN_OK);
    assert_int_equal(lvni_data_unreadable_count(read), 0);
    lvni_core_str_free(&text);
    lvni_core_str_free(&again);
    lvni_data_unreadable_destroy(u);
    lvni_data_unreadable_destroy(read);
    lvn_clear_error();
}

TEST(other_text_is_refused)
{
    static const char *const bad[] = {
        "x",
        "positions",
        "positions 0",
        "positions 0 ",
        "positions 0 \n",
        "positions 0 3",
        "positions 0 3\nx",
        "positions 0 3,\n",
        "positions 0 ,3\n",
        "positions 0 3,3\n",
        "positions 0 3 4\n",
        "positions 0 -3\n",
        "positions 0 5-3\n",
        "positions 0 5-\n",
        "positions 0 5--7\n",
        "positions 0 1000\n",
        "positions 1 3\n",
        "count 0 3\n",
        "count 1 \n",
        "count 1 3,4\n",
        "count 1 3\ncount 1 3\n",
        "reason 0 3\n",
        "reason 0 3\t x\n",
        "positions 0 5-1000\n",
        "positions 0 99999999999999999999\n",
        "positions 2 3\n",
        "positions -1 3\n",
        "positions a 3\n",
        "reason 0 3",
        "reason 0 \n",
        "reason 0 a b\n",
        "reason 0 1 a\nreason 0 1 a\nreason 0 1 a\nreason 0 1 a\nreason 0 1 a\nreason 0 1 a\n",
    };
    lvni_data_unreadable *u = make(7);
    assert_int_equal(lvni_data_unreadable_read(u, "positions 0 7\nreason 0 7 a: b\n"), LVN_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (lvni_data_unreadable_read(u, bad[i]) != LVN_ERR_CORRUPT) {
            fail_msg("%s is read", bad[i]);
        }
        assert_int_equal(lvni_data_unreadable_count(u), 1); /* as before */
    }
    lvni_data_unreadable_destroy(u);
}

/* Without a bound a stream of days fills the header of its checkpoints. */
TEST(an_endless_stream_only_counts)
{
    size_t at;
    lvni_core_str text = {0};
    lvni_data_unreadable *u = make(-1);
    for (int i = 0; i < 3000; i++) {
        note(u, i, 1, 7 * (int64_t)i);
        note(u, i, 1, 7 * (int64_t)i + 3);
        assert_int_equal(settle(&u, 1, i, &at), LVN_OK);
    }
    lvni_data_unreadable_print(u, 2999, &text); /* without the last step */
    assert_memory_equal(lvni_core_str_text(&text), "count 1 5998\nreason 1 0 1/0.jpg: ", 32);
    assert_true(text.len < 300);
    assert_int_equal(lvni_data_unreadable_read(u, lvni_core_str_text(&text)), LVN_OK);
    note(u, 0, 1, 7);
    assert_int_equal(settle(&u, 1, 2999, &at), LVN_OK);
    assert_report(u, "1 more unreadable training sample of the stream clips left out "
                     "(on_error=skip), 5999 in all: 1/7.jpg: cut\\x0ashort");
    lvni_core_str_free(&text);
    lvni_data_unreadable_destroy(u);
}

TEST(positions_have_a_bound)
{
    enum { MANY = 400000 };
    size_t at;
    lvni_core_str text = {0};
    set.n_classes = MANY;
    lvni_data_unreadable *u = make(-1);
    for (int i = 0; i < MANY; i += 2) {
        note(u, 0, 0, i);
    }
    assert_int_equal(settle(&u, 1, 0, &at), LVN_OK);
    lvni_data_unreadable_print(u, 1, &text);
    assert_in_range(text.len, 1 << 20, (1 << 20) + 300);
    assert_int_equal(lvni_data_unreadable_read(u, lvni_core_str_text(&text)), LVN_OK);
    assert_in_range(lvni_data_unreadable_count(u), 150000, MANY / 2 - 1);
    note(u, 0, 0, MANY - 2); /* is found again */
    assert_int_equal(lvni_data_unreadable_noted(u), 1);
    lvni_core_str_free(&text);
    lvni_data_unreadable_destroy(u);
    set.n_classes = N;
}

/* One rank has all of them, or two have half of them each. */
TEST(reasons_do_not_depend_on_ranks)
{
    enum { LIMIT = 1500 };
    char message[2][sizeof lvn_last_error()->message];
    set.n_classes = 3 * LIMIT;
    for (int ranks = 1; ranks <= 2; ranks++) {
        size_t at;
        lvni_data_unreadable *u[2] = {make(LIMIT), make(LIMIT)};
        for (int i = 0; i <= LIMIT; i++) {
            note(u[i % ranks], i, 0, i);
        }
        assert_int_equal(settle(u, ranks, 0, &at), LVN_ERR_CORRUPT);
        snprintf(message[ranks - 1], sizeof *message, "%s", lvn_last_error()->message);
        lvni_data_unreadable_destroy(u[0]);
        lvni_data_unreadable_destroy(u[1]);
    }
    assert_non_null(strstr(message[0], "0/1500.jpg: cut"));
    assert_string_equal(message[0], message[1]);
    set.n_classes = N;
    lvn_clear_error();
}

TEST(packed_bytes_are_checked)
{
    size_t at;
    lvni_core_str packed = {0};
    lvni_data_unreadable *u = make(7);
    note(u, 0, 0, 3);
    note(u, 0, 0, 4);
    lvni_data_unreadable_pack(u, &packed);
    for (size_t n = 1; n < packed.len; n++) {
        const lvn_status s = lvni_data_unreadable_settle(u, lvni_core_str_text(&packed), n, 0, &at);
        if (s != (n == packed.len / 2 ? LVN_OK : LVN_ERR_CORRUPT)) {
            fail_msg("%zu of %zu bytes: %d", n, packed.len, (int)s);
        }
    }
    assert_int_equal(lvni_data_unreadable_count(u), 1); /* the half with one */
    lvni_core_str_free(&packed);
    lvni_data_unreadable_destroy(u);
    lvn_clear_error();
}
