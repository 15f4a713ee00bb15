/* The rules about a cluster (slurm_cluster_check.h). */
#include "slurm/slurm_cluster_check.h"

#include "core/error.h"
#include "launch/host_list.h"
#include "slurm/slurm_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char rule[] = "cluster";

/* What the job asks of each of its nodes; 0 and NULL: nothing. */
typedef struct want {
    const lvni_slurm_cluster *c;
    const lvni_slurm_directives *d;
    int64_t nodes, cpus, gpus, memory;
    int64_t all_gpus; /* of all nodes, which may have unlike numbers of them */
    const char *type; /* of the GPUs */
    size_t n_type;
    const char *feature;
    bool qos; /* is given, and may lift limits */
    const lvni_slurm_directive *of_gpus, *of_memory;
} want;

static const lvni_slurm_directive *find(const want *w, const char *name)
{
    const lvni_slurm_directive *one = lvni_slurm_directive_find(w->d, name);
    return one != NULL && one->value != NULL ? one : NULL;
}

/* "command line", or where the directive that decides stands. */
static const char *where(const lvni_slurm_directive *one)
{
    return one != NULL ? one->where : "not given";
}

/* ---- what is asked for ---- */

enum { MOST = 1000000 }; /* beyond any cluster; products of two and of memory stay numbers */

static int64_t clamp(int64_t n)
{
    return n > MOST ? MOST : n;
}

static int64_t number(const lvni_slurm_directives *d, const char *name, int64_t other)
{
    return clamp(lvni_slurm_directive_number(d, name, other));
}

static int64_t ceil_of(int64_t n, int64_t parts)
{
    return (n + parts - 1) / parts;
}

/* "A100:2" of gpus-per-node and others; of gres the first item that is GPUs. */
static bool read_gpus(want *w, const char *name, int64_t *count)
{
    const lvni_slurm_directive *one = find(w, name);
    const char *text = one != NULL ? one->value : "";
    const bool found = strcmp(name, "gres") == 0
                           ? lvni_slurm_gres_next(&text, &w->type, &w->n_type, count)
                           : one != NULL && lvni_slurm_gpus_read(text, count, &w->type, &w->n_type);
    w->of_gpus = found ? one : w->of_gpus;
    return found;
}

static void take_gpus(want *w, int64_t tasks)
{
    int64_t n = 0;
    if (read_gpus(w, "gpus-per-node", &n) || read_gpus(w, "gres", &n)) {
        w->gpus = clamp(n);
    } else if (read_gpus(w, "gpus-per-task", &n)) {
        w->gpus = clamp(clamp(n) * tasks);
    } else if (read_gpus(w, "gpus", &n)) {
        w->gpus = 1;
        w->all_gpus = n;
    }
    if (w->n_type == 0) {
        w->type = NULL;
    }
}

static void take_memory(want *w)
{
    static const char *const names[] = {"mem", "mem-per-cpu", "mem-per-gpu"};
    const int64_t times[] = {1, w->cpus, w->gpus};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const lvni_slurm_directive *one = find(w, names[i]);
        int64_t mib;
        if (one != NULL && lvni_slurm_size_mib(one->value, &mib)) {
            w->memory = (mib > 1000 * MOST ? 1000 * MOST : mib) * times[i];
            w->of_memory = one;
        }
    }
}

/* A single name; sums of several, alternatives and counts are left to Slurm. */
static const char *feature_of(const want *w)
{
    const lvni_slurm_directive *one = find(w, "constraint");
    return one != NULL && one->value[strcspn(one->value, "&|*[]()\"' ,")] == '\0' ? one->value
                                                                                  : NULL;
}

static want take(const lvni_slurm_cluster *c, const lvni_slurm_directives *d)
{
    want w = {.c = c, .d = d};
    const int64_t nodes = number(d, "nodes", 1), all = number(d, "ntasks", 0),
                  per_gpu = number(d, "cpus-per-gpu", 0);
    w.nodes = nodes > 0 ? nodes : 1;
    const int64_t given = number(d, "ntasks-per-node", 0),
                  tasks = given > 0 ? given
                          : all > 0 ? ceil_of(all, w.nodes)
                                    : 1,
                  each = number(d, "cpus-per-task", 1);
    take_gpus(&w, tasks);
    w.cpus = clamp(tasks * (each > 0 ? each : 1));
    w.cpus = clamp(per_gpu * w.gpus) > w.cpus ? clamp(per_gpu * w.gpus) : w.cpus;
    take_memory(&w);
    w.feature = feature_of(&w);
    w.qos = find(&w, "qos") != NULL;
    return w;
}

