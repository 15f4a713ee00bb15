/* levin ops [NAME]: the op table as the program has it (kernels/ops.def): which kernel runs each type, and what an op takes. */
#include "cli/cli.h"
#include "core/edit_distance.h"
#include "core/exit_code.h"
#include "kernels/kernels.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* lvni_run takes the type of the first input: f64 goes to the reference, all others to the processor. */
static const struct column {
    const char *type;
    const char *backend;
} columns[] = {{"f32", "cpu"}, {"f64", "ref"}};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* "2", or "2-3" when some may be left out. */
static const char *range(int least, int most, char text[16])
{
    snprintf(text, 16, least == most ? "%d" : "%d-%d", least, most);
    return text;
}

static const char *inputs(const lvni_op_info *op, char text[16])
{
    return range(op->n_in - ((op->flags & LVNI_OPTIONAL_LAST) != 0), op->n_in, text);
}

static const char *outputs(const lvni_op_info *op, char text[16])
{
    return range((op->flags & LVNI_OPTIONAL_OUT) != 0 ? 1 : op->n_out, op->n_out, text);
}

static void print_table(void)
{
    printf("%-24s %-4s %-4s", "op", "in", "out");
    for (int c = 0; c < COLUMNS; c++) {
        printf(" %-4s", columns[c].type);
    }
    puts(" what it does");
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        const lvni_op_info *op = &lvni_ops[i];
        char in[16], out[16];
        printf("%-24s %-4s %-4s", op->name, inputs(op, in), outputs(op, out));
        for (int c = 0; c < COLUMNS; c++) {
            printf(" %-4s", columns[c].backend);
        }
        printf(" %s\n", op->sentence);
    }
    printf("%d ops; `levin ops NAME` tells more of one\n", (int)LVNI_OP_COUNT);
}

static void print_op(const lvni_op_info *op)
{
    char in[16], out[16];
    printf("%s: %s\n", op->name, op->sentence);
    printf("  inputs      %s%s\n", inputs(op, in), (op->flags & LVNI_OPTIONAL_LAST) != 0 ? "; the last may be left out" : "");
    printf("  outputs     %s%s\n", outputs(op, out), (op->flags & LVNI_OPTIONAL_OUT) != 0 ? "; those after the first on demand" : "");
    printf("  attributes  %s\n", op->attributes);
    for (int c = 0; c < COLUMNS; c++) {
        printf("  %s         %s backend\n", columns[c].type, columns[c].backend);
    }
    printf("  bits        %s\n", (op->flags & LVNI_REDUCING) != 0 ? "depend on wgrad_threads and on nothing else of the layout"
                                                                : "the same on any number of threads, unless the attributes say otherwise");
}

static int unknown(const char *name)
{
    const char *near = NULL;
    size_t nearest = SIZE_MAX;
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        const size_t d = lvni_edit_distance(name, lvni_ops[i].name);
        if (d <= lvni_edit_limit(name, lvni_ops[i].name) && d < nearest) {
            near = lvni_ops[i].name;
            nearest = d;
        }
    }
    fprintf(stderr, "error: there is no op %s%s%s%s; `levin ops` lists all\n", name, near != NULL ? "; did you mean " : "",
            near != NULL ? near : "", near != NULL ? "?" : "");
    return LVNI_EXIT_USAGE;
}

int lvni_cmd_ops(int n, const char *const *words)
{
    if (n > 1) {
        fputs("usage: levin ops [NAME]\n", stderr);
        return LVNI_EXIT_USAGE;
    }
    if (n == 0) {
        print_table();
        return LVNI_EXIT_OK;
    }
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        if (strcmp(words[0], lvni_ops[i].name) == 0) {
            print_op(&lvni_ops[i]);
            return LVNI_EXIT_OK;
        }
    }
    return unknown(words[0]);
}
