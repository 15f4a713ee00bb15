/* The table that levin loads. The files with kernels are listed in files.cmake alone. */
#include "library.cuh"

#define X(file) extern const kernel_rows rows_##file;
LEVIN_CUDA_ROWS
#undef X

extern const lvn_backend_flat lvnc_flat;

enum { MOST_ROWS = 256 };
static lvn_backend_kernel rows[MOST_ROWS];

static lvn_status set(const char *name, const char *value)
{
    if (strcmp(name, "tf32") == 0) {
        lvnc_allow_tf32(strcmp(value, "true") == 0);
    }
    return LVN_OK;
}

static void add(lvn_backend *table, const kernel_rows &more)
{
    if (table->n_kernels + more.n > MOST_ROWS) {
        abort(); /* of the build: MOST_ROWS is too small */
    }
    for (int i = 0; i < more.n; i++) {
        rows[table->n_kernels++] = more.row[i];
    }
}

extern "C" LVN_API const lvn_backend *lvn_backend_table(void);

const lvn_backend *lvn_backend_table(void)
{
    static lvn_backend table;
    if (table.version != 0) {
        return &table;
    }
    table.version = LVN_BACKEND_VERSION;
    table.table_size = sizeof table;
    table.name = LVNC_NAME;
    table.count = lvnc_count;
    table.open = lvnc_open;
    table.close = lvnc_close;
    table.take = lvnc_take;
    table.give = lvnc_give;
    table.host_take = lvnc_host_take;
    table.host_give = lvnc_host_give;
    table.stream_create = lvnc_stream_create;
    table.stream_destroy = lvnc_stream_destroy;
    table.stream_wait = lvnc_stream_wait;
    table.stream_failed = lvnc_stream_failed;
    table.stream_clear = lvnc_stream_clear;
    table.event_create = lvnc_event_create;
    table.event_destroy = lvnc_event_destroy;
    table.event_record = lvnc_event_record;
    table.event_follow = lvnc_event_follow;
    table.event_wait = lvnc_event_wait;
    table.host_call = lvnc_host_call;
    table.copy = lvnc_copy;
    table.upload = lvnc_upload;
    table.zero = lvnc_zero;
    table.set = set;
    table.kernels = rows;
    table.flat = lvnc_flat;
#ifndef LEVIN_CUDA_ON_HOST
    table.capture_begin = lvnc_capture_begin;
    table.capture_end = lvnc_capture_end;
    table.graph_replay = lvnc_graph_replay;
    table.graph_destroy = lvnc_graph_destroy;
    table.native_stream = lvnc_native_stream;
#endif
#define X(file) add(&table, rows_##file);
    LEVIN_CUDA_ROWS
#undef X
    return &table;
}
