/* The declarations of a space (sweep_space.h): their texts, values, conditions and zips. */
#include "sweep/sweep_space.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/rng.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MOST = 128, RANGE_USUAL = 10, RANGE_MOST = 10000 };

/* ---- values ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The text without blanks at its ends. */
static const char *trim(const char *text, size_t *n)
{
    while (*n > 0 && is_blank(text[0])) {
        text++;
        --*n;
    }
    while (*n > 0 && is_blank(text[*n - 1])) {
        --*n;
    }
    return text;
}

static bool read_whole(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return *digits != '\0' && digits[strspn(digits, "0123456789")] == '\0' && errno == 0;
}

/* Decimal and finite. */
static bool read_number(const char *text, double *out)
{
    const char *p = text + (*text == '-' || *text == '+');
    char *end = NULL;
    if ((!isdigit((unsigned char)*p) && *p != '.') || p[strspn(p, "0123456789.eE+-")] != '\0') {
        return false;
    }
    *out = lvni_core_strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

static lvn_status take(lvni_core_str *s, char **out)
{
    LVN_TRY(lvni_core_str_status(s));
    *out = lvni_core_strdup(LVNI_TAG_CONFIG, lvni_core_str_text(s));
    lvni_core_str_free(s);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static bool is_quoted(const char *text, size_t n)
{
    return n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n - 1] == text[0];
}

static lvn_status not_of_type(const char *text, const char *type)
{
    LVN_FAIL(LVN_ERR_USAGE, "`%.80s` is not %s", text,
             strcmp(type, "int") == 0     ? "a whole number"
             : strcmp(type, "float") == 0 ? "a number"
                                          : "true or false");
}

lvn_status lvni_sweep_value(const char *text, const char *type, char **out)
{
    static const char *const switches[2][4] = {{"false", "no", "off", "0"},
                                               {"true", "yes", "on", "1"}};
    lvni_core_str s = {0};
    int64_t whole;
    double number;
    const bool any = type == NULL, real = !any && strcmp(type, "float") == 0;
    const size_t n = strlen(text);
    if (any && is_quoted(text, n)) {
        lvni_core_str_append_n(&s, text + 1, n - 2);
    } else if (!any && strcmp(type, "bool") == 0) {
        for (int i = 0; i < 8 && s.len == 0; i++) {
            char low[8] = "";
            for (size_t k = 0; k < n && k + 1 < sizeof low; k++) {
                low[k] = (char)tolower((unsigned char)text[k]);
            }
            lvni_core_str_append(&s, strcmp(low, switches[i / 4][i % 4]) == 0 ? switches[i / 4][0]
                                                                              : "");
        }
        if (s.len == 0 && !s.failed) {
            lvni_core_str_free(&s);
            return not_of_type(text, type);
        }
    } else if (!any && strcmp(type, "str") != 0 && !(real && read_number(text, &number)) &&
               !read_whole(text, &whole)) {
        return not_of_type(text, type);
    } else if ((any || real) && !read_whole(text, &whole) && read_number(text, &number)) {
        lvni_core_str_double(&s, number);
    } else {
        lvni_core_str_append(&s, text);
    }
    const lvn_status status = take(&s, out);
    lvni_core_str_free(&s);
    return status;
}

/* Where the element at p ends: a comma outside of brackets and quotes, or the text's end. NULL: one
 * of them does not end. */
static const char *element_end(const char *p, const char *end)
{
    int depth = 0;
    for (const char *begin = p; p < end && (depth > 0 || *p != ','); p++) {
        const bool opens = p == begin || strchr("[{(,:= ", p[-1]) != NULL;
        depth += strchr("[{(", *p) != NULL ? 1 : strchr("]})", *p) != NULL ? -1 : 0;
        if (opens && (*p == '\'' || *p == '"')) {
            const char *close = memchr(p + 1, *p, (size_t)(end - p - 1));
            if (close == NULL) {
                return NULL;
            }
            p = close;
        }
        if (depth < 0) {
            return NULL;
        }
    }
    return depth == 0 ? p : NULL;
}

lvn_status lvni_sweep_split(const char *text, char ***out)
{
    size_t n = strlen(text);
    const char *p = trim(text, &n), *end = p + n;
    /* One element in brackets from its beginning to its end is a list. */
    if (n >= 2 && *p == '[' && end[-1] == ']' && element_end(p + 1, end - 1) != NULL) {
        const char *inner = p + 1;
        bool whole = true;
        while (whole && inner < end - 1) {
            const char *stop = element_end(inner, end - 1);
            whole = stop != NULL;
            inner = whole ? stop + 1 : inner;
        }
        p += whole ? 1 : 0;
        end -= whole ? 1 : 0;
    }
    for (bool more = true; more;) {
        const char *stop = element_end(p, end);
        if (stop == NULL) {
            LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: a bracket or a quote does not end", text);
        }
        size_t length = (size_t)(stop - p);
        const char *one = trim(p, &length);
        if (length == 0) {
            LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: a value is empty; an empty text is ''", text);
        }
        LVN_TRY(lvni_sweep_texts_add(out, one, length));
        more = stop < end;
        p = stop + 1;
    }
    return LVN_OK;
}

/* The values of a list, in place of the elements. */
static lvn_status make_values(char **elements, const char *type)
{
    for (char **p = elements; p != NULL && *p != NULL; p++) {
        char *value = NULL;
        LVN_TRY(lvni_sweep_value(*p, type, &value));
        lvni_core_free(*p);
        *p = value;
    }
    return LVN_OK;
}

/* ---- parameters ---- */

static lvn_status check_name(const char *name, size_t n)
{
    static const char *const reserved[] = {"trial", "trial_dir"};
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.-/";
    if (n == 0 || n > NAME_MOST || strspn(name, allowed) < n) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%.*s` is not a name: letters, digits, `_`, `-`, `.` and `/`, as in "
                 "NAME=VALUES",
                 (int)(n < 80 ? n : 80), name);
    }
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (strlen(reserved[i]) == n && memcmp(reserved[i], name, n) == 0) {
            LVN_FAIL(LVN_ERR_USAGE, "`%s` cannot be a parameter: {%s} is the trial's own",
                     reserved[i], reserved[i]);
        }
    }
    return LVN_OK;
}

static bool is_text(const char *text, const char *a, size_t n)
{
    return strlen(text) == n && memcmp(text, a, n) == 0;
}

/* The last one of that name; -1: none. */
static int64_t find(const lvni_sweep_space *space, const char *name, size_t n)
{
    for (int64_t i = space->n - 1; i >= 0; i--) {
        if (is_text(space->parameters[i].name, name, n)) {
            return i;
        }
    }
    return -1;
}

static lvn_status find_column(lvni_sweep_space *space, const char *name, size_t n, int64_t *out)
{
    for (*out = 0; space->names != NULL && space->names[*out] != NULL; ++*out) {
        if (is_text(space->names[*out], name, n)) {
            return LVN_OK;
        }
    }
    return lvni_sweep_texts_add(&space->names, name, n);
}

/* A new one, empty. Those of one name have conditions. */
static lvn_status new_parameter(lvni_sweep_space *space, const char *name, size_t n,
                                bool conditional, lvni_sweep_parameter **out)
{
    LVN_TRY(check_name(name, n));
    const int64_t before = find(space, name, n);
    if (before >= 0 && (!conditional || space->parameters[before].other < 0)) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.*s` is declared twice%s", (int)n, name,
                 conditional ? "; with several conditions each of them has `when`" : "");
    }
    if (space->n == LVNI_SWEEP_MOST_PARAMETERS) {
        LVN_FAIL(LVN_ERR_USAGE, "more than %d parameters", (int)LVNI_SWEEP_MOST_PARAMETERS);
    }
    if (space->n == space->room) {
        const int64_t room = 2 * space->room + 8;
        lvni_sweep_parameter *more =
            lvni_core_realloc(LVNI_TAG_CONFIG, space->parameters, (size_t)room * sizeof *more);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        space->parameters = more;
        space->room = room;
    }
    lvni_sweep_parameter *p = &space->parameters[space->n];
    *p = (lvni_sweep_parameter){.other = -1, .leader = space->n};
    LVN_TRY(find_column(space, name, n, &p->column));
    p->name = lvni_core_strdup(LVNI_TAG_CONFIG, space->names[p->column]);
    if (p->name == NULL) {
        return LVN_ERR_MEMORY;
    }
    space->n++;
    *out = p;
    return LVN_OK;
}

