/* Patterns over parameter names become settings of parameters (groups.h). */
#include "optim/groups.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN = LVNI_OPTIM_PATTERN };

/* A star first stands for nothing; where the rest does not fit it takes one character more. Earlier
 * stars need no second try: what they could give, the last one can. */
bool lvni_optim_pattern_matches(const char *p, const char *name)
{
    const char *star = NULL, *from = NULL;
    for (;;) {
        if (*p == '*') {
            star = ++p;
            from = name;
        } else if (*p == '\0' && (*name == '\0' || *name == '.')) {
            return true; /* the name itself, or a module above it */
        } else if (*name != '\0' && (*p == '?' || *p == *name)) {
            p++;
            name++;
        } else if (star != NULL && *from != '\0') {
            p = star;
            name = ++from;
        } else {
            return false;
        }
    }
}

static const char backbone[] = "backbone";

/* Everything but the last layer, the one that was made last; in a model that has a module of this
 * name, that module. */
static bool in_backbone(const lvni_optim_parameter *parameter, int n, int i)
{
    for (int k = 0; k < n; k++) {
        if (lvni_optim_pattern_matches(backbone, parameter[k].name)) {
            return lvni_optim_pattern_matches(backbone, parameter[i].name);
        }
    }
    const char *last = parameter[n - 1].name, *dot = strrchr(last, '.');
    return dot != NULL && strncmp(parameter[i].name, last, (size_t)(dot + 1 - last)) != 0;
}

/* Of parameter i of n. */
static bool is_named(const char *pattern, const lvni_optim_parameter *parameter, int n, int i)
{
    return strcmp(pattern, backbone) == 0 ? in_backbone(parameter, n, i)
                                          : lvni_optim_pattern_matches(pattern, parameter[i].name);
}

/* The name of a parameter, or of a module above one, that is nearest to the pattern. */
static void find_nearest(const char *pattern, const lvni_optim_parameter *parameter, int n,
                         char out[PATTERN])
{
    size_t best = SIZE_MAX;
    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *name = parameter[i].name;
        for (size_t end = strcspn(name, ".");; end += 1 + strcspn(name + end + 1, ".")) {
            char part[PATTERN];
            snprintf(part, sizeof part, "%.*s", (int)end, name);
            const size_t distance = lvni_core_edit_distance(pattern, part);
            if (distance < best) {
                best = distance;
                memcpy(out, part, sizeof part);
            }
            if (name[end] == '\0') {
                break;
            }
        }
    }
}

static lvn_status fail_unmatched(const char *key, const char *pattern,
                                 const lvni_optim_parameter *parameter, int n)
{
    char nearest[PATTERN];
    if (strcmp(pattern, backbone) == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: backbone names all parameters but those of the last layer, and the model has "
                 "no others",
                 key);
    }
    find_nearest(pattern, parameter, n, nearest);
    LVN_FAIL(LVN_ERR_USAGE,
             "%s: no parameter of the model is named by the pattern %s; the nearest name is %s",
             key, pattern, nearest);
}

static lvn_status apply_freeze(const lvni_optim_rules *r, lvni_optim_parameter *parameter, int n)
{
    int left = n;
    for (size_t k = 0; k < r->n_freeze; k++) {
        int hits = 0;
        for (int i = 0; i < n; i++) {
            if (is_named(r->freeze[k], parameter, n, i)) {
                hits++;
                left -= parameter[i].frozen ? 0 : 1;
                parameter[i].frozen = true;
            }
        }
        if (hits == 0) {
            return fail_unmatched("freeze", r->freeze[k], parameter, n);
        }
    }
    if (left == 0 && n > 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "freeze: all %d parameters are frozen, and nothing is left to train", n);
    }
    return LVN_OK;
}

/* A number of at least 0, up to `end`. */
static bool read_number(const char *text, const char *end, double *out)
{
    char *stop = NULL;
    *out = lvni_core_strtod(text, &stop);
    return stop != text && stop == end && strspn(text, "+-.0123456789eE") >= (size_t)(end - text) &&
           *out >= 0.0 && isfinite(*out);
}

