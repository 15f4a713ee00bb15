/* Opens videos (video.h): the module that decodes, the bytes of a file, its index. */
#include "data/video.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/video_open.h"
#include "tensor/backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the module ---- */

#define MODULE "levin_video.so"
#define PACKAGES "libavformat-dev libavcodec-dev libswscale-dev libavutil-dev"

static const lvni_data_video_table *module;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[512]; /* why there is none */

static void load(void)
{
    char path[4096];
    if (!lvni_tensor_backend_beside(MODULE, path, sizeof path)) {
        snprintf(missing, sizeof missing,
                 "there is no " MODULE
                 " beside levin; it is built where Debian's packages " PACKAGES
                 " are: install them and build levin again");
        return;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed */
    void *symbol = object != NULL ? dlsym(object, LVNI_VIDEO_SYMBOL) : NULL;
    if (symbol == NULL) {
        const char *why = dlerror();
        snprintf(missing, sizeof missing,
                 "%.300s; it needs the libraries that it was built with (Debian: " PACKAGES ")",
                 why != NULL ? why : path);
        return;
    }
    lvni_data_video_table_fn get;
    memcpy(&get, &symbol, sizeof get);
    module = get();
    if (module == NULL || module->version != LVNI_VIDEO_TABLE) {
        module = NULL;
        snprintf(missing, sizeof missing, "%.300s is of another version of levin: build it again",
                 path);
    }
}

lvn_status lvni_data_video_get_module(const char *path, const char *what,
                                      const lvni_data_video_table **out)
{
    pthread_once(&once, load);
    if (module == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: %s cannot be read: %s", path, what, missing);
    }
    *out = module;
    return LVN_OK;
}

lvn_status lvni_data_video_ready(const char *what)
{
    const lvni_data_video_table *table;
    return lvni_data_video_get_module(what, "videos", &table);
}

/* ---- the bytes of a file ---- */

static int read_bytes(void *user, int64_t at, uint8_t *to, int n)
{
    const lvni_data_video_bytes *b = user;
    if (lseek(b->fd, (off_t)at, SEEK_SET) < 0) {
        return -1;
    }
    ssize_t got;
    do {
        got = lvni_core_vfs_get()->read(b->fd, to, (size_t)n);
    } while (got < 0 && errno == EINTR);
    return (int)got;
}

static const char *or_nothing(const char *why)
{
    return why[0] != '\0' ? why : "no reason was given";
}

static lvn_status refuse(const char *path, lvni_data_video_problem problem, const char *why)
{
    switch (problem) {
    case LVNI_VIDEO_NO_STREAM:
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file has no video: 0 frames, only sound or other tracks",
                 path);
    case LVNI_VIDEO_NO_DECODER:
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: the video's codec cannot be decoded here (%s); convert it where it can be: "
                 "%s",
                 path, or_nothing(why), LVNI_VIDEO_CONVERT);
    case LVNI_VIDEO_NO_SIZE:
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: none of the video's frames can be decoded (%s)", path,
                 or_nothing(why));
    case LVNI_VIDEO_NO_MEMORY: LVN_FAIL(LVN_ERR_MEMORY, "%s: out of memory", path);
    case LVNI_VIDEO_BAD_FILE:
    case LVNI_VIDEO_NO_CONTAINER:
    case LVNI_VIDEO_NO_ENCODER:
    case LVNI_VIDEO_FINE: break;
    }
    if (strstr(why, "moov") != NULL) { /* the table of frames of an MP4, mostly at its end */
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: the file's end is missing, with the table of its frames (%s): copy it again, "
                 "or end the recording first",
                 path, why);
    }
    LVN_FAIL(LVN_ERR_CORRUPT,
             "%s: not a video that can be read (%s); if other programs play it, convert it: %s",
             path, or_nothing(why), LVNI_VIDEO_CONVERT);
}

lvn_status lvni_data_video_bytes_open(const lvni_data_video_table *table, const char *path,
                                      lvni_data_video_bytes *out)
{
    *out = (lvni_data_video_bytes){.fd = -1};
    LVN_TRY(lvni_data_contents_open(path, &out->fd, &out->identity));
    const lvni_data_video_source source = {
        .user = out, .read = read_bytes, .bytes = out->identity.bytes};
    lvn_status s = LVN_OK;
    if (source.bytes == 0) {
        s = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__, "%s: the file is empty (0 bytes)",
                          path);
    } else {
        const lvni_data_video_problem problem = table->open(&source, &out->file);
        s = problem == LVNI_VIDEO_FINE ? LVN_OK : refuse(path, problem, table->why());
    }
    if (s != LVN_OK) {
        lvni_data_video_bytes_close(table, out);
    }
    return s;
}

void lvni_data_video_bytes_close(const lvni_data_video_table *table, lvni_data_video_bytes *bytes)
{
    table->close(bytes->file);
    if (bytes->fd >= 0) {
        lvni_core_vfs_get()->close(bytes->fd);
    }
    *bytes = (lvni_data_video_bytes){.fd = -1};
}

/* ---- the index ---- */

static lvn_status index_frames(lvni_data_video *v, lvni_data_video_bytes *bytes)
{
    lvni_data_video_index *index = &v->index;
    bool known = false;
    index->identity = bytes->identity;
    index->libraries = v->table->libraries;
    v->table->stream(bytes->file, &index->stream);
    LVN_TRY(lvni_data_video_index_scan(v->table, bytes->file, v->path, index, &known));
    if (!known) {
        lvni_data_video_bytes_close(v->table, bytes);
        LVN_TRY(lvni_data_video_bytes_open(v->table, v->path, bytes));
        LVN_TRY(lvni_data_video_index_decode(v->table, bytes->file, v->path, index));
    }
    if (index->frames == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the video has 0 frames that can be read%s%s", v->path,
                 index->promised > 0 ? ": " : "",
                 index->promised > 0 ? or_nothing(v->table->why()) : "");
    }
    return LVN_OK;
}

