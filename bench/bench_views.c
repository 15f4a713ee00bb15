/* What one core gains by decoding an image once for all of its views: eight views of simclr, 96
 * pixels, of JPEGs of 1024 x 768, against eight times decoding for a view alone. The two work in
 * turns, and what counts is the time that the core spent on each. Prints milliseconds per image as
 * median [least, largest] of the turns and writes out/bench/views.json.
 *
 * usage: bench_views, run by `make bench`. Exit 1 when the line is missed. */
#include "data/image_folder.h"
#include "images/view_presets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

enum { TURNS = 9, IMAGES = 12, VIEWS = 8, SIZE = 96, WIDTH = 1024, HEIGHT = 768, QUALITY = 90 };
static const double line_to_beat = 2.0;

/* Waves of all directions under noise. */
static void paint_row(uint8_t *row, int y, int number)
{
    unsigned noise = (unsigned)(number * HEIGHT + y) * 2654435761U + 1U;
    for (int x = 0; x < 3 * WIDTH; x++) {
        noise = noise * 1664525U + 1013904223U;
        const double wave =
            sin(0.0043 * x * (1 + number % 5) + 0.02 * y) + cos(0.031 * y - 0.0007 * x);
        row[x] = (uint8_t)(128.0 + 50.0 * wave + (double)(noise >> 28));
    }
}

static bool write_jpeg(const char *path, int number)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    static uint8_t row[3 * WIDTH];
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        return false;
    }
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = WIDTH;
    c.image_height = HEIGHT;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, QUALITY, TRUE);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < HEIGHT; y++) {
        JSAMPROW rows[1] = {row};
        paint_row(row, y, number);
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return fclose(f) == 0;
}

static double core_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All images once; alone: each view by its own decoding. */
static lvn_status turn(const lvn_dataset *d, uint32_t epoch, bool alone, double *seconds)
{
    static float out[VIEWS * SIZE * SIZE * 3];
    const double start = core_seconds();
    for (int64_t i = 0; i < IMAGES; i++) {
        const lvn_sample_key key = {.seed = 1, .epoch = epoch, .sample = i, .training = true};
        for (int v = 0; v < (alone ? VIEWS : 1); v++) {
            const lvn_sample_key own = lvni_data_view_key(&key, v);
            LVN_TRY(d->cls->get(d, &own, (void *[]){out}));
        }
    }
    *seconds = core_seconds() - start;
    return LVN_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double report(FILE *json, const char *what, const char *unit, double *values)
{
    qsort(values, TURNS, sizeof *values, by_value);
    printf("views %-12s %8.2f %s  [%.2f, %.2f]\n", what, values[TURNS / 2], unit, values[0],
           values[TURNS - 1]);
    fprintf(json, "%s\n  \"%s\": {\"median\": %.4f, \"min\": %.4f, \"max\": %.4f}",
            strcmp(what, "once") == 0 ? "" : ",", what, values[TURNS / 2], values[0],
            values[TURNS - 1]);
    return values[TURNS / 2];
}

static lvn_status measure(const char *folder, FILE *json, bool *met)
{
    lvni_images_view_args args = *lvni_images_view_preset("simclr");
    args.size[0] = args.size[1] = SIZE;
    args.n_global = VIEWS;
    lvni_data_views views;
    lvni_images_views_make(&args, &views);
    const lvni_data_views one = lvni_data_views_make(&views.view[0], 1);
    lvni_data_image_scan *scan;
    lvn_dataset *all = NULL, *single = NULL;
    double once[TURNS], times[TURNS], factor[TURNS], warm_up;
    LVN_TRY(lvni_data_image_scan_open(folder, LVNI_SCAN_FLAT, &scan));
    lvn_status s = lvni_data_image_view_create(scan, NULL, 0, &views, &all);
    s = s == LVN_OK ? lvni_data_image_view_create(scan, NULL, 0, &one, &single) : s;
    s = s == LVN_OK ? turn(all, 0, false, &warm_up) : s;
    s = s == LVN_OK ? turn(single, 0, true, &warm_up) : s;
    for (uint32_t i = 0; s == LVN_OK && i < TURNS; i++) {
        double a = 1.0, b = 1.0;
        s = turn(all, i + 1, false, &a);
        s = s == LVN_OK ? turn(single, i + 1, true, &b) : s;
        once[i] = a / IMAGES * 1e3;
        times[i] = b / IMAGES * 1e3;
        factor[i] = b / a;
    }
    lvn_dataset_destroy(all);
    lvn_dataset_destroy(single);
    lvni_data_image_scan_release(scan);
    LVN_TRY(s);
    report(json, "once", "ms", once);
    report(json, "eight times", "ms", times);
    *met = report(json, "factor", "x", factor) >= line_to_beat;
    printf("line %.1f: %s\n", line_to_beat, *met ? "met" : "MISSED");
    return LVN_OK;
}

int main(void)
{
    char folder[] = "/tmp/levin-bench-XXXXXX", path[64];
    bool good = mkdtemp(folder) != NULL, met = false;
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/views.json", "w");
    for (int i = 0; good && i < IMAGES; i++) {
        snprintf(path, sizeof path, "%s/%d.jpg", folder, i);
        good = write_jpeg(path, i);
    }
    if (!good || json == NULL) {
        fprintf(stderr, "bench_views: cannot write out/bench/views.json, or images to /tmp\n");
        return 1;
    }
    printf("%d views of %d pixels, JPEGs of %d x %d, one core, median [least, largest] of %d "
           "turns\n",
           VIEWS, SIZE, WIDTH, HEIGHT, TURNS);
    fprintf(json, "{");
    if (measure(folder, json, &met) != LVN_OK) {
        fprintf(stderr, "bench_views: %s\n", lvn_last_error()->message);
    }
    fprintf(json, "\n}\n");
    for (int i = 0; i < IMAGES; i++) {
        snprintf(path, sizeof path, "%s/%d.jpg", folder, i);
        remove(path);
    }
    rmdir(folder);
    lvni_data_scratch_release();
    return fclose(json) == 0 && met ? 0 : 1;
}
