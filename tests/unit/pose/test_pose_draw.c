/* What is drawn into frames of videos, and the colours that it is drawn in. */
#include "recipes/pose/pose_draw.h"

#include "recipes/pose/pose_labeled.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 400, HEIGHT = 300, KEYPOINTS = 3, BACK = 40 };

static uint8_t frame[WIDTH * HEIGHT * 3], drawn[3 * WIDTH * HEIGHT];

static const uint8_t *pixel(int x, int y)
{
    return drawn + 3 * (y * WIDTH + x);
}

static bool is(int x, int y, const uint8_t rgb[3])
{
    return memcmp(pixel(x, y), rgb, 3) == 0;
}

static const uint8_t back[3] = {BACK, BACK, BACK}, white[3] = {255, 255, 255}, black[3];

static void draw(const float point[KEYPOINTS][3], double threshold, double seconds, int64_t number)
{
    const lvni_pose_drawing d = {.width = WIDTH,
                                 .height = HEIGHT,
                                 .keypoints = KEYPOINTS,
                                 .colours = LVNI_COLOUR_COOL,
                                 .threshold = threshold};
    memset(frame, BACK, sizeof frame);
    lvni_pose_draw_frame(&d, frame, point[0], seconds, number, drawn);
}

/* How many pixels below the text are of this colour. */
static int count(const uint8_t rgb[3])
{
    int n = 0;
    for (int y = 20; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            n += is(x, y, rgb);
        }
    }
    return n;
}

/* 49 pixels are within 4 of a pixel, in the colours of cool at 0, 1/2 and 1. */
TEST(dots_are_where_the_keypoints_are)
{
    static const float at[KEYPOINTS][3] = {
        {100.9f, 60.2f, 0.95f}, {200.0f, 150.0f, 0.91f}, {300.5f, 250.5f, 1.0f}};
    static const uint8_t colour[KEYPOINTS][3] = {{0, 255, 255}, {128, 128, 255}, {255, 0, 255}};
    static const int x[KEYPOINTS] = {100, 200, 300}, y[KEYPOINTS] = {60, 150, 250};
    draw(at, 0.9, 0.0, 0);
    for (int k = 0; k < KEYPOINTS; k++) {
        assert_int_equal(count(colour[k]), 49);
        assert_true(is(x[k], y[k], colour[k]) && is(x[k] + 4, y[k], colour[k]));
        assert_true(is(x[k] - 4, y[k], colour[k]) && is(x[k], y[k] - 4, colour[k]));
        assert_true(is(x[k] + 5, y[k], back) && is(x[k] + 3, y[k] + 3, back));
    }
}

TEST(unlikely_points_are_not_drawn)
{
    static const float at[KEYPOINTS][3] = {
        {100.0f, 60.0f, 0.5f}, {200.0f, 150.0f, 0.25f}, {NAN, NAN, NAN}};
    static const uint8_t first[3] = {0, 255, 255};
    draw(at, 0.5, 0.0, 0); /* as likely as the threshold is not enough */
    assert_int_equal(count(back), WIDTH * (HEIGHT - 20));
    draw(at, 0.4, 0.0, 0);
    assert_int_equal(count(first), 49);
    assert_int_equal(count(back), WIDTH * (HEIGHT - 20) - 49);
}

/* Half a dot at a border, a quarter in a corner, none beyond. */
TEST(dots_are_clipped)
{
    static const float border[KEYPOINTS][3] = {
        {399.0f, 100.0f, 1.0f}, {399.0f, 299.0f, 1.0f}, {-9.0f, 100.0f, 1.0f}};
    static const uint8_t a[3] = {0, 255, 255}, b[3] = {128, 128, 255}, c[3] = {255, 0, 255};
    draw(border, 0.5, 0.0, 0);
    assert_int_equal(count(a), 29);
    assert_int_equal(count(b), 17);
    assert_int_equal(count(c), 0);
    static const float far[KEYPOINTS][3] = {
        {1e30f, 100.0f, 1.0f}, {50.0f, -INFINITY, 1.0f}, {NAN, 100.0f, 1.0f}};
    draw(far, 0.5, 0.0, 0);
    assert_int_equal(count(back), WIDTH * (HEIGHT - 20));
}

/* Rows of the text's pixels between two columns, as text. */
static void read_text(int left, int columns, char *out)
{
    for (int y = 2; y < 9; y++) {
        for (int x = left; x < left + columns; x++) {
            *out++ = is(x, y, white) ? '#' : is(x, y, black) ? '.' : '?';
        }
        *out++ = '\n';
    }
    *out = '\0';
}

/* "t=01:02:05, frame=7" is 19 characters of 6 columns on a box with a margin of 2. */
TEST(the_text)
{
    static const float at[KEYPOINTS][3] = {{0.0f}};
    char text[128];
    draw(at, 0.5, 3725.9, 7);
    read_text(2, 12, text);
    assert_string_equal(text, ".#..........\n"
                              ".#..........\n"
                              "###...#####.\n"
                              ".#..........\n"
                              ".#....#####.\n"
                              ".#..#.......\n"
                              "..##........\n");
    read_text(2 + 6 * 9, 6, text); /* the last digit of the seconds */
    assert_string_equal(text, "#####.\n#.....\n####..\n....#.\n....#.\n#...#.\n.###..\n");
    read_text(2 + 6 * 18, 6, text);
    assert_string_equal(text, "#####.\n....#.\n...#..\n..#...\n.#....\n.#....\n.#....\n");
    assert_true(is(0, 0, black) && is(19 * 6 + 3, 10, black));
    assert_true(is(19 * 6 + 4, 5, back) && is(0, 11, back));
}

