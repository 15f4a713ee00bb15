/* A self-contained HTML page: its style, which follows the reader's light or dark setting and fits
 * a narrow window, and text that is escaped. Sections and tables are written by the caller. */
#ifndef LEVIN_REPORT_PAGE_H
#define LEVIN_REPORT_PAGE_H

#include "core/str.h"

/* From <!doctype> to <h1>, and the end. */
void lvni_report_page_begin(lvni_core_str *out, const char *title);
void lvni_report_page_end(lvni_core_str *out);
/* As text and within quotes of an attribute; bytes that are not UTF-8 and control characters become
 * U+FFFD. */
void lvni_report_escape(lvni_core_str *out, const char *text);
/* The same of a name in a figure: behind `most` bytes, at the end of a character, an ellipsis. */
void lvni_report_escape_name(lvni_core_str *out, const char *name, size_t most);
/* <h2> */
void lvni_report_heading(lvni_core_str *out, const char *text);
/* ` class="NAME cI"`, the colour of group i of n: the page's own six where they are enough, else a
 * circle of hues. Elements of it are drawn in var(--c). */
void lvni_report_class(lvni_core_str *out, const char *name, int i, int n);
/* ` <span class="k cI">NAME</span>` of each of the n: what has the colour of group i. */
void lvni_report_legend(lvni_core_str *out, const char *const *name, int n);
/* `data:image/png;base64,...` of the n bytes of a PNG file. */
void lvni_report_png_address(lvni_core_str *out, const void *png, size_t n);
/* <figure> with the n bytes of a PNG file within the page, `alt` in its place for who does not see
 * it. The caller writes <figcaption> behind it and </figure>. */
void lvni_report_png(lvni_core_str *out, const void *png, size_t n, const char *alt);

#endif
