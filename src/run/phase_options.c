/* optim.phases: what phases of a step have of their own. */
#include "run/options.h"

#include "core/str.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvn_status fail(const char *text)
{
    LVN_FAIL(LVN_ERR_USAGE,
             "optim.phases: %s is not PHASE:KEY=VALUE with the keys lr (above 0), clip (0: none), "
             "scheduler (a value of scheduler.name except plateau), every (steps), optimizer (a "
             "value of optim.name), beta1, beta2 and momentum (below 1), and the other numbers of "
             "optim.*, as in optim.phases=[critic:lr=1e-4:clip=1,generator:every=5]",
             text);
}

/* The phase whose first pattern this is. */
static int find_phase(const char *const *phases, const char *name, size_t n)
{
    for (int i = 0; phases != NULL && phases[i] != NULL; i++) {
        if (strcspn(phases[i], ",") == n && memcmp(phases[i], name, n) == 0) {
            return i;
        }
    }
    return -1;
}

static bool read_number(const char *text, size_t n, double *out)
{
    char *stop = NULL;
    *out = lvni_core_strtod(text, &stop);
    return n > 0 && stop == text + n && strspn(text, "+-.0123456789eE") >= n && isfinite(*out);
}

static bool is_key(const char *text, size_t n, const char *key)
{
    return strlen(key) == n && memcmp(text, key, n) == 0;
}

/* ---- numbers of an optimizer ---- */

#define BIT(kind) (1u << LVNI_OPTIM_##kind)
enum {
    SGDS = BIT(SGD) | BIT(LARS),
    MOMENTUM = SGDS | BIT(RMSPROP),
    ADAMS = BIT(ADAM) | BIT(ADAMW) | BIT(LAMB),
    BETAS = ADAMS | BIT(LION),
    EPS = ADAMS | BIT(RMSPROP) | BIT(ADAFACTOR)
};
#define FIELD(name) offsetof(lvni_optim_options, name)
#define BELOW_1 0x1.fffffffffffffp-1
#define ABOVE_0 0x1p-1074

/* With the ranges of optim.*. */
static const struct {
    const char *key;
    unsigned kinds; /* that have it */
    size_t field;
    double least, most;
} numbers[] = {{"momentum", MOMENTUM, FIELD(momentum), 0.0, BELOW_1},
               {"dampening", SGDS, FIELD(dampening), 0.0, 1.0},
               {"trust_coefficient", BIT(LARS), FIELD(trust_coefficient), ABOVE_0, HUGE_VAL},
               {"beta1", BETAS, FIELD(beta1), 0.0, BELOW_1},
               {"beta2", BETAS, FIELD(beta2), 0.0, BELOW_1},
               {"eps", EPS, FIELD(eps), ABOVE_0, HUGE_VAL},
               {"alpha", BIT(RMSPROP), FIELD(alpha), 0.0, BELOW_1},
               {"eps2", BIT(ADAFACTOR), FIELD(eps2), 0.0, HUGE_VAL},
               {"beta2_decay", BIT(ADAFACTOR), FIELD(beta2_decay), -1.0, 0.0},
               {"d", BIT(ADAFACTOR), FIELD(d), 1.0, HUGE_VAL}};
static const struct {
    const char *key;
    unsigned kinds;
    size_t field;
} flags[] = {{"nesterov", SGDS, FIELD(nesterov)}, {"centered", BIT(RMSPROP), FIELD(centered)}};

/* The optimizer of the phase has none. */
static lvn_status fail_kind(const char *text, const char *key, const lvni_optim_options *o,
                            unsigned kinds)
{
    char have[96] = "";
    for (int i = 0, n = 0; i <= (int)LVNI_OPTIM_ADAFACTOR; i++) {
        if ((kinds >> i & 1u) != 0) {
            n += snprintf(have + n, sizeof have - (size_t)n, "%s%s", n > 0 ? ", " : "",
                          lvni_optim_name((lvni_optim_kind)i));
        }
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "optim.phases: %s gives a phase its own %s, and its optimizer, %s, has none: it is a "
             "setting of %s",
             text, key, lvni_optim_name(o->kind), have);
}

