/* Opening a file of weights (weights_file.h). */
#include "recipes/weights_file.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "recipes/run_dir.h"
#include "recipes/weight_names.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char plain[] = "model.safetensors";

/* What torch.save writes: a zip archive, or in old versions a pickle that begins with its magic
 * number. */
static bool is_pickle(const char *path)
{
    char start[4] = {0};
    const lvni_core_vfs *vfs = lvni_core_vfs_get();
    const int fd = vfs->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    const ssize_t n = vfs->read(fd, start, sizeof start);
    vfs->close(fd);
    return n == (ssize_t)sizeof start &&
           (memcmp(start, "PK\3\4", 4) == 0 || memcmp(start, "\x80\x02\x8a\x0a", 4) == 0);
}

lvn_status lvni_recipes_weights_find(const char *path, char **name)
{
    *name = lvni_recipes_path_join(path, plain);
    if (*name == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (lvni_core_path_exists(*name)) {
        return LVN_OK;
    }
    lvni_core_free(*name);
    *name = NULL;
    return lvni_ckpt_file_of(path, name);
}

/* By timm's configuration beside the file, where there is one; another file of that name is
 * ignored. */
static lvn_status check_network(const char *name, const char *model)
{
    const size_t n = strlen(name), end = sizeof plain - 1;
    if (n < end || strcmp(name + n - end, plain) != 0 || (n > end && name[n - end - 1] != '/')) {
        return LVN_OK;
    }
    char path[4096];
    if (snprintf(path, sizeof path, "%.*sconfig.json", (int)(n - end), name) >= (int)sizeof path ||
        !lvni_core_path_exists(path)) {
        return LVN_OK;
    }
    char *text;
    size_t bytes;
    LVN_TRY(lvni_core_file_read(path, (size_t)1 << 20, &text, &bytes));
    json_t *config = lvni_core_json_try(text, LVNI_JSON_FILE);
    const char *architecture = json_string_value(json_object_get(config, "architecture"));
    lvn_status s = LVN_OK;
    if (architecture != NULL && !lvni_recipes_naming_is_network(model, architecture)) {
        s = lvn_error_set(
            LVN_ERR_MISMATCH, __FILE__, __LINE__,
            "%s is of another network than model=%s: %s beside it has architecture=%s", name, model,
            path, architecture);
    }
    json_decref(config);
    lvni_core_free(text);
    return s;
}

lvn_status lvni_recipes_weights_open(const char *path, const char *model, char **name,
                                     lvni_ckpt_st_file **file)
{
    LVN_TRY(lvni_recipes_weights_find(path, name));
    lvn_status s = check_network(*name, model);
    s = s == LVN_OK ? lvni_ckpt_st_open(*name, LVNI_ST_VERIFY, file) : s;
    if (s != LVN_OK && s != LVN_ERR_MISMATCH && is_pickle(*name)) {
        s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                          "%s was written by torch.save and can run code when it is read; weights= "
                          "takes safetensors. In Python: "
                          "safetensors.torch.save_file(torch.load(\"%s\", map_location=\"cpu\"), "
                          "\"weights.safetensors\")",
                          *name, *name);
    }
    if (s != LVN_OK) {
        lvni_core_free(*name);
        *name = NULL;
    }
    return s;
}
