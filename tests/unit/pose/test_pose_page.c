/* The page of a run of the recipe pose: tables read back in pieces, errors by keypoint, frames that
 * are drawn, jumps of videos, and what is missing or damaged. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "data/image.h"
#include "recipes/pose/pose_page.h"
#include "recipes/pose/pose_results.h"
#include "recipes/pose/pose_split.h"
#include "recipes/pose/pose_table.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-page-XXXXXX");
    return mkdtemp(dir) == NULL || lvni_core_mkdirs(in_dir("video_preds")) != LVN_OK ? -1 : 0;
}

static int remove_dir(void **state)
{
    char line[128];
    (void)state;
    lvni_core_alloc_fail_at(0);
    lvn_clear_error();
    snprintf(line, sizeof line, "rm -r %s", dir);
    return system(line); /* NOLINT(cert-env33-c): of a name that mkdtemp made */
}
TEST_EACH(make_dir, remove_dir);

static void write_text(const char *name, const char *text)
{
    assert_int_equal(lvni_core_file_write(in_dir(name), text, strlen(text)), LVN_OK);
}

static const char *const keypoints[] = {"paw", "tail, <end>"};

/* ---- tables ---- */

typedef struct seen {
    int k;
    int64_t rows;
    double sum; /* of all numbers */
    int64_t empty;
    char last[64];
    int set;
} seen;

static lvn_status see_names(void *user, int k, const char *const *keypoint)
{
    seen *s = user;
    s->k = k;
    assert_string_equal(keypoint[k - 1], keypoints[1]);
    return LVN_OK;
}

static lvn_status see_row(void *user, const lvni_pose_table_row *row)
{
    seen *s = user;
    for (int i = 0; i < 3 * s->k; i++) {
        s->sum += isnan(row->value[i]) ? 0.0 : row->value[i];
        s->empty += isnan(row->value[i]);
    }
    snprintf(s->last, sizeof s->last, "%s", row->name);
    s->set = row->set;
    s->rows++;
    return LVN_OK;
}

static lvn_status see(seen *s, size_t *budget, bool *whole)
{
    const lvni_pose_table_reader reader = {.begin = see_names, .row = see_row, .user = s};
    *s = (seen){.k = 0};
    return lvni_pose_table_read(in_dir("t.csv"), &reader, budget, whole);
}

enum { LONG = 60000 };

/* Of several pieces: every number once; and as many as the budget has room for. */
TEST(long_tables_are_read_in_pieces)
{
    float *value = calloc((size_t)LONG * 6, sizeof *value);
    double sum = 0.0;
    seen s;
    bool whole;
    size_t budget = SIZE_MAX;
    for (int i = 0; i < LONG * 6; i++) {
        value[i] = (float)(i % 1000) / 7.0f;
        sum += (double)value[i];
    }
    value[17] = NAN;
    sum -= (double)(17.0f / 7.0f);
    const lvni_pose_predictions p = {
        .n = LONG, .k = 2, .keypoint = keypoints, .scorer = "me", .value = value};
    assert_int_equal(lvni_pose_write_predictions(in_dir("t.csv"), &p), LVN_OK);
    free(value);
    assert_int_equal(see(&s, &budget, &whole), LVN_OK);
    assert_true(whole);
    assert_int_equal(s.rows, LONG);
    assert_int_equal(s.empty, 1);
    assert_string_equal(s.last, "59999");
    assert_int_equal(s.set, -1);
    assert_true(fabs(s.sum - sum) < 1e-6 * sum);
    assert_true(SIZE_MAX - budget > (size_t)1 << 21);
    budget = 1;
    assert_int_equal(see(&s, &budget, &whole), LVN_OK);
    assert_false(whole);
    assert_int_equal(budget, 0);
    assert_true(s.rows > 0 && s.rows < LONG);
}

