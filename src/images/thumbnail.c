/* Small images for pages (thumbnail.h). */
#include "images/thumbnail.h"

/* The channel of the image that stands for channel c of RGB. */
static int stands_for(int c, int depth)
{
    return depth < 3 ? 0 : c;
}

static void to_rgb(const lvni_data_transform *t, const float *image, uint8_t *rgb)
{
    const int depth = lvni_data_transform_depth(t);
    for (int64_t i = 0; i < (int64_t)t->size * t->size; i++) {
        for (int c = 0; c < 3; c++) {
            const int of = stands_for(c, depth);
            const float x = (image[i * depth + of] * t->std[of] + t->mean[of]) * 255.0f + 0.5f;
            rgb[i * 3 + c] = (uint8_t)(x < 0.0f ? 0.0f : x > 255.0f ? 255.0f : x);
        }
    }
}

lvn_status lvni_images_thumbnail_fetch(const lvn_dataset *data,
                                       const lvni_data_transform *transform, int64_t sample,
                                       float *image, uint8_t *rgb)
{
    int64_t label;
    void *fields[LVN_MAX_FIELDS] = {image, &label};
    const lvn_sample_key key = {.sample = sample};
    LVN_TRY(data->cls->get(data, &key, fields));
    if (lvni_data_transform_depth(transform) == 3) {
        lvni_data_transform_to_rgb(transform, image, rgb);
    } else {
        to_rgb(transform, image, rgb);
    }
    return LVN_OK;
}

int lvni_images_thumbnail_shrink(uint8_t *rgb, int side, int most)
{
    const int k = (side + most - 1) / most, small = side / k;
    for (int i = 0; i < small * small * 3; i++) {
        const int c = i % 3, x = i / 3 % small * k, y = i / 3 / small * k;
        int sum = 0;
        for (int j = 0; j < k * k; j++) {
            sum += rgb[((size_t)(y + j / k) * (size_t)side + (size_t)(x + j % k)) * 3 + (size_t)c];
        }
        rgb[i] = (uint8_t)((sum + k * k / 2) / (k * k));
    }
    return small;
}
