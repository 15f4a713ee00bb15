/* The parts of a run's time (profile.h). */
#include "trainer/profile.h"

#include "core/machine.h"
#include "core/str.h"
#include "log/run_log.h"

#include <stddef.h>

/* Of the thread that measures. Other threads have none. */
static _Thread_local lvni_trainer_profile *current;

static const char *const names[LVNI_PART_COUNT] = {
    [LVNI_PART_REST] = "rest",
    [LVNI_PART_DATA] = "wait for data",
    [LVNI_PART_COPY] = "copy to device",
    [LVNI_PART_FORWARD] = "forward",
    [LVNI_PART_BACKWARD] = "backward",
    [LVNI_PART_MERGE] = "add gradients",
    [LVNI_PART_REDUCE] = "exchange",
    [LVNI_PART_UPDATE] = "optimizer",
    [LVNI_PART_RESULT] = "wait for device",
    [LVNI_PART_LOG] = "logging",
    [LVNI_PART_VALIDATE] = "validation",
    [LVNI_PART_SAVE] = "checkpoint",
};

void lvni_trainer_profile_begin(lvni_trainer_profile *p)
{
    *p = (lvni_trainer_profile){.begin_ns = lvni_core_now_ns()};
    p->at_ns = p->begin_ns;
    p->times[LVNI_PART_REST] = 1;
    current = p;
}

lvni_trainer_part lvni_trainer_profile_at(lvni_trainer_part part)
{
    lvni_trainer_profile *p = current;
    if (p == NULL || p->at == part) {
        return part;
    }
    const lvni_trainer_part before = p->at;
    const uint64_t now = lvni_core_now_ns();
    p->ns[before] += now - p->at_ns;
    p->times[part]++;
    p->at = part;
    p->at_ns = now;
    return before;
}

/* Of those that are not printed; -1: all are. */
static int find_largest(const lvni_trainer_profile *p, const bool *printed)
{
    int largest = -1;
    for (int i = 0; i < LVNI_PART_COUNT; i++) {
        if (!printed[i] && p->times[i] > 0 && (largest < 0 || p->ns[i] > p->ns[largest])) {
            largest = i;
        }
    }
    return largest;
}

static void print_part(const lvni_trainer_profile *p, int part, double whole_s)
{
    const double s = (double)p->ns[part] * 1e-9;
    lvni_log_line(LVNI_LOG_INFO, "  %-16s %9lld %12.3f %11.3f %7.1f", names[part],
                  (long long)p->times[part], 1e3 * s / (double)p->times[part], s,
                  100.0 * s / whole_s);
}

void lvni_trainer_profile_end(int64_t steps)
{
    lvni_trainer_profile *p = current;
    bool printed[LVNI_PART_COUNT] = {false};
    if (p == NULL) {
        return;
    }
    current = NULL;
    const uint64_t now = lvni_core_now_ns();
    const double whole_s = (double)(now - p->begin_ns) * 1e-9;
    p->ns[p->at] += now - p->at_ns;
    lvni_log_line(LVNI_LOG_INFO, "profile: %lld step%s in %.3f s", (long long)steps,
                  lvni_core_plural(steps, "", "s"), whole_s);
    lvni_log_line(LVNI_LOG_INFO, "  %-16s %9s %12s %11s %7s", "part", "times", "mean ms", "total s",
                  "%");
    for (int part = find_largest(p, printed); part >= 0; part = find_largest(p, printed)) {
        print_part(p, part, whole_s);
        printed[part] = true;
    }
}
