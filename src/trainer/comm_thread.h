/* The communication thread of a rank on a device: what has to wait for the device or for other
 * ranks runs here, so that the step's thread submits on. Jobs run one after the other, in the order
 * in which they were given; while there are any, the rank's communicator is theirs alone. */
#ifndef LEVIN_TRAINER_COMM_THREAD_H
#define LEVIN_TRAINER_COMM_THREAD_H

#include <levin/status.h>
#include <stdint.h>

typedef struct lvni_trainer_comm_thread lvni_trainer_comm_thread;
typedef lvn_status (*lvni_trainer_comm_job)(void *user);

enum { LVNI_COMM_JOBS = 4 }; /* given and not done, at most */

/* Jobs compute with the team and pins that the calling thread's context has now. LVN_ERR_MEMORY. */
lvn_status lvni_trainer_comm_thread_create(lvni_trainer_comm_thread **out);
/* After the jobs that were given; NULL is fine. */
void lvni_trainer_comm_thread_destroy(lvni_trainer_comm_thread *thread);

/* The number of the job, from 1. Of one thread. After a job failed the later ones do not run. */
uint64_t lvni_trainer_comm_thread_give(lvni_trainer_comm_thread *thread, lvni_trainer_comm_job run,
                                       void *user);
/* Any thread: the job is done, or was left out. The first error up to it. */
lvn_status lvni_trainer_comm_thread_wait(lvni_trainer_comm_thread *thread, uint64_t job);

#endif