/* ---- limits of a partition ---- */

/* Another limit may be that of the quality of service. */
static void report(const want *w, lvni_slurm_findings *f, const char *text,
                   const lvni_slurm_directive *of)
{
    if (w->qos) {
        lvni_slurm_warn(f, rule, "%s, unless qos %s has another limit  (%s)", text,
                        find(w, "qos")->value, where(of));
    } else {
        lvni_slurm_error(f, rule, "%s  (%s)", text, where(of));
    }
}

static void check_state(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    if (p->state != NULL && strcmp(p->state, "UP") != 0) {
        lvni_slurm_warn(f, rule,
                        "partition %s starts no jobs now (State=%s): the job waits until an "
                        "administrator changes that  (%s)",
                        p->name, p->state, where(find(w, "partition")));
    }
}

static void check_time(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *least = find(w, "time-min"),
                               *one = least != NULL ? least : find(w, "time");
    char most[LVNI_SLURM_TIME_TEXT], text[512];
    int64_t s;
    if (p->most_time > 0 && one != NULL && lvni_slurm_time_read(one->value, &s) &&
        (s == LVNI_SLURM_UNLIMITED || s > p->most_time)) {
        lvni_slurm_time_write(p->most_time, most);
        snprintf(text, sizeof text,
                 "%s %.60s is longer than partition %.100s allows, so the job would wait for ever: "
                 "%s=%s at most",
                 one->name, one->value, p->name, one->name, most);
        report(w, f, text, one);
    } else if (one == NULL && p->usual_time > 0) {
        lvni_slurm_time_write(p->usual_time, most);
        lvni_slurm_note(f, rule, "partition %s gives a job without a time limit %s", p->name, most);
    }
}

static int64_t count_all(const want *w, const lvni_slurm_partition *p)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->c->n_nodes; i++) {
        n += strcmp(w->c->nodes[i].partition, p->name) == 0 ? w->c->nodes[i].n : 0;
    }
    return n;
}

static void check_count(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const int64_t all = count_all(w, p);
    const lvni_slurm_directive *one = find(w, "nodes");
    char text[512];
    if (all > 0 && w->nodes > all) {
        lvni_slurm_error(f, rule,
                         "nodes %lld: partition %s has %lld, and Slurm refuses the job  (%s)",
                         (long long)w->nodes, p->name, (long long)all, where(one));
    } else if (p->most_nodes > 0 && w->nodes > p->most_nodes) {
        snprintf(text, sizeof text,
                 "nodes %lld: a job in partition %.100s has %lld at most, so this one would wait "
                 "for ever",
                 (long long)w->nodes, p->name, (long long)p->most_nodes);
        report(w, f, text, one);
    } else if (w->nodes < p->least_nodes) {
        snprintf(text, sizeof text,
                 "nodes %lld: a job in partition %.100s has %lld at least, so this one would wait "
                 "for ever",
                 (long long)w->nodes, p->name, (long long)p->least_nodes);
        report(w, f, text, one);
    }
}

static void check_list(const want *w, const lvni_slurm_partition *p, const char *name,
                       const char *list, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *one = find(w, name);
    if (one != NULL && list != NULL && strcmp(list, "ALL") != 0 &&
        !lvni_slurm_list_has(list, one->value, strlen(one->value))) {
        lvni_slurm_error(f, rule, "%s %.100s: partition %s takes jobs of %.300s alone  (%s)", name,
                         one->value, p->name, list, where(one));
    }
}

/* ---- its nodes ---- */

enum { GPUS = 1, CPUS = 2, MEMORY = 4, FEATURE = 8, ALL = 15, WORKS = 16 };

/* Has such a node what is asked for, of these kinds? A memory of 1 is one that is not configured.
 */
