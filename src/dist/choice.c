/* The list of transports, and the choice among them (choice.h). */
#include "dist/choice.h"

#include "core/str.h"
#include "dist/transport.h"

#include <stdio.h>
#include <string.h>

static const lvni_dist_transport *const transports[] = {
    &lvni_dist_transport_self, &lvni_dist_transport_shm, &lvni_dist_transport_net};
enum { N_TRANSPORTS = sizeof transports / sizeof *transports };

/* NULL: it carries these ranks; else why not. */
static const char *refusal(const lvni_dist_transport *t, const lvni_dist_layout *l)
{
    if (l->ranks > t->max_ranks) {
        return "too many for it";
    }
    if (l->hosts > 1 && (t->abilities & LVNI_DIST_MESSAGES) == 0) {
        return "they are on several nodes and share no memory";
    }
    if (l->threads && (t->abilities & LVNI_DIST_SHARED_MEMORY) == 0) {
        return "it is for processes (strategy=ddp), and these are threads of one";
    }
    return NULL;
}

/* The sum of gradients is what a run spends its exchange on. */
static int score(const lvni_dist_transport *t, const lvni_dist_layout *l)
{
    return t->score(LVNI_CALL_REDUCTION_FINISH,
                    l->device ? LVNI_DIST_MEMORY_DEVICE : LVNI_DIST_MEMORY_HOST, l->bytes);
}

static const lvni_dist_transport *best(const lvni_dist_layout *l)
{
    const lvni_dist_transport *found = NULL;
    for (int i = 0; i < N_TRANSPORTS; i++) {
        const lvni_dist_transport *t = transports[i];
        if (refusal(t, l) == NULL && score(t, l) > (found == NULL ? 0 : score(found, l))) {
            found = t;
        }
    }
    return found;
}

/* The scores of those that could have been taken: "score 80, net 30, for 4.0 MiB in host memory" */
static void describe(const lvni_dist_layout *l, const lvni_dist_transport *taken, bool automatic,
                     char *out, size_t room)
{
    char bytes[LVNI_BYTES_TEXT];
    int at = snprintf(out, room, "transport %s: %d rank%s %s", taken->name, l->ranks,
                      l->ranks == 1 ? "" : "s", taken->does);
    if (!automatic) {
        snprintf(out + at, room - (size_t)at, " (requested)");
        return;
    }
    at += snprintf(out + at, room - (size_t)at, " (auto: score %d", score(taken, l));
    for (int i = 0; i < N_TRANSPORTS; i++) {
        if (transports[i] != taken && refusal(transports[i], l) == NULL) {
            at += snprintf(out + at, room - (size_t)at, ", %s %d", transports[i]->name,
                           score(transports[i], l));
        }
    }
    snprintf(out + at, room - (size_t)at, ", for %s in %s memory)",
             lvni_core_bytes_text((uint64_t)l->bytes, bytes), l->device ? "device" : "host");
}

lvn_status lvni_dist_choose(const lvni_dist_layout *l, const char *requested, lvni_dist_choice *out)
{
    *out = (lvni_dist_choice){0};
    const bool automatic = strcmp(requested, "auto") == 0;
    if (automatic) {
        out->transport = best(l);
    }
    for (int i = 0; i < N_TRANSPORTS && !automatic; i++) {
        out->transport =
            strcmp(requested, transports[i]->name) == 0 ? transports[i] : out->transport;
    }
    if (out->transport == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=%s: there is none for %d ranks on %d node%s", requested,
                 l->ranks, l->hosts, l->hosts == 1 ? "" : "s");
    }
    const char *why = refusal(out->transport, l);
    if (why != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=%s with %d ranks: %s; use transport=auto", requested,
                 l->ranks, why);
    }
    describe(l, out->transport, automatic, out->line, sizeof out->line);
    return LVN_OK;
}

const char *lvni_dist_choice_does(const lvni_dist_choice *choice)
{
    return choice->transport->does;
}

lvn_status lvni_dist_choice_connect(const lvni_dist_choice *choice,
                                    const lvni_dist_comm_options *options, lvni_dist_comm **out)
{
    return choice->transport->connect(options, out);
}
