/* levin ops [NAME]: the op table as the program has it (kernels/ops.def): which kernel runs each
 * type, and what an op takes. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/pins.h"
#include "core/str.h"
#include "kernels/kernels.h"
#include "ops/second.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* lvni_kernels_run takes the type of the first input: f64 goes to the reference, all others to the
 * processor. */
static const struct column {
    const char *type;
    const char *backend;
    unsigned own; /* flag of the op without which the processor works on f32 copies */
} columns[] = {
    {"f32", "cpu", 0}, {"bf16", "cpu", LVNI_BF16}, {"f16", "cpu", LVNI_F16}, {"f64", "ref", 0}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static const char *kernel_of(const lvni_kernels_op_info *op, const struct column *c)
{
    return c->own == 0 || (op->flags & c->own) != 0 ? c->backend : "copy";
}

/* In which type an op runs under bf16-mixed and 16-mixed. */
static const char *mixed(const lvni_kernels_op_info *op)
{
    return (op->flags & LVNI_LOW) != 0      ? "low"
           : (op->flags & LVNI_FULL) != 0   ? "f32"
           : (op->flags & LVNI_WIDEST) != 0 ? "widest"
                                            : "given";
}

/* "2", or "2-3" when some may be left out. */
static const char *range(int least, int most, char text[16])
{
    snprintf(text, 16, least == most ? "%d" : "%d-%d", least, most);
    return text;
}

static const char *inputs(const lvni_kernels_op_info *op, char text[16])
{
    return range(op->n_in - lvni_kernels_op_optional(op), op->n_in, text);
}

static const char *outputs(const lvni_kernels_op_info *op, char text[16])
{
    return range((op->flags & LVNI_OPTIONAL_OUT) != 0 ? 1 : op->n_out, op->n_out, text);
}

static void print_table(void)
{
    printf("%-24s %-4s %-4s", "op", "in", "out");
    for (int c = 0; c < COLUMNS; c++) {
        printf(" %-4s", columns[c].type);
    }
    printf(" %-7s%-5s%s\n", "mixed", "2nd", "what it does");
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        const lvni_kernels_op_info *op = &lvni_kernels_ops[i];
        char in[16], out[16];
        printf("%-24s %-4s %-4s", op->name, inputs(op, in), outputs(op, out));
        for (int c = 0; c < COLUMNS; c++) {
            printf(" %-4s", kernel_of(op, &columns[c]));
        }
        printf(" %-7s%-5s%s\n", mixed(op), lvni_ops_has_second((lvni_kernels_op)i) ? "yes" : "-",
               op->sentence);
    }
    printf("%d ops. Under a type: the backend whose kernel takes it (copy: cpu, on f32 copies). "
           "mixed: the type under bf16-mixed and\n"
           "16-mixed (low: bf16 or f16; widest: f32 when one input is; given: that of the inputs). "
           "2nd: create_graph works.\n"
           "`levin ops NAME` prints all of one\n",
           (int)LVNI_OP_COUNT);
}

static void print_bits(const lvni_kernels_op_info *op)
{
    if ((op->flags & LVNI_REDUCING) == 0) {
        printf("  bits        the same on any number of threads, unless the attributes change "
               "that\n");
        return;
    }
    printf("  bits        depend on ");
    int n = 0;
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        const lvni_core_pin *pin = &lvni_core_pin_table[i];
        if (strcmp(pin->backend, "cpu") == 0) { /* whose kernels the flag is about */
            printf("%s%s", n++ > 0 ? ", " : "", pin->key);
        }
    }
    printf(" and on nothing else of the layout\n");
}

static void print_op(const lvni_kernels_op_info *op)
{
    static const char *const left_out[] = {"", "; the last may be left out",
                                           "; the last two may be left out"};
    char in[16], out[16];
    printf("%s: %s\n", op->name, op->sentence);
    printf("  inputs      %s%s\n", inputs(op, in),
           lvni_kernels_op_optional(op) > 2 ? "; as many as are given"
                                            : left_out[lvni_kernels_op_optional(op)]);
    printf("  outputs     %s%s\n", outputs(op, out),
           (op->flags & LVNI_OPTIONAL_OUT) != 0 ? "; those after the first on demand" : "");
    printf("  attributes  %s\n", op->attributes);
    for (int c = 0; c < COLUMNS; c++) {
        const char *kernel = kernel_of(op, &columns[c]);
        printf("  %-10s  %s\n", columns[c].type,
               strcmp(kernel, "copy") == 0 ? "cpu, on f32 copies" : kernel);
    }
    printf("  mixed       %s\n", mixed(op));
    printf("  2nd         %s\n", lvni_ops_has_second((lvni_kernels_op)(op - lvni_kernels_ops))
                                     ? "its gradient has a gradient (create_graph)"
                                     : "no second derivative");
    print_bits(op);
}

static int unknown(const char *name)
{
    const char *near = NULL;
    size_t nearest = SIZE_MAX;
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        const size_t d = lvni_core_edit_distance(name, lvni_kernels_ops[i].name);
        if (d <= lvni_core_edit_limit(name, lvni_kernels_ops[i].name) && d < nearest) {
            near = lvni_kernels_ops[i].name;
            nearest = d;
        }
    }
    lvni_core_print(stderr, "error: there is no op %s%s%s%s; `levin ops` lists all\n", name,
                    near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                    near != NULL ? "?" : "");
    return LVNI_EXIT_USAGE;
}

int lvni_cli_cmd_ops(int n, const char *const *args)
{
    if (n > 1) {
        return lvni_cli_command_misused("ops");
    }
    if (n == 0) {
        print_table();
        return LVNI_EXIT_OK;
    }
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        if (strcmp(args[0], lvni_kernels_ops[i].name) == 0) {
            print_op(&lvni_kernels_ops[i]);
            return LVNI_EXIT_OK;
        }
    }
    return unknown(args[0]);
}
