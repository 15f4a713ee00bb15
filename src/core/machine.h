/* What levin asks of the machine it runs on: the monotonic clock, the host's name, the memory a
 * process may use, and its terminals. Threads are in thread.h, files in vfs.h, signals in
 * signals.h. */
#ifndef LEVIN_CORE_MACHINE_H
#define LEVIN_CORE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* ---- clock: time since an arbitrary start, for durations and rates; never goes back ---- */

uint64_t lvni_core_now_ns(void);                   /* CLOCK_MONOTONIC */
double lvni_core_seconds_since(uint64_t start_ns); /* (now - start) / 1e9 */
struct timespec lvni_core_timespec(uint64_t ns);   /* for system calls */

/* ---- host ---- */

/* For messages and for comparing hosts. Cut to `size` bytes with its zero; "?" when the host has no
 * name. */
void lvni_core_host_name(char *out, size_t size);

enum { LVNI_CPU_MODEL = 96 }; /* bytes of the name, with its zero */
/* "AMD EPYC 7763 64-Core Processor", blanks once. LEVIN_TEST_CPU_MODEL takes its place, and the
 * name shows that. false: the processor has none. */
bool lvni_core_cpu_model(char out[LVNI_CPU_MODEL]);

/* Bytes a process may use: MemAvailable of the machine, or the smallest memory.max (cgroup v2) of
 * the process's control group and those around it. UINT64_MAX: unknown. root: "" for this machine;
 * a folder with its own proc/ and sys/ for tests. */
uint64_t lvni_core_machine_memory(const char *root);
/* That memory.max alone. UINT64_MAX: there is no limit. */
uint64_t lvni_core_machine_memory_limit(const char *root);
/* The same of cpu.max: the time of how many CPUs, in thousandths. UINT64_MAX: there is no limit. */
uint64_t lvni_core_machine_cpu_quota(const char *root);

/* ---- terminals: used by the progress line, the logger, the launcher and signal handlers ---- */

/* Goes back to the start of the row and erases it, with what a narrower window has wrapped below
 * it. */
#define LVNI_TERMINAL_ERASE "\r\033[J"

/* fd is a terminal whose lines can be rewritten: TERM is set and is not "dumb". */
bool lvni_core_terminal_rewrites(int fd);
/* Colours on fd: as above, and NO_COLOR is unset or empty (no-color.org). */
bool lvni_core_terminal_has_colours(int fd);
bool lvni_core_terminal_same(int a, int b); /* both are open on the same terminal or file */

/* Writes all of it to a terminal or pipe, from any thread or signal handler. A reader that went
 * away is not a reason to stop training: on failure the rest is dropped silently. */
void lvni_core_terminal_put(int fd, const char *text, size_t n);
/* The terminal whose last row holds a status line, rewritten again and again (log/run_log.h); -1:
 * there is none. */
void lvni_core_terminal_set_status_fd(int fd);
int lvni_core_terminal_status_fd(void);
/* From a signal handler: the text to standard error. keyboard: the terminal sent the signal and has
 * printed ^C at the cursor; ^C then gets a line of its own, and a status line is erased. */
void lvni_core_terminal_print_from_signal(bool keyboard, const char *text);

#endif
