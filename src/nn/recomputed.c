/* Modules to recompute (recomputed.h): a mark, which lvn_forward reads. */
#include "nn/recomputed.h"

#include "core/error.h"
#include "core/str.h"
#include "nn/builder_impl.h"

#include <string.h>

/* `path` is `above`, or of a module inside of it. */
static bool is_within(const char *path, const char *above)
{
    const size_t n = strlen(above);
    return n == 0 || (strncmp(path, above, n) == 0 && (path[n] == '\0' || path[n] == '.'));
}

static bool is_block(const lvni_nn_model *m, const char *path)
{
    for (int i = 0; i < m->n_blocks; i++) {
        if (strcmp(m->blocks[i].name, path) == 0) {
            return true;
        }
    }
    return false;
}

/* A module with blocks in it is none: it would keep nothing, and need all of them at once. */
static bool holds_blocks(const lvni_nn_model *m, const char *path)
{
    for (int i = 0; i < m->n_modules; i++) {
        const char *inner = m->modules[i]->path;
        if (strcmp(inner, path) != 0 && is_within(inner, path) && is_block(m, inner)) {
            return true;
        }
    }
    return false;
}

static void set_unit(lvn_module *module, bool is_unit)
{
    module->reserved[1] = is_unit ? module : NULL;
}

/* Of the modules, those inside of others are passed over when they run. */
static int mark(const lvni_nn_model *m, const char *pattern,
                bool (*matches)(const char *pattern, const char *path))
{
    const bool all = strcmp(pattern, "all") == 0;
    int n = 0;
    for (int i = 0; i < m->n_modules; i++) {
        lvn_module *module = m->modules[i];
        if (module->path[0] != '\0' &&
            (all ? !holds_blocks(m, module->path) : matches(pattern, module->path))) {
            set_unit(module, true);
            n++;
        }
    }
    return n;
}

/* The path that is nearest to the pattern. */
static const char *nearest(const lvni_nn_model *m, const char *pattern)
{
    const char *found = "";
    size_t best = SIZE_MAX;
    for (int i = 0; i < m->n_modules; i++) {
        const size_t distance = lvni_core_edit_distance(pattern, m->modules[i]->path);
        if (m->modules[i]->path[0] != '\0' && distance < best) {
            best = distance;
            found = m->modules[i]->path;
        }
    }
    return found;
}

lvn_status lvni_nn_model_recompute(lvni_nn_model *m, const char *const *pattern, size_t n,
                                   bool (*matches)(const char *pattern, const char *path))
{
    for (int i = 0; i < m->n_modules; i++) {
        set_unit(m->modules[i], false);
    }
    if (n == 1 && strcmp(pattern[0], "none") == 0) {
        return LVN_OK;
    }
    for (size_t k = 0; k < n; k++) {
        if (mark(m, pattern[k], matches) == 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "recompute: no module of the model is named by the pattern %s; the nearest "
                     "path is %s",
                     pattern[k], nearest(m, pattern[k]));
        }
    }
    return LVN_OK;
}
