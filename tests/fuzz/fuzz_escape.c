/* Escaping of names, and the bounded reader of JSON. */
#include "fuzz.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/json_read.h"

#include <string.h>

static void check_printable(const char *text)
{
    for (size_t at = 0, n = strlen(text), k; at < n; at += k) {
        k = lvni_core_escape_plain(text + at, n - at);
        CHECK(k > 0);
    }
}

/* The bytes without zeros: a name. */
static void check_name(const char *name)
{
    lvni_core_str text = {0}, again = {0}, back = {0}, json = {0};
    lvni_core_str_escape(&text, name, strlen(name), LVNI_ESCAPE_TEXT);
    check_printable(lvni_core_str_text(&text));
    lvni_core_str_escape(&again, lvni_core_str_text(&text), text.len, LVNI_ESCAPE_TEXT);
    CHECK(strcmp(lvni_core_str_text(&text), lvni_core_str_text(&again)) == 0);
    lvni_core_str_escape(&back, name, strlen(name), LVNI_ESCAPE_NAME);
    check_printable(lvni_core_str_text(&back));
    lvni_core_str_json(&json, lvni_core_str_text(&back));
    json_t *value = lvni_core_json_try(lvni_core_str_text(&json), LVNI_JSON_FILE);
    CHECK(value != NULL && strcmp(json_string_value(value), lvni_core_str_text(&back)) == 0);
    json_decref(value);
    char *bytes = lvni_core_str_take(&back);
    CHECK(lvni_core_unescape_name(bytes) == strlen(name) && strcmp(bytes, name) == 0);
    lvni_core_free(bytes);
    lvni_core_str_clear(&json);
    lvni_core_str_json(&json, name);
    CHECK(lvni_core_utf8_valid(lvni_core_str_text(&json)));
    lvni_core_str_free(&json);
    lvni_core_str_free(&text);
    lvni_core_str_free(&again);
}

/* Room of any size: terminated, and a beginning of the whole. */
static void check_cut(const char *bytes, size_t n)
{
    lvni_core_str whole = {0};
    lvni_core_str_escape(&whole, bytes, n, LVNI_ESCAPE_LINES);
    char out[24];
    for (size_t room = 1; room <= sizeof out; room++) {
        CHECK(lvni_core_escape(out, room, bytes, n, LVNI_ESCAPE_LINES) == whole.len);
        CHECK(strlen(out) < room && strncmp(out, lvni_core_str_text(&whole), strlen(out)) == 0);
    }
    lvni_core_str_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    char *exact = malloc(size > 0 ? size : 1), *name = malloc(size + 1);
    CHECK(exact != NULL && name != NULL);
    memcpy(exact, data, size);
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        name[n] = (char)data[i];
        n += data[i] != 0;
    }
    name[n] = '\0';
    check_name(name);
    check_cut(exact, size);
    json_t *json;
    const lvn_status status =
        lvni_core_json_read("fuzz", "it", exact, size, 0, LVNI_JSON_INNER, &json);
    CHECK_REPORTED(status);
    CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT);
    json_decref(json);
    free(exact);
    free(name);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
