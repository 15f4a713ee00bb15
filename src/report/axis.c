/* Axes (axis.h). */
#include "report/axis.h"

#include "core/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUS "\xe2\x88\x92"
#define TIMES "\xc3\x97"
#define THIN_SPACE "\xe2\x80\x89"

static const double largest = 1e300; /* of an axis: ranges of larger values are not finite */

/* ---- numbers ---- */

static void append(char text[LVNI_NUMBER_TEXT], const char *more)
{
    const size_t n = strlen(text);
    snprintf(text + n, LVNI_NUMBER_TEXT - n, "%s", more);
}

static void append_power(char text[LVNI_NUMBER_TEXT], int exponent)
{
    static const char *const digits[10] = {
        "\xe2\x81\xb0", "\xc2\xb9",     "\xc2\xb2",     "\xc2\xb3",     "\xe2\x81\xb4",
        "\xe2\x81\xb5", "\xe2\x81\xb6", "\xe2\x81\xb7", "\xe2\x81\xb8", "\xe2\x81\xb9"};
    char plain[16];
    snprintf(plain, sizeof plain, "%d", exponent);
    append(text, "10");
    for (const char *p = plain; *p != '\0'; p++) {
        append(text, *p == '-' ? "\xe2\x81\xbb" : digits[*p - '0']);
    }
}

/* "-12345.5" as it is to be read: a minus sign, and from five digits on thousands apart. */
static void append_decimal(char text[LVNI_NUMBER_TEXT], const char *plain)
{
    if (*plain == '-') {
        append(text, MINUS);
        plain++;
    }
    const size_t digits = strspn(plain, "0123456789");
    for (size_t i = 0; i < digits; i++) {
        const char digit[2] = {plain[i], '\0'};
        append(text, i > 0 && digits > 4 && (digits - i) % 3 == 0 ? THIN_SPACE : "");
        append(text, digit);
    }
    append(text, plain + digits);
}

const char *lvni_report_axis_number(double value, int digits, char text[LVNI_NUMBER_TEXT])
{
    char plain[40];
    text[0] = '\0';
    lvni_core_format(plain, sizeof plain, "%.*g", digits, value);
    char *exponent = strchr(plain, 'e');
    if (exponent == NULL) {
        append_decimal(text, plain);
        return text;
    }
    *exponent = '\0';
    const int power = atoi(exponent + 1);
    if (power > 0 && power < 6) { /* 1.2e+04 */
        lvni_core_format(plain, sizeof plain, "%.0f", value);
        append_decimal(text, plain);
        return text;
    }
    const char *mantissa = plain + (plain[0] == '-');
    append_decimal(text, strcmp(mantissa, "1") == 0 ? "" : plain);
    append(text, strcmp(mantissa, "1") != 0 ? TIMES : mantissa > plain ? MINUS : "");
    append_power(text, power);
    return text;
}

/* ---- the range ---- */

void lvni_report_axis_begin(lvni_report_axis *a, bool log)
{
    *a = (lvni_report_axis){.low = INFINITY, .high = -INFINITY, .log = log};
}

double lvni_report_axis_place(const lvni_report_axis *a, double value)
{
    return !isfinite(value) || (a->log && value <= 0.0) ? (double)NAN
           : a->log                                     ? log10(value)
                                                        : fmin(fmax(value, -largest), largest);
}

void lvni_report_axis_widen(lvni_report_axis *a, double value)
{
    const double at = lvni_report_axis_place(a, value);
    if (isfinite(at)) {
        a->whole = a->whole && floor(value) >= value;
        a->low = fmin(a->low, at);
        a->high = fmax(a->high, at);
    }
}

/* ---- ticks ---- */

static lvni_report_tick *add_tick(lvni_report_axis *a, double at)
{
    const double slack = 1e-9 * (a->high - a->low);
    if (a->n_ticks == LVNI_AXIS_TICKS || !(at >= a->low - slack && at <= a->high + slack)) {
        return NULL;
    }
    lvni_report_tick *t = &a->tick[a->n_ticks++];
    *t = (lvni_report_tick){.at = at};
    return t;
}

