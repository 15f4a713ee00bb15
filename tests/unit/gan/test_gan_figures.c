/* Figures: PNG files that decode, of the right size and with the right pixels; plots of curves; the
 * arrays and the page of a report. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "data/array.h"
#include "data/image.h"
#include "recipes/gan/gan_control.h"
#include "recipes/gan/gan_report.h"
#include "report/canvas.h"
#include "report/plot.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEIGHT = 40, WIDTH = 64, N = HEIGHT * WIDTH, SAMPLES = 16 };
/* In pixels: between panels, of a title, of a bar with its numbers; of a panel of the whole image.
 */
enum { GAP = 32, LINE = 48, BAR = 224, WIDE = 512, HIGH = 320 };

static char folder[] = "/tmp/levin-gan-XXXXXX";
static float truth[N], baseline[N], mean[N], std[N], samples[SAMPLES * N];
static lvni_gan_item item = {.index = 7,
                             .height = HEIGHT,
                             .width = WIDTH,
                             .n_samples = SAMPLES,
                             .truth = truth,
                             .mean = mean,
                             .std = std,
                             .baseline = baseline,
                             .baseline_name = "dirty",
                             .samples = samples};

BEFORE_ALL()
{
    for (int i = 0; i < N; i++) {
        truth[i] = (float)(i % 97) / 97.0F;
        baseline[i] = truth[i] / 2.0F;
        for (int k = 0; k < SAMPLES; k++) {
            samples[k * N + i] = truth[i] + (float)((7 * i + 5 * k) % 11 - 5) / 40.0F;
        }
    }
    lvni_gan_mean_std(samples, SAMPLES, N, mean, std);
    return mkdtemp(folder) != NULL ? 0 : 1;
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return rmdir(folder);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Decodes the file and removes it; the pixels stay until the next one. */
static const uint8_t *decoded(const char *name, int width, int height)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image_info info;
    lvni_data_image image;
    size_t n;
    const char *path = path_of(name);
    assert_int_equal(lvni_data_read_file(scratch, path, &n), LVN_OK);
    assert_int_equal(lvni_data_image_probe(scratch, scratch->file.data, n, path, &info), LVN_OK);
    assert_int_equal(info.format, LVNI_IMAGE_PNG);
    assert_int_equal(info.width, width);
    assert_int_equal(info.height, height);
    assert_int_equal(
        lvni_data_image_decode(scratch, scratch->file.data, n, path, &info, 1.0, NULL, &image),
        LVN_OK);
    unlink(path);
    return image.rgb;
}

static int count(const uint8_t *rgb, int n, const uint8_t colour[3])
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        found += memcmp(rgb + 3 * i, colour, 3) == 0;
    }
    return found;
}

/* ---- colours ---- */

/* Colours 25, 60, 128, 200 and 240 of matplotlib 3.11's 256. */
TEST(maps_are_the_published_ones)
{
    static const int at[] = {25, 60, 128, 200, 240};
    static const uint32_t want[2][5] = {{0x160b39, 0x510e6c, 0xbc3754, 0xfb9d07, 0xf2ea69},
                                        {0x482475, 0x3d4e8a, 0x21918c, 0x70cf57, 0xd8e219}};
    for (int m = 0; m < 2; m++) {
        for (int i = 0; i < 5; i++) {
            uint8_t rgb[3];
            lvni_report_colour(m == 0 ? LVNI_COLOUR_INFERNO : LVNI_COLOUR_VIRIDIS, at[i] / 255.0,
                               rgb);
            for (int c = 0; c < 3; c++) {
                assert_true(abs(rgb[c] - (int)(want[m][i] >> (16 - 8 * c) & 255)) <= 7);
            }
        }
    }
    static const struct end {
        lvni_report_colour_map map;
        double value;
        uint8_t rgb[3];
    } ends[] = {{LVNI_COLOUR_INFERNO, -1.0, {0, 0, 4}},
                {LVNI_COLOUR_INFERNO, 2.0, {252, 255, 164}},
                {LVNI_COLOUR_VIRIDIS, 0.0, {68, 1, 84}},
                {LVNI_COLOUR_VIRIDIS, 1.0, {253, 231, 37}},
                {LVNI_COLOUR_JET, 0.0, {0, 0, 128}},
                {LVNI_COLOUR_JET, 0.5, {128, 255, 128}},
                {LVNI_COLOUR_JET, 1.0, {128, 0, 0}},
                {LVNI_COLOUR_GREY, 0.5, {128, 128, 128}},
                {LVNI_COLOUR_GREY, (double)NAN, {224, 224, 224}}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        uint8_t rgb[3];
        lvni_report_colour(ends[i].map, ends[i].value, rgb);
        assert_memory_equal(rgb, ends[i].rgb, 3);
    }
}

