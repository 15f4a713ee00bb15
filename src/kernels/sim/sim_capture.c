/* Captured steps of simulated accelerators (sim.h): of an engine, whichever stream and thread the
 * commands are from. */
#include "core/alloc.h"
#include "kernels/sim/sim.h"

#include <string.h>

typedef struct lvni_sim_graph {
    lvni_sim_command *command;
    int n, room;
    uint64_t replays;
} graph;

static lvn_status keep(graph *g, const lvni_sim_command *c)
{
    if (g->n == g->room) {
        const int room = g->room == 0 ? 64 : 2 * g->room;
        lvni_sim_command *more =
            lvni_core_alloc(LVNI_TAG_KERNEL, (size_t)room * sizeof *more); /* aligned */
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        for (int i = 0; i < g->n; i++) {
            more[i] = g->command[i];
        }
        lvni_core_free(g->command);
        g->command = more;
        g->room = room;
    }
    g->command[g->n++] = *c;
    return LVN_OK;
}

lvn_status lvni_sim_capture(lvni_sim_engine *e, lvni_sim_command *c, const void *payload,
                            size_t bytes, bool *captured)
{
    lvn_status status = LVN_OK;
    pthread_mutex_lock(&e->lock);
    *captured = e->capture != NULL;
    if (*captured) {
        memcpy(c->payload, bytes > 0 ? payload : "", bytes);
        status = keep(e->capture, c);
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

lvn_status lvni_sim_capture_begin(void *stream)
{
    lvni_sim_engine *e = ((lvni_sim_stream *)stream)->engine;
    graph *g = LVNI_NEW(LVNI_TAG_KERNEL, graph);
    if (g == NULL) {
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_lock(&e->lock);
    const bool free = e->capture == NULL;
    e->capture = free ? g : e->capture;
    pthread_mutex_unlock(&e->lock);
    if (!free) {
        lvni_core_free(g);
        LVN_FAIL(LVN_ERR_INVALID, "%s is being captured already", e->device->name);
    }
    return LVN_OK;
}

lvn_status lvni_sim_capture_end(void *stream, void **out)
{
    lvni_sim_engine *e = ((lvni_sim_stream *)stream)->engine;
    pthread_mutex_lock(&e->lock);
    *out = e->capture;
    e->capture = NULL;
    pthread_mutex_unlock(&e->lock);
    LVN_ARG(*out != NULL, "%s is not being captured", e->device->name);
    return LVN_OK;
}

lvn_status lvni_sim_graph_replay(void *captured, void *stream)
{
    graph *g = captured;
    g->replays++;
    for (int i = 0; i < g->n; i++) {
        lvni_sim_command *c = &g->command[i];
        if (c->event != NULL) {
            LVN_TRY((c->records ? lvni_sim_event_record(c->event, stream)
                                : lvni_sim_event_follow(stream, c->event)));
        } else {
            c->replay = g->replays;
            lvni_sim_enqueue(stream, c, c->payload, LVNI_SIM_COMMAND_BYTES);
        }
    }
    return LVN_OK;
}

void lvni_sim_graph_destroy(void *captured)
{
    graph *g = captured;
    for (int i = 0; g != NULL && i < g->n; i++) {
        if (g->command[i].event != NULL) {
            lvni_sim_event_destroy(g->command[i].event);
        }
    }
    if (g != NULL) {
        lvni_core_free(g->command);
        lvni_core_free(g);
    }
}
