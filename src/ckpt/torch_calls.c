/* Classes and calls in the pickle of a file of torch.save (torch_pickle.c): those that describe
 * tensors are known, nothing is imported or called, and what another would make is an object
 * without content. */
#include "ckpt/torch_pickle_impl.h"

#include <string.h>

typedef lvni_ckpt_pickle_node node;
typedef lvni_ckpt_pickle_parser parser;

/* What a class or function is. */
enum { UNKNOWN, ORDERED_DICT, TENSOR, PARAMETER, SUBCLASS, STORAGE_TYPE };

static const struct {
    const char *name; /* module and name */
    uint8_t known, dtype;
} classes[] = {
    {"collections\nOrderedDict", ORDERED_DICT, 0},
    {"torch._utils\n_rebuild_tensor_v2", TENSOR, 0},
    {"torch._utils\n_rebuild_parameter", PARAMETER, 0},
    {"torch._utils\n_rebuild_parameter_with_state", PARAMETER, 0},
    {"torch._tensor\n_rebuild_from_type_v2", SUBCLASS, 0},
    {"torch\nFloatStorage", STORAGE_TYPE, LVN_F32},
    {"torch\nDoubleStorage", STORAGE_TYPE, LVN_F64},
    {"torch\nLongStorage", STORAGE_TYPE, LVN_I64},
    {"torch\nIntStorage", STORAGE_TYPE, LVN_I32},
    {"torch\nByteStorage", STORAGE_TYPE, LVN_U8},
    {"torch\nBoolStorage", STORAGE_TYPE, LVN_BOOL},
    {"torch\nBFloat16Storage", STORAGE_TYPE, LVN_BF16},
    {"torch\nHalfStorage", STORAGE_TYPE, LVN_F16},
};

static bool starts_with(const char *text, size_t n, const char *start)
{
    return n >= strlen(start) && memcmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    return n >= strlen(end) && memcmp(text + n - strlen(end), end, strlen(end)) == 0;
}

/* text: module, a line feed, name; foreign: a storage of elements that levin does not have. */
static lvn_status push_class(parser *v, const char *text, size_t n, bool foreign)
{
    node c = {.kind = LVNI_PICKLE_CLASS, .u.text = text, .n = (uint32_t)n};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strlen(classes[i].name) == n && memcmp(classes[i].name, text, n) == 0) {
            c.known = classes[i].known;
            c.dtype = classes[i].dtype;
        }
    }
    if (c.known == UNKNOWN && foreign) {
        c.known = STORAGE_TYPE;
        c.dtype = LVNI_PICKLE_DTYPE_FOREIGN;
    }
    return lvni_ckpt_pickle_push_node(v, c);
}

lvn_status lvni_ckpt_pickle_global(parser *v, unsigned char op)
{
    (void)op;
    const char *text = (const char *)v->at;
    const size_t left = (size_t)(v->end - v->at);
    const char *name = memchr(text, '\n', left);
    const char *end =
        name == NULL ? NULL : memchr(name + 1, '\n', left - (size_t)(name + 1 - text));
    if (end == NULL) {
        return lvni_ckpt_pickle_damaged(v, "the name of a class does not end");
    }
    v->at += end + 1 - text;
    const size_t n = (size_t)(end - text);
    return push_class(v, text, n, starts_with(text, n, "torch") && ends_with(text, n, "Storage"));
}

/* Module and name as two texts. As one they need memory of their own only where they are known. */
lvn_status lvni_ckpt_pickle_stack_global(parser *v, unsigned char op)
{
    (void)op;
    uint32_t name, module;
    LVN_TRY(lvni_ckpt_pickle_pop(v, &name));
    LVN_TRY(lvni_ckpt_pickle_pop(v, &module));
    const node m = v->p->nodes[module], c = v->p->nodes[name];
    if (m.kind != LVNI_PICKLE_TEXT || c.kind != LVNI_PICKLE_TEXT) {
        return lvni_ckpt_pickle_damaged(v, "the name of a class is not a text");
    }
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const char *known = classes[i].name;
        const size_t n = strcspn(known, "\n");
        if (m.n == n && memcmp(m.u.text, known, n) == 0 && c.n == strlen(known) - n - 1 &&
            memcmp(c.u.text, known + n + 1, c.n) == 0) {
            return push_class(v, known, strlen(known), false);
        }
    }
    return push_class(v, c.u.text, c.n,
                      starts_with(m.u.text, m.n, "torch") && ends_with(c.u.text, c.n, "Storage"));
}

/* ('storage', type, key, device, elements) */
lvn_status lvni_ckpt_pickle_persistent(parser *v, unsigned char op)
{
    (void)op;
    uint32_t id, part[5];
    LVN_TRY(lvni_ckpt_pickle_pop(v, &id));
    const uint32_t n = lvni_ckpt_pickle_list_items(v, id, 5, part);
    const node *nodes = v->p->nodes;
    if (n < 5 || nodes[part[0]].kind != LVNI_PICKLE_TEXT || nodes[part[0]].n != 7 ||
        memcmp(nodes[part[0]].u.text, "storage", 7) != 0 ||
        nodes[part[1]].kind != LVNI_PICKLE_CLASS || nodes[part[1]].known != STORAGE_TYPE ||
        nodes[part[2]].kind != LVNI_PICKLE_TEXT || nodes[part[4]].kind != LVNI_PICKLE_INT ||
        nodes[part[4]].number < 0) {
        return lvni_ckpt_pickle_damaged(v, "a reference that is not one to a storage");
    }
    return lvni_ckpt_pickle_push_node(v, (node){.kind = LVNI_PICKLE_STORAGE,
                                                .dtype = nodes[part[1]].dtype,
                                                .u.text = nodes[part[2]].u.text,
                                                .n = nodes[part[2]].n,
                                                .number = nodes[part[4]].number,
                                                .more = part[1]});
}

