/* The frame of a page (page.h). */
#include "report/page.h"

#include <string.h>

enum { COLOURS = 6 };

/* Six colours that differ in lightness, too, for those who see few colours (Okabe and Ito, 2008);
 * the dark page has lighter ones. */
static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1b1f24;--soft:#59636e;--paper:#fff;--rule:#d8dee4;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#8a6d00;--c5:#56b4e9}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9ba7b4;--paper:#0f1419;"
    "--rule:#2f3842;--c0:#58a6e0;--c1:#ff9c5b;--c2:#3fd0a4;--c3:#e6a3cb;--c4:#e3c24d;--c5:#9bd3f5}}"
    "\n"
    "body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "max-width:72rem;margin:0 auto;padding:1rem}\n"
    "h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:2rem 0 .5rem}\n"
    "main>p{margin:.25rem 0;overflow-wrap:anywhere}.soft{color:var(--soft)}\n"
    ".charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),"
    "1fr))}\n"
    "img{max-width:100%;height:auto;display:block;margin-bottom:.25rem}\n"
    "figure{margin:0;padding:.75rem;border:1px solid var(--rule);border-radius:.5rem}\n"
    "figcaption{font-weight:600}figcaption "
    ".soft{font-weight:400}.k{font-weight:400;font-size:.85rem;white-space:nowrap}\n"
    ".k::before{content:\"\";display:inline-block;width:1rem;height:.2rem;margin:0 .3rem .2rem "
    ".5rem;background:var(--c)}\n"
    "figure .f{fill:none;vector-effect:non-scaling-stroke}"
    "svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--soft)}\n"
    ".g{stroke:var(--rule)}.a{stroke:var(--soft)}.l{fill:none;stroke:var(--c);stroke-width:1.75;"
    "stroke-linejoin:round}.b{fill:var(--c);opacity:.18}.p{fill:var(--c)}.s{stroke-width:1;opacity:"
    ".6}\n"
    ".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}"
    ".c5{--c:var(--c5)}\n"
    ".mistakes{display:grid;gap:.5rem;grid-template-columns:repeat(auto-fill,minmax(7rem,1fr))}"
    ".mistakes img{width:100%}.mistakes figcaption{font-weight:400;font-size:.85rem;"
    "overflow-wrap:anywhere}h3{font-size:1rem}\n"
    ".near{display:grid;gap:.5rem;grid-template-columns:repeat(7,1fr);margin-bottom:.5rem}.near "
    "img{width:100%}.near figcaption{font-weight:400;font-size:.85rem;overflow-wrap:anywhere}"
    ".near figure{padding:.4rem}.near figure:first-child{border:2px solid var(--c0)}"
    ".small img{image-rendering:pixelated}@media(max-width:40rem){.near{grid-template-columns:"
    "repeat(4,1fr)}}\n"
    ".drawn{max-width:40rem}@media(prefers-color-scheme:dark){.drawn svg{filter:invert(.94) "
    "hue-rotate(180deg)}}\n"
    "table{border-collapse:collapse;font-size:.9rem}.wide{overflow-x:auto}\n"
    "th,td{text-align:left;padding:.15rem 1rem .15rem 0;border-bottom:1px solid var(--rule);"
    "vertical-align:top;overflow-wrap:anywhere}\n"
    "td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "figure+.wide{margin-top:1rem}.wide.w th{overflow-wrap:normal}\n"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem}summary{cursor:pointer}."
    "changed{font-weight:600}\n"
    "</style>\n";

void lvni_report_page_begin(lvni_core_str *out, const char *title)
{
    lvni_core_str_append(out,
                         "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
                         "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
                         "<link rel=icon href=\"data:,\">\n<title>");
    lvni_report_escape(out, title);
    lvni_core_str_append(out, "</title>\n");
    lvni_core_str_append(out, style);
    lvni_core_str_append(out, "</head>\n<body>\n<main>\n<h1>");
    lvni_report_escape(out, title);
    lvni_core_str_append(out, "</h1>\n");
}

void lvni_report_page_end(lvni_core_str *out)
{
    lvni_core_str_append(out, "</main>\n</body>\n</html>\n");
}

void lvni_report_escape(lvni_core_str *out, const char *text)
{
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        uint32_t code = 0;
        n = lvni_core_utf8_char(text, left, &code);
        if (n == 0 || (code < ' ' && code != '\n' && code != '\t') || code == 0x7f ||
            lvni_core_utf8_hidden(code)) {
            lvni_core_str_append(out, "\xef\xbf\xbd");
            n = n == 0 ? 1 : n;
            continue;
        }
        const char *name = code == '&'    ? "&amp;"
                           : code == '<'  ? "&lt;"
                           : code == '>'  ? "&gt;"
                           : code == '"'  ? "&quot;"
                           : code == '\'' ? "&#39;"
                                          : NULL;
        if (name != NULL) {
            lvni_core_str_append(out, name);
        } else {
            lvni_core_str_append_n(out, text, n);
        }
    }
}

void lvni_report_escape_name(lvni_core_str *out, const char *name, size_t most)
{
    lvni_core_str text = {0};
    const size_t n = lvni_core_utf8_cut(name, most);
    lvni_core_str_append_n(&text, name, n);
    lvni_core_str_append(&text, name[n] != '\0' ? "\xe2\x80\xa6" : "");
    lvni_report_escape(out, lvni_core_str_text(&text));
    out->failed = out->failed || text.failed;
    lvni_core_str_free(&text);
}

void lvni_report_heading(lvni_core_str *out, const char *text)
{
    lvni_core_str_append(out, "<h2>");
    lvni_report_escape(out, text);
    lvni_core_str_append(out, "</h2>\n");
}

void lvni_report_class(lvni_core_str *out, const char *name, int i, int n)
{
    if (n <= COLOURS) {
        lvni_core_str_printf(out, " class=\"%s c%d\"", name, i);
    } else {
        lvni_core_str_printf(out, " class=\"%s\" style=\"--c:hsl(%d 65%% 50%%)\"", name,
                             360 * i / n);
    }
}

void lvni_report_legend(lvni_core_str *out, const char *const *name, int n)
{
    for (int i = 0; i < n; i++) {
        lvni_core_str_append(out, " <span");
        lvni_report_class(out, "k", i, n);
        lvni_core_str_append(out, ">");
        lvni_report_escape(out, name[i]);
        lvni_core_str_append(out, "</span>");
    }
}

static void write_base64(lvni_core_str *out, const unsigned char *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const size_t k = n - i < 3 ? n - i : 3;
        const unsigned b = (unsigned)bytes[i] << 16 | (k > 1 ? (unsigned)bytes[i + 1] << 8 : 0U) |
                           (k > 2 ? (unsigned)bytes[i + 2] : 0U);
        const char four[4] = {digit[b >> 18], digit[b >> 12 & 63], k > 1 ? digit[b >> 6 & 63] : '=',
                              k > 2 ? digit[b & 63] : '='};
        lvni_core_str_append_n(out, four, sizeof four);
    }
}

void lvni_report_png_address(lvni_core_str *out, const void *png, size_t n)
{
    lvni_core_str_append(out, "data:image/png;base64,");
    write_base64(out, png, n);
}

void lvni_report_png(lvni_core_str *out, const void *png, size_t n, const char *alt)
{
    lvni_core_str_append(out, "<figure><img alt=\"");
    lvni_report_escape(out, alt);
    lvni_core_str_append(out, "\" src=\"");
    lvni_report_png_address(out, png, n);
    lvni_core_str_append(out, "\">");
}
