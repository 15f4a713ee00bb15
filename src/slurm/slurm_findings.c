/* Findings and the values of options (slurm_findings.h). */
#include "slurm/slurm_findings.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "slurm/slurm_grammar.h"

#include <stdarg.h>
#include <string.h>

static void add(lvni_slurm_findings *f, const char *level, const char *rule, const char *fmt,
                va_list args) LVN_PRINTF(4, 0);

static void add(lvni_slurm_findings *f, const char *level, const char *rule, const char *fmt,
                va_list args)
{
    char line[1600];
    lvni_core_escape_format(line, sizeof line, fmt, args);
    lvni_core_str_printf(&f->text, "levin: %s %s: %s\n", level, rule, line);
}

void lvni_slurm_error(lvni_slurm_findings *f, const char *rule, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(f, "error", rule, fmt, args);
    va_end(args);
    f->errors++;
}

void lvni_slurm_warn(lvni_slurm_findings *f, const char *rule, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(f, "warning", rule, fmt, args);
    va_end(args);
    f->warnings++;
}

void lvni_slurm_note(lvni_slurm_findings *f, const char *rule, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(f, "note", rule, fmt, args);
    va_end(args);
}

void lvni_slurm_findings_free(lvni_slurm_findings *f)
{
    lvni_core_str_free(&f->text);
    *f = (lvni_slurm_findings){0};
}

/* ---- values ---- */

/* The rule that such a value breaks, and what is expected. */
static const struct {
    const char *rule, *expected;
} expected[] = {
    [LVNI_SLURM_TEXT] = {"V01", "expected text on one line"},
    [LVNI_SLURM_NAME] = {"V19", "expected a name of 1 to 200 characters without `/` on one line"},
    [LVNI_SLURM_COUNT] = {"V01", "expected a whole number from 1 on"},
    [LVNI_SLURM_NUMBER] = {"V01", "expected a whole number from 0 on"},
    [LVNI_SLURM_TIME] = {"V06", "expected minutes (10), 90:00, 2:00:00, 1-12:00:00, 90s, 30m, 2h, "
                                "1d, or 0 for unlimited"},
    [LVNI_SLURM_SIZE] = {"V09", "expected digits and K, M, G or T, such as 64G; without a letter "
                                "MiB; 0: all memory of the node"},
    [LVNI_SLURM_ARRAY] = {"V10", "expected elements from 0 on, such as 0-8, 1,3,7, 0-30:10 or "
                                 "0-99%4"},
    [LVNI_SLURM_SIGNAL] = {"V07", "expected [B:]SIGNAL[@SECONDS] with 0 to 65535 seconds, such as "
                                  "USR1@90"},
    [LVNI_SLURM_MAIL] = {"V11", "expected a list of NONE, BEGIN, END, FAIL, REQUEUE, ALL, "
                                "INVALID_DEPEND, STAGE_OUT, TIME_LIMIT, TIME_LIMIT_90, "
                                "TIME_LIMIT_80, TIME_LIMIT_50, ARRAY_TASKS"},
    [LVNI_SLURM_GPUS] = {"V04", "expected a number of GPUs, or TYPE:NUMBER such as a100:2"},
    [LVNI_SLURM_VARIABLE] = {"V01", "expected NAME=VALUE, NAME of letters, digits and _"},
    [LVNI_SLURM_PORT] = {"V01", "expected auto, random, or a port from 1 to 65535"},
    [LVNI_SLURM_CODE] = {"V01", "expected a line of the shell"},
    [LVNI_SLURM_SHEBANG] = {"V20", "expected the first line of a script, such as #!/bin/bash -l"},
};

static bool is_port(const char *text)
{
    int64_t n;
    return strcmp(text, "auto") == 0 || strcmp(text, "random") == 0 ||
           (lvni_slurm_count_read(text, 1, &n) && n <= 65535);
}

/* A directive is a line; sbatch knows no way to write a line break in it. */
static bool is_line(const char *text)
{
    return text[0] != '\0' && text[strcspn(text, "\n\r")] == '\0';
}

static bool is_value(lvni_slurm_grammar grammar, const char *text)
{
    int64_t n;
    size_t bytes;
    const char *type;
    lvni_slurm_array array;
    lvni_slurm_signal signal;
    switch (grammar) {
    case LVNI_SLURM_TEXT: return is_line(text);
    case LVNI_SLURM_NAME: return is_line(text) && strchr(text, '/') == NULL && strlen(text) <= 200;
    case LVNI_SLURM_COUNT: return lvni_slurm_count_read(text, 1, &n);
    case LVNI_SLURM_NUMBER: return lvni_slurm_count_read(text, 0, &n);
    case LVNI_SLURM_TIME: return lvni_slurm_time_read(text, &n);
    case LVNI_SLURM_SIZE: return lvni_slurm_size_read(text);
    case LVNI_SLURM_ARRAY: return lvni_slurm_array_read(text, &array);
    case LVNI_SLURM_SIGNAL: return lvni_slurm_signal_read(text, &signal);
    case LVNI_SLURM_MAIL: return lvni_slurm_mail_read(text);
    case LVNI_SLURM_GPUS: return lvni_slurm_gpus_read(text, &n, &type, &bytes);
    case LVNI_SLURM_VARIABLE: return lvni_slurm_variable_read(text, &bytes);
    case LVNI_SLURM_PORT: return is_port(text);
    case LVNI_SLURM_SHEBANG: return is_line(text) && strncmp(text, "#!/", 3) == 0;
    case LVNI_SLURM_CODE: return text[0] != '\0';
    }
    return false;
}

bool lvni_slurm_value_check(lvni_slurm_grammar grammar, const char *key, const char *text,
                            const char *where, lvni_slurm_findings *f)
{
    if (is_value(grammar, text)) {
        return true;
    }
    lvni_slurm_error(f, expected[grammar].rule, "%.60s `%.200s`: %s  (%.200s)", key, text,
                     expected[grammar].expected, where);
    return false;
}
