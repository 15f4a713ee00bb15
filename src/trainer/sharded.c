/* Steps of ranks that each own a part of the optimizer (sharded.h). */
#include "trainer/sharded.h"

#include "core/alloc.h"
#include "kernels/flat.h"
#include "plan/exchange.h"

#include <string.h>

enum { ROOM = 1 << 20 }; /* floats of all ranks that travel at once */

struct lvni_trainer_sharded {
    lvni_dist_comm *comm;
    int64_t n, chunk; /* of each rank at once, whole blocks */
    float *room;      /* chunk of every rank */
};

static int64_t round_up(int64_t n)
{
    return lvni_kernels_flat_blocks(n) * LVNI_FLAT_BLOCK;
}

/* No more than the largest part has. */
static int64_t chunk_of(int64_t n, int world)
{
    const int64_t most = round_up(n / world + LVNI_FLAT_BLOCK), even = ROOM / world,
                  chunk = even > LVNI_FLAT_BLOCK ? even / LVNI_FLAT_BLOCK * LVNI_FLAT_BLOCK
                                                 : LVNI_FLAT_BLOCK;
    return chunk < most ? chunk : most;
}

uint64_t lvni_trainer_sharded_bytes(int64_t n, int world)
{
    return (uint64_t)chunk_of(n, world) * (uint64_t)world * sizeof(float);
}

lvn_status lvni_trainer_sharded_create(lvni_dist_comm *comm, int64_t n, lvni_trainer_sharded **out)
{
    const int world = lvni_dist_comm_world(comm);
    *out = NULL;
    lvni_trainer_sharded *s = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_sharded);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    *s = (lvni_trainer_sharded){.comm = comm, .n = n, .chunk = chunk_of(n, world)};
    s->room = lvni_core_alloc(LVNI_TAG_TRAINER, lvni_trainer_sharded_bytes(n, world));
    if (s->room == NULL) {
        lvni_core_free(s);
        return LVN_ERR_MEMORY;
    }
    *out = s;
    return LVN_OK;
}

void lvni_trainer_sharded_destroy(lvni_trainer_sharded *s)
{
    if (s != NULL) {
        lvni_core_free(s->room);
        lvni_core_free(s);
    }
}

lvni_optim_range lvni_trainer_sharded_part(int64_t n, int world, int rank)
{
    const lvni_plan_range part = lvni_plan_exchange_part(n, world, rank);
    return (lvni_optim_range){part.start, part.start + part.count};
}

/* ---- from parts to the whole ---- */

typedef struct gathering {
    lvni_trainer_sharded *s;
    const float *own; /* the first element of this rank's part in [begin, end); NULL: it is empty */
    int64_t begin, end;
    float *whole;
} gathering;

/* What a rank has of [begin, end). */
static lvni_optim_range part_of(const gathering *g, int rank)
{
    const lvni_optim_range part =
        lvni_trainer_sharded_part(g->s->n, lvni_dist_comm_world(g->s->comm), rank);
    const int64_t begin = part.begin > g->begin ? part.begin : g->begin,
                  end = part.end < g->end ? part.end : g->end;
    return (lvni_optim_range){begin, end > begin ? end : begin};
}

/* Of elements [at, at + n) of a part, those that there are. */
static int64_t count_at(lvni_optim_range part, int64_t at, int64_t n)
{
    const int64_t left = part.end - part.begin - at;
    return left < 0 ? 0 : left < n ? left : n;
}

/* Elements [at, at + n) of every part; where one has fewer, zeros travel. */
static lvn_status gather_all(const gathering *g, int64_t at, int64_t n)
{
    lvni_dist_comm *comm = g->s->comm;
    const int rank = lvni_dist_comm_rank(comm), world = lvni_dist_comm_world(comm);
    float *room = g->s->room, *mine = room + (int64_t)rank * n;
    const int64_t here = count_at(part_of(g, rank), at, n);
    if (here > 0 && g->own != NULL) {
        memcpy(mine, g->own + at, (size_t)here * sizeof *mine);
    }
    memset(mine + here, 0, (size_t)(n - here) * sizeof *mine);
    LVN_TRY(lvni_dist_comm_all_gather(comm, mine, (size_t)n * sizeof *mine, room));
    for (int r = 0; r < world && g->whole != NULL; r++) {
        const lvni_optim_range part = part_of(g, r);
        const int64_t theirs = count_at(part, at, n);
        float *to = g->whole + part.begin + at;
        if (theirs > 0 && (r != rank || g->own == NULL || to != g->own + at)) {
            memcpy(to, room + (int64_t)r * n, (size_t)theirs * sizeof *to);
        }
    }
    return LVN_OK;
}

