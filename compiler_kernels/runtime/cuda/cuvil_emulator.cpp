/* The emulator behind cuvil_emulate.h: fibers, barriers, copies that are made early or late. One block, or cluster, at a time. */
#include "cuvil_emulate.h"

#include <sys/mman.h>

#include "cuvil_emulator_guard.h"

#undef cuvil_shared

__thread cuvil_self *cuvil_now;

namespace {

enum State { READY, AT_BLOCK, AT_WARP, AT_CLUSTER, ENDED };
enum : size_t { STACK_BYTES = 1 << 16, POOL_BYTES = (size_t)1 << 30, MAX_FIBERS = 8 * 1024, MAX_SHARED = 256 * 1024 };
const uint64_t CANARY = 0x6b7d5ac3f1e29084u;

struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
    int kept;
    Copy *next;
};
struct List {
    Copy *first, *last;
    void add(Copy *c)
    {
        if (last) last->next = c;
        else first = c;
        last = c;
    }
};
struct Group {
    List copies;
    Group *next;
};
struct Meeting {
    int alive, arrived;
};
struct Warp {
    Meeting meeting;
    uint64_t values[2][32];
    unsigned turn[32];
    unsigned live;
};
struct Block {
    Meeting meeting;
};
struct Fiber {
    cuvil_self self;
    void *sp;
    State state;
    Block *block;
    Warp *warp;
    List open; /* asynchronous copies of no group yet */
    Group *groups, *last_group;
    int group_count;
    bool waited; /* for the launch before */
};

Fiber *fibers, *running;
int fiber_count;
Block blocks[16];
Warp *warps;
Meeting cluster_meeting;
unsigned char *stacks, *shared_memory, *pool;
size_t pool_used, shared_stride;
void *scheduler_sp;
void (*kernel)(void *const *);
void *const *kernel_arguments;
uint64_t random_state;

uint64_t draw()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* first, step: k -> (first + k * step) % n visits 0..n-1 once each. */
void shuffle(uint64_t n, uint64_t *first, uint64_t *step)
{
    *first = draw() % n;
    for (;;) {
        uint64_t a = n, b = *step = 1 + draw() % n;
        while (b) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return;
    }
}

template <class T> T *take(size_t count)
{
    T *found = (T *)(pool + pool_used);
    pool_used += (count * sizeof(T) + 63) / 64 * 64;
    if (pool_used > POOL_BYTES) __builtin_trap();
    memset((void *)found, 0, count * sizeof(T));
    return found;
}

void *reserve(size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

} // namespace

/* Saves what a call must keep, changes stacks, restores. */
extern "C" void cuvil_fiber_switch(void **from, void *to);
#if defined(__x86_64__)
__asm__(".text\n.globl cuvil_fiber_switch\n.type cuvil_fiber_switch, @function\ncuvil_fiber_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size cuvil_fiber_switch, .-cuvil_fiber_switch\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl cuvil_fiber_switch\n.type cuvil_fiber_switch, %function\ncuvil_fiber_switch:\n"
        "  sub sp, sp, #160\n  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n  stp d8, d9, [sp, #96]\n"
        "  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n  add sp, sp, #160\n  ret\n"
        ".size cuvil_fiber_switch, .-cuvil_fiber_switch\n");
#else
#error "the emulator has no fiber switch for this processor"
#endif

