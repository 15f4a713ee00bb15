/* The #SBATCH lines of a job script (slurm_directives.h). */
#include "slurm/slurm_directives.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "slurm/slurm_grammar.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static char *copy(lvni_slurm_directives *d, const char *text)
{
    char *made = text == NULL ? NULL : lvni_core_strdup(LVNI_TAG_CORE, text);
    d->failed = d->failed || (text != NULL && made == NULL);
    return made;
}

static void empty(lvni_slurm_directive *one)
{
    lvni_core_free(one->name);
    lvni_core_free(one->value);
    lvni_core_free(one->comment);
    lvni_core_free(one->where);
    *one = (lvni_slurm_directive){0};
}

static bool make_room(lvni_slurm_directives *d)
{
    if (d->n < d->room) {
        return true;
    }
    const size_t room = d->room == 0 ? 32 : 2 * d->room;
    lvni_slurm_directive *list = lvni_core_realloc(LVNI_TAG_CORE, d->list, room * sizeof *d->list);
    d->failed = d->failed || list == NULL;
    d->list = list != NULL ? list : d->list;
    d->room = list != NULL ? room : d->room;
    return list != NULL;
}

void lvni_slurm_directive_add(lvni_slurm_directives *d, const char *name, const char *value,
                              const char *where, bool optional)
{
    if (make_room(d)) {
        d->list[d->n++] = (lvni_slurm_directive){.name = copy(d, name),
                                                 .value = copy(d, value),
                                                 .where = copy(d, where),
                                                 .optional = optional};
    }
}

/* Where " # comment" begins; the end of the text: nowhere. */
static const char *comment_of(const char *text)
{
    const char *p = strstr(text, " #");
    return p != NULL ? p : text + strlen(text);
}

bool lvni_slurm_directive_put(lvni_slurm_directives *d, const char *text, const char *where)
{
    lvni_core_str name = {0}, value = {0};
    const char *hash = comment_of(text);
    text += strncmp(text, "--", 2) == 0 ? 2 : 0;
    size_t n = strcspn(text, "= ");
    n = text + n > hash ? (size_t)(hash - text) : n;
    lvni_core_str_append_n(&name, text, n);
    const char *begin = text[n] == '=' ? text + n + 1 : hash, *end = hash;
    while (end > begin && end[-1] == ' ') {
        end--;
    }
    lvni_core_str_append_n(&value, begin, (size_t)(end - begin));
    bool good = n > 0 && lvni_core_str_text(&name)[0] != '-';
    if (good) {
        lvni_slurm_directive one = {.name = copy(d, lvni_core_str_text(&name)),
                                    .value =
                                        text[n] == '=' ? copy(d, lvni_core_str_text(&value)) : NULL,
                                    .where = copy(d, where),
                                    .comment = *hash != '\0' ? copy(d, hash + 2) : NULL};
        lvni_slurm_directive *place =
            (lvni_slurm_directive *)(uintptr_t)lvni_slurm_directive_find(d, one.name);
        if (place != NULL) {
            empty(place);
            *place = one;
        } else if (make_room(d)) {
            d->list[d->n++] = one;
        } else {
            empty(&one);
        }
    }
    d->failed = d->failed || name.failed || value.failed;
    lvni_core_str_free(&name);
    lvni_core_str_free(&value);
    return good;
}

const lvni_slurm_directive *lvni_slurm_directive_find(const lvni_slurm_directives *d,
                                                      const char *name)
{
    for (size_t i = d->n; i > 0; i--) {
        const lvni_slurm_directive *one = &d->list[i - 1];
        if (!one->optional && one->name != NULL && name != NULL && strcmp(one->name, name) == 0) {
            return one;
        }
    }
    return NULL;
}

int64_t lvni_slurm_directive_number(const lvni_slurm_directives *d, const char *name,
                                    int64_t fallback)
{
    const lvni_slurm_directive *one = lvni_slurm_directive_find(d, name);
    char *end;
    const long n = one == NULL || one->value == NULL ? -1 : strtol(one->value, &end, 10);
    return n < 0 || end == one->value || (*end != '\0' && *end != '-') ? fallback : n;
}

lvn_status lvni_slurm_directives_status(const lvni_slurm_directives *d)
{
    return d->failed ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_slurm_directives_free(lvni_slurm_directives *d)
{
    for (size_t i = 0; i < d->n; i++) {
        empty(&d->list[i]);
    }
    lvni_core_free(d->list);
    *d = (lvni_slurm_directives){0};
}

/* ---- the lines ---- */

/* Slurm reads quotes and a backslash as a shell does; blanks and # would end the value. */
static void print_value(const char *value, lvni_core_str *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:=@%+,-[]|&*^";
    if (value[0] != '\0' && value[strspn(value, plain)] == '\0') {
        lvni_core_str_append(out, value);
        return;
    }
    lvni_core_str_char(out, '"');
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\') {
            lvni_core_str_char(out, '\\');
        }
        lvni_core_str_char(out, *value);
    }
    lvni_core_str_char(out, '"');
}

