/* Emulation of one multiprocessor of a GPU: runs the blocks of a CUDA kernel one after the other.

   host_kernels.py compiles a CUDA source together with this header. Each thread of a block is a
   fiber: it has its own stack and runs until it reaches a barrier, where it returns to the
   scheduler.

       scheduler    block -> warp -> lane        picks the next lane that is ready
                              |    ^
                       resume |    | wait
                              v    |
       fiber        ... a[i] = x; __syncwarp(); y = a[j]; __syncthreads(); ...

   A warp advances in phases. Every ready lane runs to its next barrier; then the warp's barriers
   that are complete release their lanes. A block barrier releases its threads when the last one
   arrives. If threads remain and none is ready, the barriers are divergent: the launch fails, and
   the message says where the threads wait. */

#pragma once
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <type_traits>
#include <utility>

/* Fibers are switched in assembly on x86-64 and by the C library elsewhere. */
#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_ASSEMBLY 1
#else
#define EMULATOR_ASSEMBLY 0
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define EMULATOR_ASAN 0
#endif

/* ---- Qualifiers, vector types and arithmetic of CUDA C++ ------------------------------------ */

#define __device__
#define __host__
#define __global__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__
/* __shared__ is not defined: host_kernels.py rewrites the declarations that have it. */

struct uint3 {
    unsigned x, y, z;
};
typedef uint3 dim3;

#define EMULATOR_VECTORS(Type, name)                                                           \
    struct alignas(2 * sizeof(Type)) name##2 {                                                 \
        Type x, y;                                                                             \
    };                                                                                         \
    struct alignas(16) name##4 {                                                               \
        Type x, y, z, w;                                                                       \
    };                                                                                         \
    static inline name##2 make_##name##2(Type x, Type y) { return {x, y}; }                    \
    static inline name##4 make_##name##4(Type x, Type y, Type z, Type w)                       \
    {                                                                                          \
        return {x, y, z, w};                                                                   \
    }
EMULATOR_VECTORS(int, int)
EMULATOR_VECTORS(unsigned, uint)
EMULATOR_VECTORS(long long, longlong)
EMULATOR_VECTORS(float, float)
EMULATOR_VECTORS(double, double)

namespace emulator {

template <class To, class From> static inline To bit_cast(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* Floating-point numbers are compared by fmin and fmax, which prefer a number to a NaN. */
template <class T> static inline T smaller(T a, T b, std::false_type) { return b < a ? b : a; }
template <class T> static inline T smaller(T a, T b, std::true_type) { return fmin(a, b); }
template <class T> static inline T larger(T a, T b, std::false_type) { return a < b ? b : a; }
template <class T> static inline T larger(T a, T b, std::true_type) { return fmax(a, b); }

} // namespace emulator

template <class A, class B, class C = typename std::common_type<A, B>::type>
static inline C min(A a, B b)
{
    return emulator::smaller<C>(a, b, std::is_floating_point<C>());
}
template <class A, class B, class C = typename std::common_type<A, B>::type>
static inline C max(A a, B b)
{
    return emulator::larger<C>(a, b, std::is_floating_point<C>());
}

template <class T> static inline T __ldg(const T *place) { return *place; }
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }

static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }

static inline long long __double_as_longlong(double a) { return emulator::bit_cast<long long>(a); }
static inline double __longlong_as_double(long long a) { return emulator::bit_cast<double>(a); }
static inline int __float_as_int(float a) { return emulator::bit_cast<int>(a); }
static inline float __int_as_float(int a) { return emulator::bit_cast<float>(a); }
static inline unsigned __float_as_uint(float a) { return emulator::bit_cast<unsigned>(a); }
static inline float __uint_as_float(unsigned a) { return emulator::bit_cast<float>(a); }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __clz(int a) { return a ? __builtin_clz(a) : 32; }

/* Threads are switched only at barriers, so plain code is atomic. */
#define EMULATOR_ATOMIC(name, value_after)                                                     \
    template <class T> static inline T name(T *place, typename std::common_type<T>::type value) \
    {                                                                                          \
        const T before = *place;                                                               \
        *place = value_after;                                                                  \
        return before;                                                                         \
    }
