/* Optimal string alignment distance over three rows of a table (edit_distance.h). */
#include "core/edit_distance.h"

#include <ctype.h>
#include <string.h>

enum { WORD = 63 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

size_t lvni_core_edit_distance(const char *a, const char *b)
{
    const size_t n = strnlen(a, WORD);
    const size_t m = strnlen(b, WORD);
    size_t rows[3][WORD + 1];
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3];
        const size_t *one = rows[(i + 2) % 3];
        const size_t *two = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(least(one[j], now[j - 1]) + 1,
                           one[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
                now[j] = least(now[j], two[j - 2] + 1);
            }
        }
    }
    return rows[n % 3][m];
}

size_t lvni_core_edit_limit(const char *a, const char *b)
{
    const size_t n = strnlen(a, WORD);
    const size_t m = strnlen(b, WORD);
    const size_t third = (n > m ? n : m) / 3;
    return third < 1 ? 1 : least(third, 4);
}
