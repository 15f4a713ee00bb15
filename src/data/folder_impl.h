/* What the files that list a folder share: the walk over names (folder_walk.c), the headers of the
 * images (folder_headers.c), the layout (folder_layout.c), several folders and files
 * (folder_list.c), the index file (folder_index.c) and the classes (folder_classes.c).
 * image_folder.c calls them in this order. */
#ifndef LEVIN_DATA_FOLDER_IMPL_H
#define LEVIN_DATA_FOLDER_IMPL_H

#include "data/image_folder.h"

/* ---- the walk: names of all images below a folder ---- */

/* A folder that was listed, and how to see that it has changed since. */
typedef struct lvni_data_walk_folder {
    size_t name_at;   /* in lvni_data_walk.names; "" is the root */
    int64_t mtime_ns; /* before it was listed */
    int64_t inode;
} lvni_data_walk_folder;

typedef struct lvni_data_walk {
    char *names; /* paths below the root, zero-terminated */
    size_t used, room;
    size_t *name_at; /* (n) offsets, after sorting in byte order */
    int64_t n, n_room;
    lvni_data_walk_folder *folders; /* (n_folders) */
    int64_t n_folders, folder_room;
    lvni_data_walk_size *size; /* (n); NULL: not read */
    int64_t size_room;
    int64_t start_ns; /* of the first lvni_data_walk_add, on the clock of the file times */
    /* entries whose target may become an image or a folder without any listed folder changing:
     * links that lead nowhere */
    int64_t n_blind;
    size_t blind_at; /* the first of them, in names */
    lvni_data_ignored ignored;
    /* ignored or damaged images of other kinds, except converted ones; of listing alone */
    lvni_data_foreign_counts foreign;
    bool any; /* the first image ends it */
    /* names, name_at, size and folders lie in it, and cannot be written; base NULL: they are its
     * own */
    lvni_data_map map;
} lvni_data_walk;

bool lvni_data_name_is_dropping(const char *name);
bool lvni_data_name_is_image(const char *name); /* .jpg, .jpeg, .png, in any case */
bool lvni_data_file_is_image(const char *path); /* by its name, or by its first bytes */
/* Count files of the kind of `name`. */
void lvni_data_ignored_add(lvni_data_ignored *ignored, const char *name, int64_t count);
void lvni_data_ignored_merge(lvni_data_ignored *ignored, const lvni_data_ignored *more);

/* Add every image below root/under (under may be ""), through sub-folders and links. A link to a
 * folder that it lies in is LVN_ERR_USAGE. */
lvn_status lvni_data_walk_add(lvni_data_walk *walk, const char *root, const char *under);
/* Is there an image below the folder? Lists no further than to the first. */
lvn_status lvni_data_walk_any(const char *folder, bool *any);
/* The same for a folder that is not listed, only its time noted: root/under. */
lvn_status lvni_data_walk_watch(lvni_data_walk *walk, const char *root, const char *under);
lvn_status lvni_data_walk_add_name(lvni_data_walk *walk, const char *name);
lvn_status lvni_data_walk_add_folder(lvni_data_walk *walk, const char *name, int64_t mtime_ns,
                                     int64_t inode);
/* Room in walk->size for every name. */
lvn_status lvni_data_walk_add_sizes(lvni_data_walk *walk);
/* In byte order, from the name `first` on. */
void lvni_data_walk_sort(lvni_data_walk *walk, int64_t first);
void lvni_data_walk_free(lvni_data_walk *walk);

/* ---- headers: size of each image, or that it is damaged, bytes and time of its file ---- */

/* At most so many images are named, with what is wrong with each, in about so many bytes. */
enum { LVNI_DAMAGE_NAMED = 20, LVNI_DAMAGE_TEXT = 640 };

typedef struct lvni_data_header {
    int64_t bytes, time_ns; /* of the file; 0 0 when it is not there */
    int width, height;      /* pixels as stored; 0 0: damaged */
    uint64_t begin;         /* as lvni_data_walk_size has it */
} lvni_data_header;

