/* Shared by option.c, option_items.c and option_message.c. */
#ifndef LEVIN_CORE_OPTION_IMPL_H
#define LEVIN_CORE_OPTION_IMPL_H

#include "core/option.h"
#include "core/str.h"

/* A walk over the items of a list. */
typedef struct lvni_core_items {
    const char *p, *end;
    bool first;
} lvni_core_items;

bool lvni_core_is_blank(char c);
/* The text without blanks at its ends and, for a list, without its brackets. False: only one of the
 * brackets is there. */
bool lvni_core_items_open(const char *text, lvni_core_items *it);
/* 1: an item; 0: the end; -1: not a list. */
int lvni_core_items_next(lvni_core_items *it, lvni_core_str *out, bool *quoted);
/* Behind an item: true when a comma (and so another item) follows. */
bool lvni_core_items_more(lvni_core_items *it);
/* Reads a text in quotes that begins at it->p: 'it''s' and "a \" b". False: it does not end. */
bool lvni_core_items_quoted(lvni_core_items *it, lvni_core_str *out);

/* "batch_size `abc`: expected a whole number, at least 1 (in samples)  (config.yml:12)" */
lvn_status lvni_core_option_expected(const lvni_core_option *row, const char *text, bool quoted,
                                     const char *origin);

#endif
