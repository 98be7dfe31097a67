/* A plugin for qemu-user (TCG plugin API, version 1): counts what a marked region of an aarch64 program executes.

   For every translated block: how often it ran, and what its data accesses did to a model of the caches. The guest
   marks regions with system call MARK, which no kernel knows; its first argument is one of enum command. Between
   regions nothing is counted and the caches see nothing.

   Arguments: out=DIR (required), l1_bytes, l1_ways, l2_bytes, l2_ways, streams (see struct model).

   WRITE leaves DIR/<pid>.counts, which layoutlab/device/kryo/counts.py reads. All numbers are little-endian:

       8 bytes           "LLCOUNT1"
       u64, u64          the number of blocks, the number of words of all blocks
       blocks x 7 u64    vaddr, executions, accesses, L1 misses, those that are not sequential, L2 misses, words
       words x u32       the blocks' instructions, one block after the other

   Only blocks that ran are written. One that qemu translated several times appears several times.

   A region's program has one running thread: counters are not atomic. A forked child inherits everything. */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- What we use of qemu-plugin.h, which Debian does not ship. */

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };

typedef void (*translated_fn)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*accessed_fn)(unsigned vcpu, qemu_plugin_meminfo_t, uint64_t vaddr, void *userdata);
typedef void (*syscall_fn)(qemu_plugin_id_t, unsigned vcpu, int64_t number, uint64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t);

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_fn);
extern void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, syscall_fn);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op, void *, uint64_t);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, accessed_fn, enum qemu_plugin_cb_flags,
                                             enum qemu_plugin_mem_rw, void *userdata);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

/* ---- The marks; marks.c has the same numbers. */

#define MARK 39999
enum command { START_COLD = 1, START_WARM = 2, STOP = 3, WRITE = 4 };

static bool counting;

static void fail(const char *what, const char *which) {
    fprintf(stderr, "layoutlab counter: %s: %s\n", which, what);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) fail("out of memory", "the machine");
    return memory;
}

/* ---- Blocks. Their counters lie together in chunks: a start clears hundreds of thousands in milliseconds. */

struct code {
    uint64_t vaddr;
    uint32_t words;
    uint32_t word[];
};

struct block {
    uint64_t executions;  /* qemu's own code adds to this one, between regions too */
    uint64_t executed;    /* `executions` as the last STOP found it */
    uint64_t accesses;
    uint64_t l1_misses;
    uint64_t l1_nonsequential;
    uint64_t l2_misses;
    const struct code *code;
};

#define CHUNK 4096
struct chunk {
    struct chunk *next;
    unsigned used;
    struct block block[CHUNK];
};
static struct chunk *chunks;

static struct block *new_block(const struct code *code) {
    if (!chunks || chunks->used == CHUNK) {
        struct chunk *chunk = allocate(1, sizeof *chunk);
        chunk->next = chunks;
        chunks = chunk;
    }
    struct block *block = &chunks->block[chunks->used];
    block->code = code;
    chunks->used++;
    return block;
}

#define FOR_EACH_BLOCK(block)                                     \
    for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) \
        for (struct block *block = chunk->block; block < chunk->block + chunk->used; block++)

/* ---- Pages. The addresses of buffers differ between processes, what a physically indexed cache does must not:
   each page gets the next physical page when it is first touched after START_COLD. */

#define PAGE_SHIFT 12
#define TLB_ENTRIES 1024 /* a power of two */

struct page {
    uint64_t key; /* virtual page + 1; 0 is a free entry */
    uint32_t physical;
};
static struct page tlb[TLB_ENTRIES];
static struct page *pages; /* open addressing, at most half full */
static size_t pages_size, pages_used;

static struct page *find_page(uint64_t key) {
    size_t at = (key * 0x9E3779B97F4A7C15u) >> 20;
    for (;; at++) {
        struct page *page = &pages[at & (pages_size - 1)];
        if (page->key == key || !page->key) return page;
    }
}

static void grow_pages(void) {
    struct page *old = pages;
    size_t old_size = pages_size;
    pages_size = old_size ? 2 * old_size : 4096;
    pages = allocate(pages_size, sizeof *pages);
    for (size_t i = 0; i < old_size; i++)
        if (old[i].key) *find_page(old[i].key) = old[i];
    free(old);
}

static void forget_pages(void) {
    memset(tlb, 0, sizeof tlb);
    if (pages) memset(pages, 0, pages_size * sizeof *pages);
    pages_used = 0;
}

