/* A device's addresses in pieces, for its allocator (device_alloc.c) alone: which are free, of what
 * size, and what lies beside them. Described in host memory; nothing here knows streams or
 * backends, and nothing depends on time.
 *
 * Free pieces are in pools: what may be used at once by the streams of one kind, or by captured
 * work, or by all. Two pieces side by side in one pool become one. Small blocks lie apart from
 * large ones, so that none of them keeps large holes apart for as long as it lives. */
#ifndef LEVIN_TENSOR_DEVICE_HEAP_H
#define LEVIN_TENSOR_DEVICE_HEAP_H

#include "tensor/ctx.h"

#include <levin/backend.h>

/* The pools; in front of them one for each kind of stream. */
enum {
    LVNI_POOL_OPEN = LVN_STREAM_KINDS, /* no stream uses it any more */
    LVNI_POOL_CAPTURED,                /* of captured work */
    LVNI_POOLS,
    LVNI_POOL_NONE = -1 /* in use */
};

typedef struct lvni_tensor_piece {
    struct lvni_tensor_piece *below, *above; /* beside it; NULL: its segment ends there */
    struct lvni_tensor_piece *next, *before; /* in its bin; next: in use, by address */
    char *p;
    size_t bytes;
    int16_t pool, bin;
    int16_t size_class; /* in use, on a dry device: of what was asked for, or -1 */
    bool small;         /* where small blocks lie */
    uint32_t capture;   /* in use: taken while this one was made (device_capture.c) */
    void *on_host;      /* in use, large, on a dry device: where it would lie in host memory */
} lvni_tensor_piece;

enum { LVNI_BIN_WORDS = (LVNI_SIZE_CLASSES + 63) / 64 };
typedef struct lvni_tensor_pool {
    lvni_tensor_piece *bin[LVNI_SIZE_CLASSES]; /* by the largest size class that it has room for */
    uint64_t filled[LVNI_BIN_WORDS];
} lvni_tensor_pool;

typedef struct lvni_tensor_heap {
    lvni_tensor_pool pool[LVNI_POOLS][2]; /* large, small */
    lvni_tensor_piece **used;             /* by address; 2^used_log lists */
    int used_log;
    int64_t n_used;
    lvni_tensor_piece *spare; /* descriptions without a piece */
    struct lvni_tensor_pieces *all;
} lvni_tensor_heap;

lvni_tensor_heap *lvni_tensor_heap_create(void);
void lvni_tensor_heap_destroy(lvni_tensor_heap *heap); /* NULL is fine */
/* Room to describe what one call of the allocator cuts. LVN_ERR_MEMORY. */
lvn_status lvni_tensor_heap_reserve(lvni_tensor_heap *heap);
/* A segment, in LVNI_POOL_OPEN. Its lowest piece stays the one that is returned. */
lvni_tensor_piece *lvni_tensor_heap_add(lvni_tensor_heap *heap, char *p, size_t bytes);
/* A segment without a block in use leaves. */
void lvni_tensor_heap_remove(lvni_tensor_heap *heap, lvni_tensor_piece *piece);

/* The smallest free piece with room for `bytes`, of equal ones the lowest; NULL: there is none. */
lvni_tensor_piece *lvni_tensor_heap_search(const lvni_tensor_heap *heap, int pool, bool small,
                                           size_t bytes);
/* The highest one. */
lvni_tensor_piece *lvni_tensor_heap_search_high(const lvni_tensor_heap *heap, int pool, bool small,
                                                size_t bytes);
/* `bytes` from its low or its high end, in use. */
lvni_tensor_piece *lvni_tensor_heap_cut(lvni_tensor_heap *heap, lvni_tensor_piece *piece,
                                        size_t bytes, bool high);
/* The same from an open piece and the free piece of `pool` at that end of it, when there is one
 * that is smaller than `bytes`: all of that one, and as much of the open piece as is missing. */
lvni_tensor_piece *lvni_tensor_heap_cut_across(lvni_tensor_heap *heap, lvni_tensor_piece *open,
                                               int pool, size_t bytes, bool high);
/* The open piece from which, with the piece of `pool` below it, `bytes` can be cut so, when neither
 * is large enough: the smallest such pair, of equal ones the lowest. NULL: there is none. */
lvni_tensor_piece *lvni_tensor_heap_search_across(const lvni_tensor_heap *heap, int pool,
                                                  bool small, size_t bytes);
/* `bytes` from its high end become a free piece of `pool` where small blocks lie. */
void lvni_tensor_heap_cut_for_small(lvni_tensor_heap *heap, lvni_tensor_piece *piece, size_t bytes,
                                    int pool);
/* The block in use at p; taken out of the table. */
lvni_tensor_piece *lvni_tensor_heap_find(lvni_tensor_heap *heap, const void *p);
/* Free from here on. */
void lvni_tensor_heap_give(lvni_tensor_heap *heap, lvni_tensor_piece *piece, int pool);
/* All free pieces of a pool go to another; small ones beside large ones become large in
 * LVNI_POOL_OPEN. */
void lvni_tensor_heap_move(lvni_tensor_heap *heap, int from, int to);
/* The largest free piece. */
size_t lvni_tensor_heap_largest(const lvni_tensor_heap *heap);

#endif
