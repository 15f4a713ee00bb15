/* Units from the calls of a dry run (units.h). A unit's costs are those from its beginning to that
 * of the next one: what is between two units counts for the first. */
#include "trainer/units.h"

#include "core/alloc.h"
#include "core/error.h"
#include "kernels/kernels.h"
#include "tensor/ctx.h"
#include "tensor/device.h"

#include <string.h>

enum { PARTS = 4 }; /* a unit is at most one of so many parts of a stage, if it has children */

/* A module begins, or ends. */
typedef struct lvni_trainer_unit_event {
    const char *path;
    bool ends;
    double flops;
    uint64_t in_use, input;
} event;

/* ---- recording ---- */

static void note(lvni_trainer_units *u, const char *path, bool ends, uint64_t input)
{
    if (u->n_events == u->room) {
        const int room = u->room == 0 ? 256 : 2 * u->room;
        event *more =
            lvni_core_realloc(LVNI_TAG_TRAINER, u->event, (size_t)room * sizeof *u->event);
        if (more == NULL) {
            u->failed = true;
            return;
        }
        u->event = more;
        u->room = room;
    }
    lvni_tensor_device *device = lvni_tensor_ctx_get()->device;
    u->event[u->n_events++] =
        (event){.path = path,
                .ends = ends,
                .input = input,
                .flops = lvni_kernels_dry_flops(),
                .in_use = device == NULL ? 0 : lvni_tensor_device_get_stats(device).in_use};
}

static int enter(void *user, const char *path, const lvn_tensor *x)
{
    note(user, path, false, (uint64_t)lvn_numel(x) * lvn_dtype_size(x->dtype));
    return -1;
}

static void leave(void *user, const char *path)
{
    note(user, path, true, 0);
}

lvn_status lvni_trainer_units_record(lvni_trainer_units *u, lvni_autograd_passing *passing,
                                     int n_parameters)
{
    *passing = (lvni_autograd_passing){.stages = 1, .enter = enter, .leave = leave, .user = u};
    note(u, "", false, 0);
    return lvni_autograd_stages_begin(passing, n_parameters);
}

void lvni_trainer_units_free(lvni_trainer_units *u)
{
    lvni_core_free(u->event);
    lvni_core_free(u->unit);
    lvni_core_free(u->cost);
    lvni_core_free(u->module);
    *u = (lvni_trainer_units){0};
}

/* ---- units ---- */

/* Where the module that begins with event i ends. */
static int end_of(const lvni_trainer_units *u, int i)
{
    int depth = 0, k = i;
    do {
        depth += u->event[k].ends ? -1 : 1;
        k++;
    } while (k < u->n_events && depth > 0);
    return k - 1;
}

static bool has_children(const lvni_trainer_units *u, int i)
{
    return end_of(u, i) > i + 1;
}

/* More than a part of 1 / (4 x stages) of the forward pass or of what it keeps. */
static bool is_large(const lvni_trainer_units *u, int i, int stages)
{
    const event *first = &u->event[1], *last = &u->event[u->n_events - 1], *begin = &u->event[i],
                *end = &u->event[end_of(u, i)];
    const double parts = (double)stages * PARTS;
    return (end->flops - begin->flops) * parts > last->flops - first->flops ||
           ((double)end->in_use - (double)begin->in_use) * parts >
               (double)last->in_use - (double)first->in_use;
}

/* Modules that become units, as the numbers of their events. */
static int list_units(const lvni_trainer_units *u, int stages, int *out)
{
    int n = 0;
    for (int i = 1; i < u->n_events;) {
        const event *e = &u->event[i];
        const bool opened =
            !e->ends && has_children(u, i) && (e->path[0] == '\0' || is_large(u, i, stages));
        if (e->ends || opened) {
            i++;
            continue;
        }
        if (e->path[0] != '\0') {
            out[n++] = i;
        }
        i = end_of(u, i) + 1;
    }
    return n;
}

static int64_t count_parameters(const lvni_nn_model *m, const char *path)
{
    const size_t n = strlen(path);
    int64_t sum = 0;
    for (int i = 0; i < m->n_parameters; i++) {
        const char *name = m->parameters[i].name;
        sum += strncmp(name, path, n) == 0 && name[n] == '.' ? m->parameters[i].numel : 0;
    }
    return sum;
}

