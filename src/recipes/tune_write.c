/* The answer of a finder into the file of config=: one value is replaced, and all else, comments
 * included, stays as it is. */
#include "recipes/tune.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"

#include <inttypes.h>
#include <string.h>

static const size_t FILE_MAX = (size_t)1 << 20; /* as of a configuration */

/* Where the value of a top-level `key` stands; false: there is none. */
static bool find_value(const char *text, const char *key, size_t *at, size_t *n)
{
    const size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += line != text || *line == '\n' ? 1 : 0;
        const char *colon = line + length;
        if (strncmp(line, key, length) != 0) {
            continue;
        }
        colon += strspn(colon, " \t");
        if (*colon != ':') {
            continue;
        }
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        *at = (size_t)(value - text);
        *n = strcspn(value, " \t\r\n#");
        return true;
    }
    return false;
}

/* A file of rcGAN, whose batch_size counts per device. */
static bool is_foreign(const char *text)
{
    size_t at, n;
    return find_value(text, "experience", &at, &n) && !find_value(text, "recipe", &at, &n);
}

lvn_status lvni_recipes_tune_write(const char *path, int64_t size, int world, lvni_core_str *note)
{
    static const char own[] = "batch_size_per_device", shared[] = "batch_size";
    char *text = NULL, number[24];
    size_t bytes = 0, at = 0, n = 0;
    lvni_core_str out = {0};
    LVN_TRY(lvni_core_file_read(path, FILE_MAX, &text, &bytes));
    const bool has_own = find_value(text, own, &at, &n);
    const bool has = has_own || find_value(text, shared, &at, &n);
    const char *key = has_own || !has ? own : shared;
    const int64_t value = key == own || is_foreign(text) ? size : size * world;
    snprintf(number, sizeof number, "%" PRId64, value);
    if (has) {
        lvni_core_str_append_n(&out, text, at);
        lvni_core_str_append(&out, at > 0 && text[at - 1] == ':' ? " " : "");
        lvni_core_str_append(&out, number);
        lvni_core_str_append_n(&out, text + at + n, bytes - at - n);
    } else {
        lvni_core_str_append_n(&out, text, bytes);
        lvni_core_str_printf(&out, "%s%s: %s\n", bytes > 0 && text[bytes - 1] != '\n' ? "\n" : "",
                             key, number);
    }
    lvni_core_str_printf(note, "%s: %s in %s", key, number, path);
    lvn_status s = lvni_core_str_status(&out);
    s = s == LVN_OK ? lvni_core_str_status(note) : s;
    s = s == LVN_OK ? lvni_core_file_write(path, lvni_core_str_text(&out), out.len) : s;
    lvni_core_str_free(&out);
    lvni_core_free(text);
    return s;
}
