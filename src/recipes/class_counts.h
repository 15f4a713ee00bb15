/* How many images each class has, for the start of a run. Called by image_data.c. */
#ifndef LEVIN_RECIPES_CLASS_COUNTS_H
#define LEVIN_RECIPES_CLASS_COUNTS_H

#include "core/str.h"
#include "data/folder_scan.h"

#include <levin/data.h>

enum { LVNI_CLASSES_SHOWN = 20 };

/* Of both parts together, appended: "(cat 36, dog 40)"; of more than 20 classes "(smallest: apron
 * 12, largest: shirt 98)". val may be NULL. */
lvn_status lvni_recipes_class_counts_print(const lvn_dataset *train, const lvn_dataset *val,
                                           lvni_core_str *out);
/* Classes with images to train on and none to validate, appended: "hat, coat, and 3 more". Nothing
 * where there are none. */
lvn_status lvni_recipes_class_counts_unvalidated(const lvn_dataset *train, const lvn_dataset *val,
                                                 lvni_core_str *out);
/* Classes of a folder of whose images none can be read, by their headers, appended in the same
 * way. */
lvn_status lvni_recipes_class_counts_unreadable(const lvni_data_image_scan *scan,
                                                lvni_core_str *out);

#endif
