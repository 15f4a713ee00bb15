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

static bool is(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

/* One KEY=VALUE of PHASE:KEY=VALUE:KEY=VALUE. */
typedef struct setting {
    const char *text; /* all of it */
    const char *key, *value;
    size_t n_key, n_value; /* n_value 0: it has none */
} setting;

/* The next, or the first of {text}; false behind the last. */
static bool next_setting(setting *s)
{
    const char *end =
        s->key == NULL ? s->text + strcspn(s->text, ":") : s->key + strcspn(s->key, ":");
    if (*end == '\0') {
        return false;
    }
    s->key = end + 1;
    s->n_key = strcspn(s->key, "=:");
    s->value = s->key + s->n_key + 1;
    s->n_value = s->key[s->n_key] == '=' ? strcspn(s->value, ":") : 0;
    return true;
}

/* The first with this key after `after`, which is {text} or one of them. */
static bool find_setting(setting after, const char *key, setting *out)
{
    for (*out = after; next_setting(out);) {
        if (is(out->key, out->n_key, key)) {
            return true;
        }
    }
    return false;
}

/* ---- numbers of an optimizer ---- */

#define BIT(kind) (1u << LVNI_OPTIM_##kind)
enum {
    SGDS = BIT(SGD) | BIT(LARS),
    MOMENTUM = SGDS | BIT(RMSPROP),
    ADAMS = BIT(ADAM) | BIT(ADAMW) | BIT(LAMB),
    BETAS = ADAMS | BIT(LION),
    EPS = ADAMS | BIT(LARS) | BIT(RMSPROP) | BIT(ADAFACTOR)
};
#define FIELD(name) offsetof(lvni_optim_options, name)
#define BELOW_1 0x1.fffffffffffffp-1
#define ABOVE_0 0x1p-1074

/* With the ranges of optim.*; a range from 0 to 0: true or false. */
typedef struct field {
    const char *key;
    unsigned kinds; /* that have it */
    size_t at;
    double least, most;
} field;
static const field fields[] = {
    {"momentum", MOMENTUM, FIELD(momentum), 0.0, BELOW_1},
    {"dampening", SGDS, FIELD(dampening), 0.0, 1.0},
    {"nesterov", SGDS, FIELD(nesterov), 0.0, 0.0},
    {"trust_coefficient", BIT(LARS), FIELD(trust_coefficient), ABOVE_0, HUGE_VAL},
    {"beta1", BETAS, FIELD(beta1), 0.0, BELOW_1},
    {"beta2", BETAS, FIELD(beta2), 0.0, BELOW_1},
    {"eps", EPS, FIELD(eps), ABOVE_0, HUGE_VAL},
    {"alpha", BIT(RMSPROP), FIELD(alpha), 0.0, BELOW_1},
    {"centered", BIT(RMSPROP), FIELD(centered), 0.0, 0.0},
    {"eps2", BIT(ADAFACTOR), FIELD(eps2), 0.0, HUGE_VAL},
    {"beta2_decay", BIT(ADAFACTOR), FIELD(beta2_decay), -1.0, 0.0},
    {"d", BIT(ADAFACTOR), FIELD(d), 1.0, HUGE_VAL}};

static const field *find_field(const setting *s)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (is(s->key, s->n_key, fields[i].key)) {
            return &fields[i];
        }
    }
    return NULL;
}

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

static lvn_status read_field(const setting *s, const field *f, lvni_trainer_phase_options *out)
{
    lvni_optim_options *o = &out->optim;
    char *to = (char *)o + f->at;
    double number;
    if ((f->kinds >> o->kind & 1u) == 0) {
        return fail_kind(s->text, f->key, o, f->kinds);
    }
    out->has_optim = true;
    if (f->least == 0.0 && f->most == 0.0) {
        const bool on = is(s->value, s->n_value, "true");
        memcpy(to, &on, sizeof on);
        return on || is(s->value, s->n_value, "false") ? LVN_OK : fail(s->text);
    }
    if (!read_number(s->value, s->n_value, &number) || number < f->least || number > f->most) {
        return fail(s->text);
    }
    memcpy(to, &number, sizeof number);
    return LVN_OK;
}

