/* Counts, scores and their text, against numbers worked out by hand (and by scikit-learn 1.5:
 * precision_recall_fscore_support with zero_division=0 over the labels that occur). */
#include "core/alloc.h"
#include "core/vfs.h"
#include "recipes/classify/classify_metrics.h"
#include "run/output_file.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const animals[] = {"cat", "dog, \"old\"", "ox", "yak", "emu", "cow"};

static void add(lvni_classify_metrics *m, int label, int best)
{
    float p[6] = {0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f};
    p[best] = 0.5f;
    lvni_classify_metrics_add(m, label, best, p);
}

/* Labels 0 0 0 0 1 1 2, predicted 0 0 0 1 1 0 1; cow is predicted once for a cat; yak and emu never
 * occur. */
static lvni_classify_metrics *filled(void)
{
    static const int label[] = {0, 0, 0, 0, 1, 1, 2, 0}, predicted[] = {0, 0, 0, 1, 1, 0, 1, 5};
    lvni_classify_metrics *m;
    assert_int_equal(lvni_classify_metrics_create(animals, 6, &m), LVN_OK);
    for (size_t i = 0; i < sizeof label / sizeof *label; i++) {
        add(m, label[i], predicted[i]);
    }
    return m;
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

TEST(scores)
{
    lvni_core_str json = {0};
    lvni_classify_metrics *m = filled();
    lvni_classify_metrics_json(m, &json);
    assert_int_equal(lvni_core_str_status(&json), LVN_OK);
    const char *text = lvni_core_str_text(&json);
    assert_float_equal(number_after(text, "\"acc\": "), 0.5, 1e-12);
    assert_float_equal(number_after(text, "\"loss\": "), (4 * log(2.0) + 4 * log(10.0)) / 8, 1e-6);
    const char *macro = strstr(text, "\"macro\": "), *weighted = strstr(text, "\"weighted\": ");
    assert_float_equal(number_after(macro, "\"classes\": "), 4, 0);
    assert_float_equal(number_after(macro, "\"precision\": "), (0.75 + 1.0 / 3) / 4, 1e-12);
    assert_float_equal(number_after(macro, "\"recall\": "), (0.6 + 0.5) / 4, 1e-12);
    assert_float_equal(number_after(macro, "\"f1\": "), (2.0 / 3 + 0.4) / 4, 1e-12);
    assert_float_equal(number_after(weighted, "\"recall\": "), 0.5, 1e-12);
    assert_float_equal(number_after(weighted, "\"f1\": "), (5 * 2.0 / 3 + 2 * 0.4) / 8, 1e-12);
    /* ox: nothing was predicted as it, so its precision is undefined; its F1 is 0. There is no
     * image of a yak. */
    assert_non_null(strstr(
        text, "{\"name\": \"ox\", \"n\": 1, \"right\": 0, \"predicted\": 0, \"precision\": null, "
              "\"recall\": 0, \"f1\": 0}"));
    assert_non_null(strstr(
        text, "{\"name\": \"yak\", \"n\": 0, \"right\": 0, \"predicted\": 0, \"precision\": null, "
              "\"recall\": null, \"f1\": null}"));
    assert_non_null(
        strstr(text, "\"confusion\": [[3, 1, 0, 0, 0, 1], [1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]"));
    lvni_core_str_free(&json);
    lvni_classify_metrics_destroy(m);
}

/* All five others are as probable as the true class: a lower number is taken first, so class 5 is
 * the sixth. */
TEST(top_five)
{
    lvni_core_str json = {0};
    lvni_classify_metrics *m = filled();
    add(m, 5, 0);
    lvni_classify_metrics_json(m, &json);
    assert_float_equal(number_after(lvni_core_str_text(&json), "\"top5_acc\": "), 8.0 / 9, 1e-12);
    lvni_core_str_free(&json);
    lvni_classify_metrics_destroy(m);
}

TEST(tables)
{
    lvni_core_str text = {0};
    char *csv, path[] = "/tmp/levin-matrix-XXXXXX";
    size_t n;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    lvni_classify_metrics *m = filled();
    lvni_classify_metrics_print(m, &text);
    assert_non_null(strstr(lvni_core_str_text(&text),
                           "acc 0.5000  loss 1.4979  top-5 acc 1.0000  (4 of 8 right)\n"));
    assert_non_null(
        strstr(lvni_core_str_text(&text), "  cat             3/5     0.7500  0.6000  0.6667\n"));
    assert_non_null(
        strstr(lvni_core_str_text(&text), "  ox              0/1          -  0.0000  0.0000\n"));
    assert_non_null(strstr(lvni_core_str_text(&text), "  4  yak         0  0  0  0  0  0\n"));
    const char *matrix = strstr(lvni_core_str_text(&text), "confusion matrix"),
               *yak = strstr(lvni_core_str_text(&text), "yak");
    assert_true(yak > matrix); /* no row in the table of scores */
    assert_int_equal(lvni_classify_metrics_confusion(m, path), LVN_OK);
    assert_int_equal(lvni_core_file_read(path, 1 << 20, &csv, &n), LVN_OK);
    unlink(path);
    assert_string_equal(csv, "true\\predicted,cat,\"dog, \"\"old\"\"\",ox,yak,emu,cow\n"
                             "cat,3,1,0,0,0,1\n"
                             "\"dog, \"\"old\"\"\",1,1,0,0,0,0\n"
                             "ox,0,1,0,0,0,0\n"
                             "yak,0,0,0,0,0,0\n"
                             "emu,0,0,0,0,0,0\n"
                             "cow,0,0,0,0,0,0\n");
    lvni_core_str_free(&text);
    lvni_core_free(csv);
    lvni_classify_metrics_destroy(m);
}

TEST(many_classes)
{
    enum { N = LVNI_CONFUSION_CLASSES + 1 };
    static const char *names[N];
    static float p[N];
    for (int i = 0; i < N; i++) {
        names[i] = "x";
    }
    lvni_classify_metrics *m;
    lvni_core_str csv = {0};
    p[N - 1] = 1.0f;
    assert_int_equal(lvni_classify_metrics_create(names, N, &m), LVN_OK);
    lvni_classify_metrics_add(m, N - 1, N - 1, p);
    assert_int_equal(lvni_classify_metrics_confusion(m, "/none/m.png"), LVN_ERR_UNSUPPORTED);
    lvni_classify_metrics_json(m, &csv);
    assert_null(strstr(lvni_core_str_text(&csv), "confusion"));
    lvni_core_str_free(&csv);
    lvni_classify_metrics_destroy(m);
}

TEST(rows)
{
    const float p[] = {0.25f, 0.125f, 0.25f, 0.375f, 0, 0};
    lvni_run_predict_format f = {
        .class_names = animals, .n_classes = 6, .top_k = 3, .probabilities = true};
    lvni_core_str out = {0};
    lvni_run_predict_head(&f, &out);
    lvni_run_predict_row_write(&f, "a,b.jpg", p, &out);
    assert_string_equal(lvni_core_str_text(&out),
                        "file,class,probability,class_2,probability_2,class_3,probability_3,"
                        "p_cat,\"p_dog, \"\"old\"\"\",p_ox,p_yak,p_emu,p_cow\n"
                        "\"a,b.jpg\",yak,0.375000,cat,0.250000,ox,0.250000,"
                        "0.250000,0.125000,0.250000,0.375000,0.000000,0.000000\n");
    lvni_core_str_clear(&out);
    f.json = true;
    f.probabilities = false;
    f.top_k = 2;
    lvni_run_predict_head(&f, &out);
    lvni_run_predict_row_write(&f, "a.jpg", p, &out);
    assert_string_equal(lvni_core_str_text(&out),
                        "{\"file\": \"a.jpg\", \"class\": \"yak\", \"probability\": 0.375, "
                        "\"top\": [{\"class\": \"yak\", "
                        "\"probability\": 0.375}, {\"class\": \"cat\", \"probability\": 0.25}]}\n");
    lvni_core_str_free(&out);
}
