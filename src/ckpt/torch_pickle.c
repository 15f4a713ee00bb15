/* Parses the pickle of a file of torch.save (torch_impl.h): the instructions of protocols 1 to 5
 * that build values. Nothing is imported or called: of classes and functions only those are known
 * that describe tensors; what another would make is an object without content. The instructions:
 * the standard library's pickletools. */
#include "ckpt/torch_impl.h"

#include "core/alloc.h"

#include <string.h>

typedef lvni_ckpt_pickle_node node;

typedef struct parser {
    const char *path;
    lvni_ckpt_pickle *p;
    const unsigned char *begin, *at, *end;
    uint32_t *stack;
    size_t depth, stack_room;
    uint32_t *memo; /* 0: none */
    size_t n_memo, memo_room;
    uint32_t n_memoized; /* for MEMOIZE, which numbers them itself */
    bool stopped;
} parser;

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

/* ---- memory ---- */

static lvn_status grow(void **block, size_t *room, size_t need, size_t size)
{
    if (need <= *room) {
        return LVN_OK;
    }
    size_t more = *room < 64 ? 64 : *room * 2;
    more = more < need ? need : more;
    void *bigger = lvni_core_realloc(LVNI_TAG_CKPT, *block, more * size);
    if (bigger == NULL) {
        return LVN_ERR_MEMORY;
    }
    *block = bigger;
    *room = more;
    return LVN_OK;
}

static lvn_status damaged(const parser *v, const char *what)
{
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: its pickle is damaged near byte %zu of %zu: %s", v->path,
             (size_t)(v->at - v->begin), (size_t)(v->end - v->begin), what);
}

static lvn_status add_node(parser *v, node n, uint32_t *out)
{
    void *nodes = v->p->nodes;
    if (v->p->n_nodes >= LVNI_PICKLE_MAX_NODES) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: its pickle has more than %d objects; save the state_dict alone", v->path,
                 LVNI_PICKLE_MAX_NODES);
    }
    LVN_TRY(grow(&nodes, &v->p->nodes_room, (size_t)v->p->n_nodes + 1, sizeof n));
    v->p->nodes = nodes;
    *out = v->p->n_nodes++;
    v->p->nodes[*out] = n;
    return LVN_OK;
}

static lvn_status push(parser *v, uint32_t index)
{
    void *stack = v->stack;
    LVN_TRY(grow(&stack, &v->stack_room, v->depth + 1, sizeof *v->stack));
    v->stack = stack;
    v->stack[v->depth++] = index;
    return LVN_OK;
}

static lvn_status push_node(parser *v, node n)
{
    uint32_t index;
    LVN_TRY(add_node(v, n, &index));
    return push(v, index);
}

enum { OTHER = 0, MARK = 1 }; /* nodes that need no others of their kind */

static lvn_status pop(parser *v, uint32_t *out)
{
    *out = OTHER;
    if (v->depth == 0 || v->stack[v->depth - 1] == MARK) {
        return damaged(v, "an instruction needs an object that is not there");
    }
    *out = v->stack[--v->depth];
    return LVN_OK;
}

/* The place of the last mark in the stack. */
static lvn_status find_mark(const parser *v, size_t *place)
{
    for (size_t i = v->depth; i > 0; i--) {
        if (v->stack[i - 1] == MARK) {
            *place = i - 1;
            return LVN_OK;
        }
    }
    return damaged(v, "an instruction needs a mark that is not there");
}

static lvn_status add_item(parser *v, uint32_t list, uint32_t item)
{
    void *items = v->p->items;
    LVN_TRY(grow(&items, &v->p->items_room, (size_t)v->p->n_items + 1, sizeof *v->p->items));
    v->p->items = items;
    const uint32_t index = v->p->n_items++;
    v->p->items[index] = (lvni_ckpt_pickle_item){.node = item};
    node *n = &v->p->nodes[list];
    if (n->n++ == 0) {
        n->u.list.first = index;
    } else {
        v->p->items[n->u.list.last].next = index;
    }
    n->u.list.last = index;
    return LVN_OK;
}

/* The first n items of a list, at most. */
static uint32_t list_items(const parser *v, uint32_t list, uint32_t n, uint32_t *out)
{
    const node *l = &v->p->nodes[list];
    uint32_t at = l->u.list.first, i = 0;
    for (; l->kind == LVNI_PICKLE_LIST && i < l->n && i < n; i++, at = v->p->items[at].next) {
        out[i] = v->p->items[at].node;
    }
    return i;
}

