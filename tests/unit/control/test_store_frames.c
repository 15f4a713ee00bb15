/* What travels: frames in pieces, bodies there and back, proofs; garbage at a store; memory that
 * runs out anywhere. */
#include "control_support.h"

#include "control/message.h"
#include "core/alloc.h"
#include "core/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TEST(frames_survive_any_cut)
{
    lvni_core_str s = {0};
    for (size_t n = 0; n < 40; n++) {
        const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_SET);
        for (size_t i = 0; i < n; i++) {
            lvni_core_str_char(&s, (char)(n + i));
        }
        lvni_control_frame_end(&s, at);
    }
    for (size_t piece = 1; piece < 50; piece++) {
        lvni_control_frame_reader in = {.limit = 39};
        size_t seen = 0;
        for (size_t at = 0; at < s.len; at += piece) {
            assert_int_equal(
                lvni_control_frame_push(&in, s.data + at, s.len - at < piece ? s.len - at : piece),
                LVN_OK);
            bool have = true;
            while (have) {
                lvni_control_frame f = {0};
                assert_int_equal(lvni_control_frame_next(&in, &f, &have), LVN_OK);
                if (have) {
                    assert_int_equal(f.type, LVNI_FRAME_SET);
                    assert_int_equal(f.n, seen);
                    for (size_t i = 0; i < f.n; i++) {
                        assert_int_equal(f.body[i], seen + i);
                    }
                    seen++;
                }
            }
        }
        assert_int_equal(seen, 40);
        lvni_control_frame_reader_free(&in);
    }
    lvni_core_str_free(&s);
}

TEST(what_is_no_frame_is_refused)
{
    static const unsigned char heads[][8] = {
        {41, 0, 0, 0, 6, 0, 0, 0},               /* too long */
        {0xff, 0xff, 0xff, 0xff, 6, 0, 0, 0},    /* far too long: nothing of it is allocated */
        {1, 0, 0, 0, 0, 0, 0, 0},                /* no type */
        {1, 0, 0, 0, LVNI_FRAME_COUNT, 0, 0, 0}, /* beyond the types */
        {1, 0, 0, 0, 6, 0, 1, 0},                /* not zero */
        {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T'},
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        lvni_control_frame_reader in = {.limit = 40};
        lvni_control_frame f;
        bool have = true;
        assert_int_equal(lvni_control_frame_push(&in, heads[i], 8), LVN_OK);
        assert_int_equal(lvni_control_frame_next(&in, &f, &have), LVN_ERR_CORRUPT);
        assert_false(have);
        assert_true(in.room <= 256);
        lvni_control_frame_reader_free(&in);
    }
}

/* The first vectors of the reference (key 00 01 .. 0f; messages "", 00, 00 01, ...), and one that
 * fills whole words. */
TEST(siphash_is_that_of_the_paper)
{
    static const struct {
        size_t n;
        unsigned char hash[16];
    } known[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
          0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc,
          0x45}},
        {2,
         {0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a, 0xff,
          0xe4}},
    };
    lvni_control_token key;
    unsigned char message[16];
    for (size_t i = 0; i < 16; i++) {
        key.b[i] = message[i] = (unsigned char)i;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const lvni_control_token hash = lvni_control_siphash(&key, message, known[i].n);
        assert_memory_equal(hash.b, known[i].hash, 16);
    }
}

TEST(keys_depend_on_every_part)
{
    static const char *const parts[][3] = {{"a", "b", "c"},  {"ab", "", "c"},  {"a", "bc", ""},
                                           {"a", "b", NULL}, {"a", NULL, "c"}, {NULL, "b", "c"}};
    lvni_control_token keys[6];
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(
            lvni_control_token_of_run(NULL, parts[i][0], parts[i][1], parts[i][2], &keys[i]),
            LVN_OK);
        for (size_t j = 0; j < i; j++) {
            assert_false(lvni_control_token_equal(&keys[i], &keys[j]));
        }
    }
    lvni_control_token again;
    assert_int_equal(lvni_control_token_of_run(NULL, "a", "b", "", &again),
                     LVN_OK); /* no secret and an empty one are the same */
    assert_true(lvni_control_token_equal(&again, &keys[3]));
}

