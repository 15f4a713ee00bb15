/* output=FILE (output_file.h). */
#include "recipes/output_file.h"

#include "core/vfs.h"
#include "launch/launch.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

bool lvni_recipes_output_is_stdout(const lvni_core_config *c)
{
    return strcmp(lvni_core_config_str(c, "output"), "-") == 0;
}

const char *lvni_recipes_output_path(const lvni_core_config *c)
{
    return lvni_recipes_output_is_stdout(c) ? LVNI_STDOUT_PATH : lvni_core_config_str(c, "output");
}

bool lvni_recipes_output_ends_in(const char *path, const char *ending, size_t n)
{
    const size_t length = strlen(path);
    return length > n && strncasecmp(path + length - n, ending, n) == 0;
}

static bool is_known(const char *path, const char *endings)
{
    for (const char *p = endings; p != NULL;) {
        const size_t n = strcspn(p, "|");
        if (lvni_recipes_output_ends_in(path, p, n)) {
            return true;
        }
        p = p[n] == '|' ? p + n + 1 : NULL;
    }
    return false;
}

/* ".csv or .jsonl" */
static void print_endings(const char *endings, lvni_core_str *out)
{
    for (const char *p = endings; *p != '\0'; p++) {
        lvni_core_str_append_n(out, *p == '|' ? " or " : p, *p == '|' ? 4 : 1);
    }
}

static lvn_status check_stdout(const lvni_recipes_output_kind *kind)
{
    if (kind->binary && isatty(STDOUT_FILENO) == 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=-: %s, which is not for a terminal; send it on with > FILE or |",
                 kind->what);
    }
    if (kind->binary && lvni_launch_is_rank(environ)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=-: %s, and a launcher shows lines of text; use devices=1, or the name of "
                 "a file",
                 kind->what);
    }
    return LVN_OK;
}

lvn_status lvni_recipes_output_check(const lvni_core_config *c,
                                     const lvni_recipes_output_kind *kind)
{
    const char *output = lvni_core_config_str(c, "output");
    if (lvni_recipes_output_is_stdout(c)) {
        return check_stdout(kind);
    }
    LVN_TRY(lvni_core_file_check(output)); /* a folder or a pipe: whatever the ending */
    if (is_known(output, kind->endings)) {
        return LVN_OK;
    }
    lvni_core_str endings = {0};
    print_endings(kind->endings, &endings);
    lvn_status s = lvni_core_str_status(&endings);
    s = s != LVN_OK
            ? s
            : lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                            "output=%s: %s; give a name that ends in %s, or output=- for stdout",
                            output, kind->what, lvni_core_str_text(&endings));
    lvni_core_str_free(&endings);
    return s;
}
