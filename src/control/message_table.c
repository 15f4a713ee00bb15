/* The table of all ranks as one body (message.h): first the different texts, then one row of
 * numbers per rank. With 1,024 ranks it travels 1,024 times. */
#include "message.h"

#include "core/alloc.h"

#include <string.h>

enum { TEXTS = 5, ROW = 6 * 4 + 8 + TEXTS * 4 };

static const char *text_of(const lvni_control_member *m, int which)
{
    const char *const texts[TEXTS] = {m->host, m->boot_id, m->device, m->driver, m->fingerprint};
    return texts[which] == NULL ? "" : texts[which];
}

/* The different texts, with a hash table over them (-1: free). */
typedef struct pool {
    const char **texts;
    int32_t *slot;
    uint32_t n, mask;
} pool;

static uint32_t index_of(pool *p, const char *text)
{
    static const lvni_control_token no_key = {{0}};
    const lvni_control_token hash = lvni_control_siphash(&no_key, text, strlen(text));
    uint32_t at =
        ((uint32_t)hash.b[0] | (uint32_t)hash.b[1] << 8 | (uint32_t)hash.b[2] << 16) & p->mask;
    while (p->slot[at] >= 0) {
        if (strcmp(p->texts[p->slot[at]], text) == 0) {
            return (uint32_t)p->slot[at];
        }
        at = (at + 1) & p->mask;
    }
    p->texts[p->n] = text;
    p->slot[at] = (int32_t)p->n;
    return p->n++;
}

static void put_rows(lvni_core_str *out, pool *p, const lvni_control_member *members, int world)
{
    for (int r = 0; r < world; r++) {
        const lvni_control_member *m = &members[r];
        const int numbers[6] = {m->rank,      m->local_rank, m->local_world,
                                m->node_rank, m->host_index, m->cpus};
        for (int i = 0; i < 6; i++) {
            lvni_control_put_u32(out, (uint32_t)numbers[i]);
        }
        lvni_control_put_u64(out, (uint64_t)m->pid);
        for (int i = 0; i < TEXTS; i++) {
            lvni_control_put_u32(out, index_of(p, text_of(m, i)));
        }
    }
}

lvn_status lvni_control_put_table(lvni_core_str *out, const lvni_control_member *members, int world,
                                  int nodes)
{
    pool p = {.mask = 1};
    while (p.mask < 2 * TEXTS * (uint32_t)world) {
        p.mask *= 2;
    }
    lvni_core_str rows = {0};
    p.texts = lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)TEXTS * (size_t)world, sizeof *p.texts);
    p.slot = lvni_core_alloc(LVNI_TAG_CONTROL, p.mask * sizeof *p.slot);
    lvn_status status = LVN_ERR_MEMORY;
    if (p.texts != NULL && p.slot != NULL) {
        memset(p.slot, 0xff, p.mask * sizeof *p.slot);
        p.mask--;
        put_rows(&rows, &p, members, world);
        lvni_control_put_u32(out, (uint32_t)nodes);
        lvni_control_put_u32(out, p.n);
        for (uint32_t i = 0; i < p.n; i++) {
            lvni_control_put_bytes(out, p.texts[i], strlen(p.texts[i]) + 1);
        }
        status = lvni_core_str_status(&rows);
        if (status == LVN_OK) {
            lvni_core_str_append_n(out, lvni_core_str_text(&rows), rows.len);
            status = lvni_core_str_status(out);
        }
    }
    lvni_core_str_free(&rows);
    lvni_core_free(p.slot);
    lvni_core_free(p.texts);
    return status;
}

static bool scan_texts(lvni_control_scan *scan, const char **texts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t len = 0;
        texts[i] = lvni_control_scan_bytes(scan, &len);
        if (len == 0 || texts[i][len - 1] != '\0') {
            return false;
        }
    }
    return !scan->bad;
}

static bool scan_row(lvni_control_scan *scan, const char *const *texts, uint32_t n_texts,
                     lvni_control_member *m)
{
    int *const numbers[6] = {&m->rank,      &m->local_rank, &m->local_world,
                             &m->node_rank, &m->host_index, &m->cpus};
    for (int i = 0; i < 6; i++) {
        *numbers[i] = (int)lvni_control_scan_u32(scan);
    }
    m->pid = (int64_t)lvni_control_scan_u64(scan);
    const char **const places[TEXTS] = {&m->host, &m->boot_id, &m->device, &m->driver,
                                        &m->fingerprint};
    for (int i = 0; i < TEXTS; i++) {
        const uint32_t at = lvni_control_scan_u32(scan);
        if (at >= n_texts) {
            return false;
        }
        *places[i] = texts[at];
    }
    return !scan->bad;
}

lvn_status lvni_control_scan_table(const char *bytes, size_t n, int world,
                                   lvni_control_member **out, int *nodes)
{
    lvni_control_scan scan = {.at = (const unsigned char *)bytes, .left = n};
    *out = NULL;
    *nodes = (int)lvni_control_scan_u32(&scan);
    const uint32_t n_texts = lvni_control_scan_u32(&scan);
    bool good = !scan.bad && *nodes > 0 && *nodes <= world && n_texts <= TEXTS * (uint32_t)world;
    const char **texts =
        good ? lvni_core_calloc(LVNI_TAG_CONTROL, n_texts + 1, sizeof *texts) : NULL;
    lvni_control_member *members =
        good ? lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)world, sizeof *members) : NULL;
    const bool room = !good || (texts != NULL && members != NULL);
    if (texts != NULL && members != NULL) {
        good = scan_texts(&scan, texts, n_texts) && scan.left == (size_t)world * ROW;
        for (int r = 0; good && r < world; r++) {
            good = scan_row(&scan, texts, n_texts, &members[r]) && members[r].rank == r;
        }
    }
    lvni_core_free(texts);
    if (room && good) {
        *out = members;
        return LVN_OK;
    }
    lvni_core_free(members);
    if (!room) {
        return LVN_ERR_MEMORY;
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "the store's table of ranks cannot be read (%zu bytes)", n);
}
