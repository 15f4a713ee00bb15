/* Python opens our files and we open its. What is not installed is skipped, and the test reports
 * so. */
#include "ckpt_support.h"

#include <sys/wait.h>

TEST_EACH(make_dir, drop_dir);

TEST(python_and_levin_read_each_other)
{
    save_sample(in_dir("ours"), 10);
    if (system("python3 -c '' 2>/dev/null") != 0) {
        print_message("skipped: no python3 here\n");
        skip();
    }
    char command[1024];
    snprintf(command, sizeof command, "python3 '%s' '%s' '%s'", READ_BACK, in_dir("ours"),
             in_dir("theirs"));
    const int code = WEXITSTATUS(system(command));
    if (code == 3) {
        print_message("skipped in part: Python has no package safetensors; read by its standard "
                      "library only\n");
        return;
    }
    assert_int_equal(code, 0);
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(lvni_ckpt_st_open(in_dir("theirs"), LVNI_ST_VERIFY, &f), LVN_OK);
    assert_int_equal(lvni_ckpt_st_count(f), 2);
    assert_string_equal(lvni_ckpt_st_meta_get(f, "who"), "python");
    assert_memory_equal(lvni_ckpt_st_find(f, "u")->data, "\1\2\3", 3);
    assert_int_equal(lvni_ckpt_st_find(f, "f")->ndim, 2);
    assert_memory_equal(lvni_ckpt_st_find(f, "f")->data, ((const double[]){0.5, -1.5}), 16);
    lvni_ckpt_st_close(f);
}
