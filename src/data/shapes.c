/* builtin:shapes (shapes.h): the outlines of ten shapes, the drawing of one image, and the dataset
 * over them. The shape of an image differs from its ground by at least MIN_CONTRAST; place, turn
 * and colours vary, and faint lines and dots stay closer to the ground than the shape does. */
#include "data/shapes.h"

#include "core/alloc.h"
#include "core/math.h"
#include "core/rng.h"
#include "data/dataset.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* ---- outlines: + - * / and square root alone, so that every machine draws the same image ---- */

static const char *const names[10] = {"circle", "square",   "triangle", "star",  "cross",
                                      "ring",   "crescent", "diamond",  "heart", "hexagon"};

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

/* ---- drawing one image: ground with a gradient, lines and dots, the shape, noise ---- */

static const float MIN_CONTRAST = 0.3f; /* of grey in 0..1 */
static const float NOISE = 0.05f;       /* each channel moves by up to this much */

/* Random numbers in the order of drawing. */
typedef struct dice {
    lvni_core_rng rng;
    uint64_t next;
} dice;

typedef struct colour {
    float c[3]; /* 0..1 */
} colour;

typedef struct canvas {
    uint8_t *rgb;
    int size;
} canvas;

static float roll(dice *d, float from, float to)
{
    return from + lvni_core_rng_uniform(&d->rng, d->next++) * (to - from);
}

static float grey(const colour *a)
{
    return (0.299f * a->c[0] + 0.587f * a->c[1]) + 0.114f * a->c[2];
}

static colour roll_colour(dice *d)
{
    colour a;
    for (int k = 0; k < 3; k++) {
        a.c[k] = roll(d, 0.0f, 1.0f);
    }
    return a;
}

static colour mix(const colour *a, const colour *b, float t)
{
    colour m;
    for (int k = 0; k < 3; k++) {
        m.c[k] = a->c[k] + (b->c[k] - a->c[k]) * t;
    }
    return m;
}

/* A colour that differs enough in grey from both; after eight tries black or white, the farther of
 * the two. */
static colour roll_contrast(dice *d, const colour *a, const colour *b)
{
    const float ga = grey(a), gb = grey(b);
    for (int i = 0; i < 8; i++) {
        const colour c = roll_colour(d);
        const float g = grey(&c);
        if (fabsf(g - ga) >= MIN_CONTRAST && fabsf(g - gb) >= MIN_CONTRAST) {
            return c;
        }
    }
    const float v = ga + gb > 1.0f ? 0.0f : 1.0f;
    return (colour){{v, v, v}};
}

static uint8_t to_byte(float v)
{
    const float x = v * 255.0f + 0.5f;
    return (uint8_t)(x < 0.0f ? 0.0f : x > 255.0f ? 255.0f : x);
}

static void blend(uint8_t *p, const colour *c, float cover)
{
    for (int k = 0; k < 3; k++) {
        const float old = (float)p[k] * (1.0f / 255.0f);
        p[k] = to_byte(old + (c->c[k] - old) * cover);
    }
}

/* How much of a pixel lies inside an outline at signed distance d (pixels). */
static float coverage(float d)
{
    const float v = 0.5f - d;
    return v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
}

static void unit_vector(dice *d, float *x, float *y)
{
    const double turn = (double)roll(d, 0.0f, 1.0f);
    *x = (float)lvni_core_cos2pi(turn);
    *y = (float)lvni_core_cos2pi(turn - 0.25);
}

static void draw_ground(const canvas *v, const colour *a, const colour *b, float dx, float dy)
{
    const float step = 1.0f / (float)v->size;
    for (int y = 0; y < v->size; y++) {
        for (int x = 0; x < v->size; x++) {
            const float px = ((float)x + 0.5f) * step - 0.5f, py = ((float)y + 0.5f) * step - 0.5f;
            const float t = (px * dx + py * dy) * 0.7f + 0.5f; /* |.| <= 0.5 sqrt 2 */
            const colour c = mix(a, b, t);
            uint8_t *p = v->rgb + 3 * ((int64_t)y * v->size + x);
            for (int k = 0; k < 3; k++) {
                p[k] = to_byte(c.c[k]);
            }
        }
    }
}

static void draw_line(const canvas *v, dice *d, const colour *ground)
{
    const float cx = roll(d, 0.0f, 1.0f) * (float)v->size,
                cy = roll(d, 0.0f, 1.0f) * (float)v->size;
    float nx, ny;
    unit_vector(d, &nx, &ny);
    const float half = roll(d, 0.008f, 0.02f) * (float)v->size;
    const colour own = roll_colour(d), c = mix(ground, &own, 0.4f);
    for (int y = 0; y < v->size; y++) {
        for (int x = 0; x < v->size; x++) {
            const float across = ((float)x + 0.5f - cx) * nx + ((float)y + 0.5f - cy) * ny;
            const float cover = coverage(fabsf(across) - half);
            if (cover > 0.0f) {
                blend(v->rgb + 3 * ((int64_t)y * v->size + x), &c, cover);
            }
        }
    }
}