static inline lvni_data_walk_size lvni_data_header_size(const lvni_data_header *h)
{
    return (lvni_data_walk_size){h->bytes, h->width, h->height, h->begin};
}

/* The damaged images of a folder, collected for lvni_data_damage_report. */
typedef struct lvni_data_damage {
    int64_t n, n_named;
    lvni_core_str text; /* "data/a.jpg: the file is empty (0 bytes); b.jpg: ..." */
    lvni_data_foreign_counts foreign;
} lvni_data_damage;

/* Read the header of root/name. An image that cannot be opened or understood is noted; only
 * LVN_ERR_MEMORY is returned. */
lvn_status lvni_data_header_read(lvni_data_scratch *scratch, const char *root, const char *name,
                                 lvni_data_header *out, lvni_data_damage *damage);
/* The same for n images, with several threads where there are many: waiting for a disk or a
 * network takes longer than reading. */
lvn_status lvni_data_headers_read(const char *root, const char *names, const size_t *name_at,
                                  int64_t n, lvni_data_header *out, lvni_data_damage *damage);
/* Bytes and time alone. False: no such file. */
bool lvni_data_header_stat(const char *root, const char *name, lvni_data_header *out);
/* "3 of 14 images cannot be used: PATH: what is wrong with it; b/2.jpg: what is; and 1 more",
 * appended, and their kinds to walk->foreign; nothing when none is damaged. Frees *damage. */
lvn_status lvni_data_damage_report(lvni_data_damage *damage, lvni_data_walk *walk,
                                   lvni_core_str *out);

/* ---- several folders and files ---- */

typedef struct lvni_data_list {
    char *root;   /* the folder that all lie in, "" for / */
    char **entry; /* (n) absolute, below root */
    size_t n;
} lvni_data_list;

/* LVN_ERR_NOT_FOUND, LVN_ERR_IO. Free with lvni_data_list_free. */
lvn_status lvni_data_list_find(const char *const *entries, size_t n, lvni_data_list *list);
void lvni_data_list_free(lvni_data_list *list);
/* All images of all entries into an empty walk, in byte order of their paths below root. */
lvn_status lvni_data_list_walk(const lvni_data_list *list, lvni_data_walk *walk);

/* ---- one list for the processes of a node ---- */

/* The arrays of the walk move into memory that other processes of this user can map, by `path`, as
 * long as the map is there. False: there is none, and nothing has changed. */
enum { LVNI_SHARED_PATH = 96 };
bool lvni_data_walk_share(lvni_data_walk *walk, char path[LVNI_SHARED_PATH]);
/* Into an empty walk. LVN_ERR_IO, LVN_ERR_CORRUPT. */
lvn_status lvni_data_walk_open_shared(const char *path, lvni_data_walk *walk);

/* ---- layout, index, classes ---- */

/* What a walk is made of, and by whom. */
typedef struct lvni_data_listing {
    const char *root;
    int kind;                   /* which list of the folder; 0: all below it */
    const lvni_data_list *list; /* NULL: the root itself */
    lvn_status (*walk)(void *user, lvni_data_walk *walk); /* and sorts */
    void *user;
} lvni_data_listing;

/* LVN_ERR_USAGE when all folders right below the root hold the same sub-folders (two or more), and
 * no images of their own: names of a sorted walk without parts. */
lvn_status lvni_data_folder_check_nested(const char *root, const lvni_data_walk *walk);
/* Fill an empty walk: from the file, or by listing->walk. A file of another kind is left as it is.
 * LVN_ERR_USAGE when FILE would lie in a folder that is listed, or below: writing it there changes
 * the folder, and the index would never be taken. LVN_ERR_CORRUPT: FILE is damaged (a run's own
 * file is made again); LVN_ERR_IO. */
lvn_status lvni_data_folder_index_open(lvni_data_index *index, const lvni_data_listing *listing,
                                       lvni_data_walk *walk);
/* Classes and labels of an opened list; walk: as it was listed. */
lvn_status lvni_data_image_scan_label(lvni_data_image_scan *scan, lvni_data_scan_mode mode,
                                      const lvni_data_walk *walk);

#endif