/* One frame out of a string of bytes, which stays its owner. */
static lvni_control_frame frame_of(const lvni_core_str *s)
{
    return (lvni_control_frame){.type = (lvni_control_frame_type)s->data[4],
                                .body = (const unsigned char *)s->data + LVNI_FRAME_HEAD,
                                .n = s->len - LVNI_FRAME_HEAD};
}

TEST(bodies_come_back)
{
    lvni_core_str s = {0};
    const lvni_control_cause cause = {.kind = LVNI_CAUSE_NAN,
                                      .rank = 3,
                                      .step = -1,
                                      .pid = 1LL << 40,
                                      .time_ns = UINT64_MAX - 1,
                                      .named = true,
                                      .ended = true,
                                      .host = "n08",
                                      .place = "step 5, micro-batch 1",
                                      .message = "several\nlines"};
    lvni_control_cause back;
    memset(&back, 0xff, sizeof back);
    lvni_control_put_cause(&s, LVNI_FRAME_FAIL, &cause);
    lvni_control_frame f = frame_of(&s);
    assert_true(lvni_control_scan_cause(&f, &back));
    assert_int_equal(back.kind, cause.kind);
    assert_int_equal(back.rank, 3);
    assert_int_equal(back.step, -1);
    assert_true(back.pid == cause.pid && back.time_ns == cause.time_ns);
    assert_string_equal(back.host, cause.host);
    assert_true(back.named && back.ended);
    assert_string_equal(back.place, cause.place);
    assert_string_equal(back.message, cause.message);
    for (f.n = 0; f.n < s.len - LVNI_FRAME_HEAD; f.n++) { /* none of its beginnings is one */
        assert_false(lvni_control_scan_cause(&f, &back));
    }
    lvni_core_str_clear(&s);
    const lvni_control_facts facts = {.local_rank = -1,
                                      .node_rank = 2,
                                      .host = "h",
                                      .boot_id = "",
                                      .version = "0.1.0",
                                      .device = "GPU-1",
                                      .driver = "cuda",
                                      .cpus = 8,
                                      .pid = 77,
                                      .resume_step = 5,
                                      .config = "a: 1\n"};
    lvni_control_facts_message seen;
    lvni_control_put_facts(&s, &facts);
    lvni_control_scan scan = {.at = (const unsigned char *)s.data, .left = s.len};
    assert_true(lvni_control_scan_facts(&scan, &seen));
    assert_int_equal(seen.facts.local_rank, -1);
    assert_int_equal(seen.facts.node_rank, 2);
    assert_int_equal(seen.facts.pid, 77);
    assert_int_equal(seen.facts.resume_step, 5);
    assert_string_equal(seen.facts.device, "GPU-1");
    assert_string_equal(seen.facts.fingerprint, "");
    assert_string_equal(seen.facts.config, "a: 1\n");
    for (size_t n = 0; n < s.len; n++) {
        scan = (lvni_control_scan){.at = (const unsigned char *)s.data, .left = n};
        assert_false(lvni_control_scan_facts(&scan, &seen));
    }
    lvni_core_str_free(&s);
}

TEST(damaged_tables_are_refused)
{
    lvni_control_member rows[3], *back = NULL;
    lvni_core_str s = {0};
    for (int r = 0; r < 3; r++) {
        rows[r] = (lvni_control_member){.rank = r,
                                        .local_world = 3,
                                        .local_rank = r,
                                        .host = "n08",
                                        .boot_id = "b",
                                        .device = r == 1 ? "GPU-1" : "",
                                        .fingerprint = "n08"};
    }
    assert_int_equal(lvni_control_put_table(&s, rows, 3), LVN_OK);
    assert_int_equal(lvni_control_scan_table(s.data, s.len, 3, &back), LVN_OK);
    if (back == NULL) {
        fail();
        return;
    }
    assert_string_equal(back[1].device, "GPU-1");
    assert_string_equal(back[2].fingerprint, "n08");
    assert_string_equal(back[0].driver, "");
    lvni_core_free(back);
    /* of another world */
    assert_int_equal(lvni_control_scan_table(s.data, s.len, 4, &back), LVN_ERR_CORRUPT);
    for (size_t n = 0; n < s.len; n++) {
        assert_int_equal(lvni_control_scan_table(s.data, n, 3, &back), LVN_ERR_CORRUPT);
        assert_null(back);
    }
    s.data[s.len - 1] = 1; /* a text that is not there */
    assert_int_equal(lvni_control_scan_table(s.data, s.len, 3, &back), LVN_ERR_CORRUPT);
    lvni_core_str_free(&s);
}

