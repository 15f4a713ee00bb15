/* The images of labelled frames before a training: their sizes, whether labels lie in them, and
 * what a resumed run knows them by (pose.h). */
#include "recipes/pose/pose.h"

#include "core/error.h"
#include "core/hash.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/contents.h"
#include "data/image.h"
#include "recipes/pose/pose_context.h"
#include "recipes/pose/pose_window.h"

/* Into the hash of what a resumed run compares; without the file: that it is not there. */
static lvn_status hash_file(const char *path, uint64_t *hash)
{
    uint64_t of = 0;
    if (lvni_core_path_exists(path)) {
        lvni_data_contents contents;
        LVN_TRY(lvni_data_contents_read(path, &contents));
        of = lvni_data_contents_hash(&contents);
    }
    *hash = lvni_core_hash(*hash, &of, sizeof of);
    return LVN_OK;
}

/* The frames around it, whose absence or names without a number are up to the dataset. */
static lvn_status hash_beside(const char *path, lvni_core_str *beside, uint64_t *hash)
{
    for (int i = 0; i < LVNI_POSE_WINDOW; i++) {
        const lvn_status s = lvni_pose_window_path(path, i - LVNI_POSE_WINDOW / 2, beside);
        if (s == LVN_ERR_USAGE) {
            lvn_clear_error();
            return LVN_OK;
        }
        LVN_TRY(s);
        if (i != LVNI_POSE_WINDOW / 2) {
            LVN_TRY(hash_file(lvni_core_str_text(beside), hash));
        }
    }
    return LVN_OK;
}

/* The file of frame i, in *scratch, and its head. */
static lvn_status read_image(const lvni_pose_labels *labels, const char *folder, int64_t i,
                             lvni_core_str *path, lvni_data_scratch **scratch, size_t *bytes,
                             lvni_data_image_info *info)
{
    lvni_core_str_clear(path);
    lvni_pose_labels_image_path(labels, folder, i, path);
    *scratch = lvni_data_scratch_get();
    LVN_TRY(*scratch == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(path));
    const char *name = lvni_core_str_text(path);
    LVN_TRY(lvni_data_read_file(*scratch, name, bytes));
    return lvni_data_image_probe(*scratch, (*scratch)->file.data, *bytes, name, info);
}

lvn_status lvni_pose_images_head(const lvni_pose_labels *labels, const char *folder, int64_t i,
                                 lvni_core_str *path, lvni_pose_frame_head *out)
{
    lvni_data_scratch *scratch;
    lvni_data_image_info info;
    LVN_TRY(read_image(labels, folder, i, path, &scratch, &out->bytes, &info));
    out->width = info.width;
    out->height = info.height;
    return LVN_OK;
}

lvn_status lvni_pose_images_decode(const lvni_pose_labels *labels, const char *folder, int64_t i,
                                   lvni_core_str *path)
{
    lvni_data_scratch *scratch;
    lvni_data_image_info info;
    lvni_data_image image;
    size_t bytes;
    LVN_TRY(read_image(labels, folder, i, path, &scratch, &bytes, &info));
    return lvni_data_image_decode(scratch, scratch->file.data, bytes, lvni_core_str_text(path),
                                  &info, 1.0, NULL, &image);
}

void lvni_pose_sizes_add(lvni_pose_sizes *s, int width, int height)
{
    int i = 0;
    while (i < s->n && (s->size[i].width != width || s->size[i].height != height)) {
        i++;
    }
    s->frames++;
    if (i == LVNI_POSE_SIZES) {
        s->others++;
        return;
    }
    if (i == s->n) {
        s->n++;
        s->size[i].width = width;
        s->size[i].height = height;
        s->size[i].frames = 0;
    }
    s->size[i].frames++;
}

lvn_status lvni_pose_images_look(const lvni_pose_labels *labels, const char *folder, bool context,
                                 lvni_pose_images *out)
{
    lvni_core_str path = {0}, beside = {0};
    lvn_status s = LVN_OK;
    *out = (lvni_pose_images){.files = LVNI_CORE_HASH};
    for (int64_t i = 0; i < labels->n && s == LVN_OK; i++) {
        lvni_pose_frame_head head;
        LVNI_TRY_DONE(s, lvni_pose_images_head(labels, folder, i, &path, &head));
        const size_t pixels = (size_t)head.width * (size_t)head.height;
        LVNI_TRY_DONE(s, hash_file(lvni_core_str_text(&path), &out->files));
        LVNI_TRY_DONE(s, context ? hash_beside(lvni_core_str_text(&path), &beside, &out->files)
                                 : LVN_OK);
        out->most_pixels = pixels > out->most_pixels ? pixels : out->most_pixels;
        s = lvni_pose_labels_check_inside(labels, i, head.width, head.height);
    }
done:
    lvni_core_str_free(&beside);
    lvni_core_str_free(&path);
    return s;
}
