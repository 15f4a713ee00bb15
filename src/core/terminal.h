/* What may be written to a terminal besides text. Used by the progress line, the logger, the
 * launcher and signal handlers. */
#ifndef LEVIN_CORE_TERMINAL_H
#define LEVIN_CORE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Goes back to the start of the row and erases it, with what a narrower window has wrapped below
 * it. */
#define LVNI_TERMINAL_ERASE "\r\033[J"

/* fd is a terminal whose lines can be rewritten: not TERM=dumb, and TERM is set. */
bool lvni_core_terminal_rewrites(int fd);
/* Colours on fd: as above, and NO_COLOR is unset or empty (no-color.org). */
bool lvni_core_terminal_has_colours(int fd);
bool lvni_core_terminal_same(int a, int b); /* both are open on one and the same terminal or file */

/* To a terminal or pipe, whole, from any thread or handler. A reader that went away is no reason to
 * stop training, so failures end the attempt silently. */
void lvni_core_terminal_put(int fd, const char *text, size_t n);
/* The terminal whose last row holds a line that is rewritten again and again (log/run_log.h); -1:
 * there is none. */
void lvni_core_terminal_set_status_fd(int fd);
int lvni_core_terminal_status_fd(void);
/* From a signal handler: the text to standard error. keyboard: the terminal sent the signal, so it
 * has printed ^C where the cursor was: that gets a line of its own, and what stood there is
 * erased. */
void lvni_core_terminal_print_from_signal(bool keyboard, const char *text);

#endif