/* 1, 2 or 5 times a power of ten, the nearest factor. */
static double round_step(double about)
{
    const double power = pow(10.0, floor(log10(about))), part = about / power;
    return power * (part < 1.41 ? 1.0 : part < 3.16 ? 2.0 : part < 7.07 ? 5.0 : 10.0);
}

/* Ticks from low to high; values that have many digits in common are written as their difference
 * to a round one, and large and small ones as multiples of a power of ten, which the note has. */
static void linear_ticks(lvni_report_axis *a, double low, double high, int ticks)
{
    const double fine = round_step((high - low) / ticks), step = a->whole ? fmax(fine, 1.0) : fine,
                 size = fmax(fabs(low), fabs(high));
    double offset = 0.0;
    if (high - low < 1e-4 * size) {
        const double round = pow(10.0, ceil(log10(high - low)));
        offset = floor((low + high) / 2.0 / round + 0.5) * round;
    }
    const double most = fmax(fabs(low - offset), fabs(high - offset));
    const int power = most >= 1e6 || most < 1e-3 ? 3 * (int)floor(log10(most) / 3.0 + 1e-9) : 0,
              fraction = power - (int)floor(log10(step) + 1e-9);
    for (double i = ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
        char plain[40];
        lvni_report_tick *t = add_tick(a, a->log ? log10(i * step) : i * step);
        if (t == NULL) {
            continue;
        }
        const double value = (i * step - offset) / pow(10.0, power);
        lvni_core_format(plain, sizeof plain, "%.*f", fraction > 0 ? fraction : 0,
                         fabs(i * step - offset) < 1e-6 * step ? 0.0 : value);
        append_decimal(t->text, plain);
    }
    char scale[LVNI_NUMBER_TEXT] = "", more[LVNI_NUMBER_TEXT];
    if (power != 0) {
        append(scale, TIMES);
        append_power(scale, power);
    }
    snprintf(a->note, sizeof a->note, "%s%s%s", scale,
             offset == 0.0  ? ""
             : offset < 0.0 ? " " MINUS " "
                            : " + ",
             offset == 0.0 ? "" : lvni_report_axis_number(fabs(offset), 15, more));
}

/* Powers of ten, small ticks between them where they are few, and numbers at 2 and 5 where those
 * are less than two decades. */
static void decades(lvni_report_axis *a)
{
    const double span = a->high - a->low;
    const int stride = (int)ceil(span / 8.0);
    const bool plain = a->low > -4.5 && a->high < 4.5;
    for (int power = (int)floor(a->low); power <= (int)ceil(a->high); power++) {
        for (int k = 1; k <= (span < 8.0 ? 9 : 1); k++) {
            lvni_report_tick *t = add_tick(a, power + log10(k));
            if (t == NULL || (k == 1 ? power % stride != 0 : span >= 2.0 || (k != 2 && k != 5))) {
                continue;
            }
            if (plain) {
                lvni_report_axis_number(k * pow(10.0, power), 6, t->text);
                continue;
            }
            if (k > 1) {
                snprintf(t->text, sizeof t->text, "%d" TIMES, k);
            }
            append_power(t->text, power);
        }
    }
}

void lvni_report_axis_end(lvni_report_axis *a, double margin, int ticks)
{
    if (!(a->low <= a->high)) {
        a->low = 0.0;
        a->high = 1.0;
    }
    /* a constant curve, or one that differs by rounding alone */
    const double size = fmax(fabs(a->low), fabs(a->high));
    if (a->high - a->low <= 1e-12 * size || size < 1e-300) {
        const double more = a->log ? 0.5 : size < 1e-300 ? 1.0 : 0.1 * size;
        a->low -= more;
        a->high += more;
    }
    const double more = margin * (a->high - a->low);
    a->low -= more;
    a->high += more;
    if (a->log && a->high - a->low > 0.7) {
        decades(a);
    } else if (a->log) {
        linear_ticks(a, pow(10.0, a->low), pow(10.0, a->high), ticks);
    } else {
        linear_ticks(a, a->low, a->high, ticks);
    }
}
