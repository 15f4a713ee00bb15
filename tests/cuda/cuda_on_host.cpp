/* Coroutines, barriers, and the record of shared memory (cuda_on_host.h). */
#include "cuda_on_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

thread_local cuda_on_host_place cuda_on_host_now;

namespace
{

enum { STACK = 128 << 10, MOST_THREADS = 1024, DYNAMIC = 228 << 10 };

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
    ret
    .size cuda_on_host_switch, .-cuda_on_host_switch
)");

enum state { RUNS, AT_BARRIER, AT_WARP, ENDED };

struct coroutine {
    void *sp;
    char *stack;
    state is;
    unsigned mask;         /* of the warp operation it waits for */
    uint32_t warp_barrier; /* warp operations that it took part in */
    uint64_t value;
};

struct block_memory {
    std::unique_ptr<char[]> bytes;
    std::vector<cuda_on_host_shadow> shadow;
};

struct runner { /* of an OS thread */
    std::vector<coroutine> all;
    std::unordered_map<const void *, block_memory> shared;
    std::unique_ptr<char[]> dynamic;
    std::vector<cuda_on_host_shadow> dynamic_shadow;
    size_t dynamic_bytes = 0;
    const std::function<void()> *kernel = nullptr;
    const char *what = "";
    void *main_sp = nullptr;
    int n = 0; /* threads of a block */
    uint32_t epoch = 0, barrier = 0;
    uint64_t launches = 0;
    bool active = false;
    ~runner()
    {
        for (coroutine &c : all) {
            munmap(c.stack, STACK);
        }
    }
};
thread_local runner here;

[[noreturn]] void fail(void)
{
    fprintf(stderr, " (kernel %s, block %u %u %u of %u %u %u, thread %d of %d)\n", here.what,
            cuda_on_host_now.block.x, cuda_on_host_now.block.y, cuda_on_host_now.block.z,
            cuda_on_host_now.grid_dim.x, cuda_on_host_now.grid_dim.y, cuda_on_host_now.grid_dim.z,
            cuda_on_host_now.number, here.n);
    abort();
}

coroutine &running(void)
{
    return here.all[(size_t)cuda_on_host_now.number];
}

void wait_as(state is)
{
    coroutine &c = running();
    const cuda_on_host_place place = cuda_on_host_now;
    c.is = is;
    cuda_on_host_switch(&c.sp, here.main_sp);
    cuda_on_host_now = place;
}

void body(void)
{
    (*here.kernel)();
    running().is = ENDED;
    void *unused;
    cuda_on_host_switch(&unused, here.main_sp);
    abort();
}

void make_coroutines(int n)
{
    while ((int)here.all.size() < n) {
        void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            fprintf(stderr, "no memory for the threads of a block");
            fail();
        }
        here.all.push_back(coroutine{nullptr, static_cast<char *>(p), ENDED, 0, 0, 0});
    }
}

void begin(coroutine &c)
{
    void **top = reinterpret_cast<void **>(c.stack + STACK - 64);
    *--top = nullptr; /* where body would return to; keeps the stack aligned at its entry */
    *--top = reinterpret_cast<void *>(body);
    for (int i = 0; i < 6; i++) {
        *--top = nullptr;
    }
    c.sp = top;
    c.is = RUNS;
    c.warp_barrier = 0;
}

void set_place(int number)
{
    const dim3 &d = cuda_on_host_now.block_dim;
    const unsigned i = (unsigned)number;
    cuda_on_host_now.number = number;
    cuda_on_host_now.thread = uint3{i % d.x, i / d.x % d.y, i / d.x / d.y};
}

/* The lanes that a warp operation waits for: those of the mask that the block has. */
bool warp_arrived(int first)
{
    bool any = false;
    for (int i = first; i < first + 32 && i < here.n; i++) {
        coroutine &c = here.all[(size_t)i];
        if (c.is != AT_WARP) {
            continue;
        }
        any = true;
        for (int k = 0; k < 32; k++) {
            const bool wanted = (c.mask >> k & 1) != 0 && first + k < here.n;
            if (wanted && (here.all[(size_t)(first + k)].is != AT_WARP ||
                           here.all[(size_t)(first + k)].mask != c.mask)) {
                return false;
            }
        }
    }
    return any;
}

/* Lets those go on whose others are there. False: all wait for what does not come. */
bool release(void)
{
    bool any = false, barrier = true;
    for (int first = 0; first < here.n; first += 32) {
        if (warp_arrived(first)) {
            for (int i = first; i < first + 32 && i < here.n; i++) {
                coroutine &c = here.all[(size_t)i];
                if (c.is == AT_WARP) {
                    c.is = RUNS;
                    c.warp_barrier++;
                    any = true;
                }
            }
        }
    }
    for (int i = 0; i < here.n; i++) {
        barrier = barrier && here.all[(size_t)i].is == AT_BARRIER;
    }
    if (barrier) {
        here.barrier++;
        for (int i = 0; i < here.n; i++) {
            here.all[(size_t)i].is = RUNS;
        }
    }
    return any || barrier;
}

int in_order(int i, uint64_t order)
{
    switch (order % 3) {
    case 0: return i;
    case 1: return here.n - 1 - i;
    default: { /* a permutation: an odd factor, modulo a power of two, else as it is */
        const bool power = (here.n & (here.n - 1)) == 0;
        return power ? (int)(((unsigned)i * 77u + 13u) & (unsigned)(here.n - 1)) : i;
    }
    }
}

