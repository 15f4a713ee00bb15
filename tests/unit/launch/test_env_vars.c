/* Which variables of NCCL are known, LEVIN_STRICT, and warnings as errors. */
#include "core/alloc.h"
#include "launch/env_vars.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

TEST(names)
{
    static const struct {
        const char *name;
        bool unknown;
        const char *near;
    } rows[] = {
        {"NCCL_DEBUG", false, NULL},
        {"NCCL_SOCKET_IFNAME", false, NULL},
        {"NCCL_IB_HCA", false, NULL},
        {"NCCL_NET_GDR_LEVEL", false, NULL},
        {"NCCL_VERSION", false, NULL},              /* of container images */
        {"NCCL_UCX_TLS", false, NULL},              /* of a plugin */
        {"NCCL_ASYNC_ERROR_HANDLING", false, NULL}, /* of PyTorch */
        {"TORCH_NCCL_TRACE_BUFFER_SIZE", false, NULL},
        {"PATH", false, NULL},
        {"NCCL", false, NULL},
        {"nccl_debug", false, NULL}, /* names of variables have a case */
        {"NCCL_SOCKET_IFNMAE", true, "SOCKET_IFNAME"},
        {"NCCL_DEBUGG", true, "DEBUG"},
        {"NCCL_debug", true, "DEBUG"},
        {"NCCL_P2P_DISABLED", true, "P2P_DISABLE"},
        {"NCCL_QWERTZUIOP", true, NULL},
        {"NCCL_", true, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *near;
        if (lvni_launch_nccl_is_unknown(rows[i].name, &near) != rows[i].unknown) {
            fail_msg("%s", rows[i].name);
        }
        if (rows[i].unknown && (near == NULL) != (rows[i].near == NULL)) {
            fail_msg("%s: near %s", rows[i].name, near == NULL ? "nothing" : near);
        }
        if (rows[i].unknown && rows[i].near != NULL) {
            assert_string_equal(near, rows[i].near);
        }
    }
}

static char *const env[] = {(char[]){"HOME=/root"},      (char[]){"NCCL_DEBUG=INFO"},
                            (char[]){"NCCL_FOO_BARR=1"}, (char[]){"NCCL_DEBUK="},
                            (char[]){"NCCL_NOVALUE"},    NULL};

TEST(warnings)
{
    lvni_core_notices n = {0};
    assert_int_equal(lvni_launch_nccl_warn(NULL, &n), LVN_OK);
    assert_int_equal(lvni_launch_nccl_warn(env, &n), LVN_OK);
    assert_int_equal(n.n_warnings, 2);
    assert_string_equal(lvni_core_str_text(&n.warnings),
                        "levin: warning W214: NCCL_FOO_BARR is not a known variable of NCCL; it is "
                        "passed on as it is\n"
                        "levin: warning W214: NCCL_DEBUK is not a known variable of NCCL "
                        "(did you mean NCCL_DEBUG?); it is passed on as it is\n");
    lvni_core_notices_free(&n);
}

TEST(warnings_become_errors)
{
    lvni_core_notices n = {.rank = 1};
    assert_int_equal(lvni_core_notices_refuse_warnings(&n), LVN_OK);
    assert_int_equal(n.error, 0);
    lvni_core_notice_warn(&n, 202, "too %s", "many");
    lvni_core_notice_warn(&n, 211, "another");
    assert_int_equal(lvni_core_notices_refuse_warnings(&n), LVN_ERR_USAGE);
    assert_string_equal(lvni_core_str_text(&n.text),
                        "levin: error W202: too many\nlevin: error W211: another\n"
                        "  fix: warnings are errors here (strict=true, or LEVIN_STRICT=1): fix "
                        "what they report, or set strict=false\n");
    assert_string_equal(lvn_last_error()->message, "W202: too many (warnings are errors: strict)");
    assert_string_equal(lvni_core_str_text(&n.warnings), "");
    assert_int_equal(n.n_warnings, 0);
    assert_int_equal(n.error, 202);
    assert_int_equal(lvni_core_notices_exit(&n), LVNI_EXIT_USAGE);
    assert_int_equal(lvni_core_exit_of_error(lvn_last_error()), LVNI_EXIT_USAGE);
    assert_string_equal(lvni_core_error_prefix(lvn_last_error()), "levin: error ");
    assert_false(lvni_core_notices_should_print(&n)); /* rank 0 prints it */
    lvni_core_notices_free(&n);
}

/* A message may begin with a path, and a path with anything. */
TEST(a_number_is_not_part_of_the_message)
{
    lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__, "%s: damaged PNG", "E113: a/3.png");
    assert_int_equal(lvni_core_exit_of_error(lvn_last_error()), LVNI_EXIT_FAILURE);
    assert_string_equal(lvni_core_error_prefix(lvn_last_error()), "error: ");
    lvni_core_notices n = {.rank = 0};
    assert_int_equal(lvni_core_notice_error(&n, 113, "too late"), LVN_ERR_TIMEOUT);
    assert_int_equal(lvn_last_error()->number, 113);
    assert_int_equal(lvni_core_exit_of_error(lvn_last_error()), LVNI_EXIT_RENDEZVOUS);
    lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "another"); /* has none */
    assert_int_equal(lvn_last_error()->number, 0);
    lvni_core_notices_free(&n);
}

TEST(switches)
{
    static const struct {
        const char *set;
        int option;
        bool want;
        lvn_status status;
    } rows[] = {
        {"LEVIN_STRICT=1", -1, true, LVN_OK}, {"LEVIN_STRICT=0", -1, false, LVN_OK},
        {"LEVIN_STRICT=0", 1, true, LVN_OK},  {"LEVIN_STRICT=1", 0, false, LVN_OK},
        {"LEVIN_STRICT=", -1, false, LVN_OK}, {"A=b", 1, true, LVN_OK},
        {"A=b", -1, false, LVN_OK},           {"LEVIN_STRICT=true", -1, false, LVN_ERR_USAGE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char variable[40];
        char *const one[] = {variable, NULL};
        snprintf(variable, sizeof variable, "%s", rows[i].set);
        bool strict = false;
        lvni_core_notices n = {0};
        assert_int_equal(lvni_launch_env_strict(one, rows[i].option, &n, &strict), rows[i].status);
        assert_int_equal(strict, rows[i].want);
        assert_int_equal(n.error, rows[i].status == LVN_OK ? 0 : 100);
        lvni_core_notices_free(&n);
    }
}

/* Every allocation may fail: the status is LVN_ERR_MEMORY, and no warning is lost half-way. */
TEST(out_of_memory)
{
    const lvni_core_alloc_stats before = lvni_core_alloc_get_total();
    lvn_status s = LVN_ERR_MEMORY;
    for (int k = 1; s != LVN_ERR_USAGE; k++) {
        lvni_core_notices n = {0};
        assert_true(k < 100);
        lvni_core_alloc_fail_at(k);
        s = lvni_launch_nccl_warn(env, &n);
        if (s == LVN_OK) {
            s = lvni_core_notices_refuse_warnings(&n);
        }
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_ERR_USAGE || s == LVN_ERR_MEMORY);
        lvni_core_notices_free(&n);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before.live_bytes);
    }
}
