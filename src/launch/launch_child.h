/* Starting one process: fork, and at once exec. */
#ifndef LEVIN_LAUNCH_LAUNCH_CHILD_H
#define LEVIN_LAUNCH_LAUNCH_CHILD_H

#include <levin/status.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

typedef struct lvni_launch_child {
    const char *path; /* of the program: no search is made */
    const char *const *argv;
    char *const *envp;
    int in, out, err;      /* become 0, 1, 2; -1: as they are */
    int keep_fds[2];       /* stay open under their numbers; -1: none */
    bool own_group;        /* leader of a process group of its own */
    const cpu_set_t *cpus; /* NULL: as it is */
    size_t cpu_bytes;
    int numa_node;       /* where memory is taken first; -1: anywhere */
    sigset_t signals;    /* the mask of the program */
    struct rlimit files; /* its limit of open files */
} lvni_launch_child;

/* The child is killed when the calling thread ends: call it from the main thread alone.
 * LVN_ERR_NOT_FOUND: the program could not be executed, errno in *error; other failures: there is
 * no process (or file descriptor) to be had. */
lvn_status lvni_launch_child_start(const lvni_launch_child *c, pid_t *pid, int *error);

/* The file that a shell would run for this name: path with a '/' as it is, others along PATH (NULL:
 * the usual one). *exit_code is 126 (there, but no program one may run) or 127 (not found) with
 * LVN_ERR_NOT_FOUND. *path: lvni_core_free. */
lvn_status lvni_launch_child_find_program(const char *name, const char *search, char **path,
                                          int *exit_code);

#endif
