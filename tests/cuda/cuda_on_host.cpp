/* Coroutines, barriers, and the record of shared memory (cuda_on_host.h). */
#include "cuda_on_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

__thread cuda_on_host_place cuda_on_host_now = {};

namespace
{

enum { PAGE = 4096, STACK = 136 << 10, WARP = 32, MOST_THREADS = 1024, DYNAMIC = 228 << 10 };

/* ---- switching between stacks (x86-64, System V): registers that a callee keeps ---- */

extern "C" void cuda_on_host_switch(void **from, void *to);
asm(R"(
    .text
    .globl cuda_on_host_switch
    .hidden cuda_on_host_switch
    .type cuda_on_host_switch, @function
cuda_on_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size cuda_on_host_switch, .-cuda_on_host_switch
)");

enum state { RUNS, AT_BARRIER, AT_WARP, ENDED };
enum warp_operation { SYNC, SHUFFLE, BALLOT };

struct coroutine {
    void *sp;
    int stack; /* number of its stack; none before it runs and when it has ended */
    state is;
    uint3 thread;
    /* of the warp operation it waits for, or had last */
    warp_operation operation;
    unsigned mask;
    int from; /* SHUFFLE: a lane */
    uint64_t value, result;
    uint32_t syncs; /* __syncwarp that it took part in */
};

struct block_memory {
    std::unique_ptr<char[]> bytes;
    std::vector<cuda_on_host_shadow> shadow;
};

struct runner { /* of an OS thread */
    std::vector<coroutine> all;
    std::vector<char *> stacks;
    std::vector<int> unused; /* stacks, of which the last was used last */
    std::unordered_map<const void *, block_memory> shared;
    std::unique_ptr<char[]> dynamic;
    std::vector<cuda_on_host_shadow> dynamic_shadow;
    size_t dynamic_bytes = 0;
    const std::function<void()> *kernel = nullptr;
    const char *what = "";
    void *main_sp = nullptr;
    int n = 0;                     /* threads of a block */
    int ended = 0, at_barrier = 0; /* of them */
    uint64_t launches = 0;
    bool active = false;
    ~runner()
    {
        for (char *stack : stacks) {
            munmap(stack, STACK);
        }
    }
};
thread_local runner runner_of_thread;
__thread runner *here; /* the same, since a thread's first launch: quicker to get at */

[[noreturn]] void fail(void)
{
    fprintf(stderr, " (kernel %s, block %u %u %u of %u %u %u, thread %d of %d)\n", here->what,
            cuda_on_host_now.block.x, cuda_on_host_now.block.y, cuda_on_host_now.block.z,
            cuda_on_host_now.grid_dim.x, cuda_on_host_now.grid_dim.y, cuda_on_host_now.grid_dim.z,
            cuda_on_host_now.number, here->n);
    abort();
}

coroutine &running(void)
{
    return here->all[(size_t)cuda_on_host_now.number];
}

void wait_as(coroutine &c, state is)
{
    c.is = is;
    cuda_on_host_switch(&c.sp, here->main_sp);
}

void body(void)
{
    (*here->kernel)();
    running().is = ENDED;
    here->ended++;
    void *unused;
    cuda_on_host_switch(&unused, here->main_sp);
    abort();
}

char *make_stack(void)
{
    void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE) != 0) { /* an overflow ends there */
        fprintf(stderr, "no memory for the threads of a block");
        fail();
    }
    return static_cast<char *>(p);
}

/* The stack that was given back last is in the cache: threads that wait for none share one. Stacks
 * begin at different places of their pages, or all would want the same lines of the cache. */
void take_stack(coroutine &c)
{
    if (here->unused.empty()) {
        here->unused.push_back((int)here->stacks.size());
        here->stacks.push_back(make_stack());
    }
    c.stack = here->unused.back();
    here->unused.pop_back();
    const unsigned line = (unsigned)c.stack * 7 % 128;
    void **top = reinterpret_cast<void **>(here->stacks[(size_t)c.stack] + STACK - 64 - 64 * line);
    *--top = nullptr; /* where body would return to; keeps the stack aligned at its entry */
    *--top = reinterpret_cast<void *>(body);
    c.sp = top - 6; /* registers of any value */
}

void begin(int number)
{
    coroutine &c = here->all[(size_t)number];
    const dim3 &d = cuda_on_host_now.block_dim;
    const unsigned i = (unsigned)number;
    c.sp = nullptr;
    c.is = RUNS;
    c.thread = uint3{i % d.x, i / d.x % d.y, i / d.x / d.y};
    c.syncs = 0;
}

