/* Batches on their way to the device (prefetch.h): a ring in the order of copies. A place holds a
 * batch of the loader until its next use, which first waits for the copy: by then it ran long ago,
 * unless the host is several waves ahead of the device. */
#include "trainer/prefetch.h"

#include "core/alloc.h"
#include "core/error.h"
#include "trainer/micro_batch.h"

typedef struct place {
    const lvni_data_loader_batch *held; /* NULL: none */
    lvni_data_loader_batch on_device;   /* its fields on the device */
    lvni_tensor_copies *copies;
    lvni_trainer_batch_room room; /* of a batch that is not begun */
    bool release;                 /* nothing needs the loader's batch once it is copied */
} place;

struct lvni_trainer_prefetch {
    lvni_tensor_device *device;
    lvni_data_loader *loader; /* of the batches here */
    place *ring;
    int n;
    /* copies ever begun, asked for, and done with: begun >= taken >= done */
    int64_t begun, taken, done;
};

lvn_status lvni_trainer_prefetch_create(lvni_tensor_device *device, int places,
                                        lvni_trainer_prefetch **out)
{
    *out = NULL;
    lvni_trainer_prefetch *f = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_prefetch);
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->device = device;
    f->ring = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)places, sizeof *f->ring);
    lvn_status s;
    LVNI_TRY_DONE(s, f->ring == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (; f->n < places; f->n++) {
        LVNI_TRY_DONE(s, lvni_tensor_copies_create(device, &f->ring[f->n].copies));
    }
    *out = f;
    return LVN_OK;
done:
    lvni_trainer_prefetch_destroy(f);
    return s;
}

void lvni_trainer_prefetch_destroy(lvni_trainer_prefetch *f)
{
    if (f == NULL) {
        return;
    }
    lvni_trainer_prefetch_drop(f);
    for (int i = 0; i < f->n; i++) {
        lvni_tensor_copies_destroy(f->ring[i].copies);
    }
    lvni_core_free(f->ring);
    lvni_core_free(f);
}

/* The error of a copy stays with the device, for the step to find. */
static void clear(lvni_trainer_prefetch *f, place *p)
{
    if (p->held != NULL && p->held->batch.size > 0) {
        (void)lvni_tensor_copies_wait(p->copies);
    }
    if (p->release) {
        lvni_data_loader_release(f->loader, p->held);
    }
    p->held = NULL;
    p->release = false;
}

void lvni_trainer_prefetch_drop(lvni_trainer_prefetch *f)
{
    for (; f->done < f->begun; f->done++) {
        place *p = &f->ring[f->done % f->n];
        lvni_trainer_device_batch_free(&p->on_device);
        p->release = true;
    }
    f->taken = f->begun;
    for (int i = 0; i < f->n; i++) {
        lvni_trainer_batch_room_free(&f->ring[i].room);
        clear(f, &f->ring[i]);
    }
    f->loader = NULL;
}

static lvn_status begin(lvni_trainer_prefetch *f, const lvni_data_loader_batch *held)
{
    place *p = &f->ring[f->begun % f->n];
    if (f->begun - f->done >= f->n) {
        LVN_FAIL(LVN_ERR_INTERNAL, "more than %d batches are on their way to the device", f->n);
    }
    clear(f, p);
    p->held = held;
    f->begun++; /* also half a batch is dropped */
    return lvni_trainer_device_batch_begin(held, p->copies, &p->room, &p->on_device);
}

lvn_status lvni_trainer_prefetch_next(lvni_trainer_prefetch *f, lvni_data_loader *loader,
                                      const lvni_data_loader_batch **held,
                                      const lvni_data_loader_batch **on_device)
{
    if (f->loader != loader) {
        lvni_trainer_prefetch_drop(f);
        f->loader = loader;
    }
    if (f->taken == f->begun) {
        LVN_TRY(*held == NULL ? lvni_data_loader_next(loader, held) : LVN_OK);
        LVN_TRY(*held == NULL ? LVN_OK : begin(f, *held));
    }
    if (f->taken < f->begun) {
        place *p = &f->ring[f->taken++ % f->n];
        *held = p->held;
        *on_device = &p->on_device;
        LVN_TRY(p->held->batch.size > 0 ? lvni_tensor_copies_follow(p->copies) : LVN_OK);
    }
    return LVN_OK;
}

lvn_status lvni_trainer_prefetch_ahead(lvni_trainer_prefetch *f, const lvni_data_loader_batch *held,
                                       bool *begun)
{
    held = held == NULL ? lvni_data_loader_try_next(f->loader) : held;
    *begun = held != NULL;
    return held == NULL ? LVN_OK : begin(f, held);
}

lvn_status lvni_trainer_prefetch_reserve(lvni_trainer_prefetch *f, int n)
{
    lvni_data_loader_shape shape;
    for (int i = 0; i < n && lvni_data_loader_upcoming(f->loader, i, &shape); i++) {
        place *p = &f->ring[(f->begun + i) % f->n];
        if (f->begun + i - f->done >= f->n) {
            return LVN_OK; /* its batch cannot be begun yet, either */
        }
        clear(f, p);
        lvni_trainer_batch_room_free(&p->room);
        LVN_TRY(lvni_trainer_batch_room_make(&shape, f->device, &p->room));
    }
    return LVN_OK;
}

void lvni_trainer_prefetch_done(lvni_trainer_prefetch *f, int n, bool release)
{
    for (int i = 0; i < n; i++, f->done++) {
        place *p = &f->ring[f->done % f->n];
        lvni_trainer_device_batch_free(&p->on_device);
        p->release = release;
    }
}
