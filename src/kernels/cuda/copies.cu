/* Copies, and steps that are captured and replayed: commands of streams that need no error of
 * their own (stream.cu). */
#include "device.cuh"

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
