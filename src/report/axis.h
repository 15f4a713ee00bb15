/* Axes: a range, ticks at round numbers, and how numbers are written. Called by plot.c, matrix.c
 * and the figures of the gan recipe. */
#ifndef LEVIN_REPORT_AXIS_H
#define LEVIN_REPORT_AXIS_H

#include <levin/status.h>

enum { LVNI_AXIS_TICKS = 64, LVNI_NUMBER_TEXT = 48 };

typedef struct lvni_report_tick {
    double at;                   /* between low and high */
    char text[LVNI_NUMBER_TEXT]; /* "": a small tick of a logarithmic axis */
} lvni_report_tick;

typedef struct lvni_report_axis {
    double low, high; /* of a logarithmic axis: powers of ten */
    bool log;
    bool whole; /* set by the caller, true as long as values are whole numbers: so are ticks */
    lvni_report_tick tick[LVNI_AXIS_TICKS];
    int n_ticks;
    char note[2 * LVNI_NUMBER_TEXT]; /* what ticks are to be multiplied with and added to, or "" */
} lvni_report_axis;

/* Before its values: an empty range. */
void lvni_report_axis_begin(lvni_report_axis *a, bool log);
/* Where a value is on it; NAN: nowhere (not finite, or not above 0 on a logarithmic axis). */
double lvni_report_axis_place(const lvni_report_axis *a, double value);
void lvni_report_axis_widen(lvni_report_axis *a, double value);
/* Ends the range, with this share of it on both sides, and makes about `ticks` ticks. */
void lvni_report_axis_end(lvni_report_axis *a, double margin, int ticks);

/* %.<digits>g with a minus sign, a power of ten with a superscript, and thousands apart. */
const char *lvni_report_axis_number(double value, int digits, char text[LVNI_NUMBER_TEXT]);

#endif
