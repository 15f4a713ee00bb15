/* Parses the pickle of a file of torch.save (torch_impl.h): the instructions of protocols 1 to 5
 * that build values. Nothing is imported or called (torch_calls.c). The instructions: the standard
 * library's pickletools. */
#include "ckpt/torch_pickle_impl.h"

#include "core/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef lvni_ckpt_pickle_node node;
typedef lvni_ckpt_pickle_parser parser;

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

lvn_status lvni_ckpt_pickle_damaged(const parser *v, const char *what)
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

lvn_status lvni_ckpt_pickle_push(parser *v, uint32_t index)
{
    void *stack = v->stack;
    LVN_TRY(grow(&stack, &v->stack_room, v->depth + 1, sizeof *v->stack));
    v->stack = stack;
    v->stack[v->depth++] = index;
    return LVN_OK;
}

lvn_status lvni_ckpt_pickle_push_node(parser *v, node n)
{
    uint32_t index;
    LVN_TRY(add_node(v, n, &index));
    return lvni_ckpt_pickle_push(v, index);
}

lvn_status lvni_ckpt_pickle_pop(parser *v, uint32_t *out)
{
    *out = LVNI_PICKLE_AT_OTHER;
    if (v->depth == 0 || v->stack[v->depth - 1] == LVNI_PICKLE_AT_MARK) {
        return lvni_ckpt_pickle_damaged(v, "an instruction needs an object that is not there");
    }
    *out = v->stack[--v->depth];
    return LVN_OK;
}

/* The place of the last mark in the stack. */
static lvn_status find_mark(const parser *v, size_t *place)
{
    for (size_t i = v->depth; i > 0; i--) {
        if (v->stack[i - 1] == LVNI_PICKLE_AT_MARK) {
            *place = i - 1;
            return LVN_OK;
        }
    }
    return lvni_ckpt_pickle_damaged(v, "an instruction needs a mark that is not there");
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
uint32_t lvni_ckpt_pickle_list_items(const parser *v, uint32_t list, uint32_t n, uint32_t *out)
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
        return lvni_ckpt_pickle_damaged(v, "it ends within an instruction");
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
               : lvni_ckpt_pickle_damaged(v, "a text is longer than what is left");
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
    return lvni_ckpt_pickle_push(v, op == '('    ? LVNI_PICKLE_AT_MARK
                                    : op == 0x88 ? LVNI_PICKLE_AT_TRUE
                                                 : LVNI_PICKLE_AT_OTHER);
}

/* INT, LONG of protocol 1: a line of decimal digits, where 01 is True and 00 is False. */
static lvn_status do_line(parser *v, unsigned char op)
{
    char digits[24] = {0};
    const unsigned char *end = memchr(v->at, '\n', (size_t)(v->end - v->at));
    if (end == NULL) {
        return lvni_ckpt_pickle_damaged(v, "a number does not end");
    }
    const size_t n = (size_t)(end - v->at);
    if (n >= sizeof digits) { /* more than 64 bits */
        v->at = end + 1;
        return lvni_ckpt_pickle_push(v, LVNI_PICKLE_AT_OTHER);
    }
    memcpy(digits, v->at, n);
    v->at = end + 1;
    if (op == 'I' && n == 2 && digits[0] == '0') {
        return lvni_ckpt_pickle_push(v,
                                     digits[1] == '1' ? LVNI_PICKLE_AT_TRUE : LVNI_PICKLE_AT_OTHER);
    }
    char *rest;
    errno = 0;
    const int64_t number = strtoll(digits, &rest, 10);
    if (rest == digits || strcmp(rest, op == 'L' ? "L" : "") != 0) {
        return lvni_ckpt_pickle_damaged(v, "a number with other characters");
    }
    return errno == ERANGE
               ? lvni_ckpt_pickle_push(v, LVNI_PICKLE_AT_OTHER)
               : lvni_ckpt_pickle_push_node(v, (node){.kind = LVNI_PICKLE_INT, .number = number});
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
                    : lvni_ckpt_pickle_damaged(v, "a number is longer than what is left"));
        return lvni_ckpt_pickle_push(v, LVNI_PICKLE_AT_OTHER);
    }
    LVN_TRY(take_number(v, (size_t)n, &raw));
    if (op != 'K' && op != 'M' && n > 0 && n < 8 && raw >> (8 * n - 1) != 0) {
        raw |= UINT64_MAX << (8 * n);
    }
    return lvni_ckpt_pickle_push_node(v, (node){.kind = LVNI_PICKLE_INT, .number = (int64_t)raw});
}

static lvn_status do_text(parser *v, unsigned char op)
{
    const size_t length = op == 'U' || op == 0x8c || op == 'C'     ? 1
                          : op == 0x8d || op == 0x8e || op == 0x96 ? 8
                                                                   : 4;
    const unsigned char *text = v->at;
    uint64_t n;
    LVN_TRY(take_text(v, length, &text, &n));
    return lvni_ckpt_pickle_push_node(
        v, (node){.kind = LVNI_PICKLE_TEXT, .u.text = (const char *)text, .n = (uint32_t)n});
}

