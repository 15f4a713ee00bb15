/* What a user writes for `devices`, row by row: what is chosen, or the sentence. */
#include "core/alloc.h"
#include "launch/device_spec.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

static const char *const uuids[] = {"GPU-aa10", "GPU-aa20", "GPU-bb30", "GPU-cc40",
                                    NULL,       NULL,       NULL,       NULL};

typedef struct row {
    const char *spec;
    const char *want;  /* "cuda 0,1", "cpu 2"; or the sentence of the error */
    const char *value; /* of CUDA_VISIBLE_DEVICES */
    int physical;      /* devices of the machine; 0 stands for 4, -1 for none */
    lvni_launch_accelerator accelerator;
    bool gpus, shared, launched;
    int nproc;
    const char *shown; /* CUDA_VISIBLE_DEVICES of the children; NULL: not looked at */
} row;

/* "cuda 0,1", or what is wrong. */
static void choice_text(const row *r, lvni_core_str *out, lvni_core_notices *notices)
{
    static const char *const names[] = {"auto", "cpu", "cuda", "sim"};
    lvni_launch_visible v = {.n = 0};
    lvni_launch_device_choice c = {.n = 0};
    const lvni_launch_device_request request = {.key = r->gpus ? "gpus" : "devices",
                                                .spec = r->spec,
                                                .accelerator = r->accelerator,
                                                .gpus = r->gpus,
                                                .allow_shared = r->shared,
                                                .launched = r->launched,
                                                .nproc = r->nproc};
    lvn_status s = lvni_launch_visible_make(r->value,
                                            r->physical == 0  ? 4
                                            : r->physical < 0 ? 0
                                                              : r->physical,
                                            uuids, &v);
    if (s == LVN_OK) {
        s = lvni_launch_device_choose(&request, &v, notices, &c);
    }
    if (s != LVN_OK) {
        lvni_core_str_append(out, lvn_last_error()->message);
    } else {
        lvni_core_str_printf(out, "%s", names[c.accelerator]);
        for (int i = 0; i < c.n && c.index != NULL; i++) {
            lvni_core_str_printf(out, "%c%d", i == 0 ? ' ' : ',', c.index[i]);
        }
        if (c.index == NULL) {
            lvni_core_str_printf(out, " %d", c.n);
        }
        if (r->shown != NULL) {
            lvni_core_str shown = {.len = 0};
            lvni_launch_device_choice_print(&c, &v, &shown);
            assert_string_equal(lvni_core_str_text(&shown), r->shown);
            lvni_core_str_free(&shown);
        }
    }
    lvni_launch_device_choice_free(&c);
    lvni_launch_visible_free(&v);
}

static void check(const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        lvni_core_str out = {.len = 0};
        lvni_core_notices notices = {.error = 0};
        choice_text(&rows[i], &out, &notices);
        if (strcmp(lvni_core_str_text(&out), rows[i].want) != 0) {
            fail_msg("devices=%s: got '%s', want '%s'",
                     rows[i].spec != NULL ? rows[i].spec : "(none)", lvni_core_str_text(&out),
                     rows[i].want);
        }
        lvni_core_str_free(&out);
        lvni_core_notices_free(&notices);
    }
}
#define CHECK(rows) check(rows, sizeof(rows) / sizeof *(rows))

/* A row; the fields after the two are optional. */
#define R(text, wanted, ...)                                                                       \
    {                                                                                              \
        .spec = (text), .want = (wanted), __VA_ARGS__                                              \
    }

TEST(which_devices)
{
    static const row rows[] = {
        R(NULL, "cuda 0,1,2,3", .shown = "0,1,2,3"),
        R("auto", "cuda 0,1,2,3"),
        R("all", "cuda 0,1,2,3"),
        R("ALL", "cuda 0,1,2,3"),
        R("-1", "cuda 0,1,2,3"),
        R("\"-1\"", "cuda 0,1,2,3"),
        R("2", "cuda 0,1", .shown = "0,1"),
        R(" 2 ", "cuda 0,1"),
        R("3", "cuda 0,1,2"),
        R("[1,3]", "cuda 1,3", .shown = "1,3"),
        R("1,3", "cuda 1,3", .shown = "1,3"),
        R("1, 3", "cuda 1,3"),
        R("'0, 1'", "cuda 0,1"),
        R("\"[1, 3]\"", "cuda 1,3"),
        R("[2,0]", "cuda 2,0", .shown = "2,0"),
        R("[3]", "cuda 3"),
        R("3,", "cuda 3"),
        R("[ 3 ]", "cuda 3"),
        R("[1,1]", "cuda 1,1", .shared = true, .shown = "1"),
        R("[0,2]", "cuda 0,2", .nproc = 2),
        R("2", "sim 0,1", .accelerator = LVNI_ACCELERATOR_SIM),
        R("[1,3]", "sim 1,3", .accelerator = LVNI_ACCELERATOR_SIM, .shown = "1,3"),
        R("GPU-bb", "cuda 2"),
        R("GPU-cc40,GPU-aa2", "cuda 3,1"),
        R("[GPU-aa10,2]", "cuda 0,2"),
    };
    CHECK(rows);
}

