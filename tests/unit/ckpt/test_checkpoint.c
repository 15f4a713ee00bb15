/* Checkpoints: position and texts come back, hashes hold what they promise, the newest whole one is
 * found, best is last. */
#include "ckpt_support.h"

#include "ckpt/checkpoint.h"

#include <errno.h>
#include <sys/stat.h>

TEST_EACH(make_dir, drop_dir);

/* The first version called the epochs done levin.epoch: such a file loads, and its hash is the
 * same. */
TEST(files_of_the_first_version_load)
{
    static const char *const keys[] = {
        "levin.format",       "levin.step",       "levin.epochs_done", "levin.step_in_epoch",
        "levin.samples_seen", "levin.best_score", "levin.best_step",   "levin.finished",
        "levin.config",       "levin.schedule"};
    enum { KEYS = sizeof keys / sizeof keys[0] };
    lvni_ckpt_st_tensor tensors[4];
    lvni_ckpt_st_meta meta[KEYS];
    lvni_ckpt *c = NULL;
    lvni_ckpt_hashes now, before;
    save_sample(in_dir("f"), 19);
    assert_int_equal(lvni_ckpt_load(in_dir("f"), &c), LVN_OK);
    for (int i = 0; i < KEYS; i++) {
        meta[i] = (lvni_ckpt_st_meta){i == 2 ? "levin.epoch" : keys[i],
                                      lvni_ckpt_st_meta_get(c->file, keys[i])};
        assert_non_null(meta[i].value);
    }
    for (int i = 0; i < 4; i++) {
        tensors[i] = sample_tensor(i);
    }
    assert_int_equal(lvni_ckpt_st_save(in_dir("g"), tensors, 4, meta, KEYS), LVN_OK);
    lvni_ckpt_free(c);
    assert_int_equal(lvni_ckpt_load(in_dir("g"), &c), LVN_OK);
    assert_int_equal(c->at.epoch, 2);
    lvni_ckpt_free(c);
    assert_int_equal(lvni_ckpt_hash_file(in_dir("f"), &now), LVN_OK);
    assert_int_equal(lvni_ckpt_hash_file(in_dir("g"), &before), LVN_OK);
    assert_string_equal(now.state, before.state);
    lvni_ckpt_hashes_free(&now);
    lvni_ckpt_hashes_free(&before);
}

TEST(all_of_a_checkpoint_comes_back)
{
    lvni_ckpt_st_tensor tensors[4];
    lvni_ckpt_content content = sample_content(19, tensors);
    const lvni_ckpt_st_meta extra = {"host", "b03"};
    content.extra = &extra;
    content.n_extra = 1;
    content.scaler = "{\"scale\":65536}";
    assert_int_equal(lvni_ckpt_save(in_dir("f"), &content), LVN_OK);
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_load(in_dir("f"), &c), LVN_OK);
    assert_int_equal(c->at.step, 19);
    assert_int_equal(c->at.epoch, 2);
    assert_int_equal(c->at.step_in_epoch, 7);
    assert_int_equal(c->at.samples_seen, 608);
    assert_true(c->at.best_score == 0.1); /* to the bit */
    assert_int_equal(c->at.best_step, 5);
    assert_false(c->at.finished);
    assert_string_equal(c->config, "{\"model\":\"mlp\"}");
    assert_string_equal(c->scaler, "{\"scale\":65536}");
    assert_string_equal(c->schedule, "{\"warmup\":3}");
    assert_string_equal(lvni_ckpt_st_meta_get(c->file, "host"), "b03");
    assert_memory_equal(lvni_ckpt_st_find(c->file, "optim/momentum/fc.weight")->data, sample_moment,
                        sizeof sample_moment);
    lvni_ckpt_free(c);

    content.at.best_score = NAN;
    content.at.best_step = -1;
    content.at.finished = true;
    content.config = content.scaler = content.schedule = NULL;
    assert_int_equal(lvni_ckpt_save(in_dir("f"), &content), LVN_OK);
    assert_int_equal(lvni_ckpt_peek(in_dir("f"), &c), LVN_OK);
    assert_true(isnan(c->at.best_score));
    assert_int_equal(c->at.best_step, -1);
    assert_true(c->at.finished);
    assert_string_equal(c->config, "{}");
    assert_null(c->scaler);
    assert_null(c->schedule);
    lvni_ckpt_free(c);

    const lvni_ckpt_st_meta reserved = {"levin.step", "3"};
    content.extra = &reserved;
    assert_int_equal(lvni_ckpt_save(in_dir("g"), &content), LVN_ERR_INVALID);
}

