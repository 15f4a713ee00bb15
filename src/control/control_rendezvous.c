/* The rendezvous from a rank's side: its facts, and the table of all. */
#include "control_impl.h"

#include "core/alloc.h"
#include "core/host_name.h"

#include <levin/version.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int cpus_of_process(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return CPU_COUNT(&set);
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more processors than a cpu_set_t holds */
}

void lvni_control_facts_init(lvni_control_facts *facts, lvni_control_facts_room *room)
{
    lvni_core_host_name(room->host, sizeof room->host);
    room->boot_id[0] = '\0';
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f != NULL) {
        if (fgets(room->boot_id, sizeof room->boot_id, f) != NULL) {
            room->boot_id[strcspn(room->boot_id, "\n")] = '\0';
        }
        fclose(f);
    }
    *facts = (lvni_control_facts){.local_rank = -1,
                                  .node_rank = -1,
                                  .host = room->host,
                                  .boot_id = room->boot_id,
                                  .pid = getpid(),
                                  .version = lvn_version(),
                                  .device = "",
                                  .driver = "",
                                  .cpus = cpus_of_process(),
                                  .resume_step = -1};
}

static lvn_status check_facts(const lvni_control_facts *facts)
{
    const char *const texts[] = {facts->host,   facts->boot_id,     facts->version, facts->device,
                                 facts->driver, facts->fingerprint, facts->config};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bytes += texts[i] == NULL ? 0 : strlen(texts[i]);
    }
    LVN_ARG(bytes <= LVNI_CONTROL_MAX_VALUE, "the facts of a rank have at most %d bytes, not %zu",
            LVNI_CONTROL_MAX_VALUE, bytes);
    return LVN_OK;
}

lvn_status lvni_control_rendezvous(lvni_control *control, const lvni_control_facts *facts)
{
    LVN_ARG(control->members == NULL, "rank %d has had its rendezvous", control->rank);
    LVN_TRY(check_facts(facts));
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = lvni_control_begin_ask(control, &frame, LVNI_FRAME_FACTS, &request);
    lvni_control_put_facts(&frame, facts);
    /* the store's own time is over before */
    LVN_TRY(lvni_control_ask(control, &frame, at, &request, control->rdzv_timeout_s));
    lvni_control_member *members = NULL;
    int nodes = 0;
    const lvn_status status =
        lvni_control_scan_table(request.data, request.n, control->world, &members, &nodes);
    if (status != LVN_OK) {
        lvni_core_free(request.data);
        return status;
    }
    control->table = request.data;
    control->members = members;
    control->nodes = nodes;
    return LVN_OK;
}

const lvni_control_member *lvni_control_members(const lvni_control *control)
{
    return control->members;
}

int lvni_control_rank(const lvni_control *control)
{
    return control->rank;
}

int lvni_control_world(const lvni_control *control)
{
    return control->world;
}

int lvni_control_nodes(const lvni_control *control)
{
    return control->nodes;
}
