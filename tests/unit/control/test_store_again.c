/* Greetings that come again: of an attempt that the same process gave up, and of what only looks
 * like one. And stores at one address alone, found through their file. */
#include "control_support.h"

#include "control/message.h"
#include "control/rdzv_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <unistd.h>

/* One end of a connection that the test writes itself, as rank 1 of 2. */
typedef struct raw_rank {
    int fd;
    lvni_control_frame_reader in;
} raw_rank;

/* The next frame except heartbeats. NONE: the store has closed, or sends nothing. */
static lvni_control_frame next_frame(raw_rank *r)
{
    lvni_control_frame frame = {.type = LVNI_FRAME_NONE};
    char bytes[2048];
    for (;;) {
        bool have = false;
        assert_int_equal(lvni_control_frame_next(&r->in, &frame, &have), LVN_OK);
        if (have && frame.type != LVNI_FRAME_BEAT) {
            return frame;
        }
        const ssize_t n = have ? 0 : recv(r->fd, bytes, sizeof bytes, 0);
        if (!have && n <= 0) {
            return (lvni_control_frame){.type = LVNI_FRAME_NONE};
        }
        assert_int_equal(lvni_control_frame_push(&r->in, bytes, (size_t)n), LVN_OK);
    }
}

static void send_all(const raw_rank *r, lvni_core_str *take)
{
    assert_int_equal(lvni_core_str_status(take), LVN_OK);
    assert_int_equal(send(r->fd, take->data, take->len, MSG_NOSIGNAL), (ssize_t)take->len);
    lvni_core_str_free(take);
}

/* Connects and greets; what the store answers to it. */
static lvni_control_frame greet_as(const group *g, uint64_t instance, raw_rank *out)
{
    lvni_control_token key, nonce = {{0}};
    lvni_control_auth how;
    lvni_core_str s = {0};
    *out = (raw_rank){.fd = raw_connect(lvni_control_store_port(g->store)),
                      .in = {.limit = LVNI_FRAME_MAX_GREETING}};
    const lvni_control_frame hello = next_frame(out);
    assert_true(lvni_control_scan_hello(&hello, &nonce, &how));
    assert_int_equal(lvni_control_token_of_run(NULL, "test", NULL, NULL, &key), LVN_OK);
    lvni_control_greet greet = {.protocol = LVNI_CONTROL_PROTOCOL,
                                .world = 2,
                                .rank = 1,
                                .instance = instance,
                                .pid = 4711,
                                .host = "n09",
                                .version = "0"};
    greet.proof = lvni_control_greet_proof(&key, &nonce, &greet, lvni_control_store_port(g->store));
    lvni_control_put_greet(&s, &greet);
    send_all(out, &s);
    return next_frame(out);
}

static void hang_up(raw_rank *r)
{
    close(r->fd);
    lvni_control_frame_reader_free(&r->in);
}

static void ask_for(const raw_rank *r, uint32_t id, const char *key)
{
    lvni_core_str s = {0};
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_GET);
    lvni_control_put_u32(&s, id);
    lvni_control_put_text(&s, key);
    lvni_control_put_u32(&s, 60000);
    lvni_control_frame_end(&s, at);
    send_all(r, &s);
}

static void set_key(const raw_rank *r, uint32_t id, const char *key)
{
    lvni_core_str s = {0};
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_SET);
    lvni_control_put_u32(&s, id);
    lvni_control_put_text(&s, key);
    lvni_control_put_bytes(&s, "v", 1);
    lvni_control_frame_end(&s, at);
    send_all(r, &s);
}

/* The id of the answer that comes next; its text must be that. */
static uint32_t answered(raw_rank *r, const char *text)
{
    const lvni_control_frame frame = next_frame(r);
    assert_int_equal(frame.type, LVNI_FRAME_REPLY);
    lvni_control_scan scan = lvni_control_scan_of(&frame);
    const uint32_t id = lvni_control_scan_u32(&scan);
    assert_int_equal(lvni_control_scan_status(&scan), LVN_OK);
    assert_int_equal(scan.left, strlen(text));
    assert_memory_equal(scan.at, text, strlen(text));
    return id;
}

TEST(an_attempt_that_was_given_up_is_replaced)
{
    group g;
    raw_rank first, second;
    group_init(&g, 2);
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(greet_as(&g, 9, &first).type, LVNI_FRAME_WELCOME);
    assert_int_equal(greet_as(&g, 9, &second).type, LVNI_FRAME_WELCOME);
    assert_int_equal(next_frame(&first).type, LVNI_FRAME_NONE);
    set_key(&second, 3, "k");
    assert_int_equal(answered(&second, ""), 3);
    hang_up(&first);
    hang_up(&second);
    group_end(&g);
}