TEST(odd_tables)
{
    static const char head[] = "scorer,me,me,me,me,me,me,set\n"
                               "bodyparts,paw,paw,paw,\"tail, <end>\",\"tail, <end>\",x,\n"
                               "coords,x,y,likelihood,x,y,likelihood,\n";
    static const struct {
        const char *text, *expects; /* an error; NULL: none */
        int64_t rows, empty;
    } cases[] = {{"", "within its header", 0, 0},
                 {"a\nb\nc\n", "no columns x, y, likelihood", 0, 0},
                 {"a,b\n\"", "within its header", 0, 0},
                 {"1,2,3\n1,\"2\n\"", "within its header", 0, 0},
                 {"i.png,1,2,3,4,5,6,test\n", NULL, 1, 0},
                 {"i.png,1,2,word,,inf,-inf,test\n", NULL, 1, 4},
                 {"\"i,\n\".png\"\n", "text behind a closing quote", 0, 0},
                 {"\"i,\n.png\",1\n", NULL, 1, 5},
                 {"i.png,1,2,3,4,5,6,test\nj.png,1,2", NULL, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        seen s;
        bool whole;
        size_t budget = SIZE_MAX;
        snprintf(text, sizeof text, "%s%s", i < 4 ? "" : head, cases[i].text);
        write_text("t.csv", text);
        const lvn_status status = see(&s, &budget, &whole);
        if (cases[i].expects != NULL) {
            assert_int_equal(status, LVN_ERR_CORRUPT);
            assert_non_null(strstr(lvn_last_error()->message, cases[i].expects));
            continue;
        }
        assert_int_equal(status, LVN_OK);
        assert_int_equal(s.rows, cases[i].rows);
        assert_int_equal(s.empty, cases[i].empty);
        assert_int_equal(s.set, i == 7 ? -1 : LVNI_POSE_TEST);
    }
}

TEST(a_scorer_called_set)
{
    seen s;
    bool whole;
    size_t budget = SIZE_MAX;
    write_text("t.csv", "scorer,set,set,set,set,set,set,set\n"
                        "bodyparts,,paw,paw,paw,\"tail, <end>\",\"tail, <end>\",x\n"
                        "coords,,x,y,likelihood,x,y,likelihood\n"
                        "i.png,test,1,2,3,4,5,6\n");
    assert_int_equal(see(&s, &budget, &whole), LVN_OK);
    assert_int_equal(s.set, LVNI_POSE_TEST);
}

TEST(quantiles)
{
    static const double value[] = {1.0, 2.0, 4.0, 8.0};
    assert_true(isnan(lvni_pose_page_quantile(value, 0, 0.5)));
    assert_true(lvni_pose_page_quantile(value, 1, 0.9) == 1.0);
    assert_true(lvni_pose_page_quantile(value, 4, 0.0) == 1.0);
    assert_true(lvni_pose_page_quantile(value, 4, 0.5) == 3.0);
    assert_true(lvni_pose_page_quantile(value, 4, 1.0) == 8.0);
}

/* ---- the page ---- */

/* Three frames: errors of 3, 4 and 5 pixels of the paw, 10 of the tail, which has one label, and a
 * frame without a prediction. */
static void write_run(const char *data_dir)
{
    static const char *const images[] = {"a/1.png", "a/2.png", "a/3.png", "a/4.png"};
    static const int8_t sets[] = {LVNI_POSE_TRAIN, LVNI_POSE_VALIDATION, LVNI_POSE_TRAIN,
                                  LVNI_POSE_TRAIN};
    static const float values[] = {13.0f, 10.0f, 0.95f, 5.0f, 5.0f,  0.2f,  10.0f, 14.0f,
                                   0.6f,  30.0f, 20.0f, 1.0f, 10.0f, 15.0f, 0.05f, 7.0f,
                                   8.0f,  0.5f,  NAN,   NAN,  NAN,   NAN,   NAN,   NAN};
    const lvni_pose_predictions p = {.n = 4,
                                     .k = 2,
                                     .keypoint = keypoints,
                                     .scorer = "me",
                                     .name = images,
                                     .value = values,
                                     .set = sets};
    char config[256];
    assert_int_equal(lvni_pose_write_predictions(in_dir("predictions.csv"), &p), LVN_OK);
    write_text("mine.csv", "scorer,me,me,me,me\nbodyparts,\"tail, <end>\",\"tail, <end>\",paw,paw\n"
                           "coords,x,y,x,y\na/1.png,,,10,10\na/2.png,20,20,10,10\n"
                           "a/3.png,,,10,10\na/4.png,1,1,1,1\n");
    snprintf(config, sizeof config,
             "recipe: pose\ndata.csv_file: /gone/mine.csv\ndata.data_dir: %s\n"
             "losses.temporal.epsilon: [5, 50]\n",
             data_dir);
    write_text("config.yaml", config);
}

/* The paw moves 6 pixels in frame 2, 4 in frame 3, and is missing in frame 5; the tail 40. */
static void write_video(const char *name)
{
    static const float values[] = {10.0f, 10.0f, 0.9f, 0.0f,  0.0f,  0.1f, 10.0f, 10.0f, 0.9f,
                                   40.0f, 0.0f,  0.1f, 16.0f, 10.0f, 0.9f, 0.0f,  0.0f,  0.1f,
                                   20.0f, 10.0f, 0.9f, 0.0f,  0.0f,  0.1f, 20.0f, 10.0f, 0.9f,
                                   0.0f,  0.0f,  0.1f, NAN,   NAN,   NAN,  0.0f,  0.0f,  0.1f,
                                   90.0f, 10.0f, 0.9f, 0.0f,  0.0f,  0.1f};
    const lvni_pose_predictions p = {
        .n = 7, .k = 2, .keypoint = keypoints, .scorer = "me", .value = values};
    assert_int_equal(lvni_pose_write_predictions(in_dir(name), &p), LVN_OK);
}

static char *make_page(void)
{
    lvni_core_str out = {0};
    assert_int_equal(lvni_pose_page(dir, &out), LVN_OK);
    assert_string_equal(lvn_last_error()->message, "");
    assert_non_null(out.data);
    return lvni_core_str_take(&out);
}

static void assert_page(bool has, const char *text)
{
    char *page = make_page();
    if ((strstr(page, text) != NULL) != has) {
        print_message("%s: %s\n%s\n", has ? "missing" : "there", text, page);
    }
    assert_int_equal(strstr(page, text) != NULL, has);
    lvni_core_free(page);
}

TEST(errors_by_keypoint)
{
    write_run("/gone");
    /* means of train and validation, median, 90 %, greatest, count */
    assert_page(true, "<tr><th>paw</th><td class=n>4.00</td><td class=n>4.00</td>"
                      "<td class=n>4.00</td><td class=n>4.80</td><td class=n>5.00</td>"
                      "<td class=n>3</td></tr>");
    assert_page(true, "<tr><th>tail, &lt;end&gt;</th><td class=n></td><td class=n>10.00</td>");
    assert_page(true, "<tr><th>0.9 and more</th><td class=n>2</td><td class=n>6.50</td>");
    assert_page(true, "<tr><th>0 to 0.1</th><td class=n>1</td><td class=n>5.00</td>");
    /* the worst first, with what is worst in it */
    assert_page(true,
                "7.0 pixels, validation <span class=soft>10.0 at tail, &lt;end&gt;<br>a/2.png");
    assert_page(true, "Without its image: /gone/a/2.png: ");
    assert_page(false, "<image");
    assert_page(false, "Videos");
}

TEST(frames_are_drawn)
{
    uint8_t *rgb = calloc(1000 * 500, 3);
    char data[160];
    snprintf(data, sizeof data, "%s/data", dir);
    write_run(data);
    assert_int_equal(lvni_core_mkdirs(in_dir("data/a")), LVN_OK);
    assert_int_equal(lvni_data_png_write(in_dir("data/a/2.png"), rgb, 1000, 500), LVN_OK);
    write_text("data/a/1.png", "no image");
    free(rgb);
    assert_page(true, "<svg viewBox=\"0 0 1000 500\" role=img aria-label=\"a/2.png\"><image "
                      "width=1000 height=500 href=\"data:image/png;base64,");
    assert_page(true, "<title>tail, &lt;end&gt;: 10.0 pixels</title><circle class=f cx=20.0 "
                      "cy=20.0");
    assert_page(true, "Without its image: ");
}

TEST(jumps_of_videos)
{
    write_run("/gone");
    write_video("video_preds/b.csv");
    write_text("video_preds/b_temporal_norm.csv", ",paw\n0,\n");
    write_text("video_preds/c.csv", "damaged\n");
    write_text("video_preds/note.txt", "");
    assert_page(true, "<tr><th>b</th><td class=n>7</td><td class=n>0.47</td><td class=n>53.8 %</td>"
                      "<td class=n>1</td><td class=n>40.0</td><td class=\"n soft\">frame 1</td>");
    assert_page(true, "paw <span class=\"k c0\">x</span> <span class=\"k c1\">y</span> "
                      "<span class=\"k c2\">1 jump</span>");
    assert_page(true, "c: ");
    assert_page(false, "<th>c</th>");
    assert_page(false, "temporal_norm<");
    write_text("config.yaml", "losses.temporal.epsilon: nonsense\n");
    assert_page(true, "more than 20 pixels");
    assert_page(true,
                "tail, &lt;end&gt; <span class=\"k c0\">x</span> <span class=\"k c1\">y</span> "
                "<span class=\"k c2\">2 jumps</span>");
}

TEST(other_label_files)
{
    write_run("/gone");
    assert_page(false, "Other label files");
    write_text("predictions_test_pixel_error.csv", ",paw,tail\na.png,1.0,9.0\nb.png,2.0,\n");
    assert_int_equal(lvni_core_mkdirs(in_dir("image_preds/o.csv")), LVN_OK);
    assert_int_equal(lvni_core_mkdirs(in_dir("image_preds/none.csv")), LVN_OK);
    write_text("image_preds/o.csv/predictions_pixel_error.csv", "\"damaged\n");
    assert_page(true, "<tr><th>predictions_test</th><td class=n>2</td><td class=n>3</td>"
                      "<td class=n>4.00</td><td class=n>2.00</td><td class=n>7.60</td>"
                      "<td class=n>9.00</td><td class=soft>tail</td></tr>");
    assert_page(true, "<tr><th>image_preds/o.csv/predictions</th><td colspan=7>");
    assert_page(false, "none.csv");
}

/* Hundreds: a table of some, traces of few, and how many are left out. */
TEST(many_videos)
{
    char name[64];
    for (int i = 0; i < 250; i++) {
        snprintf(name, sizeof name, "video_preds/v%03d.csv", i);
        write_video(name);
    }
    assert_page(true, "Of 250 videos 100 are shown");
    assert_page(true, "<h3>v002</h3>");
    assert_page(false, "<h3>v003</h3>");
    assert_page(true, "Traces of the other 247 are not drawn.");
}

TEST(unfinished_and_damaged_runs)
{
    assert_page(true, "There is no predictions.csv yet");
    write_run("/gone");
    write_text("mine.csv", "scorer\n");
    assert_page(true, "Errors are missing: ");
    assert_int_equal(lvni_core_file_remove(in_dir("mine.csv")), LVN_OK);
    assert_page(true, "Errors are missing: ");
    write_run("/gone");
    write_text("predictions.csv", "scorer,me,me\n");
    assert_page(true, "it ends within its header");
    write_run("/gone");
    write_text("mine.csv", "scorer,me,me,me,me\nbodyparts,paw,paw,\"tail, <end>\",\"tail, <end>\"\n"
                           "coords,x,y,x,y\nother.png,1,1,1,1\n");
    assert_page(true, "No label has a prediction beside it.");
}

TEST(memory_that_runs_out)
{
    write_run("/gone");
    write_video("video_preds/b.csv");
    int64_t k = 1, left = 0;
    for (; left == 0; k++) {
        lvni_core_str out = {0};
        lvni_core_alloc_fail_at(k);
        const lvn_status s = lvni_pose_page(dir, &out);
        left = lvni_core_alloc_fail_at(0);
        lvni_core_str_free(&out);
        lvn_clear_error();
        /* a key of the configuration that cannot be kept counts as absent */
        assert_true(s == LVN_ERR_MEMORY || s == LVN_OK);
        assert_true(left == 0 || s == LVN_OK);
    }
    assert_true(k > 50);
}