void lvni_slurm_directives_print(const lvni_slurm_directives *d, lvni_core_str *out)
{
    for (size_t i = 0; i < d->n; i++) {
        const lvni_slurm_directive *one = &d->list[i];
        if (one->comment != NULL) {
            lvni_core_str_printf(out, "#%s%s\n", one->comment[0] == ' ' ? "" : " ", one->comment);
        }
        lvni_core_str_printf(out, "%s --%s", one->optional ? "##SBATCH" : "#SBATCH", one->name);
        if (one->value != NULL) {
            lvni_core_str_char(out, '=');
            print_value(one->value, out);
        }
        lvni_core_str_char(out, '\n');
    }
}

/* ---- rules ---- */

/* V03: Slurm refuses more tasks than nodes have room for, and starts fewer without a word. */
static void check_tasks(const lvni_slurm_directives *d, lvni_slurm_findings *f)
{
    const int64_t tasks = lvni_slurm_directive_number(d, "ntasks", 0),
                  per_node = lvni_slurm_directive_number(d, "ntasks-per-node", 0),
                  nodes = lvni_slurm_directive_number(d, "nodes", 1);
    if (tasks == 0 || per_node == 0) {
        return;
    }
    const char *where = lvni_slurm_directive_find(d, "ntasks")->where;
    const lvni_slurm_directive *range = lvni_slurm_directive_find(d, "nodes");
    const char *dash = range == NULL || range->value == NULL ? NULL : strchr(range->value, '-');
    const long long all = (long long)nodes * per_node;
    if (dash != NULL && tasks > nodes * per_node &&
        tasks <= strtol(dash + 1, NULL, 10) * per_node) {
        return; /* Slurm takes as many nodes as they need */
    }
    if (tasks != nodes * per_node) {
        lvni_slurm_error(f, "V03",
                         "ntasks=%lld beside ntasks-per-node=%lld and nodes=%lld, which are %lld "
                         "tasks: %s; remove ntasks  (%s)",
                         (long long)tasks, (long long)per_node, (long long)nodes, all,
                         tasks > nodes * per_node ? "Slurm refuses the job"
                                                  : "fewer ranks than devices would start",
                         where);
    } else {
        lvni_slurm_warn(f, "V03",
                        "ntasks=%lld repeats nodes=%lld times ntasks-per-node=%lld; remove it  "
                        "(%s)",
                        (long long)tasks, (long long)nodes, (long long)per_node, where);
    }
}

/* Of names of which a script has one at most. */
static void check_one_of(const lvni_slurm_directives *d, const char *rule, const char *what,
                         const char *const *names, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *first = NULL;
    for (; *names != NULL; names++) {
        const lvni_slurm_directive *one = lvni_slurm_directive_find(d, *names);
        const bool gpus = one != NULL && (strcmp(*names, "gres") != 0 || one->value == NULL ||
                                          strstr(one->value, "gpu") != NULL);
        if (gpus && first != NULL) {
            lvni_slurm_error(f, rule, "%s twice, by %s=%s (%s) and %s=%s (%s): give one of them",
                             what, first->name, first->value == NULL ? "" : first->value,
                             first->where, one->name, one->value == NULL ? "" : one->value,
                             one->where);
        }
        first = gpus && first == NULL ? one : first;
    }
}

static void check_time(const lvni_slurm_directives *d, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *time = lvni_slurm_directive_find(d, "time"),
                               *least = lvni_slurm_directive_find(d, "time-min"),
                               *sent = lvni_slurm_directive_find(d, "signal");
    int64_t seconds, shortest;
    lvni_slurm_signal signal;
    if (time == NULL) {
        lvni_slurm_warn(f, "W213",
                        "no time limit is given: the partition's counts; time=2:00:00 lets the job "
                        "begin earlier");
        return;
    }
    if (time->value != NULL && least != NULL && least->value != NULL &&
        lvni_slurm_time_read(time->value, &seconds) &&
        lvni_slurm_time_read(least->value, &shortest) && seconds != LVNI_SLURM_UNLIMITED &&
        (shortest > seconds || shortest == LVNI_SLURM_UNLIMITED)) {
        lvni_slurm_error(f, "V06", "time-min %s is longer than time %s, which Slurm refuses  (%s)",
                         least->value, time->value, least->where);
    }
    if (time->value != NULL && lvni_slurm_time_read(time->value, &seconds) && sent != NULL &&
        sent->value != NULL && lvni_slurm_signal_read(sent->value, &signal) &&
        seconds != LVNI_SLURM_UNLIMITED && seconds <= 2 * signal.lead) {
        lvni_slurm_warn(f, "V06",
                        "time %s is %lld s, and signal %s comes %lld s before its end: the job has "
                        "hardly begun  (%s)",
                        time->value, (long long)seconds, sent->value, (long long)signal.lead,
                        time->where);
    }
}

