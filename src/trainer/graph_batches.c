/* Batches of captured steps: each is copied from where the feed put it to the tensors that the
 * captured step reads. One of another shape stays where it is, and the step is submitted. */
#include "trainer/graph_impl.h"
#include "trainer/profile.h"

#include <string.h>

static int n_batches(const lvni_data_loader_batch *b)
{
    return 1 + (b->batch.streams != NULL ? b->streams.n : 0);
}

/* Batch i of the micro-batch: its own, then those of streams. */
static const lvn_batch *batch_at(const lvni_data_loader_batch *b, int i)
{
    return i == 0 ? &b->batch : &b->streams.batch[i - 1];
}

static lvn_batch *own_batch_at(lvni_data_loader_batch *b, int i)
{
    return i == 0 ? &b->batch : &b->streams.batch[i - 1];
}

/* `to` has the fields of `fields`, and is `from` otherwise. */
static void set_fields(lvni_data_loader_batch *to, const lvni_data_loader_batch *from,
                       const lvni_data_loader_batch *fields)
{
    *to = *from;
    to->batch.streams = from->batch.streams == NULL ? NULL : &to->streams;
    for (int i = 0; i < n_batches(from); i++) {
        lvn_batch *b = own_batch_at(to, i);
        memcpy(b->field, batch_at(fields, i)->field, sizeof b->field);
        b->image = b->n_fields > 0 ? b->field[0] : NULL;
        b->label = b->n_fields > 1 ? b->field[1] : NULL;
    }
}

static bool same_shapes(const lvni_data_loader_batch *a, const lvni_data_loader_batch *b)
{
    bool same = a->batch.size > 0 && n_batches(a) == n_batches(b);
    for (int i = 0; same && i < n_batches(a); i++) {
        const lvn_batch *of_a = batch_at(a, i), *of_b = batch_at(b, i);
        same = of_a->size == of_b->size && of_a->n_fields == of_b->n_fields;
        for (int k = 0; same && k < of_a->n_fields; k++) {
            same = of_a->field[k]->dtype == of_b->field[k]->dtype &&
                   lvni_tensor_same_shape(of_a->field[k], of_b->field[k]);
        }
    }
    return same;
}

static void release_fields(lvni_data_loader_batch *b)
{
    for (int i = 0; i < n_batches(b); i++) {
        lvn_batch *batch = own_batch_at(b, i);
        for (int k = 0; k < batch->n_fields; k++) {
            lvn_release(batch->field[k]);
            batch->field[k] = NULL;
        }
    }
}

static void drop_fixed(lvni_trainer_graph *g)
{
    for (int64_t i = 0; i < g->n; i++) {
        if (g->place[i].made) {
            release_fields(&g->place[i].fixed);
            g->place[i].made = false;
        }
    }
}

/* Tensors like those of `there`. */
static lvn_status make_fixed(lvni_trainer_graph *g, lvni_trainer_graph_place *p,
                             const lvni_data_loader_batch *on_device)
{
    p->fixed = *on_device;
    p->fixed.batch.streams = on_device->batch.streams == NULL ? NULL : &p->fixed.streams;
    p->made = true;
    for (int i = 0; i < n_batches(&p->fixed); i++) {
        lvn_batch *b = own_batch_at(&p->fixed, i);
        memset(b->field, 0, sizeof b->field);
    }
    for (int i = 0; i < n_batches(&p->fixed); i++) {
        lvn_batch *b = own_batch_at(&p->fixed, i);
        for (int k = 0; k < b->n_fields; k++) {
            const lvni_tensor_desc d = lvni_tensor_get_desc(batch_at(on_device, i)->field[k]);
            b->field[k] = lvni_tensor_new_on(&d, g->device);
            if (b->field[k] == NULL) {
                return lvn_last_error()->code;
            }
        }
    }
    return LVN_OK;
}

static lvn_status copy_fields(const lvni_data_loader_batch *to, const lvni_data_loader_batch *from)
{
    for (int i = 0; i < n_batches(from); i++) {
        const lvn_batch *a = batch_at(to, i), *b = batch_at(from, i);
        for (int k = 0; k < b->n_fields; k++) {
            const size_t bytes =
                (size_t)lvn_numel(b->field[k]) * lvn_dtype_size(b->field[k]->dtype);
            LVN_TRY(lvni_tensor_mem_copy(a->field[k]->data, b->field[k]->data, bytes));
            a->field[k]->version++; /* copies kept under (id, version) are stale */
        }
    }
    return LVN_OK;
}