TEST(small_frames_are_enlarged)
{
    static const int size[][4] = {{400, 300, 400, 300}, {193, 400, 193, 400},
                                  {192, 400, 384, 800}, {300, 101, 600, 202},
                                  {99, 100, 247, 250},  {400, 100, 1000, 250}};
    int width, height;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        lvni_pose_draw_size(size[i][0], size[i][1], &width, &height);
        assert_int_equal(width, size[i][2]);
        assert_int_equal(height, size[i][3]);
    }
    /* of 160 x 120 the point (100, 60) is drawn at (200, 120); the frame's pixels become 2 x 2 */
    static const float at[3] = {100.0f, 60.0f, 1.0f};
    const lvni_pose_drawing d = {
        .width = 160, .height = 120, .keypoints = 1, .colours = LVNI_COLOUR_COOL};
    memset(frame, BACK, sizeof frame);
    memset(frame + 3 * (100 * 160 + 30), 200, 3);
    lvni_pose_draw_frame(&d, frame, at, 0.0, 0, drawn);
    const uint8_t first[3] = {0, 255, 255}, bright[3] = {200, 200, 200};
    int dots = 0, spots = 0;
    for (int i = 0; i < 320 * 240; i++) {
        dots += memcmp(drawn + 3 * i, first, 3) == 0;
        spots += memcmp(drawn + 3 * i, bright, 3) == 0;
    }
    assert_int_equal(dots, 49);
    assert_int_equal(spots, 4);
    assert_memory_equal(drawn + 3 * (120 * 320 + 200), first, 3);
    assert_memory_equal(drawn + 3 * (200 * 320 + 60), bright, 3);
    assert_memory_equal(drawn + 3 * (201 * 320 + 61), bright, 3);
}

/* Colours of matplotlib 3.10 at 0, 1/2 and 1. */
TEST(colour_maps_by_name)
{
    static const struct {
        const char *name;
        uint8_t at[3][3];
    } maps[] = {
        {"cool", {{0, 255, 255}, {128, 127, 255}, {255, 0, 255}}},
        {"viridis", {{68, 1, 84}, {33, 145, 140}, {253, 231, 37}}},
        {"plasma", {{13, 8, 135}, {204, 71, 120}, {240, 249, 33}}},
        {"inferno", {{0, 0, 4}, {188, 55, 84}, {252, 255, 164}}},
        {"magma", {{0, 0, 4}, {183, 55, 121}, {252, 253, 191}}},
        {"turbo", {{48, 18, 59}, {164, 252, 60}, {122, 4, 3}}},
        {"jet", {{0, 0, 128}, {125, 255, 122}, {128, 0, 0}}},
        {"hsv", {{255, 0, 0}, {0, 255, 246}, {255, 0, 24}}},
        {"rainbow", {{128, 0, 255}, {128, 255, 180}, {255, 0, 0}}},
        {"gray", {{0, 0, 0}, {128, 128, 128}, {255, 255, 255}}},
        {"spring", {{255, 0, 255}, {255, 128, 127}, {255, 255, 0}}},
        {"summer", {{0, 128, 102}, {128, 192, 102}, {255, 255, 102}}},
        {"autumn", {{255, 0, 0}, {255, 128, 0}, {255, 255, 0}}},
        {"winter", {{0, 0, 255}, {0, 128, 191}, {0, 255, 128}}},
        {"tab10", {{31, 119, 180}, {140, 86, 75}, {23, 190, 207}}},
    };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        lvni_report_colour_map map;
        assert_true(lvni_report_colour_map_find(maps[i].name, &map));
        assert_non_null(strstr(lvni_report_colour_map_names, maps[i].name));
        for (int k = 0; k < 3; k++) {
            uint8_t rgb[3];
            lvni_report_colour(map, k / 2.0, rgb);
            for (int c = 0; c < 3; c++) {
                if (abs(rgb[c] - maps[i].at[k][c]) > 7) {
                    fail_msg("%s at %g, channel %d: %d", maps[i].name, k / 2.0, c, rgb[c]);
                }
            }
        }
    }
    lvni_report_colour_map map;
    assert_false(lvni_report_colour_map_find("Cool", &map));
    assert_false(lvni_report_colour_map_find("", &map));
}

TEST(counts_of_frames)
{
    int64_t n;
    assert_true(lvni_pose_labeled_frames_read("all", &n) && n == INT64_MAX);
    assert_true(lvni_pose_labeled_frames_read("25", &n) && n == 25);
    static const char *const wrong[] = {
        "", "0", "-1", " 3", "3 ", "3.5", "ALL", "1e3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(lvni_pose_labeled_frames_read(wrong[i], &n));
    }
}
