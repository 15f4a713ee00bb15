/* The record of rank_info.h as text: lines, JSON or exports for a shell. */
#include "launch/rank_info_impl.h"

#include "core/escape.h"

#include <inttypes.h>
#include <string.h>

static const char *const rdzv_names[] = {[LVNI_RDZV_NONE] = "none",
                                         [LVNI_RDZV_FD] = "fd",
                                         [LVNI_RDZV_TCP] = "tcp",
                                         [LVNI_RDZV_FILE] = "file"};
static const char *const field_names[LVNI_RANK_INFO_FIELDS] = {
    [LVNI_RANK_INFO_RANK] = "rank",
    [LVNI_RANK_INFO_WORLD] = "world",
    [LVNI_RANK_INFO_LOCAL_RANK] = "local_rank",
    [LVNI_RANK_INFO_LOCAL_WORLD] = "local_world",
    [LVNI_RANK_INFO_NODE_RANK] = "node_rank",
    [LVNI_RANK_INFO_NNODES] = "nnodes",
    [LVNI_RANK_INFO_HOSTS] = "hosts",
    [LVNI_RANK_INFO_MASTER_ADDR] = "master_addr",
    [LVNI_RANK_INFO_MASTER_PORT] = "master_port",
};

/* One of the two forms: "key=value\n", or "\"key\":value," in an object. */
typedef struct writer {
    lvni_core_str *out;
    bool json, first;
} writer;

static void begin(writer *w, const char *key)
{
    if (w->json) {
        lvni_core_str_append(w->out, w->first ? "{" : ", ");
        lvni_core_str_json(w->out, key);
        lvni_core_str_append(w->out, ": ");
    } else {
        lvni_core_str_printf(w->out, "%s%s=", w->first ? "" : "\n", key);
    }
    w->first = false;
}

static void text(writer *w, const char *key, const char *value)
{
    begin(w, key);
    if (w->json) {
        lvni_core_str_json(w->out, value);
    } else {
        lvni_core_str_escape(w->out, value, strlen(value), LVNI_ESCAPE_TEXT);
    }
}

static void number(writer *w, const char *key, int value)
{
    begin(w, key);
    if (value == LVNI_RANK_INFO_UNKNOWN) {
        lvni_core_str_append(w->out, w->json ? "null" : "unknown");
    } else {
        lvni_core_str_printf(w->out, "%d", value);
    }
}

/* A list of numbers: "15001,16238", [15001, 16238]. */
static void ports(writer *w, const lvni_launch_rank_info *info)
{
    begin(w, "master_ports");
    lvni_core_str_append(w->out, w->json ? "[" : "");
    for (int i = 0; i < info->n_ports; i++) {
        lvni_core_str_printf(w->out, "%s%d", i == 0 ? "" : w->json ? ", " : ",", info->ports[i]);
    }
    lvni_core_str_append(w->out, w->json ? "]" : "");
}

static void hosts(writer *w, const lvni_launch_rank_info *info)
{
    if (w->json) {
        begin(w, "hosts");
        lvni_core_str_char(w->out, '[');
        for (size_t i = 0; i < info->hosts.n; i++) {
            lvni_core_str_append(w->out, i > 0 ? ", " : "");
            lvni_core_str_json(w->out, lvni_launch_hosts_name(&info->hosts, i));
        }
        lvni_core_str_char(w->out, ']');
        return;
    }
    begin(w, "hosts");
    lvni_launch_hosts_compress(&info->hosts, w->out);
}

static void job(writer *w, const lvni_launch_slurm_job *j)
{
    if (!j->job) {
        return;
    }
    begin(w, "slurm_job_id");
    lvni_core_str_printf(w->out, "%" PRIu64, j->job_id);
    if (j->step) {
        begin(w, "slurm_step_id");
        lvni_core_str_printf(w->out, "%" PRIu64, j->step_id);
    }
    text(w, "requeue_id", j->requeue_id);
}

/* The variable each field was read from. */
static void origins(writer *w, const lvni_launch_rank_info *info)
{
    for (int f = 0; f < LVNI_RANK_INFO_FIELDS; f++) {
        if (info->from[f] != NULL) {
            char key[48] = "from.";
            strncat(key, field_names[f], sizeof key - strlen(key) - 1);
            text(w, key, info->from[f]);
        }
    }
}

static void print(const lvni_launch_rank_info *info, writer *w)
{
    text(w, "source", lvni_launch_source_name(info->source));
    number(w, "rank", info->rank);
    number(w, "world", info->world);
    number(w, "local_rank", info->local_rank);
    number(w, "local_world", info->local_world);
    number(w, "node_rank", info->node_rank);
    number(w, "nnodes", info->nnodes);
    text(w, "rdzv", rdzv_names[info->rdzv]);
    text(w, "master_addr", info->master_addr);
    if (info->n_ports > 0) {
        number(w, "master_port", info->ports[0]);
    } else {
        text(w, "master_port", "");
    }
    ports(w, info);
    begin(w, "store_host");
    lvni_core_str_append(w->out, w->json            ? (info->store_host ? "true" : "false")
                                 : info->store_host ? "yes"
                                                    : "no");
    text(w, "job_key", info->job_key);
    text(w, "run_id", info->run_id);
    number(w, "restart", info->restart);
    hosts(w, info);
    job(w, &info->slurm);
    origins(w, info);
}

void lvni_launch_rank_info_print(const lvni_launch_rank_info *info, lvni_core_str *out)
{
    writer w = {out, false, true};
    print(info, &w);
    lvni_core_str_char(out, '\n');
}

void lvni_launch_rank_info_print_json(const lvni_launch_rank_info *info, lvni_core_str *out)
{
    writer w = {out, true, true};
    print(info, &w);
    lvni_core_str_append(out, "}\n");
}

static void export_text(lvni_core_str *out, const char *name, const char *value)
{
    lvni_core_str_printf(out, "export %s='", name);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\'') {
            lvni_core_str_append(out, "'\\''");
        } else {
            lvni_core_str_char(out, *p);
        }
    }
    lvni_core_str_append(out, "'\n");
}

static void export_number(lvni_core_str *out, const char *name, int value)
{
    if (value != LVNI_RANK_INFO_UNKNOWN) {
        lvni_core_str_printf(out, "export %s=%d\n", name, value);
    }
}

void lvni_launch_rank_info_print_export(const lvni_launch_rank_info *info, lvni_core_str *out)
{
    export_number(out, "RANK", info->rank);
    export_number(out, "WORLD_SIZE", info->world);
    export_number(out, "LOCAL_RANK", info->local_rank);
    export_number(out, "LOCAL_WORLD_SIZE", info->local_world);
    export_number(out, "GROUP_RANK", info->node_rank);
    export_number(out, "NODE_RANK", info->node_rank);
    export_number(out, "GROUP_WORLD_SIZE", info->nnodes);
    if (*info->master_addr != '\0') {
        export_text(out, "MASTER_ADDR", info->master_addr);
    }
    export_number(out, "MASTER_PORT", info->n_ports > 0 ? info->ports[0] : LVNI_RANK_INFO_UNKNOWN);
}