namespace {

void yield_as(State state)
{
    running->state = state;
    cuvil_fiber_switch(&running->sp, scheduler_sp);
}

Fiber *fiber_of_block(int k, const Block *block)
{
    return fibers[k].block == block ? fibers + k : nullptr;
}

void release_block(Block *block)
{
    block->meeting.arrived = 0;
    for (int k = 0; k < fiber_count; k++)
        if (Fiber *f = fiber_of_block(k, block))
            if (f->state == AT_BLOCK) f->state = READY;
}

void release_warp(Warp *warp)
{
    warp->meeting.arrived = 0;
    for (int k = 0; k < fiber_count; k++)
        if (fibers[k].warp == warp && fibers[k].state == AT_WARP) fibers[k].state = READY;
}

void release_cluster()
{
    cluster_meeting.arrived = 0;
    for (int k = 0; k < fiber_count; k++)
        if (fibers[k].state == AT_CLUSTER) fibers[k].state = READY;
}

bool full(const Meeting &m) { return m.alive > 0 && m.arrived == m.alive; }

void body()
{
    kernel(kernel_arguments);
    Fiber *f = running;
    f->warp->live &= ~(1u << f->self.lane);
    f->block->meeting.alive--;
    f->warp->meeting.alive--;
    cluster_meeting.alive--;
    if (full(f->block->meeting)) release_block(f->block);
    if (full(f->warp->meeting)) release_warp(f->warp);
    if (full(cluster_meeting)) release_cluster();
    yield_as(ENDED);
    __builtin_unreachable();
}

void *prepared_stack(unsigned char *bottom)
{
    memcpy(bottom, &CANARY, sizeof CANARY);
    unsigned char *top = bottom + STACK_BYTES;
#if defined(__x86_64__)
    void **sp = (void **)(top - 8); /* as after a call: the stack pointer plus 8 is a multiple of 16 */
    *--sp = (void *)body;
    for (int k = 0; k < 6; k++) *--sp = nullptr;
    return sp;
#else
    void **sp = (void **)(top - 160);
    memset(sp, 0, 160);
    sp[11] = (void *)body; /* x30 */
    return sp;
#endif
}

void perform(const Copy *c)
{
    if (c->kept) memcpy(c->to, c->from, c->bytes);
    else memset(c->to, 0, c->bytes);
}

const char *run_group(unsigned block_x, unsigned block_y, unsigned block_z, const unsigned grid[3], unsigned threads,
                      unsigned cluster)
{
    pool_used = 0;
    const unsigned warp_count = (threads + 31) / 32;
    fiber_count = (int)(threads * cluster);
    fibers = take<Fiber>((size_t)fiber_count);
    warps = take<Warp>((size_t)warp_count * cluster);
    memset(shared_memory, 0xff, shared_stride * cluster);
    memset((void *)blocks, 0, sizeof blocks);
    cluster_meeting = {fiber_count, 0};
    for (unsigned rank = 0; rank < cluster; rank++) {
        blocks[rank].meeting.alive = (int)threads;
        for (unsigned t = 0; t < threads; t++) {
            Fiber *f = fibers + rank * threads + t;
            f->self = {{t, 0, 0}, {block_x + rank, block_y, block_z}, {threads, 1, 1}, {grid[0], grid[1], grid[2]},
                       shared_memory + rank * shared_stride, rank, t % 32};
            f->block = blocks + rank;
            f->warp = warps + rank * warp_count + t / 32;
            f->warp->meeting.alive++;
            f->warp->live |= 1u << (t % 32);
            f->sp = prepared_stack(stacks + (size_t)(rank * threads + t) * STACK_BYTES);
        }
    }
    if (guard_count) set_guard(true);
    for (int ended = 0; ended < fiber_count;) {
        bool progress = false;
        uint64_t first, step;
        shuffle((uint64_t)fiber_count, &first, &step);
        for (int k = 0; k < fiber_count; k++) {
            Fiber *f = fibers + (first + (uint64_t)k * step) % (uint64_t)fiber_count;
            if (f->state != READY) continue;
            progress = true;
            if (!(draw() & 3u)) continue; /* it lags behind the others */
            running = f;
            cuvil_now = &f->self;
            cuvil_fiber_switch(&scheduler_sp, f->sp);
            uint64_t canary;
            memcpy(&canary, stacks + (size_t)(f - fibers) * STACK_BYTES, sizeof canary);
            if (canary != CANARY) return "a thread overflowed its emulated stack";
            if (f->state == ENDED) ended++;
        }
        if (!progress) return "threads wait for each other without end";
    }
    return nullptr;
}

} // namespace

