/* Environments of a rank: lines NAME=value ("S:" for "SLURM_"), DEVICES as what the user wrote, and
 * every value as a list of hosts. */
#include "fuzz.h"

#include "core/alloc.h"
#include "launch/device_spec.h"
#include "launch/env_vars.h"
#include "launch/rank_info.h"

#include <string.h>

enum { VARIABLES = 40, BYTES = 4096, HOSTS = 5000 };

typedef struct environment {
    char bytes[BYTES];
    char *list[VARIABLES + 1];
} environment;

static void make_environment(environment *e, const uint8_t *data, size_t size)
{
    size_t used = 0;
    int n = 0;
    for (size_t i = 0; i < size && n < VARIABLES;) {
        const uint8_t *end = memchr(data + i, '\n', size - i);
        const size_t len = (end != NULL ? (size_t)(end - data) : size) - i;
        const bool slurm = len >= 2 && data[i] == 'S' && data[i + 1] == ':';
        if (used + len + 8 > BYTES) {
            break;
        }
        e->list[n++] = e->bytes + used;
        used += (size_t)snprintf(e->bytes + used, BYTES - used, "%s%.*s", slurm ? "SLURM_" : "",
                                 (int)(len - 2 * slurm), (const char *)data + i + 2 * slurm) +
                1;
        i += len + 1;
    }
    e->list[n] = NULL;
}

/* A status of this folder leaves a block or a sentence. */
static void check_reported(lvn_status s, const lvni_core_notices *n)
{
    CHECK_REPORTED(s);
    CHECK(s == LVN_OK || s == LVN_ERR_USAGE || s == LVN_ERR_NOT_FOUND || s == LVN_ERR_INVALID);
    CHECK(n->error == 0 ||
          (s != LVN_OK && n->text.len > 0 && n->text.data[n->text.len - 1] == '\n'));
}

static void detect(char *const *env)
{
    lvni_core_notices n = {.error = 0};
    lvni_core_str out = {.len = 0};
    lvni_launch_rank_info info;
    const lvni_launch_rank_info_options options = {.n_args = 0};
    const lvn_status s = lvni_launch_rank_info_detect(env, &options, &n, &info);
    check_reported(s, &n);
    if (s == LVN_OK) {
        CHECK(info.rank >= 0 && info.rank < info.world && info.local_rank < info.world &&
              info.node_rank < info.world);
        CHECK(info.local_world == LVNI_RANK_INFO_UNKNOWN || info.local_rank < info.local_world);
        CHECK(info.n_ports >= 0 && info.n_ports <= LVNI_RANK_INFO_PORTS);
        for (int i = 0; i < info.n_ports; i++) {
            CHECK(info.ports[i] > 0 && info.ports[i] < 65536);
        }
        lvni_launch_rank_info_print(&info, &out);
        lvni_launch_rank_info_print_json(&info, &out);
        lvni_launch_rank_info_print_export(&info, &out);
        lvni_launch_rank_info_free(&info);
    }
    lvni_core_str_free(&out);
    lvni_core_notices_free(&n);
}

static void choose(char *const *env)
{
    static const char *const uuids[] = {"GPU-5ae2", "GPU-5ae3", "GPU-77", "GPU-78"};
    lvni_core_notices n = {.error = 0};
    lvni_launch_visible v = {.n = 0};
    lvni_launch_device_choice c = {.n = 0};
    const lvni_launch_device_request request = {
        .key = "devices", .spec = lvni_launch_env_raw(env, "DEVICES"), .env = env};
    lvn_status s =
        lvni_launch_visible_make(lvni_launch_env_raw(env, "CUDA_VISIBLE_DEVICES"), 4, uuids, &v);
    if (s == LVN_OK) {
        s = lvni_launch_device_choose(&request, &v, &n, &c);
    }
    check_reported(s, &n);
    for (int i = 0; i < c.n && c.index != NULL; i++) {
        CHECK(c.index[i] >= 0 && c.index[i] < v.n);
    }
    lvni_launch_device_choice_free(&c);
    lvni_launch_visible_free(&v);
    lvni_core_notices_free(&n);
}

static bool same(const lvni_launch_hosts *a, const lvni_launch_hosts *b)
{
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n; i++) {
        equal = strcmp(lvni_launch_hosts_name(a, i), lvni_launch_hosts_name(b, i)) == 0;
    }
    return equal;
}

/* What a list expands to compresses to a list of the same. */
static void expand(const char *list)
{
    lvni_core_notices n = {.error = 0};
    lvni_launch_hosts hosts = {.n = 0}, again = {.n = 0};
    lvni_core_str text = {.len = 0};
    const lvn_status s = lvni_launch_hosts_expand(&hosts, list, &n);
    check_reported(s, &n);
    if (s == LVN_OK && hosts.n < HOSTS) {
        lvni_launch_hosts_compress(&hosts, &text);
        CHECK(lvni_launch_hosts_expand(&again, lvni_core_str_text(&text), &n) == LVN_OK);
        CHECK(same(&hosts, &again));
    }
    lvni_core_str_free(&text);
    lvni_launch_hosts_free(&hosts);
    lvni_launch_hosts_free(&again);
    lvni_core_notices_free(&n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    static environment e;
    make_environment(&e, data, size);
    detect(e.list);
    choose(e.list);
    for (int i = 0; e.list[i] != NULL; i++) {
        const char *value = strchr(e.list[i], '=');
        expand(value != NULL ? value + 1 : e.list[i]);
    }
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
