/* The list of transports, and the choice among them (choice.h). */
#include "dist/choice.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "dist/device_sum.h"
#include "dist/transport.h"

#include <stdio.h>
#include <string.h>

static const lvni_dist_transport *const transports[] = {
    &lvni_dist_transport_self, &lvni_dist_transport_shm, &lvni_dist_transport_ucx,
    &lvni_dist_transport_net};
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

/* everywhere: only of those that every machine has */
static const lvni_dist_transport *best(const lvni_dist_layout *l, bool everywhere)
{
    const lvni_dist_transport *found = NULL;
    for (int i = 0; i < N_TRANSPORTS; i++) {
        const lvni_dist_transport *t = transports[i];
        if (refusal(t, l) == NULL && !(everywhere && t->missing != NULL) &&
            score(t, l) > (found == NULL ? 0 : score(found, l))) {
            found = t;
        }
    }
    return found;
}

/* "transport shm: 2 ranks share memory" */
static int describe_way(const lvni_dist_choice *choice, char *out, size_t room)
{
    const lvni_dist_layout *l = &choice->layout;
    const lvni_dist_transport *t = choice->link;
    const char *nccl = choice->nccl ? "nccl+" : "";
    if (t != NULL) {
        return snprintf(out, room,
                        "transport %sshm+%s: %d rank%s on %d nodes share memory within a node and "
                        "%s between nodes",
                        nccl, t->name, l->ranks, lvni_core_plural(l->ranks, "", "s"), l->hosts,
                        t->does);
    }
    t = choice->transport;
    return snprintf(out, room, "transport %s%s: %d rank%s %s%s", nccl, t->name, l->ranks,
                    lvni_core_plural(l->ranks, "", "s"), t->does,
                    several_on_a_host(l) ? ", as those of a node do not follow each other" : "");
}

/* With the scores of those that could have been taken: "score 80, net 30, for 4.0 MiB in host
 * memory". lack: why the best was not, or "". */
static void describe(lvni_dist_choice *choice, bool automatic, const char *lack)
{
    char bytes[LVNI_BYTES_TEXT], *out = choice->line;
    const size_t room = sizeof choice->line;
    const lvni_dist_layout *asked = &choice->asked;
    const lvni_dist_transport *taken = choice->link != NULL ? choice->link : choice->transport;
    int at = describe_way(choice, out, room);
    if (choice->nccl) {
        snprintf(out + at, room - (size_t)at,
                 ", and add gradients between their devices over NCCL (requested%s%s)",
                 lack[0] != '\0' ? "; " : "", lack);
        return;
    }
    if (!automatic) {
        snprintf(out + at, room - (size_t)at, " (requested)");
        return;
    }
    at += snprintf(out + at, room - (size_t)at, " (auto: score %d", score(taken, asked));
    for (int i = 0; i < N_TRANSPORTS; i++) {
        if (transports[i] != taken && transports[i]->missing == NULL &&
            refusal(transports[i], asked) == NULL) {
            at += snprintf(out + at, room - (size_t)at, ", %s %d", transports[i]->name,
                           score(transports[i], asked));
        }
    }
    snprintf(out + at, room - (size_t)at, ", for %s in %s memory%s%s)",
             lvni_core_bytes_text((uint64_t)asked->bytes, bytes), asked->device ? "device" : "host",
             lack[0] != '\0' ? "; " : "", lack);
}

/* The best, if this process has it; only there what it needs is loaded. */
static const lvni_dist_transport *find_best(lvni_dist_choice *choice)
{
    const lvni_dist_transport *sure = best(&choice->asked, true),
                              *first = best(&choice->asked, false);
    if (first == sure || first == NULL) {
        return first;
    }
    const char *unfit = first->unfit();
    choice->fallback = sure;
    if (unfit == NULL) {
        return first;
    }
    snprintf(choice->lack, sizeof choice->lack, "no %s: %s", first->name, unfit);
    return sure;
}

static lvn_status find_requested(const lvni_dist_choice *choice, const char *name,
                                 const lvni_dist_transport **out)
{
    for (int i = 0; i < N_TRANSPORTS; i++) {
        *out = strcmp(name, transports[i]->name) == 0 ? transports[i] : *out;
    }
    const char *why = *out != NULL ? refusal(*out, &choice->asked) : NULL;
    if (why != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=%s with %d ranks: %s; use transport=auto", name,
                 choice->layout.ranks, why);
    }
    const char *missing = *out != NULL && (*out)->missing != NULL ? (*out)->missing() : NULL;
    if (missing != NULL) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "transport=%s: %s; install it, or use transport=auto", name,
                 missing);
    }
    return LVN_OK;
}

/* Whether each rank has a device of its own, and one that NCCL knows, is found when they are
 * there. */
static lvn_status check_nccl(const lvni_dist_layout *l)
{
    if (!l->device) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=nccl adds gradients between devices, and these are in "
                                "host memory: use accelerator=cuda, or transport=auto");
    }
    const char *missing = lvni_dist_device_sum_missing();
    if (missing != NULL) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "transport=nccl: %s; install it, or use transport=auto",
                 missing);
    }
    return LVN_OK;
}

