/* TensorBoard's event files: scalars, images, histograms, text, and the configuration as
 * hyperparameters (tensorboard_config.c). All values of a step are one record; a record is one
 * system call, so a process that is killed leaves whole ones. Called through the table of
 * loggers.c. */
#include "log/tensorboard.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "log/logger_class.h"

#include <string.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

lvn_status lvni_log_tensorboard_add(lvni_log_tensorboard *t, LvniLogPb__Event *event)
{
    event->wall_time = now_s();
    const size_t n = lvni_log_pb__event__get_packed_size(event);
    uint8_t *payload = lvni_log_record_begin(&t->records, n);
    LVN_TRY(lvni_core_str_status(&t->records));
    lvni_log_pb__event__pack(event, payload);
    lvni_log_record_end(&t->records, n);
    return LVN_OK;
}

lvn_status lvni_log_tensorboard_add_value(lvni_log_tensorboard *t, int64_t step,
                                          LvniLogPb__SummaryValue *value)
{
    LvniLogPb__Event event = LVNI_LOG_PB__EVENT__INIT;
    LvniLogPb__Summary summary = LVNI_LOG_PB__SUMMARY__INIT;
    summary.n_value = 1;
    summary.value = &value;
    event.step = step;
    event.what_case = LVNI_LOG_PB__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return lvni_log_tensorboard_add(t, &event);
}

lvn_status lvni_log_tensorboard_add_tensor(lvni_log_tensorboard *t, int64_t step, const char *tag,
                                           LvniLogPb__PluginData *plugin, LvniLogPb__Tensor *tensor)
{
    LvniLogPb__SummaryMetadata metadata = LVNI_LOG_PB__SUMMARY_METADATA__INIT;
    LvniLogPb__TensorDim dim = LVNI_LOG_PB__TENSOR_DIM__INIT, *dims = &dim;
    LvniLogPb__TensorShape shape = LVNI_LOG_PB__TENSOR_SHAPE__INIT;
    LvniLogPb__SummaryValue value = LVNI_LOG_PB__SUMMARY_VALUE__INIT;
    metadata.plugin_data = plugin;
    dim.size = 1;
    shape.n_dim = 1;
    shape.dim = &dims;
    tensor->tensor_shape = &shape;
    value.tag = (char *)tag;
    value.metadata = &metadata;
    value.value_case = LVNI_LOG_PB__SUMMARY_VALUE__VALUE_TENSOR;
    value.tensor = tensor;
    return lvni_log_tensorboard_add_value(t, step, &value);
}

lvn_status lvni_log_tensorboard_add_text(lvni_log_tensorboard *t, int64_t step, const char *tag,
                                         const char *text)
{
    LvniLogPb__PluginData plugin = LVNI_LOG_PB__PLUGIN_DATA__INIT;
    LvniLogPb__Tensor tensor = LVNI_LOG_PB__TENSOR__INIT;
    char kind[] = "text";
    ProtobufCBinaryData content = {strlen(text), (uint8_t *)text};
    plugin.plugin_name = kind;
    tensor.dtype = LVNI_LOG_TENSOR_STRING;
    tensor.n_string_val = 1;
    tensor.string_val = &content;
    return lvni_log_tensorboard_add_tensor(t, step, tag, &plugin, &tensor);
}

/* What was added goes to the file. */
static lvn_status flush(lvni_log_tensorboard *t)
{
    const lvn_status s = lvni_log_event_file_write(&t->file, &t->records);
    lvni_core_str_clear(&t->records);
    return s;
}

/* ---- scalars ---- */

static lvn_status make_room(lvni_log_tensorboard *t, int n)
{
    if (n <= t->room) {
        return LVN_OK;
    }
    LvniLogPb__SummaryValue *value =
        lvni_core_realloc(LVNI_TAG_CORE, t->value, (size_t)n * sizeof *value);
    t->value = value == NULL ? t->value : value;
    LvniLogPb__SummaryValue **list =
        lvni_core_realloc(LVNI_TAG_CORE, t->list, (size_t)n * sizeof *list);
    t->list = list == NULL ? t->list : list;
    if (value == NULL || list == NULL) {
        return LVN_ERR_MEMORY;
    }
    t->room = n;
    return LVN_OK;
}

static lvn_status log_scalars(void *logger, const lvni_log_point *p)
{
    lvni_log_tensorboard *t = logger;
    LvniLogPb__Event event = LVNI_LOG_PB__EVENT__INIT;
    LvniLogPb__Summary summary = LVNI_LOG_PB__SUMMARY__INIT;
    const int n = p->n + (p->step != t->epoch_step); /* the last: the epoch */
    LVN_TRY(make_room(t, n));
    for (int i = 0; i < n; i++) {
        t->value[i] = (LvniLogPb__SummaryValue)LVNI_LOG_PB__SUMMARY_VALUE__INIT;
        t->value[i].tag = (char *)(i < p->n ? p->value[i].name : "epoch");
        t->value[i].value_case = LVNI_LOG_PB__SUMMARY_VALUE__VALUE_SIMPLE_VALUE;
        t->value[i].simple_value = (float)(i < p->n ? p->value[i].value : (double)p->epoch);
        t->list[i] = &t->value[i];
    }
    t->epoch_step = p->step;
    summary.n_value = (size_t)n;
    summary.value = t->list;
    event.step = p->step;
    event.what_case = LVNI_LOG_PB__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    LVN_TRY(lvni_log_tensorboard_add(t, &event));
    return flush(t);
}

