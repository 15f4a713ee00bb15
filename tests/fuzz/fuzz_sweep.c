/* The space of a sweep: lines "KIND TEXT" as its declarations, and the same bytes as sweep.json. A
 * space that is accepted has trials without repeats, each of them with values of its own. */
#include "fuzz.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "sweep/sweep_space.h"

#include <string.h>

enum { FEW = 40 };

static void check_points(const lvni_sweep_space *space, const lvni_sweep_points *p, int64_t most)
{
    CHECK(p->n <= most && p->n_parameters == lvni_sweep_texts_count(space->names));
    for (int64_t i = 0; i < p->n * p->n_parameters; i++) {
        CHECK(p->values[i] == NULL || strlen(p->values[i]) < 1 << 16);
    }
    for (int64_t i = 1; i < p->n; i++) {
        bool same = true;
        for (int64_t k = 0; k < p->n_parameters && same; k++) {
            const char *a = p->values[k], *b = p->values[i * p->n_parameters + k];
            same = a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
        }
        CHECK(!same);
    }
}

static void draw(lvni_sweep_space *space, const char *strategy)
{
    lvni_core_str notes = {0};
    lvni_sweep_points points = {0};
    lvn_status s = lvni_sweep_space_finish(space, false, &notes);
    CHECK(s == LVN_OK);
    const lvni_sweep_draw d = {.strategy = strategy, .seed = 1, .trials = FEW};
    s = lvni_sweep_space_draw(space, &d, &points, &notes);
    CHECK_REPORTED(s);
    if (s == LVN_OK) {
        check_points(space, &points, FEW);
    }
    lvni_sweep_points_free(&points);
    lvni_core_str_free(&notes);
}

static void declare(const char *text, size_t size)
{
    static const char *const kinds[] = {"list", "range", "sample", "fixed", "when", "zip"};
    lvni_sweep_space space = {0};
    lvni_core_str line = {0};
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t n = end != NULL ? (size_t)(end - text) - at : size - at;
        lvni_core_str_clear(&line);
        lvni_core_str_append_n(&line, text + at, n);
        for (int k = 0; k < 6; k++) {
            const size_t word = strlen(kinds[k]);
            const char *t = lvni_core_str_text(&line);
            if (strncmp(t, kinds[k], word) == 0 && t[word] == ' ') {
                CHECK_REPORTED(lvni_sweep_space_add(&space, kinds[k], t + word + 1, 5));
            }
        }
        at += n + 1;
    }
    lvni_core_str_free(&line);
    draw(&space, "grid");
    draw(&space, "random");
    lvni_sweep_space_free(&space);
}

/* Unsynced, which takes less time than all the rest. */
static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    CHECK(fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* As files: a plan that can be read has a command, and its trials are read or refused. */
static void read_files(const uint8_t *data, size_t size)
{
    static const char folder[] = "fuzz_sweep.tmp/trials/000000";
    lvni_sweep_plan plan;
    lvni_sweep_trial trial;
    CHECK(lvni_core_mkdirs(folder) == LVN_OK);
    put("fuzz_sweep.tmp/sweep.json", data, size);
    put("fuzz_sweep.tmp/trials/000000/trial.json", data, size);
    lvn_status s = lvni_sweep_plan_read("fuzz_sweep.tmp", &plan);
    CHECK_REPORTED(s);
    if (s == LVN_OK) {
        CHECK(plan.command[0] != NULL && plan.n_trials >= 0);
        s = lvni_sweep_trial_read(&plan, 0, &trial);
        CHECK_REPORTED(s);
        if (s == LVN_OK) {
            CHECK(trial.argv != NULL && trial.index == 0);
            lvni_sweep_trial_free(&trial);
        }
        lvni_sweep_plan_free(&plan);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    char *text = malloc(size + 1);
    CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    declare(text, size);
    if (size > 0 && data[0] == '{') {
        read_files(data, size);
    }
    free(text);
    lvn_clear_error();
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