/* One of the keys above; false: it is none. */
static bool read_own(const char *text, const char *at, size_t key, const char *value, size_t n,
                     lvni_trainer_phase_options *out, lvn_status *s)
{
    lvni_optim_options *o = &out->optim;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double number = 0.0;
        if (is_key(at, key, numbers[i].key)) {
            const bool good = read_number(value, n, &number) && number >= numbers[i].least &&
                              number <= numbers[i].most;
            *s = (numbers[i].kinds >> o->kind & 1u) == 0
                     ? fail_kind(text, numbers[i].key, o, numbers[i].kinds)
                 : good ? LVN_OK
                        : fail(text);
            memcpy((char *)o + numbers[i].field, &number, sizeof number);
            out->has_optim = true;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (is_key(at, key, flags[i].key)) {
            const bool on = is_key(value, n, "true"), good = on || is_key(value, n, "false");
            *s = (flags[i].kinds >> o->kind & 1u) == 0
                     ? fail_kind(text, flags[i].key, o, flags[i].kinds)
                 : good ? LVN_OK
                        : fail(text);
            memcpy((char *)o + flags[i].field, &on, sizeof on);
            out->has_optim = true;
            return true;
        }
    }
    return false;
}

/* ---- a phase ---- */

/* "lr=1e-4" */
static lvn_status read_setting(const lvni_core_config *c, const lvni_plan *plan, const char *all,
                               const char *text, lvni_trainer_phase_options *out)
{
    const size_t key = strcspn(text, "=:");
    const char *value = text + key + 1;
    const size_t n = text[key] == '=' ? strcspn(value, ":") : 0;
    double number = 0.0;
    lvn_status s = LVN_OK;
    if (n > 0 && is_key(text, key, "scheduler")) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)n, value);
        out->has_schedule = true;
        return lvni_run_read_schedule_as(c, plan, name, &out->schedule);
    }
    if (n > 0 && (is_key(text, key, "optimizer") || /* read before */
                  read_own(all, text, key, value, n, out, &s))) {
        return s;
    }
    if (!read_number(value, n, &number) || number < 0.0) {
        return fail(all);
    }
    if (is_key(text, key, "lr") && number > 0.0) {
        out->lr = number;
    } else if (is_key(text, key, "clip") && lvni_run_clips_value(c)) {
        out->has_optim = true;
        out->optim.clip_value = number;
    } else if (is_key(text, key, "clip")) {
        out->has_clip = true;
        out->clip = number;
    } else if (is_key(text, key, "every") && number >= 1.0 && number <= 1e9 &&
               floor(number) == number) {
        out->every = (int64_t)number;
    } else {
        return fail(all);
    }
    return LVN_OK;
}

/* What the phase begins with: the run's optimizer, or another one as it is where nothing is
 * given. */
static lvn_status read_optimizer(const lvni_core_config *c, const char *text,
                                 lvni_trainer_phase_options *out)
{
    LVN_TRY(lvni_run_read_optim(c, &out->optim));
    for (const char *at = text + strcspn(text, ":"); *at == ':'; at += 1 + strcspn(at + 1, ":")) {
        const size_t key = strcspn(at + 1, "=:");
        const char *value = at + 1 + key + 1;
        if (at[1 + key] == '=' && is_key(at + 1, key, "optimizer")) {
            lvni_optim_options other;
            if (!lvni_run_default_optim(value, strcspn(value, ":"), &other)) {
                LVN_FAIL(LVN_ERR_USAGE,
                         "optim.phases: %s gives a phase the optimizer %.*s: give a value of "
                         "optim.name, such as adam",
                         text, (int)strcspn(value, ":"), value);
            }
            other.clip_value = out->optim.clip_value;
            out->has_optim = true;
            out->optim = other.kind == out->optim.kind ? out->optim : other;
        }
    }
    return LVN_OK;
}

/* A key of the text. */
static bool has_key(const char *text, const char *key)
{
    for (const char *at = text + strcspn(text, ":"); *at == ':'; at += 1 + strcspn(at + 1, ":")) {
        if (is_key(at + 1, strcspn(at + 1, "=:"), key)) {
            return true;
        }
    }
    return false;
}

