/* What is drawn by cairo: contact sheets, plots, matrices, their numbers and their text. Files are
 * decoded, and compared with what they would be without the part in question. */
#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/shapes.h"
#include "report/axis.h"
#include "report/canvas.h"
#include "report/contact_sheet.h"
#include "report/matrix.h"
#include "report/plot.h"
#include "unit/data/images_support.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WIDE = LVNI_CANVAS_PIXELS * LVNI_PLOT_WIDTH, HIGH = LVNI_CANVAS_PIXELS * LVNI_PLOT_HEIGHT };

static const char *folder;

BEFORE_ALL()
{
    folder = images_temp_folder();
    return 0;
}

AFTER_ALL()
{
    images_remove_folder(folder);
    lvni_data_scratch_release();
    return 0;
}

typedef struct decoded_image {
    int width, height;
    uint8_t *rgb;
} decoded_image;

static decoded_image decoded(const char *path)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    size_t n;
    lvni_data_image_info info;
    lvni_data_image image;
    assert_int_equal(lvni_data_read_file(scratch, path, &n), LVN_OK);
    assert_int_equal(lvni_data_image_probe(scratch, scratch->file.data, n, path, &info), LVN_OK);
    assert_int_equal(info.format, LVNI_IMAGE_PNG);
    assert_int_equal(
        lvni_data_image_decode(scratch, scratch->file.data, n, path, &info, 1.0, NULL, &image),
        LVN_OK);
    decoded_image p = {info.width, info.height,
                       malloc(3 * (size_t)info.width * (size_t)info.height)};
    assert_non_null(p.rgb);
    memcpy(p.rgb, image.rgb, 3 * (size_t)info.width * (size_t)info.height);
    return p;
}

static int count(const decoded_image *p, const uint8_t colour[3])
{
    int found = 0;
    for (int i = 0; i < p->width * p->height; i++) {
        found += memcmp(p->rgb + 3 * (int64_t)i, colour, 3) == 0;
    }
    return found;
}

/* ---- contact sheets ---- */

TEST(contact_sheets)
{
    enum { TILE = 256 + 2 * 8, ACROSS = TILE + 20, DOWN = TILE + 2 * 32 + 20, EDGE = 20 };
    const char *path = images_path(folder, "sheet.png");
    static uint8_t rgb[5][32 * 32 * 3];
    lvni_report_sheet_item items[5];
    for (int i = 0; i < 5; i++) {
        lvni_data_shapes_draw(1, i, 6, 32, rgb[i]);
        items[i] = (lvni_report_sheet_item){rgb[i], (lvni_report_verdict)(i % 3), "ring",
                                            i == 0 ? NULL : "a line too long for its tile by far"};
    }
    assert_int_equal(lvni_report_contact_sheet_write(path, items, 5, 3, 32), LVN_OK);
    decoded_image p = decoded(path);
    assert_int_equal(p.width, 3 * ACROSS + EDGE); /* each pixel 8 x 8 */
    assert_int_equal(p.height, 2 * DOWN + EDGE);
    const uint8_t green[3] = {46, 160, 67}, red[3] = {215, 58, 73};
    assert_memory_equal(p.rgb + 3 * (EDGE * p.width + EDGE + ACROSS), green, 3);
    assert_memory_equal(p.rgb + 3 * (EDGE * p.width + EDGE + 2 * ACROSS), red, 3);
    for (int i = 0; i < 32 * 32; i++) { /* all of it exact */
        const int y = EDGE + 8 + i / 32 * 8, x = EDGE + 8 + i % 32 * 8;
        assert_memory_equal(p.rgb + 3 * (y * p.width + x), rgb[0] + 3 * (ptrdiff_t)i, 3);
        assert_memory_equal(p.rgb + 3 * ((y + 7) * p.width + x + 7), rgb[0] + 3 * (ptrdiff_t)i, 3);
    }
    int beside = 0; /* no line leaves its tile */
    for (int y = EDGE + TILE; y < DOWN; y++) {
        for (int x = EDGE + ACROSS + TILE; x < EDGE + 2 * ACROSS; x++) {
            beside += p.rgb[3 * (y * p.width + x)] != 255;
        }
    }
    assert_int_equal(beside, 0);
    free(p.rgb);
    assert_int_equal(lvni_report_contact_sheet_write("/nonexistent/x.png", items, 5, 3, 32),
                     LVN_ERR_NOT_FOUND);
}