/* ---- Garbage at a store ---- */

TEST(garbage_never_harms_the_others)
{
    group g;
    group_init(&g, 2);
    g.keep = true;
    g.store_options.greeting_timeout_s = 1; /* for the two ranks, too */
    group_run(&g);
    uint64_t random = 88172645463325252U; /* xorshift: the same garbage every time */
    int fds[40];
    for (size_t i = 0; i < 40; i++) {
        unsigned char bytes[300];
        for (size_t j = 0; j < sizeof bytes; j++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[j] = (unsigned char)random;
        }
        if (i % 2 == 0) { /* the head of a greeting that never ends, or ends in garbage */
            static const unsigned char head[8] = {200, 0, 0, 0, LVNI_FRAME_GREET, 0, 0, 0};
            memcpy(bytes, head, sizeof head);
        }
        fds[i] = raw_connect(g.port);
        assert_true(send(fds[i], bytes, 1 + i * 7, MSG_NOSIGNAL) > 0);
    }
    for (size_t i = 0; i < 40; i++) {
        char bytes[256];
        ssize_t n = 1;
        while (n > 0) {
            n = recv(fds[i], bytes, sizeof bytes, 0);
        }
        close(fds[i]);
    }
    assert_int_equal(lvni_control_set(g.ranks[1].control, "k", "v", 1), LVN_OK);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(lvni_control_leave(g.ranks[r].control), LVN_OK);
        assert_int_equal(g.ranks[r].aborts, 0);
    }
    group_end(&g);
}

/* ---- Memory ---- */

typedef struct taken {
    char *bytes;
    lvni_control_bytes *all;
} taken;

static lvn_status use_all(lvni_control *c, taken *out)
{
    lvni_control_facts facts;
    lvni_control_facts_room room;
    size_t n = 0;
    int64_t value = 0;
    lvni_control_facts_init(&facts, &room);
    facts.config = "lr: 0.1\n";
    LVN_TRY(lvni_control_rendezvous(c, &facts));
    LVN_TRY(lvni_control_set(c, "k", "v", 1));
    LVN_TRY(lvni_control_get(c, "k", 1, &out->bytes, &n));
    LVN_TRY(lvni_control_add(c, "n", 1, &value));
    LVN_TRY(lvni_control_gather(c, "g", "v", 1, 1, &out->all));
    return lvni_control_leave(c);
}

static lvn_status session(lvni_control_store_options *so, lvni_control_options *co)
{
    lvni_control_store *store = NULL;
    lvni_control *c = NULL;
    taken got = {0};
    LVN_TRY(lvni_control_store_create(so, &store));
    const int port = lvni_control_store_port(store);
    co->ports = &port;
    lvn_status status = lvni_control_connect(co, &c);
    if (status == LVN_OK) {
        status = use_all(c, &got);
    }
    lvni_core_free(got.bytes);
    lvni_core_free(got.all);
    lvni_control_destroy(c);
    lvni_control_store_destroy(store);
    co->ports = NULL;
    return status;
}

TEST(every_allocation_may_fail)
{
    static const int any = 0;
    lvni_control_store_options so;
    lvni_control_options co;
    lvni_control_store_options_init(&so);
    lvni_control_options_init(&co);
    so.address = "127.0.0.1";
    so.ports = &any;
    so.n_ports = 1;
    so.heartbeat_s = 0.02; /* it tries again soon to take a connection in */
    co.n_ports = 1;
    co.rdzv_timeout_s = 5;
    co.greeting_timeout_s = 0.1;
    int failed = 0;
    for (int64_t k = 1; k < 1000; k++) {
        lvni_core_alloc_fail_at(k);
        const lvn_status status = session(&so, &co);
        const bool hit = lvni_core_alloc_fail_at(0) == 0;
        failed += status != LVN_OK;
        assert_true(status == LVN_OK || lvn_last_error()->message[0] != '\0');
        assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_CONTROL).live_bytes, 0);
        assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_CORE).live_bytes, 0);
        if (!hit) {
            assert_int_equal(status, LVN_OK);
            assert_true(k > 20 && failed > 20);
            return;
        }
    }
    fail(); /* a session does not allocate a thousand times */
}
