/* The records and the names of TensorBoard's files (event_file.h). */
#include "log/event_file.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/vfs.h"
#include "log/logger_class.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BEGINNING "events.out.tfevents."

uint32_t lvni_log_crc32c(const void *data, size_t n)
{
    /* of four bits, polynomial 0x82f63b78 (reflected) */
    static const uint32_t table[16] = {0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u,
                                       0x417b1dbcu, 0x5125dad3u, 0x61c69362u, 0x7198540du,
                                       0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u,
                                       0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u};
    const uint8_t *byte = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= byte[i];
        crc = table[crc & 15u] ^ (crc >> 4);
        crc = table[crc & 15u] ^ (crc >> 4);
    }
    return crc ^ 0xffffffffu;
}

uint32_t lvni_log_crc32c_masked(const void *data, size_t n)
{
    const uint32_t crc = lvni_log_crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void put_le(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

uint8_t *lvni_log_record_begin(lvni_core_str *out, size_t n)
{
    uint8_t *record =
        (uint8_t *)lvni_core_str_room(out, LVNI_LOG_RECORD_HEAD + n + LVNI_LOG_RECORD_TAIL);
    if (record == NULL) {
        return NULL;
    }
    put_le(record, n, 8);
    put_le(record + 8, lvni_log_crc32c_masked(record, 8), 4);
    return record + LVNI_LOG_RECORD_HEAD;
}

void lvni_log_record_end(lvni_core_str *out, size_t n)
{
    uint8_t *tail = (uint8_t *)out->data + out->len - LVNI_LOG_RECORD_TAIL;
    put_le(tail, lvni_log_crc32c_masked(tail - n, n), 4);
}

/* The largest time in the names of dir's event files, 0: there is none; fresh: they are removed. */
static long long look_through(const char *dir, bool fresh)
{
    long long newest = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, BEGINNING, strlen(BEGINNING)) != 0) {
            continue;
        }
        const long long its = strtoll(e->d_name + strlen(BEGINNING), NULL, 10);
        newest = its > newest ? its : newest;
        char *path = fresh ? lvni_log_path(dir, e->d_name) : NULL;
        if (path != NULL) {
            lvni_core_vfs_get()->unlink(path);
            lvni_core_free(path);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return fresh ? 0 : newest;
}

lvn_status lvni_log_event_file_open(const char *dir, bool fresh, lvni_log_event_file *out)
{
    char host[64], name[160];
    *out = (lvni_log_event_file){.fd = -1};
    lvni_core_host_name(host, sizeof host);
    for (char *c = host; *c != '\0'; c++) {
        *c = *c == '/' ? '_' : *c; /* a path is made of it */
    }
    /* behind the others, also where this machine's clock is behind that of the one before */
    const long long newest = look_through(dir, fresh), now = (long long)time(NULL);
    snprintf(name, sizeof name, BEGINNING "%010lld.%s.%lld.0", now > newest ? now : newest + 1,
             host, (long long)getpid());
    out->path = lvni_log_path(dir, name);
    const lvn_status s =
        out->path == NULL ? LVN_ERR_MEMORY : lvni_core_append_open(out->path, true, &out->fd);
    if (s != LVN_OK) {
        out->fd = -1;
        lvni_log_event_file_close(out);
    }
    return s;
}

lvn_status lvni_log_event_file_write(const lvni_log_event_file *f, const lvni_core_str *records)
{
    return lvni_core_append_write(f->fd, f->path, records->data, records->len);
}

void lvni_log_event_file_close(lvni_log_event_file *f)
{
    if (f->fd >= 0) {
        lvni_core_vfs_get()->close(f->fd);
    }
    lvni_core_free(f->path);
    *f = (lvni_log_event_file){.fd = -1};
}
