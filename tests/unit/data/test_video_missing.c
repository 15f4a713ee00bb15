/* Where there is no module for videos. */
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
        assert_int_equal(lvni_data_video_open("a.mp4", NULL, false, &video), LVN_ERR_UNSUPPORTED);
        assert_null(video);
        const char *message = lvn_last_error()->message;
        assert_non_null(
            strstr(message, "a.mp4: videos cannot be read: there is no levin_video.so"));
        assert_non_null(strstr(message, "libavformat-dev libavcodec-dev libswscale-dev"));
    }
}
