// Loops whose cycles and misses can be worked out by hand. Each takes a struct work * (main.c). A block ends at a
// branch: `b` before a loop keeps what comes before it out of the loop's own block.

    .text

// One FMA after the other, each waiting for the last.
    .globl dependent_fma
dependent_fma:
    ldr x3, [x0, #16]
    b 1f
1:  fmla v0.4s, v16.4s, v17.4s
    subs x3, x3, #1
    b.ne 1b
    ret

// Eight FMAs that do not wait for each other.
    .globl independent_fma
independent_fma:
    ldr x3, [x0, #16]
    b 1f
1:  fmla v0.4s, v16.4s, v17.4s
    fmla v1.4s, v16.4s, v17.4s
    fmla v2.4s, v16.4s, v17.4s
    fmla v3.4s, v16.4s, v17.4s
    fmla v4.4s, v16.4s, v17.4s
    fmla v5.4s, v16.4s, v17.4s
    fmla v6.4s, v16.4s, v17.4s
    fmla v7.4s, v16.4s, v17.4s
    subs x3, x3, #1
    b.ne 1b
    ret

// Four additions, each waiting for the last.
    .globl integer_chain
integer_chain:
    ldr x3, [x0, #16]
    b 1f
1:  add x5, x5, #1
    add x5, x5, #1
    add x5, x5, #1
    add x5, x5, #1
    subs x3, x3, #1
    b.ne 1b
    ret

// Loads 8 bytes `count` times, `stride` apart; all of that `passes` times.
    .globl walk
walk:
    ldr x6, [x0]
    ldr x2, [x0, #16]
    ldr x4, [x0, #24]
    ldr x5, [x0, #32]
2:  mov x1, x6
    mov x3, x2
    b 1f
1:  ldr x7, [x1]
    add x1, x1, x4
    subs x3, x3, #1
    b.ne 1b
    subs x5, x5, #1
    b.ne 2b
    ret

// Copies `count` times 8 bytes, `stride` apart.
    .globl copy
copy:
    ldr x1, [x0]
    ldr x2, [x0, #8]
    ldr x3, [x0, #16]
    ldr x4, [x0, #24]
    b 1f
1:  ldr x7, [x1]
    str x7, [x2]
    add x1, x1, x4
    add x2, x2, x4
    subs x3, x3, #1
    b.ne 1b
    ret

    .section .note.GNU-stack, "", %progbits
