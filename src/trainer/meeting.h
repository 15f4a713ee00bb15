/* The meeting of a group of coupled shards: every lane that works on one of them brings a tensor,
 * waits for the others, and reads what all brought. One object serves one group at a time; step.c
 * opens it before the shards run. */
#ifndef LEVIN_TRAINER_MEETING_H
#define LEVIN_TRAINER_MEETING_H

#include "dist/among.h"
#include "tensor/group.h"

typedef struct lvni_meeting lvni_meeting;

/* For groups of `shards`. */
lvn_status lvni_meeting_create(int shards, lvni_meeting **out);
void lvni_meeting_destroy(lvni_meeting *meeting); /* NULL is fine */
/* A new group: nobody is expected. While no shard runs. among: shards of it are on ranks lo .. hi -
 * 1, of which this is `rank`; NULL: all of it is here. */
typedef struct lvni_meeting_ranks {
    lvni_among *among;
    int lo, hi, rank;
} lvni_meeting_ranks;
void lvni_meeting_open(lvni_meeting *meeting, const lvni_meeting_ranks *ranks);
/* Shard `index` of the group will come. While no shard runs. */
void lvni_meeting_expect(lvni_meeting *meeting, int index);
/* For the context of the shard. */
const lvni_group *lvni_meeting_group(const lvni_meeting *meeting, int index);
/* The shard comes no more: it is done, or has failed with the thread's last error, which then ends
 * the meeting for the others. */
void lvni_meeting_leave(lvni_meeting *meeting, int index, lvn_status status);
/* After this rank's shards: takes part, without them, until the other ranks' shards have ended,
 * too. */
lvn_status lvni_meeting_close(lvni_meeting *meeting);
/* After the shards: what failed first, as the thread's error again. */
lvn_status lvni_meeting_status(const lvni_meeting *meeting);

/* A group for a dry run: the others bring what this shard brings. */
typedef struct lvni_dry_group lvni_dry_group;
lvn_status lvni_dry_group_create(int shards, lvni_dry_group **out);
void lvni_dry_group_destroy(lvni_dry_group *group);
const lvni_group *lvni_dry_group_get(const lvni_dry_group *group);

#endif