/* ---- images, histograms, text ---- */

static lvn_status log_image(void *logger, int64_t step, const lvni_log_image *image)
{
    lvni_log_tensorboard *t = logger;
    LvniLogPb__Image its = LVNI_LOG_PB__IMAGE__INIT;
    LvniLogPb__SummaryValue value = LVNI_LOG_PB__SUMMARY_VALUE__INIT;
    char *png;
    size_t bytes;
    LVN_TRY(lvni_core_file_read(image->path, LVNI_LOG_MAX_IMAGE, &png, &bytes));
    its.width = image->width;
    its.height = image->height;
    its.colorspace = image->channels;
    its.encoded_image_string = (ProtobufCBinaryData){bytes, (uint8_t *)png};
    value.tag = (char *)image->name;
    value.value_case = LVNI_LOG_PB__SUMMARY_VALUE__VALUE_IMAGE;
    value.image = &its;
    const lvn_status s = lvni_log_tensorboard_add_value(t, step, &value);
    lvni_core_free(png);
    LVN_TRY(s);
    return flush(t);
}

static lvn_status log_histogram(void *logger, int64_t step, const lvni_log_histogram *h)
{
    lvni_log_tensorboard *t = logger;
    LvniLogPb__Histogram its = LVNI_LOG_PB__HISTOGRAM__INIT;
    LvniLogPb__SummaryValue value = LVNI_LOG_PB__SUMMARY_VALUE__INIT;
    its.min = h->min;
    its.max = h->max;
    its.num = h->n;
    its.sum = h->sum;
    its.sum_squares = h->sum_squares;
    its.n_bucket_limit = its.n_bucket = (size_t)h->n_buckets;
    its.bucket_limit = (double *)h->limit;
    its.bucket = (double *)h->count;
    value.tag = (char *)h->name;
    value.value_case = LVNI_LOG_PB__SUMMARY_VALUE__VALUE_HISTO;
    value.histo = &its;
    LVN_TRY(lvni_log_tensorboard_add_value(t, step, &value));
    return flush(t);
}

static lvn_status log_text(void *logger, int64_t step, const char *name, const char *text)
{
    lvni_log_tensorboard *t = logger;
    LVN_TRY(lvni_log_tensorboard_add_text(t, step, name, text));
    return flush(t);
}

/* ---- beginning and end ---- */

static void destroy_tensorboard(void *logger)
{
    lvni_log_tensorboard *t = logger;
    lvni_log_event_file_close(&t->file);
    lvni_core_str_free(&t->records);
    lvni_core_free(t->value);
    lvni_core_free(t->list);
    lvni_core_free(t);
}

static lvn_status begin(lvni_log_tensorboard *t, const lvni_log_loggers_options *o)
{
    char version[] = "brain.Event:2";
    LvniLogPb__SessionLog session = LVNI_LOG_PB__SESSION_LOG__INIT;
    LvniLogPb__Event event = LVNI_LOG_PB__EVENT__INIT;
    event.what_case = LVNI_LOG_PB__EVENT__WHAT_FILE_VERSION;
    event.file_version = version;
    LVN_TRY(lvni_log_event_file_open(o->dir, !o->resumed, &t->file));
    LVN_TRY(lvni_log_tensorboard_add(t, &event));
    /* the reader forgets this step and later ones of the files before, unless this is the first
     * start that it sees */
    session.status = LVNI_LOG_PB__SESSION_LOG__STATUS__START;
    event.step = o->step + 1;
    event.what_case = LVNI_LOG_PB__EVENT__WHAT_SESSION_LOG;
    event.session_log = &session;
    LVN_TRY(lvni_log_tensorboard_add(t, &event));
    LVN_TRY(lvni_log_tensorboard_add_config(t, o));
    return flush(t);
}

static lvn_status create_tensorboard(const lvni_log_loggers_options *o, const char *argument,
                                     void **out)
{
    (void)argument;
    lvni_log_tensorboard *t = LVNI_NEW(LVNI_TAG_CORE, lvni_log_tensorboard);
    if (t == NULL) {
        return LVN_ERR_MEMORY;
    }
    t->file.fd = -1;
    t->epoch_step = -1;
    const lvn_status s = begin(t, o);
    if (s != LVN_OK) {
        destroy_tensorboard(t);
        return s;
    }
    *out = t;
    return LVN_OK;
}

static lvn_status end_tensorboard(void *logger, lvni_log_end end)
{
    lvni_log_tensorboard *t = logger;
    /* a run that was stopped goes on: its session stays open */
    LVN_TRY(end == LVNI_LOG_STOPPED ? LVN_OK
                                    : lvni_log_tensorboard_add_end(t, end == LVNI_LOG_FINISHED));
    return flush(t);
}

const lvni_log_logger_class lvni_log_tensorboard_class = {.name = "tensorboard",
                                                          .create = create_tensorboard,
                                                          .scalars = log_scalars,
                                                          .image = log_image,
                                                          .histogram = log_histogram,
                                                          .text = log_text,
                                                          .end = end_tensorboard,
                                                          .destroy = destroy_tensorboard};
