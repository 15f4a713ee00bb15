/* Tables of predictions read back, row by row: those that pose_results.h writes, of any length.
 * Called by the page of a run. */
#ifndef LEVIN_RECIPES_POSE_POSE_TABLE_H
#define LEVIN_RECIPES_POSE_POSE_TABLE_H

#include <levin/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct lvni_pose_table_row {
    const char *name;    /* an image, or the number of a frame */
    const double *value; /* (k, 3): x, y in pixels of the frame, likelihood; NaN: an empty cell */
    int set;             /* lvni_pose_set of the last column; -1: none */
} lvni_pose_table_row;

/* All that is handed over is borrowed for the call. */
typedef struct lvni_pose_table_reader {
    lvn_status (*begin)(void *user, int k, const char *const *keypoint);
    lvn_status (*row)(void *user, const lvni_pose_table_row *row);
    void *user;
} lvni_pose_table_reader;

/* budget: how many bytes may be read, and then what is left of it; *whole false: rows were left out
 * for it. A cell that holds no number is an empty one. LVN_ERR_NOT_FOUND, LVN_ERR_IO;
 * LVN_ERR_CORRUPT: it is not such a table. */
lvn_status lvni_pose_table_read(const char *path, const lvni_pose_table_reader *reader,
                                size_t *budget, bool *whole);

#endif
