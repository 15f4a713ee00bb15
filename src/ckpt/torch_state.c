/* Which dict in a pickle of torch.save holds the weights (torch_impl.h): the one that a key names,
 * or the one that programs save them in. Called by torch_read.c. */
#include "ckpt/torch_impl.h"

#include "core/error.h"
#include "core/str.h"

#include <stdio.h>
#include <string.h>

typedef lvni_ckpt_pickle_node node;
typedef lvni_ckpt_pickle_item item;

const char *lvni_ckpt_torch_class(const node *n, int *bytes)
{
    const char *end = n->u.text + n->n, *at = end;
    while (at > n->u.text && at[-1] != '\n') {
        at--;
    }
    *bytes = end - at > 200 ? 200 : (int)(end - at);
    return at;
}

bool lvni_ckpt_torch_is_other(const node *n)
{
    static const char start[] = "_rebuild_";
    int bytes;
    if (n->kind != LVNI_PICKLE_INSTANCE || n->n == 0) {
        return false;
    }
    const char *name = lvni_ckpt_torch_class(n, &bytes);
    return bytes >= (int)sizeof start && memcmp(name, start, sizeof start - 1) == 0;
}

static bool begins_with(const node *text, const char *start, size_t n)
{
    return text->kind == LVNI_PICKLE_TEXT && text->n >= n && memcmp(text->u.text, start, n) == 0;
}

bool lvni_ckpt_torch_is_tensor(const node *n)
{
    return n->kind == LVNI_PICKLE_TENSOR || lvni_ckpt_torch_is_other(n);
}

/* The value under a key of n bytes. NULL: there is none, or this is not a dict. */
static const node *look_up(const lvni_ckpt_pickle *p, const node *dict, const char *key, size_t n)
{
    uint32_t at = dict->u.list.first;
    for (uint32_t i = 0; dict->kind == LVNI_PICKLE_DICT && i + 1 < dict->n; i += 2) {
        const item *k = &p->items[at], *v = &p->items[k->next];
        if (lvni_ckpt_pickle_at(p, k->node)->n == n &&
            begins_with(lvni_ckpt_pickle_at(p, k->node), key, n)) {
            return lvni_ckpt_pickle_at(p, v->node);
        }
        at = v->next;
    }
    return NULL;
}

/* Has it tensors whose names begin with the n bytes of `start` and a dot? n 0: any tensors. */
static bool has_tensors(const lvni_ckpt_pickle *p, const node *dict, const char *start, size_t n)
{
    uint32_t at = dict->u.list.first;
    for (uint32_t i = 0; dict->kind == LVNI_PICKLE_DICT && i + 1 < dict->n; i += 2) {
        const item *k = &p->items[at], *v = &p->items[k->next];
        const node *key = lvni_ckpt_pickle_at(p, k->node);
        const bool matches =
            n == 0 || (key->n > n && begins_with(key, start, n) && key->u.text[n] == '.');
        if (matches && lvni_ckpt_torch_is_tensor(lvni_ckpt_pickle_at(p, v->node))) {
            return true;
        }
        at = v->next;
    }
    return false;
}

enum { MOST_DEPTH = 8 }; /* dots of a key: dicts within dicts */

/* The dict under a key; a key may hold dots itself. */
static const node *walk(const lvni_ckpt_pickle *p, const node *dict, const char *key, int depth,
                        const char **inner)
{
    const node *found = look_up(p, dict, key, strlen(key));
    if (found != NULL && has_tensors(p, found, "", 0)) {
        *inner = NULL;
        return found;
    }
    for (const char *dot = strchr(key, '.'); dot != NULL && depth < MOST_DEPTH;
         dot = strchr(dot + 1, '.')) {
        const node *next = look_up(p, dict, key, (size_t)(dot - key));
        found = next == NULL ? NULL : walk(p, next, dot + 1, depth + 1, inner);
        if (found != NULL) {
            return found;
        }
    }
    *inner = key;
    return has_tensors(p, dict, key, strlen(key)) ? dict : NULL;
}

/* ---- messages ---- */

enum { SHOWN = 16, SHOWN_BYTES = 40 };

