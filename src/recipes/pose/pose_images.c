/* The images of labelled frames before a training: their sizes, whether labels lie in them, and
 * what a resumed run knows them by (pose.h). */
#include "recipes/pose/pose.h"

#include "core/error.h"
#include "core/hash.h"
#include "core/str.h"
#include "data/image.h"

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

lvn_status lvni_pose_images_look(const lvni_pose_labels *labels, const char *folder,
                                 lvni_pose_images *out)
{
    lvni_core_str path = {0};
    lvn_status s = LVN_OK;
    *out = (lvni_pose_images){.files = LVNI_CORE_HASH};
    for (int64_t i = 0; i < labels->n && s == LVN_OK; i++) {
        lvni_pose_frame_head head;
        LVNI_TRY_DONE(s, lvni_pose_images_head(labels, folder, i, &path, &head));
        const uint64_t size = head.bytes;
        const size_t pixels = (size_t)head.width * (size_t)head.height;
        out->files = lvni_core_hash(out->files, &size, sizeof size);
        out->most_pixels = pixels > out->most_pixels ? pixels : out->most_pixels;
        s = lvni_pose_labels_check_inside(labels, i, head.width, head.height);
    }
done:
    lvni_core_str_free(&path);
    return s;
}
