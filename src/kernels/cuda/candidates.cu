/* Which of a library's algorithms is the quickest for a problem (library.cuh). */
#include "library.cuh"

#ifndef LEVIN_CUDA_ON_HOST

#include <stdio.h>

namespace
{
enum { ROUNDS = 3, MOST_TIMES = 16 };
const float ENOUGH_MS = 0.2f;    /* of a round of one candidate: an event has about 1 us */
const float ABOUT_EQUAL = 1.03f; /* what differs less is noise */
const float NEVER = 1e30f;

struct stopwatch {
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

bool make(stopwatch *w, cudaStream_t stream)
{
    w->stream = stream;
    w->begin = w->end = NULL;
    return cudaEventCreate(&w->begin) == cudaSuccess && cudaEventCreate(&w->end) == cudaSuccess;
}

void end(const stopwatch &w)
{
    const cudaEvent_t events[] = {w.begin, w.end};
    for (cudaEvent_t event : events) {
        if (event != NULL) {
            (void)cudaEventDestroy(event);
        }
    }
    (void)cudaGetLastError();
}

/* Milliseconds of one call, of so many. */
float time_of(const stopwatch &w, lvnc_candidate submit, void *user, int i, int times)
{
    bool runs = cudaEventRecord(w.begin, w.stream) == cudaSuccess;
    for (int k = 0; k < times && runs; k++) {
        runs = submit(user, i);
    }
    float ms = NEVER;
    const bool timed = cudaEventRecord(w.end, w.stream) == cudaSuccess &&
                       cudaEventSynchronize(w.end) == cudaSuccess &&
                       cudaEventElapsedTime(&ms, w.begin, w.end) == cudaSuccess;
    return runs && timed ? ms / (float)times : NEVER;
}

/* All of them in turn, so that a slow moment of the device does not count for one alone. */
void measure(const stopwatch &w, int n, lvnc_candidate submit, void *user, float *ms)
{
    int times[LVNC_CANDIDATES];
    for (int i = 0; i < n; i++) {
        (void)time_of(w, submit, user, i, 1); /* loads its code */
        ms[i] = time_of(w, submit, user, i, 1);
        const float wanted = ENOUGH_MS / (ms[i] > 1e-4f ? ms[i] : 1e-4f);
        times[i] = wanted < 1.0f ? 1 : wanted < (float)MOST_TIMES ? (int)wanted : (int)MOST_TIMES;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++) {
            const float one = ms[i] < NEVER ? time_of(w, submit, user, i, times[i]) : NEVER;
            ms[i] = round == 0 || one < ms[i] ? one : ms[i];
        }
    }
}

int first_of_the_quickest(const float *ms, int n)
{
    float least = NEVER;
    for (int i = 0; i < n; i++) {
        least = ms[i] < least ? ms[i] : least;
    }
    for (int i = 0; i < n; i++) {
        if (ms[i] < NEVER && ms[i] <= least * ABOUT_EQUAL) {
            return i;
        }
    }
    return 0;
}

void report(const float *ms, int n, int taken, const char *what, uint64_t problem)
{
    char text[LVNC_CANDIDATES * 24] = "";
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        at += (size_t)(ms[i] < NEVER
                           ? snprintf(text + at, sizeof text - at, " %.1f", (double)ms[i] * 1e3)
                           : snprintf(text + at, sizeof text - at, " -"));
    }
    fprintf(stderr, "levin cuda: %s-%016llx: candidate %d of%s us\n", what,
            (unsigned long long)problem, taken, text);
}
} // namespace

bool lvnc_measures(cudaStream_t stream, const lvn_autotune &now)
{
    cudaStreamCaptureStatus captured = cudaStreamCaptureStatusActive;
    return now.measures && cudaStreamIsCapturing(stream, &captured) == cudaSuccess &&
           captured == cudaStreamCaptureStatusNone;
}

int lvnc_quickest(cudaStream_t stream, int n, lvnc_candidate submit, void *user, const char *what,
                  uint64_t problem)
{
    float ms[LVNC_CANDIDATES];
    stopwatch w;
    n = n < (int)LVNC_CANDIDATES ? n : (int)LVNC_CANDIDATES;
    int taken = 0;
    if (make(&w, stream)) {
        measure(w, n, submit, user, ms);
        taken = first_of_the_quickest(ms, n);
        if (lvnc_debugs()) {
            report(ms, n, taken, what, problem);
        }
    }
    end(w);
    return taken;
}

#endif
