/* Names of neighbouring frames (pose_window.h). */
#include "recipes/pose/pose_window.h"

#include <string.h>

enum { MOST_DIGITS = 18 }; /* of a number that an int64_t holds */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

lvn_status lvni_pose_window_path(const char *path, int offset, lvni_core_str *out)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(name, '.');
    const char *end = dot == NULL ? name + strlen(name) : dot;
    while (end > name && !is_digit(end[-1])) {
        end--;
    }
    const char *begin = end;
    int64_t number = 0;
    while (begin > name && is_digit(begin[-1])) {
        begin--;
    }
    if (begin == end || end - begin > MOST_DIGITS) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: heatmap_mhcrnn looks at the frames before and after it, and its name has %s; "
                 "name frames by their number in the video, such as img00012.png",
                 path, begin == end ? "no number" : "a number of more than 18 digits");
    }
    for (const char *at = begin; at < end; at++) {
        number = 10 * number + (*at - '0');
    }
    number = number + offset > 0 ? number + offset : 0;
    lvni_core_str_clear(out);
    lvni_core_str_printf(out, "%.*s%0*lld%s", (int)(begin - path), path, (int)(end - begin),
                         (long long)number, end);
    return lvni_core_str_status(out);
}
