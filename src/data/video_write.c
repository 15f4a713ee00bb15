/* Writes videos (video_writer.h): the module encodes (video_module.h), the bytes go to a file that
 * gets its name when it is whole. */
#include "data/video_writer.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "data/video_open.h"

#include <string.h>

struct lvni_data_video_writer {
    const lvni_data_video *like;
    char *path;
    const char *encoder;
    lvni_core_atomic_file *file;
    lvni_data_video_output *output;
    int64_t next; /* frame */
    bool failed;  /* the file, with this error */
    lvn_error error;
};

static const char *const encoders[] = {"libx264", "mpeg4"};

static bool write_bytes(void *user, int64_t at, const uint8_t *bytes, int n)
{
    lvni_data_video_writer *w = user;
    lvn_status s = lvni_core_atomic_seek(w->file, at);
    s = s == LVN_OK ? lvni_core_atomic_write(w->file, bytes, (size_t)n) : s;
    if (s != LVN_OK && !w->failed) {
        w->failed = true;
        w->error = *lvn_last_error();
    }
    return s == LVN_OK;
}

/* The file's error, where there was one, else the libraries'. */
static lvn_status explain(const lvni_data_video_writer *w, lvni_data_video_problem problem)
{
    const char *why = w->like->table->why();
    if (w->failed) {
        return lvn_error_adopt(&w->error);
    }
    if (problem == LVNI_VIDEO_NO_MEMORY) {
        LVN_FAIL(LVN_ERR_MEMORY, "%s: out of memory", w->path);
    }
    if (problem == LVNI_VIDEO_NO_ENCODER) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: no video can be written: FFmpeg's libraries have no encoder libx264 or mpeg4 "
                 "for it (%s); Debian's packages libavcodec59 (12) and libavcodec61 (13) have both",
                 w->path, why);
    }
    LVN_FAIL(LVN_ERR_IO, "%s: frame %lld cannot be encoded (%s)", w->path, (long long)w->next, why);
}

static lvn_status open_output(lvni_data_video_writer *w,
                              const lvni_data_video_writer_options *options)
{
    const lvni_data_video_target target = {.user = w, .write = write_bytes};
    const lvni_data_video_stream *stream = &w->like->index.stream;
    const lvni_data_video_form form = {.width = options->width,
                                       .height = options->height,
                                       .unit_num = stream->unit_num,
                                       .unit_den = stream->unit_den,
                                       .rate = stream->rate};
    lvni_data_video_problem problem = LVNI_VIDEO_NO_ENCODER;
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders && problem == LVNI_VIDEO_NO_ENCODER;
         i++) {
        if (options->encoder == NULL || strcmp(options->encoder, encoders[i]) == 0) {
            w->encoder = encoders[i];
            problem = w->like->table->create(&target, &form, w->encoder, &w->output);
        }
    }
    return problem == LVNI_VIDEO_FINE ? LVN_OK : explain(w, problem);
}

lvn_status lvni_data_video_writer_open(const lvni_data_video_writer_options *options,
                                       lvni_data_video_writer **out)
{
    *out = NULL;
    LVN_ARG(options->width > 0 && options->height > 0, "%s: a video of %d x %d pixels",
            options->path, options->width, options->height);
    lvni_data_video_writer *w = LVNI_NEW(LVNI_TAG_DATA, lvni_data_video_writer);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->like = options->like;
    w->path = lvni_core_strdup(LVNI_TAG_DATA, options->path);
    lvn_status s = w->path == NULL ? LVN_ERR_MEMORY : lvni_core_atomic_open(w->path, &w->file);
    s = s == LVN_OK ? open_output(w, options) : s;
    if (s != LVN_OK) {
        lvni_data_video_writer_abort(w);
        return s;
    }
    *out = w;
    return LVN_OK;
}

const char *lvni_data_video_writer_encoder(const lvni_data_video_writer *writer)
{
    return writer->encoder;
}

lvn_status lvni_data_video_writer_add(lvni_data_video_writer *w, const uint8_t *rgb)
{
    const lvni_data_video_index *index = &w->like->index;
    LVN_ARG(w->next < index->frames, "%s: frame %lld of a video like one of %lld frames", w->path,
            (long long)w->next, (long long)index->frames);
    const int64_t time = index->time[w->next] - index->time[0];
    if (w->like->table->encode(w->output, time, rgb) != 1) {
        return explain(w, LVNI_VIDEO_BAD_FILE);
    }
    w->next++;
    return LVN_OK;
}

lvn_status lvni_data_video_writer_commit(lvni_data_video_writer *w)
{
    lvn_status s = w->like->table->complete(w->output) == 1 && !w->failed
                       ? LVN_OK
                       : explain(w, LVNI_VIDEO_BAD_FILE);
    if (s == LVN_OK) {
        s = lvni_core_atomic_commit(w->file);
        w->file = NULL;
    }
    lvni_data_video_writer_abort(w);
    return s;
}

void lvni_data_video_writer_abort(lvni_data_video_writer *w)
{
    if (w != NULL) {
        if (w->output != NULL) {
            w->like->table->discard(w->output);
        }
        lvni_core_atomic_abort(w->file);
        lvni_core_free(w->path);
        lvni_core_free(w);
    }
}