/* "head.*=10" */
static lvn_status split_scale(const char *text, char pattern[PATTERN], double *scale)
{
    const char *equals = strrchr(text, '=');
    char *end = NULL;
    *scale = equals == NULL ? -1.0 : lvni_core_strtod(equals + 1, &end);
    const bool number = equals != NULL && equals[1] != '\0' && *end == '\0' &&
                        equals[1 + strspn(equals + 1, "+-.0123456789eE")] == '\0';
    if (!number || equals == text || equals - text >= PATTERN || !(*scale >= 0.0) ||
        !isfinite(*scale)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "lr_scale: %s is not PATTERN=FACTOR with a factor of at least 0, as in "
                 "lr_scale=[head=10,conv1=0.1]",
                 text);
    }
    memcpy(pattern, text, (size_t)(equals - text));
    pattern[equals - text] = '\0';
    return LVN_OK;
}

static lvn_status apply_lr_scale(const lvni_optim_rules *r, lvni_optim_parameter *parameter, int n)
{
    for (size_t k = 0; k < r->n_lr_scale; k++) {
        char pattern[PATTERN];
        double scale;
        int hits = 0;
        LVN_TRY(split_scale(r->lr_scale[k], pattern, &scale));
        for (int i = 0; i < n; i++) {
            if (is_named(pattern, parameter, n, i)) {
                parameter[i].lr_scale = scale;
                hits++;
            }
        }
        if (hits == 0) {
            return fail_unmatched("lr_scale", pattern, parameter, n);
        }
    }
    return LVN_OK;
}

/* Of a group; below 0: it has none of its own. */
enum { LR, WEIGHT_DECAY, MOMENTUM, BETA1, BETA2, KEYS };
typedef struct group {
    char pattern[PATTERN];
    double value[KEYS];
} group;

/* The key of these characters; KEYS: there is none. */
static int find_key(const char *text, size_t n)
{
    static const char *const keys[KEYS] = {"lr", "weight_decay", "momentum", "beta1", "beta2"};
    int i = 0;
    while (i < KEYS && (strlen(keys[i]) != n || memcmp(keys[i], text, n) != 0)) {
        i++;
    }
    return i;
}

static lvn_status read_group(const char *text, group *out)
{
    const char *at = strchr(text, ':');
    const size_t length = at == NULL ? strlen(text) : (size_t)(at - text);
    bool good = at != NULL && length > 0 && length < PATTERN;
    *out = (group){.value = {-1.0, -1.0, -1.0, -1.0, -1.0}};
    while (good && *at == ':') {
        const char *key = at + 1, *equals = strchr(key, '=');
        const int which = equals == NULL ? KEYS : find_key(key, (size_t)(equals - key));
        double value = 0.0;
        at = equals == NULL ? at : equals + 1 + strcspn(equals + 1, ":");
        good = which < KEYS && read_number(equals + 1, at, &value) &&
               (which < MOMENTUM || value < 1.0);
        if (good) {
            out->value[which] = value;
        }
    }
    if (!good) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.groups: %s is not PATTERN:KEY=NUMBER with the keys lr, weight_decay (at "
                 "least 0), momentum, beta1 and beta2 (0 to below 1), as in "
                 "optim.groups=[head:lr=0.01:weight_decay=0]",
                 text);
    }
    snprintf(out->pattern, PATTERN, "%.*s", (int)length, text);
    return LVN_OK;
}

/* Rates and decay are factors on those of the run, which schedules move. */
static lvn_status check_base(const char *text, const char *key, double own, double run)
{
    if (own > 0.0 && !(run > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.groups: %s gives a group its own %s, and optim.%s is 0: give that a value, "
                 "and %s=0 to other groups",
                 text, key, key, key);
    }
    return LVN_OK;
}

/* As the group has it, else as it was. */
static void take_own(const group *g, lvni_optim_own *own)
{
    const double *value = g->value;
    own->has_momentum = own->has_momentum || value[MOMENTUM] >= 0.0;
    own->has_beta1 = own->has_beta1 || value[BETA1] >= 0.0;
    own->has_beta2 = own->has_beta2 || value[BETA2] >= 0.0;
    own->momentum = value[MOMENTUM] >= 0.0 ? value[MOMENTUM] : own->momentum;
    own->beta1 = value[BETA1] >= 0.0 ? value[BETA1] : own->beta1;
    own->beta2 = value[BETA2] >= 0.0 ? value[BETA2] : own->beta2;
}

/* Its factor on the run's, else what it was. */
static double factor(double own, double run, double was)
{
    return own > 0.0 ? own / run : own < 0.0 ? was : 0.0;
}

