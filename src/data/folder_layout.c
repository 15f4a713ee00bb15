/* Whether the folders right below data= are classes, or the parts of a data set (train/, val/,
 * test/), each with its classes (image_folder.h). Called by image_folder.c and the recipes. */
#include "data/folder_impl.h"

#include "core/alloc.h"
#include "core/error.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- names ---- */

typedef enum name_kind {
    OTHER = -2,
    LIKE_PART = -1,
    TRAIN = LVNI_PART_TRAIN,
    VAL = LVNI_PART_VAL,
    TEST = LVNI_PART_TEST
} name_kind;

static bool is_one_of(const char *name, size_t n, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strlen(*list) == n && strncasecmp(*list, name, n) == 0) {
            return true;
        }
    }
    return false;
}

enum { REST = 128 };

/* "train2", "Test_Set", "images-dev": of such words alone, with digits and what separates words.
 * *part: there is a word of a part in it at least; rest: what is left without these words. */
static bool looks_like_part(const char *name, bool *part, char rest[REST])
{
    static const char *const parts[] = {
        "train",      "training",   "trainset", "trn",     "val",   "valid",
        "validate",   "validation", "valset",   "dev",     "devel", "development",
        "devset",     "test",       "testing",  "testset", "tst",   "eval",
        "evaluation", "holdout",    "trainval", "split",   NULL};
    static const char *const around[] = {"set", "sets", "data",   "dataset", "images", "image",
                                         "img", "imgs", "photos", "part",    "fold",   NULL};
    bool others = false;
    size_t used = 0;
    *part = false;
    for (const char *p = name; *p != '\0';) {
        size_t n = 0;
        while (isalpha((unsigned char)p[n]) || (unsigned char)p[n] >= 0x80) {
            n++;
        }
        const bool of_part = n > 0 && is_one_of(p, n, parts);
        *part = *part || of_part;
        others = others || (n > 0 && !of_part && !is_one_of(p, n, around));
        n = n == 0 ? 1 : n;
        for (size_t i = 0; i < n && !of_part && used + 1 < REST; i++) {
            rest[used++] = (char)tolower((unsigned char)p[i]);
        }
        p += n;
    }
    rest[used] = '\0';
    return *part && !others;
}

static name_kind kind_of(const char *name)
{
    static const struct {
        const char *name;
        name_kind kind;
    } known[] = {
        {"train", TRAIN}, {"val", VAL}, {"valid", VAL}, {"validation", VAL}, {"test", TEST}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcasecmp(name, known[i].name) == 0) {
            return known[i].kind;
        }
    }
    return OTHER;
}

/* ---- the folders below the root ---- */

enum { HALVES = 32 };

/* Counted while the root is listed. */
typedef struct top {
    const char *root;
    lvni_data_folder_layout *out;
    int n[LVNI_PARTS], like, other; /* folders of each kind */
    /* names of all that are, or look like, parts: "dev, train" */
    lvni_core_str parts;
    struct {
        char name[256], rest[REST];
        bool like;  /* counted as one that looks like a part */
    } half[HALVES]; /* names with a word of a part among others: "seg_train" */
    int n_half;
    bool folders_only; /* the last of these holds folders, and no image of its own */
} top;

/* Does root/name hold folders and no images? Its own entries alone; false when it cannot be
 * listed. */
