/* Asking a cluster, and reading the answers (slurm_cluster.h). */
#include "slurm/slurm_cluster.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "launch/env_vars.h"
#include "slurm/slurm_grammar.h"
#include "slurm/slurm_tool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PARTITIONS, NODES };
enum { FIELDS = 8, ANSWER = 16 << 20 };
static const char blanks[] = " \t\r\n";

/* ---- numbers ---- */

/* "12", "24+"; `other` where it begins with no digit, or is too long for a number. */
static int64_t number_of(const char *text, int64_t other)
{
    const size_t digits = strspn(text, "0123456789");
    return digits == 0 || digits > 9 ? other : strtoll(text, NULL, 10);
}

/* "UNLIMITED", or a number. */
static int64_t limit_of(const char *text)
{
    return strcasecmp(text, "UNLIMITED") == 0 || strcasecmp(text, "INFINITE") == 0
               ? LVNI_SLURM_UNLIMITED
               : number_of(text, 0);
}

/* "1-00:00:00", "UNLIMITED"; "NONE" is not known. */
static int64_t time_of(const char *text)
{
    int64_t s;
    return lvni_slurm_time_read(text, &s) ? s : 0;
}

/* ---- configuration ---- */

/* "MaxArraySize            = 1001"; NULL: the line is about something else. */
static const char *value_in(const char *line, const char *name)
{
    const size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || line[n + strspn(line + n, " \t")] != '=') {
        return NULL;
    }
    line = strchr(line, '=') + 1;
    return line + strspn(line, " \t");
}

void lvni_slurm_cluster_read_config(lvni_slurm_cluster *c, const char *text)
{
    c->array_size = 0;
    c->requeue = -1;
    while (*text != '\0') {
        const char *size = value_in(text, "MaxArraySize"), *again = value_in(text, "JobRequeue");
        c->array_size = size != NULL ? number_of(size, 0) : c->array_size;
        c->requeue = again != NULL && (*again == '0' || *again == '1') ? *again - '0' : c->requeue;
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
}

/* ---- partitions ---- */

/* Room for one more of `size` bytes each. */
static lvn_status grow(void **list, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0) { /* there is room up to the next power of two */
        return LVN_OK;
    }
    void *more = lvni_core_realloc(LVNI_TAG_CORE, *list, (n == 0 ? 1 : 2 * n) * size);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    *list = more;
    return LVN_OK;
}

static lvn_status keep(lvni_slurm_cluster *c, int which, const char *text)
{
    lvni_core_free(c->texts[which]);
    c->texts[which] = lvni_core_strdup(LVNI_TAG_CORE, text);
    return c->texts[which] == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void take_pair(lvni_slurm_partition *p, const char *key, const char *value)
{
    if (strcmp(key, "Default") == 0) {
        p->is_default = strcmp(value, "YES") == 0;
    } else if (strcmp(key, "State") == 0) {
        p->state = value;
    } else if (strcmp(key, "AllowAccounts") == 0) {
        p->accounts = value;
    } else if (strcmp(key, "AllowQos") == 0) {
        p->qos = value;
    } else if (strcmp(key, "MaxTime") == 0) {
        p->most_time = time_of(value);
    } else if (strcmp(key, "DefaultTime") == 0) {
        p->usual_time = time_of(value);
    } else if (strcmp(key, "MaxNodes") == 0) {
        p->most_nodes = limit_of(value);
    } else if (strcmp(key, "MinNodes") == 0) {
        p->least_nodes = number_of(value, 0);
    } else if (strcmp(key, "MaxCPUsPerNode") == 0) {
        p->most_cpus = limit_of(value);
    } else if (strcmp(key, "MaxMemPerNode") == 0) {
        p->most_memory = limit_of(value);
    }
}

lvn_status lvni_slurm_cluster_read_partitions(lvni_slurm_cluster *c, const char *text)
{
    LVN_TRY(keep(c, PARTITIONS, text));
    char *rest = c->texts[PARTITIONS];
    for (char *word = strtok_r(rest, blanks, &rest); word != NULL;
         word = strtok_r(NULL, blanks, &rest)) {
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            continue;
        }
        *equals = '\0';
        if (strcmp(word, "PartitionName") == 0) {
            LVN_TRY(grow((void **)&c->partitions, c->n_partitions, sizeof *c->partitions));
            c->partitions[c->n_partitions++] = (lvni_slurm_partition){.name = equals + 1};
        } else if (c->n_partitions > 0) {
            take_pair(&c->partitions[c->n_partitions - 1], word, equals + 1);
        }
    }
    return LVN_OK;
}