TEST(weights_alone_are_no_checkpoint)
{
    const lvni_ckpt_st_tensor t = sample_tensor(0);
    assert_int_equal(lvni_ckpt_st_save(in_dir("f"), &t, 1, NULL, 0), LVN_OK);
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_load(in_dir("f"), &c), LVN_ERR_MISMATCH);
    assert_non_null(strstr(lvn_last_error()->message, "weights="));
    const lvni_ckpt_st_meta future = {"levin.format", "checkpoint 2"};
    assert_int_equal(lvni_ckpt_st_save(in_dir("f"), &t, 1, &future, 1), LVN_OK);
    assert_int_equal(lvni_ckpt_load(in_dir("f"), &c), LVN_ERR_MISMATCH);
    const lvni_ckpt_st_meta poor[2] = {{"levin.format", "checkpoint 1"}, {"levin.config", "{}"}};
    assert_int_equal(lvni_ckpt_st_save(in_dir("f"), &t, 1, poor, 2), LVN_OK);
    assert_int_equal(lvni_ckpt_load(in_dir("f"), &c), LVN_ERR_MISMATCH);
    assert_non_null(strstr(lvn_last_error()->message, "levin.step"));
}

static lvni_ckpt_hashes hash_of(const lvni_ckpt_content *c, int64_t damaged)
{
    lvni_ckpt_hashes h;
    if (c != NULL) {
        assert_int_equal(lvni_ckpt_save(in_dir("h"), c), LVN_OK);
    }
    assert_int_equal(lvni_ckpt_hash_file(in_dir("h"), &h), LVN_OK);
    assert_int_equal(h.n_damaged, damaged);
    assert_int_equal(strlen(h.weights), 32);
    assert_int_equal(strlen(h.state), 32);
    if (damaged == 0) {
        lvni_ckpt_hashes_free(&h);
    }
    return h;
}

TEST(hashes_are_of_numbers_and_position_only)
{
    lvni_ckpt_st_tensor tensors[4], others[4];
    const lvni_ckpt_content base = sample_content(10, tensors);
    const lvni_ckpt_hashes h0 = hash_of(&base, 0);
    assert_string_not_equal(h0.weights, h0.state);

    lvni_ckpt_content c = base; /* what must not matter */
    const lvni_ckpt_st_meta extra[2] = {{"host", "other"}, {"time", "now"}};
    c.extra = extra;
    c.n_extra = 2;
    c.config = "{\"devices\":8}";
    c.at.best_score = 0.9;
    c.at.finished = true;
    lvni_ckpt_hashes h = hash_of(&c, 0);
    assert_string_equal(h.weights, h0.weights);
    assert_string_equal(h.state, h0.state);

    for (int i = 0; i < 5; i++) { /* what is state but no weight */
        c = base;
        c.at.step += i == 0;
        c.at.epoch += i == 1;
        c.at.samples_seen += i == 2;
        c.schedule = i == 3 ? "{\"warmup\":4}" : base.schedule;
        c.scaler = i == 4 ? "1" : NULL;
        h = hash_of(&c, 0);
        assert_string_equal(h.weights, h0.weights);
        assert_string_not_equal(h.state, h0.state);
    }

    float changed[6]; /* one mantissa bit */
    memcpy(changed, sample_moment, sizeof changed);
    changed[3] = nextafterf(changed[3], 2);
    c = sample_content(10, others);
    others[1].data = changed;
    h = hash_of(&c, 0);
    assert_string_equal(h.weights, h0.weights);
    assert_string_not_equal(h.state, h0.state);
    memcpy(changed, sample_weight, sizeof changed);
    changed[3] = nextafterf(changed[3], 2);
    c = sample_content(10, others);
    others[0].data = changed;
    h = hash_of(&c, 0);
    assert_string_not_equal(h.weights, h0.weights);
    assert_string_not_equal(h.state, h0.state);
    c = sample_content(10, others); /* the same bytes under another shape */
    others[0].shape[0] = 3;
    others[0].shape[1] = 2;
    h = hash_of(&c, 0);
    assert_string_not_equal(h.weights, h0.weights);
}

