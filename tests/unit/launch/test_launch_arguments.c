/* What the launcher reads and puts together without starting anything: patterns, lists of ranks,
 * options, environments, cores, GPUs. */

#include "core/alloc.h"
#include "core/vfs.h"
#include "launch/env_vars.h"
#include "launch/launch.h"
#include "launch/launch_machine.h"
#include "launch/launch_options.h"
#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const lvni_launch_rank_name someone = {.rank = 7,
                                              .local_rank = 3,
                                              .node_rank = 1,
                                              .world = 16,
                                              .attempt = 2,
                                              .host = "n08",
                                              .run_id = "abc",
                                              .pid = 4711};

TEST(patterns_are_expanded)
{
    static const char *const rows[][3] = {/* pattern, as a file name, as a value */
                                          {"r%3r.txt", "r007.txt", "r%3r.txt"},
                                          {"[%r] ", "[7] ", "[7] "},
                                          {"%h/%j.%a-%p", "n08/abc.2-4711", "%h/%j.%a-%p"},
                                          {"%l of %w on %n", "3 of 16 on 1", "3 of 16 on 1"},
                                          {"100%%", "100%", "100%"},
                                          {"", "", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_core_str s = {0};
        assert_int_equal(lvni_launch_pattern_check("output", rows[i][0]), LVN_OK);
        lvni_launch_pattern_expand(&s, rows[i][0], &someone);
        assert_string_equal(lvni_core_str_text(&s), rows[i][1]);
        lvni_core_str_clear(&s);
        lvni_launch_pattern_expand_value(&s, rows[i][0], &someone);
        if (strstr(rows[i][0], "%3") == NULL) {
            assert_string_equal(lvni_core_str_text(&s), rows[i][2]);
        }
        lvni_core_str_free(&s);
    }
    static const char *const bad[] = {"%", "%q", "%3", "a%99999999999r", "%-3r"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lvni_launch_pattern_check("output", bad[i]), LVN_ERR_USAGE);
    }
}

