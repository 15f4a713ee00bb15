/* Makes and compares videos (video_support.h). */
#include "video_support.h"

#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char folder[] = "/tmp/levin-video-XXXXXX";

int video_folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

int video_folder_remove(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

const char *video_path(const char *name)
{
    static char paths[5][256];
    static int next;
    next = (next + 1) % 5;
    snprintf(paths[next], sizeof paths[next], "%s%s%s", name[0] == '/' ? "" : folder,
             name[0] == '/' ? "" : "/", name);
    return paths[next];
}

bool video_can_test(void)
{
    if (system("ffmpeg -version >/dev/null 2>&1") != 0) {
        print_message("skipped: there is no ffmpeg (Debian's package ffmpeg)\n");
        return false;
    }
    const char *modules = getenv("LEVIN_BACKEND_PATH");
    char module[512];
    snprintf(module, sizeof module, "%s/levin_video.so",
             modules != NULL ? modules : "LEVIN_BACKEND_PATH");
    if (access(module, F_OK) != 0) {
        print_message("skipped: there is no %s: this build has no module for videos\n", module);
        return false;
    }
    return true;
}

void video_shell(const char *command)
{
    char text[4096];
    snprintf(text, sizeof text, "cd %s && { %s; } >log 2>&1 </dev/null", folder, command);
    if (system(text) == 0) {
        return;
    }
    FILE *log = fopen(video_path("log"), "r");
    const size_t n = log == NULL ? 0 : fread(text, 1, sizeof text - 1, log);
    text[n] = '\0';
    fail_msg("%s: %s", command, text);
}

static void add_sum(video_sums *out, uint32_t sum)
{
    out->sum = realloc(out->sum, (size_t)(out->n + 1) * sizeof *out->sum);
    assert_non_null(out->sum);
    out->sum[out->n++] = sum;
}

/* ---- frames that ffmpeg converts: a line for each, with stream, times, bytes, sum ---- */

static video_sums sums_of_lines(const char *name)
{
    VIDEO_RUN("ffmpeg -v error -threads 1 -i %s -map 0:v:0 -an -vsync passthrough -vf "
              "scale=flags=bilinear+full_chroma_int+accurate_rnd+bitexact,format=rgb24 "
              "-f framehash -hash CRC32 -y sums",
              video_path(name));
    FILE *f = fopen(video_path("sums"), "r");
    assert_non_null(f);
    video_sums out = {.n = 0};
    char line[256];
    while (fgets(line, sizeof line, f) != NULL) {
        const char *sum = strrchr(line, ',');
        if (line[0] != '#' && sum != NULL) {
            add_sum(&out, (uint32_t)strtoul(sum + 1, NULL, 16));
        }
    }
    fclose(f);
    return out;
}

/* ---- frames that levin converts itself: the planes are ffmpeg's ---- */

static uint8_t to_byte(double value)
{
    return (uint8_t)(value < 0.0 ? 0.0 : value > 255.0 ? 255.0 : floor(value));
}

/* ITU-T H.273, equations 20 to 47, with numbers in units of 1/65536, each rounded, as levin has
 * them: without that some bytes would differ by one. */
static void to_rgb(const uint8_t yuv[3], bool full, bool bt709, uint8_t rgb[3])
{
    const double kr = bt709 ? 0.2126 : 0.299, kb = bt709 ? 0.0722 : 0.114, kg = 1.0 - kr - kb,
                 range = full ? 1.0 : 255.0 / 224.0, u = yuv[1] - 128.0, v = yuv[2] - 128.0,
                 y = (yuv[0] - (full ? 0.0 : 16.0)) * round((full ? 1.0 : 255.0 / 219.0) * 65536.0);
    const double red = y + v * round(2.0 * (1.0 - kr) * range * 65536.0),
                 green = y - u * round(2.0 * (1.0 - kb) * kb / kg * range * 65536.0) -
                         v * round(2.0 * (1.0 - kr) * kr / kg * range * 65536.0),
                 blue = y + u * round(2.0 * (1.0 - kb) * range * 65536.0);
    rgb[0] = to_byte(red / 65536.0 + 0.5);
    rgb[1] = to_byte(green / 65536.0 + 0.5);
    rgb[2] = to_byte(blue / 65536.0 + 0.5);
}

static uint32_t sum_of_planes(const uint8_t *planes, int width, int height, bool full, bool bt709)
{
    const int half = (width + 1) / 2;
    const uint8_t *u = planes + width * height, *v = u + half * ((height + 1) / 2);
    uLong sum = crc32(0, NULL, 0);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const int at = y / 2 * half + x / 2;
            const uint8_t yuv[3] = {planes[y * width + x], u[at], v[at]};
            uint8_t rgb[3];
            to_rgb(yuv, full, bt709, rgb);
            sum = crc32(sum, rgb, 3);
        }
    }
    return (uint32_t)sum;
}

