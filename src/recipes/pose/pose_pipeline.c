/* Pipelines of augmentation: names and arguments of operations, which are those of imgaug, the
 * presets, the text that a pipeline is made of, and what is drawn for a frame (pose_augment.h). */
#include "core/alloc.h"
#include "core/json_read.h"
#include "recipes/pose/pose_effects.h"

#include <math.h>
#include <string.h>

#define KEY "training.imgaug"

/* ---- operations and their arguments ---- */

typedef enum argument_type { REAL, WHOLE, CHANCE } argument_type;
enum { ARGUMENTS = 4, CHOICES = 16 };

typedef struct argument_row {
    const char *name;
    argument_type type;
    int values;    /* each drawn for itself */
    double lo, hi; /* where nothing is given; NaN: unset */
    double min, max;
} argument_row;

typedef struct operation_row {
    const char *name;
    lvni_pose_kind kind;
    lvni_pose_effect *effect;
    argument_row argument[ARGUMENTS];
} operation_row;

#define MASK_ARGUMENTS                                                                             \
    {                                                                                              \
        {"p", REAL, 1, 0.02, 0.1, 0.0, 1.0}, {"size_percent", REAL, 2, NAN, NAN, 0.0, 1.0},        \
            {"size_px", WHOLE, 2, 3, 8, 1, 65500}, {"per_channel", CHANCE, 1, 0, 0, 0, 1},         \
    }

static const operation_row operations[] = {
    {"Rot90", LVNI_POSE_ROT90, lvni_pose_rot90, {{"k", WHOLE, 1, 1, 1, -4, 4}}},
    {"Affine",
     LVNI_POSE_AFFINE,
     lvni_pose_affine,
     {{"rotate", REAL, 1, 0, 0, -3600, 3600}, {"scale", REAL, 1, 1, 1, 0.01, 100}}},
    {"Rotate",
     LVNI_POSE_AFFINE,
     lvni_pose_affine,
     {{"rotate", REAL, 1, 0, 360, -3600, 3600}, {"scale", REAL, 1, 1, 1, 0.01, 100}}},
    {"MotionBlur",
     LVNI_POSE_MOTION_BLUR,
     lvni_pose_motion_blur,
     {{"k", WHOLE, 1, 3, 7, 3, 31},
      {"angle", REAL, 1, 0, 360, -3600, 3600},
      {"direction", REAL, 1, -1, 1, -1, 1}}},
    {"CoarseDropout", LVNI_POSE_DROPOUT, lvni_pose_dropout, MASK_ARGUMENTS},
    {"CoarseSalt", LVNI_POSE_SALT, lvni_pose_salt, MASK_ARGUMENTS},
    {"CoarsePepper", LVNI_POSE_PEPPER, lvni_pose_pepper, MASK_ARGUMENTS},
    {"ElasticTransformation",
     LVNI_POSE_ELASTIC,
     lvni_pose_elastic,
     {{"alpha", REAL, 1, 1, 40, 0, 10000}, {"sigma", REAL, 1, 4, 8, 0, 20}}},
    {"AllChannelsHistogramEqualization", LVNI_POSE_EQUALIZE, lvni_pose_equalize, {{0}}},
    {"AllChannelsCLAHE",
     LVNI_POSE_CLAHE,
     lvni_pose_clahe,
     {{"clip_limit", REAL, 1, 0.1, 8, 0.0001, 1000},
      {"tile_grid_size_px", WHOLE, 1, 3, 12, 1, 64}}},
    {"Emboss",
     LVNI_POSE_EMBOSS,
     lvni_pose_emboss,
     {{"alpha", REAL, 1, 0, 1, 0, 1}, {"strength", REAL, 1, 0.25, 1, 0, 100}}},
    {"CropAndPad",
     LVNI_POSE_CROP_AND_PAD,
     lvni_pose_crop_and_pad,
     {{"percent", REAL, 4, 0, 0, -0.49, 1}, {"keep_size", CHANCE, 1, 1, 1, 0, 1}}},
    {"Fliplr", LVNI_POSE_FLIPLR, lvni_pose_fliplr, {{"p", CHANCE, 1, 1, 1, 0, 1}}},
};
enum { ROWS = sizeof operations / sizeof *operations };

/* ---- presets, as the maps that a user could write ---- */

#define ROTATE "\"Affine\": {\"p\": 0.4, \"kwargs\": {\"rotate\": [-25, 25]}}, "
#define MASK(name, p, size, more)                                                                  \
    "\"" name "\": {\"p\": 0.5, \"kwargs\": {\"p\": " p ", \"size_percent\": " size more "}}, "
