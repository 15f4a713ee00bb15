/* Who this process is to others that share a sweep, and whether the owner of a claim is still
 * there: /proc of this host, or Slurm (sweep_records.h). */
#include "sweep/sweep_alive.h"

#include "core/error.h"
#include "core/machine.h"
#include "core/vfs.h"
#include "core/alloc.h"
#include "launch/env_vars.h"
#include "launch/host_list.h"
#include "run/ranks.h"
#include "run/requeue.h"
#include "slurm/slurm_tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STAT_MAX = 4096, QUERY_MS = 10000, ANSWER_MAX = 16 << 20, START_FIELD = 22 };
#define AGAIN_NS 30000000000u /* between two questions to Slurm */

/* ---- processes of this host ---- */

/* When the process began, in ticks since the boot; 0: it is not there, or has ended and was not
 * waited for. */
static int64_t started(int64_t pid)
{
    char path[64], text[STAT_MAX];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *at = strrchr(text, ')'); /* field 2, which may hold anything */
    if (at == NULL || strlen(at) < 4 || at[2] == 'Z' || at[2] == 'X') {
        return 0;
    }
    for (int field = 2; field < START_FIELD && at != NULL; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? 0 : strtoll(at, NULL, 10);
}

static void copy(char *out, size_t room, const char *text)
{
    snprintf(out, room, "%s", text != NULL ? text : "");
}

void lvni_sweep_owner_self(lvni_sweep_owner *out)
{
    struct stat space;
    *out = (lvni_sweep_owner){.pid = getpid(), .started = started(getpid())};
    lvni_core_host_name(out->host, sizeof out->host);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f != NULL) {
        if (fgets(out->boot, sizeof out->boot, f) != NULL) {
            out->boot[strcspn(out->boot, "\n")] = '\0';
        }
        fclose(f);
    }
    out->space = stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
    if (lvni_run_requeue_job(out->job, sizeof out->job)) {
        out->restarts = lvni_run_requeue_restarts();
        copy(out->node, sizeof out->node,
             lvni_launch_env_get(lvni_run_environment(), "SLURMD_NODENAME"));
    } else {
        out->job[0] = '\0';
    }
}

/* ---- Slurm ---- */

static bool has_node(const char *list, const char *node)
{
    lvni_launch_hosts hosts = {.n = 0};
    lvni_core_notices notices = {.error = 0};
    bool found = lvni_launch_hosts_expand(&hosts, list, &notices) != LVN_OK; /* not known */
    for (size_t i = 0; i < hosts.n && !found; i++) {
        found = strcmp(lvni_launch_hosts_name(&hosts, i), node) == 0;
    }
    lvni_launch_hosts_free(&hosts);
    lvni_core_notices_free(&notices);
    return found;
}

/* What the rest of a line, "STATE NODES", makes of an owner. */
static lvni_sweep_alive of_state(const char *state, size_t n, const lvni_sweep_owner *owner)
{
    char text[4096], *nodes;
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), state);
    nodes = strchr(text, ' ');
    if (nodes != NULL) {
        *nodes++ = '\0';
    }
    if (strcmp(text, "SUSPENDED") == 0 || strcmp(text, "STOPPED") == 0) {
        return LVNI_SWEEP_THERE; /* it goes on when Slurm lets it */
    }
    if (strcmp(text, "RUNNING") != 0 && strcmp(text, "COMPLETING") != 0) {
        return LVNI_SWEEP_GONE; /* queued again */
    }
    return nodes == NULL || owner->node[0] == '\0' || has_node(nodes, owner->node)
               ? LVNI_SWEEP_UNKNOWN
               : LVNI_SWEEP_GONE; /* Slurm has taken that node out of the job */
}

lvni_sweep_alive lvni_sweep_alive_in(const char *squeue, const lvni_sweep_owner *owner)
{
    const size_t n = strlen(owner->job);
    for (const char *line = squeue; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (length > n && strncmp(line, owner->job, n) == 0 && line[n] == ' ') {
            return of_state(line + n + 1, length - n - 1, owner);
        }
        line += length + (line[length] == '\n');
    }
    return LVNI_SWEEP_GONE;
}

