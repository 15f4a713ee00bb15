/* How much memory a process may take here. */
#ifndef LEVIN_CORE_MACHINE_MEMORY_H
#define LEVIN_CORE_MACHINE_MEMORY_H

#include <stdint.h>

/* Bytes: what the machine has to give (MemAvailable), or the limit of the process's control group
 * (memory.max, version 2; its own and those around it) where that is smaller. UINT64_MAX: not
 * known. root: "" for this machine; a folder with its own proc/ and sys/ for tests. */
uint64_t lvni_core_machine_memory(const char *root);

#endif