/* ---- panels ---- */

/* 64 x 40 pixels are enlarged eight times. Rotated by 180 degrees, the first pixel is the last. The
 * images are a row, and what deviates is one with a range of its own. */
TEST(overviews)
{
    enum { ACROSS = WIDE + BAR + GAP, DOWN = LINE + HIGH + GAP };
    assert_int_equal(lvni_gan_overview(path_of("a.png"), &item, &lvni_gan_radio_style), LVN_OK);
    const int width = GAP + 3 * ACROSS;
    const uint8_t *rgb = decoded("a.png", width, GAP + 2 * DOWN);
    uint8_t want[3];
    const double limit = 0.4 * 96.0 / 97.0;
    lvni_report_colour(LVNI_COLOUR_INFERNO, (double)truth[N - 1] / limit, want);
    assert_memory_equal(rgb + 3 * ((GAP + LINE) * width + GAP), want, 3);
    assert_memory_equal(rgb + 3 * ((GAP + LINE + 7) * width + GAP + 7), want, 3);
    lvni_report_colour(LVNI_COLOUR_INFERNO, (double)truth[N - 2] / limit, want);
    assert_memory_equal(rgb + 3 * ((GAP + LINE) * width + GAP + 8), want, 3);
    const float *images[2] = {mean, baseline};
    for (int i = 0; i < 2; i++) { /* beside each other */
        lvni_report_colour(LVNI_COLOUR_INFERNO, (double)images[i][0] / limit, want);
        assert_memory_equal(
            rgb + 3 * ((GAP + LINE + HIGH - 1) * width + GAP + (1 + i) * ACROSS + WIDE - 1), want,
            3);
    }
    double most = 0.0;
    for (int i = 0; i < N; i++) {
        most = fmax(most, fmax((double)fabsf(mean[i] - truth[i]), (double)std[i]));
    }
    const double error = (double)fabsf(mean[N - 1] - truth[N - 1]);
    lvni_report_colour(LVNI_COLOUR_JET, error / (0.4 * most), want);
    assert_memory_equal(rgb + 3 * ((GAP + DOWN + LINE) * width + GAP), want, 3);
    lvni_report_colour(LVNI_COLOUR_VIRIDIS, (double)std[N - 1] / (0.4 * most), want);
    assert_memory_equal(rgb + 3 * ((GAP + DOWN + LINE) * width + GAP + ACROSS), want, 3);
    lvni_report_colour(LVNI_COLOUR_JET, 1.0, want); /* top of the error's colour bar */
    assert_memory_equal(rgb + 3 * ((GAP + DOWN + LINE) * width + GAP + WIDE + 16), want, 3);
    lvni_gan_item alone = item;
    alone.baseline = NULL;
    assert_int_equal(lvni_gan_overview(path_of("a.png"), &alone, &lvni_gan_mri_style), LVN_OK);
    rgb = decoded("a.png", GAP + 2 * ACROSS, GAP + 2 * DOWN);
    lvni_report_colour(LVNI_COLOUR_GREY, (double)truth[N - 1] / (0.7 * 96.0 / 97.0), want);
    assert_memory_equal(rgb + 3 * ((GAP + LINE) * (GAP + 2 * ACROSS) + GAP), want, 3);
}

