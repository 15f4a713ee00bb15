/* Where there is no module for videos and other images. */
#include "data/image.h"
#include "data/video.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* The program's own folder has none. */
TEST(a_missing_module_is_named)
{
    lvni_data_video *video;
    assert_int_equal(unsetenv("LEVIN_BACKEND_PATH"), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lvni_data_video_open("a.mp4", NULL, &video), LVN_ERR_UNSUPPORTED);
        assert_null(video);
        const char *message = lvn_last_error()->message;
        assert_non_null(
            strstr(message, "a.mp4: videos cannot be read: there is no levin_video.so"));
        assert_non_null(strstr(message, "libavformat-dev libavcodec-dev libswscale-dev"));
    }
    static const char ppm[] = "P6\n1 1\n255\nabc";
    lvni_data_image_info info;
    assert_int_equal(lvni_data_image_probe(lvni_data_scratch_get(), (const uint8_t *)ppm,
                                           sizeof ppm - 1, "a.ppm", &info),
                     LVN_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(lvn_last_error()->message,
               "a.ppm: images of the kind PNM cannot be read: there is no levin_video"));
}
