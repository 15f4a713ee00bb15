/* Values of `levin launch` that are written as torchrun takes them. */
#ifndef LEVIN_LAUNCH_LAUNCH_TORCHRUN_H
#define LEVIN_LAUNCH_LAUNCH_TORCHRUN_H

#include "launch/launch_options.h"

enum { LVNI_STREAM_OUT = 1, LVNI_STREAM_ERR = 2 }; /* torchrun's numbers; 3: both */

/* Checks of option rows. */
lvn_status lvni_launch_torchrun_check_nodes(const lvni_core_option *row,
                                            const lvni_core_value *value, const char *origin);
lvn_status lvni_launch_torchrun_check_streams(const lvni_core_option *row,
                                              const lvni_core_value *value, const char *origin);
lvn_status lvni_launch_torchrun_check_endpoint(const lvni_core_option *row,
                                               const lvni_core_value *value, const char *origin);

/* "2" or "2:2", checked: 2. */
int lvni_launch_torchrun_nodes(const char *text);
/* "3" for all, or "0:1,1:2" by local rank: the streams of this one. NULL, "true" and "false":
 * none. */
int lvni_launch_torchrun_streams(const char *text, int local_rank);
/* rdzv_endpoint, rdzv_backend and standalone become master_addr and master_port. `text`: room for
 * what they point to. */
lvn_status lvni_launch_torchrun_rendezvous(lvni_launch_options *o);

#endif