void go_on(int number)
{
    coroutine &c = here->all[(size_t)number];
    if (c.sp == nullptr) {
        take_stack(c);
    }
    cuda_on_host_now.number = number;
    cuda_on_host_now.thread = c.thread;
    cuda_on_host_now.warp = c.syncs + 1;
    cuda_on_host_switch(&here->main_sp, c.sp);
    if (c.is == ENDED) {
        here->unused.push_back(c.stack);
    }
}

/* The lanes that lane i waits for, if they all wait for the same; else 0. */
unsigned whole_group(const coroutine *warp, unsigned there, unsigned waiting, int i)
{
    const unsigned group = warp[i].mask & there;
    if ((group >> i & 1) == 0 || (waiting & group) != group) {
        return 0;
    }
    for (unsigned rest = group; rest != 0; rest &= rest - 1) {
        const coroutine &c = warp[__builtin_ctz(rest)];
        if (c.mask != warp[i].mask || c.operation != warp[i].operation) {
            return 0;
        }
    }
    return group;
}

void operate(coroutine *warp, unsigned group)
{
    uint64_t votes = 0;
    for (unsigned rest = group; rest != 0; rest &= rest - 1) {
        const int i = __builtin_ctz(rest);
        votes |= (uint64_t)(warp[i].value != 0) << i;
    }
    for (unsigned rest = group; rest != 0; rest &= rest - 1) {
        coroutine &c = warp[__builtin_ctz(rest)];
        c.result = c.operation == SHUFFLE ? warp[c.from].value : votes;
        c.syncs += c.operation == SYNC; /* the others do not order accesses to memory */
        c.is = RUNS;
    }
}

/* Lets those of the waiting lanes go on whose others are there. */
bool release_warp(coroutine *warp, int lanes, unsigned waiting)
{
    const unsigned there = lanes == WARP ? ~0u : (1u << lanes) - 1;
    bool any = false;
    for (unsigned left = waiting; left != 0;) {
        const unsigned group = whole_group(warp, there, waiting, __builtin_ctz(left));
        if (group != 0) {
            operate(warp, group);
        }
        any = any || group != 0;
        left &= group != 0 ? ~group : left - 1;
    }
    return any;
}

/* 0 to n - 1, of n a power of two: forward, backward, or mixed by an odd factor. */
int in_order(int i, int n, uint64_t order)
{
    return order % 3 == 0 ? i : order % 3 == 1 ? n - 1 - i : ((i * 77 + 13) & (n - 1));
}

/* Its threads go on until they wait for others. False: for other warps, or they have ended. */
bool run_warp(int first, uint64_t order)
{
    const int lanes = here->n - first < WARP ? here->n - first : (int)WARP;
    coroutine *warp = &here->all[(size_t)first];
    unsigned waiting = 0;
    for (int k = 0; k < WARP; k++) {
        const int i = in_order(k, WARP, order);
        if (i < lanes && warp[i].is == RUNS) {
            go_on(first + i);
        }
        waiting |= (unsigned)(i < lanes && warp[i].is == AT_WARP) << i;
    }
    return release_warp(warp, lanes, waiting);
}

/* To the block's next barrier: warp after warp, or, in other launches, in turns from one warp
 * operation to the next, so that what warps leave in global memory for themselves is disturbed. */
void run_warps(uint64_t order)
{
    enum { MOST_WARPS = MOST_THREADS / WARP };
    const bool in_turns = order / 3 % 2 == 1;
    bool any = true;
    while (any) {
        any = false;
        for (int w = 0; w < MOST_WARPS; w++) {
            const int first = WARP * in_order(w, MOST_WARPS, order);
            bool goes_on = first < here->n;
            while (goes_on) {
                goes_on = run_warp(first, order);
                any = any || goes_on;
                goes_on = goes_on && !in_turns;
            }
        }
    }
}

void run_block(void)
{
    cuda_on_host_now.epoch++;
    cuda_on_host_now.barrier = 1;
    here->ended = here->at_barrier = 0;
    for (int i = 0; i < here->n; i++) {
        begin(i);
    }
    for (;;) {
        run_warps(here->launches + cuda_on_host_now.barrier);
        if (here->ended == here->n) {
            return;
        }
        if (here->at_barrier != here->n) {
            fprintf(stderr,
                    "%d of %d threads ended, others wait at a barrier or in a shuffle that "
                    "not all reach",
                    here->ended, here->n);
            fail();
        }
        cuda_on_host_now.barrier++;
        here->at_barrier = 0;
        for (int i = 0; i < here->n; i++) {
            here->all[(size_t)i].is = RUNS;
        }
    }
}