static uint32_t physical_page(uint64_t virtual_page) {
    uint64_t key = virtual_page + 1;
    struct page *cached = &tlb[virtual_page % TLB_ENTRIES];
    if (__builtin_expect(cached->key == key, 1)) return cached->physical;
    if (2 * pages_used >= pages_size) grow_pages();
    struct page *page = find_page(key);
    if (!page->key) {
        page->key = key;
        page->physical = pages_used++;
    }
    *cached = *page;
    return page->physical;
}

/* ---- Caches: least recently used goes first, reads and writes both allocate. */

#define LINE_SHIFT 6
#define LINES_PER_PAGE (1u << (PAGE_SHIFT - LINE_SHIFT))
#define NO_LINE UINT32_MAX

struct cache {
    uint32_t sets, ways;
    uint32_t *lines; /* sets x ways, the most recently used of a set first */
};

/* By default the gold cluster of a Snapdragon 835: Kryo 280 derives from Arm's Cortex-A73, whose technical reference
   manual says that the 64 KiB L1 data cache behaves as a 16-way physically indexed one, that L2 has 16 ways, and lines
   of 64 bytes both. The 2 MiB are what Linux reports there (both as quoted by pytorch/cpuinfo, src/arm/cache.c).
   L2 holds instructions too on the chip, and serves four cores; here it holds one core's data.

   `streams` is how many runs of consecutive missing lines the prefetcher follows at a time: a miss on the line after
   the last miss of any of them is sequential. One is an assumption: with it four published latencies fit best. */
static struct model {
    uint64_t l1_bytes, l1_ways, l2_bytes, l2_ways, streams;
} model = {64 << 10, 16, 2 << 20, 16, 1};

static struct cache l1, l2;
static uint32_t *streams;      /* the last miss of each stream, the most recent first */
static uint64_t last_touched;  /* virtual line + 1: it is its set's most recent, touching it again changes nothing */

static void empty_cache(struct cache *cache) {
    memset(cache->lines, 0xff, sizeof *cache->lines * cache->sets * cache->ways);
}

static struct cache new_cache(const char *name, uint64_t bytes, uint64_t ways) {
    uint64_t sets = ways ? (bytes >> LINE_SHIFT) / ways : 0;
    if (!sets || sets & (sets - 1) || sets * ways << LINE_SHIFT != bytes)
        fail("bytes must be 64 x ways x a power of two", name);
    struct cache cache = {sets, ways, allocate(sets * ways, sizeof(uint32_t))};
    empty_cache(&cache);
    return cache;
}

static void move_to_front(uint32_t *list, uint32_t at, uint32_t value) {
    for (; at; at--) list[at] = list[at - 1];
    list[0] = value;
}

/* Whether the line was there. It is now, as the most recent of its set. */
static inline bool hit(struct cache *cache, uint32_t line) {
    uint32_t *set = cache->lines + (size_t)(line & (cache->sets - 1)) * cache->ways;
    uint32_t last = cache->ways - 1;
    for (uint32_t way = 0; way <= last; way++)
        if (set[way] == line) {
            move_to_front(set, way, line);
            return true;
        }
    move_to_front(set, last, line);
    return false;
}

static bool sequential(uint32_t line) {
    uint32_t stream = 0, last = model.streams - 1;
    while (stream < last && streams[stream] + 1 != line) stream++;
    bool follows = streams[stream] + 1 == line;
    move_to_front(streams, stream, line);
    return follows;
}

static void touch(struct block *block, uint64_t virtual_line) {
    block->accesses++;
    if (virtual_line + 1 == last_touched) return;
    last_touched = virtual_line + 1;
    uint32_t page = physical_page(virtual_line / LINES_PER_PAGE);
    uint32_t line = page * LINES_PER_PAGE + virtual_line % LINES_PER_PAGE;
    if (hit(&l1, line)) return;
    block->l1_misses++;
    if (!sequential(line)) block->l1_nonsequential++;
    if (!hit(&l2, line)) block->l2_misses++;
}

static void forget_memory(void) {
    forget_pages();
    empty_cache(&l1);
    empty_cache(&l2);
    /* NO_LINE + 1 would be line 0: the first line ever touched must not count as the next of anything. */
    for (uint64_t i = 0; i < model.streams; i++) streams[i] = NO_LINE - 1;
    last_touched = 0;
}