static lvn_status apply_groups(const lvni_optim_rules *r, lvni_optim_parameter *parameter, int n,
                               double *lr, double *decay)
{
    for (size_t k = 0; k < r->n_groups; k++) {
        group g;
        int hits = 0;
        LVN_TRY(read_group(r->groups[k], &g));
        LVN_TRY(check_base(r->groups[k], "lr", g.value[LR], r->lr));
        LVN_TRY(check_base(r->groups[k], "weight_decay", g.value[WEIGHT_DECAY], r->weight_decay));
        for (int i = 0; i < n; i++) {
            if (is_named(g.pattern, parameter, n, i)) {
                lr[i] = factor(g.value[LR], r->lr, lr[i]);
                decay[i] = factor(g.value[WEIGHT_DECAY], r->weight_decay, decay[i]);
                take_own(&g, &parameter[i].own);
                hits++;
            }
        }
        if (hits == 0) {
            return fail_unmatched("optim.groups", g.pattern, parameter, n);
        }
    }
    return LVN_OK;
}

/* On what the other rules have set. */
static lvn_status multiply_groups(const lvni_optim_rules *r, lvni_optim_parameter *parameter, int n)
{
    double *lr = lvni_core_calloc(LVNI_TAG_TRAINER, 2 * (size_t)n + 1, sizeof *lr);
    if (lr == NULL) {
        return LVN_ERR_MEMORY;
    }
    double *decay = lr + n;
    for (int i = 0; i < n; i++) {
        lr[i] = decay[i] = 1.0;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, apply_groups(r, parameter, n, lr, decay));
    for (int i = 0; i < n; i++) {
        parameter[i].lr_scale *= lr[i];
        parameter[i].decay_scale *= decay[i];
    }
done:
    lvni_core_free(lr);
    return s;
}

/* "student.backbone.norm.bias": below a module of this name, wherever that is. */
static bool has_part(const char *name, const char *part)
{
    const size_t n = strlen(part);
    for (const char *at = strstr(name, part); at != NULL; at = strstr(at + 1, part)) {
        if ((at == name || at[-1] == '.') && at[n] == '.') {
            return true;
        }
    }
    return false;
}

/* As in BEiT and MAE: the last block has the whole rate. Of a backbone that is trained with heads
 * behind it, as in DINOv2, that is its own last one, and the heads have the whole rate, too. */
static lvn_status apply_layer_decay(const lvni_optim_rules *r, lvni_optim_parameter *parameter,
                                    int n)
{
    int first = INT_MAX, last = 0;
    bool below = false;
    for (int i = 0; i < n; i++) {
        below = below || has_part(parameter[i].name, backbone);
    }
    for (int i = 0; i < n; i++) {
        if (!below || has_part(parameter[i].name, backbone)) {
            first = parameter[i].block < first ? parameter[i].block : first;
            last = parameter[i].block > last ? parameter[i].block : last;
        }
    }
    if (r->layer_decay > 0.0 && r->layer_decay != 1.0 && first >= last) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.layer_decay=%g changes nothing: the model has no blocks "
                 "(lvn_builder_block); leave it out, or give lr_scale or optim.groups",
                 r->layer_decay);
    }
    for (int i = 0; i < n && r->layer_decay > 0.0; i++) {
        for (int k = parameter[i].block; k < last; k++) {
            parameter[i].lr_scale *= r->layer_decay;
        }
    }
    return LVN_OK;
}

/* ":0.1:1.5", the end of a row of lr_zero_until, or nothing. */
static bool read_growth(const char *text, lvni_optim_hold *out)
{
    char *end;
    if (*text == '\0') {
        return true;
    }
    out->first = *text == ':' ? lvni_core_strtod(text + 1, &end) : 0.0;
    if (!(out->first > 0.0 && out->first <= 1.0) || *end != ':') {
        return false;
    }
    out->growth = lvni_core_strtod(end + 1, &end);
    return out->growth > 1.0 && isfinite(out->growth) && *end == '\0';
}

