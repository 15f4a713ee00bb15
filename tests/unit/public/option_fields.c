/* option_fields.h: read without a compiler, so a declaration has the forms that the headers have.
 */
#include "option_fields.h"
#include "support/test.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

typedef void (*check_function)(const char *group, const char *field);

/* "int stride_hw[2], padding_hw[2]": the last word of each piece; "void (*log)(void *user, ...)":
 * the name in the first parentheses. */
static int check_declaration(const char *group, char *text, check_function check)
{
    char *function = strstr(text, "(*");
    if (function != NULL) {
        function += 2;
        function[strcspn(function, ")")] = '\0';
        check(group, function);
        return 1;
    }
    int n = 0;
    char *rest = text;
    for (char *piece = strsep(&rest, ","); piece != NULL; piece = strsep(&rest, ",")) {
        piece[strcspn(piece, "[")] = '\0';
        const char *at = strrchr(piece, ' ');
        at = at == NULL ? piece : at + 1;
        at += *at == '*' ? 1 : 0;
        check(group, at);
        n++;
    }
    return n;
}

static void drop_comments(char *text)
{
    for (char *begin = strstr(text, "/*"); begin != NULL; begin = strstr(begin, "/*")) {
        const char *end = strstr(begin, "*/");
        memset(begin, ' ', (size_t)(end + 2 - begin));
    }
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '\n' ? ' ' : *c;
    }
}

/* "conv2d_options": "conv2d"; false: no option struct. */
static bool is_options(char *name)
{
    char *suffix = strstr(name, "_options");
    if (suffix != NULL) {
        *suffix = '\0';
    }
    return suffix != NULL || strcmp(name, "stream") == 0;
}

static int check_header(const char *path, check_function check)
{
    static char text[1 << 18];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    drop_comments(text);
    int n = 0;
    char group[64];
    for (char *at = strstr(text, "typedef struct lvn_"); at != NULL;
         at = strstr(at + 1, "typedef struct lvn_")) {
        int end = 0;
        if (sscanf(at, "typedef struct lvn_%63[a-z0-9_] {%n", group, &end) != 1 || end == 0 ||
            !is_options(group)) {
            continue;
        }
        char body[4096];
        char *rest = body;
        snprintf(body, sizeof body, "%.*s", (int)(strchr(at, '}') - at) - end, at + end);
        for (char *part = strsep(&rest, ";"); part != NULL; part = strsep(&rest, ";")) {
            n += part[strspn(part, " ")] == '\0' ? 0 : check_declaration(group, part, check);
        }
    }
    return n;
}

int option_fields(const char *pattern, check_function check)
{
    glob_t headers;
    assert_int_equal(glob(pattern, 0, NULL, &headers), 0);
    int n = 0;
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        n += check_header(headers.gl_pathv[i], check);
    }
    globfree(&headers);
    return n;
}
