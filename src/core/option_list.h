/* Which keys take lists: one list is one value of theirs, where for any other key it is several
 * (levin sweep). */
#ifndef LEVIN_CORE_OPTION_LIST_H
#define LEVIN_CORE_OPTION_LIST_H

#include "core/option.h"

/* A flag beside those of option.h, of a text that may be a list: "2" or "[0,2]". */
enum { LVNI_OPT_TEXT_LIST = 524288 };

static inline bool lvni_core_option_takes_list(const lvni_core_option *row)
{
    return row->type >= LVNI_OPT_INT_LIST ||
           (row->flags & (LVNI_OPT_PATHS | LVNI_OPT_JSON | LVNI_OPT_TEXT_LIST)) != 0;
}

#endif
