/* What the two files of the example backend share. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <levin/backend.h>

/* Where the device's own code reads and writes an address of its memory; of host memory itself. */
void *example_mine(const void *address);

/* Around the work of a submission:
 *     if (example_begin(stream)) status = ...;
 *     return example_end(stream, "what", status);
 * false: the stream has failed, and the work is left out. */
bool example_begin(void *stream);
lvn_status example_end(void *stream, const char *what, lvn_status status);

extern const lvn_backend_kernel example_kernels[];
extern const int example_n_kernels;
extern const lvn_backend_flat example_flat;
bool example_supports(void *device, const lvn_kernel_args *args);

#endif