/* Dark pixels of the number at an end of a bar. */
static int ink_at(const uint8_t *rgb, int width, int left, int top)
{
    int found = 0;
    for (int y = 0; y < 28; y++) {
        for (int x = 0; x < BAR - 60; x++) {
            found += rgb[3 * ((top + y) * width + left + x)] < 128;
        }
    }
    return found;
}

/* What is constant up to rounding is one colour, and bars mark what lies beyond their ends. */
TEST(constant_images_are_not_stretched)
{
    enum { ACROSS = WIDE + BAR + GAP, DOWN = LINE + HIGH + GAP, PAGE = GAP + 2 * ACROSS };
    float *flat = malloc(2 * N * sizeof *flat), *low = flat + N;
    assert_non_null(flat);
    for (int i = 0; i < N; i++) {
        flat[i] = 0.5F + (i % 2 == 0 ? 0.0F : 6e-8F);
        low[i] = i == 0 ? -1.0F : 0.5F;
    }
    const float *const pairs[][2] = {{flat, flat}, {truth, flat}, {flat, low}};
    int ends[3][2];
    for (int k = 0; k < 3; k++) {
        assert_int_equal(
            lvni_gan_progress(path_of("a.png"), pairs[k][0], pairs[k][1], HEIGHT, WIDTH), LVN_OK);
        const uint8_t *rgb = decoded("a.png", PAGE, GAP + 2 * DOWN);
        const uint8_t *second = rgb + 3 * ((GAP + LINE) * PAGE + GAP + ACROSS);
        if (k < 2) { /* a middle grey, and the same everywhere up to rounding */
            for (int i = 0; i < HIGH * WIDE; i++) {
                const uint8_t *p = second + (ptrdiff_t)3 * (i / WIDE * PAGE + i % WIDE);
                assert_true(abs(p[0] - second[0]) <= 1 && p[1] == p[0] && p[2] == p[0]);
            }
            assert_true(second[0] > 100 && second[0] < 156);
        }
        const int label = GAP + ACROSS + WIDE + 12 + 32 + 14;
        ends[k][0] = ink_at(rgb, PAGE, label, GAP + LINE);
        ends[k][1] = ink_at(rgb, PAGE, label, GAP + LINE + HIGH - 28);
    }
    /* "0.75" and "0.25", and with a value below them "<0.25" */
    assert_true(ends[2][0] == ends[0][0] && ends[2][1] != ends[0][1]);
    free(flat);
}

/* Of mass, which has either sign: from the least value of the truth to the largest. */
TEST(negative_mass)
{
    enum { ACROSS = GAP + 3 * (WIDE + BAR + GAP), DOWN = LINE + HIGH + GAP };
    float *shifted = malloc(N * sizeof *shifted);
    assert_non_null(shifted);
    for (int i = 0; i < N; i++) {
        shifted[i] = truth[i] - 0.5F;
    }
    lvni_gan_item mass = item;
    mass.truth = shifted;
    assert_int_equal(lvni_gan_overview(path_of("a.png"), &mass, &lvni_gan_mass_style), LVN_OK);
    const uint8_t *rgb = decoded("a.png", ACROSS, GAP + 2 * DOWN);
    uint8_t want[3];
    for (int i = 0; i < 2; i++) {
        lvni_report_colour(LVNI_COLOUR_INFERNO, (double)truth[N - 1 - i] / (96.0 / 97.0), want);
        assert_memory_equal(rgb + 3 * ((GAP + LINE) * ACROSS + GAP + 8 * i), want, 3);
    }
    free(shifted);
}

/* The enlarged square has half of 40 pixels, 26 times as large; nine panels of which the first is
 * the whole image with a red square. */
