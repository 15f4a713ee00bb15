/* Streams, events, copies, and what becomes of errors. Streams of levin of one kind share one of
 * CUDA's, which gives the order over all of them. */
#include "device.cuh"

#include <stdlib.h>

/* ---- errors ---- */

cudaStream_t lvnc_enter(const void *stream)
{
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    (void)cudaSetDevice(s->device->index);
    return s->device->stream[s->kind];
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

lvnc_alarm lvnc_alarm_of(const lvn_kernel_args *args)
{
    lvnc_device *d = lvnc_device_of(args->stream);
    const int op = args->op->number;
    if (op >= 0 && op < LVNC_OPS) {
        __atomic_store_n(&d->op_name[op], args->op->name, __ATOMIC_RELAXED);
    }
    lvnc_alarm alarm;
    alarm.raised = d->raised;
    alarm.details = d->fault;
    alarm.op = op;
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
    const char *op =
        f.op >= 0 && f.op < LVNC_OPS && d->op_name[f.op] != NULL ? d->op_name[f.op] : "an op";
    const long long value = (long long)f.value, limit = (long long)f.limit,
                    place = (long long)f.place;
    if (f.code == LVNC_FAULT_LABEL) {
        LVN_FAIL(LVN_ERR_INVALID,
                 LVNC_NAME ":%d: %s: the label of row %lld is %lld, but there are %lld classes (0 "
                           "to %lld)",
                 d->index, op, place, value, limit, limit - 1);
    }
    LVN_FAIL(LVN_ERR_INVALID, LVNC_NAME ":%d: %s: index %lld is %lld, outside of 0 to %lld",
             d->index, op, place, value, limit - 1);
}

static bool counts_fault(const lvnc_stream *s)
{
    return fault_code(s->device) != LVNC_FINE &&
           (s->kind == LVN_STREAM_COMPUTE ||
            __atomic_load_n(&s->device->copies_follow, __ATOMIC_ACQUIRE));
}

/* ---- streams ---- */

lvn_status lvnc_stream_create(void *device, lvn_stream_kind kind, void **out)
{
    lvnc_stream *s = static_cast<lvnc_stream *>(calloc(1, sizeof *s));
    if (s == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, LVNC_NAME ": no memory for a stream");
    }
    s->device = static_cast<lvnc_device *>(device);
    s->kind = kind;
    *out = s;
    return LVN_OK;
}

void lvnc_stream_destroy(void *stream)
{
    if (cudaStreamSynchronize(lvnc_enter(stream)) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    free(stream);
}

lvn_status lvnc_stream_wait(void *stream)
{
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    const cudaError_t e = cudaStreamSynchronize(lvnc_enter(stream));
    if (e != cudaSuccess || __atomic_load_n(&s->device->broken, __ATOMIC_ACQUIRE)) {
        return break_down(s->device, s->kind, e);
    }
    return counts_fault(s) ? report_fault(s->device) : LVN_OK;
}

bool lvnc_stream_failed(void *stream)
{
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    return __atomic_load_n(&s->device->broken, __ATOMIC_ACQUIRE) || counts_fault(s);
}

/* The first stream of a device that is cleared forgets it for all: they were all waited for. What a
 * kernel raises meanwhile is found again: the details go first. */
void lvnc_stream_clear(void *stream)
{
    lvnc_device *d = lvnc_device_of(stream);
    cudaStream_t s = lvnc_enter(stream);
    pthread_mutex_lock(&d->lock);
    if (fault_code(d) != LVNC_FINE) {
        *d->fault = lvnc_fault();
        if (cudaMemsetAsync(d->raised, 0, sizeof(int), s) != cudaSuccess ||
            cudaStreamSynchronize(s) != cudaSuccess) {
            (void)cudaGetLastError();
        }
    }
    pthread_mutex_unlock(&d->lock);
    __atomic_store_n(&d->copies_follow, false, __ATOMIC_RELEASE);
}

/* ---- events ---- */

struct lvnc_event {
    lvnc_device *device;
    cudaEvent_t event;
    lvn_stream_kind kind; /* of the stream that recorded it */
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
    const cudaError_t error = cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming);
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
    __atomic_store_n(&e->recorded, true, __ATOMIC_RELEASE);
#ifndef LEVIN_CUDA_ON_HOST
    if (is_captured(on)) {
        return lvnc_submitted(stream, "an event",
                              cudaEventRecordWithFlags(e->event, on, cudaEventRecordExternal));
    }
#endif
    return lvnc_submitted(stream, "an event", cudaEventRecord(e->event, on));
}