/* Of what has several ranks or GPUs. */
static void check_cpus(const lvni_slurm_directives *d, lvni_slurm_findings *f)
{
    static const char *const gives[] = {"cpus-per-task", "cpus-per-gpu", "exclusive"},
                             *const takes[] = {"ntasks-per-node", "gpus-per-node", "gpus", "gres"};
    const lvni_slurm_directive *one = NULL;
    for (size_t i = 0; i < sizeof gives / sizeof *gives; i++) {
        if (lvni_slurm_directive_find(d, gives[i]) != NULL) {
            return;
        }
    }
    for (size_t i = 0; one == NULL && i < sizeof takes / sizeof *takes; i++) {
        one = lvni_slurm_directive_find(d, takes[i]);
    }
    if (one != NULL) {
        lvni_slurm_warn(f, "V05",
                        "no cpus-per-task beside %s=%s: each task gets one core, and none for the "
                        "threads that load data  (%s)",
                        one->name, one->value == NULL ? "" : one->value, one->where);
    }
}

/* size: elements have smaller numbers; 0: not known. */
static void check_array(const lvni_slurm_directives *d, int64_t size, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *one = lvni_slurm_directive_find(d, "array");
    lvni_slurm_array a;
    if (one == NULL || one->value == NULL || !lvni_slurm_array_read(one->value, &a)) {
        return;
    }
    if (size > 0 && a.last >= size) {
        lvni_slurm_error(f, "V10",
                         "array %s goes up to %lld; the cluster takes numbers below %lld "
                         "(MaxArraySize)  (%s)",
                         one->value, (long long)a.last, (long long)size, one->where);
    } else if (size == 0 && (a.n > 1001 || a.last > 1000)) {
        lvni_slurm_warn(f, "V10",
                        "array %s has %lld elements up to %lld; most clusters allow numbers below "
                        "1001 (MaxArraySize)  (%s)",
                        one->value, (long long)a.n, (long long)a.last, one->where);
    }
}

static void check_mail(const lvni_slurm_directives *d, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *type = lvni_slurm_directive_find(d, "mail-type"),
                               *user = lvni_slurm_directive_find(d, "mail-user");
    if (type != NULL && user == NULL) {
        lvni_slurm_warn(f, "V11",
                        "mail-type %s without mail-user: mails go to your name on the cluster  "
                        "(%s)",
                        type->value == NULL ? "" : type->value, type->where);
    } else if (user != NULL && type == NULL) {
        lvni_slurm_warn(f, "V11", "mail-user %s without mail-type: Slurm sends nothing  (%s)",
                        user->value == NULL ? "" : user->value, user->where);
    }
}

/* V18. Of several of one name the last one wins. */
static void check_twice(const lvni_slurm_directives *d, lvni_slurm_findings *f)
{
    for (size_t i = 0; i < d->n; i++) {
        const lvni_slurm_directive *one = &d->list[i],
                                   *last = lvni_slurm_directive_find(d, one->name);
        if (!one->optional && last != one) {
            lvni_slurm_warn(f, "V18", "%s=%s (%s) is overridden by %s=%s (%s): the last one wins",
                            one->name, one->value == NULL ? "" : one->value, one->where, one->name,
                            last->value == NULL ? "" : last->value, last->where);
        }
    }
}

static void check_values(const lvni_slurm_directives *d, lvni_slurm_findings *f)
{
    static const struct {
        const char *name;
        lvni_slurm_grammar grammar;
    } known[] = {{"time", LVNI_SLURM_TIME},          {"time-min", LVNI_SLURM_TIME},
                 {"mem", LVNI_SLURM_SIZE},           {"mem-per-cpu", LVNI_SLURM_SIZE},
                 {"mem-per-gpu", LVNI_SLURM_SIZE},   {"array", LVNI_SLURM_ARRAY},
                 {"signal", LVNI_SLURM_SIGNAL},      {"mail-type", LVNI_SLURM_MAIL},
                 {"job-name", LVNI_SLURM_NAME},      {"cpus-per-task", LVNI_SLURM_COUNT},
                 {"gpus-per-node", LVNI_SLURM_GPUS}, {"gpus", LVNI_SLURM_GPUS},
                 {"ntasks", LVNI_SLURM_COUNT},       {"ntasks-per-node", LVNI_SLURM_COUNT}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const lvni_slurm_directive *one = lvni_slurm_directive_find(d, known[i].name);
        if (one != NULL) {
            lvni_slurm_value_check(known[i].grammar, one->name,
                                   one->value == NULL ? "" : one->value, one->where, f);
        }
    }
}