/* ---- text ---- */

/* A line of text on a page of its own. */
static decoded_image text_of(const char *text, double room)
{
    const char *path = images_path(folder, "text.png");
    lvni_report_canvas *c;
    assert_int_equal(lvni_report_canvas_create(path, 400, 32, &c), LVN_OK);
    const lvni_report_label label = {.x = 10, .y = 24, .size = 14, .room = room};
    lvni_report_canvas_text(c, &label, text);
    assert_int_equal(lvni_report_canvas_write(c), LVN_OK);
    lvni_report_canvas_destroy(c);
    return decoded(path);
}

static int dark(const decoded_image *p, int *right)
{
    int found = 0;
    *right = 0;
    for (int i = 0; i < p->width * p->height; i++) {
        if (p->rgb[3 * (int64_t)i] < 128) {
            found++;
            *right = i % p->width > *right ? i % p->width : *right;
        }
    }
    return found;
}

/* Every name leaves ink, and no two names look alike: not as boxes, not as nothing. */
TEST(names_of_every_script)
{
    static const char *const names[] = {"Größe 42", "Ωμέγα", "Кириллица", "T-shirt/top", "grösse",
                                        "GRÖSSE",   "日本",  "中国",      "\xff",        "\xfe",
                                        "a\nb",     "a\tb",  "−1×10⁻⁸",   "\x7f",        "ab\xc3",
                                        "שלום",     "🙂",  "🙃"};
    enum { N = sizeof names / sizeof *names };
    decoded_image p[N];
    int right;
    for (int i = 0; i < N; i++) {
        p[i] = text_of(names[i], 0);
        assert_true(dark(&p[i], &right) > 20);
        for (int k = 0; k < i; k++) {
            assert_memory_not_equal(p[i].rgb, p[k].rgb, 3 * (size_t)(800 * 64));
        }
    }
    for (int i = 0; i < N; i++) {
        free(p[i].rgb);
    }
    decoded_image none = text_of(NULL, 0), empty = text_of("", 0);
    assert_int_equal(dark(&none, &right) + dark(&empty, &right), 0);
    free(none.rgb);
    free(empty.rgb);
}

/* What is too long ends within its room, and keeps both of its ends. */
TEST(long_names_lose_their_middle)
{
    static const char *const names[] = {"a very long name of a class, number 7",
                                        "a very long name of a class, number 8",
                                        "one very long name of a class, number 8"};
    decoded_image p[3];
    for (int i = 0; i < 3; i++) {
        int right;
        p[i] = text_of(names[i], 100);
        assert_true(dark(&p[i], &right) > 100);
        assert_true(right <= 2 * 110 && right > 2 * 90);
        for (int k = 0; k < i; k++) {
            assert_memory_not_equal(p[i].rgb, p[k].rgb, 3 * (size_t)(800 * 64));
        }
    }
    for (int i = 0; i < 3; i++) {
        free(p[i].rgb);
    }
    for (int room = 1; room < 30; room++) { /* never without end */
        decoded_image small = text_of("name", room);
        free(small.rgb);
    }
}

/* ---- numbers ---- */

