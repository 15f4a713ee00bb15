/* The conformance suite over UCX, and what UCX must leave alone. Skipped where there is none. */
#include <stdlib.h>
#include "dist_cases.h"
#include "dist_messages.h"
#include "support/test.h"

#include "dist/transport.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct sigaction before[NSIG];
static int changed; /* the first signal whose handler loading UCX has changed; 0: none */

static void keep_handlers(void)
{
    for (int s = 1; s < NSIG; s++) {
        (void)sigaction(s, NULL, &before[s]);
    }
}

static int find_changed(void)
{
    struct sigaction now;
    for (int s = 1; s < NSIG; s++) {
        if (sigaction(s, NULL, &now) == 0 && now.sa_sigaction != before[s].sa_sigaction) {
            return s;
        }
    }
    return 0;
}

static lvn_status alone(void *user, const void *mine, size_t bytes, void *all)
{
    (void)user;
    memcpy(all, mine, bytes);
    return LVN_OK;
}

/* They are the program's, which has its own for errors. */
static void handlers_of_signals_stay(void)
{
    assert_int_equal(changed, 0);
    keep_handlers(); /* those of cmocka */
    const lvni_dist_comm_options o = {.world = 1, .exchange = alone, .address = "127.0.0.1"};
    lvni_dist_comm *comm;
    assert_int_equal(lvni_dist_comm_ucx(&o, &comm), LVN_OK);
    assert_int_equal(find_changed(), 0);
    lvni_dist_comm_destroy(comm);
    assert_int_equal(find_changed(), 0);
}

/* Even the first message of a step, by which those behind it find their place, is then long. */
static void the_user_may_make_every_message_long(void)
{
    setenv("UCX_RNDV_THRESH", "1", 1);
    assert_true(dist_run_net_threads(dist_case_named("reduction"), 3, 7));
    unsetenv("UCX_RNDV_THRESH");
}

TEST(what_only_ucx_has)
{
    handlers_of_signals_stay();
    the_user_may_make_every_message_long();
}

int main(int argc, char **argv)
{
    keep_handlers();
    const char *missing = lvni_dist_transport_ucx.missing();
    if (missing != NULL) {
        printf("no UCX here: %s\n", missing);
        return 77;
    }
    changed = find_changed();
    return dist_messages_main(argc, argv, "ucx");
}