/* ---- nodes ---- */

static const char format[] = "%R|%D|%c|%m|%G|%T|%f|%N";

/* The fields of a line, which is cut; false: it has another number of them. */
static bool cut(char *line, const char *field[FIELDS])
{
    int n = 0;
    for (char *p = line; p != NULL; n++) {
        char *bar = strchr(p, '|');
        if (n == FIELDS) {
            return false;
        }
        field[n] = p;
        if (bar != NULL) {
            *bar++ = '\0';
        }
        p = bar;
    }
    return n == FIELDS;
}

static const char *unless_null(const char *text)
{
    return strcmp(text, "(null)") == 0 ? "" : text;
}

lvn_status lvni_slurm_cluster_read_nodes(lvni_slurm_cluster *c, const char *text)
{
    LVN_TRY(keep(c, NODES, text));
    char *rest = c->texts[NODES];
    for (char *line = strtok_r(rest, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        const char *field[FIELDS];
        if (!cut(line, field)) {
            continue;
        }
        LVN_TRY(grow((void **)&c->nodes, c->n_nodes, sizeof *c->nodes));
        c->nodes[c->n_nodes++] = (lvni_slurm_nodes){.partition = field[0],
                                                    .n = number_of(field[1], 0),
                                                    .cpus = number_of(field[2], 0),
                                                    .memory = number_of(field[3], 0),
                                                    .gres = unless_null(field[4]),
                                                    .state = field[5],
                                                    .features = unless_null(field[6]),
                                                    .names = field[7]};
    }
    return LVN_OK;
}

bool lvni_slurm_nodes_work(const lvni_slurm_nodes *nodes)
{
    static const char *const broken[] = {"down", "drain", "drng",  "fail",
                                         "err",  "unk",   "inval", "maint"};
    const size_t n = strlen(nodes->state);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        if (strncasecmp(nodes->state, broken[i], strlen(broken[i])) == 0) {
            return false;
        }
    }
    return n == 0 || nodes->state[n - 1] != '*'; /* it does not answer */
}

bool lvni_slurm_gres_next(const char **p, const char **type, size_t *n_type, int64_t *count)
{
    while (**p != '\0') {
        const char *item = *p, *end = item + strcspn(item, ",(");
        for (int depth = 0; **p != '\0' && (depth > 0 || **p != ','); (*p)++) {
            depth += (**p == '(') - (**p == ')');
        }
        *p += **p == ',';
        if (strncmp(item, "gpu", 3) != 0 || (item[3] != ':' && item + 3 != end)) {
            continue;
        }
        const char *first = item + 3 + (item + 3 != end), *last = first;
        for (const char *q = first; q < end; q++) {
            last = *q == ':' ? q + 1 : last;
        }
        const bool counted =
            last < end && *last >= '0' && *last <= '9' && last + strspn(last, "0123456789") == end;
        *type = first;
        *n_type = counted ? (size_t)(last - first) - (last > first) : (size_t)(end - first);
        *count = counted ? number_of(last, 0) : 1;
        return true;
    }
    return false;
}

int64_t lvni_slurm_nodes_gpus(const lvni_slurm_nodes *nodes, const char *type, size_t n_type)
{
    int64_t sum = 0, count;
    const char *p = nodes->gres, *one;
    size_t n;
    while (lvni_slurm_gres_next(&p, &one, &n, &count)) {
        sum += type == NULL || (n == n_type && strncmp(one, type, n) == 0) ? count : 0;
    }
    return sum;
}

/* ---- all of it ---- */

bool lvni_slurm_list_has(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p != '\0'; p += *p == ',') {
        const size_t bytes = strcspn(p, ",");
        if (bytes == n && strncmp(p, name, n) == 0) {
            return true;
        }
        p += bytes;
    }
    return false;
}

