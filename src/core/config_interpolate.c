/* ${...} in values of files and of the command line, as OmegaConf has it: ${a.b} is the value of
 * another key, ${.b} of one beside this, ${..b} of one above; ${oc.env:X} and ${oc.env:X,default}
 * are variables of the environment, ${now:%Y-%m-%d} is the time of the start, ${LP_ROOT_PATH:} a
 * folder that Lightning Pose's files name. \${ is text. Resolved after the last argument, so that
 * what counts is what won (config.h). */
#include "core/config_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of the process that was started first: ranks that it starts have the same time. */
#define START "LEVIN_START_TIME"

enum { DEPTH_MAX = 16, BYTES_MAX = 1 << 20 };

/* A key whose value is being resolved, and who needs it. */
typedef struct need {
    const struct need *of;
    lvni_core_slot *slot;
    int depth;
} need;

bool lvni_core_config_is_open(const lvni_core_option *row, const lvni_core_assignment *a)
{
    return (row->flags & LVNI_OPT_LITERAL) == 0 && !a->back && strstr(a->text, "${") != NULL &&
           (a->layer == LVNI_LAYER_FILE || a->layer == LVNI_LAYER_ARGUMENTS);
}

/* ---- resolvers ---- */

/* The format is the user's: nothing of the program's is read by it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static size_t print_time(const struct tm *parts, const char *format, char *out, size_t room)
{
    return strftime(out, room, format, parts);
}
#pragma GCC diagnostic pop

static lvn_status add_time(const need *n, const char *format, lvni_core_str *out)
{
    const char *start = getenv(START);
    char text[256], number[32];
    struct tm parts;
    if (start == NULL || *start == '\0') {
        snprintf(number, sizeof number, "%lld", (long long)time(NULL));
        (void)setenv(START, number, 1);
        start = number;
    }
    const time_t now = (time_t)strtoll(start, NULL, 10);
    if (*format == '\0' || localtime_r(&now, &parts) == NULL ||
        print_time(&parts, format, text, sizeof text) == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%.80s: ${now:%.80s}: expected a form of time, as %%Y-%%m-%%d  (%s)",
                 n->slot->spelled, format, n->slot->origin);
    }
    lvni_core_str_append(out, text);
    return LVN_OK;
}

static lvn_status add_variable(const need *n, const char *argument, lvni_core_str *out)
{
    char name[128];
    const size_t length = strcspn(argument, ",");
    snprintf(name, sizeof name, "%.*s", (int)length, argument);
    const char *value = getenv(name);
    if (value == NULL && argument[length] == ',') {
        value = argument + length + 1;
        value += strspn(value, " ");
    }
    if (value == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%.80s: ${oc.env:%.80s}: the environment has no such variable; set it, or give a "
                 "default, ${oc.env:%.80s,DEFAULT}  (%s)",
                 n->slot->spelled, name, name, n->slot->origin);
    }
    lvni_core_str_append(out, value);
    return LVN_OK;
}

static lvn_status add_resolved(const need *n, const char *inner, const char *colon,
                               lvni_core_str *out)
{
    const size_t length = (size_t)(colon - inner);
    if (length == 3 && memcmp(inner, "now", 3) == 0) {
        return add_time(n, colon + 1, out);
    }
    if (length == 6 && memcmp(inner, "oc.env", 6) == 0) {
        return add_variable(n, colon + 1, out);
    }
    if (length == 12 && memcmp(inner, "LP_ROOT_PATH", 12) == 0) {
        const char *root = getenv("LP_ROOT_PATH");
        if (root != NULL && *root != '\0') {
            lvni_core_str_append(out, root);
            return LVN_OK;
        }
        LVN_FAIL(LVN_ERR_USAGE,
                 "%.80s: ${LP_ROOT_PATH:} is the folder of Lightning Pose's source; set the "
                 "variable LP_ROOT_PATH of the environment to it, or write the path out  (%s)",
                 n->slot->spelled, n->slot->origin);
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%.80s: ${%.80s}: expected oc.env, now or LP_ROOT_PATH before the "
             "colon; \\${ is text  (%s)",
             n->slot->spelled, inner, n->slot->origin);
}

/* ---- other keys ---- */

