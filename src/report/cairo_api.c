/* Loads cairo and fontconfig (cairo_api.h). */
#include "report/cairo_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvni_report_cairo api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256]; /* why there is none */

static const struct call {
    const char *name;
    size_t at; /* in api */
} cairo_calls[] =
    {
#define LVNI_CALL(name) {#name, offsetof(lvni_report_cairo, name)},
        LVNI_CAIRO_CALLS(LVNI_CALL) LVNI_CALL(cairo_ft_font_face_create_for_pattern)},
  fontconfig_calls[] = {LVNI_FONTCONFIG_CALLS(LVNI_CALL)};
#undef LVNI_CALL

static bool load_library(const char *file, const struct call *calls, size_t n)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL); /* never closed */
    for (size_t i = 0; i < n; i++) {
        void *at = library != NULL ? dlsym(library, calls[i].name) : NULL;
        if (at == NULL) {
            const char *why = dlerror();
            snprintf(missing, sizeof missing, "%s", why != NULL ? why : file);
            return false;
        }
        memcpy((char *)&api + calls[i].at, &at, sizeof at);
    }
    return true;
}

static void load(void)
{
    const char *path = getenv("LEVIN_CAIRO_LIBRARY");
    if (load_library(path != NULL && path[0] != '\0' ? path : "libcairo.so.2", cairo_calls,
                     sizeof cairo_calls / sizeof *cairo_calls)) {
        (void)load_library("libfontconfig.so.1", fontconfig_calls,
                           sizeof fontconfig_calls / sizeof *fontconfig_calls);
    }
}

const lvni_report_cairo *lvni_report_cairo_load(const char **why)
{
    pthread_once(&once, load);
    *why = missing[0] != '\0' ? missing : NULL;
    return missing[0] == '\0' ? &api : NULL;
}
