/* Which nodes of a Slurm job are alive: a step of one task on each, since neither the controller,
 * which notices a dead node only after SlurmdTimeout, nor a connection to the host knows whether
 * another step can be started there. Called by launch_elastic.c alone. */
#include "core/alloc.h"
#include "core/machine.h"
#include "launch/launch_srun.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_NS 10000000000u
enum { AT_ONCE = 16, NODE_BYTES = 272 };

/* Of SLURM_ only what names the job and finds its controller: the rest are options for steps of
 * many tasks. */
static lvn_status make_environment(lvni_launch_variables *v, char *const *environment)
{
    static const char *const kept[] = {"SLURM_CONF", "SLURM_JWT", "SLURM_JOBID", "SLURM_JOB_ID"};
    lvni_launch_variables_copy(v, environment);
    lvni_launch_variables_unset_prefix(v, "SLURM_");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *value = lvni_launch_env_get(environment, kept[i]);
        if (value != NULL) {
            lvni_launch_variables_set(v, kept[i], value);
        }
    }
    return lvni_launch_variables_status(v);
}

lvn_status lvni_launch_probes_open(lvni_launch_probes *p, char *const *environment)
{
    LVN_TRY(make_environment(&p->env, environment));
    p->node = lvni_core_calloc(LVNI_TAG_CORE, p->hosts->n + 1, sizeof *p->node);
    return p->node != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

void lvni_launch_probes_close(lvni_launch_probes *p)
{
    lvni_launch_probes_stop(p);
    lvni_launch_variables_free(&p->env);
    lvni_core_free(p->node);
    p->node = NULL;
}

void lvni_launch_probes_ask(lvni_launch_probes *p, const bool *skip)
{
    lvni_launch_probes_stop(p);
    for (size_t i = 0; i < p->hosts->n; i++) {
        p->node[i] = (lvni_launch_probe){.waits = skip == NULL || !skip[i]};
        p->waiting += p->node[i].waits ? 1 : 0;
    }
}

/* In the child. The resources of a step that died with a node stay taken until the job ends, so
 * the probe shares them, and asks for none of its own. */
static void become_probe(const lvni_launch_probes *p, const char *node)
{
    char where[NODE_BYTES];
    snprintf(where, sizeof where, "--nodelist=%s", node);
    const char *const argv[] = {"srun",        "--overlap", "--mem=0", "--nodes=1", "--ntasks=1",
                                "--gres=none", where,       "true",    NULL};
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        dup2(null, fd);
    }
    sigprocmask(SIG_SETMASK, p->signals, NULL);
    signal(SIGPIPE, SIG_DFL);
    execve(p->srun, (char *const *)(uintptr_t)argv, p->env.list);
    _exit(LVNI_EXIT_NO_PROGRAM);
}

static void start(lvni_launch_probes *p, size_t i, uint64_t now_ns)
{
    const pid_t pid = fork();
    if (pid == 0) {
        become_probe(p, lvni_launch_hosts_name(p->hosts, i));
    }
    p->waiting--;
    p->running += pid > 0 ? 1 : 0;
    p->node[i] = (lvni_launch_probe){.pid = pid > 0 ? pid : 0, .end_ns = now_ns + PROBE_NS};
}

static void finish(lvni_launch_probes *p, size_t i, bool alive)
{
    p->node[i] = (lvni_launch_probe){.alive = alive};
    p->running--;
}

static void kill_one(lvni_launch_probes *p, size_t i)
{
    kill(p->node[i].pid, SIGKILL);
    waitpid(p->node[i].pid, NULL, 0);
    finish(p, i, false);
}

bool lvni_launch_probes_tick(lvni_launch_probes *p, uint64_t now_ns)
{
    for (size_t i = 0; i < p->hosts->n; i++) {
        const lvni_launch_probe *one = &p->node[i];
        int status;
        if (one->pid > 0 && waitpid(one->pid, &status, WNOHANG) == one->pid) {
            finish(p, i, WIFEXITED(status) && WEXITSTATUS(status) == 0);
        } else if (one->pid > 0 && now_ns >= one->end_ns) {
            kill_one(p, i);
        }
    }
    for (size_t i = 0; i < p->hosts->n && p->running < AT_ONCE; i++) {
        if (p->node[i].waits) {
            start(p, i, now_ns);
        }
    }
    return p->running == 0 && p->waiting == 0;
}

void lvni_launch_probes_stop(lvni_launch_probes *p)
{
    for (size_t i = 0; p->node != NULL && i < p->hosts->n; i++) {
        if (p->node[i].pid > 0) {
            kill_one(p, i);
        }
        p->node[i].waits = false;
    }
    p->waiting = 0;
}