/* NAME=REST */
static lvn_status split_name(const char *text, size_t *n, const char **rest)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s` has no `=`: NAME=VALUES", text);
    }
    *n = (size_t)(equals - text);
    *rest = equals + 1;
    return LVN_OK;
}

/* ---- list and fixed ---- */

/* ":float" at the end of the text, which gets shorter. NULL: none. */
static const char *cut_type(lvni_core_str *text)
{
    static const char *const types[] = {"int", "float", "bool", "str"};
    for (size_t i = 0; i < 4; i++) {
        const size_t n = strlen(types[i]);
        if (text->len > n && text->data[text->len - n - 1] == ':' &&
            strcmp(text->data + text->len - n, types[i]) == 0) {
            text->len -= n + 1;
            text->data[text->len] = '\0';
            return types[i];
        }
    }
    return NULL;
}

static lvn_status read_values(const char *text, char ***out)
{
    lvni_core_str s = {0};
    lvni_core_str_append(&s, text);
    const char *type = s.failed || s.len == 0 ? NULL : cut_type(&s);
    lvn_status status = lvni_core_str_status(&s);
    if (status == LVN_OK) {
        status = lvni_sweep_split(lvni_core_str_text(&s), out);
    }
    lvni_core_str_free(&s);
    return status == LVN_OK ? make_values(*out, type) : status;
}

static lvn_status add_list(lvni_sweep_space *space, const char *text)
{
    size_t n = 0;
    const char *rest = "";
    lvni_sweep_parameter *p;
    LVN_TRY(split_name(text, &n, &rest));
    LVN_TRY(new_parameter(space, text, n, false, &p));
    return read_values(rest, &p->values);
}

/* A list of one value, whatever it looks like. */
static lvn_status add_fixed(lvni_sweep_space *space, const char *text)
{
    size_t n = 0;
    const char *rest = "";
    char *value = NULL;
    lvni_sweep_parameter *p;
    LVN_TRY(split_name(text, &n, &rest));
    LVN_TRY(new_parameter(space, text, n, false, &p));
    LVN_TRY(lvni_sweep_value(rest, NULL, &value));
    const lvn_status s = lvni_sweep_texts_add(&p->values, value, strlen(value));
    lvni_core_free(value);
    return s;
}

/* ---- range ---- */

double lvni_sweep_random(uint64_t seed, const char *name, uint64_t index, uint32_t attempt)
{
    lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose(name)),
                         .a = (uint32_t)index,
                         .b = (uint32_t)(index >> 32),
                         .c = attempt};
    const uint32_t high = lvni_core_rng_u32(&rng, 0) >> 5, low = lvni_core_rng_u32(&rng, 1) >> 6;
    return ((double)high * 0x1p26 + (double)low) * 0x1p-53;
}

typedef struct range {
    double low, high, base; /* base 0: not by logarithm */
    int64_t n, first, end;  /* first, end: where low and high are whole */
    bool whole_limits, whole;
} range;

static lvn_status bad_range(const char *text, const char *why)
{
    LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: %s; NAME=LOW:HIGH[:N][:log[BASE]][:int|float]", text, why);
}

/* Parts behind LOW:HIGH, each of them once. */
static lvn_status read_range_part(const char *text, const char *part, range *r, bool seen[3])
{
    const bool is_log = strncmp(part, "log", 3) == 0,
               type = strcmp(part, "int") == 0 || strcmp(part, "float") == 0;
    const int which = is_log ? 1 : type ? 2 : 0;
    bool right = !seen[which];
    seen[which] = true;
    if (is_log) {
        r->base = M_E;
        right = right && (part[3] == '\0' || (read_number(part + 3, &r->base) && r->base > 0.0 &&
                                              (r->base < 1.0 || r->base > 1.0)));
    } else if (type) {
        r->whole = part[0] == 'i';
    } else {
        right = right && read_whole(part, &r->n) && r->n >= 1 && r->n <= RANGE_MOST;
    }
    return right ? LVN_OK : bad_range(text, part);
}

static lvn_status read_range(const char *text, const char *rest, range *r)
{
    char parts[5][40];
    bool seen[3] = {false};
    int n = 0;
    for (const char *p = rest;; p++) {
        const size_t length = strcspn(p, ":");
        if (n == 5 || length >= sizeof parts[0]) {
            return bad_range(text, "too many parts, or a long one");
        }
        memcpy(parts[n], p, length);
        parts[n++][length] = '\0';
        p += length;
        if (*p == '\0') {
            break;
        }
    }
    *r = (range){.n = RANGE_USUAL};
    if (n < 2 || !read_number(parts[0], &r->low) || !read_number(parts[1], &r->high) ||
        !(r->low < r->high)) {
        return bad_range(text, "LOW and HIGH are numbers, LOW the smaller one");
    }
    r->whole_limits = read_whole(parts[0], &r->first) && read_whole(parts[1], &r->end);
    for (int i = 2; i < n; i++) {
        LVN_TRY(read_range_part(text, parts[i], r, seen));
    }
    r->whole = seen[2] ? r->whole : r->whole_limits && r->base == 0.0;
    if (r->base != 0.0 && r->low <= 0.0) {
        return bad_range(text, "a logarithm needs LOW above 0");
    }
    return r->whole && !r->whole_limits ? bad_range(text, "int needs whole numbers as limits")
                                        : LVN_OK;
}

/* In [LOW, HIGH), whatever the last bit of a logarithm is. */
static double draw_number(const range *r, double u)
{
    double x = r->low + u * (r->high - r->low);
    if (r->base != 0.0) {
        const double low = lvni_core_log(r->low), high = lvni_core_log(r->high);
        x = lvni_core_exp(low + u * (high - low));
    }
    return x < r->low ? r->low : x < r->high ? x : nextafter(r->high, r->low);
}

static bool is_in(const int64_t *all, int64_t n, int64_t x)
{
    for (int64_t i = 0; i < n; i++) {
        if (all[i] == x) {
            return true;
        }
    }
    return false;
}

/* Different whole numbers: of few an order of all, of many those that come first. */
static lvn_status draw_whole(const range *r, const char *name, uint64_t seed, int64_t *out)
{
    const int64_t width = r->end - r->first;
    if (r->base == 0.0 && width <= 4 * r->n) {
        lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose(name))};
        int64_t *order = lvni_core_alloc(LVNI_TAG_CONFIG, (size_t)width * sizeof *order);
        if (order == NULL) {
            return LVN_ERR_MEMORY;
        }
        lvni_core_rng_permute(&rng, width, order);
        for (int64_t i = 0; i < r->n; i++) {
            out[i] = r->first + order[i];
        }
        lvni_core_free(order);
        return LVN_OK;
    }
    uint64_t draw = 0;
    for (int64_t i = 0; i < r->n; draw++) {
        if (draw > 1000 * (uint64_t)r->n + 1000) {
            LVN_FAIL(LVN_ERR_USAGE, "not enough different whole numbers in the range: a smaller N");
        }
        const int64_t x = (int64_t)floor(draw_number(r, lvni_sweep_random(seed, name, draw, 0)));
        if (!is_in(out, i, x)) {
            out[i++] = x;
        }
    }
    return LVN_OK;
}

static lvn_status add_number(lvni_sweep_parameter *p, double x)
{
    lvni_core_str s = {0};
    lvni_core_str_double(&s, x);
    lvn_status status = lvni_core_str_status(&s);
    if (status == LVN_OK) {
        status = lvni_sweep_texts_add(&p->values, lvni_core_str_text(&s), s.len);
    }
    lvni_core_str_free(&s);
    return status;
}

static lvn_status draw_range(lvni_sweep_parameter *p, const range *r, const char *text,
                             uint64_t seed)
{
    char purpose[NAME_MOST + 16]; /* which value a trial takes is drawn by the name alone */
    snprintf(purpose, sizeof purpose, "range/%s", p->name);
    if (!r->whole) {
        for (int64_t i = 0; i < r->n; i++) {
            const double u = lvni_sweep_random(seed, purpose, (uint64_t)i, 0);
            LVN_TRY(add_number(p, draw_number(r, u)));
        }
        return LVN_OK;
    }
    /* differences below 2^53 are exact as numbers, too */
    if (r->low < -0x1p52 || r->high > 0x1p52) {
        return bad_range(text, "whole numbers are below 2^52");
    }
    if (r->n > r->end - r->first) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%.80s`: [%lld, %lld) has %lld whole numbers, fewer than the %lld asked for",
                 text, (long long)r->first, (long long)r->end, (long long)(r->end - r->first),
                 (long long)r->n);
    }
    int64_t *all = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)r->n, sizeof *all);
    lvn_status s = all == NULL ? LVN_ERR_MEMORY : draw_whole(r, purpose, seed, all);
    for (int64_t i = 0; s == LVN_OK && i < r->n; i++) {
        char number[24];
        lvni_core_format(number, sizeof number, "%lld", (long long)all[i]);
        s = lvni_sweep_texts_add(&p->values, number, strlen(number));
    }
    lvni_core_free(all);
    return s;
}

