/* Streams, events, and what becomes of errors. Streams of levin of one kind share one of CUDA's,
 * which gives the order over all of them. */
#include "device.cuh"

#include <stdlib.h>

/* ---- errors ---- */

static cudaStream_t enter(const lvnc_stream *s)
{
    (void)cudaSetDevice(s->device->index);
    return s->device->stream[s->kind];
}

cudaStream_t lvnc_enter(const void *stream)
{
    lvnc_stream *s = static_cast<lvnc_stream *>(const_cast<void *>(stream));
    __atomic_store_n(&s->newest,
                     __atomic_add_fetch(&s->device->submitted[s->kind], 1, __ATOMIC_SEQ_CST),
                     __ATOMIC_SEQ_CST);
    return enter(s);
}

void *lvnc_native_stream(void *stream)
{
    return lvnc_enter(stream);
}

/* CUDA has given the device up for this process; the command that it was in is not known, the last
 * one that was submitted is. */
static lvn_status break_down(lvnc_device *d, lvn_stream_kind kind, cudaError_t e)
{
    (void)cudaGetLastError();
    pthread_mutex_lock(&d->lock);
    if (!d->broken) {
        lvn_error_set(LVN_ERR_RESOURCE, __FILE__, __LINE__,
                      LVNC_NAME ":%d: %s (%s) at or before %s; the device cannot be used any "
                                "more by this process",
                      d->index, cudaGetErrorString(e), cudaGetErrorName(e),
                      d->last[kind] == NULL ? "the first command" : d->last[kind]);
        d->error = *lvn_last_error();
        __atomic_store_n(&d->broken, true, __ATOMIC_RELEASE);
        d->fault->device = d->index; /* for other devices, which follow its events */
        *const_cast<volatile int *>(&d->fault->code) = LVNC_FAULT_LOST;
    }
    const lvn_error error = d->error;
    pthread_mutex_unlock(&d->lock);
    return lvn_error_adopt(&error);
}

/* After these nothing runs on the device again in this process. */
static bool is_lost(cudaError_t e)
{
    switch (e) {
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
#ifndef LEVIN_CUDA_ON_HOST
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
#endif
        return true;
    default: return false;
    }
}

bool lvnc_is_lost(const void *stream)
{
    return __atomic_load_n(&lvnc_device_of(stream)->broken, __ATOMIC_ACQUIRE);
}

lvn_status lvnc_submitted(const void *stream, const char *what, cudaError_t e)
{
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    lvnc_device *d = s->device;
    __atomic_store_n(&d->last[s->kind], what, __ATOMIC_RELAXED);
    if (e == cudaSuccess) {
        return LVN_OK;
    }
    if (!is_lost(e)) { /* of this launch alone */
        (void)cudaGetLastError();
        LVN_FAIL(e == cudaErrorMemoryAllocation ? LVN_ERR_DEVICE_MEMORY : LVN_ERR_INTERNAL,
                 LVNC_NAME ":%d: %s was not taken: %s (%s)", d->index, what, cudaGetErrorString(e),
                 cudaGetErrorName(e));
    }
#ifndef LEVIN_CUDA_ON_HOST
    if (e >= cudaErrorStreamCaptureUnsupported && e <= cudaErrorCapturedEvent) {
        (void)cudaGetLastError(); /* of the capture, whose end has it, too: the step is submitted */
        LVN_FAIL(LVN_ERR_UNSUPPORTED, LVNC_NAME ":%d: %s cannot be captured: %s (%s)", d->index,
                 what, cudaGetErrorString(e), cudaGetErrorName(e));
    }
#endif
    (void)break_down(d, s->kind, e);
    return LVN_OK; /* the stream's: the wait returns it */
}

enum { OPS = 512 };
static const char *op_name[OPS];