TEST(hashes_of_known_files)
{
    lvni_ckpt_hashes h;
    assert_int_equal(lvni_ckpt_st_save(in_dir("e"), NULL, 0, NULL, 0), LVN_OK);
    assert_int_equal(lvni_ckpt_hash_file(in_dir("e"), &h), LVN_OK);
    assert_string_equal(h.weights,
                        /* XXH3-128 of nothing, a published number */
                        "99aa06d3014798d86001c324468d497f");
    assert_string_equal(h.state, h.weights);
    lvni_ckpt_hashes_free(&h);

    /* an exported model has no prefixes and the same weights */
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content c = sample_content(10, tensors);
    const lvni_ckpt_hashes h0 = hash_of(&c, 0);
    lvni_ckpt_st_tensor plain[2] = {tensors[0], tensors[2]};
    plain[0].name = "fc.weight";
    plain[1].name = "bn.count";
    assert_int_equal(lvni_ckpt_st_save(in_dir("e"), plain, 2, NULL, 0), LVN_OK);
    assert_int_equal(lvni_ckpt_hash_file(in_dir("e"), &h), LVN_OK);
    assert_string_equal(h.weights, h0.weights);
    lvni_ckpt_hashes_free(&h);
}

TEST(a_turned_bit_changes_the_hash_and_is_named)
{
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content c = sample_content(10, tensors);
    const lvni_ckpt_hashes h0 = hash_of(&c, 0);
    char raw[8192];
    const size_t n = get_file(in_dir("h"), raw, sizeof raw);
    raw[n - 3 - 24 - 4] =
        (char)(raw[n - 3 - 24 - 4] ^ 1); /* last element of model/fc.weight: lowest mantissa bit */
    put_file(in_dir("h"), raw, n);
    lvni_ckpt_hashes h = hash_of(NULL, 1);
    assert_string_equal(h.damaged[0], "model/fc.weight");
    assert_string_not_equal(h.weights, h0.weights);
    assert_string_not_equal(h.state, h0.state);
    lvni_ckpt_hashes_free(&h);
    raw[n - 3 - 24 - 4] = (char)(raw[n - 3 - 24 - 4] ^ 1);
    char *step = memmem(raw, n, "\"levin.step\":\"10\"", 17);
    assert_non_null(step);
    step[14] = '2'; /* 10 becomes 20 */
    put_file(in_dir("h"), raw, n);
    h = hash_of(NULL, 1);
    assert_string_equal(h.damaged[0], "__metadata__");
    assert_string_equal(h.weights, h0.weights);
    assert_string_not_equal(h.state, h0.state);
    lvni_ckpt_hashes_free(&h);
    put_file(in_dir("h"), raw, n - 1);
    assert_int_equal(lvni_ckpt_hash_file(in_dir("h"), &h), LVN_ERR_CORRUPT);
}

static int n_warnings;
static char warning[1400];

