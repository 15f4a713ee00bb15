/* The registry of the tests of a program, filled before main. */
#include "support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 };
static test_case tests[MOST];
static int n_tests;
static CMFixtureFunction each_setup, each_teardown, all_setup, all_teardown;

/* Constructors run in an order of the compiler's. */
static bool before(const test_case *a, const test_case *b)
{
    const int files = strcmp(a->file, b->file);
    return files != 0 ? files < 0 : a->line < b->line;
}

void test_add(test_case test)
{
    if (n_tests == MOST) {
        fprintf(stderr, "%s: more than %d tests in a program\n", test.file, MOST);
        abort();
    }
    int at = n_tests++;
    for (; at > 0 && before(&test, &tests[at - 1]); at--) {
        tests[at] = tests[at - 1];
    }
    tests[at] = test;
}

void test_each(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    each_setup = setup;
    each_teardown = teardown;
}

void test_all(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    all_setup = setup != NULL ? setup : all_setup;
    all_teardown = teardown != NULL ? teardown : all_teardown;
}

bool test_exists(const char *name)
{
    for (int i = 0; i < n_tests; i++) {
        if (strcmp(tests[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* `*`: any text, `?`: any character. */
static bool matches(const char *pattern, const char *name)
{
    if (*pattern == '*') {
        return matches(pattern + 1, name) || (*name != '\0' && matches(pattern, name + 1));
    }
    if (*pattern == '\0' || *name == '\0') {
        return *pattern == *name;
    }
    return (*pattern == '?' || *pattern == *name) && matches(pattern + 1, name + 1);
}

static bool chosen(const char *name, int n_patterns, char *const *patterns)
{
    for (int i = 0; i < n_patterns; i++) {
        if (matches(patterns[i], name)) {
            return true;
        }
    }
    return n_patterns == 0;
}

int test_main(int argc, char **argv)
{
    static struct CMUnitTest run[MOST];
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < n_tests; i++) {
            puts(tests[i].name);
        }
        return 0;
    }
    size_t n = 0;
    for (int i = 0; i < n_tests; i++) {
        if (chosen(tests[i].name, argc - 1, argv + 1)) {
            const test_case *t = &tests[i];
            const bool own = t->setup != NULL || t->teardown != NULL;
            run[n++] = (struct CMUnitTest){t->name, t->run, own ? t->setup : each_setup,
                                           own ? t->teardown : each_teardown, t->state};
        }
    }
    if (n == 0) {
        fprintf(stderr, "%s: no test has such a name; --list prints them\n",
                program_invocation_short_name);
        return 1;
    }
    return _cmocka_run_group_tests(program_invocation_short_name, run, n, all_setup, all_teardown);
}

/* For programs without one. */
__attribute__((weak)) int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