/* A longer list is refused by its number of axes, without a look at each of its items. */
enum { MOST_AXES = 64 };

static bool all_numbers(const parser *v, uint32_t list)
{
    const node *l = &v->p->nodes[list];
    uint32_t at = l->u.list.first;
    if (l->kind != LVNI_PICKLE_LIST) {
        return false;
    }
    for (uint32_t i = 0; i < l->n && i < MOST_AXES; i++, at = v->p->items[at].next) {
        if (v->p->nodes[v->p->items[at].node].kind != LVNI_PICKLE_INT) {
            return false;
        }
    }
    return true;
}

/* What a tensor's metadata ask for: {'neg': True} of a view whose elements are the negated ones of
 * its storage, and {'conj': True} of one of complex numbers. */
static uint16_t read_metadata(const parser *v, uint32_t metadata)
{
    const node *dict = &v->p->nodes[metadata];
    uint16_t flags = 0;
    if (metadata == LVNI_PICKLE_AT_OTHER) {
        return 0; /* None */
    }
    if (dict->kind != LVNI_PICKLE_DICT) {
        return LVNI_PICKLE_UNKNOWN_FORM;
    }
    uint32_t at = dict->u.list.first;
    for (uint32_t i = 0; i + 1 < dict->n; i += 2) {
        const lvni_ckpt_pickle_item *k = &v->p->items[at], *value = &v->p->items[k->next];
        const node *key = &v->p->nodes[k->node];
        const bool neg = key->kind == LVNI_PICKLE_TEXT && key->n == 3 &&
                         memcmp(key->u.text, "neg", 3) == 0 && value->node <= LVNI_PICKLE_AT_TRUE;
        if (neg) { /* a key that is set again has its last value */
            flags &= (uint16_t)~LVNI_PICKLE_NEGATED;
            flags |= value->node == LVNI_PICKLE_AT_TRUE ? LVNI_PICKLE_NEGATED : 0;
        } else if (value->node != LVNI_PICKLE_AT_OTHER) {
            flags |= LVNI_PICKLE_UNKNOWN_FORM;
        }
        at = value->next;
    }
    return flags;
}

/* (storage, offset, shape, strides, requires_grad, hooks, metadata) */
static lvn_status push_tensor(parser *v, uint32_t arguments)
{
    uint32_t part[7];
    const uint32_t n = lvni_ckpt_pickle_list_items(v, arguments, 7, part);
    const node *nodes = v->p->nodes;
    if (n < 4 || nodes[part[0]].kind != LVNI_PICKLE_STORAGE ||
        nodes[part[1]].kind != LVNI_PICKLE_INT || !all_numbers(v, part[2]) ||
        !all_numbers(v, part[3]) || nodes[part[2]].n != nodes[part[3]].n) {
        return lvni_ckpt_pickle_damaged(v, "a tensor without storage, offset, shape or strides");
    }
    return lvni_ckpt_pickle_push_node(v, (node){.kind = LVNI_PICKLE_TENSOR,
                                                .dtype = nodes[part[0]].dtype,
                                                .known = n < 7 ? 0 : read_metadata(v, part[6]),
                                                .u.tensor = {.storage = part[0], .shape = part[2]},
                                                .number = nodes[part[1]].number,
                                                .more = part[3]});
}

/* What a call of `callee` would return. */
static lvn_status push_result(parser *v, uint32_t callee, uint32_t arguments)
{
    uint32_t part[3];
    for (int depth = 0; depth < 4; depth++) { /* (function, class, arguments of the function) */
        if (v->p->nodes[callee].known != SUBCLASS ||
            lvni_ckpt_pickle_list_items(v, arguments, 3, part) < 3 ||
            v->p->nodes[part[0]].kind != LVNI_PICKLE_CLASS) {
            break;
        }
        callee = part[0];
        arguments = part[2];
    }
    const node c = v->p->nodes[callee];
    switch (c.known) {
    case TENSOR: return push_tensor(v, arguments);
    case PARAMETER:
        if (lvni_ckpt_pickle_list_items(v, arguments, 1, part) < 1) {
            return lvni_ckpt_pickle_damaged(v, "a parameter without a tensor");
        }
        return lvni_ckpt_pickle_push(v, part[0]);
    case ORDERED_DICT:
        if (v->p->nodes[arguments].n == 0) {
            return lvni_ckpt_pickle_push_node(v, (node){.kind = LVNI_PICKLE_DICT});
        }
        break;
    default: break;
    }
    return lvni_ckpt_pickle_push_node(
        v, (node){.kind = LVNI_PICKLE_INSTANCE, .u.text = c.u.text, .n = c.n});
}

/* REDUCE, NEWOBJ, NEWOBJ_EX: a class or function and its arguments. */
lvn_status lvni_ckpt_pickle_call(parser *v, unsigned char op)
{
    uint32_t callee, arguments, unused;
    LVN_TRY(op == 0x92 ? lvni_ckpt_pickle_pop(v, &unused) : LVN_OK); /* arguments with names */
    LVN_TRY(lvni_ckpt_pickle_pop(v, &arguments));
    LVN_TRY(lvni_ckpt_pickle_pop(v, &callee));
    if (v->p->nodes[callee].kind != LVNI_PICKLE_CLASS) {
        return lvni_ckpt_pickle_push_node(v, (node){.kind = LVNI_PICKLE_INSTANCE, .u.text = ""});
    }
    if (v->p->nodes[arguments].kind != LVNI_PICKLE_LIST) {
        return lvni_ckpt_pickle_damaged(v, "a call whose arguments are not a tuple");
    }
    return push_result(v, callee, arguments);
}
