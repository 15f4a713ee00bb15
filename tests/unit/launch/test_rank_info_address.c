/* Ports made of job, step and restart, and the check that the store's address is one of this host.
 */
#include "launch/rank_info.h"
#include "support/test.h"

#include <string.h>
#include <unistd.h>

TEST(derived_ports)
{
    static const struct {
        uint64_t job, step, restart;
        int k, want;
    } rows[] = {
        {123456, 0, 0, 0, 18456}, {123456, 3, 0, 0, 18759},
        {123456, 0, 1, 0, 19465}, {123456, 0, 0, 1, 19693},
        {9999, 0, 0, 1, 16236},   {1000000042, 0, 0, 0, 15042},
        {7, 0, 0, 0, 15007},      {123456, 4294967290, 0, 0, 18456},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(
            lvni_launch_rank_info_port(rows[i].job, rows[i].step, rows[i].restart, rows[i].k),
            rows[i].want);
    }
}

TEST(the_address_of_the_store)
{
    static const char *const own[] = {"127.0.0.1", "10.0.0.2", "fe80::1%eth0"},
                             *const here[] = {"10.0.0.9", "10.0.0.2"},
                             *const away[] = {"192.0.2.1"};
    lvni_core_notices n = {.error = 0};
    lvni_launch_rank_info info = {.store_host = true,
                                  .master_given = true,
                                  .rdzv = LVNI_RDZV_TCP,
                                  .master_addr = "192.0.2.1"};
    info.from[LVNI_RANK_INFO_MASTER_ADDR] = "MASTER_ADDR";
    assert_int_equal(lvni_launch_rank_info_check_address(&info, own, 3, here, 2, &n), LVN_OK);
    assert_int_equal(lvni_launch_rank_info_check_address(&info, own, 3, away, 1, &n),
                     LVN_ERR_USAGE);
    assert_int_equal(n.error, 111);
    assert_non_null(strstr(lvni_core_str_text(&n.text), "MASTER_ADDR=192.0.2.1"));
    assert_non_null(
        strstr(lvni_core_str_text(&n.text), "addresses of this host: 127.0.0.1 10.0.0.2"));
    assert_int_equal(lvni_launch_rank_info_check_address(&info, own, 3, NULL, 0, &n),
                     LVN_ERR_USAGE);
    assert_non_null(strstr(lvni_core_str_text(&n.text), "cannot be resolved"));
    /* no host has an address of 192.0.2.0/24 */
    assert_int_equal(lvni_launch_rank_info_check_address_here(&info, &n), LVN_ERR_USAGE);
    lvni_core_notices_free(&n);
    strcpy(info.master_addr, "127.0.0.1");
    assert_int_equal(lvni_launch_rank_info_check_address_here(&info, &n), LVN_OK);
    assert_int_equal(gethostname(info.master_addr, sizeof info.master_addr), 0);
    assert_int_equal(lvni_launch_rank_info_check_address_here(&info, &n), LVN_OK);
    strcpy(info.master_addr, "localhost");
    assert_int_equal(lvni_launch_rank_info_check_address_here(&info, &n), LVN_OK);
    strcpy(info.master_addr, "192.0.2.1");
    info.store_host = false; /* on the others it is the store's */
    assert_int_equal(lvni_launch_rank_info_check_address_here(&info, &n), LVN_OK);
    lvni_core_notices_free(&n);
}

TEST(where_the_store_listens)
{
    static const char *const one[] = {"127.0.0.1", "10.0.0.2", "::1", "fe80::1%eth0"},
                             *const bridge[] = {"127.0.0.1", "10.0.0.2", "172.17.0.1"},
                             *const own[] = {"10.0.0.2"}, *const home[] = {"127.0.1.1"},
                             *const both[] = {"172.17.0.1", "10.0.0.2"};
    lvni_launch_rank_info info = {
        .nnodes = 2, .rdzv = LVNI_RDZV_TCP, .master_given = true, .master_addr = "n01"};
#define AT(have, n_have, found, n_found)                                                           \
    lvni_launch_rank_info_listen(&info, have, n_have, found, n_found)
    for (int given = 0; given < 2; given++) { /* a name of Slurm's is like one that is given */
        info.master_given = given == 1;
        assert_string_equal(AT(one, 4, own, 1), "10.0.0.2");
        assert_null(AT(one, 4, home, 1)); /* elsewhere it is another address */
        assert_null(AT(one, 4, both, 2));
        assert_null(AT(one, 4, NULL, 0));
        assert_null(AT(bridge, 3, own, 1)); /* which of the two others use is not known here */
        assert_null(AT(bridge, 3, both, 1));
    }
    info.rdzv = LVNI_RDZV_FILE;
    info.master_given = false;
    assert_null(AT(one, 4, own, 1)); /* ranks try all addresses of the file */
    info.master_given = true;
    info.rdzv = LVNI_RDZV_TCP;
    strcpy(info.master_addr, "172.17.0.1");
    assert_string_equal(AT(bridge, 3, NULL, 0), "172.17.0.1");
    info.nnodes = 1;
    strcpy(info.master_addr, "n01");
    assert_string_equal(AT(bridge, 3, home, 1), "n01");
    info.on_node = true;
    assert_string_equal(AT(bridge, 3, home, 1), "127.0.0.1");
#undef AT
}