lvnc_alarm lvnc_alarm_of(const lvn_kernel_args *args)
{
    lvnc_device *d = lvnc_device_of(args->stream);
    const int op = args->op->number;
    if (op >= 0 && op < OPS) {
        __atomic_store_n(&op_name[op], args->op->name, __ATOMIC_RELAXED);
    }
    lvnc_alarm alarm;
    alarm.raised = d->raised;
    alarm.details = d->fault;
    alarm.op = op;
    alarm.device = d->index;
    return alarm;
}

const int *lvnc_raised(const void *stream)
{
    return lvnc_device_of(stream)->raised;
}

static int fault_code(const lvnc_device *d)
{
    return *const_cast<volatile int *>(&d->fault->code);
}

static lvn_status report_fault(const lvnc_device *d)
{
    const lvnc_fault f = *d->fault;
    const char *op = f.op >= 0 && f.op < OPS && op_name[f.op] != NULL ? op_name[f.op] : "an op";
    const long long value = (long long)f.value, limit = (long long)f.limit,
                    place = (long long)f.place;
    switch (f.code) {
    case LVNC_FAULT_LOST:
        LVN_FAIL(LVN_ERR_RESOURCE,
                 LVNC_NAME ":%d: the device is lost, and work of " LVNC_NAME ":%d depends on it",
                 f.device, d->index);
    case LVNC_FAULT_LABEL:
        LVN_FAIL(LVN_ERR_INVALID,
                 LVNC_NAME ":%d: %s: the label of row %lld is %lld, but there are %lld classes (0 "
                           "to %lld)",
                 f.device, op, place, value, limit, limit - 1);
    default:
        LVN_FAIL(LVN_ERR_INVALID, LVNC_NAME ":%d: %s: index %lld is %lld, outside of 0 to %lld",
                 f.device, op, place, value, limit - 1);
    }
}

/* What a kernel raises counts for all that may have run after it: everything that was submitted
 * behind what is known to be fine. */
static bool counts_fault(const lvnc_stream *s)
{
    return fault_code(s->device) != LVNC_FINE &&
           __atomic_load_n(&s->newest, __ATOMIC_SEQ_CST) >
               __atomic_load_n(&s->device->fine[s->kind], __ATOMIC_SEQ_CST) &&
           (s->kind == LVN_STREAM_COMPUTE ||
            __atomic_load_n(&s->device->copies_follow, __ATOMIC_ACQUIRE));
}

