/* Scalar functions in double precision that give the same bits on every machine: own polynomials,
 * only + - * / and sqrt (all correctly rounded by IEEE 754), no fused multiply-add. For
 * initialisers, schedules and references; the vector forms in f32 live in kernels/cpu. Accuracy:
 * within 2 units in the last place over the normal range. */
#ifndef LEVIN_CORE_MATH_H
#define LEVIN_CORE_MATH_H

double lvni_core_exp(double x); /* 0 below -745, +inf above 709.78 */
double lvni_core_log(double x); /* -inf at 0, NaN below */
double lvni_core_sqrt(double x);
double lvni_core_cos2pi(double x);        /* cos(2 pi x), |x| < 2^30 */
double lvni_core_pow(double x, double y); /* every special value as C's pow */
double lvni_core_tanh(double x);
double lvni_core_erf(double x);  /* within 12 units */
double lvni_core_erfc(double x); /* 1 - erf(x), with a few digits less than the others below 2 */

/* For text: NaN without its sign, which processors set and printf would write ("-nan"); all else as
 * it is. */
double lvni_core_unsigned_nan(double x);

#endif