static lvn_status add_range(lvni_sweep_space *space, const char *text, uint64_t seed)
{
    size_t n = 0;
    const char *rest = "";
    range r;
    lvni_sweep_parameter *p;
    LVN_TRY(split_name(text, &n, &rest));
    LVN_TRY(read_range(text, rest, &r));
    LVN_TRY(new_parameter(space, text, n, false, &p));
    return draw_range(p, &r, text, seed);
}

/* ---- sample ---- */

static const char *const distributions[] = {"choice", "uniform", "loguniform", "int", "normal"};
static const char distribution_forms[] =
    "uniform(a,b), loguniform(a,b), int(a,b), choice(v1|v2) or normal(m,s)";

/* The distribution that a text "word(...)" begins with; -1: none. */
static int distribution_of(const char *text)
{
    const size_t n = strcspn(text, "("), length = strlen(text);
    for (int i = 0; i < 5; i++) {
        if (is_text(distributions[i], text, n) && length > n + 1 && text[length - 1] == ')') {
            return i;
        }
    }
    return -1;
}

/* v1|v2, which are values of a list. */
static lvn_status read_choices(const char *inner, char ***out)
{
    for (const char *p = inner;; p++) {
        size_t n = strcspn(p, "|");
        const char *next = p + n, *one = trim(p, &n);
        if (n == 0) {
            LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: a value is empty; an empty text is ''", inner);
        }
        LVN_TRY(lvni_sweep_texts_add(out, one, n));
        p = next;
        if (*p == '\0') {
            return make_values(*out, NULL);
        }
    }
}

