/* The trials of a space (sweep_space.h): all in the order of a grid, or drawn. */
#include "sweep/sweep_space.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- what is there already ---- */

/* Hashes of trials; an empty place is 0. */
typedef struct seen {
    uint64_t *places;
    uint64_t mask;
    int64_t n;
    bool *passed_over; /* columns that do not count: in a grid those that each trial draws */
} seen;

static uint64_t hash_of(char *const *values, int64_t n, const bool *passed_over)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t k = 0; k < n; k++) {
        const char *text = passed_over[k] ? NULL : values[k];
        for (const char *p = text; p != NULL && *p != '\0'; p++) {
            h = (h ^ (unsigned char)*p) * 0x100000001b3u;
        }
        h = (h ^ (text == NULL ? 0x101u : 0x100u)) * 0x100000001b3u; /* no byte of a text */
    }
    h ^= h >> 29;
    return h == 0 ? 1 : h;
}

/* The place of this one; where it is not there, an empty one. */
static uint64_t place_of(const seen *s, uint64_t hash)
{
    uint64_t at = hash & s->mask;
    while (s->places[at] != 0 && s->places[at] != hash) {
        at = (at + 1) & s->mask;
    }
    return at;
}

/* Twice the room where a half is used. */
static lvn_status grow(seen *s)
{
    seen next = {.mask = s->places == NULL ? 1023 : 2 * s->mask + 1,
                 .n = s->n,
                 .passed_over = s->passed_over};
    next.places = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)next.mask + 1, sizeof *next.places);
    if (next.places == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (uint64_t i = 0; s->places != NULL && i <= s->mask; i++) {
        if (s->places[i] != 0) {
            next.places[place_of(&next, s->places[i])] = s->places[i];
        }
    }
    lvni_core_free(s->places);
    *s = next;
    return LVN_OK;
}

/* *is_new: it was not there. */
static lvn_status see(seen *s, char *const *values, int64_t n, bool *is_new)
{
    const uint64_t hash = hash_of(values, n, s->passed_over);
    if (s->places == NULL || 2 * (uint64_t)s->n > s->mask) {
        LVN_TRY(grow(s));
    }
    const uint64_t at = place_of(s, hash);
    *is_new = s->places[at] == 0;
    s->places[at] = hash;
    s->n += *is_new ? 1 : 0;
    return LVN_OK;
}

/* ---- one trial ---- */

/* While trials are made. */
typedef struct maker {
    const lvni_sweep_space *space;
    uint64_t seed;
    int64_t *digits;  /* of each parameter: which of its values */
    char **chosen;    /* of each parameter; NULL: it is not there. Borrowed, except what is drawn */
    char **drawn;     /* numbers of this trial, owned */
    char **row;       /* by columns, borrowed */
    bool choices_too; /* digits of parameters that each trial draws count, too */
    seen seen;
    lvni_sweep_points *out;
    int64_t room, n_columns;
} maker;

static bool is_there(const maker *m, const lvni_sweep_parameter *p)
{
    if (p->other < 0) {
        return true;
    }
    const char *other = m->chosen[p->other];
    bool equal = false;
    for (char *const *v = p->other_values; other != NULL && *v != NULL && !equal; v++) {
        equal = strcmp(*v, other) == 0;
    }
    return other != NULL && equal != p->unless;
}

static double between(const lvni_sweep_parameter *p, double u)
{
    double x = p->low + u * (p->high - p->low);
    if (p->how == LVNI_SWEEP_LOGUNIFORM) {
        const double low = lvni_core_log(p->low), high = lvni_core_log(p->high);
        x = lvni_core_exp(low + u * (high - low));
    }
    return x < p->low ? p->low : x < p->high ? x : nextafter(p->high, p->low);
}

enum { SECOND = 1u << 31 }; /* the attempt of a second number for the same trial */

static void print_number(const lvni_sweep_parameter *p, uint64_t seed, uint64_t index,
                         uint32_t attempt, lvni_core_str *out)
{
    const double u = lvni_sweep_random(seed, p->name, index, attempt);
    if (p->how == LVNI_SWEEP_INT) {
        const double width = (double)(p->last - p->first) + 1.0;
        const int64_t value = p->first + (int64_t)floor(u * width);
        lvni_core_str_printf(out, "%" PRId64, value);
    } else if (p->how == LVNI_SWEEP_NORMAL) {
        const double v = lvni_sweep_random(seed, p->name, index, attempt | (uint32_t)SECOND);
        lvni_core_str_double(out, p->low + p->high * lvni_core_sqrt(-2.0 * lvni_core_log(1.0 - u)) *
                                               lvni_core_cos2pi(v));
    } else {
        lvni_core_str_double(out, between(p, u));
    }
}

static lvn_status draw_number(maker *m, int64_t k, uint64_t index, uint32_t attempt)
{
    lvni_core_str s = {0};
    print_number(&m->space->parameters[k], m->seed, index, attempt, &s);
    lvni_core_free(m->drawn[k]);
    m->drawn[k] = NULL;
    LVN_TRY(lvni_core_str_status(&s));
    m->chosen[k] = m->drawn[k] = lvni_core_str_take(&s);
    return LVN_OK;
}

