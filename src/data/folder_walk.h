/* Names of all pictures below a folder, sorted. Called by folder_scan.c. */
#ifndef LEVIN_DATA_FOLDER_WALK_H
#define LEVIN_DATA_FOLDER_WALK_H

#include <levin/status.h>

typedef struct lvni_walk {
    char *names;     /* paths below the root, zero-terminated */
    size_t used, room;
    size_t *name_at; /* (n) offsets, after sorting in byte order */
    int64_t n, n_room;
} lvni_walk;

/* Ends in .jpg, .jpeg or .png, in any case. */
bool lvni_name_is_picture(const char *name);
/* Add every picture below root/under (under may be ""), through sub-folders and links. A link to a folder that it lies in is LVN_ERR_USAGE. */
lvn_status lvni_walk_add(lvni_walk *walk, const char *root, const char *under);
void lvni_walk_sort(lvni_walk *walk);
void lvni_walk_free(lvni_walk *walk);

#endif
