/* The control channel: frames out of a stream that comes in pieces, and the bodies of all kinds.
 * The first byte is the size of the pieces. */
#include "fuzz.h"

#include "control/message.h"
#include "core/alloc.h"

#include <string.h>

enum { LIMIT = 4096 };

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static void check_table(const lvni_control_frame *frame)
{
    enum { WORLD = 3 };
    lvni_control_member *members = NULL;
    const lvn_status status =
        lvni_control_scan_table((const char *)frame->body, frame->n, WORLD, &members);
    CHECK_REPORTED(status);
    CHECK((status == LVN_OK) == (members != NULL));
    for (int r = 0; status == LVN_OK && r < WORLD; r++) {
        CHECK(members[r].rank == r);
        CHECK(strlen(members[r].host) + strlen(members[r].boot_id) + strlen(members[r].device) +
                  strlen(members[r].driver) + strlen(members[r].fingerprint) <=
              5 * frame->n);
    }
    lvni_core_free(members);
}

/* What the store and the ranks do with a frame, each reader for any type. */
static void check_frame(const lvni_control_frame *frame)
{
    lvni_control_token nonce;
    lvni_control_auth how;
    lvni_control_greet greet;
    lvni_control_cause cause;
    lvni_control_facts_message facts;
    char key[LVNI_CONTROL_MAX_KEY + 1];
    size_t n = 0;
    CHECK(frame->n <= LIMIT && frame->type > LVNI_FRAME_NONE && frame->type < LVNI_FRAME_COUNT);
    CHECK(!lvni_control_scan_hello(frame, &nonce, &how) || how < LVNI_AUTH_COUNT);
    if (lvni_control_scan_greet(frame, &greet)) {
        CHECK(ends(greet.host, sizeof greet.host) && ends(greet.version, sizeof greet.version));
    }
    if (lvni_control_scan_cause(frame, &cause)) {
        CHECK(ends(cause.host, sizeof cause.host) && ends(cause.message, sizeof cause.message) &&
              cause.kind > 0 && cause.kind < LVNI_CAUSE_COUNT);
    }
    lvni_control_scan scan = lvni_control_scan_of(frame);
    lvni_control_scan_u32(&scan);
    if (lvni_control_scan_facts(&scan, &facts)) {
        CHECK(strlen(facts.facts.host) + strlen(facts.facts.config) < frame->n);
    }
    scan = lvni_control_scan_of(frame);
    lvni_control_scan_text(&scan, key, sizeof key);
    CHECK(ends(key, sizeof key));
    const char *bytes = lvni_control_scan_bytes(&scan, &n);
    CHECK(n <= frame->n &&
          (n == 0 ||
           bytes[n - 1] == (char)frame->body[(size_t)(bytes - (const char *)frame->body) + n - 1]));
    CHECK(lvn_status_text(lvni_control_scan_status(&scan))[0] != '\0');
    check_table(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    lvni_control_frame_reader reader = {.limit = LIMIT};
    const size_t piece = size == 0 ? 1 : (size_t)data[0] + 1;
    lvn_status status = LVN_OK;
    for (size_t at = 1; at < size && status == LVN_OK; at += piece) {
        bool have = true;
        CHECK(lvni_control_frame_push(&reader, data + at, size - at < piece ? size - at : piece) ==
              LVN_OK);
        while (have && status == LVN_OK) {
            lvni_control_frame frame;
            status = lvni_control_frame_next(&reader, &frame, &have);
            CHECK_REPORTED(status);
            CHECK(status == LVN_OK || status == LVN_ERR_CORRUPT);
            if (status == LVN_OK && have) {
                check_frame(&frame);
            }
        }
    }
    lvni_control_frame_reader_free(&reader);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