/* The submissions up to `number` have run. */
static void note_fine(lvnc_device *d, lvn_stream_kind kind, uint64_t number)
{
    uint64_t before = __atomic_load_n(&d->fine[kind], __ATOMIC_SEQ_CST);
    while (fault_code(d) == LVNC_FINE && before < number &&
           !__atomic_compare_exchange_n(&d->fine[kind], &before, number, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
}

/* ---- streams ---- */

lvn_status lvnc_stream_create(void *device, lvn_stream_kind kind, void **out)
{
    lvnc_device *d = static_cast<lvnc_device *>(device);
    lvnc_stream *s = static_cast<lvnc_stream *>(calloc(1, sizeof *s));
    if (s == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, LVNC_NAME ":%d: no memory for a stream", d->index);
    }
    s->device = d;
    s->kind = kind;
    pthread_mutex_lock(&d->lock);
    s->next = d->streams;
    d->streams = s;
    pthread_mutex_unlock(&d->lock);
    *out = s;
    return LVN_OK;
}

void lvnc_stream_destroy(void *stream)
{
    lvnc_stream *s = static_cast<lvnc_stream *>(stream);
    lvnc_device *d = s->device;
    if (cudaStreamSynchronize(enter(s)) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    pthread_mutex_lock(&d->lock);
    lvnc_stream **at = &d->streams;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    pthread_mutex_unlock(&d->lock);
    free(s);
}

static void count_wait(lvnc_device *d, lvn_stream_kind kind, uint64_t number)
{
    if (number == __atomic_load_n(&d->submitted[kind], __ATOMIC_SEQ_CST)) {
        __atomic_add_fetch(&d->drained[kind], 1, __ATOMIC_RELAXED);
    }
}

lvn_status lvnc_stream_wait(void *stream)
{
    lvnc_stream *s = static_cast<lvnc_stream *>(stream);
    const uint64_t newest = __atomic_load_n(&s->newest, __ATOMIC_SEQ_CST);
    if (__atomic_exchange_n(&s->waited, newest, __ATOMIC_RELAXED) != newest) {
        count_wait(s->device, s->kind, newest);
    }
    lvnc_device *d = s->device;
    const uint64_t submitted = __atomic_load_n(&d->submitted[s->kind], __ATOMIC_SEQ_CST);
    const cudaError_t e = cudaStreamSynchronize(enter(s));
    if (e != cudaSuccess || __atomic_load_n(&d->broken, __ATOMIC_ACQUIRE)) {
        return break_down(d, s->kind, e);
    }
    if (__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) {
        return lvn_error_adopt(&s->error);
    }
    if (counts_fault(s)) {
        return report_fault(d);
    }
    note_fine(d, s->kind, submitted);
    return LVN_OK;
}

bool lvnc_stream_failed(void *stream)
{
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    return __atomic_load_n(&s->device->broken, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(&s->failed, __ATOMIC_ACQUIRE) || counts_fault(s);
}

/* The device forgets what was raised; its other streams keep it, as far as they may have left
 * something out. */
static void hand_on(lvnc_device *d, const lvnc_stream *cleared, const lvn_error *error)
{
    for (lvnc_stream *s = d->streams; s != NULL; s = s->next) {
        if (s != cleared && !s->failed && counts_fault(s)) {
            s->error = *error;
            __atomic_store_n(&s->failed, true, __ATOMIC_RELEASE);
        }
    }
}

/* What a kernel raises meanwhile is found again: the details go first. */
static void forget_fault(lvnc_device *d, const lvnc_stream *cleared)
{
    uint64_t submitted[LVN_STREAM_KINDS];
    (void)report_fault(d);
    hand_on(d, cleared, lvn_last_error());
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        submitted[k] = __atomic_load_n(&d->submitted[k], __ATOMIC_SEQ_CST);
    }
    *d->fault = lvnc_fault();
    if (cudaMemsetAsync(d->raised, 0, sizeof(int), d->stream[LVN_STREAM_COMPUTE]) != cudaSuccess ||
        cudaStreamSynchronize(d->stream[LVN_STREAM_COMPUTE]) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        note_fine(d, (lvn_stream_kind)k, submitted[k]);
    }
    __atomic_store_n(&d->copies_follow, false, __ATOMIC_RELEASE);
}

void lvnc_stream_clear(void *stream)
{
    lvnc_stream *s = static_cast<lvnc_stream *>(stream);
    lvnc_device *d = s->device;
    const lvn_error error = *lvn_last_error();
    pthread_mutex_lock(&d->lock);
    __atomic_store_n(&s->failed, false, __ATOMIC_RELEASE);
    if (counts_fault(s) && !d->broken) {
        (void)enter(s);
        forget_fault(d, s);
    }
    pthread_mutex_unlock(&d->lock);
    (void)lvn_error_adopt(&error);
}

/* ---- events ---- */

struct lvnc_event {
    lvnc_device *device;
    cudaEvent_t event;
    lvn_stream_kind kind; /* of the stream that recorded it */
    uint64_t number;      /* of its submission, and of the last one that the host waited for */
    uint64_t waited;
    bool recorded;
};

#ifndef LEVIN_CUDA_ON_HOST
/* What is captured takes events as they are then (levin/backend.h): as nodes of the graph. */
static bool is_captured(cudaStream_t s)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(s, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusActive;
}
#endif

lvn_status lvnc_event_create(void *device, void **out)
{
    lvnc_device *d = static_cast<lvnc_device *>(device);
    lvnc_event *e = static_cast<lvnc_event *>(calloc(1, sizeof *e));
    if (e == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, LVNC_NAME ":%d: no memory for an event", d->index);
    }
    e->device = d;
    (void)cudaSetDevice(d->index);
    const cudaError_t error =
        cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming | cudaEventBlockingSync);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        free(e);
        LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ":%d: no event: %s (%s)", d->index,
                 cudaGetErrorString(error), cudaGetErrorName(error));
    }
    *out = e;
    return LVN_OK;
}

