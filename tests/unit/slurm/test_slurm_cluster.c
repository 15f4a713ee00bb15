/* What Slurm's commands print about a cluster, and what that refuses of a job: texts of Slurm
 * 22.05, and odd ones. */
#include "slurm/slurm_cluster_check.h"
#include "core/alloc.h"
#include "slurm/slurm_grammar.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static const char config[] = "Configuration data as of 2026-11-30T21:08:13\n"
                             "JobRequeue              = 0\n"
                             "MaxArraySize            = 501\n"
                             "MaxArraySizeOfOthers    = 7\n";
static const char partitions[] =
    "PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES "
    "DefaultTime=00:10:00 MaxNodes=8 MaxTime=1-00:00:00 MinNodes=0 MaxCPUsPerNode=UNLIMITED "
    "State=UP MaxMemPerNode=UNLIMITED TRES=cpu=288,mem=48G,node=12\n"
    "PartitionName=long\n   AllowAccounts=physics,bio AllowQos=normal\n   DefaultTime=NONE "
    "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=2 State=UP MaxCPUsPerNode=32\n"
    "PartitionName=old AllowAccounts=ALL AllowQos=ALL MaxTime=UNLIMITED MaxNodes=UNLIMITED "
    "State=DOWN MaxMemPerNode=1024\n";
static const char nodes[] =
    "main|10|64|257000|gpu:A100:8(S:0-1)|idle|ib,a100|n[01-10]\n"
    "main|2|64|257000|gpu:A100:8(S:0-1)|down*|ib,a100|n[11-12]\n"
    "main|2|128|512000|gpu:H100:4(S:0-1),gpu:1g.20gb:7,tmp:5|mixed|ib|h[1-2]\n"
    "long|20|64|128000|(null)|allocated|(null)|c[01-20]\n"
    "old|4|16|64000|gpu:4|drained|(null)|o[1-4]\n"
    "slurm_load_partitions: something|else\n";

static void read_all(lvni_slurm_cluster *c)
{
    *c = (lvni_slurm_cluster){.requeue = -1};
    lvni_slurm_cluster_read_config(c, config);
    assert_int_equal(lvni_slurm_cluster_read_partitions(c, partitions), LVN_OK);
    assert_int_equal(lvni_slurm_cluster_read_nodes(c, nodes), LVN_OK);
}

TEST(answers_are_read)
{
    lvni_slurm_cluster c;
    read_all(&c);
    assert_int_equal(c.array_size, 501);
    assert_int_equal(c.requeue, 0);
    assert_int_equal(c.n_partitions, 3);
    const lvni_slurm_partition *p = lvni_slurm_partition_find(&c, "main,", 4);
    assert_true(p != NULL && p->is_default && p->most_time == 86400 && p->usual_time == 600 &&
                p->most_nodes == 8 && p->most_cpus == LVNI_SLURM_UNLIMITED);
    p = lvni_slurm_partition_find(&c, "long", 4);
    assert_true(p != NULL && !p->is_default && p->most_time == LVNI_SLURM_UNLIMITED &&
                p->usual_time == 0 && p->least_nodes == 2 && p->most_cpus == 32);
    assert_null(lvni_slurm_partition_find(&c, "lon", 3));
    assert_int_equal(c.n_nodes, 5);
    assert_true(lvni_slurm_nodes_work(&c.nodes[0]) && !lvni_slurm_nodes_work(&c.nodes[1]) &&
                lvni_slurm_nodes_work(&c.nodes[2]) && !lvni_slurm_nodes_work(&c.nodes[4]));
    assert_int_equal(lvni_slurm_nodes_gpus(&c.nodes[2], NULL, 0), 11);
    assert_int_equal(lvni_slurm_nodes_gpus(&c.nodes[2], "H100", 4), 4);
    assert_int_equal(lvni_slurm_nodes_gpus(&c.nodes[2], "1g.20gb", 7), 7);
    assert_int_equal(lvni_slurm_nodes_gpus(&c.nodes[2], "A100", 4), 0);
    assert_int_equal(lvni_slurm_nodes_gpus(&c.nodes[3], NULL, 0), 0);
    assert_int_equal(lvni_slurm_nodes_gpus(&c.nodes[4], NULL, 0), 4);
    lvni_slurm_cluster_free(&c);
}

