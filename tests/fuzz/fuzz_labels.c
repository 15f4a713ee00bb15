/* Files of labels, those of DeepLabCut too. What is read is consistent, and a refusal names the
 * file. */
#include "fuzz.h"

#include "core/alloc.h"
#include "recipes/pose/pose_dlc.h"
#include "recipes/pose/pose_split.h"

#include <math.h>
#include <string.h>

static void check(const lvni_pose_labels *l)
{
    CHECK(l->n > 0 && l->k > 0);
    for (int k = 0; k < l->k; k++) {
        CHECK(l->keypoint[k][0] != '\0' && l->column[k] > 1);
    }
    for (int64_t i = 0; i < l->n; i++) {
        CHECK(l->image[i][0] != '\0' && l->line[i] > 3 && (i == 0 || l->line[i] > l->line[i - 1]));
        CHECK(l->set == NULL || (l->set[i] >= 0 && l->set[i] < LVNI_POSE_SETS));
        for (int k = 0; k < l->k; k++) {
            const double *xy = l->xy + (i * l->k + k) * 2;
            CHECK(isnan(xy[0]) == isnan(xy[1]) && !isinf(xy[0]) && !isinf(xy[1]));
            CHECK(l->visible == NULL ||
                  (l->visible[i * l->k + k] >= 0 && l->visible[i * l->k + k] <= 2));
        }
        CHECK_REPORTED(lvni_pose_labels_check_inside(l, i, 64, 64));
    }
    CHECK(lvni_pose_labels_check_count(l, l->k) == LVN_OK);
    CHECK(lvni_pose_labels_check_count(l, 2 * l->k) == LVN_ERR_USAGE);
}

typedef lvn_status (*parse_fn)(const char *path, char *text, size_t bytes, lvni_pose_labels *out);

static void parse_with(parse_fn parse, const uint8_t *data, size_t size)
{
    char *text = lvni_core_alloc(LVNI_TAG_DATA, size + 1);
    CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    lvni_pose_labels labels;
    const lvn_status status = parse("fuzz.csv", text, size, &labels);
    CHECK_REPORTED(status);
    CHECK(status == LVN_OK || status == LVN_ERR_USAGE);
    if (status == LVN_OK) {
        check(&labels);
    } else {
        CHECK(strstr(lvn_last_error()->message, "fuzz.csv") != NULL);
    }
    lvni_pose_labels_free(&labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    parse_with(lvni_pose_labels_parse, data, size);
    parse_with(lvni_pose_dlc_labels_parse, data, size);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
