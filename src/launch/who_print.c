/* The record of who.h as text. */
#include "launch/who_impl.h"

#include "core/escape.h"

#include <inttypes.h>
#include <string.h>

static const char *const rdzv_names[] = {[LVNI_RDZV_NONE] = "none",
                                         [LVNI_RDZV_FD] = "fd",
                                         [LVNI_RDZV_TCP] = "tcp",
                                         [LVNI_RDZV_FILE] = "file"};
static const char *const field_names[LVNI_WHO_FIELDS] = {
    [LVNI_WHO_RANK] = "rank",
    [LVNI_WHO_WORLD] = "world",
    [LVNI_WHO_LOCAL_RANK] = "local_rank",
    [LVNI_WHO_LOCAL_WORLD] = "local_world",
    [LVNI_WHO_NODE_RANK] = "node_rank",
    [LVNI_WHO_NNODES] = "nnodes",
    [LVNI_WHO_HOSTS] = "hosts",
    [LVNI_WHO_MASTER_ADDR] = "master_addr",
    [LVNI_WHO_MASTER_PORT] = "master_port",
};

/* One of the two forms: "key=value\n", or "\"key\":value," in an object. */
typedef struct writer {
    lvni_str *out;
    bool json, first;
} writer;

static void begin(writer *w, const char *key)
{
    if (w->json) {
        lvni_str_append(w->out, w->first ? "{" : ", ");
        lvni_str_json(w->out, key);
        lvni_str_append(w->out, ": ");
    } else {
        lvni_str_printf(w->out, "%s%s=", w->first ? "" : "\n", key);
    }
    w->first = false;
}

static void text(writer *w, const char *key, const char *value)
{
    begin(w, key);
    if (w->json) {
        lvni_str_json(w->out, value);
    } else {
        lvni_str_escape(w->out, value, strlen(value), LVNI_ESCAPE_TEXT);
    }
}

static void number(writer *w, const char *key, int value)
{
    begin(w, key);
    if (value == LVNI_WHO_UNKNOWN) {
        lvni_str_append(w->out, w->json ? "null" : "unknown");
    } else {
        lvni_str_printf(w->out, "%d", value);
    }
}

/* A list of numbers: "15001,16238", [15001, 16238]. */
static void ports(writer *w, const lvni_who *who)
{
    begin(w, "master_ports");
    lvni_str_append(w->out, w->json ? "[" : "");
    for (int i = 0; i < who->n_ports; i++) {
        lvni_str_printf(w->out, "%s%d", i == 0 ? "" : w->json ? ", " : ",", who->ports[i]);
    }
    lvni_str_append(w->out, w->json ? "]" : "");
}

static void hosts(writer *w, const lvni_who *who)
{
    if (w->json) {
        begin(w, "hosts");
        lvni_str_char(w->out, '[');
        for (size_t i = 0; i < who->hosts.n; i++) {
            lvni_str_append(w->out, i > 0 ? ", " : "");
            lvni_str_json(w->out, lvni_hosts_name(&who->hosts, i));
        }
        lvni_str_char(w->out, ']');
        return;
    }
    begin(w, "hosts");
    lvni_hosts_compress(&who->hosts, w->out);
}

static void job(writer *w, const lvni_slurm_job *j)
{
    if (!j->job) {
        return;
    }
    begin(w, "slurm_job_id");
    lvni_str_printf(w->out, "%" PRIu64, j->job_id);
    if (j->step) {
        begin(w, "slurm_step_id");
        lvni_str_printf(w->out, "%" PRIu64, j->step_id);
    }
    text(w, "requeue_id", j->requeue_id);
}

/* Which variable told what. */
static void origins(writer *w, const lvni_who *who)
{
    for (int f = 0; f < LVNI_WHO_FIELDS; f++) {
        if (who->from[f] != NULL) {
            char key[48] = "from.";
            strncat(key, field_names[f], sizeof key - strlen(key) - 1);
            text(w, key, who->from[f]);
        }
    }
}

static void print(const lvni_who *who, writer *w)
{
    text(w, "source", lvni_source_name(who->source));
    number(w, "rank", who->rank);
    number(w, "world", who->world);
    number(w, "local_rank", who->local_rank);
    number(w, "local_world", who->local_world);
    number(w, "node_rank", who->node_rank);
    number(w, "nnodes", who->nnodes);
    text(w, "rdzv", rdzv_names[who->rdzv]);
    text(w, "master_addr", who->master_addr);
    if (who->n_ports > 0) {
        number(w, "master_port", who->ports[0]);
    } else {
        text(w, "master_port", "");
    }
    ports(w, who);
    begin(w, "store_host");
    lvni_str_append(w->out, w->json           ? (who->store_host ? "true" : "false")
                            : who->store_host ? "yes"
                                              : "no");
    text(w, "job_key", who->job_key);
    text(w, "run_id", who->run_id);
    number(w, "restart", who->restart);
    hosts(w, who);
    job(w, &who->slurm);
    origins(w, who);
}

void lvni_who_print(const lvni_who *who, lvni_str *out)
{
    writer w = {out, false, true};
    print(who, &w);
    lvni_str_char(out, '\n');
}

void lvni_who_print_json(const lvni_who *who, lvni_str *out)
{
    writer w = {out, true, true};
    print(who, &w);
    lvni_str_append(out, "}\n");
}

static void export_text(lvni_str *out, const char *name, const char *value)
{
    lvni_str_printf(out, "export %s='", name);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\'') {
            lvni_str_append(out, "'\\''");
        } else {
            lvni_str_char(out, *p);
        }
    }
    lvni_str_append(out, "'\n");
}

static void export_number(lvni_str *out, const char *name, int value)
{
    if (value != LVNI_WHO_UNKNOWN) {
        lvni_str_printf(out, "export %s=%d\n", name, value);
    }
}

void lvni_who_print_export(const lvni_who *who, lvni_str *out)
{
    export_number(out, "RANK", who->rank);
    export_number(out, "WORLD_SIZE", who->world);
    export_number(out, "LOCAL_RANK", who->local_rank);
    export_number(out, "LOCAL_WORLD_SIZE", who->local_world);
    export_number(out, "GROUP_RANK", who->node_rank);
    export_number(out, "NODE_RANK", who->node_rank);
    export_number(out, "GROUP_WORLD_SIZE", who->nnodes);
    if (*who->master_addr != '\0') {
        export_text(out, "MASTER_ADDR", who->master_addr);
    }
    export_number(out, "MASTER_PORT", who->n_ports > 0 ? who->ports[0] : LVNI_WHO_UNKNOWN);
}