#define NOISE                                                                                      \
    "\"MotionBlur\": {\"p\": 0.5, \"kwargs\": {\"k\": 5, \"angle\": [-90, 90]}}, " MASK(           \
        "CoarseDropout", "0.02", "0.3", ", \"per_channel\": 0.5")                                  \
        MASK("CoarseSalt", "0.01", "[0.05, 0.1]", "")                                              \
            MASK("CoarsePepper", "0.01", "[0.05, 0.1]", "")
#define WARP                                                                                       \
    "\"ElasticTransformation\": {\"p\": 0.5, \"kwargs\": {\"alpha\": [0, 10], \"sigma\": 5}}, "
#define CONTRAST                                                                                   \
    "\"AllChannelsHistogramEqualization\": {\"p\": 0.1}, \"AllChannelsCLAHE\": {\"p\": 0.1}, "     \
    "\"Emboss\": {\"p\": 0.1, \"kwargs\": {\"alpha\": [0, 0.5], \"strength\": [0.5, 1.5]}}"
#define CROP                                                                                       \
    ", \"CropAndPad\": {\"p\": 0.4, \"kwargs\": {\"percent\": [-0.15, 0.15], \"keep_size\": "      \
    "false}}"
#define DLC ROTATE NOISE WARP CONTRAST CROP
#define TURN(k) "\"Rot90\": {\"p\": 1.0, \"kwargs\": {\"k\": [[" k "]]}}, "

static const struct {
    const char *name, *text;
} presets[] = {
    {"default", "{}"},
    {"none", "{}"},
    {"dlc", "{" DLC "}"},
    {"dlc-lr", "{" TURN("0, 2") DLC "}"},
    {"dlc-top-down", "{" TURN("0, 1, 2, 3") DLC "}"},
    {"dlc-mv", "{" NOISE CONTRAST "}"},
};

/* ---- a pipeline ---- */

/* A range, or a list to choose from. */
typedef struct argument {
    double lo, hi, choice[CHOICES];
    int n; /* choices; 0: a range */
} argument;

typedef struct operation {
    const operation_row *row;
    int before; /* operations of the kind that stand before it */
    double p;
    argument argument[ARGUMENTS];
} operation;

struct lvni_pose_pipeline {
    int width, height, n;
    bool hflip;
    operation operation[LVNI_POSE_OPERATIONS];
};

void lvni_pose_pipeline_free(lvni_pose_pipeline *pipeline)
{
    lvni_core_free(pipeline);
}

bool lvni_pose_pipeline_flips(const lvni_pose_pipeline *pipeline)
{
    return pipeline->hflip;
}

/* ---- reading ---- */

static lvn_status refuse_operation(const char *name)
{
    lvni_core_str known = {0};
    for (int i = 0; i < ROWS; i++) {
        lvni_core_str_printf(&known, "%s%s", i > 0 ? ", " : "", operations[i].name);
    }
    const lvn_status s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                                       KEY ": there is no operation %.64s; use %s", name,
                                       lvni_core_str_text(&known));
    lvni_core_str_free(&known);
    return s;
}

static lvn_status refuse_argument(const operation_row *row, const char *name)
{
    lvni_core_str known = {0};
    for (int i = 0; i < ARGUMENTS && row->argument[i].name != NULL; i++) {
        lvni_core_str_printf(&known, "%s%s", i > 0 ? ", " : "", row->argument[i].name);
    }
    const lvn_status s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                                       KEY ": %s has no argument %.64s; it has %s", row->name, name,
                                       known.len > 0 ? lvni_core_str_text(&known) : "none");
    lvni_core_str_free(&known);
    return s;
}

static lvn_status read_number(const operation_row *row, const argument_row *a, const json_t *value,
                              double *out)
{
    if (!json_is_number(value) && !json_is_boolean(value) && a->type == CHANCE) {
        LVN_FAIL(LVN_ERR_USAGE, KEY ": %s.%s must be true, false or one probability from 0 to 1",
                 row->name, a->name);
    }
    if (!json_is_number(value) && !json_is_boolean(value)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 KEY ": %s.%s must be a number, a range [from, to] or a choice [[a, b, c]]",
                 row->name, a->name);
    }
    *out = json_is_boolean(value) ? (double)json_is_true(value) : json_number_value(value);
    if (!(*out >= a->min && *out <= a->max) || (a->type == WHOLE && *out != floor(*out))) {
        LVN_FAIL(LVN_ERR_USAGE, KEY ": %s.%s is %g; it must be %s from %g to %g", row->name,
                 a->name, *out, a->type == WHOLE ? "a whole number" : "a number", a->min, a->max);
    }
    return LVN_OK;
}

