/* What the tests of the control channel share: a store on a free port of this host, and ranks as
 * threads that connect to it and then run the test's function. Threads leave their results in their
 * row; asserting is the main thread's part. */
#ifndef TESTS_CONTROL_SUPPORT_H
#define TESTS_CONTROL_SUPPORT_H

#include "control/control.h"
#include "control/store.h"
#include "support/test.h"

enum { GROUP_MAX = 8 };

typedef struct group group;

typedef struct group_rank {
    group *g;
    int rank;
    lvni_control *control;
    lvni_control_facts facts;
    lvni_control_facts_room room;
    /* What came of it. */
    lvn_status status;        /* of connect, rendezvous or the body */
    lvn_error error;          /* when status is not OK */
    lvni_control_cause cause; /* given to on_abort */
    _Atomic int aborts;       /* how often that was called */
    uint64_t began_ns, ended_ns;
    int64_t number; /* for the body */
} group_rank;

struct group {
    int world;
    lvni_control_store_options store_options;
    lvni_control_options options; /* rank, ports filled in per rank */
    lvni_control_store *store;
    int port;
    bool keep;                         /* connections stay for the test: group_end destroys them */
    bool skip[GROUP_MAX];              /* ranks that never come */
    lvn_status (*body)(group_rank *r); /* after the rendezvous; NULL: leaves */
    group_rank ranks[GROUP_MAX];
    char lines[1000]; /* the store's lines */
};

/* Short times, one job, `world` ranks; facts of this process. */
void group_init(group *g, int world);
/* Creates the store, starts a thread per rank, waits for all of them. */
void group_run(group *g);
/* For `report`, with the group as `user`. */
void keep_line(void *user, const char *line);
/* All ranks are here. */
lvn_status control_barrier(lvni_control *control, const char *name, double timeout_s);
/* Whatever is left. Asserts that the store frees all. */
void group_end(group *g);

/* Waits until on_abort has been called for the rank, which may be a moment after a call of it has
 * failed. False: 10 s were not enough. */
bool saw_abort(const group_rank *r);

void pause_ms(int ms);
double seconds_between(uint64_t from_ns, uint64_t to_ns);
/* A socket connected to the store, with a receive timeout of 5 s. */
int raw_connect(int port);

/* The code, and every part in the message. */
void assert_text_has(const lvn_error *error, lvn_status code, const char *const *parts, size_t n);
#define ASSERT_ERROR_HAS(error, code, ...)                                                         \
    do {                                                                                           \
        const char *const parts_[] = {__VA_ARGS__};                                                \
        assert_text_has((error), (code), parts_, sizeof parts_ / sizeof *parts_);                  \
    } while (0)

#endif