static video_sums sums_of_planes(const char *name, bool full, bool bt709)
{
    lvni_data_video *video;
    lvni_data_video_info info;
    if (lvni_data_video_open(video_path(name), NULL, &video) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    lvni_data_video_describe(video, &info);
    lvni_data_video_close(video);
    VIDEO_RUN("ffmpeg -v error -threads 1 -i %s -map 0:v:0 -an -vsync passthrough "
              "-f rawvideo -y planes",
              video_path(name));
    const size_t width = (size_t)info.width, height = (size_t)info.height,
                 bytes = width * height + 2 * ((width + 1) / 2) * ((height + 1) / 2);
    uint8_t *planes = malloc(bytes);
    FILE *f = fopen(video_path("planes"), "r");
    assert_true(planes != NULL && f != NULL);
    video_sums out = {.n = 0};
    size_t got;
    while ((got = fread(planes, 1, bytes, f)) == bytes) {
        add_sum(&out, sum_of_planes(planes, info.width, info.height, full, bt709));
    }
    assert_int_equal(got, 0);
    fclose(f);
    free(planes);
    return out;
}

video_sums video_sums_of_ffmpeg(const char *name)
{
    char line[256] = "";
    VIDEO_RUN("ffprobe -v error -select_streams v:0 -show_entries "
              "stream=pix_fmt,color_range,color_space -of csv=p=0 %s >probe",
              video_path(name));
    FILE *f = fopen(video_path("probe"), "r");
    assert_true(f != NULL && fgets(line, sizeof line, f) != NULL);
    fclose(f);
    if (strncmp(line, "yuv420p,", 8) != 0 && strncmp(line, "yuvj420p,", 9) != 0) {
        return sums_of_lines(name);
    }
    return sums_of_planes(name, strstr(line, ",pc,") != NULL, strstr(line, ",bt709") != NULL);
}

uint32_t video_sum(const lvni_data_video *video, const uint8_t *rgb)
{
    lvni_data_video_info info;
    lvni_data_video_describe(video, &info);
    return (uint32_t)crc32(0, rgb, (uInt)(3 * info.width * info.height));
}

static void check_frame(const lvni_data_video *video, lvni_data_video_decoders *decoders,
                        const video_sums *truth, int64_t frame, uint8_t *rgb, const char *how)
{
    lvni_data_video_info info;
    lvni_data_video_describe(video, &info);
    if (lvni_data_video_read(decoders, video, frame, 1, rgb) != LVN_OK) {
        fail_msg("%s, %s: %s", info.path, how, lvn_last_error()->message);
    }
    if (truth->sum == NULL || video_sum(video, rgb) != truth->sum[frame]) {
        fail_msg("%s, %s: frame %lld is another", info.path, how, (long long)frame);
    }
}

void video_check(const char *name)
{
    const video_sums truth = video_sums_of_ffmpeg(name);
    lvni_data_video *video;
    lvni_data_video_decoders *decoders;
    lvni_data_video_info info;
    if (lvni_data_video_open(video_path(name), NULL, &video) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    lvni_data_video_describe(video, &info);
    if (info.frames != truth.n || truth.n == 0) {
        fail_msg("%s: %lld frames, ffmpeg has %lld", name, (long long)info.frames,
                 (long long)truth.n);
    }
    if (lvni_data_video_check(video) != LVN_OK) {
        fail_msg("%s is taken for a damaged file: %s", name, lvn_last_error()->message);
    }
    assert_int_equal(lvni_data_video_decoders_create(1, &decoders), LVN_OK);
    uint8_t *rgb = malloc(3 * (size_t)info.width * (size_t)info.height);
    assert_non_null(rgb);
    for (int64_t f = 0; f < truth.n; f++) {
        check_frame(video, decoders, &truth, f, rgb, "in order");
    }
    for (int64_t f = truth.n; f >= 0; f--) { /* each from its start, so first away from the last */
        check_frame(video, decoders, &truth, f == truth.n ? 0 : f, rgb, "backwards");
    }
    uint64_t x = 1;
    for (int64_t i = 0; i < info.frames; i++) {
        x = x * 6364136223846793005U + 1442695040888963407U;
        check_frame(video, decoders, &truth, (int64_t)((x >> 33) % (uint64_t)info.frames), rgb,
                    "at random");
    }
    free(rgb);
    free(truth.sum);
    lvni_data_video_decoders_destroy(decoders);
    lvni_data_video_close(video);
}