EMULATOR_ATOMIC(atomicAdd, before + value)
EMULATOR_ATOMIC(atomicSub, before - value)
EMULATOR_ATOMIC(atomicMin, value < before ? value : before)
EMULATOR_ATOMIC(atomicMax, before < value ? value : before)
EMULATOR_ATOMIC(atomicAnd, before &value)
EMULATOR_ATOMIC(atomicOr, before | value)
EMULATOR_ATOMIC(atomicExch, value)
template <class T>
static inline T atomicCAS(T *place, typename std::common_type<T>::type expected,
                          typename std::common_type<T>::type value)
{
    const T before = *place;
    if (before == expected) *place = value;
    return before;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

namespace emulator {

/* ---- Fibers --------------------------------------------------------------------------------- */

static const size_t STACK = 256 << 10, STACK_GUARD = 64 << 10; /* bytes */

/* A stack and the saved registers of the function that runs on it. The scheduler has one too. */
struct Fiber {
#if EMULATOR_ASSEMBLY
    void **stack_pointer; /* the registers are on the stack */
#else
    ucontext_t registers;
#endif
    char *stack; /* lowest address, above the guard */
    size_t size; /* of the stack, in bytes */
    Fiber *next_free;
    void *fake_stack; /* of AddressSanitizer */
};

static Fiber scheduler;

/* The function that all fibers run. */
static void run_threads();

#if EMULATOR_ASSEMBLY

/* Save the registers that a function must preserve, and continue with those of another fiber. */
extern "C" void emulator_switch(void ***from, void **to) __attribute__((visibility("hidden")));
__asm__(R"(
        .text
        .type emulator_switch, @function
emulator_switch:
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
)");

static void switch_context(Fiber &from, Fiber &to)
{
    emulator_switch(&from.stack_pointer, to.stack_pointer);
}

static void prepare_context(Fiber &fiber)
{
    void **top = (void **)(fiber.stack + fiber.size);
    *--top = nullptr; /* run_threads never returns; this aligns its frame to 16 bytes */
    *--top = (void *)run_threads;
    for (int k = 0; k < 6; ++k) *--top = nullptr;
    fiber.stack_pointer = top;
}

#else

static void switch_context(Fiber &from, Fiber &to) { swapcontext(&from.registers, &to.registers); }

static void prepare_context(Fiber &fiber)
{
    getcontext(&fiber.registers);
    fiber.registers.uc_stack.ss_sp = fiber.stack;
    fiber.registers.uc_stack.ss_size = fiber.size;
    fiber.registers.uc_link = nullptr;
    makecontext(&fiber.registers, run_threads, 0);
}

#endif

#if EMULATOR_ASAN
static void leave(Fiber &from, Fiber &to)
{
    __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.size);
}
/* A fiber is entered from the scheduler; this is where AddressSanitizer tells its stack. */
static void enter(Fiber &fiber)
{
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(fiber.fake_stack, &stack, &size);
    if (&fiber != &scheduler) scheduler.stack = (char *)stack, scheduler.size = size;
}
#else
static void leave(Fiber &, Fiber &) {}
static void enter(Fiber &) {}
#endif

static void switch_fiber(Fiber &from, Fiber &to)
{
    leave(from, to);
    switch_context(from, to);
    enter(from);
}

static Fiber fibers[1024], *free_fibers;
static int fiber_count;

/* Return a fiber for the next thread, or null if memory is exhausted. */
static Fiber *take_fiber()
{
    if (Fiber *fiber = free_fibers) {
        free_fibers = fiber->next_free;
        return fiber;
    }
    Fiber *fiber = &fibers[fiber_count];
    if (!fiber->stack) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *memory = mmap(nullptr, STACK_GUARD + STACK, PROT_NONE, flags, -1, 0);
        if (memory == MAP_FAILED) return nullptr;
        fiber->stack = (char *)memory + STACK_GUARD;
        /* stacks start at different offsets in a page: at the same one they compete for the same
           lines of the cache */
        fiber->size = STACK - fiber_count * 320 % 4096;
        if (mprotect(fiber->stack, STACK, PROT_READ | PROT_WRITE)) return nullptr;
    }
    ++fiber_count;
    fiber->fake_stack = nullptr;
    prepare_context(*fiber);
    return fiber;
}