static void draw_dot(const canvas *v, dice *d, const colour *ground)
{
    const float cx = roll(d, 0.0f, 1.0f) * (float)v->size,
                cy = roll(d, 0.0f, 1.0f) * (float)v->size;
    const float radius = roll(d, 0.02f, 0.05f) * (float)v->size;
    const colour own = roll_colour(d), c = mix(ground, &own, 0.4f);
    const int x0 = (int)(cx - radius - 1.0f), y0 = (int)(cy - radius - 1.0f);
    const int reach = (int)(2.0f * radius) + 4;
    for (int y = y0 < 0 ? 0 : y0; y < v->size && y < y0 + reach; y++) {
        for (int x = x0 < 0 ? 0 : x0; x < v->size && x < x0 + reach; x++) {
            const float dx = (float)x + 0.5f - cx, dy = (float)y + 0.5f - cy;
            const float cover = coverage(sqrtf(dx * dx + dy * dy) - radius);
            if (cover > 0.0f) {
                blend(v->rgb + 3 * ((int64_t)y * v->size + x), &c, cover);
            }
        }
    }
}

static void draw_shape(const canvas *v, dice *d, int shape, const colour *c)
{
    const float size = (float)v->size;
    const float radius = roll(d, 0.26f, 0.4f);
    const float cx = roll(d, radius, 1.0f - radius) * size,
                cy = roll(d, radius, 1.0f - radius) * size;
    float ux, uy;
    unit_vector(d, &ux, &uy);
    const float r = radius * size, reach = (r + 1.0f) * (r + 1.0f);
    for (int y = 0; y < v->size; y++) {
        for (int x = 0; x < v->size; x++) {
            const float dx = (float)x + 0.5f - cx, dy = (float)y + 0.5f - cy;
            if (dx * dx + dy * dy > reach) {
                continue;
            }
            const float sx = (dx * ux + dy * uy) / r, sy = (dy * ux - dx * uy) / r;
            const float cover = coverage(lvni_data_shapes_distance(shape, sx, sy) * r);
            if (cover > 0.0f) {
                blend(v->rgb + 3 * ((int64_t)y * v->size + x), c, cover);
            }
        }
    }
}

/* Four random bytes per pixel: one per channel, one unused. */
static void draw_noise(const canvas *v, lvni_core_rng rng)
{
    rng.c = 2;
    const int64_t n = (int64_t)v->size * v->size;
    for (int64_t i = 0; i < n; i += 4) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), rng.c, rng.b, rng.a};
        uint32_t random[4];
        lvni_core_philox(counter, rng.key.k, random);
        for (int64_t j = i; j < n && j < i + 4; j++) {
            uint8_t *p = v->rgb + 3 * j;
            for (int k = 0; k < 3; k++) {
                const float u = (float)((random[j - i] >> (8 * k)) & 255u) * (2.0f / 255.0f) - 1.0f;
                p[k] = to_byte((float)p[k] * (1.0f / 255.0f) + u * NOISE);
            }
        }
    }
}

void lvni_data_shapes_draw(uint64_t seed, int64_t sample, int classes, int size, uint8_t *rgb)
{
    dice d = {
        {lvni_core_rng_make_key(seed, lvni_core_rng_purpose("shapes")), 0, (uint32_t)sample, 1}, 0};
    const canvas v = {rgb, size};
    const colour ground = roll_colour(&d), other = roll_colour(&d);
    const colour far_ground = mix(&ground, &other, 0.35f);
    const colour own = roll_contrast(&d, &ground, &far_ground);
    float dx, dy;
    unit_vector(&d, &dx, &dy);
    draw_ground(&v, &ground, &far_ground, dx, dy);
    const int lines = (int)roll(&d, 0.0f, 4.0f), dots = (int)roll(&d, 0.0f, 6.0f);
    for (int i = 0; i < lines; i++) {
        draw_line(&v, &d, &ground);
    }
    for (int i = 0; i < dots; i++) {
        draw_dot(&v, &d, &ground);
    }
    draw_shape(&v, &d, (int)(sample % classes), &own);
    draw_noise(&v, d.rng);
}

/* ---- the dataset ---- */

typedef struct shapes {
    lvn_dataset base;
    lvni_data_shapes_options options;
    lvni_data_subset subset;
    lvni_data_views views;
} shapes;

static const shapes *shapes_of(const lvn_dataset *dataset)
{
    return (const shapes *)dataset;
}

