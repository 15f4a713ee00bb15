/* What a cluster has: its partitions with their limits, its nodes, and what of its configuration a
 * job can meet. Asked of Slurm's own commands; reading their answers is a pure function of a text,
 * in which what is not understood counts as not known. */
#ifndef LEVIN_SLURM_SLURM_CLUSTER_H
#define LEVIN_SLURM_SLURM_CLUSTER_H

#include "core/str.h"

/* Of numbers: not limited is LVNI_SLURM_UNLIMITED (slurm_grammar.h), 0 not known. */
typedef struct lvni_slurm_partition {
    const char *name;
    const char *state;          /* "UP"; NULL: not known, as the next two */
    const char *accounts, *qos; /* that are let in: a list, or "ALL" */
    bool is_default;
    int64_t most_time, usual_time; /* s */
    int64_t most_nodes, least_nodes;
    int64_t most_cpus, most_memory; /* of a node; MiB */
} lvni_slurm_partition;

/* Nodes of one partition that are alike. A node of two partitions is in two groups. */
typedef struct lvni_slurm_nodes {
    const char *partition;
    const char *state;       /* "idle", "down*" */
    const char *gres;        /* "gpu:A100:8(S:0-1),tmp:5"; "": none */
    const char *features;    /* "a,b"; "": none */
    const char *names;       /* "n[01-12]" */
    int64_t n, cpus, memory; /* of each: MiB */
} lvni_slurm_nodes;

/* A zeroed one knows nothing. */
typedef struct lvni_slurm_cluster {
    lvni_slurm_partition *partitions;
    lvni_slurm_nodes *nodes;
    size_t n_partitions, n_nodes;
    int64_t array_size;    /* elements have smaller numbers; 0: not known */
    const char *partition; /* that counts before the script's: SBATCH_PARTITION; NULL: none */
    int requeue;           /* are jobs queued again that do not ask for it? -1: not known */
    char *texts[2];        /* into which the names point; owned */
} lvni_slurm_cluster;

/* `scontrol show config` */
void lvni_slurm_cluster_read_config(lvni_slurm_cluster *c, const char *text);
/* `scontrol show partition`, with or without -o. Once for a cluster. */
lvn_status lvni_slurm_cluster_read_partitions(lvni_slurm_cluster *c, const char *text);
/* `sinfo` with the format of lvni_slurm_cluster_ask. Once for a cluster. */
lvn_status lvni_slurm_cluster_read_nodes(lvni_slurm_cluster *c, const char *text);

/* Asks with three commands, all of them within timeout_ms. `why` stays empty, or has a sentence
 * without its end: there is no Slurm here, or it gave no answer; the cluster then has no
 * partitions and no nodes. A status is one of this process. The environment must live as long; free
 * the cluster in any case.
 */
lvn_status lvni_slurm_cluster_ask(char *const *environment, int timeout_ms, lvni_slurm_cluster *c,
                                  lvni_core_str *why);
void lvni_slurm_cluster_free(lvni_slurm_cluster *c);

/* NULL: there is none of that name. */
const lvni_slurm_partition *lvni_slurm_partition_find(const lvni_slurm_cluster *c, const char *name,
                                                      size_t n);
/* Do the nodes work, or are they down, drained or under repair? */
bool lvni_slurm_nodes_work(const lvni_slurm_nodes *nodes);
/* GPUs of such a node: of that type, NULL: of any. */
int64_t lvni_slurm_nodes_gpus(const lvni_slurm_nodes *nodes, const char *type, size_t n_type);
/* The item of a list of gres at *p, which moves behind it; false: there are no more. *type: n_type
 * bytes, 0: it has none. other items than GPUs are passed over. */
bool lvni_slurm_gres_next(const char **p, const char **type, size_t *n_type, int64_t *count);
/* Is the name one of a list with commas? */
bool lvni_slurm_list_has(const char *list, const char *name, size_t n);

#endif