static void free_fiber(Fiber *fiber)
{
    fiber->next_free = free_fibers;
    free_fibers = fiber;
}

/* ---- Threads, warps and the state of a launch ------------------------------------------------ */

/* The call at which a thread waits. */
struct Wait {
    const char *call;
    int barrier;   /* number of the block barrier, or -1 at a call of the warp */
    unsigned mask; /* lanes of the warp that take part */
    const char *file;
    int line;
};

struct Thread {
    uint3 index;
    int number; /* within the block, x first */
    Fiber *fiber;
    Wait wait;
    uint64_t offered, exchanged; /* this lane's value in the next exchange, and in the last one */
};

/* Sets of lanes. Those that exist and are neither ready nor exited wait. */
struct Warp {
    unsigned exists, ready, exited;
};

struct Barrier {
    int arrived, expected;
};

struct Kernel {
    const char *name;
    void (*call)(void **arguments);
    int bound; /* threads of a block at most, from __launch_bounds__; 0 without it */
    int count; /* of parameters */
    const struct Parameter *parameters;
    const char *declarations; /* of the parameters, one a line */
};

static const Kernel *kernel;
static void **arguments;
static uint3 grid_size, block_size, block_index;
static Thread threads[1024], *current;
static Warp warps[32];
static Barrier barriers[16];
static int thread_count;
static unsigned runnable; /* set of the warps with ready lanes */
static bool failed;
static char message[2000];

#define threadIdx (emulator::current->index)
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size
#define warpSize 32

/* Report an error. The thread that made it is not continued. */
__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    char text[1200];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    failed = true;
    const uint3 b = block_index;
    int length = snprintf(message, sizeof message, "block (%u, %u, %u)", b.x, b.y, b.z);
    if (current) {
        const uint3 t = current->index;
        length += snprintf(message + length, sizeof message - length, ", thread (%u, %u, %u)",
                           t.x, t.y, t.z);
    }
    snprintf(message + length, sizeof message - length, ": %s", text);
    if (current) switch_fiber(*current->fiber, scheduler);
}

/* Run one thread after the other on this fiber. */
static void run_threads()
{
    Fiber &self = *current->fiber;
    enter(self);
    for (;;) {
        kernel->call(arguments);
        warps[current->number / 32].exited |= 1u << current->number % 32;
        free_fiber(&self);
        switch_fiber(self, scheduler);
    }
}

static void resume(Thread &thread)
{
    if (!thread.fiber && !(thread.fiber = take_fiber())) {
        fail("no memory for the stack of a thread");
        return;
    }
    current = &thread;
    switch_fiber(scheduler, *thread.fiber);
    current = nullptr;
}

/* ---- The order of blocks, warps and lanes ---------------------------------------------------- */

static uint64_t order; /* state of the random numbers, or 0 for the natural order */

