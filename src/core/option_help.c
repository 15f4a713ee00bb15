/* The help of option tables: what `levin help train.classify` prints. */
#include "core/option.h"

#include <string.h>

/* Other names of a row, over all tables: "also: gpus, num_gpus". */
static void print_aliases(const lvni_core_option_table *tables, size_t n_tables, const char *name,
                          FILE *out)
{
    bool any = false;
    for (size_t t = 0; t < n_tables; t++) {
        for (size_t i = 0; i < tables[t].n; i++) {
            const lvni_core_option *row = &tables[t].rows[i];
            if (row->alias_of != NULL && strcmp(row->alias_of, name) == 0) {
                fprintf(out, "%s%s", any ? ", " : "  Also: ", row->name);
                any = true;
            }
        }
    }
    if (any) {
        fputs(".", out);
    }
}

static const char *default_of(const lvni_core_option *row)
{
    if (row->fallback != NULL && row->fallback[0] != '\0') {
        return row->fallback;
    }
    return (row->flags & LVNI_OPT_AUTO) != 0 ? "auto" : "unset";
}

/* "  batch_size             whole number, samples, default 128" and below it the sentence. */
void lvni_core_option_print_row(const lvni_core_option_table *tables, size_t n_tables,
                                const lvni_core_option *row, FILE *out)
{
    fprintf(out, "  %-26s ", row->name);
    if (row->type == LVNI_OPT_CHOICE) {
        fputs(row->choices, out);
    } else {
        fputs(lvni_core_option_type_name(row->type), out);
    }
    if (row->unit != NULL) {
        fprintf(out, ", %s", row->unit);
    }
    fprintf(out, ", default %s\n      %s", default_of(row), row->help != NULL ? row->help : "");
    print_aliases(tables, n_tables, row->name, out);
    if ((row->flags & LVNI_OPT_LATER) != 0) {
        fputs("  (Other values come with a later version.)", out);
    } else if (row->later != NULL) {
        fprintf(out, "  (With a later version: %s.)", row->later);
    }
    fputc('\n', out);
}

void lvni_core_option_print_help(const lvni_core_option_table *tables, size_t n_tables, FILE *out)
{
    for (size_t t = 0; t < n_tables; t++) {
        fprintf(out, "%s%s\n", t > 0 ? "\n" : "", tables[t].title);
        for (size_t i = 0; i < tables[t].n; i++) {
            const lvni_core_option *row = &tables[t].rows[i];
            if (row->alias_of == NULL && (row->flags & LVNI_OPT_HIDDEN) == 0) {
                lvni_core_option_print_row(tables, n_tables, row, out);
            }
        }
    }
}