/* ---- a phase ---- */

/* The run's optimizer, or the phase's own, with the defaults of its kind where that is another. */
static lvn_status read_optimizer(const lvni_core_config *c, const char *text,
                                 lvni_trainer_phase_options *out)
{
    lvni_optim_options run, own;
    LVN_TRY(lvni_run_read_optim(c, &run));
    out->optim = run;
    for (setting s = {.text = text}; find_setting(s, "optimizer", &s);) {
        if (s.key[s.n_key] != '=') {
            return fail(text);
        }
        if (!lvni_run_default_optim(s.value, s.n_value, &own)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "optim.phases: %s gives a phase the optimizer %.*s: give a value of "
                     "optim.name, such as adam",
                     text, (int)s.n_value, s.value);
        }
        own.clip_value = run.clip_value;
        out->has_optim = true;
        out->optim = own.kind == run.kind ? run : own;
    }
    return LVN_OK;
}

/* What is the trainer's, not the optimizer's: the rate, the clipping, how often it runs. */
static lvn_status read_own(const lvni_core_config *c, const setting *s,
                           lvni_trainer_phase_options *out)
{
    double number;
    if (!read_number(s->value, s->n_value, &number) || number < 0.0) {
        return fail(s->text);
    }
    if (is(s->key, s->n_key, "lr") && number > 0.0) {
        out->lr = number;
    } else if (is(s->key, s->n_key, "clip") && lvni_run_clips_value(c)) {
        out->has_optim = true;
        out->optim.clip_value = number;
    } else if (is(s->key, s->n_key, "clip")) {
        out->has_clip = true;
        out->clip = number;
    } else if (is(s->key, s->n_key, "every") && number >= 1.0 && number <= 1e9 &&
               floor(number) == number) {
        out->every = (int64_t)number;
    } else {
        return fail(s->text);
    }
    return LVN_OK;
}

static lvn_status read_setting(const lvni_core_config *c, const lvni_plan *plan, const setting *s,
                               lvni_trainer_phase_options *out)
{
    const field *f = find_field(s);
    if (s->n_value == 0) {
        return fail(s->text);
    }
    if (is(s->key, s->n_key, "optimizer")) {
        return LVN_OK; /* read_optimizer */
    }
    if (is(s->key, s->n_key, "scheduler")) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)s->n_value, s->value);
        out->has_schedule = true;
        return lvni_run_read_schedule_as(c, plan, name, &out->schedule);
    }
    return f != NULL ? read_field(s, f, out) : read_own(c, s, out);
}

/* What a one-cycle schedule moves: there, and not given. */
static lvn_status check_cycle(const lvni_core_config *c, const lvni_plan *plan,
                              const lvni_trainer_phase_options *own, const char *text)
{
    const lvni_optim_options *o = &own->optim;
    const char *moved = lvni_optim_moves_momentum(o) ? "momentum" : "beta1";
    lvni_optim_schedule run = own->schedule;
    setting given;
    LVN_TRY(own->has_schedule ? LVN_OK : lvni_run_read_schedule(c, plan, &run));
    if (run.kind != LVNI_SCHEDULE_ONECYCLE || !run.cycle.moves_momentum) {
        return LVN_OK;
    }
    if (find_setting((setting){.text = text}, moved, &given)) {
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

/* The optimizer first, since it decides which settings there are; then these, in the order of the
 * text, of which the last of a key counts; then what several of them are together. */
static lvn_status read_phase(const lvni_core_config *c, const lvni_plan *plan, const char *text,
                             lvni_trainer_phase_options *out)
{
    LVN_TRY(read_optimizer(c, text, out));
    for (setting s = {.text = text}; next_setting(&s);) {
        LVN_TRY(read_setting(c, plan, &s, out));
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
