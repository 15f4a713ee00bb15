/* levin ops [NAME]: the op table as the program has it (kernels/ops.def): which types the kernel of
 * each backend takes, and what an op takes. */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/pins.h"
#include "core/str.h"
#include "kernels/kernels.h"
#include "ops/second.h"
#include "tensor/backend.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- backends ---- */

/* cpu, ref and sim, then those of LEVIN_BACKEND_PATH, which are loaded for it. dry computes
 * nothing. */
typedef struct backends {
    int kind[LVNI_BACKENDS];
    int n;
} backends;

static void add_backend(backends *b, const char *name)
{
    int kind;
    if (lvni_tensor_backend_find(name, &kind) != LVN_OK) {
        lvni_core_print(stderr, "warning: %s\n", lvn_last_error()->message);
    } else if (b->n < LVNI_BACKENDS) {
        b->kind[b->n++] = kind;
    }
}

static void find_backends(backends *b)
{
    lvni_core_str names = {0};
    *b = (backends){.n = 0};
    lvni_core_str_append(&names, "cpu ref sim ");
    lvni_tensor_backend_names(" ", &names);
    char *text = lvni_core_str_take(&names), *rest = NULL;
    for (char *name = text == NULL ? NULL : strtok_r(text, " ", &rest); name != NULL;
         name = strtok_r(NULL, " ", &rest)) {
        add_backend(b, name);
    }
    lvni_core_free(text);
}

static const char *name_of(int kind)
{
    return lvni_tensor_backend_get(kind)->name;
}

/* The float types that its kernel takes, in the order of the table; "" when there is no kernel. The
 * other 16-bit types go through f32 copies. */
static const struct type {
    lvn_dtype dtype;
    const char *name;
    char letter;
} types[] = {
    {LVN_F32, "f32", 's'}, {LVN_BF16, "bf16", 'b'}, {LVN_F16, "f16", 'h'}, {LVN_F64, "f64", 'd'}};
enum { TYPES = sizeof types / sizeof *types };

static unsigned types_of(int kind, const lvni_kernels_op_info *op)
{
    const lvn_backend_kernel *k = lvni_kernels_row(kind, (lvni_kernels_op)op->number);
    return k == NULL ? 0 : k->dtypes;
}

/* "sb": a letter for each. */
static const char *letters(int kind, const lvni_kernels_op_info *op, char text[TYPES + 1])
{
    int n = 0;
    for (int i = 0; i < TYPES; i++) {
        if ((types_of(kind, op) & 1u << types[i].dtype) != 0) {
            text[n++] = types[i].letter;
        }
    }
    text[n] = '\0';
    return n == 0 ? "-" : text;
}

/* In which type an op runs under bf16-mixed and 16-mixed. */
static const char *mixed(const lvni_kernels_op_info *op)
{
    const bool beside = (unsigned)op->flags / LVNI_BESIDE != 0; /* the other inputs stay */
    return (op->flags & LVNI_LOW) != 0               ? "low"
           : (op->flags & LVNI_FULL) != 0 && !beside ? "f32"
           : (op->flags & LVNI_WIDEST) != 0          ? "widest"
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

static int width(int kind)
{
    const int n = (int)strlen(name_of(kind));
    return n > TYPES ? n : TYPES;
}

static void print_table(void)
{
    backends b;
    find_backends(&b);
    printf("%-24s %-4s %-4s", "op", "in", "out");
    for (int i = 0; i < b.n; i++) {
        printf(" %-*s", width(b.kind[i]), name_of(b.kind[i]));
    }
    printf(" %-7s%-5s%s\n", "mixed", "2nd", "what it does");
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        const lvni_kernels_op_info *op = &lvni_kernels_ops[i];
        char in[16], out[16];
        printf("%-24s %-4s %-4s", op->name, inputs(op, in), outputs(op, out));
        for (int k = 0; k < b.n; k++) {
            char text[TYPES + 1];
            printf(" %-*s", width(b.kind[k]), letters(b.kind[k], op, text));
        }
        printf(" %-7s%-5s%s\n", mixed(op), lvni_ops_has_second((lvni_kernels_op)i) ? "yes" : "-",
               op->sentence);
    }
    printf("%d ops. Under a backend: the types that its kernel takes (s: f32, b: bf16, h: f16, d: "
           "f64; -: it has none), other 16-bit types as\n"
           "f32 copies; on the CPU f64 goes to ref and all else to cpu. mixed: the type under "
           "bf16-mixed and 16-mixed (low: bf16 or f16; widest:\n"
           "f32 when one input is; given: that of the inputs). 2nd: create_graph works. `levin ops "
           "NAME` prints all of one\n",
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

/* "cpu         f32 bf16, f16 as f32 copies" */
static void print_backends(const lvni_kernels_op_info *op)
{
    backends b;
    find_backends(&b);
    for (int i = 0; i < b.n; i++) {
        const unsigned own = types_of(b.kind[i], op);
        /* copies are made by the backend's own cast */
        const bool casts =
            (own & 1u << LVN_F32) != 0 && lvni_kernels_row(b.kind[i], LVNI_OP_cast) != NULL;
        const char *before = "", *copies = ", ";
        printf("  %-10s  ", name_of(b.kind[i]));
        for (int t = 0; t < TYPES; t++) {
            if ((own & 1u << types[t].dtype) != 0) {
                printf("%s%s", before, types[t].name);
                before = " ";
            }
        }
        for (int t = 0; t < TYPES && casts; t++) {
            if ((own & 1u << types[t].dtype) == 0 && types[t].dtype != LVN_F64) {
                printf("%s%s", copies, types[t].name);
                copies = " ";
            }
        }
        printf("%s\n", own == 0 ? "no kernel" : copies[0] == ' ' ? " as f32 copies" : "");
    }
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
    print_backends(op);
    printf("  mixed       %s\n", mixed(op));
    printf("  2nd         %s\n", lvni_ops_has_second((lvni_kernels_op)(op - lvni_kernels_ops))
                                     ? "its gradient has a gradient (create_graph)"
                                     : "no second derivative");
    print_bits(op);
}

int lvni_cli_op_unknown(const char *name)
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
    if (n > 0 && strcmp(args[0], "check") == 0) {
        return lvni_cli_cmd_ops_check(n - 1, args + 1);
    }
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
    return lvni_cli_op_unknown(args[0]);
}