/* ---- Commands. */

static const char *out;

static void start(void) {
    FOR_EACH_BLOCK(block) {
        const struct code *code = block->code;
        *block = (struct block){.code = code};
    }
    counting = true;
}

static void stop(void) {
    if (!counting) return;
    counting = false;
    FOR_EACH_BLOCK(block) block->executed = block->executions;
}

static void put_u64(FILE *file, uint64_t value) { fwrite(&value, sizeof value, 1, file); }

static void put_counts(FILE *file) {
    uint64_t blocks = 0, words = 0;
    FOR_EACH_BLOCK(block) if (block->executed) {
        blocks++;
        words += block->code->words;
    }
    fwrite("LLCOUNT1", 8, 1, file);
    put_u64(file, blocks);
    put_u64(file, words);
    FOR_EACH_BLOCK(block) if (block->executed) {
        put_u64(file, block->code->vaddr);
        put_u64(file, block->executed);
        put_u64(file, block->accesses);
        put_u64(file, block->l1_misses);
        put_u64(file, block->l1_nonsequential);
        put_u64(file, block->l2_misses);
        put_u64(file, block->code->words);
    }
    FOR_EACH_BLOCK(block) if (block->executed) fwrite(block->code->word, 4, block->code->words, file);
}

/* The guest cannot be told of a failure: it shows on standard error, and as a file that is not there. */
static void write_counts(void) {
    char path[4096], partial[4096 + 8];
    snprintf(path, sizeof path, "%s/%ld.counts", out, (long)getpid());
    snprintf(partial, sizeof partial, "%s.part", path);
    FILE *file = fopen(partial, "wb");
    if (file) {
        put_counts(file);
        bool failed = ferror(file);
        if (!(fclose(file) || failed) && !rename(partial, path)) return;
    }
    fprintf(stderr, "layoutlab counter: %s: cannot be written: %s\n", path, strerror(errno));
}

/* ---- Callbacks. */

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata) {
    if (!counting) return;
    uint64_t first = vaddr >> LINE_SHIFT;
    uint64_t last = (vaddr + (1u << qemu_plugin_mem_size_shift(info)) - 1) >> LINE_SHIFT;
    touch(userdata, first);
    if (last != first) touch(userdata, last);
}

static void on_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    size_t words = qemu_plugin_tb_n_insns(tb);
    struct code *code = allocate(1, sizeof *code + words * sizeof code->word[0]);
    code->vaddr = qemu_plugin_tb_vaddr(tb);
    code->words = words;
    struct block *block = new_block(code);
    for (size_t i = 0; i < words; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        memcpy(&code->word[i], qemu_plugin_insn_data(insn), sizeof code->word[i]);
        qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, block);
    }
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &block->executions, 1);
}

static void on_syscall(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t command, uint64_t a2, uint64_t a3,
                       uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    if (number != MARK) return;
    switch (command) {
    case START_COLD:
        forget_memory();
        start();
        break;
    case START_WARM:
        start();
        break;
    case STOP:
        stop();
        break;
    case WRITE:
        stop();
        write_counts();
        break;
    }
}

/* ---- Installation. */

static void read_argument(const char *argument) {
    static const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {
        {"l1_bytes=", &model.l1_bytes}, {"l1_ways=", &model.l1_ways}, {"l2_bytes=", &model.l2_bytes},
        {"l2_ways=", &model.l2_ways},   {"streams=", &model.streams},
    };
    if (!strncmp(argument, "out=", 4)) {
        out = strdup(argument + 4);
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        size_t length = strlen(numbers[i].name);
        if (strncmp(argument, numbers[i].name, length)) continue;
        char *end;
        *numbers[i].value = strtoull(argument + length, &end, 10);
        if (*end || !*numbers[i].value) fail("expected a positive number", argument);
        return;
    }
    fail("no such argument; there are out, l1_bytes, l1_ways, l2_bytes, l2_ways and streams", argument);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    for (int i = 0; i < argc; i++) read_argument(argv[i]);
    if (!out) fail("missing; give the folder for the counts", "out=");
    l1 = new_cache("l1_bytes", model.l1_bytes, model.l1_ways);
    l2 = new_cache("l2_bytes", model.l2_bytes, model.l2_ways);
    streams = allocate(model.streams, sizeof *streams);
    forget_memory();
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    return 0;
}
