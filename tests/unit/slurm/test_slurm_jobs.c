/* What squeue, sacct, scontrol and sinfo print, jobs.tsv, scripts and ends of logs: read without
 * running any of them. */
#include "slurm/slurm_jobs.h"
#include "slurm/slurm_jobs_nodes.h"
#include "slurm/slurm_jobs_records.h"
#include "support/test.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S "\037"

TEST(lines_of_fields)
{
    lvni_slurm_table t;
    assert_int_equal(lvni_slurm_table_read("slurm_load_jobs error: x\n  1 " S "b" S "c" S "d\n2" S
                                           "" S " e " S "\n\n3" S "only two",
                                           '\037', 3, &t),
                     LVN_OK);
    assert_int_equal(t.n, 2);
    assert_string_equal(lvni_slurm_table_at(&t, 0, 0), "1");
    assert_string_equal(lvni_slurm_table_at(&t, 0, 1), "b");
    assert_string_equal(lvni_slurm_table_at(&t, 0, 2), "c" S "d");
    assert_string_equal(lvni_slurm_table_at(&t, 1, 1), "");
    assert_string_equal(lvni_slurm_table_at(&t, 1, 2), "e");
    lvni_slurm_table_free(&t);
    assert_int_equal(lvni_slurm_table_read("", '\t', 4, &t), LVN_OK);
    assert_int_equal(t.n, 0);
    lvni_slurm_table_free(&t);
}

/* No memory: nothing is left behind. */
TEST(lines_without_memory)
{
    for (int64_t k = 1;; k++) {
        lvni_slurm_partitions c;
        const uint64_t live = lvni_core_alloc_get_total().live_bytes;
        lvni_core_alloc_fail_at(k);
        const lvn_status s = lvni_slurm_partitions_read(
            "n1" S "p" S "idle" S "0/8/0/8" S "0" S "9" S "gpu:4" S "gpu:0" S "1:00" S "\n"
            "n2" S "p" S "idle" S "0/8/0/8" S "0" S "9" S "gpu:4" S "gpu:1" S "1:00" S "\n",
            NULL, false, &c);
        const bool over = lvni_core_alloc_fail_at(0) != 0;
        if (s == LVN_OK) {
            assert_int_equal(c.n, 1);
            assert_int_equal(c.list[0].gpus[0].free, 7);
            lvni_slurm_partitions_free(&c);
        } else {
            assert_int_equal(s, LVN_ERR_MEMORY);
        }
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        if (over) {
            assert_true(k > 3);
            assert_int_equal(s, LVN_OK);
            return;
        }
    }
}

