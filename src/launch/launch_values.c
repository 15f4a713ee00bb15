/* Values of `levin launch` (launch_options.h): as torchrun takes them; patterns with codes for the
 * rank, such as prefixes of lines, names of log files and values of variables; lists of ranks. */
#include "launch/launch_options.h"

#include "core/escape.h"

#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 65536, PORT_MAX = 65535, WIDTH_MAX = 9 };
static const char usual_port[] = "29400"; /* of c10d, where the endpoint names none */

/* Digits at *p; moves *p past them. -1: none, or too many. */
static long read_number(const char **p, long most)
{
    char *end;
    if (**p < '0' || **p > '9') {
        return -1;
    }
    const long n = strtol(*p, &end, 10);
    *p = end;
    return n <= most ? n : -1;
}

/* ---- nodes ---- */

int lvni_launch_torchrun_nodes(const char *text)
{
    const char *p = text;
    return (int)read_number(&p, NODES_MAX);
}

lvn_status lvni_launch_torchrun_check_nodes(const lvni_core_option *row,
                                            const lvni_core_value *value, const char *origin)
{
    const char *p = value->text;
    const long least = read_number(&p, NODES_MAX);
    const bool range = least >= 1 && *p == ':';
    p += range ? 1 : 0;
    const long most = range ? read_number(&p, NODES_MAX) : least;
    if (least < 1 || most < least || *p != '\0') {
        return lvni_core_option_fail(row, value, origin, "give a number of nodes from 1 to %d",
                                     (int)NODES_MAX);
    }
    if (least < most) {
        return lvni_core_option_fail(
            row, value, origin,
            "the number of nodes is fixed in this version; give nnodes=%ld, and --max-restarts for "
            "ranks that fail",
            most);
    }
    return LVN_OK;
}

/* ---- streams ---- */

static bool is_truth(const char *text)
{
    static const char truths[] = "true|false|yes|no|on|off";
    return lvni_core_option_choice_index(truths, text, strlen(text)) >= 0;
}

/* One "R:V" at *p, or a V for all with rank -1. */
static bool read_streams(const char **p, long *rank, long *streams)
{
    *rank = -1;
    *streams = read_number(p, PORT_MAX);
    if (**p == ':') {
        (*p)++;
        *rank = *streams;
        *streams = *rank >= 0 ? read_number(p, PORT_MAX) : -1;
    }
    return *streams >= 0 && *streams <= (LVNI_STREAM_OUT | LVNI_STREAM_ERR);
}

lvn_status lvni_launch_torchrun_check_streams(const lvni_core_option *row,
                                              const lvni_core_value *value, const char *origin)
{
    long rank = 0, streams;
    bool good = true;
    const char *p = value->text;
    for (bool more = !is_truth(p); more && good; p += more ? 1 : 0) {
        good = read_streams(&p, &rank, &streams) && (*p == '\0' || (*p == ',' && rank >= 0));
        more = *p == ',';
    }
    return good ? LVN_OK
                : lvni_core_option_fail(
                      row, value, origin,
                      "give 0 none, 1 standard output, 2 standard error or 3 both, "
                      "for all ranks, or by "
                      "local rank as in 0:3,1:2");
}

int lvni_launch_torchrun_streams(const char *text, int local_rank)
{
    long rank, streams;
    const char *p = text;
    if (text == NULL || is_truth(text)) {
        return 0;
    }
    while (read_streams(&p, &rank, &streams)) {
        if (rank < 0 || rank == local_rank) {
            return (int)streams;
        }
        if (*p++ != ',') {
            break;
        }
    }
    return 0;
}

/* ---- rendezvous ---- */

/* HOST, HOST:PORT, [v6] or [v6]:PORT: how long the host is, without its brackets; *port after it,
 * "" for none. */
static size_t host_length(const char *text, const char **host, const char **port)
{
    const char *close = *text == '[' ? strchr(text, ']') : NULL;
    *host = close != NULL ? text + 1 : text;
    const size_t n = close != NULL ? (size_t)(close - text) - 1 : strcspn(text, ":");
    const char *rest = close != NULL ? close + 1 : text + n;
    *port = *rest == ':' ? rest + 1 : rest;
    return *rest == '\0' || *rest == ':' ? n : 0;
}

lvn_status lvni_launch_torchrun_check_endpoint(const lvni_core_option *row,
                                               const lvni_core_value *value, const char *origin)
{
    const char *host, *port;
    const size_t n = host_length(value->text, &host, &port);
    const char *p = port;
    const bool good =
        n > 0 && (*port == '\0' ? port[-1] != ':' : read_number(&p, PORT_MAX) >= 0 && *p == '\0');
    return good
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin, "give HOST:PORT, the address of node 0");
}

/* On one node ranks always connect to 127.0.0.1. With c10d and standalone the endpoint's port is
 * that of torchrun's own store, and MASTER_PORT a free one; with static it is MASTER_PORT itself.
 */