static lvn_status resolve(lvni_core_config *config, const need *n);

/* ".lr" of "optim.name" is "optim.lr"; false: it goes above the outermost map, or is too long. */
static bool full_key(const char *of, const char *inner, char *key, size_t room)
{
    size_t up = strspn(inner, "."), n = strlen(of);
    if (up == 0) {
        return snprintf(key, room, "%s", inner) < (int)room;
    }
    for (size_t i = 0; i < up; i++) {
        if (n == 0) {
            return false;
        }
        while (n > 0 && of[n - 1] != '.') {
            n--;
        }
        n -= n > 0 && i + 1 < up ? 1 : 0;
    }
    return snprintf(key, room, "%.*s%s", (int)n, of, inner + up) < (int)room;
}

static lvn_status refuse_cycle(const need *n, const lvni_core_slot *slot)
{
    lvni_core_str keys = {0};
    for (const need *p = n; p != NULL; p = p->of) {
        lvni_core_str_printf(&keys, "%s`%s`", keys.len > 0 ? " for " : "", p->slot->spelled);
        if (p->slot == slot) {
            break;
        }
    }
    const lvn_status status = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                                            "`%.80s` needs itself: it is needed by "
                                            "%.400s  (%s)",
                                            slot->spelled, lvni_core_str_text(&keys), slot->origin);
    lvni_core_str_free(&keys);
    return status;
}

/* Of a path what it is from everywhere: a folder of the text may come before it. */
static void add_value(const lvni_core_slot *slot, lvni_core_str *out)
{
    const lvni_core_value *value = &slot->value;
    if (!value->set) {
        lvni_core_str_append(out, "null");
    } else if (slot->row->type == LVNI_OPT_PATH && value->n == 0) {
        lvni_core_str path = {0};
        lvni_core_path_absolute(value->text, &path);
        lvni_core_str_append(out, lvni_core_str_text(&path));
        out->failed = out->failed || lvni_core_str_status(&path) != LVN_OK;
        lvni_core_str_free(&path);
    } else {
        lvni_core_str_append(out, value->text);
    }
}

static lvn_status add_key(lvni_core_config *config, const need *n, const char *inner,
                          lvni_core_str *out)
{
    char key[128];
    lvni_core_slot *slot = full_key(n->slot->spelled, inner, key, sizeof key)
                               ? lvni_core_config_target(config, key)
                               : NULL;
    if (slot == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%.80s: ${%.80s} is the value of no key here; \\${ is text  (%s)",
                 n->slot->spelled, inner, n->slot->origin);
    }
    for (const need *p = n; p != NULL; p = p->of) {
        if (p->slot == slot) {
            return refuse_cycle(n, slot);
        }
    }
    if (slot->open != NULL) {
        if (n->depth == DEPTH_MAX) {
            LVN_FAIL(LVN_ERR_USAGE, "%.80s: ${%.80s}: values of values more than 16 times  (%s)",
                     n->slot->spelled, inner, n->slot->origin);
        }
        const need next = {.of = n, .slot = slot, .depth = n->depth + 1};
        LVN_TRY(resolve(config, &next));
    }
    add_value(slot, out);
    return lvni_core_str_status(out);
}

/* ---- texts ---- */

/* The } that ends what begins behind ${; NULL: none. */
static const char *closing(const char *p)
{
    for (int depth = 1; *p != '\0'; p++) {
        depth += strncmp(p, "${", 2) == 0 ? 1 : *p == '}' ? -1 : 0;
        if (depth == 0) {
            return p;
        }
    }
    return NULL;
}

static lvn_status expand(lvni_core_config *config, const need *n, const char *text, int depth,
                         lvni_core_str *out);

