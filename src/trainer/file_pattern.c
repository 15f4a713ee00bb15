/* Names of checkpoints from a pattern (file_pattern.h). */
#include "trainer/file_pattern.h"

#include "core/math.h"

#include <string.h>

/* Up to two digits. */
static int read_number(const char **at)
{
    int n = 0;
    for (int i = 0; i < 2 && **at >= '0' && **at <= '9'; i++) {
        n = n * 10 + (*(*at)++ - '0');
    }
    return n;
}

static bool read_format(const char **at, lvni_trainer_pattern_field *f)
{
    f->precision = -1;
    if (**at == ':') {
        (*at)++;
        f->zeros = **at == '0';
        f->width = read_number(at);
        if (**at == '.') {
            (*at)++;
            const char *digits = *at;
            f->precision = read_number(at);
            if (*at == digits) {
                return false;
            }
        }
        if (**at != '}' && **at != '\0' && strchr("dfeg", **at) != NULL) {
            f->kind = *(*at)++;
        }
    }
    return *(*at)++ == '}';
}

/* Which value it is; false: none of those that there are. */
static bool find_value(lvni_trainer_pattern_field *f)
{
    static const char *const parts[] = {"val", "train"};
    if (strcmp(f->name, "epoch") == 0 || strcmp(f->name, "step") == 0) {
        return (f->kind == 0 || f->kind == 'd') && f->precision < 0;
    }
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(parts[i]);
        if (strncmp(f->name, parts[i], n) == 0 && (f->name[n] == '/' || f->name[n] == '_') &&
            f->name[n + 1] != '\0') {
            memcpy(f->metric, f->name, sizeof f->name);
            f->metric[n] = '/';
            return f->kind != 'd';
        }
    }
    return false;
}

lvni_trainer_pattern_part lvni_trainer_pattern_next(const char **at, lvni_trainer_pattern_field *f)
{
    *f = (lvni_trainer_pattern_field){0};
    if (**at != '{') {
        const size_t text = strcspn(*at, "{");
        *at += text;
        return text > 0 ? LVNI_PATTERN_TEXT : LVNI_PATTERN_END;
    }
    const size_t n = strcspn(++*at, ":}");
    if (n == 0 || n >= sizeof f->name) {
        return LVNI_PATTERN_BAD;
    }
    memcpy(f->name, *at, n);
    *at += n;
    return read_format(at, f) && find_value(f) ? LVNI_PATTERN_FIELD : LVNI_PATTERN_BAD;
}

const char *lvni_trainer_pattern_wrong(const char *pattern)
{
    const char *at = pattern, *from = pattern;
    lvni_trainer_pattern_field f;
    bool has_field = false;
    if (pattern[0] == '.' || pattern[0] == ' ' || strlen(pattern) >= LVNI_FILE_NAME / 2) {
        return "expected a file's name of fewer than 100 characters that does not begin with a dot "
               "or a space";
    }
    for (;; from = at) {
        switch (lvni_trainer_pattern_next(&at, &f)) {
        case LVNI_PATTERN_END:
            return has_field ? NULL : "expected a pattern with {epoch}, {step} or a metric";
        case LVNI_PATTERN_TEXT:
            for (; from < at; from++) {
                if (*from == '/' || *from == '}' || (unsigned char)*from < ' ') {
                    return "expected a file's name: no folder, no control character, and every "
                           "brace in a pair";
                }
            }
            break;
        case LVNI_PATTERN_FIELD: has_field = true; break;
        case LVNI_PATTERN_BAD:
            return "expected {epoch}, {step}, {val/NAME} or {train/NAME}, each with a format as in "
                   "{epoch:03d} or {val/loss:.2f}";
        }
    }
}

/* As printf's, whose formats must be constants here. */
static void print_real(const lvni_trainer_pattern_field *f, double x, lvni_core_str *out)
{
    const int w = f->width, p = f->precision >= 0 ? f->precision : 6;
    const double value = lvni_core_unsigned_nan(x);
    switch (f->kind) {
    case 'f': lvni_core_str_printf(out, f->zeros ? "%0*.*f" : "%*.*f", w, p, value); break;
    case 'e': lvni_core_str_printf(out, f->zeros ? "%0*.*e" : "%*.*e", w, p, value); break;
    default: lvni_core_str_printf(out, f->zeros ? "%0*.*g" : "%*.*g", w, p, value); break;
    }
}

static void print_field(const lvni_trainer_pattern_field *f,
                        const lvni_trainer_pattern_values *values, lvni_core_str *out)
{
    if (f->metric[0] != '\0') {
        print_real(f, values->metric(values->user, f->metric), out);
        return;
    }
    const long long n = strcmp(f->name, "epoch") == 0 ? values->epoch : values->step;
    lvni_core_str_printf(out, f->zeros ? "%0*lld" : "%*lld", f->width, n);
}

void lvni_trainer_pattern_print(const char *pattern, bool names,
                                const lvni_trainer_pattern_values *values, lvni_core_str *out)
{
    const char *at = pattern, *from = pattern;
    const size_t begin = out->len;
    lvni_trainer_pattern_field f;
    for (lvni_trainer_pattern_part part = lvni_trainer_pattern_next(&at, &f);
         part == LVNI_PATTERN_TEXT || part == LVNI_PATTERN_FIELD;
         part = lvni_trainer_pattern_next(&at, &f)) {
        if (part == LVNI_PATTERN_TEXT) {
            lvni_core_str_append_n(out, from, (size_t)(at - from));
        } else {
            lvni_core_str_append(out, names ? f.name : "");
            lvni_core_str_append(out, names ? "=" : "");
            print_field(&f, values, out);
        }
        from = at;
    }
    for (size_t i = begin; i < out->len; i++) {
        out->data[i] = out->data[i] == '/' ? '_' : out->data[i];
    }
}