void lvnc_event_destroy(void *event)
{
    lvnc_event *e = static_cast<lvnc_event *>(event);
    (void)cudaSetDevice(e->device->index);
    (void)cudaEventDestroy(e->event);
    free(e);
}

lvn_status lvnc_event_record(void *event, void *stream)
{
    lvnc_event *e = static_cast<lvnc_event *>(event);
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    cudaStream_t on = lvnc_enter(stream);
    e->kind = s->kind;
    e->number = s->newest;
    __atomic_store_n(&e->recorded, true, __ATOMIC_RELEASE);
#ifndef LEVIN_CUDA_ON_HOST
    if (is_captured(on)) {
        return lvnc_submitted(stream, "an event",
                              cudaEventRecordWithFlags(e->event, on, cudaEventRecordExternal));
    }
#endif
    return lvnc_submitted(stream, "an event", cudaEventRecord(e->event, on));
}

/* What another device raised before the event is raised here, too. */
static __global__ void pass_on(const lvnc_fault *from, int *raised, lvnc_fault *to)
{
    const int code = *const_cast<const volatile int *>(&from->code);
    if (code != LVNC_FINE && atomicCAS(raised, 0, 1) == 0) {
        __threadfence_system();
        to->op = from->op;
        to->device = from->device;
        to->value = from->value;
        to->limit = from->limit;
        to->place = from->place;
        __threadfence_system();
        *const_cast<volatile int *>(&to->code) = code;
    }
}

/* Whether kernels can have raised something in front of it. */
static bool is_behind_kernels(const lvnc_event *e)
{
    return e->kind == LVN_STREAM_COMPUTE ||
           __atomic_load_n(&e->device->copies_follow, __ATOMIC_ACQUIRE);
}

lvn_status lvnc_event_follow(void *stream, void *event)
{
    const lvnc_event *e = static_cast<const lvnc_event *>(event);
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    lvnc_device *d = s->device;
    const bool elsewhere = e->device != d,
               lost = __atomic_load_n(&e->device->broken, __ATOMIC_ACQUIRE);
    if (!__atomic_load_n(&e->recorded, __ATOMIC_ACQUIRE)) {
        return LVN_OK;
    }
    if (s->kind == LVN_STREAM_COPY && (elsewhere || e->kind == LVN_STREAM_COMPUTE)) {
        __atomic_store_n(&d->copies_follow, true, __ATOMIC_RELEASE);
    }
    cudaStream_t on = lvnc_enter(stream);
    unsigned flags = 0;
#ifndef LEVIN_CUDA_ON_HOST
    flags = is_captured(on) ? cudaEventWaitExternal : 0;
#endif
    LVN_TRY(
        lvnc_submitted(stream, "a wait for an event",
                       elsewhere && lost ? cudaSuccess : cudaStreamWaitEvent(on, e->event, flags)));
    return elsewhere && (lost || is_behind_kernels(e))
               ? launch(stream, "an error of another device", pass_on, 1, 1, 0, e->device->fault,
                        d->raised, d->fault)
               : LVN_OK;
}

lvn_status lvnc_event_wait(void *event)
{
    lvnc_event *e = static_cast<lvnc_event *>(event);
    lvnc_device *d = e->device;
    const uint64_t number = e->number;
    if (__atomic_exchange_n(&e->waited, number, __ATOMIC_RELAXED) != number) {
        count_wait(d, e->kind, number);
    }
    (void)cudaSetDevice(d->index);
    const cudaError_t error = cudaEventSynchronize(e->event);
    if (error != cudaSuccess || __atomic_load_n(&d->broken, __ATOMIC_ACQUIRE)) {
        return break_down(d, e->kind, error);
    }
    note_fine(d, e->kind, number);
    return LVN_OK;
}
