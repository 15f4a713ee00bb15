/* The nodes of a cluster (slurm_jobs_nodes.h). */
#include "slurm/slurm_jobs_nodes.h"

#include "core/alloc.h"

#include <stdlib.h>
#include <string.h>

const char lvni_slurm_sinfo_format[] =
    "--Format=NodeHost:80\037,Partition:80\037,StateComplete:80\037,CPUsState:48\037,"
    "AllocMem:24\037,Memory:24\037,Gres:512\037,GresUsed:512\037,Time:32\037";

enum { NODE, PARTITION, STATE, CPUS, MEMORY_USED, MEMORY, GRES, GRES_USED, LIMIT };

static int64_t number(const char *text)
{
    const int64_t n = text[0] >= '0' && text[0] <= '9' ? strtoll(text, NULL, 10) : 0;
    return n > INT64_C(1000000000000) ? 0 : n; /* sums of them stay numbers */
}

/* The state without its symbols, "idle" of "idle*+cloud", and what the symbols mean. */
static void read_state(lvni_slurm_nodes *g)
{
    static const struct {
        const char *state, *word;
        bool usable;
    } all[] = {{"idle", "free", true},
               {"mixed", "partly used", true},
               {"allocated", "in use", true},
               {"completing", "ending a job", true},
               {"planned", "free, kept for a planned job", true},
               {"reserved", "reserved", false},
               {"maint", "in maintenance", false},
               {"draining", "draining", false},
               {"drained", "drained", false},
               {"down", "down", false},
               {"fail", "failing", false},
               {"future", "not there yet", false},
               {"unknown", "unknown", false},
               {"inval", "not as configured", false}};
    const char *word = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all && word == NULL; i++) {
        if (strncmp(g->state, all[i].state, strlen(all[i].state)) == 0) {
            word = all[i].word;
            g->usable = all[i].usable;
        }
    }
    if (strstr(g->state, "+drain") != NULL) { /* "idle+drain", "mixed+drain" */
        word = g->usable && strncmp(g->state, "idle", 4) != 0 ? "draining" : "drained";
        g->usable = false;
    } else if (strstr(g->state, "+maint") != NULL) {
        word = "in maintenance";
        g->usable = false;
    }
    const bool silent = strchr(g->state, '*') != NULL || strstr(g->state, "+not_resp") != NULL,
               asleep = strpbrk(g->state, "~#%") != NULL || strstr(g->state, "+power") != NULL;
    g->usable = g->usable && !silent;
    lvni_core_format(g->word, sizeof g->word, "%.40s%s",
                     silent         ? "not answering"
                     : word != NULL ? word
                                    : g->state,
                     asleep && !silent ? ", powered down" : "");
}

/* ---- GPUs ---- */

static lvni_slurm_gpus *find_type(lvni_slurm_nodes *g, const char *type, size_t n)
{
    n = n < LVNI_SLURM_GPU_NAME ? n : LVNI_SLURM_GPU_NAME - 1;
    for (int i = 0; i < g->n_gpus; i++) {
        if (strncmp(g->gpus[i].type, type, n) == 0 && g->gpus[i].type[n] == '\0') {
            return &g->gpus[i];
        }
    }
    if (g->n_gpus == LVNI_SLURM_GPU_TYPES) {
        return NULL;
    }
    lvni_slurm_gpus *one = &g->gpus[g->n_gpus++];
    memcpy(one->type, type, n);
    one->type[n] = '\0';
    return one;
}

/* "gpu:A100:4(S:0-1),gpu:2,mps:80": sign times the numbers of the GPUs, as free ones, and for a
 * total. */
static void add_gpus(lvni_slurm_nodes *g, const char *gres, int sign)
{
    for (const char *p = gres; *p != '\0';) {
        const size_t n = strcspn(p, ",("), kind = strcspn(p, ":,(");
        if (kind == 3 && strncmp(p, "gpu", 3) == 0 && p[3] == ':') {
            const size_t type = strcspn(p + 4, ":,(");
            const bool has_type = p[4 + type] == ':';
            const char *count = has_type ? p + 4 + type + 1 : p + 4;
            lvni_slurm_gpus *one = find_type(g, has_type ? p + 4 : p, has_type ? type : 3);
            if (one != NULL) {
                one->total += sign > 0 ? number(count) : 0;
                one->free += g->usable ? sign * number(count) : 0;
            }
        }
        p += n;
        if (*p == '(') { /* sockets or indices, which may have commas */
            p += strcspn(p, ")");
            p += strcspn(p, ",");
        }
        p += *p == ',';
    }
}

