/* The list of a folder's pictures kept in a file, so that the next start neither walks the folder nor looks at each picture. It also holds their
 * sizes, read from their headers once, and so names the damaged ones. Called by folder_scan.c.
 *
 * The file is text: a line of the version, the folder, a line for each folder below with its time and inode, a line for each picture with
 * bytes, time, width and height (0 0: damaged) and path (bytes below 33, 127 and '%' as %xx), a line with a hash of all that. It is taken when
 * every folder still has its time and inode: adding, removing and renaming change them. A picture overwritten in place is not noticed; its new
 * content is used all the same, only the sizes here are old. Order and classes follow from the paths, as without an index. */
#ifndef LEVIN_DATA_FOLDER_INDEX_H
#define LEVIN_DATA_FOLDER_INDEX_H

#include "core/str.h"
#include "data/folder_walk.h"

enum { LVNI_INDEX_NAMED = 20 }; /* damaged pictures that are named */

/* TAKEN: the walk holds the list. WANTED: there is no such file, it is of another folder, or something changed. OTHER_PARTS: it lists this
 * unchanged folder the other way, train/ and val/ alone (as training does) or everything below (predict): it stays, for who wrote it. */
typedef enum lvni_index_found { LVNI_INDEX_WANTED, LVNI_INDEX_TAKEN, LVNI_INDEX_OTHER_PARTS } lvni_index_found;

/* LVN_ERR_USAGE when the file would lie in the folder or below: writing it there changes the folder, and the index would never be taken. */
lvn_status lvni_folder_index_check_place(const char *file, const char *root);
/* Fill an empty walk from the file; it stays empty unless TAKEN. LVN_ERR_CORRUPT: a damaged file; LVN_ERR_IO. damaged: a sentence about damaged
 * pictures is appended when there are some. */
lvn_status lvni_folder_index_read(const char *file, const char *root, bool parts, lvni_walk *walk, lvni_str *damaged, lvni_index_found *found);
/* Look at the headers of a sorted walk's pictures and write the file. LVN_ERR_IO when it cannot be written. */
lvn_status lvni_folder_index_write(const char *file, const char *root, bool parts, const lvni_walk *walk, lvni_str *damaged);

#endif