static int shapes_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    return lvni_data_views_fields(&shapes_of(dataset)->views, dataset->n_classes > 0, out);
}

static int64_t shapes_length(const lvn_dataset *dataset)
{
    return shapes_of(dataset)->subset.n;
}

static int64_t shapes_index(const lvn_dataset *dataset, int64_t position)
{
    return lvni_data_subset_at(&shapes_of(dataset)->subset, position);
}

static int64_t shapes_label(const lvn_dataset *dataset, int64_t sample)
{
    return dataset->n_classes == 0 ? -1 : sample % shapes_of(dataset)->options.classes;
}

static lvn_status shapes_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    const shapes *s = shapes_of(dataset);
    LVN_ARG(key->sample >= 0 && key->sample < s->options.count, "sample %lld of %lld was asked for",
            (long long)key->sample, (long long)s->options.count);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    if (scratch == NULL) {
        return LVN_ERR_MEMORY;
    }
    const int size = s->options.side > 0 ? s->options.side : lvni_data_views_side(&s->views);
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, (size_t)size * (size_t)size * 3));
    lvni_data_shapes_draw(s->options.seed, key->sample, s->options.classes, size,
                          scratch->pixels.data);
    lvni_data_image image = {
        .rgb = scratch->pixels.data, .width = size, .height = size, .scale = 1.0};
    const lvni_data_image_info info = {
        .format = LVNI_IMAGE_PNG, .width = size, .height = size, .orientation = 1};
    const bool labelled = dataset->n_classes > 0;
    lvni_data_views_drawn drawn;
    LVN_TRY(lvni_data_image_convert(scratch, lvni_data_views_channels(&s->views), &image));
    LVN_TRY(lvni_data_views_draw(&s->views, key, &info, &drawn));
    LVN_TRY(lvni_data_views_render(scratch, &s->views, &drawn, &image, &info, labelled, field));
    if (labelled) {
        const int64_t label = shapes_label(dataset, key->sample);
        memcpy(field[1], &label, sizeof label);
    }
    return LVN_OK;
}

static void shapes_destroy(lvn_dataset *dataset)
{
    shapes *s = (shapes *)dataset;
    lvni_data_subset_free(&s->subset);
    lvni_core_free(s);
}

static const lvn_dataset_class shapes_class = {
    .name = "builtin:shapes",
    .fields = shapes_fields,
    .length = shapes_length,
    .get = shapes_get,
    .destroy = shapes_destroy,
    .label = shapes_label,
    .index = shapes_index,
};

void lvni_data_shapes_transform_init(lvni_data_transform *t, int size)
{
    lvni_data_transform_init(t, size);
    lvni_data_transform_no_augment(t);
    t->eval_resize = size;
}

static lvn_status check(const lvni_data_shapes_options *o)
{
    if (o->count < 1 || o->count > (int64_t)UINT32_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "data.count is %lld; builtin:shapes has 1 to 4294967295 images",
                 (long long)o->count);
    }
    if (o->classes < LVNI_SHAPES_MIN_CLASSES || o->classes > LVNI_SHAPES_MAX_CLASSES) {
        LVN_FAIL(LVN_ERR_USAGE, "data.classes is %d; builtin:shapes has %d to %d classes",
                 o->classes, LVNI_SHAPES_MIN_CLASSES, LVNI_SHAPES_MAX_CLASSES);
    }
    LVN_ARG(o->side >= 0 && o->side <= LVNI_RESAMPLE_MAX_SIDE,
            "images of builtin:shapes have sides of up to %d pixels, not %d",
            LVNI_RESAMPLE_MAX_SIDE, o->side);
    return LVN_OK;
}

const char *lvni_data_shapes_name(int number)
{
    return names[number];
}

lvn_status lvni_data_shapes_create(const lvni_data_shapes_options *options, const int64_t *indices,
                                   int64_t n, const lvni_data_views *views, lvn_dataset **out)
{
    *out = NULL;
    lvni_data_shapes_options o = *options;
    o.count = o.count == 0 ? LVNI_SHAPES_DEFAULT_COUNT : o.count;
    o.classes = o.classes == 0 ? LVNI_SHAPES_DEFAULT_CLASSES : o.classes;
    LVN_TRY(check(&o));
    LVN_TRY(lvni_data_views_check(views, !o.flat));
    shapes *s = LVNI_NEW(LVNI_TAG_DATA, shapes);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->base = (lvn_dataset){
        .cls = &shapes_class, .n_classes = o.flat ? 0 : o.classes, .class_names = names};
    s->options = o;
    s->views = *views;
    const lvn_status status = lvni_data_subset_create(indices, n, o.count, &s->subset);
    if (status != LVN_OK) {
        shapes_destroy(&s->base);
        return status;
    }
    *out = &s->base;
    return LVN_OK;
}
