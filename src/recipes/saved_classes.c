/* Comparing names of classes (saved_classes.h). */
#include "recipes/saved_classes.h"

#include "core/json_read.h"
#include "core/str.h"
#include "recipes/exported.h"

#include <jansson.h>
#include <string.h>

static const char *name_at(const json_t *classes, size_t i)
{
    const char *name = json_string_value(json_array_get(classes, i));
    return name == NULL ? "" : name;
}

/* A set of the names, to look them up. NULL: memory is out. */
static json_t *set_of(const json_t *classes)
{
    json_t *set = json_object();
    for (size_t i = 0; set != NULL && i < json_array_size(classes); i++) {
        if (json_object_set_new(set, name_at(classes, i), json_null()) != 0) {
            json_decref(set);
            return NULL;
        }
    }
    return set;
}

/* "WHAT a, b and 3 more": those of `classes` that are not in `others`. Nothing when there are
 * none. */
static lvn_status list_missing(const json_t *classes, const json_t *others, const char *what,
                               lvni_core_str *out)
{
    enum { SHOWN = 3 };
    lvni_core_str names = {0};
    size_t n = 0;
    json_t *set = set_of(others);
    for (size_t i = 0; set != NULL && i < json_array_size(classes); i++) {
        if (json_object_get(set, name_at(classes, i)) == NULL) {
            if (n < SHOWN) {
                lvni_core_str_printf(&names, "%s%s", n == 0 ? "" : ", ", name_at(classes, i));
            }
            n++;
        }
    }
    if (n > 0) {
        lvni_core_str_printf(out, "%s%s %s", out->len == 0 ? "" : "; ", what,
                             lvni_core_str_text(&names));
    }
    if (n > SHOWN) {
        lvni_core_str_printf(out, " and %zu more", n - SHOWN);
    }
    const lvn_status s = set == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(&names);
    json_decref(set);
    lvni_core_str_free(&names);
    return s;
}

/* The first class that stands elsewhere, where all names are there. */
static void report_order(const json_t *was, const json_t *is, lvni_core_str *out)
{
    for (size_t i = 0; i < json_array_size(is) && out->len == 0; i++) {
        if (strcmp(name_at(was, i), name_at(is, i)) != 0) {
            lvni_core_str_printf(out, "class %zu is %s here and was %s", i, name_at(is, i),
                                 name_at(was, i));
        }
    }
}

static lvn_status compare(const lvni_ckpt *ckpt, const json_t *was, const json_t *is)
{
    if (was == NULL || is == NULL || json_equal(was, is)) {
        return LVN_OK;
    }
    lvni_core_str text = {0};
    lvn_status s = list_missing(is, was, "the data has the class", &text);
    if (s == LVN_OK) {
        s = list_missing(was, is, "it no longer has the class", &text);
    }
    report_order(was, is, &text);
    if (s == LVN_OK) {
        s = lvni_core_str_status(&text);
    }
    if (s == LVN_OK) {
        s = lvn_error_set(
            LVN_ERR_USAGE, __FILE__, __LINE__,
            "resume=true, and the classes are not those that %s was trained on: %s (%zu class%s "
            "now, %zu then); give the data the classes that it had, "
            "or start a new run in another out from its weights (weights=%s reset_head=true)",
            ckpt->path, lvni_core_str_text(&text), json_array_size(is),
            lvni_core_plural((int64_t)json_array_size(is), "", "es"), json_array_size(was),
            ckpt->path);
    }
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_recipes_check_saved_classes(const lvni_ckpt *ckpt, const char *card)
{
    const char *saved = lvni_ckpt_st_meta_get(ckpt->file, LVNI_CARD);
    json_t *was = lvni_core_json_try(saved, LVNI_JSON_INNER),
           *is = lvni_core_json_try(card, LVNI_JSON_INNER);
    const lvn_status s =
        compare(ckpt, json_object_get(was, "classes"), json_object_get(is, "classes"));
    json_decref(was);
    json_decref(is);
    return s;
}