/* ---- instructions ---- */

static bool take(parser *v, size_t n, const unsigned char **bytes)
{
    if ((size_t)(v->end - v->at) < n) {
        return false;
    }
    *bytes = v->at;
    v->at += n;
    return true;
}

/* A number of `bytes` bytes, little endian, without sign. */
static lvn_status take_number(parser *v, size_t bytes, uint64_t *out)
{
    const unsigned char *at;
    *out = 0;
    if (!take(v, bytes, &at)) {
        return damaged(v, "it ends within an instruction");
    }
    for (size_t i = bytes; i > 0; i--) {
        *out = *out << 8 | at[i - 1];
    }
    return LVN_OK;
}

/* Bytes behind their number, which takes `bytes` bytes. */
static lvn_status take_text(parser *v, size_t bytes, const unsigned char **text, uint64_t *n)
{
    LVN_TRY(take_number(v, bytes, n));
    return *n <= (uint64_t)(v->end - v->at) && take(v, (size_t)*n, text)
               ? LVN_OK
               : damaged(v, "a text is longer than what is left");
}

static lvn_status do_skip(parser *v, unsigned char op)
{
    uint64_t unused;
    LVN_TRY(take_number(v, op == 0x80 ? 1 : 8, &unused)); /* PROTO, FRAME */
    return LVN_OK;
}

static lvn_status do_constant(parser *v, unsigned char op)
{
    uint64_t unused;
    LVN_TRY(op == 'G' ? take_number(v, 8, &unused) : LVN_OK); /* BINFLOAT; None, True, False */
    return push(v, op == '(' ? MARK : OTHER);
}

static lvn_status do_number(parser *v, unsigned char op)
{
    uint64_t raw, n = op == 'K' ? 1 : op == 'M' ? 2 : 4;
    if (op == 0x8a || op == 0x8b) { /* LONG1, LONG4 */
        LVN_TRY(take_number(v, op == 0x8a ? 1 : 4, &n));
    }
    if (n > 8) {
        const unsigned char *unused;
        LVN_TRY(n <= (uint64_t)(v->end - v->at) && take(v, (size_t)n, &unused)
                    ? LVN_OK
                    : damaged(v, "a number is longer than what is left"));
        return push(v, OTHER);
    }
    LVN_TRY(take_number(v, (size_t)n, &raw));
    if (op != 'K' && op != 'M' && n > 0 && n < 8 && raw >> (8 * n - 1) != 0) {
        raw |= UINT64_MAX << (8 * n);
    }
    return push_node(v, (node){.kind = LVNI_PICKLE_INT, .number = (int64_t)raw});
}

static lvn_status do_text(parser *v, unsigned char op)
{
    const size_t length = op == 'U' || op == 0x8c || op == 'C'     ? 1
                          : op == 0x8d || op == 0x8e || op == 0x96 ? 8
                                                                   : 4;
    const unsigned char *text = v->at;
    uint64_t n;
    LVN_TRY(take_text(v, length, &text, &n));
    return push_node(
        v, (node){.kind = LVNI_PICKLE_TEXT, .u.text = (const char *)text, .n = (uint32_t)n});
}

static lvn_status do_pop(parser *v, unsigned char op)
{
    uint32_t unused;
    if (op == '1') { /* POP_MARK */
        return find_mark(v, &v->depth);
    }
    if (op == '0') {
        return v->depth > 0 ? (v->depth--, LVN_OK) : pop(v, &unused);
    }
    LVN_TRY(pop(v, &unused)); /* DUP */
    LVN_TRY(push(v, unused));
    return push(v, unused);
}

static lvn_status do_empty(parser *v, unsigned char op)
{
    return push_node(v, (node){.kind = op == '}'    ? LVNI_PICKLE_DICT
                                       : op == 0x8f ? LVNI_PICKLE_INSTANCE /* a set */
                                                    : LVNI_PICKLE_LIST});
}

