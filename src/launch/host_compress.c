/* Host names as a list with brackets (host_list.h): neighbours with one stem share brackets, and
 * numbers that follow each other there a range. The order stays, so that the first host of the list
 * is the first host. */
#include "launch/host_list.h"

#include <inttypes.h>
#include <string.h>

enum { DIGITS = 18 };

/* "n08": the stem "n", and 8 written with 2 digits; width 0: the name does not end with a digit. */
typedef struct host {
    const char *name;
    size_t stem;
    int width;
    uint64_t value;
} host;

static host split(const char *name)
{
    host h = {.name = name, .stem = strlen(name)};
    while (h.stem > 0 && h.width < DIGITS && name[h.stem - 1] >= '0' && name[h.stem - 1] <= '9') {
        h.stem--;
        h.width++;
    }
    for (const char *p = name + h.stem; *p != '\0'; p++) {
        h.value = h.value * 10 + (uint64_t)(*p - '0');
    }
    return h;
}

static bool same_stem(const host *a, const host *b)
{
    return a->width > 0 && b->width > 0 && a->stem == b->stem &&
           memcmp(a->name, b->name, a->stem) == 0;
}

static int digits_of(uint64_t value)
{
    int n = 1;
    for (; value >= 10; value /= 10) {
        n++;
    }
    return n;
}

/* Does b stand where counting on from a, padded as `first` is written, arrives? */
static bool follows(const host *first, const host *a, const host *b)
{
    const int natural = digits_of(b->value);
    return b->value == a->value + 1 &&
           b->width == (natural > first->width ? natural : first->width) &&
           b->value - first->value < LVNI_HOSTS_RANGE;
}

/* Inside of brackets: the range that begins with host i; returns the one behind it. */
static size_t print_range(const lvni_launch_hosts *hosts, size_t i, size_t end, lvni_core_str *out)
{
    const host first = split(lvni_launch_hosts_name(hosts, i));
    host last = first;
    size_t k = i + 1;
    for (; k < end; k++) {
        const host next = split(lvni_launch_hosts_name(hosts, k));
        if (!follows(&first, &last, &next)) {
            break;
        }
        last = next;
    }
    lvni_core_str_printf(out, "%0*" PRIu64, first.width, first.value);
    if (k > i + 1) {
        lvni_core_str_printf(out, "-%0*" PRIu64, first.width, last.value);
    }
    return k;
}

void lvni_launch_hosts_compress(const lvni_launch_hosts *hosts, lvni_core_str *out)
{
    for (size_t i = 0; i < hosts->n;) {
        const host first = split(lvni_launch_hosts_name(hosts, i));
        size_t end = i + 1;
        for (; end < hosts->n; end++) {
            const host next = split(lvni_launch_hosts_name(hosts, end));
            if (!same_stem(&first, &next)) {
                break;
            }
        }
        lvni_core_str_append(out, i > 0 ? "," : "");
        if (end == i + 1) {
            lvni_core_str_append(out, first.name);
            i = end;
            continue;
        }
        lvni_core_str_append_n(out, first.name, first.stem);
        for (const char *before = "["; i < end; before = ",") {
            lvni_core_str_append(out, before);
            i = print_range(hosts, i, end, out);
        }
        lvni_core_str_char(out, ']');
    }
}