/* Elements of one rank's part from `at` on. */
static lvn_status spread(const gathering *g, int root, int64_t at)
{
    lvni_dist_comm *comm = g->s->comm;
    const lvni_optim_range part = part_of(g, root);
    const int64_t most = g->s->chunk * lvni_dist_comm_world(comm);
    for (int64_t n = 0; (n = count_at(part, at, most)) > 0; at += n) {
        float *to = g->whole != NULL ? g->whole + part.begin + at : g->s->room;
        if (root == lvni_dist_comm_rank(comm) && g->own != NULL && to != g->own + at) {
            memcpy(to, g->own + at, (size_t)n * sizeof *to);
        }
        LVN_TRY(lvni_dist_comm_broadcast(comm, to, (size_t)n * sizeof *to, root));
    }
    return LVN_OK;
}

/* What all ranks have goes in one exchange. Of the rest, where a phase trains a part of the
 * weights, each part goes on its own, unless it is a block, as parts differ by one. */
lvn_status lvni_trainer_sharded_gather(lvni_trainer_sharded *s, const float *own, int64_t begin,
                                       int64_t end, float *whole)
{
    gathering g = {.s = s, .begin = begin, .end = end, .whole = whole};
    const int world = lvni_dist_comm_world(s->comm), rank = lvni_dist_comm_rank(s->comm);
    const lvni_optim_range mine = part_of(&g, rank);
    if (mine.begin < mine.end) {
        g.own = own + (mine.begin - lvni_trainer_sharded_part(s->n, world, rank).begin);
    }
    int64_t least = INT64_MAX, most = 0;
    for (int r = 0; r < world; r++) {
        const lvni_optim_range part = part_of(&g, r);
        const int64_t n = round_up(part.end - part.begin);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    const int64_t even = most - least <= LVNI_FLAT_BLOCK ? most : least;
    for (int64_t at = 0; at < even; at += s->chunk) {
        LVN_TRY(gather_all(&g, at, even - at < s->chunk ? even - at : s->chunk));
    }
    for (int r = 0; r < world && even < most; r++) {
        LVN_TRY(spread(&g, r, even));
    }
    return LVN_OK;
}

/* ---- a step ---- */

/* The sums of a tensor over blocks of several ranks: each block's is one rank's, and zeros of the
 * others do not change its bits. */
static lvn_status add_sums(lvni_trainer_sharded *s, lvni_optim *optim)
{
    return optim->n_sums == 0
               ? LVN_OK
               : lvni_dist_comm_all_reduce(s->comm, optim->sums, optim->sums, 2 * optim->n_sums,
                                           LVN_F64, LVNI_REDUCE_SUM);
}

lvn_status lvni_trainer_sharded_step(lvni_trainer_sharded *s, lvni_optim *optim, int phase,
                                     lvni_nn_model *model, const float *gradient, double lr,
                                     double scale)
{
    const lvni_optim_range own = optim->own;
    float *w = model->weights + own.begin;
    const float *g = gradient + own.begin;
    if (optim->n_sums > 0) {
        memset(optim->sums, 0, 2 * (size_t)optim->n_sums * sizeof *optim->sums);
    }
    lvni_optim_prepare(optim, phase, own, w, g, scale);
    LVN_TRY(add_sums(s, optim));
    lvni_optim_trust(optim, phase, scale);
    lvni_optim_step_range(optim, phase, own, w, g, lr, scale);
    lvni_optim_end_step(optim, phase);
    return lvni_trainer_sharded_gather(s, w, model->trained_begin, model->trained_end,
                                       model->weights);
}