static void warn(void *user, const char *text)
{
    assert_ptr_equal(user, &n_warnings);
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

static int64_t newest(const char *file)
{
    lvni_ckpt *c = NULL;
    n_warnings = 0;
    assert_int_equal(lvni_ckpt_newest_valid(dir, warn, &n_warnings, &c), LVN_OK);
    assert_string_equal(c->path, in_dir(file));
    assert_int_equal(lvn_last_error()->code, LVN_OK);
    const int64_t step = c->at.step;
    lvni_ckpt_free(c);
    return step;
}

static void turn_bit_of_last_byte(const char *path)
{
    char raw[8192];
    const size_t n = get_file(path, raw, sizeof raw);
    raw[n - 1] = (char)(raw[n - 1] ^ 1);
    put_file(path, raw, n);
}

TEST(the_newest_whole_checkpoint_is_found)
{
    lvni_ckpt *c = NULL;
    lvn_clear_error();
    assert_int_equal(lvni_ckpt_newest_valid(in_dir("none"), warn, &n_warnings, &c),
                     LVN_ERR_NOT_FOUND);
    assert_int_equal(lvni_ckpt_newest_valid(dir, warn, &n_warnings, &c), LVN_ERR_NOT_FOUND);
    lvn_clear_error();
    save_sample(in_dir("last.safetensors"), 30);
    save_sample(in_dir("best.safetensors"), 10);
    save_sample(in_dir("epoch=0001-step=20.safetensors"), 20);
    /* of a killed process: not even looked at */
    put_file(in_dir("last.safetensors.tmp-12"), "x", 1);
    assert_int_equal(newest("last.safetensors"), 30);
    assert_int_equal(n_warnings, 0);

    turn_bit_of_last_byte(in_dir("last.safetensors"));
    assert_int_equal(newest("epoch=0001-step=20.safetensors"), 20);
    assert_int_equal(n_warnings, 1);
    assert_non_null(
        strstr(warning, "last.safetensors: tensor 'trainer/mask' does not match its checksum"));

    assert_int_equal(truncate(in_dir("epoch=0001-step=20.safetensors"), 100), 0);
    assert_int_equal(newest("best.safetensors"), 10);
    assert_int_equal(n_warnings, 2);

    put_file(in_dir("best.safetensors"), "", 0);
    assert_int_equal(lvni_ckpt_newest_valid(dir, warn, &n_warnings, &c), LVN_ERR_CORRUPT);
    assert_null(c);
    assert_non_null(strstr(lvn_last_error()->message, "none of its 3 checkpoints"));
    lvn_clear_error();

    save_sample(in_dir("epoch=0003-step=40.safetensors"),
                40); /* newer than last: a kill came between the two */
    save_sample(in_dir("last.safetensors"), 40);
    assert_int_equal(newest("last.safetensors"), 40);
    save_sample(in_dir("epoch=0003-step=41.safetensors"), 41);
    assert_int_equal(newest("epoch=0003-step=41.safetensors"), 41);
}

static ino_t inode(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_ino;
}

static int no_link(const char *from, const char *to)
{
    (void)from;
    (void)to;
    errno = EPERM; /* as file systems without hard links do */
    return -1;
}

TEST(best_becomes_the_same_file_as_last)
{
    save_sample(in_dir("last"), 30);
    for (int i = 0; i < 2; i++) { /* the second time both are one file already */
        assert_int_equal(lvni_ckpt_link(in_dir("last"), in_dir("best")), LVN_OK);
        assert_int_equal(inode(in_dir("last")), inode(in_dir("best")));
        assert_int_equal(files_in_dir(0), 2);
    }
    save_sample(in_dir("last"), 40); /* a new file: best keeps its content */
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_load(in_dir("best"), &c), LVN_OK);
    assert_int_equal(c->at.step, 30);
    lvni_ckpt_free(c);

    lvni_core_vfs table = *lvni_core_vfs_get();
    table.link = no_link;
    lvni_core_vfs_set(&table);
    assert_int_equal(lvni_ckpt_link(in_dir("last"), in_dir("best")), LVN_OK);
    assert_true(inode(in_dir("last")) != inode(in_dir("best")));
    assert_int_equal(lvni_ckpt_load(in_dir("best"), &c), LVN_OK);
    assert_int_equal(c->at.step, 40);
    lvni_ckpt_free(c);
    assert_int_equal(lvni_ckpt_link(in_dir("missing"), in_dir("best")), LVN_ERR_NOT_FOUND);
    assert_int_equal(files_in_dir(0), 2);
    save_sample(in_dir("last"), 50);
    lvni_core_vfs_fail_at("write", 1, ENOSPC); /* a full disk: best stays */
    assert_int_equal(lvni_ckpt_link(in_dir("last"), in_dir("best")), LVN_ERR_IO);
    assert_int_equal(files_in_dir(0), 2);
    assert_int_equal(lvni_ckpt_load(in_dir("best"), &c), LVN_OK);
    assert_int_equal(c->at.step, 40);
    lvni_ckpt_free(c);
}