/* Numbers of the user are places in CUDA_VISIBLE_DEVICES, never numbers of the machine. */
TEST(within_the_visible)
{
    static const row rows[] = {
        R("all", "cuda 0,1", .value = "0,1", .shown = "0,1"),
        R("1", "cuda 0", .value = "4,6", .physical = 8, .shown = "4"),
        R("[1]", "cuda 1", .value = "4,6", .physical = 8, .shown = "6"),
        R("[0,2]", "cuda 0,2", .value = "4,5,6", .physical = 8, .shown = "4,6"),
        R("all", "cuda 0,1", .value = " 3 , 1", .shown = "3,1"),
        R("all", "cuda 0", .value = "0,-1,1"),
        R("all", "cuda 0", .value = "0,9,1"),
        R("all", "cuda 0,1", .value = "GPU-cc40,1", .shown = "GPU-cc40,1"),
        R("all", "cuda 0", .value = "GPU-bb,GPU-aa", .shown = "GPU-bb"), /* two begin with GPU-aa */
        R("MIG-1234", "cuda 1", .value = "MIG-77aa,MIG-1234ffff", .shown = "MIG-1234ffff"),
        R("all", "cuda 0,1", .value = "MIG-77aa,MIG-1234ffff"),
        R("all", "CUDA_VISIBLE_DEVICES=0,0 names 0 twice", .value = "0,0"),
        R("all", "CUDA_VISIBLE_DEVICES=2,GPU-bb names GPU-bb twice", .value = "2,GPU-bb"),
        R("2", "sim 0,1", .value = "3,1,0", .accelerator = LVNI_ACCELERATOR_SIM, .shown = "3,1"),
        R("3", "devices 3: only 2 devices are visible; visible: 0-1 (CUDA_VISIBLE_DEVICES=0,1)",
          .value = "0,1"),
        R("[2]", "devices [2]: there is no device 2; visible: 0-1 (CUDA_VISIBLE_DEVICES=3,2)",
          .value = "3,2", .accelerator = LVNI_ACCELERATOR_SIM),
    };
    CHECK(rows);
}

TEST(mistakes)
{
    static const row rows[] = {
        R("5", "devices 5: only 4 devices are visible; visible: 0-3"),
        R("2", "devices 2: only 1 device is visible; visible: 0", .physical = 1),
        R("[4]", "devices [4]: there is no device 4; visible: 0-3"),
        R("[1,1]", "devices [1,1]: device 1 is listed twice; allow_shared_device=true lets "
                   "ranks share one; visible: 0-3"),
        R("[]", "devices []: the list names no device; visible: 0-3"),
        R(",", "devices ,: the list names no device; visible: 0-3"),
        R("-2", "devices -2: a number of devices is 1 or more, and -1 means all; visible: 0-3"),
        R("[0,-1]", "devices [0,-1]: -1 is not the index of a device; visible: 0-3"),
        R("0", "devices 0: give at least 1; to use no GPU set accelerator=cpu (--accelerator cpu)"),
        R("0", "devices 0: give at least 1; devices=1 is one rank on the CPU (accelerator=cpu)",
          .accelerator = LVNI_ACCELERATOR_CPU),
        R("",
          "devices : the value is empty; give all, a number, or a list such as 0,2; visible: 0-3"),
        R("a", "devices a: cannot read 'a' as a number; give all, a number, a list such as 0,2, or "
               "the beginning of a UUID; visible: 0-3"),
        R("1.5", "devices 1.5: cannot read '1.5' as a number; give all, a number, a list such as "
                 "0,2, or the beginning of a UUID; visible: 0-3"),
        R("--1", "devices --1: cannot read '--1' as a number; give all, a number, a list such as "
                 "0,2, or the beginning of a UUID; visible: 0-3"),
        R("99999999999", "devices 99999999999: cannot read '99999999999' as a number; give all, a "
                         "number, a list such as 0,2, or the beginning of a "
                         "UUID; visible: 0-3"),
        R("1,x",
          "devices 1,x: cannot read 'x' as a number or the beginning of a UUID; visible: 0-3"),
        R("[1,3", "devices [1,3: the brackets do not match; visible: 0-3"),
        R("1]", "devices 1]: the brackets do not match; visible: 0-3"),
        R("[", "devices [: the brackets do not match; visible: 0-3"),
        R("GPU-zz",
          "devices GPU-zz: no visible device has a UUID that begins with GPU-zz; visible: 0-3"),
        R("GPU-aa", "devices GPU-aa: both GPU-aa10 and GPU-aa20 begin with GPU-aa; visible: 0-3"),
        R("[0,1]",
          "devices [0,1]: the list has 2 devices, but 3 processes are asked for (--nproc); "
          "visible: 0-3",
          .nproc = 3),
    };
    CHECK(rows);
}

