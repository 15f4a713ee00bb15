/* Ranks for the tests of src/dist/: the same body as threads of this process, or as processes that
 * are this program again (exec), which find each other through a hub in the parent. A body reports
 * what is wrong with RANK_CHECK, on stderr, and returns false. */
#ifndef LEVIN_TESTS_DIST_RANKS_H
#define LEVIN_TESTS_DIST_RANKS_H

#include "dist/comm.h"

#include <stdio.h>
#include <sys/types.h>

typedef struct dist_rank {
    lvni_dist_comm *comm;
    int rank, world;
    int arg;       /* of the test */
    bool messages; /* they share no memory (src/dist/net) */
    bool hosts;    /* DIST_HOSTS */
    /* in two levels: the first rank of each node, and the number of all; nodes 0: in one */
    const int *first;
    int nodes;
    struct dist_taken *taken;
} dist_rank;

/* Memory until dist_give_back or the end of the body; never NULL. */
void *dist_take(dist_rank *me, size_t bytes);
void dist_give_back(dist_rank *me); /* all of it */

#define DIST_LINK "LEVIN_TEST_DIST_LINK"   /* "net", "ucx": what messages go over */
#define DIST_HOSTS "LEVIN_TEST_DIST_HOSTS" /* every process has a host of its own */
/* so many ranks are on the first of two nodes, in two levels */
#define DIST_TWO_LEVELS "LEVIN_TEST_DIST_LEVELS"

typedef bool (*dist_body)(dist_rank *me);

/* A row of the program's table: bodies are found by name in another process. */
typedef struct dist_case {
    const char *name;
    /* NULL: processes that get no communicator, since the last of them can open no files */
    dist_body body;
    bool check;  /* the communicator compares calls */
    unsigned on; /* dist_cases.h */
} dist_case;
/* NULL: no case has this name. */
const dist_case *dist_find(const dist_case *cases, int n_cases, const char *name);

#define RANK_CHECK(me, cond, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s, rank %d of %d: %s: ", __FILE__, __LINE__, __func__,        \
                    (me)->rank, (me)->world, #cond);                                               \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, " (last error: %s)\n", lvn_last_error()->message);                     \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* true: every rank's body gave back true. */
bool dist_run_threads(const dist_case *c, int world, int arg);
/* The same over messages (DIST_LINK; net): each thread with connections of its own. */
bool dist_run_net_threads(const dist_case *c, int world, int arg);
/* Ranks of several nodes in two levels: first[nodes + 1] as in dist_rank. threads: those of a node
 * are made at once (lvni_dist_comm_levels_threads). */
bool dist_run_levels(const dist_case *c, const int *first, int nodes, bool threads, int arg);
bool dist_run_self(const dist_case *c, int arg);

/* Processes; with DIST_LINK in the environment they exchange messages. `victim` (-1: none): the
 * rank that is killed with SIGKILL `kill_ms` after all have found each other; its end counts as
 * true. */
typedef struct dist_kill {
    int victim;
    int kill_ms;
    double seconds; /* out: from the kill to the end of the last rank */
} dist_kill;
bool dist_run_processes(const dist_case *c, int world, int arg, dist_kill *kill);

/* First thing in main: when this process is a rank, runs its body and exits. */
void dist_rank_main(int argc, char **argv, const dist_case *cases, int n_cases);

#endif