/* By contents, so a folder has room for videos of one name, and of one that moves. */
static lvn_status print_place(const char *indices, const lvni_data_contents *identity,
                              lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s/%016llx.index", indices,
                         (unsigned long long)lvni_data_contents_hash(identity));
    return lvni_core_str_status(out);
}

/* An index that is kept belongs to these contents and to these libraries, which count. Whatever is
 * wrong with it, or with the way to it: the video has it, too. */
static lvn_status take_kept(lvni_data_video *v, const char *indices, const lvni_data_contents *is)
{
    lvni_core_str place = {0};
    lvni_data_video_index *index = &v->index;
    lvn_status s = print_place(indices, is, &place);
    s = s == LVN_OK ? lvni_data_video_index_read(lvni_core_str_text(&place), index) : s;
    if (s == LVN_OK && index->libraries == v->table->libraries &&
        index->identity.bytes == is->bytes && index->identity.ends == is->ends) {
        index->identity.mtime_ns = is->mtime_ns;
        v->kept = lvni_core_strdup(LVNI_TAG_DATA, lvni_core_str_text(&place));
        s = v->kept == NULL ? LVN_ERR_MEMORY : LVN_OK;
    } else if (s == LVN_OK) {
        lvni_data_video_index_free(index);
    }
    lvni_core_str_free(&place);
    if (s != LVN_OK && s != LVN_ERR_MEMORY) {
        lvn_clear_error();
        return LVN_OK;
    }
    return s;
}

static lvn_status make_index(lvni_data_video *v)
{
    lvni_data_video_bytes bytes;
    LVN_TRY(lvni_data_video_bytes_open(v->table, v->path, &bytes));
    const lvn_status s = index_frames(v, &bytes);
    lvni_data_video_bytes_close(v->table, &bytes);
    return s;
}

static lvn_status get_index(lvni_data_video *v, const char *indices)
{
    lvni_data_contents identity;
    if (indices != NULL) {
        LVN_TRY(lvni_data_contents_read(v->path, &identity));
        LVN_TRY(take_kept(v, indices, &identity));
    }
    return v->kept == NULL ? make_index(v) : LVN_OK;
}

lvn_status lvni_data_video_open(const char *path, const char *indices, lvni_data_video **out)
{
    *out = NULL;
    lvni_data_video *v = LVNI_NEW(LVNI_TAG_DATA, lvni_data_video);
    if (v == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_data_video_get_module(path, "videos", &v->table));
    v->path = lvni_core_strdup(LVNI_TAG_DATA, path);
    s = v->path == NULL ? LVN_ERR_MEMORY : get_index(v, indices);
    if (s == LVN_OK) {
        *out = v;
        return LVN_OK;
    }
done:
    lvni_data_video_close(v);
    return s;
}

lvn_status lvni_data_video_keep(const lvni_data_video *video, const char *indices)
{
    lvni_core_str place = {0};
    lvn_status s = print_place(indices, &video->index.identity, &place);
    if (s == LVN_OK &&
        (video->kept == NULL || strcmp(video->kept, lvni_core_str_text(&place)) != 0)) {
        s = lvni_core_mkdirs(indices);
        s = s == LVN_OK ? lvni_data_video_index_write(lvni_core_str_text(&place), &video->index)
                        : s;
        if (s != LVN_OK && s != LVN_ERR_MEMORY) {
            lvn_clear_error();
            s = LVN_OK;
        }
    }
    lvni_core_str_free(&place);
    return s;
}

void lvni_data_video_close(lvni_data_video *video)
{
    if (video != NULL) {
        lvni_data_video_index_free(&video->index);
        lvni_core_free(video->path);
        lvni_core_free(video->kept);
        lvni_core_free(video);
    }
}

/* ---- what it is ---- */

double lvni_data_video_time(const lvni_data_video *video, int64_t frame)
{
    const lvni_data_video_index *index = &video->index;
    return (double)(index->time[frame] - index->time[0]) * (double)index->stream.unit_num /
           (double)index->stream.unit_den;
}

void lvni_data_video_describe(const lvni_data_video *video, lvni_data_video_info *out)
{
    const lvni_data_video_index *index = &video->index;
    const lvni_data_video_stream *stream = &index->stream;
    const bool lying = stream->orientation >= 5;
    const double last = lvni_data_video_time(video, index->frames - 1);
    *out =
        (lvni_data_video_info){.path = video->path,
                               .frames = index->frames,
                               .promised = index->promised,
                               .width = lying ? stream->height : stream->width,
                               .height = lying ? stream->width : stream->height,
                               .rate = stream->rate,
                               .duration = last + (stream->rate > 0.0 ? 1.0 / stream->rate : 0.0),
                               .codec = stream->codec,
                               .container = stream->container,
                               .contents = lvni_data_contents_hash(&index->identity)};
}

lvn_status lvni_data_video_check(const lvni_data_video *video)
{
    const lvni_data_video_index *index = &video->index;
    if (index->promised > index->frames) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: the file is cut off or damaged: frames 0 to %lld can be read, frame %lld "
                 "cannot; copy it again, or keep what can be read: %s",
                 video->path, (long long)(index->frames - 1), (long long)index->frames,
                 LVNI_VIDEO_CONVERT);
    }
    return LVN_OK;
}