TEST(lists_of_ranks)
{
    static const struct {
        const char *text, *in; /* NULL: an error */
    } rows[] = {
        {"all", "111111"}, {"none", "000000"}, {"0", "100000"}, {"0,3-5", "100111"},
        {"5,1", "010001"}, {"2-2", "001000"},  {"6", NULL},     {"", NULL},
        {"1,", NULL},      {"3-1", NULL},      {"a", NULL},     {"-1", NULL},
        {"0-9", NULL},     {"1 2", NULL},      {",", NULL},     {"99999999999999999999", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool in[6];
        const lvn_status s = lvni_launch_rank_list("show", rows[i].text, 6, in);
        assert_int_equal(s, rows[i].in == NULL ? LVN_ERR_USAGE : LVN_OK);
        for (int r = 0; rows[i].in != NULL && r < 6; r++) {
            assert_int_equal(in[r], rows[i].in[r] == '1');
        }
    }
}

TEST(arguments_become_options)
{
    static const char *const words[] = {
        "-n",          "4",      "--env", "A=1",         "--unset=B", "env=C=2",
        "--grace=2.5", "show=0", "-v",    "--no-prefix", "--stdin",   "all",
        "--",          "prog",   "-n",    "--",          "x"};
    lvni_launch_options o;
    char *const none[] = {NULL};
    assert_int_equal(lvni_launch_options_read(sizeof words / sizeof *words, words, none, &o),
                     LVN_OK);
    assert_string_equal(o.nproc, "4");
    assert_int_equal(o.n_env, 2);
    assert_string_equal(o.env[0], "A=1");
    assert_string_equal(o.env[1], "C=2");
    assert_int_equal(o.n_unset, 1);
    assert_string_equal(o.unset[0], "B");
    assert_true(o.grace_s > 2.4 && o.grace_s < 2.6);
    assert_string_equal(o.show, "0");
    assert_true(o.verbose && !o.quiet);
    assert_string_equal(o.prefix, "");
    assert_int_equal(o.standard_input, LVNI_STDIN_ALL);
    assert_int_equal(o.n_program, 4);
    assert_string_equal(o.program[0], "prog");
    assert_string_equal(o.program[2], "--");
    lvni_launch_options_free(&o);
    static const char *const bad[][4] = {{"ls"},
                                         {"--"},
                                         {"--env", "--", "ls"},
                                         {"--unset=A=1", "--", "ls"},
                                         {"bind=sockets", "--", "ls"},
                                         {"devices=1", "gpus=1", "--", "ls"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int n = 0;
        while (n < 4 && bad[i][n] != NULL) {
            n++;
        }
        assert_int_equal(lvni_launch_options_read(n, bad[i], none, &o), LVN_ERR_USAGE);
        lvni_launch_options_free(&o);
    }
}

/* torchrun reads each option from PET_<OPTION>, too, below its arguments. */
TEST(variables_become_options)
{
    char *const set[] = {(char[]){"PET_NPROC_PER_NODE=3"}, (char[]){"PET_NNODES=2"},
                         (char[]){"PET_NODE_RANK=1"},      (char[]){"PET_MASTER_ADDR="},
                         (char[]){"PET_STANDALONE=0"},     (char[]){"PET_RUN_PATH=0"},
                         (char[]){"PET_FOOD=cat"},         (char[]){"PETS=9"},
                         (char[]){"PET_MODULE=1"},         NULL};
    static const char *const words[] = {"--node-rank", "0", "json.tool", "--nnodes=4"};
    lvni_launch_options o;
    assert_int_equal(lvni_launch_options_read(4, words, set, &o), LVN_OK);
    assert_string_equal(o.nproc, "3");
    assert_int_equal(o.nodes, 2);
    assert_true(o.nodes_given);
    assert_int_equal(o.node_rank, 0);
    assert_null(o.master_addr);
    assert_string_equal(o.program[2], "-m");
    assert_string_equal(lvni_core_config_notes(o.config),
                        "note: PET_RUN_PATH has no effect: the script is started by python3 -u; "
                        "leave it out  (environment)\n");
    lvni_launch_options_free(&o);
    char *const bad[] = {(char[]){"PET_NNODES=1:4"}, NULL};
    assert_int_equal(lvni_launch_options_read(4, words, bad, &o), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "(PET_NNODES)"));
    lvni_launch_options_free(&o);
    /* a command that became its own launcher has given all options */
    char *const own[] = {(char[]){"PET_NNODES=1:4"}, (char[]){"LEVIN_HANDED_OVER=1"}, NULL};
    static const char *const plain[] = {"--", "x"};
    assert_int_equal(lvni_launch_options_read(2, plain, own, &o), LVN_OK);
    assert_int_equal(o.nodes, 1);
    lvni_launch_options_free(&o);
}

/* What stands behind the script, `--help` too, is the script's. */
TEST(arguments_of_the_program)
{
    static const struct {
        const char *args[6];
        int own;
    } rows[] = {
        {{"--help"}, 1},
        {{"-n", "2", "-h"}, 3},
        {{"-n", "2", "train.py", "--help"}, 2},
        {{"train.py", "-h"}, 0},
        {{"-m", "json.tool", "--help"}, 1},
        {{"-m", "-h", "json.tool"}, 3},
        {{"data=x", "--help"}, 2},
        {{"--no-python", "ls", "--help"}, 1},
        {{"-n", "2", "--", "ls", "--help"}, 2},
        {{"--standalone", "./x", "--", "--help"}, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = 0;
        while (n < 6 && rows[i].args[n] != NULL) {
            n++;
        }
        assert_int_equal(lvni_launch_own_arguments(n, rows[i].args), rows[i].own);
    }
}

TEST(environments)
{
    char a[] = "A=1", ab[] = "AB=2", m1[] = "MASTER_ADDR=x", m2[] = "MASTER_PORT=y";
    char *const from[] = {a, ab, m1, m2, NULL};
    lvni_launch_variables v = {0};
    lvni_launch_variables_copy(&v, from);
    lvni_launch_variables_set(&v, "A", "new");
    lvni_launch_variables_set_number(&v, "N", -3);
    lvni_launch_variables_unset_prefix(&v, "MASTER_");
    lvni_launch_variables_unset(&v, "nothing");
    assert_int_equal(lvni_launch_variables_status(&v), LVN_OK);
    assert_int_equal(v.n, 3);
    assert_string_equal(lvni_launch_variables_get(&v, "A"), "new");
    assert_string_equal(lvni_launch_variables_get(&v, "AB"), "2");
    assert_string_equal(lvni_launch_variables_get(&v, "N"), "-3");
    assert_null(lvni_launch_variables_get(&v, "MASTER_ADDR"));
    assert_null(v.list[3]);
    lvni_launch_variables_free(&v);
}

TEST(memory_that_runs_out_is_reported)
{
    char a[] = "A=1";
    char *const from[] = {a, NULL};
    for (int64_t k = 1; k <= 5; k++) {
        lvni_launch_variables v = {0};
        lvni_core_alloc_fail_at(k);
        lvni_launch_variables_copy(&v, from);
        lvni_launch_variables_set(&v, "B", "2");
        const bool failed = lvni_core_alloc_fail_at(0) == 0;
        assert_int_equal(lvni_launch_variables_status(&v), failed ? LVN_ERR_MEMORY : LVN_OK);
        lvni_launch_variables_free(&v);
    }
}

TEST(cores_are_dealt_out)
{
    static const int rows[][5] = {/* cores, ranks, and how many ranks 0, 1 and the last get */
                                  {8, 4, 2, 2, 2},
                                  {10, 4, 3, 3, 2},
                                  {7, 7, 1, 1, 1},
                                  {9, 2, 5, 4, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int next = 0;
        for (int k = 0; k < rows[i][1]; k++) {
            int first, count;
            lvni_launch_bind_share(rows[i][0], rows[i][1], k, &first, &count);
            assert_int_equal(first, next);
            assert_int_equal(count, k == rows[i][1] - 1 ? rows[i][4]
                                    : k == 0            ? rows[i][2]
                                    : k == 1            ? rows[i][3]
                                                        : count);
            next = first + count;
        }
        assert_int_equal(next, rows[i][0]);
    }
}

TEST(binding_on_this_machine)
{
    lvni_core_notices notices = {0};
    lvni_launch_bind_plan p;
    assert_int_equal(lvni_launch_bind_make(LVNI_BIND_CORES, 1, NULL, false, &notices, &p), LVN_OK);
    assert_int_equal(p.how, LVNI_BIND_CORES);
    assert_int_equal(lvni_launch_bind_threads(&p, 0), p.n_cpus);
    lvni_launch_bind_free(&p);
    assert_int_equal(lvni_launch_bind_make(LVNI_BIND_AUTO, 4096, NULL, false, &notices, &p),
                     LVN_OK);
    assert_int_equal(p.how, LVNI_BIND_NONE);
    assert_int_equal(lvni_launch_bind_threads(&p, 4095), 1);
    lvni_launch_bind_free(&p);
    assert_int_equal(lvni_launch_bind_make(LVNI_BIND_AUTO, 1, NULL, true, &notices, &p), LVN_OK);
    assert_int_equal(p.how, LVNI_BIND_NONE); /* bound by srun already */
    lvni_launch_bind_free(&p);
    assert_int_equal(notices.n_warnings, 0);
    const int nowhere[] = {-1};
    assert_int_equal(lvni_launch_bind_make(LVNI_BIND_NUMA, 1, nowhere, false, &notices, &p),
                     LVN_OK);
    assert_int_equal(p.how, LVNI_BIND_CORES);
    assert_int_equal(notices.n_warnings, 1); /* W212 */
    lvni_launch_bind_free(&p);
    lvni_core_notices_free(&notices);
}

/* ---- GPUs, in a made-up /proc, /dev and /sys ---- */

static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *p = path + strlen(root) + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            assert_int_equal(lvni_core_mkdirs(path), LVN_OK);
            *p = '/';
        }
    }
    assert_int_equal(lvni_core_file_write(path, text, strlen(text)), LVN_OK);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)type;
    (void)at;
    return remove(path);
}

