/* Cells of a CSV file: RFC 4180 quotes, a byte order mark, LF and CRLF. Blanks around cells without
 * quotes are dropped, and so are blank lines. The files of labels and of splits are read with it.
 */
#ifndef LEVIN_RECIPES_POSE_POSE_CSV_H
#define LEVIN_RECIPES_POSE_POSE_CSV_H

#include <levin/status.h>

typedef struct lvni_pose_csv {
    const char *name; /* of the file, for messages; borrowed */
    char *text;
    char **cell; /* of all rows */
    int64_t n_cells, room;
    int64_t n, rows_room; /* rows */
    int64_t *begin;       /* (n + 1) first cell of each row */
    int64_t *line;        /* (n) in the file, from 1 */
    int64_t joined;       /* columns behind the first that are left out, which messages count */
} lvni_pose_csv;

/* *out is zeroed first; free it in any case. A file that is not there is LVN_ERR_NOT_FOUND, one
 * that cannot be a CSV LVN_ERR_USAGE with line and column. */
lvn_status lvni_pose_csv_read(const char *path, lvni_pose_csv *out);
/* text: `bytes` bytes and a zero, which becomes the table's (lvni_core_free), on failure too. */
lvn_status lvni_pose_csv_parse(const char *name, char *text, size_t bytes, lvni_pose_csv *out);
void lvni_pose_csv_free(lvni_pose_csv *csv);

int64_t lvni_pose_csv_width(const lvni_pose_csv *csv, int64_t row);
/* "" where the row is shorter */
const char *lvni_pose_csv_at(const lvni_pose_csv *csv, int64_t row, int64_t column);
/* Every cell from `from` on is empty. */
bool lvni_pose_csv_is_empty(const lvni_pose_csv *csv, int64_t row, int64_t from);

#endif
