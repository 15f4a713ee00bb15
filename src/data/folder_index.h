/* The list of a folder's images kept in a file, with what their headers say, so that the next
 * start lists nothing and reads no header again, and damaged images are known before the first
 * step. Called by folder_scan.c.
 *
 * The file is text: a line of the version, the folder, a line for each folder below with its time
 * and inode, a line for each kind of files that were ignored with their number, a line for each
 * image with bytes, time, width and height (0 0: damaged) and path (blanks, '%' and what a
 * terminal would obey as %xx), a line with a hash of all that. It is taken when it is of this
 * folder, every folder below still has its time and inode (adding, removing and renaming change
 * them), every image its bytes and time, and every damaged image is damaged still; else all is
 * looked at anew. A folder with a link that leads nowhere, or to what is neither folder nor
 * image, has no index: what appears behind the link changes no time in the folder. Order and
 * classes follow from the paths, as without an index, and images are decoded by what is in
 * them. */
#ifndef LEVIN_DATA_FOLDER_INDEX_H
#define LEVIN_DATA_FOLDER_INDEX_H

#include "core/str.h"
#include "data/folder_walk.h"

typedef enum lvni_data_index_mode {
    LVNI_INDEX_NONE, /* list the folder, look at no header */
    /* data.index=FILE: taken from the file, else made, and its text left to who writes it there */
    LVNI_INDEX_FILE,
    /* of a run: the same; there may be no file yet (NULL), and a damaged one is made anew */
    LVNI_INDEX_KEEP,
    LVNI_INDEX_LOOK, /* of somebody else's run: taken from the file, else as NONE */
} lvni_data_index_mode;

/* What is wanted, and what came of it. */
typedef struct lvni_data_index {
    lvni_data_index_mode mode;
    const char *file; /* borrowed */
    /* what differs from the file, a sentence: the file is of this folder as it was */
    lvni_core_str changed;
    lvni_core_str damaged; /* a sentence about the damaged images */
    lvni_core_str unkept;  /* why there is no text although the file does not match, a sentence */
    /* FILE, KEEP: what to write into the file; empty when it is right as it is, or nothing is
     * kept */
    lvni_core_str text;
} lvni_data_index;

void lvni_data_index_free(lvni_data_index *index); /* its texts */
/* Fill an empty walk: from the file, or by `list` (which walks root and sorts). kind: which list of
 * the folder (0: all below it); one of another kind is left as it is. LVN_ERR_USAGE when FILE would
 * lie in the folder or below: writing it there changes the folder, and the index would never be
 * taken. LVN_ERR_CORRUPT: FILE is damaged (a run's own file is made anew); LVN_ERR_IO. */
lvn_status lvni_data_folder_index_open(lvni_data_index *index, const char *root, int kind,
                                       lvn_status (*list)(void *user, lvni_data_walk *walk),
                                       void *user, lvni_data_walk *walk);

#endif
