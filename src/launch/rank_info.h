/* Which rank of a run this process is, found from its environment before anything touches a device
 * or the network: started by levin's own launcher, torchrun, MPI's launchers, Slurm's srun, or
 * alone. Everything here is a function of its arguments.
 *
 * At the start of a command that trains:
 *   lvni_launch_rank_info_detect          rank and world size, and where the ranks connect
 *   lvni_launch_device_choose       (device_spec.h) which devices may I use
 *   lvni_launch_rank_info_check_devices   (rank_resources.h) do tasks and devices fit
 *   lvni_launch_rank_info_device          (rank_resources.h) which of them is mine
 *   lvni_launch_workers_choose      (rank_resources.h) how many threads load data
 * Each may fill the notices: print notices.text where lvni_core_notices_should_print is true,
 * notices.warnings on rank 0, leave with lvni_core_notices_exit. */
#ifndef LEVIN_LAUNCH_RANK_INFO_H
#define LEVIN_LAUNCH_RANK_INFO_H

#include "core/error.h"
#include "launch/host_list.h"

/* In the order in which they are looked for. */
#define LVNI_SOURCE_LIST(X)                                                                        \
    X(LEVIN, "levin")                                                                              \
    X(TORCHRUN, "torchrun")                                                                        \
    X(OMPI, "ompi")                                                                                \
    X(MVAPICH2, "mvapich2")                                                                        \
    X(PALS, "pals")                                                                                \
    X(JSM, "jsm")                                                                                  \
    X(FLUX, "flux")                                                                                \
    X(PMI, "pmi")                                                                                  \
    X(SLURM, "slurm")                                                                              \
    X(SLURM_BATCH, "slurm-batch") /* a job's own shell, srun forgotten: no group. Only the         \
                                     launcher gets this far */                                     \
    X(SINGLE, "single")

typedef enum lvni_launch_source {
#define LVNI_SOURCE_ENUM(name, text) LVNI_SOURCE_##name,
    LVNI_SOURCE_LIST(LVNI_SOURCE_ENUM)
#undef LVNI_SOURCE_ENUM
        LVNI_SOURCE_COUNT
} lvni_launch_source;
const char *lvni_launch_source_name(lvni_launch_source source);

/* Rendezvous: how the ranks connect. */
typedef enum lvni_launch_rdzv {
    LVNI_RDZV_NONE, /* one rank */
    LVNI_RDZV_FD,   /* the launcher listens already; the store's host has the socket */
    LVNI_RDZV_TCP,  /* an address and ports are known */
    LVNI_RDZV_FILE, /* a file in a directory that all nodes share holds address and port */
} lvni_launch_rdzv;

/* Fields whose origin the record holds. */
typedef enum lvni_launch_rank_info_field {
    LVNI_RANK_INFO_RANK,
    LVNI_RANK_INFO_WORLD,
    LVNI_RANK_INFO_LOCAL_RANK,
    LVNI_RANK_INFO_LOCAL_WORLD,
    LVNI_RANK_INFO_NODE_RANK,
    LVNI_RANK_INFO_NNODES,
    LVNI_RANK_INFO_HOSTS,
    LVNI_RANK_INFO_MASTER_ADDR,
    LVNI_RANK_INFO_MASTER_PORT,
    LVNI_RANK_INFO_FIELDS
} lvni_launch_rank_info_field;

enum { LVNI_RANK_INFO_UNKNOWN = -1, LVNI_RANK_INFO_PORTS = 8, LVNI_RANK_INFO_TEXT = 256 };

/* The job around this process, whatever the source. */
typedef struct lvni_launch_slurm_job {
    bool job, step, task; /* is there a job, a step, a task number? */
    bool interactive;     /* the step is a user's shell */
    uint64_t job_id, step_id;
    int restart;
    int tasks, nodes; /* of the allocation, outside of steps */
    /* parts of a heterogeneous job, outside of steps; 0: an ordinary one */
    int het_size;
    int cpus_per_task;   /* requested; 0: unset */
    int cpus_on_node;    /* of the step; 0: unset */
    char requeue_id[48]; /* "77", "8_3"; "": no job */
} lvni_launch_slurm_job;