TEST(zoom_and_ascent)
{
    enum { SIDE = 20 * 26, ACROSS = SIDE + BAR + GAP, DOWN = LINE + SIDE + GAP };
    static const uint8_t red[3] = {220, 30, 30};
    const lvni_gan_style *style = &lvni_gan_radio_style;
    assert_int_equal(lvni_gan_zoom(path_of("a.png"), &item, style, 1), LVN_OK);
    const int width = GAP + 4 * ACROSS, height = GAP + 3 * DOWN;
    uint8_t *first = malloc(3 * (size_t)(width * height));
    assert_non_null(first);
    memcpy(first, decoded("a.png", width, height), 3 * (size_t)(width * height));
    assert_int_equal(count(first, width * height, red), 4 * 4 * (160 - 4)); /* 160 x 160, 4 thick */
    assert_int_equal(lvni_gan_zoom(path_of("a.png"), &item, style, 1), LVN_OK);
    assert_memory_equal(first, decoded("a.png", width, height), 3 * (size_t)(width * height));
    assert_int_equal(lvni_gan_zoom(path_of("a.png"), &item, style, 2), LVN_OK);
    assert_memory_not_equal(first, decoded("a.png", width, height), 3 * (size_t)(width * height));
    free(first);
    /* truth, 16, 8, 4, 2, 1 */
    assert_int_equal(lvni_gan_ascent(path_of("a.png"), &item, style, 1), LVN_OK);
    decoded("a.png", GAP + 3 * ACROSS, GAP + 2 * DOWN);
    /* means that are given are drawn: black where those of the samples are not */
    float *black = calloc(SAMPLES * N, sizeof *black);
    assert_non_null(black);
    lvni_gan_item given = item;
    given.means = black;
    assert_int_equal(lvni_gan_ascent(path_of("a.png"), &given, style, 1), LVN_OK);
    const uint8_t dark[3] = {0, 0, 4}; /* inferno of 0: five panels and six ends of bars */
    const int area = (GAP + 3 * ACROSS) * (GAP + 2 * DOWN);
    assert_true(count(decoded("a.png", GAP + 3 * ACROSS, GAP + 2 * DOWN), area, dark) >=
                5 * SIDE * SIDE);
    free(black);
    lvni_gan_item few = item; /* truth, 2, 1 */
    few.n_samples = 2;
    assert_int_equal(lvni_gan_ascent(path_of("a.png"), &few, style, 1), LVN_OK);
    decoded("a.png", GAP + 3 * ACROSS, GAP + DOWN);
    few.n_samples = 0;
    assert_int_equal(lvni_gan_ascent(path_of("a.png"), &few, style, 1), LVN_ERR_INVALID);
    assert_int_equal(lvni_gan_zoom("/nonexistent/a.png", &item, style, 1), LVN_ERR_NOT_FOUND);
}

TEST(an_image_of_each_epoch)
{
    enum { ACROSS = WIDE + BAR + GAP, PAGE = GAP + 2 * ACROSS, DOWN = LINE + HIGH + GAP };
    assert_int_equal(lvni_gan_progress(path_of("a.png"), truth, mean, HEIGHT, WIDTH), LVN_OK);
    const uint8_t *rgb = decoded("a.png", PAGE, GAP + 2 * DOWN);
    uint8_t want[3] = {0, 0, 0}; /* truth[0], not rotated */
    assert_memory_equal(rgb + 3 * ((GAP + LINE) * PAGE + GAP), want, 3);
    lvni_report_colour(LVNI_COLOUR_GREY, (double)mean[0] / (96.0 / 97.0), want);
    assert_memory_equal(rgb + 3 * ((GAP + LINE) * PAGE + GAP + ACROSS), want, 3);
    lvni_report_colour(LVNI_COLOUR_JET, (double)fabsf(mean[0] - truth[0]) / (0.2 * 96.0 / 97.0),
                       want);
    assert_memory_equal(rgb + 3 * ((GAP + DOWN + LINE) * PAGE + GAP), want, 3);
}

