/* Names of all images below a folder, sorted: files called .jpg, .jpeg or .png, and others that
 * begin as JPEG and PNG files do. Hidden names and what systems leave behind (__MACOSX, @eaDir,
 * Thumbs.db) are passed over without a word, other files are counted. Called by folder_scan.c,
 * folder_layout.c and folder_index.c. */
#ifndef LEVIN_DATA_FOLDER_WALK_H
#define LEVIN_DATA_FOLDER_WALK_H

#include "core/str.h"

enum { LVNI_IGNORED_KINDS = 24, LVNI_IGNORED_ENDING = 12 };

/* Files that are no images, by the ends of their names. */
typedef struct lvni_data_ignored {
    int n; /* kinds */
    char ending[LVNI_IGNORED_KINDS]
               [LVNI_IGNORED_ENDING]; /* ".txt", in lower case; "": of no or a strange kind */
    int64_t count[LVNI_IGNORED_KINDS];
} lvni_data_ignored;

/* A folder that was listed, and how to see that it has changed since. */
typedef struct lvni_data_walk_folder {
    size_t name_at;   /* in lvni_data_walk.names; "" is the root */
    int64_t mtime_ns; /* before it was listed */
    int64_t inode;
} lvni_data_walk_folder;

/* Of one image's file and header: 0 0 pixels when it is damaged. */
typedef struct lvni_data_walk_size {
    int64_t bytes;
    int width, height; /* as stored */
} lvni_data_walk_size;

typedef struct lvni_data_walk {
    char *names; /* paths below the root, zero-terminated */
    size_t used, room;
    size_t *name_at; /* (n) offsets, after sorting in byte order */
    int64_t n, n_room;
    lvni_data_walk_folder *folders; /* (n_folders) */
    int64_t n_folders, folder_room;
    lvni_data_walk_size *size; /* (n); NULL: nobody looked */
    int64_t size_room;
    int64_t start_ns; /* of the first lvni_data_walk_add, on the clock of the file times */
    /* entries whose target may become an image or a folder without any listed folder changing:
     * links that lead nowhere */
    int64_t n_blind;
    size_t blind_at; /* the first of them, in names */
    lvni_data_ignored ignored;
} lvni_data_walk;

bool lvni_data_name_is_dropping(const char *name);
bool lvni_data_name_is_image(const char *name); /* .jpg, .jpeg, .png, in any case */
/* Count files of the kind of `name`. */
void lvni_data_ignored_add(lvni_data_ignored *ignored, const char *name, int64_t count);
void lvni_data_ignored_merge(lvni_data_ignored *ignored, const lvni_data_ignored *more);
/* "6 .webp, 1 .txt, 2 others", the most first, appended; nothing where there are none. */
void lvni_data_ignored_print(const lvni_data_ignored *ignored, lvni_core_str *out);

/* Add every image below root/under (under may be ""), through sub-folders and links. A link to a
 * folder that it lies in is LVN_ERR_USAGE. */
lvn_status lvni_data_walk_add(lvni_data_walk *walk, const char *root, const char *under);
/* The same for a folder that is not listed itself, only looked at: root/under. */
lvn_status lvni_data_walk_watch(lvni_data_walk *walk, const char *root, const char *under);
lvn_status lvni_data_walk_add_name(lvni_data_walk *walk, const char *name);
lvn_status lvni_data_walk_add_folder(lvni_data_walk *walk, const char *name, int64_t mtime_ns,
                                     int64_t inode);
/* Room in walk->size for every name. */
lvn_status lvni_data_walk_add_sizes(lvni_data_walk *walk);
/* In byte order, from the name `first` on. */
void lvni_data_walk_sort(lvni_data_walk *walk, int64_t first);
void lvni_data_walk_free(lvni_data_walk *walk);

#endif
