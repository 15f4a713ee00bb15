/* A store of 1,024 ranks. */
#include "control_support.h"

#include "core/alloc.h"
#include "support/many_ranks.h"

#include <unistd.h>

enum { WORLD = 1024, STRANGERS = 600 };

/* Among connections that stay and prove nothing. */
static void meet(int strangers)
{
    static const int any = 0;
    lvni_control_store_options o;
    lvni_control_store *store = NULL;
    many_ranks_times t;
    int fds[STRANGERS];
    if (many_ranks_allow(WORLD + strangers) != LVN_OK) {
        print_message("skipped: %s\n", lvn_last_error()->message);
        skip();
    }
    lvni_control_store_options_init(&o);
    o.address = "127.0.0.1";
    o.ports = &any;
    o.n_ports = 1;
    o.world = WORLD;
    o.job_key = "many";
    assert_int_equal(lvni_control_store_create(&o, &store), LVN_OK);
    for (int i = 0; i < strangers; i++) {
        fds[i] = raw_connect(lvni_control_store_port(store));
    }
    const lvn_status status = many_ranks_run(lvni_control_store_port(store), WORLD, &t);
    if (status != LVN_OK) {
        print_message("%s\n", lvn_last_error()->message);
    }
    assert_int_equal(status, LVN_OK);
    print_message("%d ranks: table %.3f s, gather %.3f s, goodbye %.3f s\n", WORLD, t.table_s,
                  t.gather_s, t.leave_s);
    assert_int_equal(lvni_control_store_wait(store, 20), LVN_OK);
    lvni_control_store_destroy(store);
    for (int i = 0; i < strangers; i++) {
        close(fds[i]);
    }
    assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_CONTROL).live_bytes, 0);
}

TEST(a_thousand_ranks_join)
{
    meet(0);
}

TEST(a_thousand_ranks_join_among_strangers)
{
    meet(STRANGERS);
}
