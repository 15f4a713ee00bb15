/* What lies in folders of a project, in the order of bytes, and lists of names. */
#ifndef LEVIN_RECIPES_POSE_POSE_FOLDER_H
#define LEVIN_RECIPES_POSE_POSE_FOLDER_H

#include <levin/status.h>

#include <limits.h>
#include <stdbool.h>

/* Does the name end as that of a video does? */
bool lvni_pose_has_video_ending(const char *name);
/* As that of a video of another kind does, which folders are not searched for. */
bool lvni_pose_has_other_ending(const char *name);
/* The first name in the folder behind `name` that is wanted (NULL: any; names that begin with a
 * point never are), in its place; "": there are no more, or there is no such folder. */
lvn_status lvni_pose_folder_next(const char *folder, bool (*wanted)(const char *name),
                                 char name[NAME_MAX + 1]);

/* The first name in the folder before `name` that is a video's, too, and differs in its ending
 * alone: what is written about either has the same name. "": there is none. */
lvn_status lvni_pose_folder_twin(const char *folder, const char *name, char twin[NAME_MAX + 1]);
/* Removes the files whose names are wanted. */
lvn_status lvni_pose_folder_remove(const char *folder, bool (*wanted)(const char *name));

/* A list of texts that it owns; zeroed, it is empty. */
typedef struct lvni_pose_list {
    int n, room;
    char **text;
} lvni_pose_list;
lvn_status lvni_pose_list_add(lvni_pose_list *list, const char *text);
int lvni_pose_list_find(const lvni_pose_list *list, const char *text); /* -1: it is not there */
void lvni_pose_list_free(lvni_pose_list *list);

#endif
