/* Jobs of a sweep in jobs.tsv and in the queue, and lists of trials. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"
#include "sweep/sweep_jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TEST(lists_are_short)
{
    static const struct {
        int64_t numbers[6];
        int64_t n;
        const char *text;
    } cases[] = {{{0}, 0, ""},
                 {{7}, 1, "7"},
                 {{0, 1}, 2, "0-1"},
                 {{2, 5, 6, 7, 8, 10}, 6, "2,5-8,10"},
                 {{0, 2, 4}, 3, "0,2,4"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lvni_core_str out = {0};
        lvni_sweep_list_print(cases[i].numbers, cases[i].n, &out);
        assert_string_equal(lvni_core_str_text(&out), cases[i].text);
        lvni_core_str_free(&out);
    }
}

static char dir[] = "/tmp/levin-jobs-XXXXXX", path[64];

BEFORE_ALL()
{
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/jobs.tsv", dir);
    return 0;
}

AFTER_ALL()
{
    (void)unlink(path);
    return rmdir(dir);
}

static void write_jobs(const char *text)
{
    assert_int_equal(lvni_core_file_write(path, text, strlen(text)), LVN_OK);
}

static const lvni_sweep_plan plan = {.dir = dir};

static const char file[] = "job\tname\tscript\ttime\ttrials\toffset\n"
                           "10\tn\ts.sh\tt\t0-3,9\t0\n"
                           "11;cluster\tn\ts.sh\tt\t12,14-15\t10\n"
                           "12\tn-4\ts.sh\tt\t4\t\n"
                           "nonsense\n"
                           "13\tn\ts.sh\tt\t*\t\n"
                           "14\tn-5\ts.sh\tt\t5\t"; /* its end is missing */

TEST(queued_trials_are_found)
{
    lvni_sweep_jobs jobs;
    const lvni_sweep_job *workers;
    bool queued[16];
    write_jobs(file);
    assert_int_equal(lvni_sweep_jobs_read(&plan, &jobs), LVN_OK);
    assert_int_equal(jobs.n, 4);
    assert_int_equal(
        lvni_sweep_jobs_match(&jobs, "10_1\n10_9\n11_2\n11_4\n12\n99\n10\n", 16, queued, &workers),
        LVN_OK);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(queued[i], i == 1 || i == 9 || i == 12 || i == 14 || i == 4);
    }
    assert_null(workers);
    assert_int_equal(lvni_sweep_jobs_match(&jobs, "13\n", 16, queued, &workers), LVN_OK);
    assert_string_equal(workers->id, "13");
    char **ids = NULL;
    assert_int_equal(lvni_sweep_jobs_there(&jobs, "12\n11_2\n11_4\n1\n", &ids), LVN_OK);
    assert_int_equal(lvni_sweep_texts_count(ids), 2);
    assert_string_equal(ids[0], "11");
    assert_string_equal(ids[1], "12");
    lvni_sweep_texts_free(ids);
    lvni_sweep_jobs_free(&jobs);
}

TEST(odd_lists_do_no_harm)
{
    static const char *const lists[] = {
        "-", "5-", "9-3", "0-99999999999999999999", "x", "1,,2", "0-9999", ",", "3-x"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char text[128];
        lvni_sweep_jobs jobs;
        const lvni_sweep_job *workers;
        bool queued[4];
        snprintf(text, sizeof text, "head\n7\tn\ts\tt\t%s\t0\n", lists[i]);
        write_jobs(text);
        assert_int_equal(lvni_sweep_jobs_read(&plan, &jobs), LVN_OK);
        assert_int_equal(lvni_sweep_jobs_match(&jobs, "7_1\n7_x\n_\n\n7_", 4, queued, &workers),
                         LVN_OK);
        assert_int_equal(queued[1],
                         strcmp(lists[i], "1,,2") == 0 || strcmp(lists[i], "0-9999") == 0);
        lvni_sweep_jobs_free(&jobs);
    }
}

TEST(jobs_are_looked_for_as_a_whole)
{
    assert_true(lvni_sweep_queue_has("12_3\n45\n", "12_3"));
    assert_true(lvni_sweep_queue_has("12_3\n 45", "45"));
    assert_false(lvni_sweep_queue_has("12_34\n145\n", "12_3"));
    assert_false(lvni_sweep_queue_has("12_34\n145\n", "45"));
    assert_false(lvni_sweep_queue_has("", "45"));
    assert_false(lvni_sweep_queue_has("45\n", ""));
}

TEST(without_memory)
{
    lvn_status s = LVN_ERR_MEMORY;
    write_jobs(file);
    for (int64_t k = 1; s != LVN_OK; k++) {
        lvni_sweep_jobs jobs;
        const lvni_sweep_job *workers;
        bool queued[16];
        char **ids = NULL;
        lvni_core_alloc_fail_at(k);
        s = lvni_sweep_jobs_read(&plan, &jobs);
        s = s == LVN_OK ? lvni_sweep_jobs_match(&jobs, "10_1\n", 16, queued, &workers) : s;
        s = s == LVN_OK ? lvni_sweep_jobs_there(&jobs, "10_1\n", &ids) : s;
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        lvni_sweep_texts_free(ids);
        lvni_sweep_jobs_free(&jobs);
    }
}

/* The names of failures are those of the file. */
TEST(files_that_cannot_be_read)
{
    lvni_sweep_jobs jobs;
    write_jobs(file);
    lvni_core_vfs_fail_at("read", 1, EIO);
    const lvn_status s = lvni_sweep_jobs_read(&plan, &jobs);
    lvni_core_vfs_fail_at("read", 0, 0);
    assert_int_equal(s, LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(lvni_sweep_jobs_read(&plan, &jobs), LVN_OK);
    assert_int_equal(jobs.n, 0);
}
