/* The images of labelled frames before a training: their sizes, whether labels lie in them, and
 * what a resumed run knows them by (pose.h). */
#include "recipes/pose/pose.h"

#include "core/hash.h"
#include "core/str.h"
#include "data/image.h"

static lvn_status look_at(const lvni_pose_labels *labels, const char *folder, int64_t i,
                          lvni_core_str *path, lvni_pose_images *out)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image_info info;
    size_t bytes;
    lvni_core_str_clear(path);
    lvni_pose_labels_image_path(labels, folder, i, path);
    LVN_TRY(scratch == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(path));
    const char *name = lvni_core_str_text(path);
    LVN_TRY(lvni_data_read_file(scratch, name, &bytes));
    LVN_TRY(lvni_data_image_probe(scratch, scratch->file.data, bytes, name, &info));
    const uint64_t size = bytes;
    const size_t pixels = (size_t)info.width * (size_t)info.height;
    out->files = lvni_core_hash(out->files, &size, sizeof size);
    out->most_pixels = pixels > out->most_pixels ? pixels : out->most_pixels;
    return lvni_pose_labels_check_inside(labels, i, info.width, info.height);
}

lvn_status lvni_pose_images_look(const lvni_pose_labels *labels, const char *folder,
                                 lvni_pose_images *out)
{
    lvni_core_str path = {0};
    lvn_status s = LVN_OK;
    *out = (lvni_pose_images){.files = LVNI_CORE_HASH};
    for (int64_t i = 0; i < labels->n && s == LVN_OK; i++) {
        s = look_at(labels, folder, i, &path, out);
    }
    lvni_core_str_free(&path);
    return s;
}
