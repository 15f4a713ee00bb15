/* Reproducibility of the own vector kernels: the bits of every case are the same for teams of 1, 2
 * and 3, for aligned and misaligned memory, and for every instruction set (this program runs itself
 * again with LEVIN_CPU_ISA set). */
#include "core/alloc.h"
#include "kernels/cpu/isa.h"
#include "vec_support.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* more than a team is woken for */
enum { FLAT_N = 9 * LVNI_FLAT_BLOCK + 1234, MAX_CASES = 128 };

typedef struct prints {
    int n;
    uint64_t of[MAX_CASES];
} prints;

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

static uint64_t print_of_case(const vec_case *c, bool misaligned)
{
    lvn_kernel_args args;
    vec_make_inputs(c, LVN_F32, &args);
    if (misaligned) {
        vec_misalign(&args);
    }
    if (lvni_kernels_run(c->op, &args, 0xf) != LVN_OK) {
        fprintf(stderr, "%s: %s\n", c->name, lvn_last_error()->message);
        exit(1);
    }
    uint64_t h = 0xcbf29ce484222325u;
    for (int o = 0; o < LVN_KERNEL_OUTPUTS && args.out[o] != NULL; o++) {
        const lvn_tensor *t = args.out[o];
        h = mix(h, t->data, (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype));
    }
    vec_release(&args);
    return h;
}

/* Optimizers and norms over a buffer that starts `lead` floats behind an aligned address. */
static uint64_t print_of_flat(int lead)
{
    enum { ARRAYS = 5, LENGTH = 5 * FLAT_N };
    float *memory = lvni_core_alloc(LVNI_TAG_MODEL, sizeof(float) * (LENGTH + 1));
    double partial[10];
    const lvni_core_rng rng = {.key = {{1, 2}}};
    for (int64_t i = 0; i < LENGTH; i++) {
        memory[lead + i] = lvni_core_rng_uniform(&rng, (uint64_t)i);
    }
    float *w = memory + lead, *g = w + FLAT_N, *m = g + FLAT_N, *v = m + FLAT_N, *u = v + FLAT_N;
    const lvn_flat_adamw adamw = {.lr = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01,
                                  .correction1 = 0.1,
                                  .correction2 = 1e-3,
                                  .grad_scale = 0.7,
                                  .decoupled = true};
    const double trust = 0.3;
    const lvn_flat_sgd sgd = {.lr = 0.1,
                              .momentum = 0.9,
                              .weight_decay = 1e-4,
                              .grad_scale = 1,
                              .clip_value = 0.9,
                              .trust = &trust};
    lvni_kernels_flat_adamw(w, g, m, v, FLAT_N, &adamw);
    lvni_kernels_flat_sgd(w, g, u, FLAT_N, &sgd);
    lvni_kernels_flat_add(g, u, FLAT_N);
    lvni_kernels_flat_lerp(m, g, 0.1f, FLAT_N, NULL);
    lvni_kernels_flat_block_sumsq(g, FLAT_N, partial);
    const double sum = lvni_kernels_flat_sum_tree(partial, lvni_kernels_flat_blocks(FLAT_N));
    const uint64_t h = mix(mix(1, w, sizeof(float) * LENGTH), &sum, sizeof sum);
    lvni_core_free(memory);
    return h;
}