extern "C" {

void cuvil_emulated_syncthreads(void)
{
    Meeting &m = running->block->meeting;
    m.arrived++;
    running->state = AT_BLOCK;
    if (full(m)) release_block(running->block);
    yield_as(running->state);
}

void cuvil_emulated_syncwarp(void)
{
    Meeting &m = running->warp->meeting;
    m.arrived++;
    running->state = AT_WARP;
    if (full(m)) release_warp(running->warp);
    yield_as(running->state);
}

void cuvil_emulated_cluster_sync(void)
{
    cluster_meeting.arrived++;
    running->state = AT_CLUSTER;
    if (full(cluster_meeting)) release_cluster();
    yield_as(running->state);
}

/* Two sets of values in turn: a lane that is one exchange ahead waits there for those that still read this one. */
const uint64_t *cuvil_emulated_exchange(uint64_t value, unsigned *live)
{
    Warp *w = running->warp;
    const unsigned lane = running->self.lane;
    uint64_t *values = w->values[w->turn[lane]++ & 1u];
    values[lane] = value;
    cuvil_emulated_syncwarp();
    *live = w->live;
    return values;
}

void *cuvil_emulated_at(void *p, unsigned rank)
{
    return shared_memory + rank * shared_stride + ((unsigned char *)p - running->self.shared);
}

void cuvil_emulated_copy(void *shared, const void *global, unsigned bytes, int kept)
{
    Copy *c = take<Copy>(1);
    *c = {shared, global, bytes, kept, nullptr};
    if (draw() & 1u) perform(c); /* at once, as it may be; else at the wait, as late as it may be */
    else running->open.add(c);
}

void cuvil_emulated_commit(void)
{
    Group *g = take<Group>(1);
    g->copies = running->open;
    running->open = {};
    if (running->groups) running->last_group->next = g;
    else running->groups = g;
    running->last_group = g;
    running->group_count++;
}

void cuvil_emulated_copy_wait(int pending)
{
    for (; running->group_count > pending; running->group_count--) {
        for (Copy *c = running->groups->copies.first; c; c = c->next) perform(c);
        running->groups = running->groups->next;
    }
}

/* The guard opens when no thread of the block, or cluster, has work left before its own wait. */
void cuvil_emulated_grid_wait(void)
{
    if (!closed) return;
    if (!running) {
        set_guard(false);
        return;
    }
    running->waited = true;
    for (bool all = false; closed && !all;) {
        all = true;
        for (int k = 0; k < fiber_count; k++) all = all && (fibers[k].waited || fibers[k].state != READY);
        if (all) set_guard(false);
        else yield_as(READY);
    }
}

/* Runs a whole grid; arguments are the kernel's pointers. NULL, or the sentence that says what went wrong. */
const char *cuvil_emulate(void (*run)(void *const *), void *const *arguments, const unsigned grid[3], unsigned threads,
                          unsigned shared_bytes, unsigned cluster, int independent, uint64_t seed)
{
    kernel = run;
    kernel_arguments = arguments;
    running = nullptr;
    touched = false;
    random_state = seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    if (independent) {
        cuvil_self self = {{0, 0, 0}, {0, 0, 0}, {threads, 1, 1}, {grid[0], grid[1], grid[2]}, nullptr, 0, 0};
        cuvil_now = &self;
        for (self.block.z = 0; self.block.z < grid[2]; self.block.z++)
            for (self.block.y = 0; self.block.y < grid[1]; self.block.y++)
                for (self.block.x = 0; self.block.x < grid[0]; self.block.x++) {
                    const unsigned watched = (unsigned)(draw() % threads); /* one of a block: a guard takes time */
                    for (self.thread.x = 0; self.thread.x < threads; self.thread.x++) {
                        if (guard_count && self.thread.x == watched) set_guard(true);
                        run(arguments);
                    }
                }
        cuvil_now = nullptr;
        return ended();
    }
    if (threads * cluster > MAX_FIBERS || cluster > 16 || shared_bytes > MAX_SHARED)
        return "a launch is larger than the emulator takes";
    if (!pool) pool = (unsigned char *)reserve(POOL_BYTES);
    if (!stacks) stacks = (unsigned char *)reserve(MAX_FIBERS * STACK_BYTES);
    if (!shared_memory) shared_memory = (unsigned char *)reserve(16 * MAX_SHARED);
    if (!pool || !stacks || !shared_memory) return "there is no memory for the emulator";
    shared_stride = (shared_bytes + 4095) / 4096 * 4096;
    const uint64_t groups = (uint64_t)grid[0] / cluster * grid[1] * grid[2];
    uint64_t first, step;
    shuffle(groups, &first, &step);
    for (uint64_t k = 0; k < groups; k++) {
        const uint64_t g = (first + k * step) % groups, row = grid[0] / cluster;
        const char *problem = run_group((unsigned)(g % row) * cluster, (unsigned)(g / row % grid[1]),
                                        (unsigned)(g / row / grid[1]), grid, threads, cluster);
        if (problem) return problem;
    }
    return ended();
}
}