void lvni_slurm_directives_check(const lvni_slurm_directives *d, bool checked, int64_t array_size,
                                 lvni_slurm_findings *f)
{
    static const char *const gpus[] = {"gres", "gpus-per-node", "gpus", "gpus-per-task", NULL},
                             *const memory[] = {"mem", "mem-per-cpu", "mem-per-gpu", NULL};
    if (!checked) {
        check_values(d, f);
    }
    check_tasks(d, f);
    check_one_of(d, "V04", "GPUs are asked for", gpus, f);
    check_one_of(d, "V09", "memory is asked for", memory, f);
    check_cpus(d, f);
    check_time(d, f);
    check_array(d, array_size, f);
    check_mail(d, f);
    check_twice(d, f);
}

/* "mkdir -p 'a b'" */
static void advise_folder(const lvni_slurm_directive *one, const char *path, lvni_slurm_findings *f)
{
    lvni_core_str quoted = {0};
    lvni_core_shell_quote(&quoted, path);
    lvni_slurm_warn(f, "V08",
                    "the folder of %s %s is not there, and Slurm then ends the job without a log: "
                    "mkdir -p %s  (%s)",
                    one->name, one->value, lvni_core_str_text(&quoted), one->where);
    lvni_core_str_free(&quoted);
}

/* What the name itself has, whatever is there. True: its folder can be looked at. */
static bool check_name(const lvni_slurm_directives *d, const lvni_slurm_directive *one,
                       const char *slash, lvni_slurm_findings *f)
{
    if (strchr(one->value, '$') != NULL || strncmp(one->value, "~/", 2) == 0) {
        lvni_slurm_warn(f, "V08",
                        "%s %s: Slurm replaces neither $NAME nor ~ in it; write the path, with %%x "
                        "(name), %%j (number), %%a (element)  (%s)",
                        one->name, one->value, one->where);
        return false;
    }
    const bool each = strstr(one->value, "%a") != NULL || strstr(one->value, "%j") != NULL ||
                      strstr(one->value, "%J") != NULL || strcmp(one->value, "/dev/null") == 0;
    if (lvni_slurm_directive_find(d, "array") != NULL && !each) {
        lvni_slurm_warn(
            f, "V08", "%s %s is one file for all elements of the array: %%A_%%a in its name  (%s)",
            one->name, one->value, one->where);
    }
    if (slash == NULL || slash == one->value) {
        return false;
    }
    if (memchr(one->value, '%', (size_t)(slash - one->value)) != NULL) {
        lvni_slurm_warn(
            f, "V08",
            "%s %s: Slurm makes no folders, and this one has another name for each job; "
            "%% in the name of the file alone  (%s)",
            one->name, one->value, one->where);
        return false;
    }
    return true;
}

void lvni_slurm_output_check(const lvni_slurm_directives *d, bool made, lvni_slurm_findings *f)
{
    static const char *const names[] = {"output", "error"};
    const int64_t nodes = lvni_slurm_directive_number(d, "nodes", 1);
    const lvni_slurm_directive *chdir = lvni_slurm_directive_find(d, "chdir");
    for (size_t i = 0; i < 2; i++) {
        const lvni_slurm_directive *one = lvni_slurm_directive_find(d, names[i]);
        const char *slash = one == NULL || one->value == NULL ? NULL : strrchr(one->value, '/');
        if (one == NULL || one->value == NULL || !check_name(d, one, slash, f)) {
            continue;
        }
        lvni_core_str folder = {0};
        if (chdir != NULL && chdir->value != NULL && one->value[0] != '/') {
            lvni_core_str_printf(&folder, "%s/", chdir->value);
        }
        lvni_core_str_append_n(&folder, one->value, (size_t)(slash - one->value));
        const char *path = lvni_core_str_text(&folder);
        if (nodes > 1 && (strncmp(path, "/tmp/", 5) == 0 || strcmp(path, "/tmp") == 0)) {
            lvni_slurm_warn(f, "V08",
                            "%s %s: /tmp is another folder on each of the %lld nodes  (%s)",
                            one->name, one->value, (long long)nodes, one->where);
        } else if (!made && !lvni_core_path_is_folder(path)) {
            advise_folder(one, path, f);
        }
        lvni_core_str_free(&folder);
    }
}