/* A list, tuple or dict of what is on the stack: behind the mark, or a number of objects. */
static lvn_status do_collect(parser *v, unsigned char op)
{
    const bool counted = op >= 0x85 && op <= 0x87; /* TUPLE1 to TUPLE3 */
    size_t first = 0;
    uint32_t list;
    if (!counted) {
        LVN_TRY(find_mark(v, &first));
    } else if (v->depth < (size_t)(op - 0x84)) {
        return damaged(v, "a tuple needs objects that are not there");
    } else {
        first = v->depth - (size_t)(op - 0x84);
    }
    if (op == 'd' && (v->depth - first - 1) % 2 != 0) {
        return damaged(v, "a key without a value");
    }
    LVN_TRY(add_node(v,
                     (node){.kind = op == 'd'    ? LVNI_PICKLE_DICT
                                    : op == 0x91 ? LVNI_PICKLE_INSTANCE /* a frozen set */
                                                 : LVNI_PICKLE_LIST},
                     &list));
    for (size_t i = first + !counted; i < v->depth && op != 0x91; i++) {
        LVN_TRY(add_item(v, list, v->stack[i]));
    }
    v->depth = first;
    return push(v, list);
}

/* Into the list, set or dict below: one item (or key and value), or all behind the mark. */
static lvn_status do_add(parser *v, unsigned char op)
{
    const bool one = op == 'a' || op == 's', pairs = op == 's' || op == 'u';
    const size_t n = pairs ? 2 : 1;
    size_t first = 0;
    if (!one) {
        LVN_TRY(find_mark(v, &first));
    } else if (v->depth <= n) {
        return damaged(v, "an item without a list");
    } else {
        first = v->depth - n;
    }
    if (first == 0 || v->stack[first - 1] == MARK || (v->depth - first - !one) % n != 0) {
        return damaged(v, "items that do not belong to a list or a dict");
    }
    const uint32_t to = v->stack[first - 1];
    const uint8_t wanted = pairs ? LVNI_PICKLE_DICT : LVNI_PICKLE_LIST;
    for (size_t i = first + !one; i < v->depth && v->p->nodes[to].kind == wanted; i++) {
        LVN_TRY(add_item(v, to, v->stack[i]));
    }
    v->depth = first;
    return LVN_OK;
}

static lvn_status do_put(parser *v, unsigned char op)
{
    uint64_t index = v->n_memoized;
    if (op != 0x94) { /* BINPUT, LONG_BINPUT; else MEMOIZE */
        LVN_TRY(take_number(v, op == 'q' ? 1 : 4, &index));
    }
    void *memo = v->memo;
    if (index > (uint64_t)(v->at - v->begin) || v->depth == 0) {
        return damaged(v, "an object is kept under a number that is too large, or there is none");
    }
    if (index >= v->n_memo) {
        LVN_TRY(grow(&memo, &v->memo_room, (size_t)index + 1, sizeof *v->memo));
        v->memo = memo;
        memset(v->memo + v->n_memo, 0, ((size_t)index + 1 - v->n_memo) * sizeof *v->memo);
        v->n_memo = (size_t)index + 1;
    }
    v->memo[index] = v->stack[v->depth - 1] + 1;
    v->n_memoized++;
    return LVN_OK;
}

static lvn_status do_get(parser *v, unsigned char op)
{
    uint64_t index;
    LVN_TRY(take_number(v, op == 'h' ? 1 : 4, &index));
    if (index >= v->n_memo || v->memo[index] == 0 || v->memo[index] == MARK + 1) {
        return damaged(v, "an object is used that was not kept");
    }
    return push(v, v->memo[index] - 1);
}

/* ---- classes, and what they make ---- */

static bool starts_with(const char *text, size_t n, const char *start)
{
    return n >= strlen(start) && memcmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    return n >= strlen(end) && memcmp(text + n - strlen(end), end, strlen(end)) == 0;
}

/* text: module, a line feed, name. */
static lvn_status push_class(parser *v, const char *text, size_t n)
{
    node c = {.kind = LVNI_PICKLE_CLASS, .u.text = text, .n = (uint32_t)n};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strlen(classes[i].name) == n && memcmp(classes[i].name, text, n) == 0) {
            c.known = classes[i].known;
            c.dtype = classes[i].dtype;
        }
    }
    if (c.known == UNKNOWN && starts_with(text, n, "torch") && ends_with(text, n, "Storage")) {
        c.known = STORAGE_TYPE;
        c.dtype = LVNI_PICKLE_DTYPE_FOREIGN;
    }
    return push_node(v, c);
}