static lvn_status read_choice(const operation_row *row, const argument_row *a, const json_t *list,
                              argument *out)
{
    const size_t n = json_array_size(list);
    if (n < 1 || n > CHOICES) {
        LVN_FAIL(LVN_ERR_USAGE, KEY ": %s.%s is a choice of %zu; 1 to %d are possible", row->name,
                 a->name, n, (int)CHOICES);
    }
    for (size_t i = 0; i < n; i++) {
        LVN_TRY(read_number(row, a, json_array_get(list, i), &out->choice[i]));
    }
    out->n = (int)n;
    return LVN_OK;
}

/* ranges: a list of two is a range, as in `kwargs`, where a choice of two is [[a, b]]. */
static lvn_status read_argument(const operation_row *row, const argument_row *a,
                                const json_t *value, bool ranges, argument *out)
{
    *out = (argument){.n = 0};
    if (!json_is_array(value) || a->type == CHANCE) {
        LVN_TRY(read_number(row, a, value, &out->lo));
        out->hi = out->lo;
        return LVN_OK;
    }
    const json_t *first = json_array_get(value, 0);
    if (json_array_size(value) == 1 && json_is_array(first)) {
        return read_choice(row, a, first, out);
    }
    if (json_array_size(value) != 2 || !ranges) {
        return read_choice(row, a, value, out);
    }
    LVN_TRY(read_number(row, a, first, &out->lo));
    LVN_TRY(read_number(row, a, json_array_get(value, 1), &out->hi));
    if (out->lo > out->hi) {
        const double lo = out->hi;
        out->hi = out->lo;
        out->lo = lo;
    }
    return LVN_OK;
}

static lvn_status read_kwargs(json_t *kwargs, operation *o)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)kwargs, name, value)
    {
        int i = 0;
        while (i < ARGUMENTS && o->row->argument[i].name != NULL &&
               strcmp(o->row->argument[i].name, name) != 0) {
            i++;
        }
        if (i == ARGUMENTS || o->row->argument[i].name == NULL) {
            return refuse_argument(o->row, name);
        }
        LVN_TRY(read_argument(o->row, &o->row->argument[i], value, true, &o->argument[i]));
    }
    return LVN_OK;
}

static lvn_status read_args(const json_t *args, operation *o)
{
    for (size_t i = 0; i < json_array_size(args); i++) {
        if (i == ARGUMENTS || o->row->argument[i].name == NULL) {
            LVN_FAIL(LVN_ERR_USAGE, KEY ": %s.args has %zu values; the operation takes %zu",
                     o->row->name, json_array_size(args), i);
        }
        LVN_TRY(read_argument(o->row, &o->row->argument[i], json_array_get(args, i), false,
                              &o->argument[i]));
    }
    return LVN_OK;
}

/* The three entries that an operation may have. */
static lvn_status read_entries(json_t *map, operation *o)
{
    const char *name;
    json_t *value;
    const json_t *p = json_object_get(map, "p");
    const bool is_map = json_is_object(map) || json_is_null(map);
    json_object_foreach((json_t *)map, name, value)
    {
        const bool args = strcmp(name, "args") == 0, kwargs = strcmp(name, "kwargs") == 0;
        if ((args && !json_is_array(value)) || (kwargs && !json_is_object(value)) ||
            (!args && !kwargs && strcmp(name, "p") != 0)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     KEY ": %s.%.64s: an operation has p, args (a list) and kwargs (a map)",
                     o->row->name, name);
        }
    }
    o->p = p == NULL ? 0.5 : json_number_value(p);
    if (!is_map || (p != NULL && !json_is_number(p)) || !(o->p >= 0.0 && o->p <= 1.0)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 KEY ": %s needs a map with its probability p, from 0 to 1: {p: 0.5, kwargs: {}}",
                 o->row->name);
    }
    LVN_TRY(read_args(json_object_get(map, "args"), o));
    return read_kwargs(json_object_get(map, "kwargs"), o);
}

static lvn_status add_operation(lvni_pose_pipeline *p, const char *name, json_t *map)
{
    const operation_row *row = NULL;
    for (int i = 0; i < ROWS; i++) {
        row = strcmp(operations[i].name, name) == 0 ? &operations[i] : row;
    }
    if (row == NULL) {
        return refuse_operation(name);
    }
    operation *o = &p->operation[p->n];
    *o = (operation){.row = row};
    for (int i = 0; i < p->n; i++) {
        o->before += p->operation[i].row->kind == row->kind;
    }
    for (int i = 0; i < ARGUMENTS && row->argument[i].name != NULL; i++) {
        o->argument[i] = (argument){.lo = row->argument[i].lo, .hi = row->argument[i].hi};
    }
    LVN_TRY(read_entries(map, o));
    p->n += o->p > 0.0;
    return LVN_OK;
}

