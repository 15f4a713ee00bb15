/* Images of each class (class_counts.h). */
#include "recipes/class_counts.h"

#include "core/alloc.h"
#include "data/dataset.h"

static void count(const lvn_dataset *d, int64_t *n)
{
    for (int64_t i = 0; d != NULL && i < d->cls->length(d); i++) {
        n[d->cls->label(d, lvni_data_dataset_index(d, i))]++;
    }
}

static int64_t *new_counts(int n_classes)
{
    return lvni_core_calloc(LVNI_TAG_DATA, (size_t)n_classes, sizeof(int64_t));
}

static lvn_status print_counts(const lvn_dataset *d, const int64_t *n, lvni_core_str *out)
{
    int least = 0, most = 0;
    for (int i = 0; i < d->n_classes; i++) {
        least = n[i] < n[least] ? i : least;
        most = n[i] > n[most] ? i : most;
    }
    for (int i = 0; i < d->n_classes && d->n_classes <= LVNI_CLASSES_SHOWN; i++) {
        lvni_core_str_printf(out, "%s%s %lld", i == 0 ? "(" : ", ", d->class_names[i],
                             (long long)n[i]);
    }
    if (d->n_classes > LVNI_CLASSES_SHOWN) {
        lvni_core_str_printf(out, "(smallest: %s %lld, largest: %s %lld", d->class_names[least],
                             (long long)n[least], d->class_names[most], (long long)n[most]);
    }
    lvni_core_str_char(out, ')');
    return lvni_core_str_status(out);
}

lvn_status lvni_recipes_class_counts_print(const lvn_dataset *train, const lvn_dataset *val,
                                           lvni_core_str *out)
{
    int64_t *n = new_counts(train->n_classes);
    if (n == NULL) {
        return LVN_ERR_MEMORY;
    }
    count(train, n);
    count(val, n);
    const lvn_status s = print_counts(train, n, out);
    lvni_core_free(n);
    return s;
}

/* Classes of which `all` has some and `part` none. */
static lvn_status list_without(const int64_t *all, const int64_t *part, const char *const *names,
                               int n_classes, lvni_core_str *out)
{
    enum { SHOWN = 8 };
    int64_t n = 0;
    for (int i = 0; i < n_classes; i++) {
        if (all[i] > 0 && part[i] == 0 && n++ < SHOWN) {
            lvni_core_str_printf(out, "%s%s", n == 1 ? "" : ", ", names[i]);
        }
    }
    if (n > SHOWN) {
        lvni_core_str_printf(out, ", and %lld more", (long long)n - SHOWN);
    }
    return lvni_core_str_status(out);
}

lvn_status lvni_recipes_class_counts_unvalidated(const lvn_dataset *train, const lvn_dataset *val,
                                                 lvni_core_str *out)
{
    int64_t *all = new_counts(train->n_classes), *part = new_counts(train->n_classes);
    lvn_status s = all == NULL || part == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK) {
        count(train, all);
        count(val, part);
        s = list_without(all, part, train->class_names, train->n_classes, out);
    }
    lvni_core_free(all);
    lvni_core_free(part);
    return s;
}

lvn_status lvni_recipes_class_counts_unreadable(const lvni_data_image_scan *scan,
                                                lvni_core_str *out)
{
    int64_t *all = new_counts(scan->n_classes), *readable = new_counts(scan->n_classes);
    lvn_status s = all == NULL || readable == NULL ? LVN_ERR_MEMORY : LVN_OK;
    for (int64_t i = 0; s == LVN_OK && i < scan->n; i++) {
        all[scan->label[i]]++;
        readable[scan->label[i]] += scan->size == NULL || scan->size[i].width > 0;
    }
    s = s == LVN_OK ? list_without(all, readable, (const char *const *)scan->class_names,
                                   scan->n_classes, out)
                    : s;
    lvni_core_free(all);
    lvni_core_free(readable);
    return s;
}
