/* The conformance suite over TCP, and connections that are not the ranks'. */
#include <stdlib.h>
#include "dist_messages.h"
#include "support/test.h"

#include "core/machine.h"
#include "dist/comm.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STRANGERS = 70, CARD = 256 };
static pthread_barrier_t both;
static char cards[2][CARD];
static int stranger[STRANGERS];

/* Rank 0's address, the first bytes of which are two numbers, is known before rank 1 connects: the
 * strangers come first, and send nothing. */
static lvn_status exchange_with_strangers(void *user, const void *mine, size_t bytes, void *all)
{
    const int rank = *(const int *)user;
    memcpy(cards[rank], mine, bytes);
    pthread_barrier_wait(&both);
    for (int i = 0; i < 2; i++) {
        memcpy((char *)all + (size_t)i * bytes, cards[i], bytes);
    }
    struct sockaddr_in at;
    memcpy(&at, cards[0] + 2 * sizeof(int32_t), sizeof at);
    for (int i = 0; i < STRANGERS && rank == 0 && stranger[i] < 0; i++) {
        stranger[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)connect(stranger[i], (const struct sockaddr *)&at, sizeof at);
    }
    pthread_barrier_wait(&both);
    return LVN_OK;
}

static void *among_strangers(void *p)
{
    int *rank = p;
    const lvni_dist_comm_options o = {.rank = *rank,
                                      .world = 2,
                                      .exchange = exchange_with_strangers,
                                      .address = "127.0.0.1",
                                      .user = rank};
    lvni_dist_comm *comm = NULL;
    bool good = lvni_dist_comm_net(&o, &comm) == LVN_OK;
    good = good && lvni_dist_comm_barrier(comm) == LVN_OK;
    lvni_dist_comm_destroy(comm);
    return good ? p : NULL;
}

TEST(strangers_keep_no_rank_waiting)
{
    int rank[2] = {0, 1};
    pthread_t thread;
    void *other = NULL;
    for (int i = 0; i < STRANGERS; i++) {
        stranger[i] = -1;
    }
    pthread_barrier_init(&both, NULL, 2);
    const uint64_t start = lvni_core_now_ns();
    assert_int_equal(pthread_create(&thread, NULL, among_strangers, &rank[1]), 0);
    assert_non_null(among_strangers(&rank[0]));
    pthread_join(thread, &other);
    assert_non_null(other);
    assert_true(lvni_core_seconds_since(start) < 1.5); /* each might be heard for 2 s */
    for (int i = 0; i < STRANGERS; i++) {
        close(stranger[i]);
    }
    pthread_barrier_destroy(&both);
}

int main(int argc, char **argv)
{
    return dist_messages_main(argc, argv, "net");
}