/* An object has each name once, so there are never more operations than rows. */
_Static_assert((int)ROWS <= (int)LVNI_POSE_OPERATIONS, "every operation has room");

static lvn_status read_map(lvni_pose_pipeline *p, const char *text)
{
    json_t *map;
    LVN_TRY(lvni_core_json_read(KEY, "the map of operations", text, strlen(text), 0, LVNI_JSON_FILE,
                                &map));
    lvn_status s = LVN_OK;
    if (!json_is_object(map)) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          KEY " must be a preset or a map of operations");
    }
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        s = s == LVN_OK ? add_operation(p, name, value) : s;
    }
    json_decref(map);
    return s;
}

static lvn_status read_text(lvni_pose_pipeline *p, const char *text)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(text, presets[i].name) == 0) {
            return read_map(p, presets[i].text);
        }
    }
    if (strchr(text, '{') != NULL) {
        return read_map(p, text);
    }
    LVN_FAIL(LVN_ERR_USAGE,
             KEY "=%.64s: use default, none, dlc, dlc-lr, dlc-top-down, dlc-mv or a map of "
                 "operations",
             text);
}

lvn_status lvni_pose_pipeline_make(const char *imgaug, int height, int width, bool hflip,
                                   lvni_pose_pipeline **out)
{
    *out = NULL;
    lvni_pose_pipeline *p = LVNI_NEW(LVNI_TAG_DATA, lvni_pose_pipeline);
    LVN_TRY(p == NULL ? LVN_ERR_MEMORY : LVN_OK);
    p->height = height;
    p->width = width;
    p->hflip = hflip;
    const lvn_status s = read_text(p, imgaug);
    if (s != LVN_OK) {
        lvni_pose_pipeline_free(p);
        return s;
    }
    *out = p;
    return LVN_OK;
}

/* ---- drawing and rendering ---- */

static double uniform(const lvni_core_rng *rng, uint64_t element)
{
    return lvni_core_rng_u32(rng, element) * 0x1p-32;
}

static double draw_value(const argument_row *row, const argument *a, double u)
{
    if (row->type == CHANCE) {
        return u < a->lo ? 1.0 : 0.0;
    }
    if (a->n > 0) {
        return a->choice[(int)(u * a->n)];
    }
    return row->type == WHOLE ? a->lo + floor(u * (a->hi - a->lo + 1.0))
                              : a->lo + u * (a->hi - a->lo);
}

static void draw_operation(const operation *o, lvni_core_rng rng, lvni_pose_drawn *out)
{
    rng.c = (uint32_t)o->row->kind + 256U * (uint32_t)o->before;
    *out = (lvni_pose_drawn){.kind = o->row->kind, .rng = rng, .fires = uniform(&rng, 0) < o->p};
    uint64_t element = 1;
    for (int i = 0; i < ARGUMENTS && o->row->argument[i].name != NULL; i++) {
        for (int v = 0; v < o->row->argument[i].values; v++, element++) {
            out->value[element - 1] =
                draw_value(&o->row->argument[i], &o->argument[i], uniform(&rng, element));
        }
    }
}

void lvni_pose_pipeline_draw(const lvni_pose_pipeline *pipeline, const lvn_sample_key *key,
                             lvni_pose_draw *out)
{
    lvni_core_rng rng = {lvni_core_rng_make_key(key->seed, lvni_core_rng_purpose("data/pose")),
                         key->epoch, (uint32_t)key->sample, LVNI_POSE_HFLIP};
    out->n = pipeline->n;
    out->hflip = pipeline->hflip && uniform(&rng, 0) < 0.5;
    for (int i = 0; i < pipeline->n; i++) {
        draw_operation(&pipeline->operation[i], rng, &out->step[i]);
    }
}

lvn_status lvni_pose_pipeline_render(const lvni_pose_pipeline *pipeline, const lvni_pose_draw *draw,
                                     lvni_pose_work *work, lvni_pose_frame *frame)
{
    for (int i = 0; i < draw->n; i++) {
        if (draw->step[i].fires) {
            LVN_TRY(pipeline->operation[i].row->effect(work, frame, &draw->step[i]));
        }
    }
    LVN_TRY(lvni_pose_resize(work, frame, pipeline->width, pipeline->height));
    return draw->hflip ? lvni_pose_mirror(work, frame) : LVN_OK;
}