/* ---- plots ---- */

static const uint8_t blue[3] = {0, 114, 178}, orange[3] = {213, 94, 0};
enum {
    PLOT_WIDTH = LVNI_CANVAS_PIXELS * LVNI_PLOT_WIDTH,
    PLOT_HEIGHT = LVNI_CANVAS_PIXELS * LVNI_PLOT_HEIGHT,
    PLOT = PLOT_WIDTH * PLOT_HEIGHT
};

/* The theory's curve starts at the first point, and lies above a measured one that gains less. */
TEST(psnr_over_samples)
{
    double psnr[SAMPLES], spread[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        psnr[i] = 20.0 + 0.5 * lvni_gan_gain(i + 1);
        spread[i] = 0.1;
    }
    assert_int_equal(lvni_gan_plot_psnr(path_of("p.png"), SAMPLES, psnr, spread), LVN_OK);
    const uint8_t *rgb = decoded("p.png", PLOT_WIDTH, PLOT_HEIGHT);
    assert_true(count(rgb, PLOT, blue) > 4000 && count(rgb, PLOT, orange) > 1500);
    int top[2] = {PLOT_HEIGHT, PLOT_HEIGHT};
    for (int y = 200; y < PLOT_HEIGHT; y++) { /* below the legend */
        for (int x = 800; x < 1300; x++) {
            const uint8_t *p = rgb + 3 * (y * PLOT_WIDTH + x);
            top[0] = top[0] > y && memcmp(p, blue, 3) == 0 ? y : top[0];
            top[1] = top[1] > y && memcmp(p, orange, 3) == 0 ? y : top[1];
        }
    }
    assert_true(top[1] < top[0] && top[0] < PLOT_HEIGHT);
    assert_int_equal(lvni_gan_plot_psnr(path_of("p.png"), 1, psnr, NULL), LVN_OK);
    decoded("p.png", PLOT_WIDTH, PLOT_HEIGHT);
    assert_int_equal(lvni_gan_plot_psnr(path_of("p.png"), 0, psnr, NULL), LVN_ERR_INVALID);
}

TEST(curves_of_metrics)
{
    static const char text[] = "{\"step\":10,\"train/g_loss\":0.5}\n"
                               "{\"step\":20,\"train/g_loss\":null,\"val/std_mult\":1}\n"
                               "{\"step\":30,\"train/g_loss\":0.25}\n"
                               "{\"step\":40,\"train/g_loss\":0.2";
    static const char *const names[] = {"train/d_loss", "train/g_loss", "val/std_mult"};
    const lvni_report_plot labels = {.title = "losses", .x_label = "step", .y_label = "loss"};
    char metrics[128];
    bool drawn;
    snprintf(metrics, sizeof metrics, "%s", path_of("metrics.jsonl"));
    assert_int_equal(lvni_core_file_write(metrics, text, sizeof text - 1), LVN_OK);
    assert_int_equal(lvni_report_plot_metrics(path_of("c.png"), metrics, &labels, names, 3, &drawn),
                     LVN_OK);
    assert_true(drawn);
    const uint8_t *rgb = decoded("c.png", PLOT_WIDTH, PLOT_HEIGHT);
    /* the line from step 10 to step 30; a single point of radius 10, there and in the legend */
    assert_true(count(rgb, PLOT, blue) > 3000);
    const int points = count(rgb, PLOT, orange);
    assert_true(points > 2 * 250 && points <= 2 * 325);
    assert_int_equal(lvni_report_plot_metrics(path_of("c.png"), metrics, &labels, names, 1, &drawn),
                     LVN_OK);
    assert_false(drawn);
    assert_false(lvni_core_path_exists(path_of("c.png")));
    unlink(metrics);
    assert_int_equal(lvni_report_plot_metrics(path_of("c.png"), metrics, &labels, names, 3, &drawn),
                     LVN_ERR_NOT_FOUND);
}

