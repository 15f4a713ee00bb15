/* The configuration of a run for TensorBoard: a session of its plugin hparams, whose table compares
 * runs, and a text. Called by tensorboard.c. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "log/tensorboard.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

#define START_TAG "_hparams_/session_start_info"
#define END_TAG "_hparams_/session_end_info"

/* An empty value whose metadata hold the plugin's message. */
static lvn_status add_plugin_data(lvni_log_tensorboard *t, char *tag,
                                  const LvniLogPb__HparamsPluginData *data)
{
    char kind[] = "hparams";
    float zero = 0.0f;
    LvniLogPb__PluginData plugin = LVNI_LOG_PB__PLUGIN_DATA__INIT;
    LvniLogPb__Tensor tensor = LVNI_LOG_PB__TENSOR__INIT;
    const size_t n = lvni_log_pb__hparams_plugin_data__get_packed_size(data);
    uint8_t *content = lvni_core_alloc(LVNI_TAG_CORE, n);
    if (content == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_log_pb__hparams_plugin_data__pack(data, content);
    plugin.plugin_name = kind;
    plugin.content = (ProtobufCBinaryData){n, content};
    tensor.dtype = LVNI_LOG_TENSOR_FLOAT;
    tensor.n_float_val = 1;
    tensor.float_val = &zero;
    const lvn_status s = lvni_log_tensorboard_add_tensor(t, 0, tag, &plugin, &tensor);
    lvni_core_free(content);
    return s;
}

/* Hyperparameters: messages, the list of them, and the texts of values that are lists. */
typedef struct session {
    LvniLogPb__Hparam *hparam, **list;
    LvniLogPb__HparamValue *value;
    lvni_core_str *text;
    size_t n;
} session;

static void add_hparam(session *s, const char *key, const json_t *value)
{
    LvniLogPb__HparamValue *its = &s->value[s->n];
    lvni_core_str *text = &s->text[s->n];
    *its = (LvniLogPb__HparamValue)LVNI_LOG_PB__HPARAM_VALUE__INIT;
    if (json_is_boolean(value)) {
        its->kind_case = LVNI_LOG_PB__HPARAM_VALUE__KIND_BOOL_VALUE;
        its->bool_value = json_is_true(value);
    } else if (json_is_number(value)) {
        its->kind_case = LVNI_LOG_PB__HPARAM_VALUE__KIND_NUMBER_VALUE;
        its->number_value = json_number_value(value);
    } else {
        its->kind_case = LVNI_LOG_PB__HPARAM_VALUE__KIND_STRING_VALUE;
        if (!json_is_string(value)) {
            lvni_core_json_print(value, JSON_ENCODE_ANY, text);
        }
        its->string_value =
            (char *)(json_is_string(value) ? json_string_value(value) : lvni_core_str_text(text));
    }
    s->hparam[s->n] = (LvniLogPb__Hparam)LVNI_LOG_PB__HPARAM__INIT;
    s->hparam[s->n].key = (char *)key;
    s->hparam[s->n].value = its;
    s->list[s->n] = &s->hparam[s->n];
    s->n++;
}

static lvn_status add_session(lvni_log_tensorboard *t, session *s, json_t *config,
                              const char *run_id)
{
    char tag[] = START_TAG;
    LvniLogPb__SessionStartInfo start = LVNI_LOG_PB__SESSION_START_INFO__INIT;
    LvniLogPb__HparamsPluginData data = LVNI_LOG_PB__HPARAMS_PLUGIN_DATA__INIT;
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value)
    {
        if (!json_is_null(value)) { /* a key without a value */
            add_hparam(s, key, value);
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        LVN_TRY(lvni_core_str_status(&s->text[i]));
    }
    start.hparams = s->list;
    start.n_hparams = s->n;
    start.group_name = (char *)(run_id == NULL ? "" : run_id);
    start.start_time_secs = (double)time(NULL);
    data.data_case = LVNI_LOG_PB__HPARAMS_PLUGIN_DATA__DATA_SESSION_START_INFO;
    data.session_start_info = &start;
    return add_plugin_data(t, tag, &data);
}

static lvn_status add_hparams(lvni_log_tensorboard *t, json_t *config, const char *run_id)
{
    const size_t n = json_object_size(config) + 1;
    session s = {.hparam = lvni_core_calloc(LVNI_TAG_CORE, n, sizeof *s.hparam),
                 .list = lvni_core_calloc(LVNI_TAG_CORE, n, sizeof *s.list),
                 .value = lvni_core_calloc(LVNI_TAG_CORE, n, sizeof *s.value),
                 .text = lvni_core_calloc(LVNI_TAG_CORE, n, sizeof *s.text)};
    lvn_status status = LVN_ERR_MEMORY;
    if (s.hparam != NULL && s.list != NULL && s.value != NULL && s.text != NULL) {
        status = add_session(t, &s, config, run_id);
    }
    for (size_t i = 0; i < s.n; i++) {
        lvni_core_str_free(&s.text[i]);
    }
    lvni_core_free(s.text);
    lvni_core_free(s.value);
    lvni_core_free(s.list);
    lvni_core_free(s.hparam);
    return status;
}

/* A block of code, as Markdown has it: a line for each key, four blanks before it. */
static lvn_status add_text(lvni_log_tensorboard *t, int64_t step, json_t *config)
{
    lvni_core_str text = {0};
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value)
    {
        lvni_core_str_append(&text, "    ");
        lvni_core_str_append(&text, key);
        lvni_core_str_append(&text, ": ");
        lvni_core_json_print(value, JSON_ENCODE_ANY, &text);
        lvni_core_str_char(&text, '\n');
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    s = lvni_log_tensorboard_add_text(t, step, "config", lvni_core_str_text(&text));
done:
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_log_tensorboard_add_config(lvni_log_tensorboard *t,
                                           const lvni_log_loggers_options *o)
{
    json_t *config;
    if (o->config_json == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_json_read("logger", "the configuration", o->config_json,
                                strlen(o->config_json), 0, LVNI_JSON_INNER, &config));
    lvn_status s;
    LVNI_TRY_DONE(s, add_hparams(t, config, o->run_id));
    s = add_text(t, o->step, config);
done:
    json_decref(config);
    return s;
}

lvn_status lvni_log_tensorboard_add_end(lvni_log_tensorboard *t, bool success)
{
    char tag[] = END_TAG;
    LvniLogPb__SessionEndInfo end = LVNI_LOG_PB__SESSION_END_INFO__INIT;
    LvniLogPb__HparamsPluginData data = LVNI_LOG_PB__HPARAMS_PLUGIN_DATA__INIT;
    end.status = success ? 1 : 2;
    end.end_time_secs = (double)time(NULL);
    data.data_case = LVNI_LOG_PB__HPARAMS_PLUGIN_DATA__DATA_SESSION_END_INFO;
    data.session_end_info = &end;
    return add_plugin_data(t, tag, &data);
}