static lvn_status do_pop(parser *v, unsigned char op)
{
    uint32_t unused;
    if (op == '1') { /* POP_MARK */
        return find_mark(v, &v->depth);
    }
    if (op == '0') {
        return v->depth > 0 ? (v->depth--, LVN_OK) : lvni_ckpt_pickle_pop(v, &unused);
    }
    LVN_TRY(lvni_ckpt_pickle_pop(v, &unused)); /* DUP */
    LVN_TRY(lvni_ckpt_pickle_push(v, unused));
    return lvni_ckpt_pickle_push(v, unused);
}

static lvn_status do_empty(parser *v, unsigned char op)
{
    return lvni_ckpt_pickle_push_node(v,
                                      (node){.kind = op == '}'    ? LVNI_PICKLE_DICT
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
        return lvni_ckpt_pickle_damaged(v, "a tuple needs objects that are not there");
    } else {
        first = v->depth - (size_t)(op - 0x84);
    }
    if (op == 'd' && (v->depth - first - 1) % 2 != 0) {
        return lvni_ckpt_pickle_damaged(v, "a key without a value");
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
    return lvni_ckpt_pickle_push(v, list);
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
        return lvni_ckpt_pickle_damaged(v, "an item without a list");
    } else {
        first = v->depth - n;
    }
    if (first == 0 || v->stack[first - 1] == LVNI_PICKLE_AT_MARK ||
        (v->depth - first - !one) % n != 0) {
        return lvni_ckpt_pickle_damaged(v, "items that do not belong to a list or a dict");
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
        return lvni_ckpt_pickle_damaged(
            v, "an object is kept under a number that is too large, or there is none");
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
    if (index >= v->n_memo || v->memo[index] == 0 || v->memo[index] == LVNI_PICKLE_AT_MARK + 1) {
        return lvni_ckpt_pickle_damaged(v, "an object is used that was not kept");
    }
    return lvni_ckpt_pickle_push(v, v->memo[index] - 1);
}

/* The state of an object: attributes of a dict, of a module, all without a meaning here. */
static lvn_status do_build(parser *v, unsigned char op)
{
    (void)op;
    uint32_t state, object;
    LVN_TRY(lvni_ckpt_pickle_pop(v, &state));
    LVN_TRY(lvni_ckpt_pickle_pop(v, &object));
    return lvni_ckpt_pickle_push(v, object);
}

static lvn_status do_stop(parser *v, unsigned char op)
{
    (void)op;
    v->stopped = true;
    return lvni_ckpt_pickle_pop(v, &v->p->top);
}

static lvn_status (*const instructions[256])(parser *, unsigned char) = {
    [0x80] = do_skip,
    [0x95] = do_skip,
    ['N'] = do_constant,
    [0x88] = do_constant,
    [0x89] = do_constant,
    ['G'] = do_constant,
    ['('] = do_constant,
    ['J'] = do_number,
    ['K'] = do_number,
    ['M'] = do_number,
    [0x8a] = do_number,
    [0x8b] = do_number,
    ['T'] = do_text,
    ['U'] = do_text,
    ['B'] = do_text,
    ['C'] = do_text,
    ['X'] = do_text,
    [0x8c] = do_text,
    [0x8d] = do_text,
    [0x8e] = do_text,
    [0x96] = do_text,
    ['0'] = do_pop,
    ['1'] = do_pop,
    ['2'] = do_pop,
    [']'] = do_empty,
    [')'] = do_empty,
    ['}'] = do_empty,
    [0x8f] = do_empty,
    ['l'] = do_collect,
    ['t'] = do_collect,
    ['d'] = do_collect,
    [0x85] = do_collect,
    [0x86] = do_collect,
    [0x87] = do_collect,
    [0x91] = do_collect,
    ['a'] = do_add,
    ['e'] = do_add,
    ['s'] = do_add,
    ['u'] = do_add,
    [0x90] = do_add,
    ['q'] = do_put,
    ['r'] = do_put,
    [0x94] = do_put,
    ['h'] = do_get,
    ['j'] = do_get,
    ['c'] = lvni_ckpt_pickle_global,
    [0x93] = lvni_ckpt_pickle_stack_global,
    ['Q'] = lvni_ckpt_pickle_persistent,
    ['R'] = lvni_ckpt_pickle_call,
    [0x81] = lvni_ckpt_pickle_call,
    [0x92] = lvni_ckpt_pickle_call,
    ['b'] = do_build,
    ['.'] = do_stop,
    ['I'] = do_line,
    ['L'] = do_line,
};

static lvn_status run(parser *v)
{
    uint32_t index;
    LVN_TRY(add_node(v, (node){.kind = LVNI_PICKLE_OTHER}, &index));
    LVN_TRY(add_node(v, (node){.kind = LVNI_PICKLE_MARK}, &index));
    LVN_TRY(add_node(v, (node){.kind = LVNI_PICKLE_OTHER}, &index));
    while (!v->stopped) {
        if (v->at == v->end) {
            return lvni_ckpt_pickle_damaged(v, "it does not end");
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
