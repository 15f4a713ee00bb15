/* The space of a sweep's parameters: declarations as texts, and the trials that follow from them.
 *
 *   list    NAME=v1,v2,...[:int|float|bool|str]     or NAME=[v1,v2]
 *   range   NAME=LOW:HIGH[:N][:log[BASE]][:int|float]   N values (10), drawn once: whole numbers in
 *           [LOW, HIGH), all different; numbers in [LOW, HIGH), with log evenly by their logarithm
 *   sample  NAME=uniform(a,b) loguniform(a,b) int(a,b) choice(v1|v2) normal(m,s): each trial draws;
 *           int has b, too
 *   fixed   NAME=VALUE, the same in all trials
 *   when    OTHER==a|b: NAME=v1,v2   or !=, or a distribution of `sample`: NAME is there in those
 *           trials alone. OTHER stands before it. A name may have several such declarations.
 *   zip     NAME,NAME,...: lists that go together, the i-th value of one with that of the others
 *
 * Values: whole numbers as they are written; other numbers in the shortest text that reads back
 * ("1e-3" is "0.001"); text in quotes, and with `:str`, as it is. */
#ifndef LEVIN_SWEEP_SWEEP_SPACE_H
#define LEVIN_SWEEP_SWEEP_SPACE_H

#include "core/str.h"
#include "sweep/sweep_plan.h"

typedef enum lvni_sweep_distribution {
    LVNI_SWEEP_LISTED, /* .values */
    LVNI_SWEEP_UNIFORM,
    LVNI_SWEEP_LOGUNIFORM,
    LVNI_SWEEP_INT,
    LVNI_SWEEP_NORMAL
} lvni_sweep_distribution;

typedef struct lvni_sweep_parameter {
    char *name;
    int64_t column; /* of its name among those of the space */
    lvni_sweep_distribution how;
    char **values; /* LISTED: what it can be */
    bool drawn;    /* each trial draws, in a grid, too */
    double low, high;
    int64_t first, last; /* INT */
    int64_t other;       /* the parameter of its condition; -1: none */
    bool unless;         /* != */
    char **other_values; /* of the condition */
    int64_t leader;      /* the first of those that it goes together with; itself: none */
} lvni_sweep_parameter;

/* A zeroed one is empty. */
typedef struct lvni_sweep_space {
    lvni_sweep_parameter *parameters;
    int64_t n, room;
    char **names; /* the columns */
} lvni_sweep_space;

/* One declaration; the kinds are those above. `seed`: of what range draws. LVN_ERR_USAGE with the
 * declaration, what is expected, and the place. */
lvn_status lvni_sweep_space_add(lvni_sweep_space *space, const char *kind, const char *text,
                                uint64_t seed);
/* After the last one. all_together: strategy list, where all are one zip. `notes` gets a line
 * "note: ..." for each value that a list has twice. */
lvn_status lvni_sweep_space_finish(lvni_sweep_space *space, bool all_together,
                                   lvni_core_str *notes);
void lvni_sweep_space_free(lvni_sweep_space *space);

/* The elements between the commas of `text`, brackets and quotes kept whole, blanks at their ends
 * left out; those in the brackets of a text "[...]". LVN_ERR_USAGE: an empty one, a bracket or a
 * quote that does not end. */
lvn_status lvni_sweep_split(const char *text, char ***out);
/* The text of a value, as above. type: NULL or "int", "float", "bool", "str". LVN_ERR_USAGE: it is
 * not of that type. */
lvn_status lvni_sweep_value(const char *text, const char *type, char **out);

typedef struct lvni_sweep_draw {
    const char *strategy; /* "grid", "random", "list" */
    uint64_t seed;
    int64_t trials;                /* at most, those of `have` included; 0: all */
    const lvni_sweep_points *have; /* that are there already, which are not repeated; NULL: none */
} lvni_sweep_draw;

/* How many there are in all, what is drawn counted once; more than LVNI_SWEEP_MOST_TRIALS are that
 * number and one. */
int64_t lvni_sweep_space_count(const lvni_sweep_space *space);
/* New trials, in their order. grid: as declared, the last parameter fastest; what each trial draws
 * makes no other trial of the same combination. random: the value of a
 * parameter depends on seed, name and the trial's number alone, except where a trial that is there
 * already would be repeated, which is drawn again. `notes` has a line where there are fewer than
 * were asked for. */
lvn_status lvni_sweep_space_draw(const lvni_sweep_space *space, const lvni_sweep_draw *draw,
                                 lvni_sweep_points *out, lvni_core_str *notes);
/* 53 random bits in [0, 1) of parameter `name` in trial `index`. */
double lvni_sweep_random(uint64_t seed, const char *name, uint64_t index, uint32_t attempt);

#endif