lvn_status lvni_launch_torchrun_rendezvous(lvni_launch_options *o)
{
    const lvni_core_config *c = o->config;
    const bool standalone = lvni_core_config_bool(c, "standalone");
    const char *endpoint = lvni_core_config_str(c, "rdzv_endpoint"), *host, *port;
    if (standalone && o->nodes > 1) {
        LVN_FAIL(LVN_ERR_USAGE, "--standalone is one node, and nnodes=%d: omit one of the two",
                 o->nodes);
    }
    if (standalone || endpoint == NULL) {
        return LVN_OK;
    }
    const bool fixed = strcmp(lvni_core_config_str(c, "rdzv_backend"), "static") == 0;
    const size_t n = host_length(endpoint, &host, &port);
    if (o->master_addr == NULL &&
        snprintf(o->endpoint, sizeof o->endpoint, "%.*s", (int)n, host) < (int)sizeof o->endpoint) {
        o->master_addr = o->endpoint;
    }
    const bool named = *port != '\0' && strtol(port, NULL, 10) > 0;
    if (strcmp(o->master_port, "auto") == 0 && (o->nodes > 1 || (fixed && named))) {
        o->master_port = named ? port : usual_port;
    }
    return LVN_OK;
}

/* ---- patterns ---- */

/* One code after a percent sign: its letter and width; returns what follows, NULL when the text
 * ends before the letter. */
static const char *read_code(const char *p, char *letter, int *width)
{
    *width = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        *width = *width > WIDTH_MAX ? *width : *width * 10 + (*p - '0');
    }
    *letter = *p;
    return *p == '\0' ? NULL : p + 1;
}

lvn_status lvni_launch_pattern_check(const char *key, const char *pattern)
{
    for (const char *p = pattern; *p != '\0';) {
        if (*p++ != '%') {
            continue;
        }
        char letter;
        int width;
        const char *next = read_code(p, &letter, &width);
        if (next == NULL || strchr("rlnwhjap%", letter) == NULL || width > WIDTH_MAX) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s `%.200s`: `%%%.*s` is not a code; codes are %%r rank, %%l local rank, %%n "
                     "node, %%w number of ranks, %%h host, %%j run, "
                     "%%a attempt, %%p process, %%%% percent sign, and a width such as %%3r",
                     key, pattern, (int)(next == NULL ? strlen(p) : (size_t)(next - p)), p);
        }
        p = next;
    }
    return LVN_OK;
}

static void put_number(lvni_core_str *out, int64_t value, int width)
{
    lvni_core_str_printf(out, "%0*lld", width > 0 ? width : 1, (long long)value);
}

static void put_text(lvni_core_str *out, const char *text)
{
    lvni_core_str_escape(out, text, strlen(text), LVNI_ESCAPE_TEXT);
}

static bool put_code(lvni_core_str *out, char letter, int width, const lvni_launch_rank_name *name)
{
    switch (letter) {
    case 'r': put_number(out, name->rank, width); return true;
    case 'l': put_number(out, name->local_rank, width); return true;
    case 'n': put_number(out, name->node_rank, width); return true;
    case 'w': put_number(out, name->world, width); return true;
    case 'a': put_number(out, name->attempt, width); return true;
    case 'p': put_number(out, name->pid, width); return true;
    case 'h': put_text(out, name->host); return true;
    case 'j': put_text(out, name->run_id); return true;
    case '%': lvni_core_str_char(out, '%'); return true;
    default: return false;
    }
}

static void expand(lvni_core_str *out, const char *pattern, const char *codes,
                   const lvni_launch_rank_name *name)
{
    for (const char *p = pattern; *p != '\0';) {
        char letter;
        int width;
        const char *next = *p == '%' ? read_code(p + 1, &letter, &width) : NULL;
        if (next != NULL && strchr(codes, letter) != NULL && put_code(out, letter, width, name)) {
            p = next;
        } else {
            lvni_core_str_char(out, *p++);
        }
    }
}

void lvni_launch_pattern_expand(lvni_core_str *out, const char *pattern,
                                const lvni_launch_rank_name *name)
{
    expand(out, pattern, "rlnwhjap%", name);
}

void lvni_launch_pattern_expand_value(lvni_core_str *out, const char *value,
                                      const lvni_launch_rank_name *name)
{
    expand(out, value, "rlnw%", name);
}

/* ---- lists of ranks ---- */

/* "3" or "3-5" at p; returns what follows, NULL when it is neither. */
static const char *read_range(const char *p, int world, int *first, int *last)
{
    char *end;
    if (*p < '0' || *p > '9') {
        return NULL;
    }
    const long a = strtol(p, &end, 10);
    long b = a;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') {
        b = strtol(end + 1, &end, 10);
    }
    *first = (int)a;
    *last = (int)b;
    return a <= b && b < world ? end : NULL;
}

lvn_status lvni_launch_rank_list(const char *key, const char *text, int world, bool *in)
{
    const bool all = strcmp(text, "all") == 0;
    for (int r = 0; r < world; r++) {
        in[r] = all;
    }
    if (all || strcmp(text, "none") == 0) {
        return LVN_OK;
    }
    for (const char *p = text;; p++) {
        int first, last;
        p = read_range(p, world, &first, &last);
        if (p == NULL || (*p != ',' && *p != '\0')) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s %.80s: give `all`, `none` or ranks of 0 to %d, such as 0 or 0,2-3", key,
                     text, world - 1);
        }
        for (int r = first; r <= last; r++) {
            in[r] = true;
        }
        if (*p == '\0') {
            return LVN_OK;
        }
    }
}
