/* Words as one would type them into a shell. */
#ifndef LEVIN_CORE_SHELL_QUOTE_H
#define LEVIN_CORE_SHELL_QUOTE_H

#include "core/str.h"

/* Appends the word, in single quotes where a shell would change it. */
void lvni_core_shell_quote(lvni_core_str *out, const char *word);

#endif