static lvn_status read_limits(lvni_sweep_parameter *p, const char *text, char *const *limits)
{
    if (lvni_sweep_texts_count(limits) != 2 || !read_number(limits[0], &p->low) ||
        !read_number(limits[1], &p->high)) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: two numbers are expected: %s", text, distribution_forms);
    }
    const bool whole = read_whole(limits[0], &p->first) && read_whole(limits[1], &p->last);
    if (p->how == LVNI_SWEEP_INT && (!whole || p->low < -0x1p52 || p->high > 0x1p52)) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: int(a,b) has whole numbers, below 2^52", text);
    }
    if (p->how == LVNI_SWEEP_NORMAL ? !(p->high > 0.0)
        : p->how == LVNI_SWEEP_INT  ? p->first > p->last
                                    : !(p->low < p->high)) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: %s", text,
                 p->how == LVNI_SWEEP_NORMAL ? "the deviation is above 0"
                                             : "the first limit is the smaller one");
    }
    if (p->how == LVNI_SWEEP_LOGUNIFORM && !(p->low > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: a logarithm needs limits above 0", text);
    }
    return LVN_OK;
}

static lvn_status read_distribution(lvni_sweep_parameter *p, const char *text)
{
    const int which = distribution_of(text);
    lvni_core_str inner = {0};
    char **limits = NULL;
    if (which < 0) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s` is not a distribution: %s", text, distribution_forms);
    }
    const size_t skip = strlen(distributions[which]) + 1;
    lvni_core_str_append_n(&inner, text + skip, strlen(text) - skip - 1);
    lvn_status s = lvni_core_str_status(&inner);
    p->how = (lvni_sweep_distribution)which;
    p->drawn = true;
    if (s == LVN_OK && which == 0) {
        s = read_choices(lvni_core_str_text(&inner), &p->values);
    } else if (s == LVN_OK) {
        s = lvni_sweep_split(lvni_core_str_text(&inner), &limits);
        s = s == LVN_OK ? read_limits(p, text, limits) : s;
    }
    lvni_sweep_texts_free(limits);
    lvni_core_str_free(&inner);
    return s;
}

static lvn_status add_sample(lvni_sweep_space *space, const char *text)
{
    size_t n = 0;
    const char *rest = "";
    lvni_sweep_parameter *p;
    LVN_TRY(split_name(text, &n, &rest));
    LVN_TRY(new_parameter(space, text, n, false, &p));
    return read_distribution(p, rest);
}

/* ---- when ---- */

/* Can both be there in one trial? Two conditions on the same parameter exclude each other where
 * they have no value in common. */
static bool overlap(const lvni_sweep_parameter *a, const lvni_sweep_parameter *b)
{
    if (a->other != b->other || a->unless || b->unless) {
        return true;
    }
    for (char *const *x = a->other_values; *x != NULL; x++) {
        for (char *const *y = b->other_values; *y != NULL; y++) {
            if (strcmp(*x, *y) == 0) {
                return true;
            }
        }
    }
    return false;
}

static lvn_status check_overlap(const lvni_sweep_space *space, const lvni_sweep_parameter *p)
{
    for (const lvni_sweep_parameter *q = space->parameters; q < p; q++) {
        if (q->column == p->column && overlap(p, q)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "`%s` is declared twice: conditions of one name are OTHER==VALUE about the "
                     "same parameter, and have no value in common",
                     p->name);
        }
    }
    return LVN_OK;
}

static lvn_status bad_condition(const char *text)
{
    LVN_FAIL(LVN_ERR_USAGE,
             "`%.80s` is not understood: OTHER==VALUE: NAME=v1,v2, or OTHER!=a|b: "
             "NAME=uniform(0,1)",
             text);
}

static lvn_status add_when(lvni_sweep_space *space, const char *text)
{
    const char *sign = strstr(text, "=="), *not_equal = strstr(text, "!=");
    const bool unless = not_equal != NULL && (sign == NULL || not_equal < sign);
    sign = unless ? not_equal : sign;
    const char *colon = sign != NULL ? strchr(sign, ':') : NULL;
    if (colon == NULL) {
        return bad_condition(text);
    }
    size_t n_other = (size_t)(sign - text), n_values = (size_t)(colon - sign) - 2, n = 0;
    const char *other = trim(text, &n_other), *declared = colon + 1, *rest = "";
    while (is_blank(*declared)) {
        declared++;
    }
    const int64_t at = find(space, other, n_other);
    if (at < 0) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.*s` is not a parameter that is declared before `%.80s`",
                 (int)(n_other < 80 ? n_other : 80), other, text);
    }
    if (space->parameters[at].how != LVNI_SWEEP_LISTED) {
        LVN_FAIL(LVN_ERR_USAGE, "`%s` is drawn from a range of numbers: a condition needs a list",
                 space->parameters[at].name);
    }
    lvni_sweep_parameter *p;
    LVN_TRY(split_name(declared, &n, &rest));
    LVN_TRY(new_parameter(space, declared, n, true, &p));
    p->other = at;
    p->unless = unless;
    lvni_core_str values = {0};
    lvni_core_str_append_n(&values, sign + 2, n_values);
    lvn_status s = lvni_core_str_status(&values);
    s = s == LVN_OK ? read_choices(lvni_core_str_text(&values), &p->other_values) : s;
    lvni_core_str_free(&values);
    LVN_TRY(s);
    LVN_TRY(check_overlap(space, p));
    return distribution_of(rest) >= 0 ? read_distribution(p, rest) : read_values(rest, &p->values);
}

