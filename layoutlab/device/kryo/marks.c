/* The marks around a counted region, for a program that runs under the plugin of counter.c. aarch64 only.

   The mark is a system call that no kernel knows. Without the plugin it does nothing but fail. */

#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* counter.c has the same numbers. */
#define MARK 39999
enum command { START_COLD = 1, START_WARM = 2, STOP = 3, WRITE = 4 };

/* Not syscall(): the counted region should hold as little of ours as possible. */
static inline void mark(enum command command) {
    register long number __asm__("x8") = MARK;
    register long argument __asm__("x0") = command;
    __asm__ volatile("svc #0" : "+r"(argument) : "r"(number) : "memory");
}

/* Calls the function and counts that alone, from empty caches if `cold`, else from what the last region left. */
EXPORT void *layoutlab_counted(void *(*function)(void *), void *argument, long cold) {
    mark(cold ? START_COLD : START_WARM);
    void *result = function(argument);
    mark(STOP);
    return result;
}

/* Writes the counts of the last region; returns the pid that names the file, <pid>.counts. */
EXPORT long layoutlab_write_counts(void) {
    mark(WRITE);
    return (long)getpid();
}