/* splitmix64 (Steele, Lea and Flood 2014) */
static uint64_t random_number()
{
    uint64_t z = order += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Return an element of a set of up to 32, the smallest or a random one. */
static int element_of(unsigned set)
{
    if (order) {
        for (int skip = random_number() % __builtin_popcount(set); skip; --skip) set &= set - 1;
    }
    return __builtin_ctz(set);
}

/* Permutation k -> (a k + b) mod n, with a and n coprime. */
struct Permutation {
    uint64_t a, b, n;

    explicit Permutation(uint64_t n) : a(1), b(0), n(n)
    {
        if (!order) return;
        b = random_number() % n;
        do a = random_number() % n;
        while (divisor(a, n) > 1);
    }
    static uint64_t divisor(uint64_t a, uint64_t b) { return b ? divisor(b, a % b) : a; }
    uint64_t operator()(uint64_t k) const { return (uint64_t)(((__uint128_t)a * k + b) % n); }
};

/* ---- Barriers -------------------------------------------------------------------------------- */

/* Last parameters of a function: the place in the source where it is called. */
#define EMULATOR_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static bool waits(const Thread &thread)
{
    const Warp &warp = warps[thread.number / 32];
    return !((warp.ready | warp.exited) >> thread.number % 32 & 1);
}

static void make_ready(const Thread &thread)
{
    warps[thread.number / 32].ready |= 1u << thread.number % 32;
    runnable |= 1u << thread.number / 32;
}

/* Release the threads at a block barrier. The lanes of a warp must wait in the same line. */
static void release(int barrier)
{
    const Thread *before = nullptr;
    for (int t = 0; t < thread_count; ++t) {
        const Thread &thread = threads[t];
        if (!waits(thread) || thread.wait.barrier != barrier) continue;
        if (before && before->number / 32 == t / 32 && before->wait.line != thread.wait.line) {
            fail("divergent barrier: lanes of one warp wait at %s in %s:%d and %s:%d",
                 thread.wait.call, before->wait.file, before->wait.line, thread.wait.file,
                 thread.wait.line);
        }
        before = &thread;
        make_ready(thread);
    }
    barriers[barrier].arrived = 0;
}

/* Wait until `count` threads of the block have arrived, as PTX's bar.sync. */
static void block_barrier(const char *call, int barrier, int count, const char *file, int line)
{
    if (barrier < 0 || barrier > 15) fail("%s: barriers are numbered 0 to 15", call);
    Barrier &at = barriers[barrier];
    if (at.arrived && at.expected != count) {
        fail("%s in %s:%d: expects %d threads, and those that wait there expect %d", call, file,
             line, count, at.expected);
    }
    at.expected = count;
    current->wait = {call, barrier, 0, file, line};
    if (++at.arrived == count) release(barrier);
    switch_fiber(*current->fiber, scheduler);
}

static void named_barrier(int barrier, int count, EMULATOR_HERE)
{
    if (count <= 0 || count % 32) fail("bar.sync: %d threads are not whole warps", count);
    block_barrier("bar.sync", barrier, count, file, line);
}

/* Wait for the other lanes of the mask, and offer them a value. */
static void warp_barrier(const char *call, unsigned mask, uint64_t value, const char *file,
                         int line)
{
    const int lane = current->number % 32;
    if (!(mask >> lane & 1)) {
        fail("%s in %s:%d: lane %d is not in its mask 0x%08x", call, file, line, lane, mask);
    }
    current->offered = value;
    current->wait = {call, -1, mask, file, line};
    switch_fiber(*current->fiber, scheduler);
}

static bool same_call(const Wait &a, const Wait &b)
{
    return a.call == b.call || !strcmp(a.call, b.call);
}

/* Release the lanes of a warp for which all lanes of their mask wait at the same call. */
static void release_lanes(int w)
{
    Warp &warp = warps[w];
    Thread *lanes = threads + 32 * w;
    unsigned waiting = warp.exists & ~warp.ready & ~warp.exited;
    while (waiting) {
        const Wait &wait = lanes[__builtin_ctz(waiting)].wait;
        waiting &= waiting - 1;
        if (wait.barrier >= 0) continue;
        const unsigned members = wait.mask & warp.exists;
        bool complete = !(members & (warp.ready | warp.exited));
        for (unsigned rest = members; rest && complete; rest &= rest - 1) {
            const Wait &other = lanes[__builtin_ctz(rest)].wait;
            complete = other.barrier < 0 && other.mask == wait.mask && same_call(wait, other);
        }
        if (!complete) continue;
        for (unsigned rest = members; rest; rest &= rest - 1) {
            Thread &thread = lanes[__builtin_ctz(rest)];
            thread.exchanged = thread.offered;
            make_ready(thread);
        }
        waiting &= ~members;
    }
}

/* Report where the threads of a block are when none of them can continue. */
static void report_divergence()
{
    struct Group {
        const Thread *first;
        bool exited;
        int count;
    } groups[4];
    int number = 0;
    for (int t = 0; t < thread_count; ++t) {
        const bool exited = !waits(threads[t]);
        const Wait &wait = threads[t].wait;
        int g = 0;
        for (; g < number; ++g) {
            const Wait &other = groups[g].first->wait;
            if (exited != groups[g].exited) continue;
            const bool alike = other.line == wait.line && other.mask == wait.mask;
            if (exited || (alike && same_call(other, wait))) break;
        }
        if (g == number && number < 4) groups[number++] = {&threads[t], exited, 0};
        if (g < number) ++groups[g].count;
    }
    char text[1100];
    int length = 0;
    for (int g = 0; g < number; ++g) {
        const uint3 t = groups[g].first->index;
        const Wait &wait = groups[g].first->wait;
        char state[200] = "have exited", mask[40] = "";
        if (wait.barrier < 0) snprintf(mask, sizeof mask, " with mask 0x%08x", wait.mask);
        if (!groups[g].exited) {
            snprintf(state, sizeof state, "wait at %s%s in %s:%d", wait.call, mask, wait.file,
                     wait.line);
        }
        length += snprintf(text + length, sizeof text - length, "%s %d %s, first (%u, %u, %u)",
                           g ? ";" : "", groups[g].count, state, t.x, t.y, t.z);
    }
    fail("divergent barrier: of %d threads%s", thread_count, text);
}

/* ---- Shared memory ---------------------------------------------------------------------------

   Guards separate the variables:

       guard | dynamic shared memory | guard | static variable | guard | static variable | guard

   When a block starts, all bytes of its variables are 0xff, which is NaN in every format. The
   pattern of the guards is also NaN; it is checked when the block ends. */

static const size_t MOST_SHARED = 232448, GUARD = 4096; /* bytes */
static const int MOST_AREAS = 32;

/* The dynamic shared memory, which is the first area, or a static variable. */
struct Area {
    const char *name;
    unsigned char *begin, *end;
};

alignas(1024) static unsigned char room[MOST_SHARED + MOST_AREAS * 2 * GUARD];
static unsigned char *const dynamic_shared = room + GUARD;
static unsigned char pattern[2 * GUARD];
static Area areas[MOST_AREAS];
static int area_count;
static size_t shared_bytes, shared_limit; /* of all areas together */
static unsigned launch_number;

static void poison(const Area &area) { memset(area.begin, 0xff, area.end - area.begin); }

#if EMULATOR_ASAN
static void guard(unsigned char *begin, unsigned char *end)
{
    __asan_poison_memory_region(begin, end - begin);
}
static void open_room() { __asan_unpoison_memory_region(room, sizeof room); }
static void check_guards() {}
#else
static void guard(unsigned char *begin, unsigned char *end)
{
    memcpy(begin, pattern + ((uintptr_t)begin & 1), end - begin);
}
static void open_room()
{
    for (size_t k = 0; k < sizeof pattern; ++k) pattern[k] = k % 2 ? 0xff : 0xfa;
}

/* Report a guard that was overwritten, as an offset into the nearest area. */
static void check_guards()
{
    for (int a = 0; a <= area_count; ++a) {
        const unsigned char *begin = a ? areas[a - 1].end : room;
        const unsigned char *end = a < area_count ? areas[a].begin : begin + GUARD;
        const unsigned char *expected = pattern + ((uintptr_t)begin & 1);
        if (!memcmp(begin, expected, end - begin)) continue;
        size_t first = 0, last = end - begin - 1;
        while (begin[first] == expected[first]) ++first;
        while (begin[last] == expected[last]) --last;
        const bool behind = a == area_count || (a && begin + first <= end - last);
        const Area &area = areas[behind ? a - 1 : a];
        const unsigned char *written = begin + (behind ? first : last);
        fail("shared memory was written out of bounds: byte %td of %s (%td bytes)",
             written - area.begin, area.name, area.end - area.begin);
        return;
    }
}
#endif

static unsigned char *add_area(const char *name, unsigned char *begin, size_t bytes)
{
    shared_bytes += bytes;
    if (shared_bytes > shared_limit) {
        fail("%s brings shared memory to %zu bytes; the limit is %zu", name, shared_bytes,
             shared_limit);
        return nullptr;
    }
    const Area area = {name, begin, begin + bytes};
    guard(area_count ? areas[area_count - 1].end : room, area.begin);
    guard(area.end, area.end + GUARD);
    poison(area);
    areas[area_count++] = area;
    return begin;
}

/* A static variable. It gets its address when a launch first reaches the declaration. */
struct SharedVariable {
    const char *name;
    unsigned launch;
    unsigned char *address;
};

template <class T> static inline T &shared_variable(SharedVariable &variable)
{
    if (variable.launch != launch_number) {
        const uintptr_t free = (uintptr_t)areas[area_count - 1].end + GUARD;
        unsigned char *begin = (unsigned char *)((free + 127) / 128 * 128);
        variable.address = add_area(variable.name, begin, sizeof(T));
        variable.launch = launch_number;
    }
    return *(T *)variable.address;
}

/* `__shared__ T name[n]` is EMULATOR_SHARED(name, T[n]), and `extern __shared__ T name[]` is
   EMULATOR_DYNAMIC_SHARED(name, T). */
#define EMULATOR_SHARED(name, ...)                                                             \
    auto &name = []() -> auto & {                                                              \
        static emulator::SharedVariable variable = {#name, 0, nullptr};                        \
        using Type = __VA_ARGS__;                                                              \
        return emulator::shared_variable<Type>(variable);                                      \
    }()
#define EMULATOR_DYNAMIC_SHARED(name, ...)                                                     \
    __attribute__((unused)) static __VA_ARGS__ *const name =                                   \
        (__VA_ARGS__ *)emulator::dynamic_shared

/* ---- Launches -------------------------------------------------------------------------------- */

enum Kind { POINTER, INTEGER, REAL, STRUCT };

struct Parameter {
    int kind;
    unsigned size;
};

template <class A> static constexpr Kind kind_of()
{
    return std::is_pointer<A>::value                               ? POINTER
           : std::is_integral<A>::value || std::is_enum<A>::value ? INTEGER
           : std::is_floating_point<A>::value                     ? REAL
                                                                  : STRUCT;
}

template <class A> static inline A argument(const void *bytes)
{
    typename std::remove_cv<A>::type value;
    memcpy((void *)&value, bytes, sizeof value);
    return value;
}

/* A kernel that takes its arguments by address, and its signature as a table. */
template <class Signature, Signature *function> struct Entry;

template <class... A, void (*function)(A...)> struct Entry<void(A...), function> {
    template <size_t... k> static void spread(void **bytes, std::index_sequence<k...>)
    {
        (void)bytes;
        function(argument<A>(bytes[k])...);
    }
    static void call(void **bytes) { spread(bytes, std::index_sequence_for<A...>()); }
    static const Parameter *parameters()
    {
        static const Parameter list[] = {{kind_of<A>(), (unsigned)sizeof(A)}..., {0, 0}};
        return list;
    }
    static Kernel kernel(const char *name, const char *declarations, int bound)
    {
        return {name, call, bound, (int)sizeof...(A), parameters(), declarations};
    }
};

/* The first value of __launch_bounds__(threads, blocks, ...). */
static constexpr int first_of(int threads, ...) { return threads; }

static void number_threads()
{
    int number = 0;
    for (unsigned z = 0; z < block_size.z; ++z) {
        for (unsigned y = 0; y < block_size.y; ++y) {
            for (unsigned x = 0; x < block_size.x; ++x, ++number) {
                threads[number].index = {x, y, z};
                threads[number].number = number;
            }
        }
    }
}

static void run_phase(int w)
{
    Warp &warp = warps[w];
    for (unsigned pending = warp.ready; pending && !failed;) {
        const int lane = element_of(pending);
        pending &= ~(1u << lane);
        warp.ready &= ~(1u << lane);
        resume(threads[32 * w + lane]);
    }
}

static void run_block()
{
    for (int a = 0; a < area_count; ++a) poison(areas[a]);
    memset(warps, 0, sizeof warps);
    memset(barriers, 0, sizeof barriers);
    for (int t = 0; t < thread_count; ++t) threads[t].fiber = nullptr;
    for (int first = 0; first < thread_count; first += 32) {
        const int lanes = thread_count - first < 32 ? thread_count - first : 32;
        warps[first / 32].exists = warps[first / 32].ready = 0xffffffffu >> (32 - lanes);
        runnable |= 1u << first / 32;
    }
    /* in every other block a warp runs on to a block barrier before another one is chosen */
    const bool greedy = order && random_number() % 2;
    int w = -1;
    while (runnable && !failed) {
        if (!greedy || w < 0 || !(runnable >> w & 1)) w = element_of(runnable);
        run_phase(w);
        release_lanes(w);
        if (!warps[w].ready) runnable &= ~(1u << w);
    }
    bool exited = true;
    for (const Warp &warp : warps) exited = exited && warp.exited == warp.exists;
    if (!failed && !exited) report_divergence();
    if (!failed) check_guards();
}

#if !EMULATOR_ASAN

/* Access to unmapped memory ends the launch instead of the process. */
static const int FAULTS[] = {SIGSEGV, SIGBUS};
static struct sigaction previous[2];
static stack_t previous_stack;
static pthread_t launcher;

static void report_fault(int, siginfo_t *info, void *)
{
    if (!current || !pthread_equal(pthread_self(), launcher)) {
        /* the fault of another thread: it occurs again, and the previous handler takes it */
        for (int k = 0; k < 2; ++k) sigaction(FAULTS[k], &previous[k], nullptr);
        return;
    }
    const char *address = (const char *)info->si_addr, *stack = current->fiber->stack;
    if (address < stack && address >= stack - STACK_GUARD) {
        fail("stack overflow: a thread has %zu bytes for local variables and calls", STACK);
    }
    fail("illegal address %p", info->si_addr);
}

static void catch_faults()
{
    static char memory[64 << 10];
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = sizeof memory;
    sigaltstack(&stack, &previous_stack);
    launcher = pthread_self();
    struct sigaction action = {};
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int k = 0; k < 2; ++k) sigaction(FAULTS[k], &action, &previous[k]);
}

static void release_faults()
{
    for (int k = 0; k < 2; ++k) sigaction(FAULTS[k], &previous[k], nullptr);
    sigaltstack(&previous_stack, nullptr);
}

#else
static void catch_faults() {}
static void release_faults() {}
#endif

/* Run all blocks of a grid. Return null, or the message of the error. */
static const char *launch(const Kernel *which, const unsigned *grid, const unsigned *block,
                          size_t dynamic_bytes, size_t limit, uint64_t seed, void **bytes)
{
    kernel = which;
    arguments = bytes;
    grid_size = {grid[0], grid[1], grid[2]};
    block_size = {block[0], block[1], block[2]};
    block_index = {0, 0, 0};
    thread_count = block[0] * block[1] * block[2];
    order = seed;
    failed = false;
    current = nullptr;
    runnable = 0;
    /* after a launch that failed, fibers are in the middle of a thread: prepare all of them anew */
    free_fibers = nullptr;
    fiber_count = 0;
    ++launch_number;
    open_room();
    area_count = 0;
    shared_bytes = 0;
    shared_limit = limit;
    add_area("the dynamic shared memory", dynamic_shared, dynamic_bytes);
    number_threads();
    const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    const Permutation nth(blocks);
    catch_faults();
    for (uint64_t k = 0; k < blocks && !failed; ++k) {
        const uint64_t b = nth(k);
        block_index = {(unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]),
                       (unsigned)(b / grid[0] / grid[1])};
        run_block();
    }
    release_faults();
    return failed ? message : nullptr;
}

} // namespace emulator

