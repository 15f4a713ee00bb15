/* Bounded reading of JSON, and printing it (json_read.h). The memory that the library will take
 * follows from the tokens: one pass over the text counts them before it is parsed. */
#include "core/json_read.h"

#include <string.h>

/* Bytes of jansson 2.x on a 64-bit machine, with what malloc adds; tables while they grow have the
 * old and the new one. tests/unit/public/test_parser_memory.c measures that they are enough. */
enum {
    OBJECT = 224, /* with the buckets of FIRST keys */
    ARRAY = 128,  /* with the slots of FIRST elements */
    FIRST = 8,
    BUCKET = 48, /* of each key after these */
    SLOT = 24,
    TEXT = 48 + 32, /* and its bytes; a key takes no more */
    NUMBER = 32,
    ENTRY = 192, /* of the caller's table over the outermost object of a file */
    LONGEST = 3  /* times the longest string, while it is read */
};

static const size_t MIB = (size_t)1 << 20;

typedef struct cost {
    size_t bytes, longest, entries;
    int depth, deepest;
    size_t n[LVNI_JSON_MAX_DEPTH + 1]; /* what each open object or array has so far */
} cost;

/* Behind the string that begins at the quote. */
static const char *skip_string(const char *p, const char *end, cost *c)
{
    const char *start = p++;
    while (p < end && *p != '"') {
        p += *p == '\\' && end - p > 1 ? 2 : 1;
    }
    const size_t length = (size_t)(p - start);
    c->longest = length > c->longest ? length : c->longest;
    c->bytes += TEXT + length;
    return p < end ? p + 1 : end;
}

static void open_one(cost *c, size_t bytes)
{
    c->bytes += bytes;
    c->depth++;
    c->deepest = c->depth > c->deepest ? c->depth : c->deepest;
    if (c->depth >= 0 && c->depth <= LVNI_JSON_MAX_DEPTH) {
        c->n[c->depth] = 0;
    }
}

/* One more, in what is open. */
static void add_one(cost *c, size_t bytes)
{
    const bool known = c->depth >= 0 && c->depth <= LVNI_JSON_MAX_DEPTH;
    c->bytes += !known || ++c->n[c->depth] > FIRST ? bytes : 0;
}

/* The library reads at most what is counted here: it stops at the first mistake, this does not. */
static cost count(const char *p, const char *end)
{
    cost c = {0};
    bool in_number = false;
    while (p < end) {
        const bool number = (*p >= '0' && *p <= '9') || *p == '-' || *p == '.' || *p == 'e';
        c.bytes += number && !in_number ? NUMBER : 0;
        in_number = number;
        switch (*p) {
        case '"': p = skip_string(p, end, &c); continue;
        case '{': open_one(&c, OBJECT); break;
        case '[': open_one(&c, ARRAY); break;
        case '}':
        case ']': c.depth--; break;
        case ':':
            add_one(&c, BUCKET);
            c.entries += c.depth <= 1 ? 1 : 0;
            break;
        case ',': add_one(&c, SLOT); break;
        default: break;
        }
        p++;
    }
    return c;
}

static lvn_status check(const char *path, const char *part, const char *text, size_t n,
                        lvni_core_json_source source)
{
    const cost c = count(text, text + n);
    const bool file = source == LVNI_JSON_FILE;
    const size_t limit = file ? 24 * MIB + 14 * n : 20 * MIB + 2 * n;
    const size_t need = n + c.bytes + (file ? ENTRY * c.entries : 0) + LONGEST * c.longest;
    if (c.deepest > LVNI_JSON_MAX_DEPTH) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: %s is nested %d levels deep; at most %d are read", path,
                 part, c.deepest, LVNI_JSON_MAX_DEPTH);
    }
    if (need > limit) {
        char room[2][LVNI_BYTES_TEXT];
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: %s of %zu bytes would take %s of memory, at most %s are given to it: it was "
                 "not made "
                 "by a program for machine learning",
                 path, part, n, lvni_core_bytes_text(need, room[0]),
                 lvni_core_bytes_text(limit, room[1]));
    }
    return LVN_OK;
}

lvn_status lvni_core_json_read(const char *path, const char *part, const char *text, size_t n,
                               size_t flags, lvni_core_json_source source, json_t **out)
{
    json_error_t error;
    *out = NULL;
    LVN_TRY(check(path, part, text, n, source));
    *out = json_loadb(text, n, flags, &error);
    if (*out != NULL) {
        return LVN_OK;
    }
    /* The library does not always know a small allocation that fails in its lexer: that reads as
     * damage, which refuses the text as well. */
    if (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory) {
        LVN_FAIL(LVN_ERR_MEMORY, "%s: no host memory to read %s", path, part);
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: %s is damaged: %s (byte %d)", path, part, error.text,
             error.position);
}

json_t *lvni_core_json_try(const char *text, lvni_core_json_source source)
{
    json_t *out = NULL;
    if (text != NULL && lvni_core_json_read("JSON", "the text", text, strlen(text), JSON_DECODE_ANY,
                                            source, &out) != LVN_OK) {
        lvn_clear_error();
    }
    return out;
}

static int append(const char *text, size_t n, void *out)
{
    lvni_core_str_append_n(out, text, n);
    return 0;
}

void lvni_core_json_print(const json_t *value, size_t flags, lvni_core_str *out)
{
    if (json_dump_callback(value, append, out, flags) != 0) {
        out->failed = true;
    }
}