lvn_status lvni_dist_choose(const lvni_dist_layout *l, const char *requested, lvni_dist_choice *out)
{
    const bool nccl = strcmp(requested, "nccl") == 0,
               automatic = nccl || strcmp(requested, "auto") == 0;
    const lvni_dist_transport *found = NULL;
    *out = (lvni_dist_choice){.layout = *l, .asked = *l, .nccl = nccl};
    LVN_TRY(nccl ? check_nccl(l) : LVN_OK);
    if (has_levels(l)) { /* a channel has one rank of each node */
        out->asked.threads = false;
        out->asked.ranks = l->hosts;
    }
    if (automatic) {
        found = find_best(out);
    } else {
        LVN_TRY(find_requested(out, requested, &found));
    }
    if (found == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=%s: there is none for %d ranks on %d node%s", requested,
                 l->ranks, l->hosts, lvni_core_plural(l->hosts, "", "s"));
    }
    out->transport = has_levels(l) ? &lvni_dist_transport_levels : found;
    out->link = has_levels(l) ? found : NULL;
    out->layout.host = out->asked.host = NULL; /* the caller's, and only looked at here */
    describe(out, automatic, out->lack);
    return LVN_OK;
}

void lvni_dist_choice_apply(const lvni_dist_choice *choice, lvni_dist_comm *comm)
{
    comm->between_devices = choice->nccl;
}

const char *lvni_dist_choice_does(const lvni_dist_choice *choice)
{
    return choice->transport->does;
}

static const lvni_dist_transport **taken_of(lvni_dist_choice *choice)
{
    return choice->link != NULL ? &choice->link : &choice->transport;
}

/* All ranks have the best, or none takes it. */
static lvn_status agree(lvni_dist_choice *choice, const lvni_dist_comm_options *options)
{
    const size_t room = sizeof choice->lack;
    if (choice->fallback == NULL) {
        return LVN_OK;
    }
    char *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)options->world, room);
    bool everywhere = true, nowhere = true;
    int first = -1;
    lvn_status s;
    LVNI_TRY_DONE(s, all == NULL ? LVN_ERR_MEMORY
                                 : options->exchange(options->user, choice->lack, room, all));
    for (int rank = options->world - 1; rank >= 0; rank--) {
        const bool has = all[(size_t)rank * room] == '\0';
        everywhere = everywhere && has;
        nowhere = nowhere && !has;
        first = has ? first : rank;
    }
    if (!everywhere && !nowhere) {
        char text[LVNI_DIST_LACK + 32];
        snprintf(text, sizeof text, "rank %d has %.*s", first, (int)room - 1,
                 all + (size_t)first * room);
        *taken_of(choice) = choice->fallback;
        describe(choice, true, text);
    }
done:
    lvni_core_free(all);
    return s;
}

/* threads 0: of ranks that are processes */
static lvn_status connect_taken(const lvni_dist_choice *choice,
                                const lvni_dist_comm_options *options, int threads,
                                lvni_dist_comm **out)
{
    if (threads > 0) {
        return lvni_dist_comm_levels_threads(options, choice->link, threads, out);
    }
    return choice->link != NULL ? lvni_dist_comm_levels(options, choice->link, out)
                                : choice->transport->connect(options, out);
}

/* What is the best by its ports may still not reach all ranks. Without options->fail all of them
 * learn that one cannot connect, and all take the fallback. */
static lvn_status connect_best(lvni_dist_choice *choice, const lvni_dist_comm_options *options,
                               int threads, lvni_dist_comm **out)
{
    const lvni_dist_transport **taken = taken_of(choice);
    if (choice->fallback == NULL || *taken == choice->fallback) {
        return connect_taken(choice, options, threads, out);
    }
    lvni_dist_comm_options first = *options;
    first.fail = NULL;
    const lvn_status s = connect_taken(choice, &first, threads, out);
    if (s == LVN_OK || (options->over != NULL && options->over(options->user))) {
        return s;
    }
    char text[LVNI_DIST_LACK + 128];
    snprintf(text, sizeof text, "no %s: %.*s", (*taken)->name, LVNI_DIST_LACK,
             lvn_last_error()->message);
    *taken = choice->fallback;
    describe(choice, true, text);
    return connect_taken(choice, options, threads, out);
}

lvn_status lvni_dist_choice_connect(lvni_dist_choice *choice, const lvni_dist_comm_options *options,
                                    lvni_dist_comm **out)
{
    *out = NULL;
    LVN_TRY(agree(choice, options));
    LVN_TRY(connect_best(choice, options, 0, out));
    lvni_dist_choice_apply(choice, *out);
    return LVN_OK;
}

lvn_status lvni_dist_choice_connect_threads(lvni_dist_choice *choice,
                                            const lvni_dist_comm_options *options, int threads,
                                            lvni_dist_comm **out)
{
    LVN_TRY(agree(choice, options));
    LVN_TRY(connect_best(choice, options, threads, out));
    for (int i = 0; i < threads; i++) {
        lvni_dist_choice_apply(choice, out[i]);
    }
    return LVN_OK;
}
