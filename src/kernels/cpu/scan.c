/* Running sums along an axis. Each line is added in double precision from one end to the other: the
 * bits do not depend on the team. Called through the op table (kernels.h). */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

enum { LINES = 32 }; /* of one item */

/* Line l of a group of `lines` neighbours begins l * line_step elements behind the first. */
typedef struct scan_job {
    int64_t groups, lines, line_step; /* groups of lines that lie side by side */
    int64_t group_step, size, step;   /* of an element to the next one of its line */
    int64_t chunks;                   /* items of a group */
    bool reverse;
    const float *x;
    float *y;
} scan_job;

/* Rows in memory: their sum stays in a register. */
static void scan_row(const scan_job *j, int64_t first)
{
    const int64_t step = j->reverse ? -1 : 1;
    int64_t at = first + (j->reverse ? j->size - 1 : 0);
    double sum = 0.0;
    for (int64_t s = 0; s < j->size; s++, at += step) {
        sum += (double)j->x[at];
        j->y[at] = (float)sum;
    }
}

static void scan_lines(const scan_job *j, int64_t first, int64_t n)
{
    double sum[LINES] = {0.0};
    for (int64_t s = 0; s < j->size; s++) {
        const int64_t at = first + (j->reverse ? j->size - 1 - s : s) * j->step;
        for (int64_t l = 0; l < n; l++) {
            sum[l] += (double)j->x[at + l * j->line_step];
            j->y[at + l * j->line_step] = (float)sum[l];
        }
    }
}

static void scan_range(const void *job, int64_t begin, int64_t end)
{
    const scan_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        const int64_t line = item % j->chunks * LINES;
        const int64_t n = j->lines - line < LINES ? j->lines - line : LINES;
        for (int64_t l = line; j->step == 1 && l < line + n; l++) {
            scan_row(j, l * j->size);
        }
        if (j->step != 1) {
            scan_lines(j, item / j->chunks * j->group_step + line * j->line_step, n);
        }
    }
}

lvn_status lvni_cpu_cumsum(const lvn_kernel_args *args)
{
    const lvn_scan_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < x->ndim; i++) {
        outer *= i < attr->axis ? x->shape[i] : 1;
        inner *= i > attr->axis ? x->shape[i] : 1;
    }
    scan_job j = {.size = x->shape[attr->axis],
                  .reverse = attr->reverse,
                  .x = LVNI_CF32(x),
                  .y = LVNI_F32(args->out[0])};
    if (inner == 1) { /* rows */
        j.groups = 1;
        j.lines = outer;
        j.line_step = j.size;
        j.step = 1;
    } else {
        j.groups = outer;
        j.lines = inner;
        j.line_step = 1;
        j.step = inner;
    }
    j.group_step = j.size * inner;
    j.chunks = lvni_cpu_div_up(j.lines, LINES);
    lvni_cpu_par(j.groups * j.chunks, 1, j.size * (j.lines < LINES ? j.lines : LINES), scan_range,
                 &j);
    return LVN_OK;
}