/* ---- zip ---- */

static lvn_status join(lvni_sweep_space *space, int64_t first, int64_t other)
{
    lvni_sweep_parameter *a = &space->parameters[first], *b = &space->parameters[other];
    const int64_t n = lvni_sweep_texts_count(a->values), m = lvni_sweep_texts_count(b->values);
    if (a->drawn || b->drawn || a->other >= 0 || b->other >= 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%s` and `%s` cannot go together: both must be lists or ranges "
                 "without a condition",
                 a->name, b->name);
    }
    if (n != m) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%s` has %lld value%s and `%s` %lld: those that go together have equally many",
                 a->name, (long long)n, lvni_core_plural(n, "", "s"), b->name, (long long)m);
    }
    if (first == other || b->leader != other || a->leader != first) {
        LVN_FAIL(LVN_ERR_USAGE, "`%s` stands in two zips, or twice in one", b->name);
    }
    b->leader = first;
    return LVN_OK;
}

/* Where the names are declared; the first one declared leads. */
static lvn_status find_all(const lvni_sweep_space *space, char *const *names, int64_t *first)
{
    *first = space->n;
    for (int64_t i = 0; names[i] != NULL; i++) {
        const int64_t at = find(space, names[i], strlen(names[i]));
        if (at < 0) {
            LVN_FAIL(LVN_ERR_USAGE, "`%.80s` is not a parameter that is declared before it",
                     names[i]);
        }
        *first = at < *first ? at : *first;
    }
    return LVN_OK;
}