TEST(cpu)
{
    static const row rows[] = {
        R(NULL, "cpu 1", .accelerator = LVNI_ACCELERATOR_CPU),
        R("all", "cpu 1", .accelerator = LVNI_ACCELERATOR_CPU),
        R("4", "cpu 4", .accelerator = LVNI_ACCELERATOR_CPU),
        R(NULL, "cpu 1", .physical = -1),
        R("-1", "cpu 1", .physical = -1),
        R("3", "cpu 3", .physical = -1),
        R("2", "cpu 2", .value = ""),
        R("0", "cpu 1", .gpus = true),
        R("0", "gpus 0: 0 asks for the CPU, and accelerator for GPUs", .gpus = true,
          .accelerator = LVNI_ACCELERATOR_CUDA),
        R("[0,1]",
          "devices [0,1]: a list names GPUs; on the CPU give the number of ranks: "
          "devices=2",
          .accelerator = LVNI_ACCELERATOR_CPU),
        R("3,", "devices 3,: a list names GPUs; on the CPU give the number of ranks: devices=1",
          .accelerator = LVNI_ACCELERATOR_CPU),
    };
    CHECK(rows);
}

/* Under srun or torchrun each task may see a device of its own, and still have devices=2. */
TEST(one_device_shown)
{
    static const row rows[] = {
        R("2", "cuda 0,0", .physical = 1, .launched = true),
        R("[0,1]", "cuda 0,0", .physical = 1, .launched = true),
        R("3", "devices 3: only 2 devices are visible; visible: 0-1", .physical = 2,
          .launched = true),
    };
    CHECK(rows);
}

TEST(no_gpu_where_one_is_asked_for)
{
    static char empty[] = "CUDA_VISIBLE_DEVICES=", on_node[] = "SLURM_GPUS_ON_NODE=2";
    static char *const env[] = {empty, on_node, NULL};
    static const row rows[] = {
        R(NULL, "", .accelerator = LVNI_ACCELERATOR_CUDA),
        R("[0]", ""),
        R("2", "", .gpus = true),
        R("-1", "", .gpus = true),
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_launch_visible v = {.n = 0};
        lvni_launch_device_choice c = {.n = 7};
        lvni_core_notices n = {.error = 0};
        assert_int_equal(lvni_launch_visible_make("", 4, NULL, &v), LVN_OK);
        const lvni_launch_device_request request = {.key = "devices",
                                                    .spec = rows[i].spec,
                                                    .accelerator = rows[i].accelerator,
                                                    .gpus = rows[i].gpus,
                                                    .env = env};
        assert_int_equal(lvni_launch_device_choose(&request, &v, &n, &c), LVN_ERR_NOT_FOUND);
        assert_int_equal(c.n, 7); /* untouched */
        assert_int_equal(n.error, 106);
        assert_int_equal(lvni_core_notices_exit(&n), LVNI_EXIT_RESOURCE);
        const char *text = lvni_core_str_text(&n.text);
        assert_non_null(strstr(text, "levin: error E106: GPUs are asked for, but this process sees "
                                     "none: CUDA_VISIBLE_DEVICES is empty\n"));
        assert_non_null(strstr(text, "  found: CUDA_VISIBLE_DEVICES=\n"));
        assert_non_null(strstr(text, "  found: SLURM_GPUS_ON_NODE=2\n"));
        assert_non_null(strstr(text, "  found: SLURM_JOB_GPUS is not set\n"));
        assert_non_null(strstr(
            text,
            "  fix: under Slurm ask for them: #SBATCH --gpus-per-node=D (or --gres=gpu:D)\n"));
        lvni_core_notices_free(&n);
        lvni_launch_visible_free(&v);
    }
}

/* Each allocation fails once: LVN_ERR_MEMORY, and nothing is left over. */
TEST(out_of_memory)
{
    const lvni_core_alloc_stats before = lvni_core_alloc_get_total();
    lvn_status s = LVN_ERR_MEMORY;
    for (int k = 1; s != LVN_OK; k++) {
        lvni_launch_visible v = {.n = 0};
        lvni_launch_device_choice c = {.n = 0};
        lvni_core_notices n = {.error = 0};
        const lvni_launch_device_request request = {.key = "devices", .spec = "3,1"};
        assert_true(k < 100);
        lvni_core_alloc_fail_at(k);
        s = lvni_launch_visible_make("0,1,2,3", 4, uuids, &v);
        if (s == LVN_OK) {
            s = lvni_launch_device_choose(&request, &v, &n, &c);
        }
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        lvni_launch_device_choice_free(&c);
        lvni_launch_visible_free(&v);
        lvni_core_notices_free(&n);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before.live_bytes);
    }
}
