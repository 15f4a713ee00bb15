/* The host form that CUDA kernels are tested with (cuda_on_host.h): warp operations give what a GPU
 * gives, and each mistake that it is there to find ends the process with its sentence. Mistakes are
 * made in processes of their own. */
#include "cuda_on_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        printf("failed: %s\n", what);
        failures++;
    }
}

/* What a process writes to stderr that launches it with so many threads; "" when it ends well.
 * order: launches before it, on which the order of its threads depends. */
static std::string mistake_of(int threads, int order, const std::function<void()> &kernel)
{
    int ends[2];
    std::string text;
    char part[512];
    if (pipe(ends) != 0) {
        return "no pipe";
    }
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(ends[1], STDERR_FILENO);
        for (int i = 0; i < order; i++) {
            cuda_on_host_launch("before", dim3(1), dim3(1), 0, [] {});
        }
        cuda_on_host_launch("tested", dim3(1), dim3((unsigned)threads), 0, kernel);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n = 1; n > 0;) {
        n = read(ends[0], part, sizeof part);
        text.append(part, n > 0 ? (size_t)n : 0);
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return good                                                 ? ""
           : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? text
                                                                : "ended otherwise";
}

static void expect_mistake(int threads, const char *sentence, const std::function<void()> &kernel)
{
    for (int order = 0; order < 6; order++) {
        const std::string found = mistake_of(threads, order, kernel);
        if (sentence[0] == '\0' ? found != "" : found.find(sentence) == std::string::npos) {
            printf("order %d: expected \"%s\", found \"%s\"\n", order, sentence, found.c_str());
            failures++;
        }
    }
}

/* ---- warp operations ---- */

static void test_values(void)
{
    static const int sizes[] = {1, 31, 32, 40, 64, 1000};
    for (int n : sizes) {
        int wrong = 0;
        cuda_on_host_launch("values", dim3(2), dim3((unsigned)n), 0, [&] {
            const int me = (int)threadIdx.x, lane = me & 31;
            const int lanes = n - (me - lane) < 32 ? n - (me - lane) : 32;
            const unsigned all = lanes == 32 ? ~0u : (1u << lanes) - 1;
            wrong += __shfl_sync(all, me, 0) != me - lane;
            wrong += lane > 0 && __shfl_up_sync(all, me, 1) != me - 1;
            if (lane == 0) {
                wrong += __shfl_up_sync(all, me, 1) != me;
            }
            wrong += lanes == 32 && __shfl_xor_sync(all, (double)me, 5) != (double)(me ^ 5);
            wrong +=
                lanes == 32 && __shfl_down_sync(all, me, 3, 8) != me + ((lane & 7) < 5 ? 3 : 0);
            wrong += __ballot_sync(all, lane % 3 == 0) != (0x49249249u & all);
            wrong += __all_sync(all, lane < 31) != (lanes < 32);
        });
        expect(wrong == 0, "values of warp operations");
    }
}

/* Halves of a warp that go their own ways, and meet again. */
static void test_parts_of_a_warp(void)
{
    int wrong = 0;
    cuda_on_host_launch("parts", dim3(1), dim3(32), 0, [&] {
        const int me = (int)threadIdx.x;
        const unsigned half = me < 16 ? 0xffffu : 0xffff0000u;
        for (int k = 0; k < (me < 16 ? 3 : 5); k++) {
            wrong += __shfl_xor_sync(half, me + k, 1) != (me ^ 1) + k;
        }
        wrong += __shfl_xor_sync(~0u, me, 16) != (me ^ 16);
    });
    expect(wrong == 0, "parts of a warp");
}

/* Threads, warps and blocks come in different orders, so that a race in global memory shows. */
static void test_orders(void)
{
    int last_thread[6], last_block[6];
    for (int k = 0; k < 6; k++) {
        cuda_on_host_launch("orders", dim3(3), dim3(64), 0, [&] {
            last_thread[k] = (int)threadIdx.x;
            last_block[k] = (int)blockIdx.x;
        });
    }
    bool threads = false, blocks = false;
    for (int k = 1; k < 6; k++) {
        threads = threads || last_thread[k] != last_thread[0];
        blocks = blocks || last_block[k] != last_block[0];
    }
    expect(threads, "orders of threads");
    expect(blocks, "orders of blocks");
}