static lvn_status add_zip(lvni_sweep_space *space, const char *text)
{
    char **names = NULL;
    int64_t first = -1;
    bool led = false;
    lvn_status s = lvni_sweep_split(text, &names);
    if (s == LVN_OK && lvni_sweep_texts_count(names) < 2) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "`%.80s`: two names or more go together: NAME,NAME", text);
    }
    s = s == LVN_OK ? find_all(space, names, &first) : s;
    for (int64_t i = 0; s == LVN_OK && names[i] != NULL; i++) {
        const int64_t at = find(space, names[i], strlen(names[i]));
        s = at != first || led ? join(space, first, at) : LVN_OK;
        led = led || at == first;
    }
    lvni_sweep_texts_free(names);
    return s;
}

/* ---- all of them ---- */

static void free_from(lvni_sweep_space *space, int64_t first)
{
    for (int64_t i = first; i < space->n; i++) {
        lvni_core_free(space->parameters[i].name);
        lvni_sweep_texts_free(space->parameters[i].values);
        lvni_sweep_texts_free(space->parameters[i].other_values);
    }
    space->n = first < space->n ? first : space->n;
}

lvn_status lvni_sweep_space_add(lvni_sweep_space *space, const char *kind, const char *text,
                                uint64_t seed)
{
    const int64_t before = space->n;
    const lvn_status s = strcmp(kind, "list") == 0     ? add_list(space, text)
                         : strcmp(kind, "range") == 0  ? add_range(space, text, seed)
                         : strcmp(kind, "sample") == 0 ? add_sample(space, text)
                         : strcmp(kind, "fixed") == 0  ? add_fixed(space, text)
                         : strcmp(kind, "when") == 0   ? add_when(space, text)
                                                       : add_zip(space, text);
    if (s != LVN_OK) {
        free_from(space, before); /* a half-read one */
    }
    if (s == LVN_ERR_USAGE) {
        lvni_core_str why = {0};
        lvni_core_str_append(&why, lvn_last_error()->message);
        (void)lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s %.100s: %s", kind, text,
                            lvni_core_str_text(&why));
        lvni_core_str_free(&why);
    }
    return s;
}