extern "C" __attribute__((visibility("default"))) const char *
emulator_launch(const emulator::Kernel *kernel, const unsigned *grid, const unsigned *block,
                size_t dynamic_bytes, size_t limit, uint64_t seed, void **arguments)
{
    return emulator::launch(kernel, grid, block, dynamic_bytes, limit, seed, arguments);
}

/* ---- Run-time checks of the compiler ----------------------------------------------------------

   With -fsanitize=alignment,bounds-strict,... the compiler calls these functions. The first
   argument points to a structure that begins with the place in the source. */

namespace emulator {

struct SourcePlace {
    const char *file;
    unsigned line, column;
};

} // namespace emulator

/* The compiler has its own declarations of these names, so they are given as labels. */
#define EMULATOR_HANDLER(name, format, ...)                                                    \
    extern "C" __attribute__((visibility("hidden"))) void emulator_##name(                     \
        const emulator::SourcePlace *, intptr_t, intptr_t) __asm__("__ubsan_handle_" #name);   \
    extern "C" __attribute__((used)) void emulator_##name(                                     \
        const emulator::SourcePlace *place, intptr_t a, intptr_t b)                            \
    {                                                                                          \
        (void)a, (void)b;                                                                      \
        emulator::fail(format " in %s:%u", __VA_ARGS__, place->file, place->line);             \
    }
