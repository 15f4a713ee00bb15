/* lvn_batch_stream: the samples of a stream beside a micro-batch (data/streams.h). */
#include "autograd/tape.h"
#include "data/streams.h"
#include "tensor/ctx.h"

#include <levin/nn.h>
#include <stdio.h>
#include <string.h>

static void fail(const lvn_batch_streams *streams, const char *name)
{
    char known[LVN_MAX_STREAMS * 32] = "";
    for (int i = 0; i < streams->n; i++) {
        const size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%.23s", i > 0 ? ", " : "", streams->name[i]);
    }
    lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                  "lvn_batch_stream asks for the stream '%.40s'; the training has %s", name,
                  streams->n > 0 ? known : "none");
    (void)lvni_autograd_op_fail(NULL);
}

const lvn_batch *lvn_batch_stream(const lvn_batch *batch, const char *name)
{
    const lvn_batch_streams *streams = batch->streams;
    if (streams == NULL || !lvni_tensor_ctx_get()->at.training) {
        return NULL;
    }
    for (int i = 0; i < streams->n; i++) {
        if (strcmp(streams->name[i], name) == 0) {
            return streams->batch[i].size > 0 ? &streams->batch[i] : NULL;
        }
    }
    fail(streams, name);
    return NULL;
}