TEST(numbers)
{
    static const struct {
        double value;
        int digits;
        const char *text;
    } want[] = {{0, 3, "0"},          {-1.5, 3, "−1.5"},        {1e-8, 3, "10⁻⁸"},
                {-1e-8, 3, "−10⁻⁸"},  {2.5e12, 3, "2.5×10¹²"},  {1234, 6, "1234"},
                {12345, 6, "12 345"}, {-123456, 6, "−123 456"}, {12345, 3, "12 345"},
                {NAN, 3, "nan"},      {INFINITY, 3, "inf"},     {0.001, 3, "0.001"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char text[LVNI_NUMBER_TEXT];
        assert_string_equal(lvni_report_axis_number(want[i].value, want[i].digits, text),
                            want[i].text);
    }
}

/* The ticks of an axis that ends at two values, with "|" between them. */
static void assert_ticks(double low, double high, bool log, bool whole, const char *want)
{
    lvni_report_axis a;
    lvni_core_str text = {0};
    lvni_report_axis_begin(&a, log);
    a.whole = whole;
    lvni_report_axis_widen(&a, low);
    lvni_report_axis_widen(&a, high);
    lvni_report_axis_end(&a, 0.0, 6);
    double before = -INFINITY;
    for (int i = 0; i < a.n_ticks; i++) {
        assert_true(a.tick[i].at > before && a.tick[i].at >= a.low - 1e-9 * fabs(a.low) - 1e-300 &&
                    a.tick[i].at <= a.high + 1e-9 * fabs(a.high) + 1e-300);
        before = a.tick[i].at;
        if (a.tick[i].text[0] != '\0') {
            lvni_core_str_append(&text, a.tick[i].text);
            lvni_core_str_char(&text, '|');
        }
    }
    lvni_core_str_append(&text, a.note);
    assert_string_equal(lvni_core_str_text(&text), want);
    lvni_core_str_free(&text);
}

TEST(ticks)
{
    assert_ticks(0, 1, false, false, "0.0|0.2|0.4|0.6|0.8|1.0|");
    assert_ticks(-1, 2, false, false, "−1.0|−0.5|0.0|0.5|1.0|1.5|2.0|");
    assert_ticks(1, 3, false, true, "1|2|3|");
    assert_ticks(0, 210000, false, true, "0|50 000|100 000|150 000|200 000|");
    assert_ticks(0, 3e7, false, false, "0|5|10|15|20|25|30|×10⁶");
    assert_ticks(-1e-8, 1e-8, false, false, "−10|−5|0|5|10|×10⁻⁹");
    assert_ticks(1e12, 1e12 + 6, false, false, "0|1|2|3|4|5|6| + 1 000 000 000 000");
    assert_ticks(5, 5, false, false, "4.6|4.8|5.0|5.2|5.4|");
    assert_ticks(NAN, INFINITY, false, false, "0.0|0.2|0.4|0.6|0.8|1.0|");
    assert_ticks(-1.7e308, 1.7e308, false, false, "−1.0|−0.5|0.0|0.5|1.0|×10³⁰⁰");
    assert_ticks(1e-6, 1, true, false, "10⁻⁶|10⁻⁵|10⁻⁴|10⁻³|10⁻²|10⁻¹|10⁰|");
    assert_ticks(1e-3, 1, true, false, "0.001|0.01|0.1|1|");
    assert_ticks(1e-6, 2e-5, true, false, "10⁻⁶|2×10⁻⁶|5×10⁻⁶|10⁻⁵|2×10⁻⁵|");
    assert_ticks(1e-20, 1, true, false, "10⁻¹⁸|10⁻¹⁵|10⁻¹²|10⁻⁹|10⁻⁶|10⁻³|10⁰|");
    assert_ticks(1e-6, 1.5e-6, true, false, "1.0|1.1|1.2|1.3|1.4|1.5|×10⁻⁶");
    assert_ticks(-3, 0, true, false, "1|2|5|10|"); /* nothing that is above 0: 1 to 10 */
}

/* ---- plots ---- */

static const uint8_t blue[3] = {0, 114, 178}, orange[3] = {213, 94, 0};

static decoded_image plot_of(const lvni_report_plot *plot)
{
    const char *path = images_path(folder, "plot.png");
    assert_int_equal(lvni_report_plot_write(path, plot), LVN_OK);
    decoded_image p = decoded(path);
    assert_int_equal(p.width, WIDE);
    assert_int_equal(p.height, HIGH);
    return p;
}

/* As many pixels of the curve with other names as without: wherever its points are. */
TEST(legends_cover_no_points)
{
    static const double x[] = {0, 0, 0, 1, 1, 1, 2, 2, 2}, y[] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    static const char *const names[] = {
        "a", "Größe 42",
        "a name that is longer than the axes are wide, and so must lose its middle, or the page "
        "would end before it does, and it would not be known what it was that ended before its "
        "page"};
    for (int k = 0; k < 3; k++) {
        lvni_report_plot plot = {.title = names[k],
                                 .x_label = names[k],
                                 .y_label = names[k],
                                 .n_series = LVNI_PLOT_SERIES};
        for (int i = 0; i < LVNI_PLOT_SERIES; i++) {
            plot.series[i] = (lvni_report_plot_series){.name = names[k], .x = x, .y = y};
        }
        plot.series[0].n = 9;
        plot.series[1] =
            (lvni_report_plot_series){.name = names[k], .x = x, .y = y, .n = 9, .scattered = true};
        decoded_image p = plot_of(&plot);
        const int dots = count(&p, orange);
        assert_true(dots >= 9 * 70 && dots <= 10 * 120);
        free(p.rgb);
    }
}

/* Equal values, none at all, single ones, and numbers of any size have axes and what there is. */
TEST(plots_of_odd_values)
{
    static const double x[3] = {1, 2, 3};
    static const double y[][3] = {{5, 5, 5},
                                  {0, 0, 0},
                                  {1e300, -1e300, 0},
                                  {1e-300, 0, 1},
                                  {INFINITY, 1, 2},
                                  {-1e-12, 0, -2e-12},
                                  {1e12, 1e12 + 1, 1e12},
                                  {1, NAN, 2},
                                  {NAN, 7, NAN},
                                  {1.7e308, -1.7e308, 1},
                                  {NAN, NAN, NAN}};
    enum { N = sizeof y / sizeof *y };
    for (int i = 0; i < N; i++) {
        const lvni_report_plot plot = {.title = "odd",
                                       .x_label = "x",
                                       .y_label = "y",
                                       .series = {{.name = "a", .x = x, .y = y[i], .n = 3}},
                                       .n_series = 1};
        decoded_image p = plot_of(&plot);
        assert_true(count(&p, blue) > (i == N - 1 ? 100 : 200)); /* in the legend alone */
        free(p.rgb);
    }
}

/* A million points are drawn as what can be seen of them. */
TEST(plots_of_many_points)
{
    enum { N = 1000000 };
    double *x = malloc(2 * N * sizeof *x), *y = x + N;
    assert_non_null(x);
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = i == N / 2 ? 100.0 : i == N / 3 ? -100.0 : 0.0;
    }
    const lvni_report_plot plot = {
        .title = "many", .series = {{.name = "a", .x = x, .y = y, .n = N}}, .n_series = 1};
    decoded_image p = plot_of(&plot);
    int top = HIGH, bottom = 0;
    for (int i = 140 * WIDE; i < WIDE * HIGH; i++) { /* below the legend */
        if (memcmp(p.rgb + 3 * (int64_t)i, blue, 3) == 0) {
            top = i / WIDE < top ? i / WIDE : top;
            bottom = i / WIDE > bottom ? i / WIDE : bottom;
        }
    }
    assert_true(bottom - top > 800); /* both peaks */
    free(p.rgb);
    free(x);
}

