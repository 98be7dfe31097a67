/* What objects compiled by a Relay-era TVM (0.8 to 0.19) need of its runtime, for one thread, and a loop over the calls
   of their graph. It is linked into their library, which then needs nothing but libc and libm.

   The objects reach the runtime through variables such as __TVMBackendAllocWorkspace. They are set when the library is
   loaded; a TVM that loads the same library sets them to its own functions later, and everything works as it is used to.

   With -DLAYOUTLAB_GRAPH the library also holds the files graph.json and params.bin of the folder it is compiled in.
   With -DLAYOUTLAB_MAIN=NAME today's TVM finds the objects' function NAME in the library, as its function `main`.
   graph.py and runner.py have the other side of all this. Nothing is included: the same code compiles for any system. */

typedef unsigned long size;

extern int posix_memalign(void **memory, size alignment, size bytes);
extern int clock_gettime(int clock, long time[2]);

#define EXPORT __attribute__((visibility("default")))
#define OF_THE_OBJECTS extern __attribute__((weak))

/* ---- The last error, which runner.py reads. */

EXPORT char layoutlab_error[1024];

static void append_error(const char *text, size at) {
    for (; *text && at < sizeof layoutlab_error - 1; at++) layoutlab_error[at] = *text++;
    layoutlab_error[at] = 0;
}

static size error_length(void) {
    size length = 0;
    while (layoutlab_error[length]) length++;
    return length;
}

static void layoutlab_set_error(const char *message) { append_error(message, 0); }

/* ---- Memory within a function: blocks that are kept and given out again, the smallest that is large enough first.
   Whole pages, so that what lies where within a page does not depend on what was allocated before. */

#define PAGE 4096
#define BLOCKS 256

static struct block {
    void *memory;
    size bytes;
    int used;
} blocks[BLOCKS];

static struct block *new_block(size bytes) {
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &blocks[i];
        if (block->memory) continue;
        if (posix_memalign(&block->memory, PAGE, bytes)) block->memory = 0;
        block->bytes = bytes;
        return block->memory ? block : 0;
    }
    return 0;
}

static void *layoutlab_allocate(int device_type, int device, unsigned long long wanted, int code, int bits) {
    size bytes = (wanted + PAGE - 1) / PAGE * PAGE;
    struct block *best = 0;
    for (int i = 0; i < BLOCKS && blocks[i].memory; i++) {
        struct block *block = &blocks[i];
        if (!block->used && block->bytes >= bytes && (!best || block->bytes < best->bytes)) best = block;
    }
    if (!best) best = new_block(bytes ? bytes : PAGE);
    if (!best) return 0;
    best->used = 1;
    return best->memory;
}

static int layoutlab_free(int device_type, int device, void *memory) {
    for (int i = 0; i < BLOCKS && blocks[i].memory; i++) {
        if (blocks[i].memory != memory) continue;
        blocks[i].used = 0;
        return 0;
    }
    return 0;
}

/* ---- Parallel loops: one thread does all of it. */

struct group {
    void *barrier;
    int tasks;
};
typedef int (*task_fn)(int task, struct group *, void *closure);

static int layoutlab_launch(task_fn task, void *closure, int tasks) {
    struct group group = {0, 1};
    return task(0, &group, closure);
}

static int layoutlab_barrier(int task, struct group *group) { return 0; }

/* ---- Functions that are not in the objects: there are none. */

static int layoutlab_find(void *module, const char *name, void **function) {
    layoutlab_set_error("it calls ");
    append_error(name, error_length());
    append_error(", a function of TVM's runtime", error_length());
    return -1;
}

static int layoutlab_call(void *function, void *arguments, int *codes, int count, void *result, int *result_code) {
    layoutlab_set_error("it calls a function of TVM's runtime");
    return -1;
}

/* ---- The variables of the objects; an object has those that it uses. */

OF_THE_OBJECTS void *__TVMAPISetLastError, *__TVMBackendAllocWorkspace, *__TVMBackendFreeWorkspace,
    *__TVMBackendParallelLaunch, *__TVMBackendParallelBarrier, *__TVMBackendGetFuncFromEnv, *__TVMFuncCall;