static bool fits(const want *w, const lvni_slurm_nodes *g, int kinds)
{
    return ((kinds & GPUS) == 0 || w->gpus == 0 ||
            lvni_slurm_nodes_gpus(g, w->type, w->n_type) >= w->gpus) &&
           ((kinds & CPUS) == 0 || g->cpus == 0 || w->cpus <= g->cpus) &&
           ((kinds & MEMORY) == 0 || g->memory <= 1 || w->memory <= g->memory) &&
           ((kinds & FEATURE) == 0 || w->feature == NULL ||
            lvni_slurm_list_has(g->features, w->feature, strlen(w->feature))) &&
           ((kinds & WORKS) == 0 || lvni_slurm_nodes_work(g));
}

static int64_t count(const want *w, const lvni_slurm_partition *p, int kinds)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->c->n_nodes; i++) {
        const lvni_slurm_nodes *g = &w->c->nodes[i];
        n += strcmp(g->partition, p->name) == 0 && fits(w, g, kinds) ? g->n : 0;
    }
    return n;
}

/* The most that a node of the partition has. */
static int64_t most(const want *w, const lvni_slurm_partition *p, int kind)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->c->n_nodes; i++) {
        const lvni_slurm_nodes *g = &w->c->nodes[i];
        const int64_t has = kind == GPUS   ? lvni_slurm_nodes_gpus(g, w->type, w->n_type)
                            : kind == CPUS ? g->cpus
                                           : g->memory;
        n = strcmp(g->partition, p->name) == 0 && has > n ? has : n;
    }
    return n;
}

/* "A100, H100": the types of GPUs of a partition; "": it has none with a type. */
static void list_types(const want *w, const lvni_slurm_partition *p, lvni_core_str *out)
{
    for (size_t i = 0; i < w->c->n_nodes; i++) {
        const char *at = w->c->nodes[i].gres, *type;
        size_t n;
        int64_t number;
        while (strcmp(w->c->nodes[i].partition, p->name) == 0 &&
               lvni_slurm_gres_next(&at, &type, &n, &number)) {
            if (n > 0 && !lvni_slurm_list_has(lvni_core_str_text(out), type, n)) {
                lvni_core_str_append(out, out->len > 0 ? "," : "");
                lvni_core_str_append_n(out, type, n);
            }
        }
    }
}

static void check_type(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    lvni_core_str types = {0};
    const want any = {.c = w->c};
    list_types(w, p, &types);
    if (most(&any, p, GPUS) == 0) {
        lvni_slurm_error(f, rule, "%s %s: partition %s has no GPUs  (%s)", w->of_gpus->name,
                         w->of_gpus->value, p->name, where(w->of_gpus));
    } else {
        lvni_slurm_error(
            f, rule, "%s %s: partition %s has no GPU of type %.*s; its types are %s  (%s)",
            w->of_gpus->name, w->of_gpus->value, p->name, (int)w->n_type,
            w->type != NULL ? w->type : "",
            types.len > 0 ? lvni_core_str_text(&types) : "not named: give none", where(w->of_gpus));
    }
    f->text.failed = f->text.failed || types.failed;
    lvni_core_str_free(&types);
}

static bool check_gpus(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const int64_t has = w->gpus > 0 ? most(w, p, GPUS) : 0;
    if (has > 0 && find(w, "nodes") != NULL && w->all_gpus > has * w->nodes) {
        lvni_slurm_error(f, rule,
                         "%s %s: nodes of partition %s have %lld GPUs at most, so it takes %lld of "
                         "them, and the job has %lld  (%s)",
                         w->of_gpus->name, w->of_gpus->value, p->name, (long long)has,
                         (long long)ceil_of(w->all_gpus, has), (long long)w->nodes,
                         where(w->of_gpus));
        return false;
    }
    if (w->gpus == 0 || count(w, p, GPUS) >= w->nodes) {
        return true;
    }
    if (has == 0) {
        check_type(w, p, f);
    } else if (has < w->gpus) {
        lvni_slurm_error(f, rule,
                         "%s %s: %lld GPUs on a node, and those of partition %s have %lld at most; "
                         "fewer on more nodes  (%s)",
                         w->of_gpus->name, w->of_gpus->value, (long long)w->gpus, p->name,
                         (long long)has, where(w->of_gpus));
    } else {
        lvni_slurm_error(f, rule, "%lld nodes with %s %s: partition %s has %lld such nodes  (%s)",
                         (long long)w->nodes, w->of_gpus->name, w->of_gpus->value, p->name,
                         (long long)count(w, p, GPUS), where(w->of_gpus));
    }
    return false;
}