/* On a logarithmic axis equal factors are equal steps, and dots outside of the range of the line,
 * or of one that is given, are left out. */
TEST(logarithmic_axes)
{
    static const double x[] = {1e-3, 1e-2, 1e-1, 1, 0, -1}, y[] = {0, 1, 2, 3, 50, 50},
                        dots[] = {0.5, 1.5, -40, 90, 1, 1};
    const lvni_report_plot plot = {
        .title = "log",
        .x_label = "x",
        .y_label = "y",
        .log_x = true,
        .series = {{.name = "a", .x = x, .y = y, .n = 6},
                   {.name = "b", .x = x, .y = dots, .n = 6, .scattered = true}},
        .n_series = 2};
    lvni_report_plot wider = plot;
    wider.y_range[0] = -40;
    wider.y_range[1] = 3;
    decoded_image p = plot_of(&wider);
    const int more = count(&p, orange);
    free(p.rgb);
    p = plot_of(&plot);
    const int found = count(&p, orange); /* two dots, and one in the legend */
    assert_true(found >= 3 * 70 && found <= 3 * 120);
    assert_true(more - found >= 70); /* -40 */
    int64_t sum = 0, n = 0, first = WIDE, last = 0;
    for (int i = 140 * WIDE; i < WIDE * HIGH; i++) {
        if (memcmp(p.rgb + 3 * (int64_t)i, blue, 3) == 0) {
            sum += i % WIDE;
            n++;
            first = i % WIDE < first ? i % WIDE : first;
            last = i % WIDE > last ? i % WIDE : last;
        }
    }
    assert_true(n > 0 && llabs(sum / n - (first + last) / 2) < 20); /* a straight line */
    free(p.rgb);
}

/* ---- matrices ---- */