/* A rank that has sent a request has read WELCOME, and does not greet again: its requests stay its
 * own. */
TEST(a_rank_at_work_is_not_replaced)
{
    group g;
    raw_rank first, second;
    group_init(&g, 2);
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(greet_as(&g, 9, &first).type, LVNI_FRAME_WELCOME);
    ask_for(&first, 3, "unset");
    set_key(&first, 4, "other");
    /* and so the store has read the question before it */
    assert_int_equal(answered(&first, ""), 4);
    const lvni_control_frame frame = greet_as(&g, 9, &second);
    assert_int_equal(frame.type, LVNI_FRAME_REFUSE);
    assert_non_null(memmem(frame.body, frame.n, "E115: rank 1 is there twice", 27));
    assert_int_equal(next_frame(&second).type, LVNI_FRAME_NONE);
    set_key(&first, 5, "unset");
    assert_int_equal(answered(&first, "v"), 3);
    assert_int_equal(answered(&first, ""), 5);
    hang_up(&first);
    hang_up(&second);
    group_end(&g);
}

TEST(a_rank_that_failed_does_not_come_again)
{
    group g;
    raw_rank first, second;
    lvni_core_str s = {0};
    const lvni_control_cause cause = {.kind = LVNI_CAUSE_NAN,
                                      .rank = 1,
                                      .step = 3,
                                      .host = "n09",
                                      .message = "the loss is not finite"};
    group_init(&g, 2);
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(greet_as(&g, 9, &first).type, LVNI_FRAME_WELCOME);
    lvni_control_put_cause(&s, LVNI_FRAME_FAIL, &cause);
    send_all(&first, &s);
    assert_int_equal(next_frame(&first).type, LVNI_FRAME_ABORT);
    assert_int_equal(greet_as(&g, 9, &second).type, LVNI_FRAME_REFUSE);
    hang_up(&first);
    hang_up(&second);
    group_end(&g);
}

/* A store that listens at a given address alone, not at 127.0.0.1: so a store in another container
 * of this host looks too, with the same boot id. */
TEST(the_file_names_the_address_that_was_given)
{
    char dir[] = "/tmp/levin-rdzv-XXXXXX";
    lvni_core_str path = {0};
    lvni_control_rdzv_where where;
    group g;
    assert_non_null(mkdtemp(dir));
    group_init(&g, 1);
    g.store_options.address = "127.0.0.2";
    g.store_options.rdzv_dir = dir;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(lvni_control_rdzv_file_path(dir, "test", NULL, NULL, 1, &path), LVN_OK);
    assert_true(lvni_control_rdzv_file_read(lvni_core_str_text(&path), &where));
    assert_int_equal(where.n, 1);
    assert_string_equal(where.address[0], "127.0.0.2");
    lvni_control_options o = g.options;
    o.world = 1;
    o.rdzv_dir = dir;
    o.rdzv_timeout_s = 5;
    assert_int_equal(lvni_control_connect(&o, &g.ranks[0].control), LVN_OK);
    assert_int_equal(lvni_control_rendezvous(g.ranks[0].control, &g.ranks[0].facts), LVN_OK);
    assert_int_equal(lvni_control_leave(g.ranks[0].control), LVN_OK);
    lvni_core_str_free(&path);
    group_end(&g);
    assert_int_equal(rmdir(dir), 0);
}

/* Ranks that find the store by its port read the key of the run in a file that the run's user alone
 * can read. */
TEST(a_key_in_a_file_lets_ranks_in)
{
    char dir[] = "/tmp/levin-rdzv-XXXXXX";
    char path[200];
    lvni_core_str s = {0};
    struct stat info;
    group g;
    assert_non_null(mkdtemp(dir));
    group_init(&g, 1);
    g.store_options.auth = LVNI_AUTH_FILE;
    g.store_options.key_dir = dir;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(lvni_control_rdzv_file_path(dir, "test", NULL, NULL, 1, &s), LVN_OK);
    snprintf(path, sizeof path, "%s", lvni_core_str_text(&s));
    lvni_core_str_free(&s);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    const int port = lvni_control_store_port(g.store);
    lvni_control_options o = g.options;
    o.world = 1;
    o.ports = &port;
    o.n_ports = 1;
    o.rdzv_timeout_s = 5;
    o.key_dir = dir;
    assert_int_equal(lvni_control_connect(&o, &g.ranks[0].control), LVN_OK);
    assert_int_equal(lvni_control_rendezvous(g.ranks[0].control, &g.ranks[0].facts), LVN_OK);
    assert_int_equal(lvni_control_leave(g.ranks[0].control), LVN_OK);
    group_end(&g);
    assert_int_equal(stat(path, &info), -1); /* gone with its store */
    assert_int_equal(rmdir(dir), 0);
}
