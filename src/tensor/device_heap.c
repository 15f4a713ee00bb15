/* Pieces of a device's addresses (device_heap.h): bins by size class in each pool, with a bit for
 * each that holds pieces; a table of the blocks in use by address. */
#include "tensor/device_heap.h"

#include "core/alloc.h"

/* Descriptions are made so many at a time. */
enum { MADE = 63, FIRST_LOG = 8 };
struct lvni_tensor_pieces {
    struct lvni_tensor_pieces *next;
    lvni_tensor_piece piece[MADE];
};

lvni_tensor_heap *lvni_tensor_heap_create(void)
{
    lvni_tensor_heap *h = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_heap);
    if (h == NULL) {
        return NULL;
    }
    h->used_log = FIRST_LOG;
    h->used =
        lvni_core_calloc(LVNI_TAG_TENSOR, (size_t)1 << FIRST_LOG, sizeof(lvni_tensor_piece *));
    if (h->used == NULL) {
        lvni_core_free(h);
        return NULL;
    }
    return h;
}

void lvni_tensor_heap_destroy(lvni_tensor_heap *h)
{
    while (h != NULL && h->all != NULL) {
        struct lvni_tensor_pieces *next = h->all->next;
        lvni_core_free(h->all);
        h->all = next;
    }
    if (h != NULL) {
        lvni_core_free((void *)h->used);
    }
    lvni_core_free(h);
}

/* ---- descriptions ---- */

static void recycle(lvni_tensor_heap *h, lvni_tensor_piece *piece)
{
    piece->next = h->spare;
    h->spare = piece;
}

static lvni_tensor_piece *describe(lvni_tensor_heap *h, char *p, size_t bytes)
{
    lvni_tensor_piece *piece = h->spare;
    h->spare = piece->next;
    *piece = (lvni_tensor_piece){.p = p, .bytes = bytes, .pool = LVNI_POOL_NONE};
    return piece;
}

/* Multiplied, so that the upper bits depend on all of the address. */
static size_t place_of(const void *p, int used_log)
{
    return (size_t)(((uint64_t)(uintptr_t)p >> 8) * UINT64_C(0x9e3779b97f4a7c15) >>
                    (64 - used_log));
}

static lvn_status grow_table(lvni_tensor_heap *h)
{
    const int log = h->used_log + 1;
    lvni_tensor_piece **more =
        lvni_core_calloc(LVNI_TAG_TENSOR, (size_t)1 << log, sizeof(lvni_tensor_piece *));
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < (size_t)1 << h->used_log; i++) {
        while (h->used[i] != NULL) {
            lvni_tensor_piece *piece = h->used[i], **list = &more[place_of(piece->p, log)];
            h->used[i] = piece->next;
            piece->next = *list;
            *list = piece;
        }
    }
    lvni_core_free((void *)h->used);
    h->used = more;
    h->used_log = log;
    return LVN_OK;
}

/* Two new segments, a piece for small blocks, and what is left of it. */
enum { MOST_CUTS = 4 };

lvn_status lvni_tensor_heap_reserve(lvni_tensor_heap *h)
{
    int n = 0;
    for (const lvni_tensor_piece *piece = h->spare; piece != NULL && n < MOST_CUTS; n++) {
        piece = piece->next;
    }
    if (n < MOST_CUTS) {
        struct lvni_tensor_pieces *made = LVNI_NEW(LVNI_TAG_TENSOR, struct lvni_tensor_pieces);
        if (made == NULL) {
            return LVN_ERR_MEMORY;
        }
        made->next = h->all;
        h->all = made;
        for (int i = 0; i < MADE; i++) {
            recycle(h, &made->piece[i]);
        }
    }
    return h->n_used >> h->used_log > 0 ? grow_table(h) : LVN_OK;
}

/* ---- pools ---- */

static int bin_of(size_t bytes)
{
    size_t got;
    const int k = lvni_tensor_size_class(bytes, &got);
    return got > bytes ? k - 1 : k;
}

static void leave_pool(lvni_tensor_heap *h, lvni_tensor_piece *piece)
{
    lvni_tensor_pool *pool = &h->pool[piece->pool][piece->small];
    if (piece->before != NULL) {
        piece->before->next = piece->next;
    } else {
        pool->bin[piece->bin] = piece->next;
    }
    if (piece->next != NULL) {
        piece->next->before = piece->before;
    }
    if (pool->bin[piece->bin] == NULL) {
        pool->filled[piece->bin / 64] &= ~(UINT64_C(1) << piece->bin % 64);
    }
    piece->pool = LVNI_POOL_NONE;
}

