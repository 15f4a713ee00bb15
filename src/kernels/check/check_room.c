/* Memory of a device with guards around it (check.h). */
#include "kernels/check/check.h"
#include "tensor/tensor.h"

#include <string.h>

enum { GUARD = LVNI_CHECK_GUARD, FILL = 0xff }; /* f32, f16: NaN; i64: -1 */

lvn_status lvni_check_room_make(lvni_tensor_device *device, const void *host, size_t bytes,
                                size_t shift, lvni_check_room *out)
{
    *out = (lvni_check_room){.before = GUARD + shift, .bytes = bytes};
    const int64_t shape = (int64_t)(bytes + shift + 2 * GUARD);
    lvn_tensor *here = lvn_tensor_create(LVN_U8, 1, &shape);
    if (here == NULL) {
        return lvn_last_error()->code;
    }
    memset(here->data, FILL, (size_t)shape);
    if (host != NULL) {
        memcpy((char *)here->data + out->before, host, bytes);
    }
    out->all = lvni_tensor_to(here, device);
    lvn_release(here);
    return out->all == NULL ? lvn_last_error()->code : LVN_OK;
}

void *lvni_check_room_part(const lvni_check_room *room)
{
    return (char *)room->all->data + room->before;
}

lvn_status lvni_check_room_read(const lvni_check_room *room, const char *what, void *host)
{
    lvn_tensor *here = lvni_tensor_to(room->all, NULL);
    if (here == NULL) {
        return lvn_last_error()->code;
    }
    const unsigned char *byte = here->data;
    const size_t n = (size_t)lvn_numel(here), end = room->before + room->bytes;
    size_t at = 0;
    while (at < n && ((at >= room->before && at < end) || byte[at] == FILL)) {
        at++;
    }
    if (at == n) {
        memcpy(host, byte + room->before, room->bytes);
    }
    lvn_release(here);
    if (at < room->before) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s wrote before its memory, at byte -%zu from it", what,
                 room->before - at);
    }
    if (at < n) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s wrote behind the end of its memory, at byte %zu from it",
                 what, at - end);
    }
    return LVN_OK;
}

void lvni_check_room_free(lvni_check_room *room)
{
    lvn_release(room->all);
    *room = (lvni_check_room){.all = NULL};
}
