/* Weights in several files: "model.safetensors.index.json" and its like, as Hugging Face writes
 * them for large models, lists which tensor lies in which of the files beside it ("weight_map").
 * Called by lvni_ckpt_tensors_open (torch_file.h). */
#include "ckpt/safetensors_impl.h"
#include "ckpt/torch_file.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/vfs.h"

#include <stdio.h>
#include <string.h>

static const char ending[] = ".index.json";

enum { MOST_INDEX = 16 << 20 }; /* bytes, as of the header of one file */

typedef struct sharded {
    const char *path;
    unsigned flags;
    json_t *root, *files; /* files: name -> its number in the parts */
    lvni_ckpt_st_content content;
} sharded;

bool lvni_ckpt_is_index(const char *path)
{
    const size_t n = strlen(path), e = sizeof ending - 1;
    return n > e && strcmp(path + n - e, ending) == 0;
}

/* Of a file beside the index: a name alone. */
static lvn_status open_part(sharded *x, const char *tensor, const char *name)
{
    const char *slash = strrchr(x->path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash + 1 - x->path);
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: tensor '%s' lies in '%s', which is not the name of a file beside it", x->path,
                 tensor, name == NULL ? "" : name);
    }
    if (json_object_get(x->files, name) != NULL) {
        return LVN_OK;
    }
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%.*s%s", folder, x->path, name);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    lvni_ckpt_st_file **part = &x->content.parts[x->content.n_parts];
    const char *file = lvni_core_str_text(&path), *unused;
    if (lvni_ckpt_is_index(file)) {
        s = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__, "%s lists another index, '%s'",
                          x->path, name);
    } else {
        s = lvni_ckpt_tensors_open(file, x->flags, NULL, &unused, part);
    }
done:
    lvni_core_str_free(&path);
    if (s != LVN_OK) {
        lvn_error_frame("a file that %s lists", x->path);
        return s;
    }
    x->content.n_parts++;
    return json_object_set_new(x->files, name, json_integer(x->content.n_parts - 1)) == 0
               ? LVN_OK
               : LVN_ERR_MEMORY;
}

static lvn_status open_parts(sharded *x, const json_t *map)
{
    const char *tensor;
    json_t *value;
    x->content.parts =
        lvni_core_calloc(LVNI_TAG_CKPT, json_object_size(map), sizeof *x->content.parts);
    if (x->content.parts == NULL) {
        return LVN_ERR_MEMORY;
    }
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        LVN_TRY(open_part(x, tensor, json_string_value(value)));
    }
    return LVN_OK;
}

/* A tensor that is listed and not there would be missed later without its reason. */
static lvn_status check_listed(const sharded *x, const json_t *map)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        const char *name = json_string_value(value);
        const lvni_ckpt_st_file *part =
            x->content.parts[json_integer_value(json_object_get(x->files, name))];
        if (lvni_ckpt_st_find(part, tensor) == NULL &&
            lvni_ckpt_st_find_other(part, tensor) == NULL) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' is not in %s", x->path, tensor, name);
        }
    }
    return LVN_OK;
}

static lvn_status gather(sharded *x)
{
    lvni_ckpt_st_content *c = &x->content;
    int64_t tensors = 0, others = 0;
    for (int64_t i = 0; i < c->n_parts; i++) {
        tensors += lvni_ckpt_st_count(c->parts[i]);
        others += lvni_ckpt_st_count_others(c->parts[i]);
    }
    c->tensors = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)tensors, sizeof *c->tensors);
    c->others = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)others, sizeof *c->others);
    if (c->tensors == NULL || c->others == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < c->n_parts; i++) {
        for (int64_t k = 0; k < lvni_ckpt_st_count(c->parts[i]); k++) {
            c->tensors[c->n_tensors++] = *lvni_ckpt_st_at(c->parts[i], k);
        }
        for (int64_t k = 0; k < lvni_ckpt_st_count_others(c->parts[i]); k++) {
            c->others[c->n_others++] = *lvni_ckpt_st_other_at(c->parts[i], k);
        }
    }
    return LVN_OK;
}

static lvn_status read_index(sharded *x)
{
    char *text;
    size_t bytes;
    LVN_TRY(lvni_core_regular_read(x->path, MOST_INDEX, &text, &bytes));
    const lvn_status s = lvni_core_json_read(x->path, "the index", text, bytes,
                                             JSON_REJECT_DUPLICATES, LVNI_JSON_FILE, &x->root);
    lvni_core_free(text);
    LVN_TRY(s);
    const json_t *map = json_object_get(x->root, "weight_map");
    x->files = json_object();
    if (x->files == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (!json_is_object(map) || json_object_size(map) == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s has no weight_map, which lists the file of each tensor: it is not the index "
                 "of a model in several files",
                 x->path);
    }
    LVN_TRY(open_parts(x, map));
    LVN_TRY(check_listed(x, map));
    return gather(x);
}

lvn_status lvni_ckpt_sharded_open(const char *path, unsigned flags, lvni_ckpt_st_file **out)
{
    sharded x = {.path = path, .flags = flags};
    *out = NULL;
    const lvn_status s = read_index(&x);
    json_decref(x.root);
    json_decref(x.files);
    if (s != LVN_OK) {
        lvni_ckpt_st_content_free(&x.content);
        return s;
    }
    return lvni_ckpt_st_adopt(path, &x.content, out);
}