/* What is drawn for trial `index`; `all`: lists, too, and not by their digits. */
static lvn_status choose(maker *m, bool all, uint64_t index, uint32_t attempt)
{
    const lvni_sweep_space *space = m->space;
    for (int64_t k = 0; k < space->n; k++) {
        const lvni_sweep_parameter *p = &space->parameters[k];
        m->chosen[k] = NULL;
        if (!is_there(m, p)) {
            m->digits[k] = 0;
        } else if (p->how != LVNI_SWEEP_LISTED) {
            LVN_TRY(draw_number(m, k, index, attempt));
        } else {
            const bool draws = p->leader == k && (all || (p->drawn && !m->choices_too));
            const int64_t n = lvni_sweep_texts_count(p->values);
            if (draws) {
                const double u = lvni_sweep_random(m->seed, p->name, index, attempt);
                m->digits[k] = (int64_t)floor(u * (double)n);
            }
            m->chosen[k] = p->values[m->digits[p->leader]];
        }
    }
    memset(m->row, 0, (size_t)m->n_columns * sizeof *m->row);
    for (int64_t k = 0; k < space->n; k++) {
        const int64_t column = space->parameters[k].column;
        m->row[column] = m->chosen[k] != NULL ? m->chosen[k] : m->row[column];
    }
    return LVN_OK;
}

/* The next one of the grid, as far as what the last one was decides it: the last parameter fastest.
 * False: that was the last one. */
static bool next(maker *m)
{
    for (int64_t k = m->space->n - 1; k >= 0; k--) {
        const lvni_sweep_parameter *p = &m->space->parameters[k];
        const bool counts = m->chosen[k] != NULL && p->how == LVNI_SWEEP_LISTED && p->leader == k &&
                            (!p->drawn || m->choices_too);
        if (counts && m->digits[k] + 1 < lvni_sweep_texts_count(p->values)) {
            m->digits[k]++;
            return true;
        }
        m->digits[k] = p->drawn && !m->choices_too ? m->digits[k] : 0;
    }
    return false;
}

/* ---- all trials ---- */

static lvn_status maker_create(const lvni_sweep_space *space, uint64_t seed, maker *m)
{
    const size_t n = (size_t)space->n + 1;
    *m = (maker){.space = space, .seed = seed, .n_columns = lvni_sweep_texts_count(space->names)};
    /* A declaration that was refused may have left its column behind. */
    const size_t n_columns = (size_t)m->n_columns + 1;
    m->digits = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *m->digits);
    m->chosen = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *m->chosen);
    m->drawn = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *m->drawn);
    m->row = lvni_core_calloc(LVNI_TAG_CONFIG, n_columns, sizeof *m->row);
    m->seen.passed_over = lvni_core_calloc(LVNI_TAG_CONFIG, n_columns, sizeof *m->seen.passed_over);
    return m->digits == NULL || m->chosen == NULL || m->drawn == NULL || m->row == NULL ||
                   m->seen.passed_over == NULL
               ? LVN_ERR_MEMORY
               : LVN_OK;
}

static void maker_free(maker *m)
{
    for (int64_t k = 0; m->drawn != NULL && k < m->space->n; k++) {
        lvni_core_free(m->drawn[k]);
    }
    lvni_core_free(m->digits);
    lvni_core_free(m->chosen);
    lvni_core_free(m->drawn);
    lvni_core_free(m->row);
    lvni_core_free(m->seen.places);
    lvni_core_free(m->seen.passed_over);
}

/* The row, as a new trial. */
static lvn_status keep(maker *m)
{
    lvni_sweep_points *out = m->out;
    if (out->n == m->room) {
        const int64_t room = 2 * m->room + 64;
        char **more = lvni_core_realloc(LVNI_TAG_CONFIG, out->values,
                                        (size_t)(room * m->n_columns + 1) * sizeof *more);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        out->values = more;
        m->room = room;
    }
    char **at = out->values + out->n++ * m->n_columns;
    memset(at, 0, (size_t)m->n_columns * sizeof *at);
    for (int64_t k = 0; k < m->n_columns; k++) {
        if (m->row[k] != NULL && (at[k] = lvni_core_strdup(LVNI_TAG_CONFIG, m->row[k])) == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    return LVN_OK;
}

static lvn_status see_all(maker *m, const lvni_sweep_points *have)
{
    bool is_new;
    for (int64_t i = 0; have != NULL && i < have->n; i++) {
        LVN_TRY(see(&m->seen, have->values + i * have->n_parameters, have->n_parameters, &is_new));
    }
    return LVN_OK;
}

int64_t lvni_sweep_space_count(const lvni_sweep_space *space)
{
    const int64_t most = LVNI_SWEEP_MOST_TRIALS + 1;
    maker m;
    int64_t n = 0;
    if (maker_create(space, 0, &m) == LVN_OK && choose(&m, false, 0, 0) == LVN_OK) {
        m.choices_too = true;
        for (n = 1; n < most && next(&m) && choose(&m, false, 0, 0) == LVN_OK; n++) {
        }
    }
    maker_free(&m);
    return n;
}

/* A grid's next trial follows from the last one, which what is drawn must not change. */
static lvn_status check_grid(const lvni_sweep_space *space)
{
    for (int64_t k = 0; k < space->n; k++) {
        const lvni_sweep_parameter *p = &space->parameters[k];
        if (p->other >= 0 && space->parameters[p->other].drawn && !p->drawn) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "when: %s is drawn for each trial, so %s, which depends on it, must be, too "
                     "(choice(v1|v2)); or strategy=random",
                     space->parameters[p->other].name, p->name);
        }
    }
    return LVN_OK;
}