static void remove_repeats(lvni_sweep_parameter *p, lvni_core_str *notes)
{
    int64_t kept = 0;
    for (int64_t i = 0; p->values[i] != NULL; i++) {
        bool again = false;
        for (int64_t k = 0; k < kept && !again; k++) {
            again = strcmp(p->values[k], p->values[i]) == 0;
        }
        if (again) {
            lvni_core_str_printf(notes, "note: %s has %s twice, which counts once\n", p->name,
                                 p->values[i]);
            lvni_core_free(p->values[i]);
        } else {
            p->values[kept++] = p->values[i];
        }
    }
    p->values[kept] = NULL;
}

lvn_status lvni_sweep_space_finish(lvni_sweep_space *space, bool all_together, lvni_core_str *notes)
{
    for (int64_t i = 1; all_together && i < space->n; i++) {
        LVN_TRY(join(space, 0, i));
    }
    for (int64_t i = 0; i < space->n; i++) {
        lvni_sweep_parameter *p = &space->parameters[i];
        bool joined = p->leader != i || all_together;
        for (int64_t k = i + 1; k < space->n; k++) {
            joined = joined || space->parameters[k].leader == i;
        }
        if (!joined && p->values != NULL) {
            remove_repeats(p, notes);
        }
    }
    return lvni_core_str_status(notes);
}

void lvni_sweep_space_free(lvni_sweep_space *space)
{
    free_from(space, 0);
    lvni_core_free(space->parameters);
    lvni_sweep_texts_free(space->names);
    *space = (lvni_sweep_space){.n = 0};
}