static int unit_of(const lvni_trainer_units *u, const char *path)
{
    for (int i = 0; i < u->n_modules; i++) {
        if (strcmp(u->module[i].path, path) == 0) {
            return u->module[i].unit;
        }
    }
    return -1;
}

/* The modules behind a unit's first one, up to one that is called again, are of that unit: there is
 * no border between two calls of a module. */
static void add_call(lvni_trainer_units *u, const lvni_nn_model *model, const char *path)
{
    const int before = unit_of(u, path);
    if (before < 0) {
        u->module[u->n_modules++] = (struct lvni_trainer_unit_module){path, u->n};
        u->unit[u->n++] =
            (lvni_trainer_unit){.path = path, .parameters = count_parameters(model, path)};
        return;
    }
    for (int i = before + 1; i < u->n; i++) {
        u->unit[before].flops += u->unit[i].flops;
        u->unit[before].kept += u->unit[i].kept;
        u->unit[before].parameters += u->unit[i].parameters;
    }
    u->n = before + 1;
    for (int i = 0; i < u->n_modules; i++) {
        u->module[i].unit = u->module[i].unit > before ? before : u->module[i].unit;
    }
}

static void make_units(lvni_trainer_units *u, const lvni_nn_model *model, const int *first, int n)
{
    for (int i = 0; i < n; i++) {
        add_call(u, model, u->event[first[i]].path);
        const event *from = &u->event[first[i]],
                    *to = &u->event[i + 1 < n ? first[i + 1] : u->n_events - 1];
        if (u->unit[u->n - 1].flops == 0.0 && u->unit[u->n - 1].kept == 0) {
            u->unit[u->n - 1].input = u->event[first[i]].input;
        }
        u->unit[u->n - 1].flops += to->flops - from->flops;
        u->unit[u->n - 1].kept += to->in_use > from->in_use ? to->in_use - from->in_use : 0;
    }
    for (int i = 0; i < u->n; i++) {
        u->cost[i] = (lvni_plan_unit){
            .work = u->unit[i].flops, .input = u->unit[i].input, .kept = u->unit[i].kept};
    }
}

lvn_status lvni_trainer_units_end(lvni_trainer_units *u, const lvni_nn_model *model, int stages)
{
    const size_t most = (size_t)u->n_events;
    int *first = lvni_core_calloc(LVNI_TAG_TRAINER, most + 1, sizeof *first);
    u->unit = lvni_core_calloc(LVNI_TAG_TRAINER, most + 1, sizeof *u->unit);
    u->cost = lvni_core_calloc(LVNI_TAG_TRAINER, most + 1, sizeof *u->cost);
    u->module = lvni_core_calloc(LVNI_TAG_TRAINER, most + 1, sizeof *u->module);
    const bool good =
        !u->failed && first != NULL && u->unit != NULL && u->cost != NULL && u->module != NULL;
    if (good) {
        make_units(u, model, first, list_units(u, stages, first));
    }
    lvni_core_free(first);
    lvni_core_free(u->event);
    u->event = NULL;
    u->n_events = u->room = 0;
    return good ? LVN_OK : LVN_ERR_MEMORY;
}

/* ---- the cut ---- */

static lvn_status take_borders(const lvni_trainer_units *u, const lvni_trainer_cut_options *o,
                               lvni_plan_cut *cut)
{
    if (o->n != (size_t)(o->stages - 1)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "balance.cuts has %zu unit%s for %d stages: give the first unit of each stage "
                 "behind the first one, %d of them",
                 o->n, lvni_core_plural((int64_t)o->n, "", "s"), o->stages, o->stages - 1);
    }
    for (int i = 1; i < o->stages; i++) {
        const int unit = unit_of(u, o->begins[i - 1]);
        if (unit < 0 || strcmp(u->unit[unit].path, o->begins[i - 1]) != 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "balance.cuts: no stage can begin with %s: the model's %d units are calls of "
                     "its modules, from %s to %s",
                     o->begins[i - 1], u->n, u->unit[0].path, u->unit[u->n - 1].path);
        }
        cut->begin[i] = unit;
    }
    return LVN_OK;
}

