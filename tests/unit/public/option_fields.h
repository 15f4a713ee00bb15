/* The fields of the option structs that a header declares, for tests with a case for each. */
#ifndef LEVIN_TESTS_OPTION_FIELDS_H
#define LEVIN_TESTS_OPTION_FIELDS_H

/* Calls `check` for every field of every lvn_GROUP_options, and of lvn_stream (group "stream"), of
 * the headers that `pattern` matches; returns how many there are. */
int option_fields(const char *pattern, void (*check)(const char *group, const char *field));

#endif