static bool check_cpus(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *one = find(w, "cpus-per-task");
    const int64_t has = most(w, p, CPUS),
                  limit = p->most_cpus > 0 && p->most_cpus < has ? p->most_cpus : has;
    if (has == 0 || (w->cpus <= limit && count(w, p, CPUS) >= w->nodes)) {
        return true;
    }
    one = one != NULL ? one : find(w, "ntasks-per-node");
    if (w->cpus > limit) {
        lvni_slurm_error(f, rule,
                         "the tasks of a node take %lld cores, and a job gets %lld at most of a "
                         "node of partition %s; fewer cpus_per_task, or fewer tasks on more "
                         "nodes  (%s)",
                         (long long)w->cpus, (long long)limit, p->name, where(one));
    } else {
        lvni_slurm_error(f, rule,
                         "%lld nodes with %lld cores: partition %s has %lld such nodes  (%s)",
                         (long long)w->nodes, (long long)w->cpus, p->name,
                         (long long)count(w, p, CPUS), where(one));
    }
    return false;
}

static bool check_memory(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const int64_t has = most(w, p, MEMORY),
                  limit = p->most_memory > 0 && p->most_memory < has ? p->most_memory : has;
    char asked[LVNI_BYTES_TEXT], there[LVNI_BYTES_TEXT];
    lvni_core_bytes_text((uint64_t)w->memory << 20, asked);
    lvni_core_bytes_text((uint64_t)limit << 20, there);
    if (has <= 1 || w->memory == 0 || (w->memory <= limit && count(w, p, MEMORY) >= w->nodes)) {
        return true;
    }
    if (w->memory > limit) {
        lvni_slurm_error(f, rule,
                         "%s %s is %s on a node, and a job gets %s at most of a node of partition "
                         "%s; mem=0 takes all of a node  (%s)",
                         w->of_memory->name, w->of_memory->value, asked, there, p->name,
                         where(w->of_memory));
    } else {
        lvni_slurm_error(f, rule, "%lld nodes with %s: partition %s has %lld such nodes  (%s)",
                         (long long)w->nodes, asked, p->name, (long long)count(w, p, MEMORY),
                         where(w->of_memory));
    }
    return false;
}

static bool check_feature(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const int64_t n = count(w, p, FEATURE);
    if (w->feature == NULL || n >= w->nodes) {
        return true;
    }
    lvni_slurm_error(f, rule,
                     "constraint %.100s: partition %s has %lld such node%s, and the job %lld  (%s)",
                     w->feature, p->name, (long long)n, lvni_core_plural(n, "", "s"),
                     (long long)w->nodes, where(find(w, "constraint")));
    return false;
}

static void check_nodes(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const int64_t all = count_all(w, p);
    if (all < w->nodes) {
        return; /* nothing is known, or it is reported */
    }
    const bool gpus = check_gpus(w, p, f), cpus = check_cpus(w, p, f),
               memory = check_memory(w, p, f), feature = check_feature(w, p, f);
    if (!gpus || !cpus || !memory || !feature) {
        return;
    }
    const int64_t fit = count(w, p, ALL), work = count(w, p, ALL | WORKS);
    if (fit < w->nodes) {
        lvni_slurm_error(f, rule,
                         "partition %s has %lld node%s with %lld GPUs, %lld cores and %lld MiB at "
                         "once, and the job %lld  (%s)",
                         p->name, (long long)fit, lvni_core_plural(fit, "", "s"),
                         (long long)w->gpus, (long long)w->cpus, (long long)w->memory,
                         (long long)w->nodes, where(find(w, "nodes")));
    } else if (work < w->nodes) {
        lvni_slurm_warn(f, rule,
                        "%lld of the %lld nodes of partition %s that fit work now (the others are "
                        "down or drained): the job waits for more  (%s)",
                        (long long)work, (long long)fit, p->name, where(find(w, "nodes")));
    }
}