/* "backbone=5epochs", of lr_zero_until also "backbone=5epochs:0.1:1.5" */
static lvn_status split_until(const lvni_optim_rules *r, const char *key, const char *text,
                              bool grows, char pattern[PATTERN], lvni_optim_hold *out)
{
    const char *equals = strrchr(text, '=');
    const char *digits = equals == NULL ? "" : equals + 1;
    const size_t n = strspn(digits, "0123456789");
    const char *unit = digits + n, *rest = unit + strcspn(unit, ":");
    const size_t letters = (size_t)(rest - unit);
    const bool epochs = letters >= 5 && letters <= 6 && strncmp(unit, "epochs", letters) == 0;
    *out = (lvni_optim_hold){0};
    if (n == 0 || n > 12 || equals == text || equals - text >= PATTERN ||
        (!epochs && letters > 0) || !(grows ? read_growth(rest, out) : *rest == '\0')) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: %s is not PATTERN=STEPS or PATTERN=NUMBERepochs, as in "
                 "%s=[backbone=5epochs]%s",
                 key, text, key,
                 grows ? ", with :PART:GROWTH behind it, 0 < PART <= 1 and GROWTH > 1, where the "
                         "rate grows to its own, as in [backbone=5epochs:0.1:1.5]"
                       : "");
    }
    out->every = epochs ? r->steps_per_epoch : 1;
    const int64_t number = strtoll(digits, NULL, 10);
    if (out->every > 0 && number > INT64_MAX / out->every) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: %s: %lld epochs of %lld steps are more steps than are counted",
                 key, text, (long long)number, (long long)out->every);
    }
    out->until = number * out->every;
    snprintf(pattern, PATTERN, "%.*s", (int)(equals - text), text);
    return LVN_OK;
}

lvn_status lvni_optim_rules_hold(const lvni_optim_rules *r, size_t i, char pattern[PATTERN],
                                 lvni_optim_hold *out)
{
    return split_until(r, "lr_zero_until", r->lr_zero_until[i], true, pattern, out);
}

/* The rows of freeze_until, or of lr_zero_until. */
static lvn_status apply_until(const lvni_optim_rules *r, bool holds,
                              lvni_optim_parameter *parameter, int n)
{
    const char *key = holds ? "lr_zero_until" : "freeze_until";
    const size_t rows = holds ? r->n_lr_zero_until : r->n_freeze_until;
    for (size_t k = 0; k < rows; k++) {
        char pattern[PATTERN];
        lvni_optim_hold until;
        int hits = 0;
        LVN_TRY(holds ? lvni_optim_rules_hold(r, k, pattern, &until)
                      : split_until(r, key, r->freeze_until[k], false, pattern, &until));
        for (int i = 0; i < n; i++) {
            if (is_named(pattern, parameter, n, i)) {
                parameter[i].hold = holds ? until : parameter[i].hold;
                parameter[i].thaw = holds ? parameter[i].thaw : until.until;
                hits++;
            }
        }
        if (hits == 0) {
            return fail_unmatched(key, pattern, parameter, n);
        }
    }
    return LVN_OK;
}

/* The first step needs a gradient of something. */
static lvn_status check_first_step(const lvni_optim_parameter *parameter, int n)
{
    bool trains = n == 0;
    for (int i = 0; i < n; i++) {
        trains = trains || (!parameter[i].frozen && parameter[i].thaw == 0);
    }
    if (!trains) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "freeze_until: all %d parameters are frozen in the first step, and nothing is left "
            "to train",
            n);
    }
    return LVN_OK;
}

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Tokens, positions and scales have no decay, whatever their axes; by the names that
 * vision transformers give them: class_token, cls_token, encoder.pos_embedding,
 * relative_position_bias_table, ls1.gamma. */
