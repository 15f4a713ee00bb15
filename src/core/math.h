/* Scalar functions in double precision that give the same bits on every machine: own polynomials, only + - * / and
 * sqrt (all correctly rounded by IEEE 754), no fused multiply-add. For initialisers, schedules and references; the vector
 * forms in f32 live in kernels/cpu. Accuracy: within 2 units in the last place over the normal range. */
#ifndef LEVIN_CORE_MATH_H
#define LEVIN_CORE_MATH_H

double lvni_exp(double x);   /* 0 below -745, +inf above 709.78 */
double lvni_log(double x);   /* -inf at 0, NaN below */
double lvni_sqrt(double x);
double lvni_cos2pi(double x); /* cos(2 pi x), |x| < 2^30 */
double lvni_pow(double x, double y); /* x > 0: exp(y log x); relative error about |y log x| * 2^-52 */

#endif