void run_block(void)
{
    here.epoch++;
    here.barrier = 0;
    for (int i = 0; i < here.n; i++) {
        begin(here.all[(size_t)i]);
    }
    for (;;) {
        int ended = 0;
        for (int k = 0; k < here.n; k++) {
            const int i = in_order(k, here.launches + here.barrier);
            coroutine &c = here.all[(size_t)i];
            if (c.is == RUNS) {
                set_place(i);
                cuda_on_host_switch(&here.main_sp, c.sp);
            }
        }
        for (int i = 0; i < here.n; i++) {
            ended += here.all[(size_t)i].is == ENDED;
        }
        if (ended == here.n) {
            return;
        }
        if (!release()) {
            fprintf(stderr,
                    "%d of %d threads ended, others wait at a barrier or in a shuffle that "
                    "not all reach",
                    ended, here.n);
            fail();
        }
    }
}

void check_epoch(cuda_on_host_shadow *s)
{
    if (s->epoch != here.epoch) {
        *s = cuda_on_host_shadow{here.epoch, 0, 0, 0, 0, -1, -1};
    }
}

/* Whether access `then` by thread `who` is ordered before the running thread's access now. */
bool is_ordered(uint32_t then, uint32_t warp_then, int who)
{
    const int me = cuda_on_host_now.number;
    if (then == 0 || who == me || then != here.barrier + 1) {
        return true;
    }
    return who >= 0 && who / 32 == me / 32 && warp_then != running().warp_barrier + 1;
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
    here.what = what;
    here.n = n;
    if (here.active || n < 1 || n > MOST_THREADS || shared_bytes > DYNAMIC || grid.y > 65535 ||
        grid.z > 65535) {
        fprintf(stderr, "a launch of %u x %u x %u blocks with %d threads and %zu bytes", grid.x,
                grid.y, grid.z, n, shared_bytes);
        fail();
    }
    here.active = true;
    here.kernel = &kernel;
    here.launches++;
    here.dynamic_bytes = shared_bytes;
    make_coroutines(n);
    cuda_on_host_now.block_dim = block;
    cuda_on_host_now.grid_dim = grid;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t k = 0; k < blocks; k++) {
        const uint64_t b = here.launches % 2 == 0 ? k : blocks - 1 - k;
        cuda_on_host_now.block = uint3{(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                                       (unsigned)(b / grid.x / grid.y)};
        run_block();
    }
    here.active = false;
}

void cuda_on_host_barrier(void)
{
    wait_as(AT_BARRIER);
}

void cuda_on_host_warp_barrier(unsigned mask)
{
    running().mask = mask;
    wait_as(AT_WARP);
}

/* Values stay until the warp's next operation but one: they alternate between two. */
uint64_t cuda_on_host_shuffle(unsigned mask, uint64_t mine, int from)
{
    const int me = cuda_on_host_now.number, first = me & ~31, source = first + from;
    running().value = mine;
    cuda_on_host_warp_barrier(mask);
    if ((mask >> from & 1) == 0 || source >= here.n) {
        fprintf(stderr, "a shuffle from lane %d, which does not take part (mask %x)", from, mask);
        fail();
    }
    const uint64_t theirs = here.all[(size_t)source].value;
    cuda_on_host_warp_barrier(mask); /* no lane overwrites a value before all have read */
    return theirs;
}

unsigned cuda_on_host_ballot(unsigned mask, bool mine)
{
    const int first = cuda_on_host_now.number & ~31;
    running().value = mine;
    cuda_on_host_warp_barrier(mask);
    unsigned votes = 0;
    for (int k = 0; k < 32 && first + k < here.n; k++) {
        votes |= (mask >> k & 1) != 0 && here.all[(size_t)(first + k)].value != 0 ? 1u << k : 0u;
    }
    cuda_on_host_warp_barrier(mask);
    return votes;
}

void cuda_on_host_check_read(cuda_on_host_shadow *s, const char *name, int64_t index)
{
    check_epoch(s);
    if (!is_ordered(s->written, s->written_warp, s->writer)) {
        fprintf(stderr, "%s[%lld] is read while thread %d has written it since the last barrier",
                name, (long long)index, s->writer);
        fail();
    }
    const int me = cuda_on_host_now.number;
    const bool others = s->read == here.barrier + 1 && s->reader != me && s->reader != -1;
    s->reader = (int16_t)(others ? (s->reader >= 0 && s->reader / 32 == me / 32 ? me : -2) : me);
    s->read = here.barrier + 1;
    s->read_warp = running().warp_barrier + 1;
}

void cuda_on_host_check_write(cuda_on_host_shadow *s, const char *name, int64_t index)
{
    check_epoch(s);
    if (!is_ordered(s->written, s->written_warp, s->writer) ||
        !is_ordered(s->read, s->read_warp, s->reader)) {
        fprintf(stderr, "%s[%lld] is written while thread %d accessed it since the last barrier",
                name, (long long)index, s->written == here.barrier + 1 ? s->writer : s->reader);
        fail();
    }
    s->writer = (int16_t)cuda_on_host_now.number;
    s->written = here.barrier + 1;
    s->written_warp = running().warp_barrier + 1;
}

void cuda_on_host_outside(const char *name, int64_t index, int64_t size)
{
    fprintf(stderr, "%s[%lld] of %lld", name, (long long)index, (long long)size);
    fail();
}

void *cuda_on_host_shared(const void *place, size_t bytes, size_t elements,
                          cuda_on_host_shadow **shadow)
{
    block_memory &m = here.shared[place];
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
    if (here.dynamic == nullptr) {
        here.dynamic.reset(static_cast<char *>(operator new[](DYNAMIC)));
        memset(here.dynamic.get(), 0xa5, DYNAMIC);
        here.dynamic_shadow.resize(DYNAMIC);
    }
    *bytes = here.dynamic_bytes;
    *shadow = here.dynamic_shadow.data();
    return here.dynamic.get();
}
