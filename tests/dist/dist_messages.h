/* The conformance suite on ranks that exchange messages: threads of this process, each with
 * connections of its own (what TSan can look at), and processes, of which one is killed. */
#ifndef LEVIN_TESTS_DIST_MESSAGES_H
#define LEVIN_TESTS_DIST_MESSAGES_H

/* The main function of a test program. link: "net", "ucx". */
int dist_messages_main(int argc, char **argv, const char *link);

#endif