/* Warps that overwrite each other's number in global memory between two warp operations. */
static void test_races_in_global_memory(void)
{
    int wrong = 0, number = 0;
    for (int k = 0; k < 6; k++) {
        cuda_on_host_launch("global", dim3(1), dim3(64), 0, [&] {
            const int warp = (int)threadIdx.x / 32;
            number = warp;
            __syncwarp();
            wrong += number != warp;
        });
    }
    expect(wrong > 0, "races in global memory");
}

/* ---- mistakes ---- */

static void test_races(void)
{
    expect_mistake(64, ", but was ", [] {
        SHARED(int, x, 64);
        x[threadIdx.x] = 1;
        (void)(int)x[(threadIdx.x + 32) % 64];
    });
    expect_mistake(64, "", [] {
        SHARED(int, x, 64);
        x[threadIdx.x] = 1;
        __syncthreads();
        (void)(int)x[(threadIdx.x + 32) % 64];
    });
    expect_mistake(64, "x[0] is written, but was written by thread", [] {
        SHARED(int, x, 64);
        x[0] = (int)threadIdx.x;
    });
    expect_mistake(64, ", but was ", [] {
        SHARED(int, x, 64);
        x[threadIdx.x] = 1;
        __syncthreads();
        const int other = x[(threadIdx.x + 1) % 64];
        x[threadIdx.x] = other; /* which another one may not have read yet */
    });
    /* a warp's barrier does not order two warps */
    expect_mistake(64, ", but was ", [] {
        SHARED(int, x, 64);
        x[threadIdx.x] = 1;
        __syncwarp();
        (void)(int)x[(threadIdx.x + 32) % 64];
    });
}

static void test_races_of_a_warp(void)
{
    expect_mistake(32, "", [] {
        SHARED(int, x, 32);
        x[threadIdx.x] = 1;
        __syncwarp();
        (void)(int)x[threadIdx.x ^ 1];
    });
    /* a shuffle orders no memory */
    expect_mistake(32, ", but was ", [] {
        SHARED(int, x, 32);
        x[threadIdx.x] = 1;
        (void)__shfl_xor_sync(~0u, 1, 1);
        (void)(int)x[threadIdx.x ^ 1];
    });
}

static void test_what_does_not_come(void)
{
    expect_mistake(64, "wait at a barrier or in a shuffle", [] {
        if (threadIdx.x < 63) {
            __syncthreads();
        }
    });
    expect_mistake(32, "wait at a barrier or in a shuffle", [] {
        if (threadIdx.x < 16) {
            (void)__shfl_xor_sync(~0u, 1, 1);
        }
    });
    /* not the same operation */
    expect_mistake(32, "wait at a barrier or in a shuffle", [] {
        if (threadIdx.x < 16) {
            (void)__shfl_xor_sync(~0u, 1, 1);
        } else {
            __syncwarp();
        }
    });
    /* not in its own mask */
    expect_mistake(32, "wait at a barrier or in a shuffle", [] {
        if (threadIdx.x < 16) {
            (void)__shfl_sync(0xffff0000u, 1, 20);
        }
    });
    expect_mistake(32, "__syncwarp of a part of a warp", [] {
        if (threadIdx.x < 16) {
            __syncwarp(0xffffu);
        }
    });
    expect_mistake(32, "a shuffle from lane 20, which does not take part", [] {
        if (threadIdx.x < 16) {
            (void)__shfl_sync(0xffffu, 1, 20);
        }
    });
    expect_mistake(20, "a shuffle from lane 20, which does not take part",
                   [] { (void)__shfl_sync(~0u, 1, 20); });
    expect_mistake(32, "x[32] of 32", [] {
        SHARED(int, x, 32);
        x[threadIdx.x + 1] = 1;
    });
}

int main(void)
{
    test_values();
    test_parts_of_a_warp();
    test_orders();
    test_races_in_global_memory();
    test_races();
    test_races_of_a_warp();
    test_what_does_not_come();
    printf("%d failed\n", failures);
    return failures == 0 ? 0 : 1;
}