TEST(gpus_without_a_driver_library)
{
    char root[] = "/tmp/levin-gpus-XXXXXX";
    assert_non_null(mkdtemp(root));
    lvni_launch_gpu *gpus;
    int n;
    assert_int_equal(lvni_launch_gpus_find(root, &gpus, &n), LVN_OK);
    assert_int_equal(n, 0);
    lvni_core_free(gpus);
    put(root, "dev/nvidia0", "");
    put(root, "dev/nvidia2", "");
    put(root, "dev/nvidiactl", "");
    /* a sandbox that hides /proc/driver */
    assert_int_equal(lvni_launch_gpus_find(root, &gpus, &n), LVN_OK);
    assert_int_equal(n, 2);
    lvni_core_free(gpus);
    put(root, "proc/driver/nvidia/gpus/0000:af:00.0/information",
        "Model: \t X\nGPU UUID:  \t GPU-aaa\nDevice Minor: \t 0\n");
    put(root, "proc/driver/nvidia/gpus/0000:3b:00.0/information",
        "Model: \t X\nGPU UUID:  \t GPU-???????\nDevice Minor: \t 2\n");
    /* not ours */
    put(root, "proc/driver/nvidia/gpus/0000:d8:00.0/information",
        "Model: \t X\nGPU UUID:  \t GPU-ccc\nDevice Minor: \t 1\n");
    put(root, "sys/bus/pci/devices/0000:af:00.0/numa_node", "1\n");
    assert_int_equal(lvni_launch_gpus_find(root, &gpus, &n), LVN_OK);
    assert_int_equal(n, 2);
    assert_string_equal(gpus[0].pci, "0000:3b:00.0");
    assert_string_equal(gpus[0].uuid, "");
    assert_int_equal(gpus[0].numa, -1);
    assert_string_equal(gpus[1].uuid, "GPU-aaa");
    assert_int_equal(gpus[1].numa, 1);
    lvni_core_free(gpus);
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
