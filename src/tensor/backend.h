/* The backends of this process by number and name (levin/backend.h: what one is). */
#ifndef LEVIN_TENSOR_BACKEND_H
#define LEVIN_TENSOR_BACKEND_H

#include "core/str.h"

#include <levin/backend.h>

enum { LVNI_BACKENDS = 16 };

/* Numbers are those of lvn_device_kind: cpu, sim, then ref and dry, then what was loaded. */
int lvni_tensor_backend_count(void);
const lvn_backend *lvni_tensor_backend_get(int kind); /* NULL: there is none */
/* By name; loads it if need be. LVN_ERR_NOT_FOUND, and whatever is wrong with the shared object. */
lvn_status lvni_tensor_backend_find(const char *name, int *kind);

/* A shared object of levin by its file name, where those of backends are looked for. */
bool lvni_tensor_backend_beside(const char *file, char *path, size_t room);
/* The folders that are searched, for messages. */
const char *lvni_tensor_backend_path(void);
/* The names that shared objects there stand for, sorted, each once, with `between` after all but
 * the last; nothing is loaded. */
void lvni_tensor_backend_names(const char *between, lvni_core_str *out);

/* Before main (kernels/backends.c): the next number. */
lvn_status lvni_tensor_backend_add(const lvn_backend *backend);
/* kernels/ looks at every table that is added: rows of ops that there are not are an error. */
typedef lvn_status (*lvni_tensor_backend_resolve)(int kind, const lvn_backend *backend);
void lvni_tensor_backend_set_resolve(lvni_tensor_backend_resolve fn);

#endif
