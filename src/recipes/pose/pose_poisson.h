/* Numbers of Poisson's distribution, for the shot noise of clips (pose_clip_augment.c): the same
 * bits on every machine, one of two uniform numbers for each. */
#ifndef LEVIN_RECIPES_POSE_POSE_POISSON_H
#define LEVIN_RECIPES_POSE_POSE_POISSON_H

#include <levin/status.h>

#include <stdint.h>

/* Means below it are drawn by inversion, in two parts: a whole number by a table, the rest term by
 * term; probabilities are right to 2^-30. From it on the number is a normal one with the first term
 * of its skewness (Cornish and Fisher 1938), rounded. */
enum { LVNI_POSE_POISSON_EXACT = 64 };

/* Tables, read-only once they are made. */
typedef struct lvni_pose_poisson lvni_pose_poisson;
lvn_status lvni_pose_poisson_create(lvni_pose_poisson **out);
void lvni_pose_poisson_destroy(lvni_pose_poisson *poisson); /* NULL is fine */
/* u: two uniform numbers of 32 bits. A mean of 0 or less: 0. */
double lvni_pose_poisson_draw(const lvni_pose_poisson *poisson, double mean, const uint32_t u[2]);
/* The number that a standard normal one lies below with probability p, 0 < p < 1, to 1e-6 (Wichura
 * 1988, algorithm AS 241). */
double lvni_pose_normal_quantile(double p);

#endif
