/* What may be written to a terminal besides text. Asked by the progress line, the logger and the
 * launcher. */
#ifndef LEVIN_CORE_TERMINAL_H
#define LEVIN_CORE_TERMINAL_H

#include <stdbool.h>

/* Goes back to the start of the row and erases it, with what a narrower window has wrapped below
 * it. */
#define LVNI_TERMINAL_ERASE "\r\033[J"

/* fd is a terminal whose lines can be rewritten: not TERM=dumb, and TERM is set. */
bool lvni_terminal_rewrites(int fd);
/* Colours on fd: as above, and NO_COLOR is unset or empty (no-color.org). */
bool lvni_terminal_has_colours(int fd);
bool lvni_terminal_same(int a, int b); /* both are open on one and the same terminal or file */

#endif
