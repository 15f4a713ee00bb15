/* Outlines (shapes_outline.h). Only + - * / and square root, so that every machine draws the same
 * image. */
#include "data/shapes_outline.h"

#include "core/math.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

const char *const lvni_data_shapes_names[10] = {"circle", "square", "triangle", "star",
                                                "cross",  "ring",   "crescent", "diamond",
                                                "heart",  "hexagon"};

enum {
    CIRCLE,
    SQUARE,
    TRIANGLE,
    STAR,
    CROSS,
    RING,
    CRESCENT,
    DIAMOND,
    HEART,
    HEXAGON,
    MAX_CORNERS = 12
};

typedef struct polygon {
    int n;
    float x[MAX_CORNERS], y[MAX_CORNERS];
} polygon;

static polygon triangle, star, hexagon;
static pthread_once_t polygons_once = PTHREAD_ONCE_INIT;
static const polygon diamond = {4, {0.0f, 0.45f, 0.0f, -0.45f}, {-1.0f, 0.0f, 1.0f, 0.0f}};
static const polygon cross = {
    12,
    {-0.26f, 0.26f, 0.26f, 0.94f, 0.94f, 0.26f, 0.26f, -0.26f, -0.26f, -0.94f, -0.94f, -0.26f},
    {-0.94f, -0.94f, -0.26f, -0.26f, 0.26f, 0.26f, 0.94f, 0.94f, 0.26f, 0.26f, -0.26f, -0.26f}};

/* n corners around the circle, alternately at radius `outer` and `inner`. */
static void polygon_make(polygon *p, int n, double outer, double inner)
{
    p->n = n;
    for (int i = 0; i < n; i++) {
        const double radius = i % 2 == 0 ? outer : inner, turn = (double)i / n;
        p->x[i] = (float)(radius * lvni_core_cos2pi(turn - 0.25));
        p->y[i] = (float)(radius * lvni_core_cos2pi(turn));
    }
}

static void polygons_make(void)
{
    polygon_make(&triangle, 3, 0.98, 0.98);
    polygon_make(&star, 10, 1.0, 0.42);
    polygon_make(&hexagon, 6, 0.92, 0.92);
}

static float smaller(float a, float b)
{
    return a < b ? a : b;
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* The nearest point of the nearest edge; inside if a ray to the right crosses an odd number of
 * edges. */
static float polygon_distance(const polygon *p, float x, float y)
{
    float nearest = 1e30f;
    bool inside = false;
    for (int i = 0, j = p->n - 1; i < p->n; j = i++) {
        const float ex = p->x[j] - p->x[i], ey = p->y[j] - p->y[i];
        const float wx = x - p->x[i], wy = y - p->y[i];
        const float along = (wx * ex + wy * ey) / (ex * ex + ey * ey);
        const float t = along < 0.0f ? 0.0f : along > 1.0f ? 1.0f : along;
        const float dx = wx - ex * t, dy = wy - ey * t;
        nearest = smaller(nearest, dx * dx + dy * dy);
        if ((p->y[i] > y) != (p->y[j] > y) && wx < ex * (wy / ey)) {
            inside = !inside;
        }
    }
    return inside ? -sqrtf(nearest) : sqrtf(nearest);
}

static float circle_distance(float x, float y, float cx, float cy, float radius)
{
    return sqrtf((x - cx) * (x - cx) + (y - cy) * (y - cy)) - radius;
}

static float square_distance(float x, float y, float half)
{
    return larger(x < 0.0f ? -x : x, y < 0.0f ? -y : y) - half;
}

/* A square on its corner with half discs on its two upper sides. */
static float heart_distance(float x, float y)
{
    const float half = 0.46f, s = 0.70710678f, v = y + 0.1f; /* y points down: the tip is below */
    const float tilted = square_distance((x + v) * s, (x - v) * s, half);
    const float c = half * s;
    return smaller(
        tilted, smaller(circle_distance(x, v, c, -c, half), circle_distance(x, v, -c, -c, half)));
}

float lvni_data_shapes_distance(int shape, float x, float y)
{
    pthread_once(&polygons_once, polygons_make);
    switch (shape) {
    case CIRCLE: return circle_distance(x, y, 0.0f, 0.0f, 0.85f);
    case SQUARE: return square_distance(x, y, 0.7f);
    case TRIANGLE: return polygon_distance(&triangle, x, y);
    case STAR: return polygon_distance(&star, x, y);
    case CROSS: return polygon_distance(&cross, x, y);
    case RING:
        return larger(circle_distance(x, y, 0.0f, 0.0f, 0.9f),
                      -circle_distance(x, y, 0.0f, 0.0f, 0.5f));
    case CRESCENT:
        return larger(circle_distance(x, y, 0.0f, 0.0f, 0.95f),
                      -circle_distance(x, y, 0.5f, 0.0f, 0.75f));
    case DIAMOND: return polygon_distance(&diamond, x, y);
    case HEART: return heart_distance(x, y);
    default: return polygon_distance(&hexagon, x, y);
    }
}