static void enter_pool(lvni_tensor_heap *h, lvni_tensor_piece *piece, int number)
{
    lvni_tensor_pool *pool = &h->pool[number][piece->small];
    piece->pool = (int16_t)number;
    piece->bin = (int16_t)bin_of(piece->bytes);
    lvni_tensor_piece **list = &pool->bin[piece->bin];
    piece->before = NULL;
    piece->next = *list;
    if (*list != NULL) {
        (*list)->before = piece;
    }
    *list = piece;
    pool->filled[piece->bin / 64] |= UINT64_C(1) << piece->bin % 64;
}

/* A free neighbour of the same pool, with which it makes one piece. */
static bool joins(const lvni_tensor_piece *piece, const lvni_tensor_piece *other, int pool)
{
    return other != NULL && other->pool == pool &&
           (other->small == piece->small || pool == LVNI_POOL_OPEN);
}

/* The lower one, which was in no pool, takes the upper one in. */
static void absorb(lvni_tensor_heap *h, lvni_tensor_piece *low, lvni_tensor_piece *high)
{
    low->bytes += high->bytes;
    low->small = low->small && high->small;
    low->above = high->above;
    if (high->above != NULL) {
        high->above->below = low;
    }
    recycle(h, high);
}

/* Free, and in no pool yet. */
static lvni_tensor_piece *put(lvni_tensor_heap *h, lvni_tensor_piece *piece, int pool)
{
    if (joins(piece, piece->below, pool)) {
        lvni_tensor_piece *low = piece->below;
        leave_pool(h, low);
        absorb(h, low, piece);
        piece = low;
    }
    if (joins(piece, piece->above, pool)) {
        leave_pool(h, piece->above);
        absorb(h, piece, piece->above);
    }
    enter_pool(h, piece, pool);
    return piece;
}

/* From `at` on they become a piece of their own, in no pool, as is the rest. */
static lvni_tensor_piece *split(lvni_tensor_heap *h, lvni_tensor_piece *piece, size_t at)
{
    lvni_tensor_piece *high = describe(h, piece->p + at, piece->bytes - at);
    high->small = piece->small;
    high->below = piece;
    high->above = piece->above;
    if (high->above != NULL) {
        high->above->below = high;
    }
    piece->above = high;
    piece->bytes = at;
    return high;
}

lvni_tensor_piece *lvni_tensor_heap_add(lvni_tensor_heap *h, char *p, size_t bytes)
{
    return put(h, describe(h, p, bytes), LVNI_POOL_OPEN);
}

void lvni_tensor_heap_remove(lvni_tensor_heap *h, lvni_tensor_piece *piece)
{
    leave_pool(h, piece);
    recycle(h, piece);
}

/* ---- search ---- */

/* The first bin at or behind k that holds pieces; LVNI_SIZE_CLASSES: none does. */
static int next_filled(const lvni_tensor_pool *pool, int k)
{
    for (int word = k / 64; word < LVNI_BIN_WORDS; word++) {
        const uint64_t bits =
            pool->filled[word] & (word == k / 64 ? ~UINT64_C(0) << k % 64 : ~UINT64_C(0));
        if (bits != 0) {
            return 64 * word + __builtin_ctzll(bits);
        }
    }
    return LVNI_SIZE_CLASSES;
}

static const lvni_tensor_piece *better(const lvni_tensor_piece *a, const lvni_tensor_piece *b)
{
    return a == NULL || b->bytes < a->bytes || (b->bytes == a->bytes && b->p < a->p) ? b : a;
}

lvni_tensor_piece *lvni_tensor_heap_search(const lvni_tensor_heap *h, int number, bool small,
                                           size_t bytes)
{
    const lvni_tensor_pool *pool = &h->pool[number][small];
    const lvni_tensor_piece *best = NULL;
    /* only in the first of these bins may pieces be too small */
    for (int k = next_filled(pool, bin_of(bytes)); k < LVNI_SIZE_CLASSES && best == NULL;
         k = next_filled(pool, k + 1)) {
        for (const lvni_tensor_piece *at = pool->bin[k]; at != NULL; at = at->next) {
            best = at->bytes >= bytes ? better(best, at) : best;
        }
    }
    return (lvni_tensor_piece *)(uintptr_t)best;
}

lvni_tensor_piece *lvni_tensor_heap_search_high(const lvni_tensor_heap *h, int number, bool small,
                                                size_t bytes)
{
    const lvni_tensor_pool *pool = &h->pool[number][small];
    const lvni_tensor_piece *best = NULL;
    for (int k = next_filled(pool, bin_of(bytes)); k < LVNI_SIZE_CLASSES;
         k = next_filled(pool, k + 1)) {
        for (const lvni_tensor_piece *at = pool->bin[k]; at != NULL; at = at->next) {
            best = at->bytes >= bytes && (best == NULL || at->p > best->p) ? at : best;
        }
    }
    return (lvni_tensor_piece *)(uintptr_t)best;
}