lvn_status lvnc_event_follow(void *stream, void *event)
{
    const lvnc_event *e = static_cast<const lvnc_event *>(event);
    const lvnc_stream *s = static_cast<const lvnc_stream *>(stream);
    if (!__atomic_load_n(&e->recorded, __ATOMIC_ACQUIRE)) {
        return LVN_OK;
    }
    if (e->device == s->device && e->kind == LVN_STREAM_COMPUTE && s->kind == LVN_STREAM_COPY) {
        __atomic_store_n(&s->device->copies_follow, true, __ATOMIC_RELEASE);
    }
    cudaStream_t on = lvnc_enter(stream);
    unsigned flags = 0;
#ifndef LEVIN_CUDA_ON_HOST
    flags = is_captured(on) ? cudaEventWaitExternal : 0;
#endif
    return lvnc_submitted(stream, "a wait for an event", cudaStreamWaitEvent(on, e->event, flags));
}

lvn_status lvnc_event_wait(void *event)
{
    const lvnc_event *e = static_cast<const lvnc_event *>(event);
    (void)cudaSetDevice(e->device->index);
    const cudaError_t error = cudaEventSynchronize(e->event);
    return error == cudaSuccess && !__atomic_load_n(&e->device->broken, __ATOMIC_ACQUIRE)
               ? LVN_OK
               : break_down(e->device, e->kind, error);
}

/* ---- copies ---- */

lvn_status lvnc_copy(void *stream, void *to, const void *from, size_t bytes)
{
    cudaStream_t s = lvnc_enter(stream);
    return bytes == 0 || lvnc_is_lost(stream)
               ? LVN_OK
               : lvnc_submitted(stream, "a copy",
                                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s));
}

lvn_status lvnc_zero(void *stream, void *p, size_t bytes)
{
    cudaStream_t s = lvnc_enter(stream);
    return bytes == 0 || lvnc_is_lost(stream)
               ? LVN_OK
               : lvnc_submitted(stream, "zeros", cudaMemsetAsync(p, 0, bytes, s));
}

/* The bytes travel as an argument of the kernel. */
struct lvnc_chunk {
    unsigned char byte[LVN_UPLOAD];
};

static __global__ void upload(unsigned char *to, lvnc_chunk from, int bytes)
{
    for (int i = (int)threadIdx.x; i < bytes; i += (int)blockDim.x) {
        to[i] = from.byte[i];
    }
}

lvn_status lvnc_upload(void *stream, void *to, const void *from, size_t bytes)
{
    LVN_ARG(bytes <= LVN_UPLOAD, LVNC_NAME ": an upload of %zu bytes, of at most %d", bytes,
            (int)LVN_UPLOAD);
    lvnc_chunk chunk;
    __builtin_memcpy(chunk.byte, from, bytes);
    return launch(stream, "an upload", upload, bytes == 0 ? 0 : 1, 256, 0,
                  static_cast<unsigned char *>(to), chunk, (int)bytes);
}

#ifndef LEVIN_CUDA_ON_HOST

/* ---- captured work ---- */

lvn_status lvnc_capture_begin(void *stream)
{
    cudaStream_t s = lvnc_enter(stream);
    return lvnc_submitted(stream, "the start of a capture",
                          cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
}

lvn_status lvnc_capture_end(void *stream, void **out)
{
    cudaStream_t s = lvnc_enter(stream);
    const lvnc_device *d = lvnc_device_of(stream);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    cudaError_t e = cudaStreamEndCapture(s, &graph);
    if (e == cudaSuccess) {
        e = cudaGraphInstantiate(&executable, graph, 0);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 LVNC_NAME ":%d: the work up to %s cannot be captured: %s (%s)", d->index,
                 d->last[LVN_STREAM_COMPUTE], cudaGetErrorString(e), cudaGetErrorName(e));
    }
    *out = executable;
    return LVN_OK;
}

lvn_status lvnc_graph_replay(void *graph, void *stream)
{
    cudaStream_t s = lvnc_enter(stream);
    return lvnc_submitted(stream, "a captured step",
                          cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), s));
}

void lvnc_graph_destroy(void *graph)
{
    (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

#endif
