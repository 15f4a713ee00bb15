/* What the checkpoint tests share: a folder of their own, whole files as bytes, a small
 * checkpoint. */
#ifndef TESTS_CKPT_SUPPORT_H
#define TESTS_CKPT_SUPPORT_H

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

static inline int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-ckpt-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

/* Number of files in the folder; with a non-zero `wipe` they are removed. */
static inline int files_in_dir(int wipe)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char path[512];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        n++;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (wipe) {
            remove(path);
        }
    }
    closedir(d);
    return n;
}

static inline int drop_dir(void **state)
{
    (void)state;
    lvni_core_alloc_fail_at(0);
    lvni_core_vfs_fail_at("open", 0, 0);
    lvni_core_vfs_set(NULL);
    files_in_dir(1);
    return rmdir(dir);
}

static inline const char *in_dir(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, 256, "%s/%s", dir, name);
    return path;
}

/* Plain stdio, so that the tests do not lean on what they test. */
static inline void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline size_t get_file(const char *path, char *data, size_t room)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(data, 1, room, f);
    assert_true(n < room);
    fclose(f);
    return n;
}

static const float sample_weight[6] = {1.0f, -2.0f, 3.5f, 0.25f, 1e-3f, 7.0f};
static const float sample_moment[6] = {0.5f, 0.25f, 0.125f, -1.0f, 2.0f, 4.0f};
static const int64_t sample_count[1] = {123456789012345};
static const unsigned char sample_mask[3] = {1, 0, 1};

static inline lvni_ckpt_st_tensor sample_tensor(int i)
{
    static const lvni_ckpt_st_tensor list[4] = {
        {.name = "model/fc.weight",
         .dtype = LVN_F32,
         .ndim = 2,
         .shape = {2, 3},
         .data = sample_weight},
        {.name = "optim/momentum/fc.weight",
         .dtype = LVN_F32,
         .ndim = 2,
         .shape = {2, 3},
         .data = sample_moment},
        {.name = "model/bn.count", .dtype = LVN_I64, .ndim = 0, .data = sample_count},
        {.name = "trainer/mask", .dtype = LVN_BOOL, .ndim = 1, .shape = {3}, .data = sample_mask},
    };
    return list[i];
}

/* A checkpoint at `step`; `tensors` has room for four. */
static inline lvni_ckpt_content sample_content(int64_t step, lvni_ckpt_st_tensor tensors[4])
{
    for (int i = 0; i < 4; i++) {
        tensors[i] = sample_tensor(i);
    }
    return (lvni_ckpt_content){
        .at = {.step = step,
               .epoch = 2,
               .step_in_epoch = 7,
               .samples_seen = step * 32,
               .best_score = 0.1,
               .best_step = 5},
        .config = "{\"model\":\"mlp\"}",
        .schedule = "{\"warmup\":3}",
        .tensors = tensors,
        .n_tensors = 4,
    };
}

static inline void save_sample(const char *path, int64_t step)
{
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content c = sample_content(step, tensors);
    assert_int_equal(lvni_ckpt_save(path, &c), LVN_OK);
}

#endif