/* One job of another user's, or one that is not there. */
static lvni_sweep_alive ask_of_one(const lvni_sweep_owner *owner)
{
    const char *const argv[] = {"squeue", "-h", "-r", "-j", owner->job, "-o", "%i %T %N", NULL};
    lvni_core_str text = {0};
    int code = 0;
    const lvn_status s = lvni_slurm_tool_run(argv, QUERY_MS, ANSWER_MAX, &text, &code);
    const char *answer = lvni_core_str_text(&text);
    const bool known = s == LVN_OK && (code == 0 || strstr(answer, "Invalid job id") != NULL);
    const lvni_sweep_alive alive = !known      ? LVNI_SWEEP_UNKNOWN
                                   : code == 0 ? lvni_sweep_alive_in(answer, owner)
                                               : LVNI_SWEEP_GONE;
    lvni_core_str_free(&text);
    return alive;
}

/* The last answer about a job that is not in the list, so that a dead one is not asked for again
 * and again. */
typedef struct other_job {
    char job[64];
    uint64_t at_ns;
    lvni_sweep_alive alive;
} other_job;

enum { OTHERS = 64 };

/* This user's jobs, as they were a short time ago; and what was asked of others. */
static struct slurm {
    lvni_core_str jobs;
    uint64_t at_ns; /* 0: never */
    int code;
    other_job others[OTHERS];
    int next;
} slurm;

static void ask_of_all(uint64_t now)
{
    static const char *const argv[] = {"squeue", "-h", "-r", "--me", "-o", "%i %T %N", NULL};
    if (slurm.at_ns != 0 &&
        (now - slurm.at_ns < AGAIN_NS || slurm.code == LVNI_SLURM_TOOL_NOT_FOUND)) {
        return;
    }
    lvni_core_str_free(&slurm.jobs);
    if (lvni_slurm_tool_run(argv, QUERY_MS, ANSWER_MAX, &slurm.jobs, &slurm.code) != LVN_OK) {
        slurm.code = LVNI_EXIT_FAILURE;
    }
    slurm.at_ns = lvni_core_now_ns();
}

static lvni_sweep_alive ask_slurm(const lvni_sweep_owner *owner)
{
    const uint64_t now = lvni_core_now_ns();
    ask_of_all(now);
    if (slurm.code == LVNI_SLURM_TOOL_NOT_FOUND || slurm.code == LVNI_SLURM_TOOL_TIMED_OUT) {
        return LVNI_SWEEP_UNKNOWN;
    }
    if (slurm.code == 0) {
        const lvni_sweep_alive alive = lvni_sweep_alive_in(lvni_core_str_text(&slurm.jobs), owner);
        if (alive != LVNI_SWEEP_GONE) {
            return alive;
        }
    }
    for (int i = 0; i < OTHERS; i++) {
        const other_job *o = &slurm.others[i];
        if (strcmp(o->job, owner->job) == 0 && now - o->at_ns < AGAIN_NS) {
            return o->alive;
        }
    }
    other_job *o = &slurm.others[slurm.next++ % OTHERS];
    *o = (other_job){.at_ns = now, .alive = ask_of_one(owner)};
    copy(o->job, sizeof o->job, owner->job);
    return o->alive;
}

/* ---- both ---- */

lvni_sweep_alive lvni_sweep_ask_host(const lvni_sweep_owner *owner, void *user)
{
    (void)user;
    static lvni_sweep_owner self; /* one thread at a time */
    if (self.pid != getpid()) {
        lvni_sweep_owner_self(&self);
    }
    if (owner->host[0] == '\0') {
        return LVNI_SWEEP_UNKNOWN;
    }
    const bool same_host = strcmp(owner->host, self.host) == 0;
    if (same_host && strcmp(owner->boot, self.boot) == 0 && owner->space == self.space &&
        self.started != 0) {
        const int64_t now = started(owner->pid);
        return now != 0 && now == owner->started ? LVNI_SWEEP_THERE : LVNI_SWEEP_DEAD;
    }
    if (owner->job[0] == '\0') { /* another host may have the name of this one */
        return same_host && strcmp(owner->boot, self.boot) != 0 ? LVNI_SWEEP_GONE
                                                                : LVNI_SWEEP_UNKNOWN;
    }
    if (strcmp(owner->job, self.job) == 0 && owner->restarts < self.restarts) {
        return LVNI_SWEEP_DEAD; /* Slurm ends a job before it starts it again */
    }
    return ask_slurm(owner);
}
