/* The frame of a test program: a TEST is run because it is written, in the order of the file, under
 * cmocka. Program arguments are names of tests to run (with * and ?); --list prints all names.
 *
 *     TEST(sums_are_exact)
 *     {
 *         assert_int_equal(1 + 1, 2);
 *     }
 *
 * cmocka leaves a test by longjmp: assert on the main thread only. skip() shows as skipped; print
 * the reason before it. */
#ifndef LEVIN_TESTS_TEST_H
#define LEVIN_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

/* A test of `file`, in the order of lines; state: what the test finds in *state. */
typedef struct test_case {
    const char *file;
    int line;
    const char *name;
    CMUnitTestFunction run;
    CMFixtureFunction setup, teardown;
    void *state;
} test_case;

void test_add(test_case test);
/* Fixtures of each test that has none of its own, and of the program. NULL: as it was. */
void test_each(CMFixtureFunction setup, CMFixtureFunction teardown);
void test_all(CMFixtureFunction setup, CMFixtureFunction teardown);
bool test_exists(const char *name);
/* All tests, or those that the arguments name: the exit status. A program without a main function
 * has one that calls this. */
int test_main(int argc, char **argv);

#define TEST_AT_START(name) static __attribute__((constructor)) void name(void)
#define TEST_FUNCTION(type, name) static type name(__attribute__((unused)) void **state)

#define TEST(name) TEST_WITH(name, NULL, NULL)
/* With fixtures of its own, functions as cmocka's: int f(void **state), 0 for success. */
#define TEST_WITH(name, setup, teardown)                                                           \
    TEST_FUNCTION(void, name);                                                                     \
    TEST_AT_START(name##_is_a_test)                                                                \
    {                                                                                              \
        test_add((test_case){__FILE__, __LINE__, #name, name, setup, teardown, NULL});             \
    }                                                                                              \
    TEST_FUNCTION(void, name)

/* Fixtures around each TEST of the program; once in a file, after the two functions. */
#define TEST_EACH(setup, teardown)                                                                 \
    TEST_AT_START(each_has_fixtures)                                                               \
    {                                                                                              \
        test_each(setup, teardown);                                                                \
    }                                                                                              \
    _Static_assert(1, "takes the semicolon")

/* Bodies that run once, before the first and after the last test, and return 0 for success. */
#define BEFORE_ALL()                                                                               \
    TEST_FUNCTION(int, before_all);                                                                \
    TEST_AT_START(all_have_a_start)                                                                \
    {                                                                                              \
        test_all(before_all, NULL);                                                                \
    }                                                                                              \
    TEST_FUNCTION(int, before_all)
#define AFTER_ALL()                                                                                \
    TEST_FUNCTION(int, after_all);                                                                 \
    TEST_AT_START(all_have_an_end)                                                                 \
    {                                                                                              \
        test_all(NULL, after_all);                                                                 \
    }                                                                                              \
    TEST_FUNCTION(int, after_all)

#endif