/* The free piece of `pool` at that end of an open one. */
static lvni_tensor_piece *beside(const lvni_tensor_piece *open, int pool, bool high)
{
    lvni_tensor_piece *other = high ? open->above : open->below;
    return other != NULL && other->pool == pool && other->small == open->small ? other : NULL;
}

lvni_tensor_piece *lvni_tensor_heap_search_across(const lvni_tensor_heap *h, int number, bool small,
                                                  size_t bytes)
{
    const lvni_tensor_pool *pool = &h->pool[LVNI_POOL_OPEN][small];
    lvni_tensor_piece *best = NULL;
    size_t least = 0;
    for (int k = next_filled(pool, 0); k < LVNI_SIZE_CLASSES; k = next_filled(pool, k + 1)) {
        for (lvni_tensor_piece *at = pool->bin[k]; at != NULL; at = at->next) {
            const lvni_tensor_piece *low = beside(at, number, false);
            const size_t both = low == NULL || low->bytes >= bytes ? 0 : low->bytes + at->bytes;
            if (both >= bytes &&
                (best == NULL || both < least || (both == least && at->p < best->p))) {
                best = at;
                least = both;
            }
        }
    }
    return best;
}

size_t lvni_tensor_heap_largest(const lvni_tensor_heap *h)
{
    size_t most = 0;
    for (int i = 0; i < 2 * LVNI_POOLS; i++) {
        const lvni_tensor_pool *pool = &h->pool[i / 2][i % 2];
        for (int k = next_filled(pool, 0); k < LVNI_SIZE_CLASSES; k = next_filled(pool, k + 1)) {
            for (const lvni_tensor_piece *at = pool->bin[k]; at != NULL; at = at->next) {
                most = at->bytes > most ? at->bytes : most;
            }
        }
    }
    return most;
}

/* ---- blocks ---- */

lvni_tensor_piece *lvni_tensor_heap_cut(lvni_tensor_heap *h, lvni_tensor_piece *piece, size_t bytes,
                                        bool high)
{
    const int pool = piece->pool;
    lvni_tensor_piece *block = piece;
    leave_pool(h, piece);
    if (piece->bytes > bytes) {
        lvni_tensor_piece *above = split(h, piece, high ? piece->bytes - bytes : bytes);
        block = high ? above : piece;
        enter_pool(h, high ? piece : above, pool);
    }
    lvni_tensor_piece **list = &h->used[place_of(block->p, h->used_log)];
    block->next = *list;
    *list = block;
    h->n_used++;
    return block;
}

lvni_tensor_piece *lvni_tensor_heap_cut_across(lvni_tensor_heap *h, lvni_tensor_piece *open,
                                               int pool, size_t bytes, bool high)
{
    lvni_tensor_piece *other = beside(open, pool, high);
    if (other != NULL && other->bytes < bytes) {
        leave_pool(h, open);
        leave_pool(h, other);
        absorb(h, high ? open : other, high ? other : open);
        open = high ? open : other;
        enter_pool(h, open, LVNI_POOL_OPEN);
    }
    return lvni_tensor_heap_cut(h, open, bytes, high);
}

void lvni_tensor_heap_cut_for_small(lvni_tensor_heap *h, lvni_tensor_piece *piece, size_t bytes,
                                    int pool)
{
    const int before = piece->pool;
    leave_pool(h, piece);
    lvni_tensor_piece *high = piece->bytes > bytes ? split(h, piece, piece->bytes - bytes) : piece;
    if (high != piece) {
        enter_pool(h, piece, before);
    }
    high->small = true;
    put(h, high, pool);
}

lvni_tensor_piece *lvni_tensor_heap_find(lvni_tensor_heap *h, const void *p)
{
    lvni_tensor_piece **at = &h->used[place_of(p, h->used_log)];
    while ((*at)->p != p) {
        at = &(*at)->next;
    }
    lvni_tensor_piece *piece = *at;
    *at = piece->next;
    h->n_used--;
    return piece;
}

void lvni_tensor_heap_give(lvni_tensor_heap *h, lvni_tensor_piece *piece, int pool)
{
    put(h, piece, pool);
}

void lvni_tensor_heap_move(lvni_tensor_heap *h, int from, int to)
{
    for (int small = 0; small < 2; small++) {
        const lvni_tensor_pool *pool = &h->pool[from][small];
        for (int k = next_filled(pool, 0); k < LVNI_SIZE_CLASSES; k = next_filled(pool, k)) {
            lvni_tensor_piece *piece = pool->bin[k];
            leave_pool(h, piece);
            put(h, piece, to);
        }
    }
}