TEST(matrices)
{
    static const int sizes[] = {1, 2, LVNI_MATRIX_NUMBERS, LVNI_MATRIX_NUMBERS + 5, 700};
    const char *path = images_path(folder, "m.png");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int n = sizes[k];
        int64_t *counts = calloc((size_t)n * (size_t)n, sizeof *counts);
        const char **names = malloc((size_t)n * sizeof *names);
        assert_non_null(counts);
        assert_non_null(names);
        for (int i = 0; i < n; i++) {
            names[i] = i % 2 == 0 ? "Größe 42" : "a very long name of a class that goes on";
            counts[(int64_t)i * n + i] = 123456789;
            counts[(int64_t)i * n + (i + 1) % n] += 123456789;
        }
        memset(counts, 0, (size_t)n * sizeof *counts); /* nothing is of class 0 */
        assert_int_equal(lvni_report_matrix_write(path, names, n, counts), LVN_OK);
        decoded_image p = decoded(path);
        static const uint8_t grey[3] = {224, 224, 224}, half[3] = {108, 164, 208};
        assert_true(count(&p, grey) > p.width * p.width / n / 20);
        assert_true(p.width > 400 && p.width <= 2400 && p.height <= 2400);
        assert_true(n == 1 || count(&p, half) > 2);
        free(p.rgb);
        free(names);
        free(counts);
    }
    static const char *const name = "x";
    static const int64_t one = 1;
    assert_int_equal(lvni_report_matrix_write("/nonexistent/m.png", &name, 1, &one),
                     LVN_ERR_NOT_FOUND);
    assert_int_equal(lvni_report_matrix_write(path, &name, 0, &one), LVN_ERR_INVALID);
}

/* ---- files ---- */

/* PNG without a time or a program's name, the same bytes each time; SVG by its name. */
TEST(files_have_what_is_drawn_alone)
{
    static const char *const files[] = {"a.png", "b.png", "a.svg", "a.SVG"}, *const name = "Größe";
    static const int64_t one = 1;
    size_t n[4];
    char *text[4];
    for (int i = 0; i < 4; i++) {
        const char *path = images_path(folder, files[i]);
        assert_int_equal(lvni_report_matrix_write(path, &name, 1, &one), LVN_OK);
        assert_int_equal(lvni_core_file_read(path, 1 << 24, &text[i], &n[i]), LVN_OK);
        assert_int_equal(strncmp(text[i], "<?xml", 5) == 0 && strstr(text[i], "<svg") != NULL,
                         i >= 2);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(text[0], text[1], n[0]);
    static const char *const chunks[] = {"tIME", "tEXt", "iTXt", "zTXt", "eXIf"};
    for (int i = 0; i < 5; i++) {
        assert_null(memmem(text[0], n[0], chunks[i], 4));
    }
    for (int i = 0; i < 4; i++) {
        lvni_core_free(text[i]);
    }
    assert_true(lvni_report_canvas_writes("a.PNG") && lvni_report_canvas_writes("d/a.svg"));
    assert_false(lvni_report_canvas_writes("a.jpg") || lvni_report_canvas_writes(".png") ||
                 lvni_report_canvas_writes("a.png/"));
}

TEST(without_memory)
{
    const char *path = images_path(folder, "n.png"), *name = "Größe";
    static const int64_t one = 1;
    lvn_status s = LVN_ERR_MEMORY;
    for (int64_t k = 1; s != LVN_OK; k++) {
        lvni_core_alloc_fail_at(k);
        s = lvni_report_matrix_write(path, &name, 1, &one);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        assert_int_equal(lvni_core_path_exists(path), s == LVN_OK);
    }
}

/* Started again with a file that is missing in place of cairo. */
TEST(a_missing_library_is_named)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("LEVIN_CAIRO_LIBRARY", "/none/libcairo.so", 1);
        execl("/proc/self/exe", "test_drawing", "missing", (char *)NULL);
        _exit(9);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int without_library(void)
{
    lvni_report_canvas *c;
    const bool created =
        lvni_report_canvas_create("a.png", 1, 1, &c) != LVN_ERR_UNSUPPORTED || c != NULL;
    const char *text = lvn_last_error()->message;
    const bool named = lvni_report_canvas_check("sheet=a.png") == LVN_ERR_UNSUPPORTED &&
                       strstr(text, "sheet=a.png: ") == text &&
                       strstr(text, "/none/libcairo.so") != NULL &&
                       strstr(text, "libcairo2") != NULL && strstr(text, "fonts-dejavu-core");
    return named && !created ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "missing") == 0) {
        return without_library();
    }
    return test_main(argc, argv);
}
