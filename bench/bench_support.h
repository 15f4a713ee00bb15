/* What the bench programs share: images of noise as a dataset, medians, and how much of the
 * machine others used. */
#ifndef LEVIN_BENCH_SUPPORT_H
#define LEVIN_BENCH_SUPPORT_H

#include <levin/data.h>

#include <stdio.h>

/* Samples that cost no more than a copy: side x side x 3 normal numbers, made once, and the label
 * sample % n_classes. */
typedef struct bench_noise {
    lvn_dataset base;
    int side;
    int64_t samples;
    float *pixels; /* sample i begins at pixel i: they overlap */
} bench_noise;

lvn_status bench_noise_open(bench_noise *noise, int side, int64_t samples, int n_classes);
void bench_noise_close(bench_noise *noise);

/* Sorts values; the one in the middle. */
double bench_median(double *values, int n);

int bench_cores(void);           /* that this process may use */
double bench_used_by_us_s(void); /* seconds of all cores, of this process alone */
/* Seconds of all cores used by other programs since the last call (0 where the system does not
 * report it). */
double bench_used_by_others_s(void);
/* Largest resident memory of a process (0: this one) in MB; 0 where the system does not report it.
 */
double bench_peak_mb(int pid);
/* Of this process from now on, where the system can. */
void bench_forget_peak(void);

/* The machine and compiler as two lines of text: for reports and, beginning with {, for a JSON
 * file. */
void bench_describe(FILE *report, FILE *json);

#endif