static bool holds_folders(const char *root, const char *name)
{
    char path[PATH_MAX];
    bool folders = false, images = false;
    DIR *dir = snprintf(path, sizeof path, "%s/%s", root, name) < PATH_MAX ? opendir(path) : NULL;
    for (const struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL && !images;
         e = readdir(dir)) {
        struct stat st;
        char below[PATH_MAX];
        if (!lvni_data_name_is_dropping(e->d_name) &&
            snprintf(below, sizeof below, "%s/%s", path, e->d_name) < PATH_MAX &&
            stat(below, &st) == 0) {
            folders = folders || S_ISDIR(st.st_mode);
            images = S_ISREG(st.st_mode) && lvni_data_name_is_image(e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return folders && !images;
}

static void append_name(lvni_core_str *list, const char *name)
{
    lvni_core_str_printf(list, "%s%s", list->len == 0 ? "" : ", ", name);
}

/* seg_train and seg_test are parts, test_tube and train_station are not: what is left of the first
 * two is the same. */
static bool take_half(top *t, const char *name, const char *rest)
{
    bool like = false;
    for (int i = 0; i < t->n_half; i++) {
        if (strcmp(t->half[i].rest, rest) == 0) {
            like = true;
            if (!t->half[i].like) {
                t->half[i].like = true;
                t->like++;
                t->other--;
                append_name(&t->parts, t->half[i].name);
            }
        }
    }
    if (t->n_half < HALVES) {
        snprintf(t->half[t->n_half].name, sizeof t->half->name, "%s", name);
        snprintf(t->half[t->n_half].rest, REST, "%s", rest);
        t->half[t->n_half++].like = like;
    }
    return like;
}

static lvn_status take_folder(top *t, const char *name)
{
    char rest[REST];
    bool part;
    name_kind kind = kind_of(name);
    if (kind == OTHER &&
        (looks_like_part(name, &part, rest) || (part && take_half(t, name, rest)))) {
        kind = LIKE_PART;
    }
    if (kind == OTHER) {
        t->other++;
        append_name(&t->out->beside, name);
        return LVN_OK;
    }
    append_name(&t->parts, name);
    t->folders_only = holds_folders(t->root, name);
    if (kind == LIKE_PART) {
        t->like++;
        return LVN_OK;
    }
    if (t->n[kind]++ > 0) {
        return LVN_OK; /* refused when all are known */
    }
    t->out->name[kind] = lvni_core_strdup(LVNI_TAG_DATA, name);
    return t->out->name[kind] == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status list_top(top *t)
{
    char path[PATH_MAX];
    DIR *dir = opendir(t->root);
    if (dir == NULL) {
        LVN_FAIL(errno == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, "%s: cannot open the folder: %s",
                 t->root, strerror(errno));
    }
    lvn_status s;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        struct stat st;
        if (lvni_data_name_is_dropping(e->d_name) ||
            snprintf(path, sizeof path, "%s/%s", t->root, e->d_name) >= PATH_MAX ||
            stat(path, &st) != 0) {
            continue;
        }
        if (S_ISDIR(st.st_mode)) {
            LVNI_TRY_DONE(s, take_folder(t, e->d_name));
        } else if (S_ISREG(st.st_mode)) {
            lvni_data_ignored_add(&t->out->files, e->d_name, 1);
        }
    }
    LVNI_TRY_DONE(s, lvni_core_str_status(&t->parts));
    s = lvni_core_str_status(&t->out->beside);
done:
    closedir(dir);
    return s;
}

static lvn_status refuse(const top *t)
{
    LVN_FAIL(LVN_ERR_USAGE,
             "%s: are the folders %s parts of the data, or classes? Parts must be called train, "
             "val (valid, validation) and test, one folder "
             "each: rename them, or give data= one of them; if they are classes, give "
             "data.layout=classes",
             t->root, lvni_core_str_text(&t->parts));
}

static lvn_status choose_layout(const top *t)
{
    const int exact = t->n[TRAIN] + t->n[VAL] + t->n[TEST], all = exact + t->like;
    lvni_data_folder_layout *out = t->out;
    if (all == 0 || (all == 1 && t->other > 0 &&
                     !t->folders_only)) { /* a class may be called train: it holds images */
        return LVN_OK;
    }
    if (t->like > 0 || t->n[TRAIN] > 1 || t->n[VAL] > 1 || t->n[TEST] > 1 ||
        (all == 1 && t->other > 0)) {
        return refuse(t);
    }
    out->parts = true;
    return LVN_OK;
}

lvn_status lvni_data_folder_layout_find(const char *root, lvni_data_folder_layout *out)
{
    *out = (lvni_data_folder_layout){0};
    top t = {.root = root, .out = out};
    lvn_status s = list_top(&t);
    if (s == LVN_OK) {
        s = choose_layout(&t);
    }
    for (int i = 0; i < LVNI_PARTS && !out->parts; i++) { /* a class that is called like a part */
        lvni_core_free(out->name[i]);
        out->name[i] = NULL;
    }
    lvni_core_str_free(&t.parts);
    return s;
}

void lvni_data_folder_layout_free(lvni_data_folder_layout *layout)
{
    for (int i = 0; i < LVNI_PARTS; i++) {
        lvni_core_free(layout->name[i]);
    }
    lvni_core_str_free(&layout->beside);
    *layout = (lvni_data_folder_layout){0};
}

/* ---- the same folders in all folders ---- */

/* The names of one top folder are neighbours; so are those of each folder in it. Calls `each` for
 * every sub-folder of the one at `from`; returns the first name behind it, or -1 where an image
 * lies right in it. */
static int64_t each_below(const lvni_data_walk *w, int64_t from,
                          void (*each)(void *user, const char *sub, size_t n), void *user)
{
    const char *upper = w->names + w->name_at[from], *last = "";
    const size_t length = strcspn(upper, "/") + 1;
    size_t last_n = 0;
    int64_t i = from;
    for (; i < w->n && strncmp(w->names + w->name_at[i], upper, length) == 0; i++) {
        const char *sub = w->names + w->name_at[i] + length;
        const size_t n = strcspn(sub, "/");
        if (sub[n] == '\0') {
            return -1;
        }
        if (n != last_n || strncmp(sub, last, n) != 0) {
            each(user, sub, n);
            last = sub;
            last_n = n;
        }
    }
    return i;
}

enum { COMMON = 64 }; /* sub-folders of the first folder that are looked for in the others */

typedef struct common {
    const char *name[COMMON];
    size_t length[COMMON];
    int n, seen[COMMON], folder; /* in which folder it was seen last */
} common;

static void take_first(void *user, const char *sub, size_t n)
{
    common *c = user;
    if (c->n < COMMON) {
        c->name[c->n] = sub;
        c->length[c->n++] = n;
    }
}

static void see(void *user, const char *sub, size_t n)
{
    common *c = user;
    for (int i = 0; i < c->n; i++) {
        if (c->length[i] == n && strncasecmp(c->name[i], sub, n) == 0 &&
            c->seen[i] == c->folder - 1) {
            c->seen[i] = c->folder;
        }
    }
}

static lvn_status refuse_nested(const char *root, const lvni_data_walk *w, const common *c)
{
    const char *upper = w->names + w->name_at[0];
    const int length = (int)strcspn(upper, "/");
    lvni_core_str list = {0};
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->seen[i] == c->folder && ++n <= 4) {
            lvni_core_str_printf(&list, "%s%.*s", n == 1 ? "" : ", ", (int)c->length[i],
                                 c->name[i]);
        }
    }
    lvni_core_str_append(&list, n > 4 ? ", ..." : "");
    lvn_status s = lvni_core_str_status(&list);
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s: all %d folders in it (%.*s, ...) hold the same sub-folders (%s): "
                          "which of them are the classes? If the upper ones are parts of "
                          "the data, call them train, val and test, or give data=%s/%.*s; if they "
                          "are the classes, give data.layout=classes",
                          root, c->folder + 1, length, upper, lvni_core_str_text(&list), root,
                          length, upper);
    }
    lvni_core_str_free(&list);
    return s;
}

lvn_status lvni_data_folder_check_nested(const char *root, const lvni_data_walk *w)
{
    common c = {.folder = -1};
    for (int64_t at = 0; at < w->n;) {
        c.folder++;
        at = strchr(w->names + w->name_at[at], '/') == NULL
                 ? -1
                 : each_below(w, at, c.folder == 0 ? take_first : see, &c);
        if (at < 0) {
            return LVN_OK; /* an image right in a class, or in none: another error */
        }
    }
    int n = 0;
    for (int i = 0; i < c.n; i++) {
        n += c.seen[i] == c.folder;
    }
    return c.folder > 0 && n > 1 ? refuse_nested(root, w, &c) : LVN_OK;
}