typedef struct lvni_launch_rank_info {
    lvni_launch_source source;
    int rank, world;
    /* LVNI_RANK_INFO_UNKNOWN: found at the rendezvous */
    int local_rank, local_world, node_rank, nnodes;
    int restart;
    bool store_host; /* this rank hosts the store */
    lvni_launch_rdzv rdzv;
    char rdzv_dir[LVNI_RANK_INFO_TEXT];    /* FILE: of rdzv=file:DIR; "": the run's directory */
    int store_fd;                          /* FD, store_host: the socket; else -1 */
    char master_addr[LVNI_RANK_INFO_TEXT]; /* "": none */
    /* by a variable or an option: it must be an address of the store's host */
    bool master_given;
    bool on_node; /* all ranks are on this node, and no address was given */
    int n_ports, ports[LVNI_RANK_INFO_PORTS]; /* to try in turn; one where it was given */
    /* equal on all ranks of a run, another for another run */
    char job_key[LVNI_RANK_INFO_TEXT];
    char run_id[LVNI_RANK_INFO_TEXT]; /* "": none */
    lvni_launch_hosts hosts;          /* of the step, in node order; may be empty */
    lvni_launch_task_vector tasks;    /* on each node; may be empty */
    lvni_launch_slurm_job slurm;
    /* the variable it was read from; NULL: derived, or not known */
    const char *from[LVNI_RANK_INFO_FIELDS];
} lvni_launch_rank_info;

typedef struct lvni_launch_rank_info_options {
    const char *source;      /* --env-source; NULL: LEVIN_ENV, else auto */
    const char *master_addr; /* --master-addr; NULL: not given */
    int master_port;         /* --master-port; 0: not given */
    /* rdzv=, "tcp" or "file:DIR"; NULL: LEVIN_RDZV, else tcp where an address is known */
    const char *rdzv;
    int nodes; /* num_nodes; 0: not given */
    /* levin launch: the shell of a batch job is not an error, it starts the step itself */
    bool launcher;
    int n_args; /* the command line, for the advice of E101 */
    const char *const *args;
} lvni_launch_rank_info_options;

/* E100, E101, E102, E107, E108, E109, E112, E119; W204, W205, W210. Sets notices->rank and by_hand.
 * *out is to be freed after success. */
lvn_status lvni_launch_rank_info_detect(char *const *env,
                                        const lvni_launch_rank_info_options *options,
                                        lvni_core_notices *notices, lvni_launch_rank_info *out);
void lvni_launch_rank_info_free(lvni_launch_rank_info *info);

/* What the ranks connect to: master_addr, or 127.0.0.1 where they are all on this node, so that
 * nothing needs to be resolved. */
const char *lvni_launch_rank_info_route(const lvni_launch_rank_info *info);

/* The k-th port (0 to 7) of job, step and restart; for step and restart 0 the first is 15000 + the
 * last four digits of the job. */
int lvni_launch_rank_info_port(uint64_t job, uint64_t step, uint64_t restart, int k);

/* E111 when the given address is not one of this host's: on the store's host, and on all ranks
 * where they are on one node. `own`: the host's addresses as text; `resolved`: those of the name.
 */
lvn_status lvni_launch_rank_info_check_address(const lvni_launch_rank_info *info,
                                               const char *const *own, int n_own,
                                               const char *const *resolved, int n_resolved,
                                               lvni_core_notices *notices);
/* The same, asking the system for both. Looks nothing up where no address was given. */
lvn_status lvni_launch_rank_info_check_address_here(const lvni_launch_rank_info *info,
                                                    lvni_core_notices *notices);

/* The address on which the store listens; NULL: all of this host. One node: the loopback, or what
 * is given. Several: an address that is given; a name only where this host cannot be reached at any
 * other address than that of the name, since other hosts may resolve it to another one (a host's
 * own name is often 127.0.1.1 at home, and a bridge of containers has the same address everywhere).
 */
const char *lvni_launch_rank_info_listen(const lvni_launch_rank_info *info, const char *const *own,
                                         int n_own, const char *const *resolved, int n_resolved);
/* The same, asking the system for both; "": all. */
lvn_status lvni_launch_rank_info_listen_here(const lvni_launch_rank_info *info, char *out,
                                             size_t size);

/* The record: "key=value" lines, one JSON object, or `export NAME=value` lines that a shell can
 * eval (torchrun's names). */
void lvni_launch_rank_info_print(const lvni_launch_rank_info *info, lvni_core_str *out);
void lvni_launch_rank_info_print_json(const lvni_launch_rank_info *info, lvni_core_str *out);
void lvni_launch_rank_info_print_export(const lvni_launch_rank_info *info, lvni_core_str *out);

/* What Slurm's configuration contains about MUNGE. */
typedef struct lvni_launch_slurm_auth {
    bool munge;           /* AuthType is auth/munge, also where it is not set */
    lvni_core_str socket; /* of AuthInfo; empty: MUNGE's own */
    lvni_core_str file;   /* read; empty: none could be */
} lvni_launch_slurm_auth;

/* From the file that SLURM_CONF names, else from the places where Slurm keeps it, with the files it
 * includes. One that cannot be read leaves the defaults. lvni_launch_slurm_auth_free in every
 * case. */
lvn_status lvni_launch_slurm_auth_read(char *const *env, lvni_launch_slurm_auth *out);
void lvni_launch_slurm_auth_free(lvni_launch_slurm_auth *auth);

#endif