static bool is_special(const char *name)
{
    static const char *const parts[] = {
        "token",   "pos_embed",  "position_embed",    "gamma",      "layer_scale", "logit_scale",
        "queries", "embeddings", "relative_position", "query_embed"};
    const char *dot = strrchr(name, '.'), *last = dot == NULL ? name : dot + 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(last, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static bool has_decay(lvni_optim_decay_of of, const lvni_optim_parameter *p)
{
    switch (of) {
    case LVNI_DECAY_MATRICES: return p->ndim > 1;
    case LVNI_DECAY_WEIGHTS:
        return p->ndim > 1 && !p->norm && !ends_in(p->name, "bias") && !is_special(p->name);
    case LVNI_DECAY_NOT_NORM_BIAS: return !p->norm && !ends_in(p->name, "bias");
    case LVNI_DECAY_NOT_NORM_BIAS_SCALE:
        return !p->norm && !ends_in(p->name, "bias") && !ends_in(p->name, "gamma");
    case LVNI_DECAY_ALL: break;
    }
    return true;
}

lvn_status lvni_optim_rules_apply(const lvni_optim_rules *r, lvni_optim_parameter *parameter, int n)
{
    for (int i = 0; i < n; i++) {
        parameter[i].lr_scale = 1.0;
        parameter[i].decay_scale = has_decay(r->decay_of, &parameter[i]) ? 1.0 : 0.0;
        parameter[i].frozen = false;
        parameter[i].thaw = 0;
        parameter[i].hold = (lvni_optim_hold){0};
        parameter[i].own = (lvni_optim_own){0};
    }
    LVN_TRY(apply_freeze(r, parameter, n));
    LVN_TRY(apply_lr_scale(r, parameter, n));
    LVN_TRY(r->n_groups == 0 ? LVN_OK : multiply_groups(r, parameter, n));
    LVN_TRY(apply_layer_decay(r, parameter, n));
    LVN_TRY(apply_until(r, false, parameter, n));
    LVN_TRY(apply_until(r, true, parameter, n));
    return check_first_step(parameter, n);
}

int lvni_optim_count_phases(const char *const *phases)
{
    int n = 0;
    while (phases != NULL && phases[n] != NULL) {
        n++;
    }
    return n > 0 ? n : 1;
}

/* The pattern at *list, which moves behind it; false: there is no more. */
static bool next_pattern(const char **list, char pattern[PATTERN])
{
    const size_t n = strcspn(*list, ",");
    snprintf(pattern, PATTERN, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',' ? 1 : 0);
    return n > 0;
}

int lvni_optim_find_phase(const char *const *phases, int from, const char *name)
{
    for (int i = from; phases != NULL && phases[i] != NULL; i++) {
        const char *list = phases[i];
        for (char pattern[PATTERN]; next_pattern(&list, pattern);) {
            if (lvni_optim_pattern_matches(pattern, name)) {
                return i;
            }
        }
    }
    return -1;
}

/* Everything that a phase names is there, and something of it is trained. */
static lvn_status check_phase(const char *phase, const lvni_optim_parameter *parameter, int n)
{
    const char *list = phase;
    bool trains = false;
    for (char pattern[PATTERN]; next_pattern(&list, pattern);) {
        int hits = 0;
        for (int i = 0; i < n; i++) {
            const bool hit = lvni_optim_pattern_matches(pattern, parameter[i].name);
            hits += hit ? 1 : 0;
            trains = trains || (hit && !parameter[i].frozen && parameter[i].thaw == 0);
        }
        if (hits == 0) {
            return fail_unmatched("phases", pattern, parameter, n);
        }
    }
    if (!trains) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "the phase %s of a step has nothing to train: all its parameters are frozen",
                 phase);
    }
    return LVN_OK;
}

lvn_status lvni_optim_phases_apply(const char *const *phases, lvni_optim_parameter *parameter,
                                   int n)
{
    const int n_phases = lvni_optim_count_phases(phases);
    if (n_phases > LVNI_PHASES) {
        LVN_FAIL(LVN_ERR_USAGE, "a step of %d phases: it can have %d", n_phases, LVNI_PHASES);
    }
    for (int i = 0; i < n; i++) {
        parameter[i].phase = 0;
    }
    if (phases == NULL || phases[0] == NULL) {
        return LVN_OK;
    }
    for (int i = 0; i < n; i++) {
        const int first = lvni_optim_find_phase(phases, 0, parameter[i].name);
        const int second =
            first < 0 ? -1 : lvni_optim_find_phase(phases, first + 1, parameter[i].name);
        parameter[i].phase = first < 0 ? 0 : first;
        if (second >= 0) {
            LVN_FAIL(
                LVN_ERR_USAGE,
                "the parameter %s is in two phases of a step, %s and %s: it can be trained in one",
                parameter[i].name, phases[first], phases[second]);
        }
        if (first < 0 && !parameter[i].frozen) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "the parameter %s is in no phase of a step: name it, or a module above it, in "
                     "the class's phases, or freeze it",
                     parameter[i].name);
        }
    }
    for (int i = 0; i < n_phases; i++) {
        LVN_TRY(check_phase(phases[i], parameter, n));
    }
    return LVN_OK;
}