/* A backward pass takes about two forward passes. */
static lvn_status play(lvni_trainer_units *u, const lvni_trainer_cut_options *o)
{
    lvni_plan_stage_times times[LVNI_PLAN_STAGES] = {{0}};
    for (int i = 0; i < u->cut.stages; i++) {
        for (int k = u->cut.begin[i]; k < u->cut.begin[i + 1]; k++) {
            times[i].forward += u->unit[k].flops;
        }
        times[i].backward = 2.0 * times[i].forward;
    }
    const lvni_plan_stage_order order = {.stages = o->stages, .micro_batches = o->micro_batches};
    return lvni_plan_stage_play_through(&order, lvni_plan_stage_work_at, times, &u->play);
}

lvn_status lvni_trainer_units_cut(lvni_trainer_units *u, const lvni_trainer_cut_options *o)
{
    lvni_plan_stage_device device[LVNI_PLAN_STAGES];
    LVN_ARG(o->stages <= LVNI_PLAN_STAGES, "%d stages; at most %d", o->stages,
            (int)LVNI_PLAN_STAGES);
    for (int i = 0; i < o->stages; i++) {
        device[i] = (lvni_plan_stage_device){.speed = 1.0, .memory = o->memory[i]};
    }
    const lvni_plan_cut_options c = {.unit = u->cost,
                                     .n_units = u->n,
                                     .device = device,
                                     .stages = o->stages,
                                     .micro_batches = o->micro_batches};
    if (o->n == 0) {
        LVN_TRY(lvni_plan_cut_make(&c, &u->cut));
    } else {
        LVN_TRY(take_borders(u, o, &u->cut));
        LVN_TRY(lvni_plan_cut_take(&c, &u->cut));
    }
    return play(u, o);
}

int lvni_trainer_units_stage(const lvni_trainer_units *u, const char *path)
{
    const int unit = unit_of(u, path);
    for (int i = 0; unit >= 0 && i < u->cut.stages; i++) {
        if (unit < u->cut.begin[i + 1]) {
            return i;
        }
    }
    return -1;
}

uint64_t lvni_trainer_units_kept(const lvni_trainer_units *u, int stage, int micro_batches)
{
    const lvni_plan_cut_options c = {
        .unit = u->cost, .stages = u->cut.stages, .micro_batches = micro_batches};
    return lvni_plan_cut_bytes(&c, stage, u->cut.begin[stage], u->cut.begin[stage + 1]);
}

void lvni_trainer_units_print(const lvni_trainer_units *u, int micro_batches, lvni_core_str *out)
{
    double all = 0.0;
    for (int i = 0; i < u->n; i++) {
        all += u->unit[i].flops;
    }
    lvni_core_str_printf(out, "strategy=balance: %d units in %d stages, %d micro-batches:", u->n,
                         u->cut.stages, micro_batches);
    for (int i = 0; i < u->cut.stages; i++) {
        const int begin = u->cut.begin[i], end = u->cut.begin[i + 1];
        const lvni_plan_stage_order order = {u->cut.stages, micro_batches, false};
        char text[LVNI_BYTES_TEXT];
        double flops = 0.0;
        int64_t parameters = 0;
        for (int k = begin; k < end; k++) {
            flops += u->unit[k].flops;
            parameters += u->unit[k].parameters;
        }
        lvni_core_str_printf(out, "\n  stage %d: ", i);
        lvni_core_str_printf(out, end - begin > 1 ? "%s to %s" : "%s", u->unit[begin].path,
                             u->unit[end - 1].path);
        lvni_core_str_printf(
            out, " (%d unit%s), %.1f %% of the work, %lld parameters, activations %s in %d tape%s",
            end - begin, lvni_core_plural(end - begin, "", "s"),
            all > 0.0 ? 100.0 * flops / all : 0.0, (long long)parameters,
            lvni_core_bytes_text(lvni_trainer_units_kept(u, i, micro_batches), text),
            lvni_plan_stage_tapes(&order, i),
            lvni_core_plural(lvni_plan_stage_tapes(&order, i), "", "s"));
    }
    lvni_core_str_printf(out,
                         "\n  bubble %.1f %%: the stages wait for each other that part of a step "
                         "(by counted operations); weights, gradients and optimizer are whole on "
                         "each device",
                         100.0 * u->play.bubble);
}
