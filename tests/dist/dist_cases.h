/* The conformance suite: what every transport must do. Each row runs on every transport, with
 * several numbers of ranks. */
#ifndef LEVIN_TESTS_DIST_CASES_H
#define LEVIN_TESTS_DIST_CASES_H

#include "dist_ranks.h"

/* all-reduce: types, operations, sizes, memory */
bool dist_case_reduce(dist_rank *me);
/* messages from rank to rank, of threads of a process */
bool dist_case_passing(dist_rank *me);
/* all-gather (sized too), broadcast, barrier */
bool dist_case_move(dist_rank *me);
/* lvni_dist_comm_alloc: given, given back, refused on all ranks alike */
bool dist_case_memory(dist_rank *me);
bool dist_case_count(dist_rank *me);     /* bytes */
bool dist_case_mismatch(dist_rank *me);  /* check mode */
bool dist_case_abort(dist_rank *me);     /* from another thread */
bool dist_case_abort_for(dist_rank *me); /* with the rank that failed first */
/* lvni_dist_comm_agree_status, and lvni_dist_comm_try of a transport that adds right */
bool dist_case_agree(dist_rank *me);
/* messages: without check mode, too, a message of another size is noticed */
bool dist_case_sizes(dist_rank *me);
bool dist_case_claim(dist_rank *me); /* one of all ranks gets it, once */
bool dist_case_left(dist_rank *me);  /* one leaves early */
bool dist_case_large(dist_rank *me); /* 256 MB, both ways */
/* One call again and again until it fails, because the last rank was killed. arg: which call, 0 ..
 * DIST_ENDLESS_COUNT - 1. */
enum { DIST_ENDLESS_COUNT = 7 };
bool dist_case_endless(dist_rank *me);
bool dist_case_reduction(dist_rank *me);      /* the gradient of a step: arg = micro-batches */
bool dist_case_reduction_race(dist_rank *me); /* many steps, several threads, random delays */
bool dist_case_reduction_options(dist_rank *me);
bool dist_case_reduction_memory(dist_rank *me); /* sets that are the caller's */
/* messages: finish returns when the run is aborted while pieces wait to be added */
bool dist_case_reduction_abort(dist_rank *me);
/* two levels: what a node sends to others in a step, and receives */
bool dist_case_link_bytes(dist_rank *me);
bool dist_case_link_bytes_of_parts(dist_rank *me);
/* a rank that has the claim keeps it when it has left */
bool dist_case_claim_left(dist_rank *me);
bool dist_case_group_exchange(dist_rank *me); /* messages among neighbours, beside collectives */
bool dist_case_group_exchange_abort(dist_rank *me);
/* one rank has no memory for its side of a region: none has it, and no page of it stays */
bool dist_case_regions_refused(dist_rank *me);

/* The table of these, in which a process that is a rank finds its own. on: the transports whose
 * tests run a case with all others; a case with 0 has tests of its own. */
enum { DIST_SHM = 1, DIST_MESSAGES = 2, DIST_LEVELS = 4, DIST_ALL = 7 };
/* The next of a transport, the first after NULL; NULL behind the last. */
const dist_case *dist_next(const dist_case *before, unsigned on);
const dist_case *dist_case_named(const char *name); /* fails the test where there is none */
/* The last of `world` processes is killed in each of the endless calls: all others name it. */
void dist_kills_are_named(int world);
int dist_main(int argc, char **argv); /* of a test of these */

/* One way through all calls that allocate. */
lvn_status dist_allocate(lvni_dist_comm *comm);

#endif