/* The step keeps the feed's tensors. */
static void keep_fields(lvni_trainer_graph_place *p, const lvni_data_loader_batch *from)
{
    set_fields(&p->on_device, from, from);
    for (int i = 0; i < n_batches(from); i++) {
        const lvn_batch *b = batch_at(from, i);
        for (int k = 0; k < b->n_fields; k++) {
            (void)lvn_retain(b->field[k]);
        }
    }
    p->own = true;
}

static uint64_t bytes_of(const lvni_data_loader_batch *b)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n_batches(b); i++) {
        const lvn_batch *batch = batch_at(b, i);
        for (int k = 0; k < batch->n_fields; k++) {
            bytes += (uint64_t)lvn_numel(batch->field[k]) * lvn_dtype_size(batch->field[k]->dtype);
        }
    }
    return bytes;
}

/* A step that just fits into the memory of the device keeps it. */
static void try_fixed(lvni_trainer_engine *e, lvni_trainer_graph_place *p,
                      const lvni_data_loader_batch *on_device)
{
    lvni_trainer_graph *g = e->graph;
    const lvni_tensor_device_stats stats = lvni_tensor_device_get_stats(g->device);
    const bool fits = g->mode == LVNI_GRAPH_ON ||
                      stats.most + bytes_of(on_device) * (uint64_t)g->n < stats.limit / 10 * 9;
    if (fits && make_fixed(g, p, on_device) == LVN_OK) {
        return;
    }
    if (fits) {
        release_fields(&p->fixed);
        p->made = false;
        lvn_clear_error();
    }
    lvni_trainer_graph_give_up(e, "there is no room on the device for another set of batches");
}

/* The next batch of the feed, with what the kernels are to read in its place. */
static lvn_status load_place(lvni_trainer_engine *e, lvni_trainer_graph_place *p)
{
    lvni_trainer_graph *g = e->graph;
    const lvni_data_loader_batch *on_device = NULL;
    p->held = NULL;
    p->own = false;
    LVN_TRY(lvni_trainer_prefetch_next(e->prefetch, e->loader, &p->held, &on_device));
    if (p->held == NULL) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the loader ended before step %lld", (long long)e->now.step);
    }
    if (!g->captured && !p->made && !g->given_up && on_device->batch.size > 0) {
        try_fixed(e, p, on_device);
    }
    lvn_status s = LVN_OK;
    if (p->made && same_shapes(on_device, &p->fixed)) {
        s = copy_fields(&p->fixed, on_device);
        set_fields(&p->on_device, on_device, &p->fixed);
    } else {
        keep_fields(p, on_device);
    }
    lvni_trainer_prefetch_done(e->prefetch, 1, true);
    return s;
}

/* All batches of the step. *same: where the captured step reads them. */
lvn_status lvni_trainer_graph_load(lvni_trainer_engine *e, bool *same)
{
    lvni_trainer_graph *g = e->graph;
    lvni_dist_comm_at(e->o.comm, LVNI_PLACE_DATA, e->now.step);
    lvni_trainer_profile_at(LVNI_PART_DATA);
    *same = true;
    for (int64_t i = 0; i < g->n; i++) {
        LVN_TRY(load_place(e, &g->place[i]));
        *same = *same && !g->place[i].own;
    }
    g->loaded = true;
    return LVN_OK;
}

void lvni_trainer_graph_unload(lvni_trainer_graph *g)
{
    for (int64_t i = 0; i < g->n; i++) {
        if (g->place[i].own) {
            release_fields(&g->place[i].on_device);
            g->place[i].own = false;
        }
    }
    g->loaded = false;
    if (g->stale) {
        drop_fixed(g);
        g->stale = false;
    }
}

bool lvni_trainer_graph_loaded(const lvni_trainer_graph *g)
{
    return g != NULL && g->loaded;
}

void lvni_trainer_graph_batch(const lvni_trainer_graph *g, int64_t i,
                              const lvni_data_loader_batch **batch,
                              const lvni_data_loader_batch **on_device)
{
    *batch = g->place[i].held;
    *on_device = &g->place[i].on_device;
}