static bool same_gpus(const lvni_slurm_nodes *a, const lvni_slurm_nodes *b)
{
    bool same = a->n_gpus == b->n_gpus;
    for (int i = 0; same && i < a->n_gpus; i++) {
        /* of one node of each: a's are sums */
        same = strcmp(a->gpus[i].type, b->gpus[i].type) == 0 &&
               a->gpus[i].total == a->n * b->gpus[i].total;
    }
    return same;
}

/* ---- nodes ---- */

static void read_node(const lvni_slurm_table *t, size_t row, lvni_slurm_nodes *g)
{
    const char *cpus = lvni_slurm_table_at(t, row, CPUS), *idle = strchr(cpus, '/'),
               *total = strrchr(cpus, '/');
    g->partition = lvni_slurm_table_at(t, row, PARTITION);
    g->limit = lvni_slurm_table_at(t, row, LIMIT);
    g->state = lvni_slurm_table_at(t, row, STATE);
    g->n = 1;
    read_state(g);
    g->cpus = total == NULL ? 0 : number(total + 1);
    g->cpus_free = g->usable && idle != NULL ? number(idle + 1) : 0;
    g->memory = number(lvni_slurm_table_at(t, row, MEMORY));
    const int64_t rest = g->memory - number(lvni_slurm_table_at(t, row, MEMORY_USED));
    g->memory_free = g->usable && rest > 0 ? rest : 0;
    add_gpus(g, lvni_slurm_table_at(t, row, GRES), 1);
    add_gpus(g, lvni_slurm_table_at(t, row, GRES_USED), -1);
    lvni_core_str_append(&g->names, lvni_slurm_table_at(t, row, NODE));
}

static bool alike(const lvni_slurm_nodes *a, const lvni_slurm_nodes *b)
{
    return strcmp(a->partition, b->partition) == 0 && strcmp(a->word, b->word) == 0 &&
           strcmp(a->limit, b->limit) == 0 && a->cpus == a->n * b->cpus &&
           a->memory == a->n * b->memory && same_gpus(a, b);
}

static void add(lvni_slurm_nodes *sum, const lvni_slurm_nodes *one)
{
    sum->n++;
    sum->cpus += one->cpus;
    sum->cpus_free += one->cpus_free;
    sum->memory += one->memory;
    sum->memory_free += one->memory_free;
    for (int i = 0; i < sum->n_gpus; i++) {
        sum->gpus[i].total += one->gpus[i].total;
        sum->gpus[i].free += one->gpus[i].free;
    }
    lvni_core_str_printf(&sum->names, ",%s", lvni_core_str_text(&one->names));
}

static lvn_status read_nodes(const char *partition, bool each, lvni_slurm_partitions *c)
{
    for (size_t row = 0; row < c->table.n; row++) {
        lvni_slurm_nodes one = {.n = 0};
        lvni_slurm_nodes *sum = NULL;
        read_node(&c->table, row, &one);
        if (one.names.failed) {
            lvni_core_str_free(&one.names);
            return LVN_ERR_MEMORY;
        }
        const size_t n = strcspn(one.partition, "*"); /* the default has one */
        if (partition != NULL &&
            (strlen(partition) != n || strncmp(partition, one.partition, n) != 0)) {
            lvni_core_str_free(&one.names);
            continue;
        }
        for (size_t i = 0; i < c->n && sum == NULL && !each; i++) {
            sum = alike(&c->list[i], &one) ? &c->list[i] : NULL;
        }
        if (sum == NULL) {
            c->list[c->n++] = one;
            continue;
        }
        add(sum, &one);
        lvni_core_str_free(&one.names);
        LVN_TRY(lvni_core_str_status(&sum->names));
    }
    return LVN_OK;
}

lvn_status lvni_slurm_partitions_read(const char *sinfo, const char *partition, bool each,
                                      lvni_slurm_partitions *out)
{
    *out = (lvni_slurm_partitions){.n = 0};
    LVN_TRY(
        lvni_slurm_table_read(sinfo, LVNI_SLURM_SEPARATOR, LVNI_SLURM_NODE_FIELDS, &out->table));
    out->list = lvni_core_calloc(LVNI_TAG_CORE, out->table.n + 1, sizeof *out->list);
    const lvn_status s = out->list == NULL ? LVN_ERR_MEMORY : read_nodes(partition, each, out);
    if (s != LVN_OK) {
        lvni_slurm_partitions_free(out);
    }
    return s;
}

void lvni_slurm_partitions_free(lvni_slurm_partitions *cluster)
{
    for (size_t i = 0; i < cluster->n; i++) {
        lvni_core_str_free(&cluster->list[i].names);
    }
    lvni_core_free(cluster->list);
    lvni_slurm_table_free(&cluster->table);
    *cluster = (lvni_slurm_partitions){.n = 0};
}
