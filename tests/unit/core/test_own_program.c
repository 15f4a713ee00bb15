/* Which program starts again, from a folder of packages and from a relocated directory. */

#include "core/own_program.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_command(const char *dir)
{
    char path[512];
    snprintf(path, sizeof path, "%s/bin", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/bin/levin", dir);
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    close(fd);
}

static void remove_command(const char *dir)
{
    char path[512];
    snprintf(path, sizeof path, "%s/bin/levin", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/bin", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

TEST(a_relocated_directory_starts_its_command)
{
    char root[] = "/tmp/levin-self-XXXXXX", dir[256], exe[512], expected[512], path[512];
    assert_non_null(mkdtemp(root));
    /* a folder above that is called as its own are */
    snprintf(dir, sizeof dir, "%s/lib", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    make_command(dir);
    snprintf(expected, sizeof expected, "%s/bin/levin", dir);
    static const char *const programs[] = {"/libexec/levin", "/lib/libc/ld-linux-x86-64.so.2",
                                           "/lib/libc/ld-linux-aarch64.so.1"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        snprintf(exe, sizeof exe, "%s%s", dir, programs[i]);
        assert_true(lvni_core_self_of(exe, path, sizeof path));
        assert_string_equal(path, expected);
    }
    remove_command(dir);
    assert_int_equal(rmdir(root), 0);
}

TEST(other_programs_are_themselves)
{
    static const char *const programs[] = {
        "/usr/bin/levin",
        "/home/lab/build/levin",
        "/usr/libexec/levin", /* no command in /usr/bin beside it */
        "/opt/lib/libc/ld-linux/levin",
        "/opt/x/libexec/levin-gan",
        "/lib64/ld-linux-x86-64.so.2"};
    char path[512];
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (strcmp(programs[i], "/usr/libexec/levin") != 0 || access("/usr/bin/levin", X_OK) != 0) {
            assert_true(lvni_core_self_of(programs[i], path, sizeof path));
            assert_string_equal(path, programs[i]);
        }
    }
    assert_false(lvni_core_self_of("/usr/bin/levin", path, 8));
    assert_string_equal(path, "");
}

TEST(this_program_is_itself)
{
    char path[4096], exe[4096] = {0};
    assert_true(readlink("/proc/self/exe", exe, sizeof exe - 1) > 0);
    assert_true(lvni_core_self(path, sizeof path));
    assert_string_equal(path, exe);
    assert_int_equal(lvni_core_self_loader_words(), 0);
}
