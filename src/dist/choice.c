/* The list of transports, and the choice among them (choice.h). */
#include "dist/choice.h"

#include "core/str.h"
#include "dist/transport.h"

#include <stdio.h>
#include <string.h>

static const lvni_dist_transport *const transports[] = {
    &lvni_dist_transport_self, &lvni_dist_transport_shm, &lvni_dist_transport_net};
enum { N_TRANSPORTS = sizeof transports / sizeof *transports };

/* ---- where the ranks are ---- */

static bool several_on_a_host(const lvni_dist_layout *l)
{
    return l->hosts > 1 && l->ranks > l->hosts;
}

/* Do the ranks of each host follow each other? */
static bool are_in_order(const lvni_dist_layout *l)
{
    int changes = 1;
    for (int r = 1; r < l->ranks && l->host != NULL; r++) {
        changes += l->host[r] != l->host[r - 1];
    }
    return l->host != NULL && changes == l->hosts;
}

static bool has_levels(const lvni_dist_layout *l)
{
    return l->hosts > 1 && (l->threads || (several_on_a_host(l) && are_in_order(l)));
}

/* ---- who carries them ---- */

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

/* "transport shm: 2 ranks share memory" */
static int describe_way(const lvni_dist_layout *l, const lvni_dist_choice *choice, char *out,
                        size_t room)
{
    const lvni_dist_transport *t = choice->link;
    if (t != NULL) {
        return snprintf(out, room,
                        "transport shm+%s: %d rank%s on %d nodes share memory within a node and %s "
                        "between nodes",
                        t->name, l->ranks, lvni_core_plural(l->ranks, "", "s"), l->hosts, t->does);
    }
    t = choice->transport;
    return snprintf(out, room, "transport %s: %d rank%s %s%s", t->name, l->ranks,
                    lvni_core_plural(l->ranks, "", "s"), t->does,
                    several_on_a_host(l) ? ", as those of a node do not follow each other" : "");
}

/* With the scores of those that could have been taken: "score 80, net 30, for 4.0 MiB in host
 * memory". `asked`: the layout that they were asked about. */
static void describe(const lvni_dist_layout *l, const lvni_dist_layout *asked, bool automatic,
                     lvni_dist_choice *choice)
{
    char bytes[LVNI_BYTES_TEXT], *out = choice->line;
    const size_t room = sizeof choice->line;
    const lvni_dist_transport *taken = choice->link != NULL ? choice->link : choice->transport;
    int at = describe_way(l, choice, out, room);
    if (!automatic) {
        snprintf(out + at, room - (size_t)at, " (requested)");
        return;
    }
    at += snprintf(out + at, room - (size_t)at, " (auto: score %d", score(taken, asked));
    for (int i = 0; i < N_TRANSPORTS; i++) {
        if (transports[i] != taken && refusal(transports[i], asked) == NULL) {
            at += snprintf(out + at, room - (size_t)at, ", %s %d", transports[i]->name,
                           score(transports[i], asked));
        }
    }
    snprintf(out + at, room - (size_t)at, ", for %s in %s memory)",
             lvni_core_bytes_text((uint64_t)l->bytes, bytes), l->device ? "device" : "host");
}

/* Of `asked`, which is the layout of nodes where ranks go in two levels. */
static lvn_status find(const lvni_dist_layout *asked, const char *requested,
                       const lvni_dist_transport **out)
{
    *out = NULL;
    const bool automatic = strcmp(requested, "auto") == 0;
    if (automatic) {
        *out = best(asked);
    }
    for (int i = 0; i < N_TRANSPORTS && !automatic; i++) {
        *out = strcmp(requested, transports[i]->name) == 0 ? transports[i] : *out;
    }
    if (*out == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=%s: there is none for %d ranks on %d node%s", requested,
                 asked->ranks, asked->hosts, lvni_core_plural(asked->hosts, "", "s"));
    }
    const char *why = refusal(*out, asked);
    if (why != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=%s with %d ranks: %s; use transport=auto", requested,
                 asked->ranks, why);
    }
    return LVN_OK;
}

lvn_status lvni_dist_choose(const lvni_dist_layout *l, const char *requested, lvni_dist_choice *out)
{
    lvni_dist_layout asked = *l;
    const lvni_dist_transport *found;
    *out = (lvni_dist_choice){0};
    if (has_levels(l)) { /* a channel has a rank of each node */
        asked.threads = false;
    }
    LVN_TRY(find(&asked, requested, &found));
    out->transport = has_levels(l) ? &lvni_dist_transport_levels : found;
    out->link = has_levels(l) ? found : NULL;
    describe(l, &asked, strcmp(requested, "auto") == 0, out);
    return LVN_OK;
}

const char *lvni_dist_choice_does(const lvni_dist_choice *choice)
{
    return choice->transport->does;
}

lvn_status lvni_dist_choice_connect(const lvni_dist_choice *choice,
                                    const lvni_dist_comm_options *options, lvni_dist_comm **out)
{
    return choice->link != NULL ? lvni_dist_comm_levels(options, choice->link, out)
                                : choice->transport->connect(options, out);
}

lvn_status lvni_dist_choice_connect_threads(const lvni_dist_choice *choice,
                                            const lvni_dist_comm_options *options, int threads,
                                            lvni_dist_comm **out)
{
    return lvni_dist_comm_levels_threads(options, choice->link, threads, out);
}