TEST(lists_of_gres)
{
    static const struct {
        const char *text, *type;
        int64_t count;
    } rows[] = {{"gpu", "", 1},
                {"gpu:2", "", 2},
                {"gpu:a100", "a100", 1},
                {"gpu:a100:4", "a100", 4},
                {"tmp:5,gpu:3(S:0,2)", "", 3},
                {"gpu:1080ti:4", "1080ti", 4}};
    const char *type;
    size_t n;
    int64_t count;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *p = rows[i].text;
        assert_true(lvni_slurm_gres_next(&p, &type, &n, &count));
        if (count != rows[i].count || n != strlen(rows[i].type) ||
            strncmp(type, rows[i].type, n) != 0) {
            fail_msg("%s: %.*s, %lld", rows[i].text, (int)n, type, (long long)count);
        }
        assert_false(lvni_slurm_gres_next(&p, &type, &n, &count));
    }
    const char *none = "gpus:4,tmp:2(gpu:8),";
    assert_false(lvni_slurm_gres_next(&none, &type, &n, &count));
}

/* "nodes=2 gpus-per-node=A100:8": the findings about such a job. */
static char *findings(const char *job)
{
    lvni_slurm_cluster c;
    lvni_slurm_directives d = {.n = 0};
    lvni_slurm_findings f = {.errors = 0};
    char words[512], *rest = words;
    snprintf(words, sizeof words, "%s", job);
    read_all(&c);
    for (char *w = strtok_r(rest, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(w, '=');
        *equals = '\0';
        lvni_slurm_directive_add(&d, w, equals + 1, "here", false);
    }
    assert_int_equal(lvni_slurm_cluster_check(&c, &d, &f), LVN_OK);
    lvni_slurm_directives_free(&d);
    lvni_slurm_cluster_free(&c);
    char *text = strdup(lvni_core_str_text(&f.text));
    lvni_slurm_findings_free(&f);
    assert_non_null(text);
    return text;
}

TEST(jobs_that_it_takes)
{
    static const char *const jobs[] = {
        "time=1-00:00:00 nodes=8 gpus-per-node=A100:8 ntasks-per-node=8 cpus-per-task=8 mem=0",
        "time=1 gres=gpu:H100:4 nodes=2 cpus-per-task=128 mem=500G constraint=ib",
        "time=1 gres=gpu:1g.20gb:7,tmp:1",
        "time=1 gpus=80 nodes=8",
        "time=1 gpus-per-task=1",
        "time=1 partition=long account=bio qos=normal nodes=2",
        "time=1 nodelist=n[01-04],h2",
        "time=1 constraint=ib&a100",
        "time=1 partition=main,old",
        "time=2-00:00:00 time-min=10 gpus-per-node=1",
        "time=1 mem-per-cpu=4000 cpus-per-task=64"};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char *text = findings(jobs[i]);
        if (text[0] != '\0') {
            fail_msg("%s: %s", jobs[i], text);
        }
        free(text);
    }
}

