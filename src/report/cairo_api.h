/* What is called of cairo, and of fontconfig, which finds fonts for it. Both are loaded when
 * something is drawn: most commands draw nothing, and a machine need not have them. */
#ifndef LEVIN_REPORT_CAIRO_API_H
#define LEVIN_REPORT_CAIRO_API_H

#include <cairo-svg.h>
#include <fontconfig/fontconfig.h>

#define LVNI_CAIRO_CALLS(X)                                                                        \
    X(cairo_create)                                                                                \
    X(cairo_destroy)                                                                               \
    X(cairo_status)                                                                                \
    X(cairo_status_to_string)                                                                      \
    X(cairo_save)                                                                                  \
    X(cairo_restore)                                                                               \
    X(cairo_translate)                                                                             \
    X(cairo_rotate)                                                                                \
    X(cairo_scale)                                                                                 \
    X(cairo_set_source_rgb)                                                                        \
    X(cairo_set_source_surface)                                                                    \
    X(cairo_get_source)                                                                            \
    X(cairo_pattern_set_filter)                                                                    \
    X(cairo_set_line_width)                                                                        \
    X(cairo_set_line_join)                                                                         \
    X(cairo_set_dash)                                                                              \
    X(cairo_new_path)                                                                              \
    X(cairo_move_to)                                                                               \
    X(cairo_line_to)                                                                               \
    X(cairo_arc)                                                                                   \
    X(cairo_rectangle)                                                                             \
    X(cairo_fill)                                                                                  \
    X(cairo_stroke)                                                                                \
    X(cairo_paint)                                                                                 \
    X(cairo_set_font_face)                                                                         \
    X(cairo_set_font_size)                                                                         \
    X(cairo_set_font_options)                                                                      \
    X(cairo_text_extents)                                                                          \
    X(cairo_show_text)                                                                             \
    X(cairo_font_options_create)                                                                   \
    X(cairo_font_options_destroy)                                                                  \
    X(cairo_font_options_set_antialias)                                                            \
    X(cairo_font_options_set_hint_style)                                                           \
    X(cairo_font_options_set_hint_metrics)                                                         \
    X(cairo_font_face_destroy)                                                                     \
    X(cairo_image_surface_create)                                                                  \
    X(cairo_image_surface_get_data)                                                                \
    X(cairo_image_surface_get_stride)                                                              \
    X(cairo_svg_surface_create_for_stream)                                                         \
    X(cairo_surface_flush)                                                                         \
    X(cairo_surface_mark_dirty)                                                                    \
    X(cairo_surface_finish)                                                                        \
    X(cairo_surface_status)                                                                        \
    X(cairo_surface_destroy)

#define LVNI_FONTCONFIG_CALLS(X)                                                                   \
    X(FcPatternCreate)                                                                             \
    X(FcPatternDestroy)                                                                            \
    X(FcPatternAddString)                                                                          \
    X(FcPatternAddInteger)                                                                         \
    X(FcPatternAddCharSet)                                                                         \
    X(FcPatternGetString)                                                                          \
    X(FcPatternGetInteger)                                                                         \
    X(FcPatternGetCharSet)                                                                         \
    X(FcConfigSubstitute)                                                                          \
    X(FcDefaultSubstitute)                                                                         \
    X(FcFontMatch)                                                                                 \
    X(FcCharSetCreate)                                                                             \
    X(FcCharSetAddChar)                                                                            \
    X(FcCharSetHasChar)                                                                            \
    X(FcCharSetDestroy)

typedef struct lvni_report_cairo {
#define LVNI_CALL(name) __typeof__(name) *name;
    LVNI_CAIRO_CALLS(LVNI_CALL)
    LVNI_FONTCONFIG_CALLS(LVNI_CALL)
#undef LVNI_CALL
    /* declared in the header of cairo-ft, which needs the headers of FreeType */
    cairo_font_face_t *(*cairo_ft_font_face_create_for_pattern)(FcPattern *pattern);
} lvni_report_cairo;

/* libcairo.so.2, or LEVIN_CAIRO_LIBRARY. Any thread. NULL: *missing is why there is none. */
const lvni_report_cairo *lvni_report_cairo_load(const char **missing);

#endif