/* What stands between the braces, which may have others in it. */
static lvn_status expand_one(lvni_core_config *config, const need *n, const char *from, size_t size,
                             int depth, lvni_core_str *out)
{
    lvni_core_str raw = {0}, inner = {0};
    lvn_status status;
    lvni_core_str_append_n(&raw, from, size);
    LVNI_TRY_DONE(status, lvni_core_str_status(&raw));
    LVNI_TRY_DONE(status, expand(config, n, lvni_core_str_text(&raw), depth + 1, &inner));
    const char *text = lvni_core_str_text(&inner), *colon = strchr(text, ':');
    status = colon != NULL ? add_resolved(n, text, colon, out) : add_key(config, n, text, out);
done:
    lvni_core_str_free(&raw);
    lvni_core_str_free(&inner);
    return status;
}

static lvn_status expand(lvni_core_config *config, const need *n, const char *text, int depth,
                         lvni_core_str *out)
{
    for (const char *p = text; *p != '\0';) {
        if (strncmp(p, "\\${", 3) == 0) {
            lvni_core_str_append(out, "${");
            p += 3;
        } else if (strncmp(p, "${", 2) != 0) {
            lvni_core_str_char(out, *p++);
        } else {
            const char *end = closing(p + 2);
            if (end == NULL || depth >= DEPTH_MAX || out->len > BYTES_MAX) {
                LVN_FAIL(LVN_ERR_USAGE, "%.80s `%.80s`: %s; \\${ is text  (%s)", n->slot->spelled,
                         text, end == NULL ? "${ without its }" : "too long, or nested too deep",
                         n->slot->origin);
            }
            LVN_TRY(expand_one(config, n, p + 2, (size_t)(end - p) - 2, depth, out));
            p = end + 1;
        }
    }
    return lvni_core_str_status(out);
}

static bool is_one(const char *text)
{
    const char *end = strncmp(text, "${", 2) == 0 ? closing(text + 2) : NULL;
    return end != NULL && end[1] == '\0';
}

/* A text that is one ${...} becomes what a value of that place can be, a list, too. */
static lvn_status resolve(lvni_core_config *config, const need *n)
{
    lvni_core_slot *slot = n->slot;
    lvni_core_str text = {0};
    lvni_core_value value = {0};
    lvn_status status;
    LVNI_TRY_DONE(status, expand(config, n, slot->open, 0, &text));
    LVNI_TRY_DONE(status, lvni_core_option_parse(slot->row, lvni_core_str_text(&text),
                                                 slot->open_quoted && !is_one(slot->open),
                                                 slot->origin, &value));
    lvni_core_value_free(&slot->value);
    slot->value = value;
    lvni_core_free(slot->open);
    slot->open = NULL;
done:
    lvni_core_str_free(&text);
    return status;
}

lvn_status lvni_core_config_resolve(lvni_core_config *config)
{
    for (size_t i = 0; i < config->n; i++) {
        lvni_core_slot *slot = &config->slots[i];
        if (slot->open == NULL) {
            continue;
        }
        const need n = {.slot = slot};
        const lvn_status status = resolve(config, &n);
        lvni_core_free(slot->open);
        slot->open = NULL;
        slot->mistaken = slot->mistaken || status == LVN_ERR_USAGE;
        LVN_TRY(lvni_core_config_keep(config, status));
    }
    return LVN_OK;
}

/* ---- what is saved ---- */

void lvni_core_config_escape(const char *text, lvni_core_str *out)
{
    for (const char *p = text; *p != '\0'; p++) {
        lvni_core_str_append(out, strncmp(p, "${", 2) == 0 ? "\\" : "");
        lvni_core_str_char(out, *p);
    }
}

void lvni_core_config_unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p != '\0'; p++) {
        p += strncmp(p, "\\${", 3) == 0 ? 1 : 0;
        *to++ = *p;
    }
    *to = '\0';
}
