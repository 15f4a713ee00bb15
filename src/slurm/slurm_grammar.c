/* What Slurm's options take (slurm_grammar.h). */
#include "slurm/slurm_grammar.h"

#include "core/option.h"
#include "core/str.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MINUTE = 60, HOUR = 3600, DAY = 86400 };
static const int64_t MOST = 1000000000;

/* The digits at *p, which moves behind them. */
static bool number(const char **p, int64_t *out)
{
    const char *begin = *p;
    for (*out = 0; isdigit((unsigned char)**p); (*p)++) {
        *out = *out * 10 + (**p - '0');
        if (*out > MOST) {
            return false;
        }
    }
    return *p > begin;
}

bool lvni_slurm_count_read(const char *text, int64_t least, int64_t *out)
{
    const char *p = text;
    return number(&p, out) && *p == '\0' && *out >= least;
}

/* ---- times ---- */

/* Fields between colons; returns how many, 0: that is none. */
static int fields(const char *p, int64_t out[3])
{
    for (int n = 0; n < 3; p++) {
        if (!number(&p, &out[n++])) {
            return 0;
        }
        if (*p == '\0') {
            return n;
        }
        if (*p != ':') {
            return 0;
        }
    }
    return 0;
}

static bool unit_time(const char *text, int64_t *seconds)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', MINUTE}, {'h', HOUR}, {'d', DAY}};
    const char *p = text;
    int64_t n;
    if (!number(&p, &n) || p[0] == '\0' || p[1] != '\0') {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (tolower((unsigned char)*p) == units[i].unit) {
            *seconds = n * units[i].seconds;
            return true;
        }
    }
    return false;
}

bool lvni_slurm_time_read(const char *text, int64_t *seconds)
{
    int64_t days = 0, f[3] = {0};
    const char *dash = strchr(text, '-'), *p = text;
    if (strcasecmp(text, "UNLIMITED") == 0 || strcasecmp(text, "INFINITE") == 0) {
        *seconds = LVNI_SLURM_UNLIMITED;
        return true;
    }
    if (unit_time(text, seconds)) {
        *seconds = *seconds == 0 ? LVNI_SLURM_UNLIMITED : *seconds;
        return true;
    }
    if (dash != NULL && (!number(&p, &days) || p != dash)) {
        return false;
    }
    const int n = fields(dash != NULL ? dash + 1 : text, f);
    if (n == 0) {
        return false;
    }
    const int first = dash != NULL || n == 3 ? HOUR : MINUTE;
    *seconds = days * DAY + f[0] * first + f[1] * (first / 60) + (first == HOUR ? f[2] : 0);
    *seconds = *seconds == 0 ? LVNI_SLURM_UNLIMITED : *seconds;
    return true;
}

void lvni_slurm_time_write(int64_t seconds, char out[LVNI_SLURM_TIME_TEXT])
{
    if (seconds == LVNI_SLURM_UNLIMITED) {
        snprintf(out, LVNI_SLURM_TIME_TEXT, "UNLIMITED");
        return;
    }
    snprintf(out, LVNI_SLURM_TIME_TEXT, "%d-%02d:%02d:%02d", (int)(seconds / DAY),
             (int)(seconds % DAY / HOUR), (int)(seconds % HOUR / MINUTE), (int)(seconds % MINUTE));
}

/* ---- memory, arrays ---- */

bool lvni_slurm_size_read(const char *text)
{
    int64_t mib;
    return lvni_slurm_size_mib(text, &mib);
}

bool lvni_slurm_size_mib(const char *text, int64_t *mib)
{
    const char *p = text;
    int64_t n;
    if (!number(&p, &n) || (*p != '\0' && (strchr("KMGTkmgt", *p) == NULL || p[1] != '\0'))) {
        return false;
    }
    *mib = *p == 'K' || *p == 'k'   ? (n + 1023) / 1024
           : *p == 'G' || *p == 'g' ? n * 1024
           : *p == 'T' || *p == 't' ? n * 1024 * 1024
                                    : n;
    return true;
}