/* ---- nodes by name ---- */

static bool has_host(const lvni_launch_hosts *hosts, const char *name)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (strcmp(lvni_launch_hosts_name(hosts, i), name) == 0) {
            return true;
        }
    }
    return false;
}

static lvn_status hosts_of(const want *w, const lvni_slurm_partition *p, lvni_launch_hosts *hosts)
{
    lvni_core_notices notices = {.error = 0};
    lvn_status s = LVN_OK;
    for (size_t i = 0; i < w->c->n_nodes && s == LVN_OK; i++) {
        if (strcmp(w->c->nodes[i].partition, p->name) == 0) {
            s = lvni_launch_hosts_expand(hosts, w->c->nodes[i].names, &notices);
        }
    }
    lvni_core_notices_free(&notices);
    return s;
}

/* A list that cannot be read is left to Slurm, and so is a file of names. */
static lvn_status check_names(const want *w, const lvni_slurm_partition *p, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *one = find(w, "nodelist");
    lvni_launch_hosts asked = {.n = 0}, there = {.n = 0};
    lvni_core_notices notices = {.error = 0};
    lvn_status s = LVN_OK;
    if (one == NULL || strchr(one->value, '/') != NULL || count_all(w, p) == 0) {
        return LVN_OK;
    }
    LVNI_TRY_DONE(s, lvni_launch_hosts_expand(&asked, one->value, &notices));
    LVNI_TRY_DONE(s, hosts_of(w, p, &there));
    for (size_t i = 0; i < asked.n; i++) {
        const char *name = lvni_launch_hosts_name(&asked, i);
        if (!has_host(&there, name)) {
            lvni_slurm_error(f, rule,
                             "nodelist %.100s: partition %s has no node %.100s; `sinfo -N` lists "
                             "them  (%s)",
                             one->value, p->name, name, where(one));
            break;
        }
    }
done:
    lvni_launch_hosts_free(&asked);
    lvni_launch_hosts_free(&there);
    lvni_core_notices_free(&notices);
    if (s != LVN_OK && s != LVN_ERR_MEMORY) {
        lvn_clear_error();
        s = LVN_OK;
    }
    return s;
}

/* ---- the partition ---- */

static lvn_status check_partition(const want *w, const lvni_slurm_partition *p,
                                  lvni_slurm_findings *f)
{
    check_state(w, p, f);
    check_time(w, p, f);
    check_count(w, p, f);
    check_list(w, p, "account", p->accounts, f);
    check_list(w, p, "qos", p->qos, f);
    check_nodes(w, p, f);
    LVN_TRY(check_names(w, p, f));
    return lvni_core_str_status(&f->text);
}

static void list_partitions(const lvni_slurm_cluster *c, lvni_core_str *out)
{
    for (size_t i = 0; i < c->n_partitions; i++) {
        lvni_core_str_printf(out, "%s%s", i > 0 ? ", " : "", c->partitions[i].name);
    }
}

/* Each name of the list must be one. */
static bool check_existence(const want *w, const char *asked, const char *place,
                            lvni_slurm_findings *f)
{
    lvni_core_str all = {0};
    bool known = true;
    list_partitions(w->c, &all);
    for (const char *p = asked; *p != '\0'; p += *p == ',') {
        const size_t n = strcspn(p, ",");
        if (n > 0 && lvni_slurm_partition_find(w->c, p, n) == NULL) {
            lvni_slurm_error(f, rule, "partition %.*s: the cluster has %.600s  (%s)", (int)n, p,
                             lvni_core_str_text(&all), place);
            known = false;
        }
        p += n;
    }
    f->text.failed = f->text.failed || all.failed;
    lvni_core_str_free(&all);
    return known;
}

