/* levin's own backends, and every backend's kernels by op: looked up in each call of an op (run.c),
 * so it is an array. cpu's rows are made of ops.def, whose flags give the types its kernels take.
 */
#include "kernels/kernels_decl.h"

#include "core/str.h"
#include "tensor/backend.h"
#include "tensor/device.h"

#include <levin/device.h>

#include <string.h>

static const lvn_backend_kernel *row[LVNI_BACKENDS][LVNI_OP_COUNT];

const lvn_backend_kernel *lvni_kernels_row(int kind, lvni_kernels_op op)
{
    return row[kind][op];
}

bool lvni_kernels_are_of_cpu(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const lvni_tensor_device *d = ctx == NULL ? NULL : ctx->device;
    return d == NULL || lvni_tensor_device_kind(d) < LVN_DEVICE_LOADED;
}

const char *lvni_kernels_describe(void)
{
    return lvni_kernels_are_of_cpu()
               ? lvni_cpu_describe()
               : lvni_tensor_device_info(lvni_tensor_ctx_get()->device)->fingerprint;
}

/* likely: levin's own tables are in the order of ops.def, and are looked at in every start; their
 * names are mostly the same strings. */
static int find_op(const char *name, int likely)
{
    if (likely < LVNI_OP_COUNT && (lvni_kernels_ops[likely].name == name ||
                                   strcmp(lvni_kernels_ops[likely].name, name) == 0)) {
        return likely;
    }
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        if (strcmp(lvni_kernels_ops[op].name, name) == 0) {
            return op;
        }
    }
    return -1;
}

static const char *nearest_op(const char *name)
{
    const char *near = lvni_kernels_ops[0].name;
    for (int op = 1; op < LVNI_OP_COUNT; op++) {
        if (lvni_core_edit_distance(name, lvni_kernels_ops[op].name) <
            lvni_core_edit_distance(name, near)) {
            near = lvni_kernels_ops[op].name;
        }
    }
    return near;
}

static lvn_status resolve(int kind, const lvn_backend *backend)
{
    memset(row[kind], 0, sizeof row[kind]); /* of a table that was refused half-way */
    for (int i = 0; i < backend->n_kernels; i++) {
        const lvn_backend_kernel *k = &backend->kernels[i];
        const int op = k->op == NULL ? -1 : find_op(k->op, i);
        if (op < 0) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "the backend %s has a kernel for an op that there is not: %s; did you mean "
                     "%s? (`levin ops` lists all)",
                     backend->name, k->op == NULL ? "NULL" : k->op,
                     nearest_op(k->op == NULL ? "" : k->op));
        }
        LVN_ARG(k->run != NULL, "the backend %s: the row of %s has no function", backend->name,
                k->op);
        row[kind][op] = k;
    }
    return LVN_OK;
}

/* ---- the host's two ---- */

#define FLOATS (1u << LVN_F32 | 1u << LVN_F64 | 1u << LVN_BF16 | 1u << LVN_F16)
static const lvn_backend_kernel cpu_rows[LVNI_OP_COUNT] = {
#define LVNI_OP(name, inputs, outputs, attr_type, op_flags, text)                                  \
    [LVNI_OP_##name] = {#name, lvni_cpu_##name, LVNI_CPU_TYPES(op_flags),                          \
                        (unsigned)(op_flags) / LVNI_BESIDE, NULL},
#include "kernels/ops.def"
#undef LVNI_OP
};

static const lvn_backend_kernel ref_rows[LVNI_OP_COUNT] = {
#define LVNI_OP(name, inputs, outputs, attr_type, op_flags, text)                                  \
    [LVNI_OP_##name] = {#name, lvni_ref_##name, FLOATS, 0, NULL},
#include "kernels/ops.def"
#undef LVNI_OP
};

const lvn_backend lvni_cpu_backend = {.version = LVN_BACKEND_VERSION,
                                      .table_size = sizeof(lvn_backend),
                                      .name = "cpu",
                                      .on_host = true,
                                      .kernels = cpu_rows,
                                      .n_kernels = LVNI_OP_COUNT,
                                      .flat = LVNI_CPU_FLAT};

const lvn_backend lvni_ref_backend = {.version = LVN_BACKEND_VERSION,
                                      .table_size = sizeof(lvn_backend),
                                      .name = "ref",
                                      .on_host = true,
                                      .kernels = ref_rows,
                                      .n_kernels = LVNI_OP_COUNT};

/* In the order of lvn_device_kind; before any thread. */
__attribute__((constructor)) static void add_own(void)
{
    static const lvn_backend *const own[] = {
        [LVN_DEVICE_CPU] = &lvni_cpu_backend,
        [LVN_DEVICE_SIM] = &lvni_sim_backend,
        [LVN_DEVICE_REF] = &lvni_ref_backend,
        [LVN_DEVICE_DRY] = &lvni_dry_backend,
    };
    lvni_tensor_backend_set_resolve(resolve);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        (void)lvni_tensor_backend_add(own[i]); /* their rows are made of ops.def */
    }
}