/* "3", "0-7", "0-30:10" at *p. */
static bool array_item(const char **p, lvni_slurm_array *a)
{
    int64_t from, to, step = 1;
    if (!number(p, &from)) {
        return false;
    }
    to = from;
    if (**p == '-') {
        (*p)++;
        if (!number(p, &to) || to < from) {
            return false;
        }
        if (**p == ':') {
            (*p)++;
            if (!number(p, &step) || step == 0) {
                return false;
            }
        }
    }
    a->n += (to - from) / step + 1;
    a->last = to > a->last ? to : a->last;
    return true;
}

bool lvni_slurm_array_read(const char *text, lvni_slurm_array *out)
{
    const char *p = text;
    int64_t most;
    *out = (lvni_slurm_array){0};
    for (; array_item(&p, out); p++) {
        if (*p == '%') {
            p++;
            return number(&p, &most) && most > 0 && *p == '\0';
        }
        if (*p == '\0') {
            return true;
        }
        if (*p != ',') {
            return false;
        }
    }
    return false;
}

/* ---- signals, mail ---- */

bool lvni_slurm_signal_read(const char *text, lvni_slurm_signal *out)
{
    static const char names[] = "HUP|INT|QUIT|ABRT|KILL|ALRM|TERM|USR1|USR2|URG|CONT|STOP|TSTP|"
                                "TTIN|TTOU";
    int64_t n;
    *out = (lvni_slurm_signal){.lead = 60};
    for (const char *colon = strchr(text, ':'); colon != NULL && text <= colon; text++) {
        if (text == colon) {
            text++;
            break;
        }
        if (*text != 'B' && *text != 'R') {
            return false;
        }
        out->batch = out->batch || *text == 'B';
    }
    const size_t length = strcspn(text, "@");
    const bool sig = strncasecmp(text, "SIG", 3) == 0;
    const char *name = text + (sig ? 3 : 0);
    const size_t n_name = length - (sig ? 3 : 0);
    if (n_name == 0 || n_name >= sizeof out->name) {
        return false;
    }
    for (size_t i = 0; i < n_name; i++) {
        out->name[i] = (char)toupper((unsigned char)name[i]);
    }
    const bool known = lvni_core_option_choice_index(names, name, n_name) >= 0;
    const bool numbered = !sig && lvni_slurm_count_read(out->name, 1, &n) && n <= 64;
    return (known || numbered) &&
           (text[length] == '\0' ||
            (lvni_slurm_count_read(text + length + 1, 0, &out->lead) && out->lead <= 65535));
}

bool lvni_slurm_mail_read(const char *text)
{
    for (;;) {
        const size_t n = strcspn(text, ",");
        if (lvni_core_option_choice_index(LVNI_SLURM_MAIL_TYPES, text, n) < 0) {
            return false;
        }
        if (text[n] == '\0') {
            return true;
        }
        text += n + 1;
    }
}

/* ---- GPUs, variables ---- */

static bool is_type(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr("._-", text[i]) == NULL) {
            return false;
        }
    }
    return n > 0;
}

bool lvni_slurm_gpus_read(const char *text, int64_t *count, const char **type, size_t *n_type)
{
    const char *colon = strrchr(text, ':'), *p = text;
    *type = text;
    *n_type = 0;
    if (colon == NULL) {
        return lvni_slurm_count_read(text, 1, count);
    }
    if (lvni_slurm_count_read(colon + 1, 1, count)) {
        *n_type = (size_t)(colon - text);
        return is_type(text, *n_type);
    }
    *type = colon + 1;
    *n_type = strlen(*type);
    return number(&p, count) && p == colon && *count > 0 && is_type(*type, *n_type);
}

bool lvni_slurm_variable_read(const char *text, size_t *n)
{
    const char *p = text;
    while (isalnum((unsigned char)*p) || *p == '_') {
        p++;
    }
    *n = (size_t)(p - text);
    return *n > 0 && !isdigit((unsigned char)text[0]) && *p == '=';
}