/* Adafactor of one axis, of a matrix, and of the kernels of a convolution. */
static uint64_t print_of_adafactor(int lead)
{
    enum { N = 3 * 97 * 241, ARRAYS = 4, MATRICES = 3 * 241, BLOCKS = N / LVNI_FLAT_BLOCK + 1 };
    static const int64_t shapes[][4] = {{0}, {1, 291, 241, 1}, {3, 97, 1, 241}};
    float *memory = lvni_core_alloc(LVNI_TAG_MODEL, sizeof(float) * (ARRAYS * N + 1));
    double scratch[2 * BLOCKS + MATRICES];
    const lvni_core_rng rng = {.key = {{3, 4}}};
    for (int64_t i = 0; i < ARRAYS * N; i++) {
        memory[lead + i] = lvni_core_rng_uniform(&rng, (uint64_t)i);
    }
    float *w = memory + lead, *g = w + N, *row_var = g + N, *col_var = row_var + N;
    uint64_t h = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const lvn_flat_adafactor p = {.lr = 0.1,
                                      .beta2_decay = -0.8,
                                      .eps1 = 0x1p-23,
                                      .eps2 = 1e-3,
                                      .d = 1.0,
                                      .weight_decay = 0.01,
                                      .grad_scale = 0.7,
                                      .t = 3.0,
                                      .outer = shapes[i][0],
                                      .rows = shapes[i][1],
                                      .cols = shapes[i][2],
                                      .inner = shapes[i][3],
                                      .scratch = scratch};
        lvni_kernels_flat_adafactor(w, g, row_var, p.outer == 0 ? NULL : col_var, N, &p);
        h = mix(h, w, sizeof(float) * ARRAYS * N);
    }
    lvni_core_free(memory);
    return h;
}

static prints take_prints(int team, bool misaligned)
{
    prints p = {.n = vec_case_count + 2};
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(team, NULL);
    if (ctx == NULL || p.n > MAX_CASES) {
        exit(1);
    }
    lvni_tensor_ctx_set(ctx);
    for (int i = 0; i < vec_case_count; i++) {
        p.of[i] = print_of_case(&vec_cases[i], misaligned);
    }
    p.of[vec_case_count] = print_of_flat(misaligned ? 1 : 0);
    p.of[vec_case_count + 1] = print_of_adafactor(misaligned ? 1 : 0);
    lvni_tensor_ctx_destroy(ctx);
    return p;
}

static void assert_same(const prints *a, const prints *b, const char *what)
{
    int bad = 0;
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        if (a->of[i] != b->of[i]) {
            print_error("%s: other bits with %s\n",
                        i < vec_case_count ? vec_cases[i].name : "flat buffers", what);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

TEST(the_team_and_alignment_decide_nothing)
{
    const prints one = take_prints(1, false), two = take_prints(2, false),
                 three = take_prints(3, true);
    assert_same(&one, &two, "a team of 2");
    assert_same(&one, &three, "a team of 3 and misaligned memory");
    assert_true(one.of[0] != one.of[1]); /* the print sees its data */
}

/* The prints of this program under another instruction set. False when the machine does not have
 * it. */
static bool prints_of(const char *isa, prints *p)
{
    int end[2];
    assert_int_equal(pipe(end), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(end[1], 3);
        setenv("LEVIN_CPU_ISA", isa, 1);
        execl("/proc/self/exe", "test_vec_reproducibility", "--prints", isa, (char *)NULL);
        _exit(127);
    }
    close(end[1]);
    FILE *f = fdopen(end[0], "r");
    const size_t got = fread(p, sizeof *p, 1, f);
    fclose(f);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    return got == 1;
}

TEST(the_instruction_set_decides_nothing)
{
    prints v2, other;
    assert_true(prints_of("v2", &v2));
    static const char *const sets[] = {"v3", "v4"};
    for (int i = 0; i < 2; i++) {
        if (prints_of(sets[i], &other)) {
            assert_same(&v2, &other, sets[i]);
        } else {
            print_message("this machine has no %s\n", sets[i]);
        }
    }
}

/* The child of prints_of: writes its prints to descriptor 3; 77 where the machine lacks the set. */
static int write_prints(const char *isa)
{
    if (lvni_cpu_isa_check() != LVN_OK || strcmp(lvni_cpu_isa()->name, isa) != 0) {
        return 77;
    }
    const prints p = take_prints(2, false);
    return write(3, &p, sizeof p) == (ssize_t)sizeof p ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--prints") == 0) {
        return write_prints(argv[2]);
    }
    return test_main(argc, argv);
}
