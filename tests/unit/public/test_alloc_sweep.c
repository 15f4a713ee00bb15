/* Every public function under failing allocations (sweep.h). A function of include/levin without a
 * scenario fails the last test. */
#include "sweep.h"

#include "kernels/kernels.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const scenario_table *const tables[] = {&sweep_tensors, &sweep_modules, &sweep_jobs};
enum { N_TABLES = sizeof tables / sizeof *tables };

static void run_table(const scenario_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        const int64_t failures = sweep(table->rows[i].calls, &table->rows[i]);
        /* errors are recorded without memory */
        assert_int_equal(failures > 0, strncmp(table->rows[i].calls, "status_name", 11) != 0);
    }
}

TEST(tensors_and_scopes)
{
    run_table(&sweep_tensors);
}

TEST(ops_and_their_gradients)
{
    sweep_gradient_rows();
}

TEST(modules_and_data)
{
    run_table(&sweep_modules);
}

TEST(whole_trainings)
{
    run_table(&sweep_jobs);
}

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool has_scenario(const char *name)
{
    bool found = sweep_has_gradient_row(name);
    for (int t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            found = found || has_word(tables[t]->rows[i].calls, name);
        }
    }
    return found;
}

/* The name in "LVN_API lvn_tensor *lvn_add(lvn_tensor *a, ...": the first lvn_word in front of a
 * parenthesis. */
static bool name_in(const char *line, char name[64])
{
    for (const char *at = strstr(line, "lvn_"); at != NULL; at = strstr(at + 1, "lvn_")) {
        size_t n = 4;
        while (isalnum((unsigned char)at[n]) || at[n] == '_') {
            n++;
        }
        if (at[n] == '(' && n < 64) {
            snprintf(name, 64, "%.*s", (int)n - 4, at + 4);
            return true;
        }
    }
    return false;
}

static int check_header(const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[400], name[64];
    int n = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "LVN_API ", 8) != 0) {
            continue;
        }
        if (!name_in(line, name)) {
            fail_msg("%s: the name should stand in the line of LVN_API: %s", path, line);
        }
        if (!has_scenario(name)) {
            fail_msg("lvn_%s (%s) has neither a scenario in tests/unit/public nor a row in "
                     "tests/unit/autograd/rows_*.c",
                     name, path);
        }
        n++;
    }
    fclose(f);
    return n;
}

TEST(every_public_function_is_here)
{
    glob_t headers;
    assert_int_equal(glob(LEVIN_HEADERS, 0, NULL, &headers), 0);
    int n = 0;
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        n += check_header(headers.gl_pathv[i]);
    }
    globfree(&headers);
    assert_true(n >= 90); /* the headers were read */
}

BEFORE_ALL()
{
    setenv("GOMP_SPINCOUNT", "2000", 1); /* else lvn_main starts the program again, with it */
    setenv("LEVIN_SIM_DEVICES", "1", 1);
    setenv("LEVIN_SIM_MEMORY", "16MiB", 1);
    return lvni_cpu_start() == LVN_OK ? 0 : -1;
}