static lvn_status do_global(parser *v, unsigned char op)
{
    (void)op;
    const char *text = (const char *)v->at;
    const size_t left = (size_t)(v->end - v->at);
    const char *name = memchr(text, '\n', left);
    const char *end =
        name == NULL ? NULL : memchr(name + 1, '\n', left - (size_t)(name + 1 - text));
    if (end == NULL) {
        return damaged(v, "the name of a class does not end");
    }
    v->at += end + 1 - text;
    return push_class(v, text, (size_t)(end - text));
}

/* Module and name as two texts. As one they need memory of their own only where they are known. */
static lvn_status do_stack_global(parser *v, unsigned char op)
{
    (void)op;
    uint32_t name, module;
    LVN_TRY(pop(v, &name));
    LVN_TRY(pop(v, &module));
    const node m = v->p->nodes[module], c = v->p->nodes[name];
    if (m.kind != LVNI_PICKLE_TEXT || c.kind != LVNI_PICKLE_TEXT) {
        return damaged(v, "the name of a class is not a text");
    }
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const char *known = classes[i].name;
        const size_t n = strcspn(known, "\n");
        if (m.n == n && memcmp(m.u.text, known, n) == 0 && c.n == strlen(known) - n - 1 &&
            memcmp(c.u.text, known + n + 1, c.n) == 0) {
            return push_class(v, known, strlen(known));
        }
    }
    return push_class(v, c.u.text, c.n);
}