EMULATOR_HANDLER(type_mismatch_v1, "misaligned address %p", (void *)a)
EMULATOR_HANDLER(out_of_bounds, "index %td out of the bounds of an array", a)
EMULATOR_HANDLER(shift_out_of_bounds, "shift by %td bits", b)
EMULATOR_HANDLER(divrem_overflow, "integer division of %td by %td", a, b)
EMULATOR_HANDLER(float_cast_overflow, "%s", "conversion of a number that the type cannot hold")

/* ---- Barriers and exchanges of CUDA C++ ------------------------------------------------------ */

static inline void __syncthreads(EMULATOR_HERE)
{
    emulator::block_barrier("__syncthreads", 0, emulator::thread_count, file, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATOR_HERE)
{
    emulator::warp_barrier("__syncwarp", mask, 0, file, line);
}

namespace emulator {

static unsigned lane() { return current->number % 32; }

/* Exchange values. Return that of lane `from`, or a NaN if that lane does not take part. */
template <class T>
static T shuffle(const char *call, unsigned mask, T value, unsigned from, const char *file,
                 int line)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles are of 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    warp_barrier(call, mask, bits, file, line);
    const unsigned first = current->number / 32 * 32;
    const bool takes_part = (mask & warps[first / 32].exists) >> from & 1;
    bits = takes_part ? threads[first + from].exchanged : ~(uint64_t)0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Return the set of lanes whose value is not 0. */
static unsigned vote(const char *call, unsigned mask, bool value, const char *file, int line)
{
    warp_barrier(call, mask, value, file, line);
    const unsigned first = current->number / 32 * 32;
    unsigned votes = 0;
    for (unsigned rest = mask & warps[first / 32].exists; rest; rest &= rest - 1) {
        const int k = __builtin_ctz(rest);
        votes |= (unsigned)(threads[first + k].exchanged != 0) << k;
    }
    return votes;
}

} // namespace emulator

/* Shuffles among groups of `width` lanes. A lane that would read from another group keeps its own
   value. */
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, EMULATOR_HERE)
{
    const unsigned group = emulator::lane() & ~(width - 1u);
    return emulator::shuffle("__shfl_sync", mask, value, group + (from & (width - 1)), file, line);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATOR_HERE)
{
    const unsigned lane = emulator::lane(), place = lane & (width - 1u);
    const unsigned from = place >= by ? lane - by : lane;
    return emulator::shuffle("__shfl_up_sync", mask, value, from, file, line);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                                 EMULATOR_HERE)
{
    const unsigned lane = emulator::lane(), place = lane & (width - 1u);
    const unsigned from = place + by < (unsigned)width ? lane + by : lane;
    return emulator::shuffle("__shfl_down_sync", mask, value, from, file, line);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, EMULATOR_HERE)
{
    const unsigned lane = emulator::lane(), partner = lane ^ by;
    const unsigned from = partner < (lane | (width - 1u)) + 1 ? partner : lane;
    return emulator::shuffle("__shfl_xor_sync", mask, value, from, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int value, EMULATOR_HERE)
{
    return emulator::vote("__ballot_sync", mask, value, file, line);
}

static inline int __any_sync(unsigned mask, int value, EMULATOR_HERE)
{
    return emulator::vote("__any_sync", mask, value, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int value, EMULATOR_HERE)
{
    return emulator::vote("__all_sync", mask, !value, file, line) == 0;
}
