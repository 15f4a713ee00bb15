/* optim.phases: what phases of a step have of their own. */
#include "recipes/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvn_status fail(const char *text)
{
    LVN_FAIL(LVN_ERR_USAGE,
             "optim.phases: %s is not PHASE:KEY=VALUE with the keys lr (above 0), clip (0: none), "
             "scheduler (a value of scheduler.name except plateau), every (steps), beta1 and beta2 "
             "(below 1), as in "
             "optim.phases=[critic:lr=1e-4:clip=1,generator:every=5]",
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
    *out = strtod(text, &stop);
    return n > 0 && stop == text + n && strspn(text, "+-.0123456789eE") >= n && *out >= 0.0 &&
           isfinite(*out);
}

static bool is_key(const char *text, size_t n, const char *key)
{
    return strlen(key) == n && memcmp(text, key, n) == 0;
}

/* "lr=1e-4" */
static lvn_status read_setting(const lvni_core_config *c, const lvni_plan *plan, const char *all,
                               const char *text, lvni_trainer_phase_options *out)
{
    const size_t key = strcspn(text, "=:");
    const char *value = text + key + 1;
    const size_t n = text[key] == '=' ? strcspn(value, ":") : 0;
    double number = 0.0;
    if (n > 0 && is_key(text, key, "scheduler")) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)n, value);
        out->has_schedule = true;
        return lvni_recipes_read_schedule_as(c, plan, name, &out->schedule);
    }
    if (n == 0 || !read_number(value, n, &number)) {
        return fail(all);
    }
    if (is_key(text, key, "lr") && number > 0.0) {
        out->lr = number;
    } else if (is_key(text, key, "clip")) {
        out->has_clip = true;
        out->clip = number;
    } else if (is_key(text, key, "every") && number >= 1.0 && number <= 1e9 &&
               floor(number) == number) {
        out->every = (int64_t)number;
    } else if (is_key(text, key, "beta1") && number < 1.0) {
        out->has_beta1 = true;
        out->beta1 = number;
    } else if (is_key(text, key, "beta2") && number < 1.0) {
        out->has_beta2 = true;
        out->beta2 = number;
    } else {
        return fail(all);
    }
    return LVN_OK;
}

/* The optimizer has betas, and no schedule moves the first one. */
static lvn_status check_betas(const lvni_core_config *c, const lvni_plan *plan,
                              const lvni_trainer_phase_options *own, const char *text)
{
    if (!own->has_beta1 && !own->has_beta2) {
        return LVN_OK;
    }
    const char *optim = lvni_core_config_str(c, "optim.name");
    if (strcmp(optim, "adam") != 0 && strcmp(optim, "adamw") != 0 && strcmp(optim, "lion") != 0 &&
        strcmp(optim, "lamb") != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.phases: %s gives a phase its own beta1 or beta2, and optim=%s has none: "
                 "adam, adamw, lion and lamb have",
                 text, optim);
    }
    lvni_optim_schedule run = own->schedule;
    LVN_TRY(own->has_schedule ? LVN_OK : lvni_recipes_read_schedule(c, plan, &run));
    if (own->has_beta1 && run.kind == LVNI_SCHEDULE_ONECYCLE && run.cycle.moves_momentum) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.phases: %s gives a phase its own beta1, which scheduler=onecycle moves: "
                 "leave it out, or give scheduler.cycle_momentum=false",
                 text);
    }
    return LVN_OK;
}

lvn_status lvni_recipes_read_phases(const lvni_core_config *c, const lvni_plan *plan,
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
        for (const char *at = list[i] + name; *at == ':'; at += 1 + strcspn(at + 1, ":")) {
            LVN_TRY(read_setting(c, plan, list[i], at + 1, &out[phase]));
        }
        LVN_TRY(check_betas(c, plan, &out[phase], list[i]));
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
