/* JSON text to values and back. Reading stays within a bound of memory: a value of two bytes takes
 * up to 224 in the library, so text of the worst kind is refused before it is parsed. Called
 * wherever levin reads JSON of a file. */
#ifndef LEVIN_CORE_JSON_READ_H
#define LEVIN_CORE_JSON_READ_H

#include "core/str.h"

#include <levin/status.h>

#include <jansson.h>

/* What n bytes of text may take, the text and a table over the entries of the outermost object
 * included: together at most 64 MiB + 16 n for a file and the texts in it. */
typedef enum lvni_core_json_source {
    LVNI_JSON_FILE, /* 24 MiB + 14 n */
    LVNI_JSON_INNER /* JSON in a string of a file, of which two are read at a time: 20 MiB + 2 n */
} lvni_core_json_source;

enum { LVNI_JSON_MAX_DEPTH = 64 };

/* path and part ("the header") stand in the messages. flags: jansson's, of decoding.
 * LVN_ERR_CORRUPT: not JSON, nested too deep or too costly; LVN_ERR_MEMORY. */
lvn_status lvni_core_json_read(const char *path, const char *part, const char *text, size_t n,
                               size_t flags, lvni_core_json_source source, json_t **out);
/* The same of a text whose damage does not matter: NULL for what cannot be read; text may be
 * NULL. */
json_t *lvni_core_json_try(const char *text, lvni_core_json_source source);

/* A YAML text as its value, the caller's, null of an empty one (config_json.c). Where YAML has a
 * number, a switch or null as a plain word, it is one. LVN_ERR_USAGE with the place. */
lvn_status lvni_core_json_of_yaml(const char *name, const char *text, size_t bytes, json_t **out);

/* Appends the value as text. flags: jansson's, of encoding. A value that JSON cannot hold, or one
 * that there is no memory for, marks out as failed. */
void lvni_core_json_print(const json_t *value, size_t flags, lvni_core_str *out);

#endif