static lvn_status draw_grid(maker *m, const lvni_sweep_draw *d, int64_t have)
{
    const bool list = strcmp(d->strategy, "list") == 0;
    LVN_TRY(check_grid(m->space));
    int64_t at = 0;
    for (bool more = true; more && (d->trials == 0 || have + m->out->n < d->trials); at++) {
        bool is_new = true;
        if (have + m->out->n == LVNI_SWEEP_MOST_TRIALS) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "the grid has more than %d trials: trials=N takes the first ones, "
                     "strategy=random draws N of them",
                     (int)LVNI_SWEEP_MOST_TRIALS);
        }
        LVN_TRY(choose(m, false, (uint64_t)(have + m->out->n), 0));
        if (list) {
            is_new = at >= have; /* equal ones of a list are meant */
        } else {
            LVN_TRY(see(&m->seen, m->row, m->n_columns, &is_new));
        }
        LVN_TRY(is_new ? keep(m) : LVN_OK);
        more = next(m);
    }
    return LVN_OK;
}

static bool has_numbers(const lvni_sweep_space *space)
{
    for (int64_t k = 0; k < space->n; k++) {
        if (space->parameters[k].how != LVNI_SWEEP_LISTED) {
            return true;
        }
    }
    return false;
}

/* The first of the grid that is not there, from where the last search ended. *found: there is one.
 */
static lvn_status take_unused(maker *m, maker *grid, bool *more, bool *found)
{
    for (*found = false; *more && !*found;) {
        LVN_TRY(choose(grid, false, 0, 0));
        LVN_TRY(see(&m->seen, grid->row, m->n_columns, found));
        if (*found) {
            memcpy(m->row, grid->row, (size_t)m->n_columns * sizeof *m->row);
        }
        *more = next(grid);
    }
    return LVN_OK;
}

enum { FEW = 200, MANY = 20 };

/* Trials that are drawn again and again where few are left: of lists the first unused one is taken;
 * of numbers there are none left when so many draws have found none. */
static lvn_status draw_random(maker *m, const lvni_sweep_draw *d, int64_t have)
{
    maker grid;
    lvn_status s;
    bool more = true;
    const bool numbers = has_numbers(m->space);
    LVNI_TRY_DONE(s, maker_create(m->space, d->seed, &grid));
    grid.choices_too = true;
    while (have + m->out->n < d->trials) {
        const int64_t index = have + m->out->n, most = FEW + (numbers ? MANY * index + FEW : 0);
        bool found = false;
        for (int64_t attempt = 0; attempt < most && !found; attempt++) {
            LVNI_TRY_DONE(s, choose(m, true, (uint64_t)index, (uint32_t)attempt));
            LVNI_TRY_DONE(s, see(&m->seen, m->row, m->n_columns, &found));
        }
        if (!found && !numbers) {
            LVNI_TRY_DONE(s, take_unused(m, &grid, &more, &found));
        }
        if (!found) {
            break;
        }
        LVNI_TRY_DONE(s, keep(m));
    }
done:
    maker_free(&grid);
    return s;
}

lvn_status lvni_sweep_space_draw(const lvni_sweep_space *space, const lvni_sweep_draw *d,
                                 lvni_sweep_points *out, lvni_core_str *notes)
{
    maker m;
    lvn_status s;
    const int64_t have = d->have != NULL ? d->have->n : 0;
    const bool random = strcmp(d->strategy, "random") == 0;
    *out = (lvni_sweep_points){.n = 0};
    if (random && d->trials == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "strategy=random draws trials=N of them, and N is not given");
    }
    LVNI_TRY_DONE(s, maker_create(space, d->seed, &m));
    m.out = out;
    out->n_parameters = m.n_columns;
    for (int64_t k = 0; k < space->n && !random; k++) {
        const lvni_sweep_parameter *p = &space->parameters[k];
        m.seen.passed_over[p->column] = m.seen.passed_over[p->column] || p->drawn;
    }
    LVNI_TRY_DONE(s, see_all(&m, d->have));
    LVNI_TRY_DONE(s, random ? draw_random(&m, d, have) : draw_grid(&m, d, have));
    if (d->trials > have + out->n) {
        lvni_core_str_printf(notes, "note: trials=%" PRId64 ", and the space has %" PRId64 "\n",
                             d->trials, have + out->n);
    }
    s = lvni_core_str_status(notes);
done:
    maker_free(&m);
    if (s != LVN_OK) {
        lvni_sweep_points_free(out);
    }
    return s;
}