/* What a one-cycle schedule moves: there, and not given. */
static lvn_status check_cycle(const lvni_core_config *c, const lvni_plan *plan,
                              const lvni_trainer_phase_options *own, const char *text)
{
    const lvni_optim_options *o = &own->optim;
    const char *moved = lvni_optim_moves_momentum(o) ? "momentum" : "beta1";
    lvni_optim_schedule run = own->schedule;
    LVN_TRY(own->has_schedule ? LVN_OK : lvni_run_read_schedule(c, plan, &run));
    if (run.kind != LVNI_SCHEDULE_ONECYCLE || !run.cycle.moves_momentum) {
        return LVN_OK;
    }
    if (has_key(text, moved)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.phases: %s gives a phase its own %s, which scheduler=onecycle moves: "
                 "leave it out, or give scheduler.cycle_momentum=false",
                 text, moved);
    }
    if (!(lvni_optim_moves_momentum(o) ? o->momentum > 0.0
                                       : lvni_optim_has_betas(o) && o->beta1 > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.phases: %s has scheduler=onecycle, which moves the momentum, and its "
                 "optimizer, %s, has none: give scheduler.cycle_momentum=false",
                 text, lvni_optim_name(o->kind));
    }
    return LVN_OK;
}

static lvn_status read_phase(const lvni_core_config *c, const lvni_plan *plan, const char *text,
                             lvni_trainer_phase_options *out)
{
    LVN_TRY(read_optimizer(c, text, out));
    for (const char *at = text + strcspn(text, ":"); *at == ':'; at += 1 + strcspn(at + 1, ":")) {
        LVN_TRY(read_setting(c, plan, text, at + 1, out));
    }
    const lvni_optim_options *o = &out->optim;
    if (o->nesterov && (!(o->momentum > 0.0) || o->dampening > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.phases: %s has nesterov=true, which needs a momentum above 0 and "
                 "dampening=0, not %g and %g",
                 text, o->momentum, o->dampening);
    }
    return out->has_optim ? check_cycle(c, plan, out, text) : LVN_OK;
}

lvn_status lvni_run_read_phases(const lvni_core_config *c, const lvni_plan *plan,
                                const char *const *phases,
                                lvni_trainer_phase_options out[LVNI_PHASES])
{
    size_t n;
    const char *const *list = lvni_core_config_str_list(c, "optim.phases", &n);
    bool always = n == 0;
    memset(out, 0, LVNI_PHASES * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        const size_t name = strcspn(list[i], ":");
        const int phase = find_phase(phases, list[i], name);
        if (phase < 0 || phase >= LVNI_PHASES) {
            LVN_FAIL(LVN_ERR_USAGE, "optim.phases: %.*s is not a phase of this model's steps%s",
                     (int)name, list[i], phases == NULL ? ": it has one phase alone" : "");
        }
        if (list[i][name] == '\0') {
            return fail(list[i]);
        }
        LVN_TRY(read_phase(c, plan, list[i], &out[phase]));
    }
    for (int i = 0; i < lvni_optim_count_phases(phases); i++) {
        always = always || out[i].every <= 1;
    }
    if (!always) {
        LVN_FAIL(LVN_ERR_USAGE, "optim.phases: every phase has every= above 1: one must run in "
                                "each step");
    }
    return LVN_OK;
}

lvn_status lvni_run_check_groups(const lvni_optim_schedule *run,
                                 const lvni_trainer_phase_options phase[LVNI_PHASES],
                                 const lvni_optim_options *optim,
                                 const lvni_optim_parameter *parameter, int n)
{
    lvni_optim_options own[LVNI_PHASES];
    lvni_trainer_optim_of_phases(optim, phase, own);
    LVN_TRY(lvni_optim_check_groups(own, parameter, n));
    for (int i = 0; i < n; i++) {
        const lvni_optim_parameter *p = &parameter[i];
        const lvni_optim_schedule *s =
            phase[p->phase].has_schedule ? &phase[p->phase].schedule : run;
        const bool momentum = lvni_optim_moves_momentum(&own[p->phase]);
        if (!p->frozen && s->kind == LVNI_SCHEDULE_ONECYCLE && s->cycle.moves_momentum &&
            (momentum ? p->own.has_momentum : p->own.has_beta1)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "optim.groups gives %s its own %s, which scheduler=onecycle moves: leave it "
                     "out, or give scheduler.cycle_momentum=false",
                     p->name, momentum ? "momentum" : "beta1");
        }
    }
    return LVN_OK;
}