/* ('storage', type, key, device, elements) */
static lvn_status do_persistent(parser *v, unsigned char op)
{
    (void)op;
    uint32_t id, part[5];
    LVN_TRY(pop(v, &id));
    const uint32_t n = list_items(v, id, 5, part);
    const node *nodes = v->p->nodes;
    if (n < 5 || nodes[part[0]].kind != LVNI_PICKLE_TEXT || nodes[part[0]].n != 7 ||
        memcmp(nodes[part[0]].u.text, "storage", 7) != 0 ||
        nodes[part[1]].kind != LVNI_PICKLE_CLASS || nodes[part[1]].known != STORAGE_TYPE ||
        nodes[part[2]].kind != LVNI_PICKLE_TEXT || nodes[part[4]].kind != LVNI_PICKLE_INT ||
        nodes[part[4]].number < 0) {
        return damaged(v, "a reference that is not one to a storage");
    }
    return push_node(v, (node){.kind = LVNI_PICKLE_STORAGE,
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

/* (storage, offset, shape, strides, ...) */
static lvn_status push_tensor(parser *v, uint32_t arguments)
{
    uint32_t part[4];
    const uint32_t n = list_items(v, arguments, 4, part);
    const node *nodes = v->p->nodes;
    if (n < 4 || nodes[part[0]].kind != LVNI_PICKLE_STORAGE ||
        nodes[part[1]].kind != LVNI_PICKLE_INT || !all_numbers(v, part[2]) ||
        !all_numbers(v, part[3]) || nodes[part[2]].n != nodes[part[3]].n) {
        return damaged(v, "a tensor without storage, offset, shape or strides");
    }
    return push_node(v, (node){.kind = LVNI_PICKLE_TENSOR,
                               .dtype = nodes[part[0]].dtype,
                               .u.tensor = {.storage = part[0], .shape = part[2]},
                               .number = nodes[part[1]].number,
                               .more = part[3]});
}

/* What a call of `callee` would return. */
static lvn_status push_result(parser *v, uint32_t callee, uint32_t arguments)
{
    uint32_t part[3];
    for (int depth = 0; depth < 4; depth++) { /* (function, class, arguments of the function) */
        if (v->p->nodes[callee].known != SUBCLASS || list_items(v, arguments, 3, part) < 3 ||
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
        if (list_items(v, arguments, 1, part) < 1) {
            return damaged(v, "a parameter without a tensor");
        }
        return push(v, part[0]);
    case ORDERED_DICT:
        if (v->p->nodes[arguments].n == 0) {
            return push_node(v, (node){.kind = LVNI_PICKLE_DICT});
        }
        break;
    default: break;
    }
    return push_node(v, (node){.kind = LVNI_PICKLE_INSTANCE, .u.text = c.u.text, .n = c.n});
}

/* REDUCE, NEWOBJ, NEWOBJ_EX: a class or function and its arguments. */
static lvn_status do_call(parser *v, unsigned char op)
{
    uint32_t callee, arguments, unused;
    LVN_TRY(op == 0x92 ? pop(v, &unused) : LVN_OK); /* arguments with names */
    LVN_TRY(pop(v, &arguments));
    LVN_TRY(pop(v, &callee));
    if (v->p->nodes[callee].kind != LVNI_PICKLE_CLASS) {
        return push_node(v, (node){.kind = LVNI_PICKLE_INSTANCE, .u.text = ""});
    }
    if (v->p->nodes[arguments].kind != LVNI_PICKLE_LIST) {
        return damaged(v, "a call whose arguments are not a tuple");
    }
    return push_result(v, callee, arguments);
}

/* The state of an object: attributes of a dict, of a module, all without a meaning here. */
static lvn_status do_build(parser *v, unsigned char op)
{
    (void)op;
    uint32_t state, object;
    LVN_TRY(pop(v, &state));
    LVN_TRY(pop(v, &object));
    return push(v, object);
}

static lvn_status do_stop(parser *v, unsigned char op)
{
    (void)op;
    v->stopped = true;
    return pop(v, &v->p->top);
}

static lvn_status (*const instructions[256])(parser *, unsigned char) = {
    [0x80] = do_skip,     [0x95] = do_skip,    ['N'] = do_constant,      [0x88] = do_constant,
    [0x89] = do_constant, ['G'] = do_constant, ['('] = do_constant,      ['J'] = do_number,
    ['K'] = do_number,    ['M'] = do_number,   [0x8a] = do_number,       [0x8b] = do_number,
    ['T'] = do_text,      ['U'] = do_text,     ['B'] = do_text,          ['C'] = do_text,
    ['X'] = do_text,      [0x8c] = do_text,    [0x8d] = do_text,         [0x8e] = do_text,
    [0x96] = do_text,     ['0'] = do_pop,      ['1'] = do_pop,           ['2'] = do_pop,
    [']'] = do_empty,     [')'] = do_empty,    ['}'] = do_empty,         [0x8f] = do_empty,
    ['l'] = do_collect,   ['t'] = do_collect,  ['d'] = do_collect,       [0x85] = do_collect,
    [0x86] = do_collect,  [0x87] = do_collect, [0x91] = do_collect,      ['a'] = do_add,
    ['e'] = do_add,       ['s'] = do_add,      ['u'] = do_add,           [0x90] = do_add,
    ['q'] = do_put,       ['r'] = do_put,      [0x94] = do_put,          ['h'] = do_get,
    ['j'] = do_get,       ['c'] = do_global,   [0x93] = do_stack_global, ['Q'] = do_persistent,
    ['R'] = do_call,      [0x81] = do_call,    [0x92] = do_call,         ['b'] = do_build,
    ['.'] = do_stop,
};

static lvn_status run(parser *v)
{
    uint32_t index;
    LVN_TRY(add_node(v, (node){.kind = LVNI_PICKLE_OTHER}, &index));
    LVN_TRY(add_node(v, (node){.kind = LVNI_PICKLE_MARK}, &index));
    while (!v->stopped) {
        if (v->at == v->end) {
            return damaged(v, "it does not end");
        }
        const unsigned char op = *v->at++;
        if (instructions[op] == NULL) {
            LVN_FAIL(LVN_ERR_UNSUPPORTED,
                     "%s: its pickle has the instruction 0x%02x at byte %zu, which files of "
                     "torch.save do not need; save it with the default pickle_protocol",
                     v->path, op, (size_t)(v->at - 1 - v->begin));
        }
        LVN_TRY(instructions[op](v, op));
    }
    return LVN_OK;
}

lvn_status lvni_ckpt_pickle_parse(const char *path, const char *bytes, size_t n,
                                  lvni_ckpt_pickle *out)
{
    *out = (lvni_ckpt_pickle){0};
    const unsigned char *begin = (const unsigned char *)bytes;
    parser v = {.path = path, .p = out, .begin = begin, .at = begin, .end = begin + n};
    const lvn_status s = run(&v);
    lvni_core_free(v.stack);
    lvni_core_free(v.memo);
    return s;
}

void lvni_ckpt_pickle_free(lvni_ckpt_pickle *pickle)
{
    lvni_core_free(pickle->nodes);
    lvni_core_free(pickle->items);
}
