/* Texts with codes for who a rank is: prefixes of lines, names of log files, values of variables.
 * And lists of ranks: 0,3-5. */
#ifndef LEVIN_LAUNCH_LAUNCH_PATTERN_H
#define LEVIN_LAUNCH_LAUNCH_PATTERN_H

#include "core/str.h"

/* %r %l %n %w %h %j %a %p stand for these; %3r pads a number with zeros; %% is a percent sign. */
typedef struct lvni_launch_rank_name {
    int rank, local_rank, node_rank, world, attempt;
    const char *host, *run_id;
    int64_t pid;
} lvni_launch_rank_name;

/* key: the option that holds the pattern, for the sentence about a code that does not exist
 * (LVN_ERR_USAGE). */
lvn_status lvni_launch_pattern_check(const char *key, const char *pattern);
void lvni_launch_pattern_expand(lvni_core_str *out, const char *pattern,
                                const lvni_launch_rank_name *name);
/* Only %r %l %n %w (and %%) are codes; any other percent sign is one: values of variables have
 * their own. */
void lvni_launch_pattern_expand_value(lvni_core_str *out, const char *value,
                                      const lvni_launch_rank_name *name);

/* "all", "none", "0", "0,3-5": sets in[r] for the ranks named, clears the others. */
lvn_status lvni_launch_rank_list(const char *key, const char *text, int world, bool *in);

#endif