/* One that would take the job, where the others do not. */
static lvn_status advise(const want *w, const char *asked, lvni_slurm_findings *f)
{
    for (size_t i = 0; i < w->c->n_partitions; i++) {
        const lvni_slurm_partition *p = &w->c->partitions[i];
        lvni_slurm_findings own = {.errors = 0};
        if (lvni_slurm_list_has(asked, p->name, strlen(p->name))) {
            continue;
        }
        const lvn_status s = check_partition(w, p, &own);
        const bool takes = own.errors + own.warnings == 0;
        lvni_slurm_findings_free(&own);
        LVN_TRY(s);
        if (takes) {
            lvni_slurm_note(f, rule, "partition %s would take the job as it is", p->name);
            return lvni_core_str_status(&f->text);
        }
    }
    return LVN_OK;
}

/* Of several the findings of the first one that has no errors, else of the first one. */
static lvn_status check_partitions(const want *w, const char *asked, lvni_slurm_findings *f)
{
    lvni_slurm_findings best = {.errors = 0};
    bool any = false;
    lvn_status s = LVN_OK;
    for (const char *p = asked; *p != '\0' && s == LVN_OK; p += *p == ',') {
        const size_t n = strcspn(p, ",");
        const lvni_slurm_partition *one = lvni_slurm_partition_find(w->c, p, n);
        lvni_slurm_findings own = {.errors = 0};
        p += n;
        if (one == NULL || (any && best.errors == 0)) {
            continue;
        }
        s = check_partition(w, one, &own);
        if (!any || own.errors == 0) {
            lvni_slurm_findings_free(&best);
            best = own;
        } else {
            lvni_slurm_findings_free(&own);
        }
        any = true;
    }
    lvni_core_str_append(&f->text, lvni_core_str_text(&best.text));
    f->errors += best.errors;
    f->warnings += best.warnings;
    f->text.failed = f->text.failed || best.text.failed;
    const bool refused = best.errors > 0;
    lvni_slurm_findings_free(&best);
    LVN_TRY(s);
    return refused ? advise(w, asked, f) : lvni_core_str_status(&f->text);
}

static const lvni_slurm_partition *usual_partition(const lvni_slurm_cluster *c)
{
    for (size_t i = 0; i < c->n_partitions; i++) {
        if (c->partitions[i].is_default) {
            return &c->partitions[i];
        }
    }
    return NULL;
}

/* A job that is to go on after its time limit. */
static void check_requeue(const want *w, lvni_slurm_findings *f)
{
    const lvni_slurm_directive *sent = find(w, "signal");
    if (w->c->requeue == 0 && sent != NULL && lvni_slurm_directive_find(w->d, "requeue") == NULL &&
        lvni_slurm_directive_find(w->d, "no-requeue") == NULL) {
        lvni_slurm_warn(f, rule,
                        "the cluster queues no job again that does not ask for it (JobRequeue=0), "
                        "also not by scontrol requeue: --requeue, where the program does that  "
                        "(%s)",
                        where(sent));
    }
}

lvn_status lvni_slurm_cluster_check(const lvni_slurm_cluster *c, const lvni_slurm_directives *d,
                                    lvni_slurm_findings *f)
{
    const want w = take(c, d);
    const lvni_slurm_directive *one = find(&w, "partition"), *other = find(&w, "clusters");
    const lvni_slurm_partition *usual = usual_partition(c);
    const char *asked = c->partition != NULL ? c->partition : one != NULL ? one->value : NULL;
    if (other != NULL) {
        lvni_slurm_note(f, rule,
                        "clusters %.100s: not this one was asked for, so nothing is checked",
                        other->value);
        return LVN_OK;
    }
    check_requeue(&w, f);
    if (c->n_partitions == 0) {
        return LVN_OK;
    }
    if (asked == NULL && usual == NULL) {
        lvni_core_str all = {0};
        list_partitions(c, &all);
        lvni_slurm_error(f, rule,
                         "no partition is given, and the cluster has no default one: %.600s",
                         lvni_core_str_text(&all));
        f->text.failed = f->text.failed || all.failed;
        lvni_core_str_free(&all);
        return LVN_OK;
    }
    if (asked != NULL &&
        !check_existence(&w, asked, c->partition != NULL ? "SBATCH_PARTITION" : where(one), f)) {
        return lvni_core_str_status(&f->text);
    }
    return check_partitions(&w, asked != NULL ? asked : usual->name, f);
}