/* Of one warp, or of a part of it. */
uint64_t operate_as(warp_operation operation, unsigned mask, uint64_t mine, int from)
{
    coroutine &c = running();
    c.operation = operation;
    c.mask = mask;
    c.value = mine;
    c.from = from;
    wait_as(c, AT_WARP);
    return c.result;
}

} // namespace

std::mutex &cuda_on_host_order(void)
{
    static std::mutex lock;
    return lock;
}

void cuda_on_host_launch(const char *what, dim3 grid, dim3 block, size_t shared_bytes,
                         const std::function<void()> &kernel)
{
    const std::lock_guard<std::mutex> guard(cuda_on_host_order());
    const int n = (int)(block.x * block.y * block.z);
    here = &runner_of_thread;
    here->what = what;
    here->n = n;
    if (here->active || n < 1 || n > MOST_THREADS || shared_bytes > DYNAMIC || grid.y > 65535 ||
        grid.z > 65535) {
        fprintf(stderr, "a launch of %u x %u x %u blocks with %d threads and %zu bytes", grid.x,
                grid.y, grid.z, n, shared_bytes);
        fail();
    }
    here->active = true;
    here->kernel = &kernel;
    here->launches++;
    here->dynamic_bytes = shared_bytes;
    here->all.resize((size_t)MOST_THREADS);
    cuda_on_host_now.block_dim = block;
    cuda_on_host_now.grid_dim = grid;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t k = 0; k < blocks; k++) {
        const uint64_t b = here->launches % 2 == 0 ? k : blocks - 1 - k;
        cuda_on_host_now.block = uint3{(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                                       (unsigned)(b / grid.x / grid.y)};
        run_block();
    }
    here->active = false;
}

void cuda_on_host_barrier(void)
{
    here->at_barrier++;
    wait_as(running(), AT_BARRIER);
}

void cuda_on_host_warp_barrier(unsigned mask)
{
    const int lanes = here->n - (cuda_on_host_now.number & ~(WARP - 1));
    const unsigned there = lanes >= WARP ? ~0u : (1u << lanes) - 1;
    if ((mask & there) != there) { /* checks count the barriers of whole warps */
        fprintf(stderr, "__syncwarp of a part of a warp (mask %x)", mask);
        fail();
    }
    operate_as(SYNC, mask, 0, 0);
}

uint64_t cuda_on_host_shuffle(unsigned mask, uint64_t mine, int from)
{
    if ((mask >> from & 1) == 0 || (cuda_on_host_now.number & ~(WARP - 1)) + from >= here->n) {
        fprintf(stderr, "a shuffle from lane %d, which does not take part (mask %x)", from, mask);
        fail();
    }
    return operate_as(SHUFFLE, mask, mine, from);
}

unsigned cuda_on_host_ballot(unsigned mask, bool mine)
{
    return (unsigned)operate_as(BALLOT, mask, mine, 0);
}

void cuda_on_host_race(const char *what, const char *name, int64_t index, int who)
{
    char thread[32] = "other threads";
    if (who >= 0) {
        snprintf(thread, sizeof thread, "thread %d", who);
    }
    fprintf(stderr, "%s[%lld] is %s by %s since the last barrier", name, (long long)index, what,
            thread);
    fail();
}

void cuda_on_host_outside(const char *name, int64_t index, int64_t size)
{
    fprintf(stderr, "%s[%lld] of %lld", name, (long long)index, (long long)size);
    fail();
}

void *cuda_on_host_shared(const void *place, size_t bytes, size_t elements,
                          cuda_on_host_shadow **shadow)
{
    block_memory &m = here->shared[place];
    if (m.bytes == nullptr) {
        m.bytes.reset(static_cast<char *>(operator new[](bytes)));
        memset(m.bytes.get(), 0xa5, bytes); /* what was not written shows */
        m.shadow.resize(elements);
    }
    *shadow = m.shadow.data();
    return m.bytes.get();
}

void *cuda_on_host_dynamic(size_t *bytes, cuda_on_host_shadow **shadow)
{
    if (here->dynamic == nullptr) {
        here->dynamic.reset(static_cast<char *>(operator new[](DYNAMIC)));
        memset(here->dynamic.get(), 0xa5, DYNAMIC);
        here->dynamic_shadow.resize(DYNAMIC);
    }
    *bytes = here->dynamic_bytes;
    *shadow = here->dynamic_shadow.data();
    return here->dynamic.get();
}
