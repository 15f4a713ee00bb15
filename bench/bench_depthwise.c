/* The depthwise 7x7 convolutions of ConvNeXt-T's four stages, batch 8 of 224 x 224, forward and
 * both gradients, against the time that memory takes: a copy of as many bytes as the op reads and
 * writes, by the same cores, in turns with it. Prints ms as median [least, largest] and what part
 * of its time the op would take if memory were all; writes out/bench/depthwise.json.
 *
 * usage: bench_depthwise, run by `make bench`. Judges nothing. */
#include "bench_support.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { TURNS = 15, BATCH = 8, SIDE = 7, OPS = 3, STAGES = 4 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

typedef struct copy_job {
    const char *from;
    char *to;
} copy_job;

static void copy_range(const void *job, int64_t begin, int64_t end)
{
    const copy_job *j = job;
    memcpy(j->to + begin, j->from + begin, (size_t)(end - begin));
}

typedef struct stage {
    lvn_tensor *x, *y, *w;
    lvn_conv_attr attr;
    char *from, *to;
    size_t bytes; /* of x, and of y */
} stage;

static void stage_close(stage *s)
{
    lvn_release(s->x);
    lvn_release(s->y);
    lvn_release(s->w);
    free(s->from);
    free(s->to);
}

static lvn_status stage_open(stage *s, int64_t side, int64_t channels)
{
    const int64_t image[] = {BATCH, side, side, channels}, window[] = {channels, SIDE, SIDE, 1};
    s->x = lvn_tensor_create(LVN_F32, 4, image);
    s->y = lvn_tensor_create(LVN_F32, 4, image);
    s->w = lvn_tensor_create(LVN_F32, 4, window);
    if (s->x == NULL || s->y == NULL || s->w == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->bytes = (size_t)lvn_numel(s->x) * sizeof(float);
    s->from = malloc(s->bytes);
    s->to = malloc(s->bytes);
    if (s->from == NULL || s->to == NULL) {
        return LVN_ERR_MEMORY;
    }
    memset(s->from, 1, s->bytes);
    memset(s->to, 1, s->bytes);
    for (int64_t i = 0; i < lvn_numel(s->x); i++) {
        ((float *)s->x->data)[i] = ((float *)s->y->data)[i] = (float)(i % 13) - 6.0f;
    }
    for (int64_t i = 0; i < lvn_numel(s->w); i++) {
        ((float *)s->w->data)[i] = (float)(i % 7) - 3.0f;
    }
    s->attr = (lvn_conv_attr){.stride = {1, 1},
                              .padding = {SIDE / 2, SIDE / 2},
                              .dilation = {1, 1},
                              .groups = (int)channels,
                              .in_h = side,
                              .in_w = side,
                              .kernel = {SIDE, SIDE}};
    return LVN_OK;
}

static const char *const names[OPS] = {"forward", "input gradient", "weight gradient"};

static lvn_status run_op(stage *s, int op)
{
    static const lvni_kernels_op ops[OPS] = {LVNI_OP_conv2d, LVNI_OP_conv2d_grad_input,
                                             LVNI_OP_conv2d_grad_weight};
    lvn_kernel_args args = {.attr = &s->attr};
    args.in[0] = op == 0 ? s->x : s->y;
    args.in[1] = op == 2 ? s->x : s->w;
    args.out[0] = op == 0 ? s->y : op == 1 ? s->x : s->w;
    return lvni_kernels_run(ops[op], &args, 1);
}

/* Reads one image and writes another; the weight gradient reads two, which is as much. */
static lvn_status measure(stage *s, int op, double *ops_ms, double *copies_ms)
{
    LVN_TRY(run_op(s, op));
    for (int i = 0; i < TURNS; i++) {
        const double start = now_ms();
        LVN_TRY(run_op(s, op));
        const double middle = now_ms();
        const copy_job copy = {.from = s->from, .to = s->to};
        lvni_cpu_par((int64_t)s->bytes, 4096, 1, copy_range, &copy);
        ops_ms[i] = middle - start;
        copies_ms[i] = now_ms() - middle;
    }
    return LVN_OK;
}

static lvn_status measure_stage(FILE *json, int64_t side, int64_t channels)
{
    stage s = {0};
    lvn_status status = stage_open(&s, side, channels);
    for (int op = 0; status == LVN_OK && op < OPS; op++) {
        double ops_ms[TURNS], copies_ms[TURNS];
        status = measure(&s, op, ops_ms, copies_ms);
        if (status != LVN_OK) {
            break;
        }
        const double op_ms = bench_median(ops_ms, TURNS), copy_ms = bench_median(copies_ms, TURNS);
        printf("%3lld x %-3lld %4lld channels, %-15s %7.2f ms [%.2f, %.2f], copy %6.2f ms: %.2f\n",
               (long long)side, (long long)side, (long long)channels, names[op], op_ms, ops_ms[0],
               ops_ms[TURNS - 1], copy_ms, copy_ms / op_ms);
        fprintf(json, ",\n  \"%lld %s\": {\"ms\": %.4f, \"copy_ms\": %.4f}", (long long)channels,
                names[op], op_ms, copy_ms);
    }
    stage_close(&s);
    return status;
}

int main(void)
{
    static const int64_t sides[STAGES] = {56, 28, 14, 7};
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/depthwise.json", "w");
    if (json == NULL) {
        perror("out/bench/depthwise.json");
        return 1;
    }
    bench_describe(stdout, json);
    lvn_status s = LVN_OK;
    for (int i = 0; s == LVN_OK && i < STAGES; i++) {
        s = measure_stage(json, sides[i], 96LL << i);
    }
    fprintf(json, "\n}\n");
    if (fclose(json) != 0 || s != LVN_OK) {
        fprintf(stderr, "bench_depthwise: %s\n", lvn_last_error()->message);
        return 1;
    }
    return 0;
}
