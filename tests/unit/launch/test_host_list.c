/* Host lists and tasks per node, row by row; random lists against the rule written down as nested
 * loops, and, where Slurm is installed with a configuration, against its own command. */
#include "core/alloc.h"
#include "core/rng.h"
#include "launch/host_list.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names with blanks between them. */
static void join(const lvni_launch_hosts *h, lvni_core_str *out)
{
    for (size_t i = 0; i < h->n; i++) {
        lvni_core_str_printf(out, "%s%s", i > 0 ? " " : "", lvni_launch_hosts_name(h, i));
    }
}

static void expands_as(const char *list, const char *want)
{
    lvni_launch_hosts h = {.n = 0};
    lvni_core_str got = {.len = 0};
    lvni_core_notices n = {.error = 0};
    if (lvni_launch_hosts_expand(&h, list, &n) != LVN_OK) {
        fail_msg("%s: %s", list, lvni_core_str_text(&n.text));
    }
    join(&h, &got);
    if (strcmp(lvni_core_str_text(&got), want) != 0) {
        fail_msg("%s: got '%s', want '%s'", list, lvni_core_str_text(&got), want);
    }
    lvni_core_str_free(&got);
    lvni_launch_hosts_free(&h);
    lvni_core_notices_free(&n);
}

TEST(lists)
{
    static const char *const rows[][2] = {
        {"host0", "host0"},
        {"host0,host1,host3", "host0 host1 host3"},
        {"host[5-9]", "host5 host6 host7 host8 host9"},
        {"node[01-03]", "node01 node02 node03"},
        {"node[001-003,010]", "node001 node002 node003 node010"},
        {"node[8-11]", "node8 node9 node10 node11"},
        {"node[08-11]", "node08 node09 node10 node11"},
        {"node[98-102]", "node98 node99 node100 node101 node102"},
        {"node[098-102]", "node098 node099 node100 node101 node102"},
        {"node[01-3]", "node01 node02 node03"},
        {"node[1-03]", "node1 node2 node3"},
        {"node[1,3,5-7]", "node1 node3 node5 node6 node7"},
        {"node[7]", "node7"},
        {"node[00]", "node00"},
        {"a[1-2],b3,c", "a1 a2 b3 c"},
        {"node[3,1,2]", "node3 node1 node2"},
        {"node[1-2],node[2-3]", "node1 node2 node2 node3"},
        {"node[9-10],node[009-010]", "node9 node10 node009 node010"},
        {"r[1-2]n[1-3]", "r1n1 r1n2 r1n3 r2n1 r2n2 r2n3"},
        {"node[1-2][3-4]", "node13 node14 node23 node24"},
        {"r[1-2]c[0-1]n[08-09]", "r1c0n08 r1c0n09 r2c0n08 r2c0n09 r1c1n08 r1c1n09 r2c1n08 r2c1n09"},
        {"gpu-a100-[01-02],gpu-h100-[1,3]", "gpu-a100-01 gpu-a100-02 gpu-h100-1 gpu-h100-3"},
        {"h100-node-1-[0-1]", "h100-node-1-0 h100-node-1-1"},
        {"compute-gpu-0-2", "compute-gpu-0-2"},
        {"10.0.1.[220-222]", "10.0.1.220 10.0.1.221 10.0.1.222"},
        {"[1-3]", "1 2 3"},
        {"a b", "a b"},
        {"a,,b,", "a b"},
        {" \t\na\n", "a"},
        {"m9g-1-[3-4]", "m9g-1-3 m9g-1-4"},
        {"compute-permanent-node-[583,752,801,869]",
         "compute-permanent-node-583 compute-permanent-node-752 compute-permanent-node-801 "
         "compute-permanent-node-869"},
        {"node[1-2]-ib", "node1-ib node2-ib"},
        {"g[1-2]-ib[0-1]", "g1-ib0 g1-ib1 g2-ib0 g2-ib1"},
        {"node[1-2].cluster.local", "node1.cluster.local node2.cluster.local"},
        {"node[000000000000000001]", "node000000000000000001"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expands_as(rows[i][0], rows[i][1]);
    }
}

TEST(mistakes)
{
    static const struct {
        const char *list;
        int column;
        const char *reason;
    } rows[] = {
        {"node[3-1]", 6, "this range counts down"},
        {"node[]", 6, "a number is missing before this"},
        {"node[a-c]", 6, "brackets hold numbers"},
        {"node[ 1-2 ]", 6, "brackets hold numbers"},
        {"node[1-2 ]", 9, "brackets hold numbers"},
        {"node[1-2,]", 10, "a number is missing before this"},
        {"node[,1-2]", 6, "a number is missing before this"},
        {"node[1-]", 8, "a number is missing before this"},
        {"node[1-2-3]", 9, "a second dash"},
        {"node[1--2]", 8, "a second dash"},
        {"node[1-3:2]", 9, "a range has no step"},
        {"a,node[1-70000]", 8, "at most 65536 values"},
        {"node[1-2", 5, "not closed"},
        {"node[1", 5, "not closed"},
        {"node[", 5, "not closed"},
        {"node1-2]", 8, "not opened"},
        {"node[1[2]]", 7, "brackets inside of brackets"},
        {"node[[1]]", 6, "brackets inside of brackets"},
        {"n[1-2][1-65536][1-9]", 16, "more than 1048576 hosts"},
        {"n[1-65536][1-16]", 1, "more than 1048576 hosts"},
        {"n[1][1][1][1][1][1][1][1][1]", 26, "more than 8 brackets"},
        {"n[1234567890123456789]", 3, "more than 18 digits"},
        {"a\nb]", 4, "not opened"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_launch_hosts h = {.n = 0};
        lvni_core_notices n = {.error = 0};
        assert_int_equal(lvni_launch_hosts_expand(&h, "kept", &n), LVN_OK);
        assert_int_equal(lvni_launch_hosts_expand(&h, rows[i].list, &n), LVN_ERR_USAGE);
        assert_int_equal(n.error, 112);
        char head[64];
        snprintf(head, sizeof head,
                 "levin: error E112: bad host list, column %d: ", rows[i].column);
        const char *text = lvni_core_str_text(&n.text), *line = strchr(text, '\n');
        if (line == NULL || strncmp(text, head, strlen(head)) != 0 ||
            strstr(text, rows[i].reason) == NULL) {
            fail_msg("%s: %s", rows[i].list, text);
            return;
        }
        const char *caret = strchr(line + 1, '^'), *second = strchr(line + 1, '\n');
        assert_true(caret != NULL && second != NULL && caret > second);
        assert_int_equal(caret - (second + 1), 9 + rows[i].column - 1); /* behind "  found: " */
        assert_int_equal(h.n, 1);                                       /* as it was */
        assert_string_equal(lvni_launch_hosts_name(&h, 0), "kept");
        lvni_launch_hosts_free(&h);
        lvni_core_notices_free(&n);
    }
}

/* Of a long list only the surroundings of the mistake are shown. */
TEST(the_caret_of_a_long_list)
{
    lvni_core_str list = {.len = 0};
    lvni_launch_hosts h = {.n = 0};
    lvni_core_notices n = {.error = 0};
    for (int i = 0; i < 1000; i++) {
        lvni_core_str_printf(&list, "%snode[%d-%d]", i > 0 ? "," : "", i, i == 700 ? 1 : i + 1);
    }
    assert_int_equal(lvni_launch_hosts_expand(&h, lvni_core_str_text(&list), &n), LVN_ERR_USAGE);
    const char *found = strstr(lvni_core_str_text(&n.text), "  found: ..."),
               *line = found == NULL ? NULL : strchr(found, '\n');
    const char *caret = line == NULL ? NULL : strchr(line, '^');
    if (found == NULL || line == NULL || caret == NULL) {
        fail_msg("%s", lvni_core_str_text(&n.text));
        return;
    }
    assert_true(line - found < 160);
    assert_memory_equal(found + (caret - line - 1), "700-1]", 6);
    lvni_core_str_free(&list);
    lvni_core_notices_free(&n);
    lvni_launch_hosts_free(&h);
}

TEST(long_ranges)
{
    lvni_launch_hosts h = {.n = 0};
    lvni_core_notices n = {.error = 0};
    assert_int_equal(lvni_launch_hosts_expand(&h, "node[1-65536]", &n), LVN_OK);
    assert_int_equal(h.n, 65536);
    assert_string_equal(lvni_launch_hosts_name(&h, 65535), "node65536");
    lvni_launch_hosts_free(&h);
    assert_int_equal(lvni_launch_hosts_expand(&h, "n[1-65536]-[01-16]", &n), LVN_OK);
    assert_int_equal(h.n, LVNI_HOSTS_MAX);
    assert_string_equal(lvni_launch_hosts_name(&h, LVNI_HOSTS_MAX - 1), "n65536-16");
    lvni_launch_hosts_free(&h);
    lvni_core_notices_free(&n);
}

TEST(compressing)
{
    static const char *const rows[][2] = {
        {"n1 n2 n3 n10", "n[1-3,10]"},
        {"n01 n02 n10 n3", "n[01-02,10,3]"},
        {"a", "a"},
        {"a b", "a,b"},
        {"a1 b1 a2", "a1,b1,a2"},
        {"n9 n10 n11", "n[9-11]"},
        {"n09 n10", "n[09-10]"},
        {"n099 n100", "n[099-100]"},
        {"n9 n010", "n[9,010]"},
        {"n1 n1", "n[1,1]"},
        {"n3 n2", "n[3,2]"},
        {"1 2 3", "[1-3]"},
        {"n1-ib n2-ib", "n1-ib,n2-ib"},
        {"r1n1 r1n2 r2n1", "r1n[1-2],r2n1"},
        {"n999 n1000", "n[999-1000]"},
        {"", ""},
        {"n1 n n2", "n1,n,n2"},
        {"x1234567890123456789 x1234567890123456790", "x1[234567890123456789-234567890123456790]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_launch_hosts h = {.n = 0};
        lvni_core_str got = {.len = 0};
        lvni_core_notices n = {.error = 0};
        assert_int_equal(lvni_launch_hosts_expand(&h, rows[i][0], &n), LVN_OK);
        lvni_launch_hosts_compress(&h, &got);
        assert_string_equal(lvni_core_str_text(&got), rows[i][1]);
        expands_as(rows[i][1], rows[i][0]);
        lvni_core_str_free(&got);
        lvni_launch_hosts_free(&h);
        lvni_core_notices_free(&n);
    }
}

/* Of the k-th draw of the list numbered `round`: 0 to below - 1. */
static int draw(uint32_t round, uint64_t k, int below)
{
    const lvni_core_rng rng = {.key = {{3, 5}}, .a = round};
    return (int)(lvni_core_rng_u32(&rng, k) % (uint32_t)below);
}

/* One element of up to three brackets, and its hosts by plain loops. Two ranges in each bracket at
 * most. */
static void draw_element(uint32_t round, lvni_core_str *list, lvni_core_str *want)
{
    const int groups = draw(round, 0, 4);
    int n[3] = {1, 1, 1}, value[3][16], width[3][16];
    for (int g = 0; g < groups; g++) {
        n[g] = 0;
        lvni_core_str_printf(list, "%c[", 'a' + g);
        for (int r = 0; r <= draw(round, 10 + (uint64_t)g, 2); r++) {
            const uint64_t at = 100 + 10 * (uint64_t)g + (uint64_t)r;
            const int lo = draw(round, at, 120), count = 1 + draw(round, at + 500, 4),
                      pad = draw(round, at + 1000, 4);
            char low[16];
            snprintf(low, sizeof low, "%0*d", pad, lo);
            lvni_core_str_printf(list, "%s%s", r > 0 ? "," : "", low);
            if (count > 1) {
                lvni_core_str_printf(list, "-%0*d", draw(round, at + 1500, 4), lo + count - 1);
            }
            for (int k = 0; k < count; k++, n[g]++) {
                value[g][n[g]] = lo + k;
                width[g][n[g]] = (int)strlen(low);
            }
        }
        lvni_core_str_append(list, "]");
    }
    if (groups == 0) {
        lvni_core_str_append(list, "plain");
        lvni_core_str_append(want, "plain");
        return;
    }
    /* last group fastest, then the first, then the second */
    const int slow = groups == 3 ? 1 : -1, middle = groups >= 2 ? 0 : -1, fast = groups - 1;
    bool first = true;
    for (int a = 0; a < (slow < 0 ? 1 : n[slow]); a++) {
        for (int b = 0; b < (middle < 0 ? 1 : n[middle]); b++) {
            for (int c = 0; c < n[fast]; c++, first = false) {
                lvni_core_str_append(want, first ? "" : " ");
                for (int g = 0; g < groups; g++) {
                    const int i = g == fast ? c : g == slow ? a : b;
                    lvni_core_str_printf(want, "%c%0*d", 'a' + g, width[g][i], value[g][i]);
                }
            }
        }
    }
}

TEST(random_lists)
{
    for (uint32_t round = 0; round < 2000; round++) {
        lvni_core_str list = {.len = 0}, want = {.len = 0}, again = {.len = 0};
        lvni_launch_hosts h = {.n = 0};
        lvni_core_notices n = {.error = 0};
        draw_element(2 * round, &list, &want);
        lvni_core_str_append(&list, ",");
        lvni_core_str_append(&want, " ");
        draw_element(2 * round + 1, &list, &want);
        expands_as(lvni_core_str_text(&list), lvni_core_str_text(&want));
        assert_int_equal(lvni_launch_hosts_expand(&h, lvni_core_str_text(&list), &n), LVN_OK);
        lvni_launch_hosts_compress(&h, &again);
        expands_as(lvni_core_str_text(&again), lvni_core_str_text(&want));
        lvni_core_str_free(&list);
        lvni_core_str_free(&want);
        lvni_core_str_free(&again);
        lvni_launch_hosts_free(&h);
        lvni_core_notices_free(&n);
    }
}

/* What `scontrol show hostnames` prints for the list; false when it does not run here. */
static bool ask_slurm(const char *list, lvni_core_str *out)
{
    char command[1024], line[256];
    snprintf(command, sizeof command, "scontrol show hostnames '%s' 2>/dev/null", list);
    FILE *f = popen(command, "r"); /* NOLINT(cert-env33-c): the test's own words */
    if (f == NULL) {
        return false;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        lvni_core_str_printf(out, "%s%s", out->len > 0 ? " " : "", line);
    }
    return pclose(f) == 0 && out->len > 0;
}

TEST(random_lists_as_slurm)
{
    lvni_core_str probe = {.len = 0};
    const bool installed = ask_slurm("n[1-2]", &probe);
    lvni_core_str_free(&probe);
    if (!installed) {
        print_message("scontrol does not run here: no comparison\n");
        skip();
    }
    for (uint32_t round = 0; round < 150; round++) {
        lvni_core_str list = {.len = 0}, want = {.len = 0}, slurm = {.len = 0};
        draw_element(round, &list, &want);
        assert_true(ask_slurm(lvni_core_str_text(&list), &slurm));
        expands_as(lvni_core_str_text(&list), lvni_core_str_text(&slurm));
        lvni_core_str_free(&list);
        lvni_core_str_free(&want);
        lvni_core_str_free(&slurm);
    }
}

TEST(tasks_per_node)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"2(x3),1", "2 2 2 1"},
        {"4", "4"},
        {"1,2", "1 2"},
        {"1(x1)", "1"},
        {"", ""},
        {NULL, ""},
        {"2(x0)", NULL},
        {"2(3)", NULL},
        {"2(x3", NULL},
        {"2(x)", NULL},
        {"2,", NULL},
        {",2", NULL},
        {"0", NULL},
        {"-1", NULL},
        {"2 ", NULL},
        {"x", NULL},
        {"2(x3)1", NULL},
        {"70000", NULL},
        {"99999999999999999999", NULL},
        {"1(x1048576),1", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_launch_task_vector v = {.n = 0};
        lvni_core_notices n = {.error = 0};
        const lvn_status s =
            lvni_launch_task_vector_read("SLURM_STEP_TASKS_PER_NODE", rows[i].text, &n, &v);
        if (rows[i].want == NULL) {
            assert_int_equal(s, LVN_ERR_USAGE);
            assert_int_equal(n.error, 102);
            assert_non_null(strstr(lvni_core_str_text(&n.text), "SLURM_STEP_TASKS_PER_NODE='"));
        } else {
            lvni_core_str got = {.len = 0};
            int64_t sum = 0;
            assert_int_equal(s, LVN_OK);
            for (int k = 0; k < v.n; k++) {
                lvni_core_str_printf(&got, "%s%d", k > 0 ? " " : "", v.tasks[k]);
                sum += v.tasks[k];
            }
            assert_string_equal(lvni_core_str_text(&got), rows[i].want);
            assert_int_equal(sum, v.sum);
            lvni_core_str_free(&got);
        }
        lvni_launch_task_vector_free(&v);
        lvni_core_notices_free(&n);
    }
}

TEST(out_of_memory)
{
    const lvni_core_alloc_stats before = lvni_core_alloc_get_total();
    lvn_status s = LVN_ERR_MEMORY;
    for (int k = 1; s != LVN_OK; k++) {
        lvni_launch_hosts h = {.n = 0};
        lvni_launch_task_vector v = {.n = 0};
        lvni_core_notices n = {.error = 0};
        assert_true(k < 100);
        lvni_core_alloc_fail_at(k);
        s = lvni_launch_hosts_expand(&h, "rack[01-20]node[1-9],login", &n);
        if (s == LVN_OK) {
            s = lvni_launch_task_vector_read("X", "2(x9),1,3", &n, &v);
        }
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        lvni_launch_hosts_free(&h);
        lvni_launch_task_vector_free(&v);
        lvni_core_notices_free(&n);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before.live_bytes);
    }
}