TEST(jobs_that_it_does_not_take)
{
    static const char *const jobs[][2] = {
        {"partition=mian time=1", "error cluster: partition mian: the cluster has main, long, old"},
        {"time=1-00:00:01", "longer than partition main allows, so the job would wait for ever: "
                            "time=1-00:00:00 at most  (here)"},
        {"time=UNLIMITED", "longer than partition main allows"},
        {"nodes=2", "note cluster: partition main gives a job without a time limit 0-00:10:00"},
        {"time=1 nodes=15", "error cluster: nodes 15: partition main has 14"},
        {"time=1 nodes=9", "a job in partition main has 8 at most"},
        {"time=1 nodes=9 qos=big", "warning cluster: nodes 9: a job in partition main has 8"},
        {"time=1 partition=long nodes=1", "a job in partition long has 2 at least"},
        {"time=1 partition=long nodes=2 account=me", "takes jobs of physics,bio alone"},
        {"time=1 partition=long nodes=2 qos=high", "qos high: partition long takes jobs of normal"},
        {"time=1 gpus-per-node=V100:2", "no GPU of type V100; its types are A100,H100,1g.20gb"},
        {"time=1 gpus-per-node=H100:8", "8 GPUs on a node, and those of partition main have 4 at"},
        {"time=1 gpus=96 nodes=8",
         "have 11 GPUs at most, so it takes 9 of them, and the job has 8"},
        {"time=1 nodes=3 gpus-per-node=H100:4", "3 nodes with gpus-per-node H100:4: partition main "
                                                "has 2 such nodes"},
        {"time=1 partition=long nodes=2 gres=gpu:1", "partition long has no GPUs"},
        {"time=1 partition=long nodes=2 gres=gpu:1", "note cluster: partition main would take"},
        {"time=1 gpus-per-task=2 ntasks-per-node=6", "12 GPUs on a node"},
        {"time=1 ntasks-per-node=8 cpus-per-task=32", "take 256 cores, and a job gets 128 at most"},
        {"time=1 partition=long nodes=2 cpus-per-task=33", "gets 32 at most"},
        {"time=1 nodes=3 cpus-per-task=100", "3 nodes with 100 cores: partition main has 2"},
        {"time=1 mem=1T", "mem 1T is 1024.00 GiB on a node"},
        {"time=1 partition=old mem=2G", "gets 1.00 GiB at most of a node of partition old"},
        {"time=1 partition=old", "warning cluster: partition old starts no jobs now (State=DOWN)"},
        {"time=1 nodes=3 mem=400G", "3 nodes with 400.00 GiB: partition main has 2"},
        {"time=1 gpus-per-node=A100:8 cpus-per-task=100", "partition main has 0 nodes with 8 GPUs, "
                                                          "100 cores and 0 MiB at once"},
        {"time=1 nodelist=n[01-13]", "partition main has no node n13"},
        {"time=1 constraint=v100", "constraint v100: partition main has 0 such nodes"},
        {"time=1 signal=USR1@90", "(JobRequeue=0)"},
        {"time=1 partition=old nodes=2", "warning cluster: 0 of the 4 nodes of partition old that"},
        {"time=1 clusters=x partition=y", "note cluster: clusters x"}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char *text = findings(jobs[i][0]);
        if (strstr(text, jobs[i][1]) == NULL) {
            fail_msg("%s: %s", jobs[i][0], text);
        }
        free(text);
    }
}

TEST(nothing_is_known)
{
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "=",
                                        "PartitionName",
                                        "PartitionName=",
                                        "|||||||",
                                        "a=b PartitionName=x Default",
                                        "JobRequeue",
                                        "MaxArraySize ="};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lvni_slurm_cluster c = {.requeue = -1};
        lvni_slurm_directives d = {.n = 0};
        lvni_slurm_findings f = {.errors = 0};
        lvni_slurm_cluster_read_config(&c, texts[i]);
        assert_int_equal(lvni_slurm_cluster_read_partitions(&c, texts[i]), LVN_OK);
        assert_int_equal(lvni_slurm_cluster_read_nodes(&c, texts[i]), LVN_OK);
        lvni_slurm_directive_add(&d, "nodes", "3", "here", false);
        assert_int_equal(lvni_slurm_cluster_check(&c, &d, &f), LVN_OK);
        assert_int_equal(c.array_size, 0);
        lvni_slurm_directives_free(&d);
        lvni_slurm_findings_free(&f);
        lvni_slurm_cluster_free(&c);
    }
}

static lvn_status all_of_it(const lvni_slurm_directives *d)
{
    lvni_slurm_cluster c = {.requeue = -1};
    lvni_slurm_findings f = {.errors = 0};
    lvn_status s = lvni_slurm_cluster_read_partitions(&c, partitions);
    s = s == LVN_OK ? lvni_slurm_cluster_read_nodes(&c, nodes) : s;
    s = s == LVN_OK ? lvni_slurm_cluster_check(&c, d, &f) : s;
    lvni_slurm_findings_free(&f);
    lvni_slurm_cluster_free(&c);
    return s;
}

/* Each allocation fails once: a status, and nothing is lost. */
TEST(memory_runs_out)
{
    static const char *const jobs[][4] = {{"nodelist", "n[01-13],x", "time", "2-0"},
                                          {"partition", "mian", "nodes", "99"},
                                          {"gpus-per-node", "V100:2", "partition", "long,main"}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        lvni_slurm_directives d = {.n = 0};
        lvni_slurm_directive_add(&d, jobs[i][0], jobs[i][1], "here", false);
        lvni_slurm_directive_add(&d, jobs[i][2], jobs[i][3], "here", false);
        const uint64_t live = lvni_core_alloc_get_total().live_bytes;
        lvn_status s = LVN_ERR_MEMORY;
        int64_t k = 1;
        for (; s == LVN_ERR_MEMORY; k++) {
            lvni_core_alloc_fail_at(k);
            s = all_of_it(&d);
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        }
        lvni_core_alloc_fail_at(0);
        assert_int_equal(s, LVN_OK);
        assert_true(k > 5);
        lvni_slurm_directives_free(&d);
    }
}
