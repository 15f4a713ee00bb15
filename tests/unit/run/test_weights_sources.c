/* Where published weights are, and whether another program has fetched them already. */
#include "core/alloc.h"
#include "run/weights.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(files_of_names)
{
    assert_string_equal(lvni_run_source_of("resnet18").file, "resnet18-f37072fd.pth");
    assert_string_equal(lvni_run_source_of("resnet50").file, "resnet50-11ad3fa6.pth");
    assert_string_equal(lvni_run_source_of("resnet50_animal_ap10k").file,
                        "res50_ap10k_256x256-35760eb8_20211029.pth");
    assert_non_null(strstr(lvni_run_source_of("resnet50_human_hand").folder, "mmpose/hand/"));
    assert_string_equal(lvni_run_source_of("vitb_dino").file, "dino_vitbase16_pretrain.pth");
    assert_string_equal(lvni_run_source_of("vitb_imagenet").file, "mae_visualize_vit_base.pth");
    assert_string_equal(lvni_run_source_of("efficientnet_b1").file, "efficientnet_b1-c27df63c.pth");
    assert_null(lvni_run_source_of("resnet50_animal").file);
}

static void make_file(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/hub", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/hub/checkpoints", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/hub/checkpoints/%s", folder, name);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void remove_file(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/hub/checkpoints/%s", folder, name);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/hub/checkpoints", folder);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/hub", folder);
    assert_int_equal(rmdir(path), 0);
}

/* The cache is where the first of three variables has it. */
TEST(files_in_the_cache_of_torch)
{
    static const char name[] = "resnet34-b627a593.pth";
    static const char *const variables[] = {"TORCH_HOME", "XDG_CACHE_HOME", "HOME"};
    static const char *const below[] = {"", "/torch", "/.cache/torch"};
    char folder[] = "/tmp/levin-sources-XXXXXX", cache[64], *path;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++) {
        unsetenv(variables[i]);
    }
    assert_int_equal(lvni_run_source_cached("resnet34", &path), LVN_OK);
    assert_null(path);
    for (int i = 2; i >= 0; i--) {
        setenv(variables[i], folder, 1);
        snprintf(cache, sizeof cache, "%s/.cache", folder);
        if (i == 2) {
            assert_int_equal(mkdir(cache, 0700), 0);
        }
        snprintf(cache, sizeof cache, "%s%s", folder, below[i]);
        if (i > 0) {
            assert_int_equal(mkdir(cache, 0700), 0);
        }
        assert_int_equal(lvni_run_source_cached("resnet34", &path), LVN_OK);
        assert_null(path);
        make_file(cache, name);
        assert_int_equal(lvni_run_source_cached("resnet34", &path), LVN_OK);
        assert_non_null(path);
        assert_memory_equal(path, cache, strlen(cache));
        lvni_core_free(path);
        assert_int_equal(lvni_run_source_cached("resnet18", &path), LVN_OK);
        assert_null(path);
        remove_file(cache, name);
        if (i > 0) {
            assert_int_equal(rmdir(cache), 0);
        }
    }
    snprintf(cache, sizeof cache, "%s/.cache", folder);
    assert_int_equal(rmdir(cache), 0);
    assert_int_equal(rmdir(folder), 0);
}