/* Whatever allocation fails: the error is that of memory, and there is no file. */
TEST(without_memory)
{
    lvn_status s = LVN_ERR_MEMORY;
    for (int64_t k = 1; s != LVN_OK; k++) {
        lvni_core_alloc_fail_at(k);
        s = lvni_gan_progress(path_of("m.png"), truth, mean, HEIGHT, WIDTH);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        assert_int_equal(lvni_core_path_exists(path_of("m.png")), s == LVN_OK);
    }
    unlink(path_of("m.png"));
}

/* ---- the report ---- */

static void read_back(const char *name, int ndim, const float *want)
{
    lvni_data_array a;
    float *have = malloc(sizeof samples);
    assert_non_null(have);
    assert_int_equal(lvni_data_npy_open(path_of(name), &a), LVN_OK);
    assert_int_equal(a.ndim, ndim);
    assert_int_equal(a.type, LVNI_ARRAY_F32);
    assert_int_equal(a.shape[ndim - 2], HEIGHT);
    assert_int_equal(a.shape[ndim - 1], WIDTH);
    assert_int_equal(lvni_data_array_read_f32(&a, 0, a.count, have), LVN_OK);
    assert_memory_equal(have, want, (size_t)a.count * sizeof *have);
    lvni_data_array_free(&a);
    free(have);
    unlink(path_of(name));
}

TEST(arrays_and_figures_of_an_item)
{
    assert_int_equal(lvni_gan_report_item(folder, &item, &lvni_gan_radio_style, 3), LVN_OK);
    read_back("np_gt_7.npy", 2, truth);
    read_back("np_zfr_7.npy", 2, baseline);
    read_back("np_avgs_7.npy", 2, mean);
    read_back("np_stds_7.npy", 2, std);
    read_back("np_samps_7.npy", 3, samples);
    static const char *const figures[] = {"overview_7.png", "zoom_7.png", "ascent_7.png"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(unlink(path_of(figures[i])), 0);
    }
    assert_int_equal(lvni_gan_report_item("/nonexistent", &item, &lvni_gan_radio_style, 3),
                     LVN_ERR_NOT_FOUND);
}

TEST(the_page_links_to_its_images)
{
    lvni_gan_average psnr = {0}, none = {0};
    lvni_gan_average_add(&psnr, 20.0);
    lvni_gan_average_add(&psnr, 22.0);
    const lvni_gan_row rows[] = {{"PSNR", &psnr, 2}, {"CFID", &none, 4}};
    static const char *const images[] = {"psnr.png"};
    static const int64_t items[] = {7};
    const lvni_gan_page page = {.title = "a <b> & \"c\"",
                                .rows = rows,
                                .n_rows = 2,
                                .text = "best: epoch 3 <\n",
                                .images = images,
                                .n_images = 1,
                                .items = items,
                                .n_items = 1};
    assert_int_equal(lvni_gan_report_page(folder, &page), LVN_OK);
    char *text;
    size_t n;
    assert_int_equal(lvni_core_file_read(path_of("index.html"), 1 << 20, &text, &n), LVN_OK);
    static const char *const parts[] = {
        "<h1>a &lt;b&gt; &amp; &quot;c&quot;</h1>",
        "<tr><th>PSNR</th><td class=n>21.00</td><td class=n>0.71</td><td class=n>1.00</td>"
        "<td class=n>2</td></tr>",
        "<tr><th>CFID</th><td class=n>-</td><td class=n>-</td><td class=n>-</td>"
        "<td class=n>0</td></tr>",
        "<pre>best: epoch 3 &lt;\n</pre>",
        "<img src=\"psnr.png\"",
        "<img src=\"overview_7.png\"",
        "<img src=\"zoom_7.png\"",
        "<img src=\"ascent_7.png\""};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("%s is not in\n%s", parts[i], text);
        }
    }
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "http"));
    lvni_core_free(text);
    unlink(path_of("index.html"));
}