__attribute__((constructor)) static void layoutlab_connect(void) {
    const struct {
        void **variable;
        void *function;
    } all[] = {
        {&__TVMAPISetLastError, layoutlab_set_error},        {&__TVMBackendAllocWorkspace, layoutlab_allocate},
        {&__TVMBackendFreeWorkspace, layoutlab_free},        {&__TVMBackendParallelLaunch, layoutlab_launch},
        {&__TVMBackendParallelBarrier, layoutlab_barrier},   {&__TVMBackendGetFuncFromEnv, layoutlab_find},
        {&__TVMFuncCall, layoutlab_call},
    };
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].variable) *all[i].variable = all[i].function;
}

/* ---- The graph: its calls, one after the other. runner.py has the same struct. */

struct call {
    int (*function)(void *arguments, int *codes, int count, void *result, int *result_code, void *resource);
    void *arguments;
    int *codes;
    int count;
};

static int do_call(const struct call *call) {
    layoutlab_error[0] = 0;
    long long result = 0;
    int result_code = 0;
    return call->function(call->arguments, call->codes, call->count, &result, &result_code, 0);
}

/* Returns 0, or the number of the call that failed, counted from 1. */
EXPORT int layoutlab_run(const struct call *calls, int count) {
    for (int i = 0; i < count; i++)
        if (do_call(&calls[i])) return i + 1;
    return 0;
}

#define CLOCK_MONOTONIC 1

static long long now_ns(void) {
    long time[2];
    clock_gettime(CLOCK_MONOTONIC, time);
    return time[0] * 1000000000ll + time[1];
}

/* The same, with the nanoseconds that each call took. */
EXPORT int layoutlab_run_timed(const struct call *calls, int count, long long *elapsed_ns) {
    for (int i = 0; i < count; i++) {
        long long begun = now_ns();
        if (do_call(&calls[i])) return i + 1;
        elapsed_ns[i] = now_ns() - begun;
    }
    return 0;
}

/* ---- The files. Aligned as TVM aligns tensors. */

#ifdef LAYOUTLAB_GRAPH
#define HOLD(name, file)                                                                    \
    __asm__(".section .rodata\n.balign 64\n.global " #name "\n" #name ":\n.incbin \"" file "\"\n" \
            ".global " #name "_end\n" #name "_end:\n.byte 0\n.text\n")
HOLD(layoutlab_graph, "executor.json");
HOLD(layoutlab_params, "params.bin");
#endif

/* ---- One function as today's TVM calls those of its own libraries (TVMFFISafeCallType of tvm/ffi/c_api.h). */

#ifdef LAYOUTLAB_MAIN
#define STRINGS_OF(name) #name
#define STRING_OF(name) STRINGS_OF(name)
#define MOST_ARGUMENTS 64

/* TVMFFIAny; a tensor is an object whose DLTensor stands behind its header. Both TVMs have the same DLTensor. */
struct any {
    int type, padding;
    char *value;
};
enum { ANY_NONE = 0, ANY_DL_TENSOR = 7, ANY_TENSOR = 70 };
#define OBJECT_HEADER 24

enum { ARGUMENT_TENSOR = 7 }; /* kTVMDLTensorHandle of c_runtime_api.h */

extern int LAYOUTLAB_MAIN(void *arguments, int *codes, int count, void *result, int *result_code, void *resource);
extern __attribute__((weak)) void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);

static int raise_error(void) {
    if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr("RuntimeError", layoutlab_error);
    return -1;
}

EXPORT int layoutlab_main(void *self, const struct any *given, int count, struct any *result)
    __asm__("__tvm_ffi_main");

EXPORT int layoutlab_main(void *self, const struct any *given, int count, struct any *result) {
    char *arguments[MOST_ARGUMENTS];
    int codes[MOST_ARGUMENTS];
    layoutlab_set_error(STRING_OF(LAYOUTLAB_MAIN) " takes up to 64 tensors and nothing else");
    if (count > MOST_ARGUMENTS) return raise_error();
    for (int i = 0; i < count; i++) {
        if (given[i].type != ANY_TENSOR && given[i].type != ANY_DL_TENSOR) return raise_error();
        arguments[i] = given[i].value + (given[i].type == ANY_TENSOR ? OBJECT_HEADER : 0);
        codes[i] = ARGUMENT_TENSOR;
    }
    struct call call = {LAYOUTLAB_MAIN, arguments, codes, count};
    if (do_call(&call)) return raise_error();
    result->type = ANY_NONE;
    return 0;
}
#endif
