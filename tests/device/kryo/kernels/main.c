/* main KERNEL COUNT STRIDE PASSES SKIP ACTION...: runs a kernel of kernels.S on two buffers, the first of which
   begins SKIP bytes late. ACTION is cold or warm for a counted region, plain for a run without marks that also reads
   more than the caches hold, fork to go on in a child process too. At the end the counts of the last region are written. */

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *layoutlab_counted(void *(*function)(void *), void *argument, long cold);
long layoutlab_write_counts(void);

/* Not on the stack: its place there depends on the arguments' length. */
static struct work {
    char *source, *target;
    long count, stride, passes;
} work __attribute__((aligned(64)));

void *dependent_fma(void *), *independent_fma(void *), *integer_chain(void *), *walk(void *), *copy(void *);

static const struct {
    const char *name;
    void *(*run)(void *);
} kernels[] = {
    {"dependent_fma", dependent_fma}, {"independent_fma", independent_fma}, {"integer_chain", integer_chain},
    {"walk", walk},                   {"copy", copy},
};

#define BUFFER_BYTES (8 << 20)
static _Alignas(4096) char source[BUFFER_BYTES], target[BUFFER_BYTES];

static void read_target(void) {
    for (volatile char *at = target; at < target + BUFFER_BYTES; at += 64) (void)*at;
}

int main(int argc, char **argv) {
    work = (struct work){source + atol(argv[5]), target, atol(argv[2]), atol(argv[3]), atol(argv[4])};
    void *(*run)(void *) = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (!strcmp(argv[1], kernels[i].name)) run = kernels[i].run;
    if (!run) return 1;
    for (int i = 6; i < argc; i++) {
        if (!strcmp(argv[i], "fork")) {
            fork();
        } else if (!strcmp(argv[i], "plain")) {
            run(&work);
            read_target();
        } else {
            layoutlab_counted(run, &work, !strcmp(argv[i], "cold"));
        }
    }
    layoutlab_write_counts();
    wait(NULL);
    return 0;
}
