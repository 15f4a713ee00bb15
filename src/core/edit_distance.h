/* How far two words are apart, for "did you mean": insertions, deletions, exchanges and swaps of
 * neighbours count one. */
#ifndef LEVIN_CORE_EDIT_DISTANCE_H
#define LEVIN_CORE_EDIT_DISTANCE_H

#include <stddef.h>

/* Upper and lower case are the same; only the first 63 bytes of each word are looked at. */
size_t lvni_core_edit_distance(const char *a, const char *b);
/* Near enough to be suggested: at most a third of the longer word, at least 1 and at most 4
 * edits. */
size_t lvni_core_edit_limit(const char *a, const char *b);

#endif