TEST(states)
{
    static const struct {
        const char *state, *word;
        lvni_slurm_phase phase;
    } rows[] = {{"PENDING", "waiting", LVNI_SLURM_WAITS},
                {"RUNNING", "running", LVNI_SLURM_RUNS},
                {"COMPLETING", "ending", LVNI_SLURM_RUNS},
                {"COMPLETED", "finished", LVNI_SLURM_FINISHED},
                {"CANCELLED by 1000", "cancelled", LVNI_SLURM_FAILED},
                {"OUT_OF_MEMORY", "out of memory", LVNI_SLURM_FAILED},
                {"A_LATER_WORD", "a later word", LVNI_SLURM_UNKNOWN},
                {"", "", LVNI_SLURM_UNKNOWN},
                {"THE_WORD_OF_A_STATE_THAT_IS_TOO_LONG", "the word of a state that is too",
                 LVNI_SLURM_UNKNOWN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char word[LVNI_SLURM_STATE_TEXT];
        assert_int_equal(lvni_slurm_state_read(rows[i].state, word), rows[i].phase);
        assert_string_equal(word, rows[i].word);
    }
    const char *advice;
    assert_non_null(lvni_slurm_reason_text("QOSMaxJobsPerUserLimit", &advice));
    assert_null(advice);
    assert_non_null(lvni_slurm_reason_text("JobHeldUser", &advice));
    assert_non_null(advice);
    assert_null(lvni_slurm_reason_text("None", &advice));
}

TEST(numbers_of_jobs)
{
    static const char *const good[] = {"1", "123_4", "123+0", "123456789012345678"};
    static const char *const bad[] = {"",      "_1",   "1_",    "1_x", "1.0",
                                      "1_[2]", "last", "1_2_3", "1-2", "1234567890123456789"};
    static const struct {
        const char *asked, *id, *raw;
        bool covers;
    } rows[] = {{"7", "7", "7", true},
                {"7", "7_3", "9", true},
                {"9", "7_3", "9", true},
                {"7", "7_[1-3%2]", "7", true},
                {"7", "7+1", "8", true},
                {"7", "70", "70", false},
                {"70", "7_0", "71", false},
                {"7_3", "7_3", "9", true},
                {"7_3", "7_30", "9", false},
                {"7_3", "7_[1-2,5-9%4]", "7", false},
                {"7_8", "7_[1-2,5-9%4]", "7", true},
                {"7_6", "7_[0-30:5]", "7", false},
                {"7_25", "7_[0-30:5]", "7", true},
                {"7_99", "7_[1,3,5,...]", "7", true},
                {"7+1", "7+1", "8", true},
                {"7_1", "7+1", "8", false},
                {"7_3", "7", "7", false}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(lvni_slurm_id_read(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(lvni_slurm_id_read(bad[i]));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (lvni_slurm_id_covers(rows[i].asked, rows[i].id, rows[i].raw) != rows[i].covers) {
            fail_msg("%s of %s (%s)", rows[i].asked, rows[i].id, rows[i].raw);
        }
    }
}

static void assert_value(const char *job, const char *key, const char *want)
{
    size_t n = 0;
    const char *value = lvni_slurm_show_value(job, key, &n);
    if (want == NULL) {
        assert_null(value);
        return;
    }
    assert_non_null(value);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(value, want, n);
}

TEST(scontrol_show_job)
{
    static const char text[] = "JobId=1 JobName=StdOut=x\n"
                               "   JobState=RUNNING Reason=None Dependency=(null)\n"
                               "   Requeue=1 Restarts=2 ExitCode=3:0\n"
                               "   Command=/a b/c.sh StdOut=no\n"
                               "   StdOut=/logs of/a|b-1.out\n   Power=\n   \n\n"
                               "JobId=2 ArrayJobId=2\n   StdOut=/two\n";
    assert_value(text, "JobState", "RUNNING");
    assert_value(text, "ExitCode", "3:0");
    assert_value(text, "Dependency", NULL);
    assert_value(text, "Power", NULL);
    assert_value(text, "NoSuch", NULL);
    assert_value(text, "ArrayJobId", NULL);
    assert_value(text, "Command", "/a b/c.sh StdOut=no");
    assert_value(text, "StdOut", "/logs of/a|b-1.out");
    const char *next = lvni_slurm_show_next(text);
    assert_non_null(next);
    assert_value(next, "StdOut", "/two");
    assert_null(lvni_slurm_show_next(next));
}

TEST(submissions)
{
    lvni_slurm_table t;
    size_t row;
    char id[LVNI_SLURM_ID_TEXT];
    assert_int_equal(lvni_slurm_table_read("job\tname\tscript\ttime\n5\ta\ts5\tt\n7;c1\tb\ts7\tt\n"
                                           "8\ta\ts8\tt\nhalf a line",
                                           '\t', LVNI_SLURM_SENT_FIELDS, &t),
                     LVN_OK);
    assert_true(lvni_slurm_sent_find(&t, "a", &row));
    assert_string_equal(lvni_slurm_table_at(&t, row, LVNI_SLURM_SENT_SCRIPT), "s8");
    assert_true(lvni_slurm_sent_find(&t, "7_3", &row));
    lvni_slurm_sent_id(&t, row, id);
    assert_string_equal(id, "7");
    assert_true(lvni_slurm_sent_find(&t, "last", &row));
    assert_string_equal(lvni_slurm_table_at(&t, row, LVNI_SLURM_SENT_JOB), "8");
    assert_false(lvni_slurm_sent_find(&t, "name", &row));
    assert_false(lvni_slurm_sent_find(&t, "6", &row));
    lvni_slurm_table_free(&t);
    assert_int_equal(lvni_slurm_sent_read("/nowhere", &t), LVN_OK);
    assert_false(lvni_slurm_sent_find(&t, "last", &row));
    lvni_slurm_table_free(&t);
}

TEST(scripts)
{
    static const char script[] =
        "#!/bin/bash\n#SBATCH --job-name=a\n#SBATCH --output=\"my \\\"logs\\\"/%x-%j.out\"\n"
        "# srun levin train x out=not/this\n"
        "srun -n2 levin train x 'out=run of mine' \"seed=3\"\nrc=$?\n";
    lvni_core_str out = {0};
    assert_true(lvni_slurm_script_directive(script, "output", &out));
    assert_string_equal(lvni_core_str_text(&out), "my \"logs\"/%x-%j.out");
    assert_false(lvni_slurm_script_directive(script, "out", &out));
    lvni_core_str_clear(&out);
    assert_true(lvni_slurm_script_run_dir(script, &out));
    assert_string_equal(lvni_core_str_text(&out), "run of mine");
    assert_false(lvni_slurm_script_run_dir("levin train \"out=run/$SLURM_JOB_ID\"\n", &out));
    assert_false(lvni_slurm_script_run_dir("levin --out= 'out", &out));
    lvni_core_str_free(&out);
}

TEST(names_of_logs)
{
    static const struct {
        const char *pattern, *id, *want;
    } rows[] = {{"l/%x-%j.out", "7", "l/name-7.out"},
                {"%x-%A_%a", "7_12", "name-7_12"},
                {"%6j-%%-%u", "7", "000007-%-me"},
                {"%A_%3a", "7_5", "7_005"},
                {"%A_%a", "7_*", "7_*"},
                {"plain", "7", "plain"},
                {"%j", "7_1", NULL}, /* of the element's own number */
                {"%a", "7", NULL},
                {"%N.out", "7", NULL},
                {"%", "7", NULL},
                {"%9999999999j", "7", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_core_str out = {0};
        const bool known = lvni_slurm_log_name(rows[i].pattern, rows[i].id, "name", "me", &out);
        if (known != (rows[i].want != NULL) ||
            (known && strcmp(lvni_core_str_text(&out), rows[i].want) != 0)) {
            fail_msg("%s: got %s", rows[i].pattern, lvni_core_str_text(&out));
        }
        lvni_core_str_free(&out);
    }
}

static void assert_text(const char *got, size_t n, const char *want)
{
    if (want == NULL) {
        assert_null(got);
        return;
    }
    assert_non_null(got);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(got, want, n);
}

TEST(ends_of_logs)
{
    static const struct {
        const char *text, *cause;
    } rows[] = {
        {"", NULL},
        {"a\nb\n\n", "b"},
        {"50%\r60%\r\n", "60%"},
        {"error: one\nerror: two\nlast\n", "error: one"},
        {"srun: error: n1: task 0: Exited\nerror: data: not there\n", "error: data: not there"},
        {"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT t DUE TO TIME LIMIT ***\nx\n",
         "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT t DUE TO TIME LIMIT ***"},
        {"error: x\nlevin launch: rank 2 (pid 5) failed first: killed\n",
         "levin launch: rank 2 (pid 5) failed first: killed"},
        {"Traceback (most recent call last):\n  File x\nValueError: bad\n", "ValueError: bad"},
        {"error: old\nlevin: job 7 restart 1 nodes n1\nfine\n", "fine"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        const char *cause = lvni_slurm_log_cause(rows[i].text, &n);
        assert_text(cause, n, rows[i].cause);
    }
    size_t n = 0;
    const char *got = lvni_slurm_log_run_dir("x\nrun directory: out/a b\nlevin report out/c\n", &n);
    assert_text(got, n, "out/c");
    assert_null(lvni_slurm_log_run_dir("levin report \n", &n));
    got = lvni_slurm_train_log_error("[t][ERROR] a\n[t][INFO] b\n", &n);
    assert_null(got);
    got = lvni_slurm_train_log_error("[t][INFO] b\n[t][ERROR] c\n[t][ERROR]   in d\n", &n);
    assert_text(got, n, "c");
    assert_int_equal(lvni_slurm_last_lines("a\nb\nc\n", 6, 2), 2);
    assert_int_equal(lvni_slurm_last_lines("a\nb\nc", 5, 2), 2);
    assert_int_equal(lvni_slurm_last_lines("a\nb\nc\n", 6, 9), 0);
    assert_int_equal(lvni_slurm_last_lines("a\n", 2, 0), 2);
    assert_int_equal(lvni_slurm_last_lines("", 0, 3), 0);
}

TEST(tails_of_files)
{
    char path[] = "/tmp/levin-tail-XXXXXX";
    const int fd = mkstemp(path);
    lvni_core_str out = {0};
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "one\ntwo\0x\nthree\n", 16), 16);
    close(fd);
    assert_true(lvni_slurm_tail_read(path, 1000, &out));
    assert_string_equal(lvni_core_str_text(&out), "one\ntwo x\nthree\n");
    lvni_core_str_clear(&out);
    assert_true(lvni_slurm_tail_read(path, 10, &out));
    assert_string_equal(lvni_core_str_text(&out), "three\n");
    unlink(path);
    assert_false(lvni_slurm_tail_read(path, 10, &out));
    assert_false(lvni_slurm_tail_read("/tmp", 10, &out));
    lvni_core_str_free(&out);
}

TEST(nodes)
{
    static const char sinfo[] =
        "n1" S "p*" S "mixed" S "2/6/0/8" S "1024" S "4096" S
        "gpu:A100:4(S:0,1),gpu:H100:2,mps:80" S "gpu:A100:3(IDX:0-1,3),gpu:H100:0(IDX:N/A)" S
        "infinite" S "\n"
        "n2" S "p*" S "mixed" S "0/8/0/8" S "0" S "4096" S "gpu:A100:4,gpu:H100:2" S
        "gpu:A100:0,gpu:H100:1" S "infinite" S "\n"
        "n3" S "p*" S "mixed+drain" S "2/0/6/8" S "0" S "4096" S "gpu:4" S "gpu:1" S "infinite" S
        "\n"
        "n4" S "q" S "idle~" S "0/4/0/4" S "0" S "100" S "(null)" S "(null)" S "1:00" S "\n"
        "sinfo: error: something\n";
    lvni_slurm_partitions c;
    assert_int_equal(lvni_slurm_partitions_read(sinfo, NULL, false, &c), LVN_OK);
    assert_int_equal(c.n, 3);
    const lvni_slurm_nodes *one = &c.list[0];
    assert_int_equal(one->n, 2);
    assert_string_equal(lvni_core_str_text(&one->names), "n1,n2");
    assert_string_equal(one->word, "partly used");
    assert_int_equal(one->cpus, 16);
    assert_int_equal(one->cpus_free, 14);
    assert_int_equal(one->memory_free, 4096 + 3072);
    assert_int_equal(one->n_gpus, 2);
    assert_string_equal(one->gpus[0].type, "A100");
    assert_int_equal(one->gpus[0].total, 8);
    assert_int_equal(one->gpus[0].free, 5);
    assert_string_equal(one->gpus[1].type, "H100");
    assert_int_equal(one->gpus[1].free, 3);
    assert_string_equal(c.list[1].word, "draining");
    assert_string_equal(c.list[1].gpus[0].type, "gpu");
    assert_int_equal(c.list[1].gpus[0].total, 4);
    assert_int_equal(c.list[1].gpus[0].free, 0);
    assert_int_equal(c.list[1].cpus_free, 0);
    assert_string_equal(c.list[2].word, "free, powered down");
    assert_true(c.list[2].usable);
    lvni_slurm_partitions_free(&c);
    assert_int_equal(lvni_slurm_partitions_read(sinfo, "p", true, &c), LVN_OK);
    assert_int_equal(c.n, 3);
    lvni_slurm_partitions_free(&c);
}