/* Keys of a dict, and which of them have tensors, or have dicts that do. */
static void list_keys(const lvni_ckpt_pickle *p, const node *dict, const char *above,
                      lvni_core_str *keys, lvni_core_str *with_tensors)
{
    uint32_t at = dict->u.list.first;
    for (uint32_t i = 0; dict->kind == LVNI_PICKLE_DICT && i + 1 < dict->n && i < 2 * SHOWN;
         i += 2) {
        const item *k = &p->items[at], *v = &p->items[k->next];
        const node *key = lvni_ckpt_pickle_at(p, k->node), *value = lvni_ckpt_pickle_at(p, v->node);
        at = v->next;
        if (key->kind != LVNI_PICKLE_TEXT || key->n > SHOWN_BYTES) {
            continue;
        }
        char name[2 * SHOWN_BYTES + 2];
        snprintf(name, sizeof name, "%s%s%.*s", above, above[0] == '\0' ? "" : ".", (int)key->n,
                 key->u.text);
        lvni_core_str_printf(keys, "%s%s", keys->len > 0 ? ", " : "", name);
        if (has_tensors(p, value, "", 0)) {
            lvni_core_str_printf(with_tensors, "%sweights.key=%s",
                                 with_tensors->len > 0 ? " or " : "", name);
        } else if (above[0] == '\0') {
            lvni_core_str unused = {0};
            list_keys(p, value, name, &unused, with_tensors);
            lvni_core_str_free(&unused);
        }
    }
}

static lvn_status no_state(const char *path, const lvni_ckpt_pickle *p, const char *key)
{
    lvni_core_str keys = {0}, with_tensors = {0};
    list_keys(p, lvni_ckpt_pickle_at(p, p->top), "", &keys, &with_tensors);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&keys));
    LVNI_TRY_DONE(s, lvni_core_str_status(&with_tensors));
    const char *all = lvni_core_str_text(&keys), *advice = lvni_core_str_text(&with_tensors);
    s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__, "%s has no %s%s%s%s; %s%s", path,
                      key == NULL ? "state_dict: neither tensors by name nor any under "
                                    "state_dict, model_state_dict, model or module"
                                  : "tensors under weights.key=",
                      key == NULL ? "" : key, all[0] == '\0' ? "" : "; its keys are ", all,
                      advice[0] == '\0' ? "save model.state_dict()" : advice,
                      advice[0] == '\0' ? "" : " takes the tensors there");
done:
    lvni_core_str_free(&keys);
    lvni_core_str_free(&with_tensors);
    return s;
}

static lvn_status whole_object(const char *path, const node *object)
{
    int bytes;
    const char *name = lvni_ckpt_torch_class(object, &bytes);
    LVN_FAIL(LVN_ERR_UNSUPPORTED,
             "%s holds a whole object of class %.*s, not its weights: save model.state_dict() "
             "instead",
             path, bytes, name);
}

lvn_status lvni_ckpt_torch_state(const char *path, const lvni_ckpt_pickle *p, const char *key,
                                 const node **state, const char **inner)
{
    static const char *const under[] = {"state_dict", "model_state_dict", "model", "module"};
    const node *top = lvni_ckpt_pickle_at(p, p->top),
               *whole = top->kind == LVNI_PICKLE_INSTANCE ? top : NULL;
    *inner = NULL;
    *state = key == NULL ? NULL : walk(p, top, key, 0, inner);
    for (size_t i = 0; key == NULL && *state == NULL && i < sizeof under / sizeof *under; i++) {
        const node *found = look_up(p, top, under[i], strlen(under[i]));
        if (found != NULL && has_tensors(p, found, "", 0)) {
            *state = found;
        }
        whole = found != NULL && found->kind == LVNI_PICKLE_INSTANCE ? found : whole;
    }
    if (key == NULL && *state == NULL && whole == NULL && has_tensors(p, top, "", 0)) {
        *state = top;
    }
    if (*state != NULL) {
        return LVN_OK;
    }
    return key == NULL && whole != NULL ? whole_object(path, whole) : no_state(path, p, key);
}
