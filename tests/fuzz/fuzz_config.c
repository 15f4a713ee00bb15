/* The configuration's readers: the input as YAML, and as words key=value. */
#include "fuzz.h"

#include "core/alloc.h"
#include "unit/core/config_rows.h"

/* What was accepted must survive being written and read again. */
static void check_round_trip(const lvni_core_config *config)
{
    lvni_core_str text = {0}, twice = {0};
    lvni_core_config *again = NULL;
    CHECK(lvni_core_config_write_yaml(config, &text) == LVN_OK);
    CHECK(make_config(&again) == LVN_OK);
    CHECK(lvni_core_config_load_yaml(again, LVNI_LAYER_SAVED, "saved", text.data, text.len) ==
          LVN_OK);
    CHECK(lvni_core_config_write_yaml(again, &twice) == LVN_OK);
    CHECK(strcmp(lvni_core_str_text(&text), lvni_core_str_text(&twice)) == 0);
    lvni_core_config_destroy(again);
    lvni_core_str_free(&text);
    lvni_core_str_free(&twice);
}

static void check(lvni_core_config *config, lvn_status status)
{
    if (status == LVN_OK) {
        status = lvni_core_config_resolve(config);
    }
    CHECK_REPORTED(status);
    CHECK(status == LVN_OK || status == LVN_ERR_USAGE);
    if (status == LVN_OK) {
        check_round_trip(config);
    }
    lvni_core_config_destroy(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    lvni_core_config *config = NULL;
    CHECK(make_config(&config) == LVN_OK);
    check(config,
          lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "m.yml", (const char *)data, size));
    char *text = malloc(size + 1);
    CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (strstr(text, "config") == NULL) { /* that would read files */
        CHECK(make_config(&config) == LVN_OK);
        check(config, lvni_core_config_load_job(config, text));
    }
    free(text);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
