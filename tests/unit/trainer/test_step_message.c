/* The messages of ranks about their micro-batches, as bytes: read back as written, in order, and
 * refused when it is anything else. */
#include "trainer/step_message.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

typedef struct parts {
    int n;
    lvni_trainer_message_part part[8];
    lvni_nn_step metrics[8];
} parts;

static lvn_status keep(void *user, const lvni_trainer_message_part *part,
                       const lvni_nn_step *metrics)
{
    parts *p = user;
    p->part[p->n] = *part;
    lvni_nn_step_copy(&p->metrics[p->n++], metrics);
    return LVN_OK;
}

static lvni_nn_step some_metrics(int n)
{
    lvni_nn_step s = {.weight = n + 0.5, .n_metrics = n};
    for (int i = 0; i < n; i++) {
        snprintf(s.metric[i].name, sizeof s.metric[i].name, "metric-%d", i);
        s.metric[i].sum = 0.1 * i;
        s.metric[i].weight = 3.0 + i;
    }
    return s;
}

TEST(reads_what_was_written)
{
    lvni_trainer_message m;
    assert_int_equal(lvni_trainer_message_create(&m, 1), LVN_OK); /* grows */
    lvni_trainer_message_begin(&m)->signal = 15;
    ((lvni_trainer_message_head *)(void *)m.data)->n_unreadable = 7;
    for (int i = 0; i < 4; i++) {
        const lvni_nn_step s = some_metrics(i * 5);
        assert_int_equal(lvni_trainer_message_add(&m, &s, 100 + i), LVN_OK);
    }
    parts got = {0};
    lvni_trainer_message_head head;
    assert_int_equal(lvni_trainer_message_read(m.data, m.size, &head, keep, &got), LVN_OK);
    assert_int_equal(head.signal, 15);
    assert_int_equal(head.n_unreadable, 7);
    assert_int_equal(got.n, 4);
    for (int i = 0; i < 4; i++) {
        const lvni_nn_step s = some_metrics(i * 5);
        assert_int_equal(got.part[i].samples, 100 + i);
        assert_true(got.part[i].weight >= s.weight && got.part[i].weight <= s.weight);
        assert_int_equal(got.metrics[i].n_metrics, s.n_metrics);
        assert_memory_equal(got.metrics[i].metric, s.metric,
                            (size_t)s.n_metrics * sizeof *s.metric);
    }
    lvni_trainer_message_begin(&m); /* the next step begins with nothing */
    got.n = 0;
    assert_int_equal(lvni_trainer_message_read(m.data, m.size, &head, keep, &got), LVN_OK);
    assert_int_equal(head.signal + head.n_parts + got.n, 0);
    lvni_trainer_message_free(&m);
}

TEST(refuses_every_cut)
{
    lvni_trainer_message m;
    assert_int_equal(lvni_trainer_message_create(&m, 2), LVN_OK);
    lvni_trainer_message_begin(&m);
    for (int i = 1; i < 3; i++) {
        const lvni_nn_step s = some_metrics(i);
        assert_int_equal(lvni_trainer_message_add(&m, &s, i), LVN_OK);
    }
    assert_true(m.size <= lvni_trainer_message_limit(2));
    for (size_t size = 0; size < m.size; size++) {
        parts got = {0};
        assert_int_equal(lvni_trainer_message_read(m.data, size, NULL, keep, &got),
                         LVN_ERR_CORRUPT);
    }
    lvni_trainer_message_part part; /* more metrics than there can be */
    memcpy(&part, m.data + sizeof(lvni_trainer_message_head), sizeof part);
    part.n_metrics = LVNI_METRICS + 1;
    memcpy(m.data + sizeof(lvni_trainer_message_head), &part, sizeof part);
    parts got = {0};
    assert_int_equal(lvni_trainer_message_read(m.data, m.size, NULL, keep, &got), LVN_ERR_CORRUPT);
    assert_int_equal(got.n, 0);
    lvni_trainer_message_free(&m);
}