const lvni_slurm_partition *lvni_slurm_partition_find(const lvni_slurm_cluster *c, const char *name,
                                                      size_t n)
{
    for (size_t i = 0; i < c->n_partitions; i++) {
        if (strlen(c->partitions[i].name) == n && strncmp(c->partitions[i].name, name, n) == 0) {
            return &c->partitions[i];
        }
    }
    return NULL;
}

void lvni_slurm_cluster_free(lvni_slurm_cluster *c)
{
    lvni_core_free(c->partitions);
    lvni_core_free(c->nodes);
    lvni_core_free(c->texts[PARTITIONS]);
    lvni_core_free(c->texts[NODES]);
    *c = (lvni_slurm_cluster){.requeue = -1};
}

/* Its last line has the reason. */
static void explain(const char *const *argv, int code, lvni_core_str *text, lvni_core_str *why)
{
    while (text->len > 0 && strchr(blanks, text->data[text->len - 1]) != NULL) {
        text->data[--text->len] = '\0';
    }
    const char *all = lvni_core_str_text(text), *line = strrchr(all, '\n');
    if (code == LVNI_SLURM_TOOL_NOT_FOUND) {
        lvni_core_str_printf(why, "there is no Slurm here (%s: %s)", argv[0], all);
    } else if (code == LVNI_SLURM_TOOL_TIMED_OUT) {
        lvni_core_str_printf(why, "%s: %s", argv[0], line != NULL ? line + 1 : all);
    } else {
        lvni_core_str_printf(why, "%s (exit code %d of %s)", line != NULL ? line + 1 : all, code,
                             argv[0]);
    }
}

/* `why` is empty: `text` has the answer. */
static lvn_status ask(char *const *environment, const char *const *argv, uint64_t end_ns,
                      lvni_core_str *text, lvni_core_str *why)
{
    const uint64_t now = lvni_core_now_ns();
    int code = 0;
    const int left = now >= end_ns ? 1 : (int)((end_ns - now) / 1000000u) + 1;
    lvni_core_str_clear(text);
    LVN_TRY(lvni_slurm_tool_run_in(environment, argv, left, ANSWER, text, &code));
    if (code != 0) {
        explain(argv, code, text, why);
    }
    return lvni_core_str_status(why);
}

lvn_status lvni_slurm_cluster_ask(char *const *environment, int timeout_ms, lvni_slurm_cluster *c,
                                  lvni_core_str *why)
{
    static const char *const config[] = {"scontrol", "show", "config", NULL},
                             *const partitions[] = {"scontrol", "-a",        "-o",
                                                    "show",     "partition", NULL},
                             *const nodes[] = {"sinfo", "-a", "-h", "-e", "-o", format, NULL};
    const uint64_t end = lvni_core_now_ns() + (uint64_t)timeout_ms * 1000000u;
    lvni_core_str text = {0};
    lvn_status s;
    *c = (lvni_slurm_cluster){.requeue = -1};
    LVNI_TRY_DONE(s, ask(environment, config, end, &text, why));
    if (why->len > 0) {
        goto done;
    }
    lvni_slurm_cluster_read_config(c, lvni_core_str_text(&text));
    LVNI_TRY_DONE(s, ask(environment, partitions, end, &text, why));
    LVNI_TRY_DONE(s, why->len > 0
                         ? LVN_OK
                         : lvni_slurm_cluster_read_partitions(c, lvni_core_str_text(&text)));
    if (why->len > 0) {
        goto done;
    }
    LVNI_TRY_DONE(s, ask(environment, nodes, end, &text, why));
    LVNI_TRY_DONE(s, why->len > 0 ? LVN_OK
                                  : lvni_slurm_cluster_read_nodes(c, lvni_core_str_text(&text)));
    c->partition = lvni_launch_env_get(environment, "SBATCH_PARTITION");
done:
    lvni_core_str_free(&text);
    if (why->len > 0) { /* what its configuration has stays */
        const int64_t array_size = c->array_size;
        const int requeue = c->requeue;
        lvni_slurm_cluster_free(c);
        c->array_size = array_size;
        c->requeue = requeue;
    }
    return s;
}
