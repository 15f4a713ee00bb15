/* A user's job (levin/trainer.h): its keys, and its module and datasets in the request of a run.
 * Called by programs that train (api/) and by recipes in shared objects. */
#include "run/image_headers.h"
#include "run/options.h"
#include "run/recipe.h"

#include <levin/trainer.h>
#include <string.h>

const lvni_core_option_table *const lvni_run_job_keys[LVNI_RUN_JOB_TABLES + 1] = {
    &lvni_run_options,      &lvni_run_batch_options,      &lvni_run_optim_table,
    &lvni_run_loop_options, &lvni_run_checkpoint_options, NULL};

static lvn_status check_streams(const lvn_stream *streams, int n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    enum { LONGEST = 23 };
    LVN_ARG(n >= 0 && n <= LVN_MAX_STREAMS, "%d streams: 0 to %d are possible", n, LVN_MAX_STREAMS);
    for (int i = 0; i < n; i++) {
        const char *name = streams[i].name;
        LVN_ARG(name != NULL && name[0] != '\0' && strlen(name) <= LONGEST &&
                    strspn(name, letters) == strlen(name),
                "stream %d has the name '%.40s': 1 to %d lower case letters, digits and _", i,
                name == NULL ? "" : name, LONGEST);
        for (int k = 0; k < i; k++) {
            LVN_ARG(strcmp(streams[k].name, name) != 0, "two streams have the name %s", name);
        }
        if (streams[i].dataset == NULL && lvn_last_error()->code != LVN_OK) {
            return lvn_last_error()->code; /* opening it failed */
        }
        LVN_ARG(streams[i].dataset != NULL, "the stream %s has no dataset", name);
        LVN_ARG((unsigned)streams[i].order <= LVN_ORDER_REPLACEMENT &&
                    (unsigned)streams[i].rule <= LVN_STREAM_LENGTHENS,
                "the stream %s has order %d and rule %d: none of the enums'", name,
                (int)streams[i].order, (int)streams[i].rule);
        LVN_ARG(streams[i].batch >= 0 && streams[i].ratio >= 0.0,
                "the stream %s has batch %lld and ratio %g: 0 or more", name,
                (long long)streams[i].batch, streams[i].ratio);
    }
    return LVN_OK;
}

lvn_status lvni_run_open_job(const lvn_job *job, const char *of, lvni_run_job *request)
{
    LVN_ARG(job->module != NULL, "%s needs a module class", of);
    LVN_ARG(job->module->training_step != NULL, "the module class %s has no training_step",
            job->module->name);
    if (job->train == NULL && lvn_last_error()->code != LVN_OK) {
        return lvn_last_error()->code; /* opening it failed */
    }
    LVN_ARG(job->train != NULL, "%s needs a training set", of);
    LVN_ARG((unsigned)job->order <= LVN_ORDER_REPLACEMENT, "%s has order %d: none of the enum's",
            of, (int)job->order);
    LVN_TRY(check_streams(job->streams, job->n_streams));
    request->cls = job->module;
    request->arguments = job->arguments;
    request->train = job->train;
    request->val = job->val;
    request->order = job->order;
    request->streams = job->streams;
    request->n_streams = job->n_streams;
    /* without a configuration the job alone is checked */
    return request->config == NULL ? LVN_OK : lvni_run_look_at_images(job, request);
}

void lvni_run_close_job(const lvn_job *job)
{
    lvn_dataset_destroy(job->train);
    lvn_dataset_destroy(job->val == job->train ? NULL : job->val);
    for (int i = 0; job->streams != NULL && i < job->n_streams; i++) {
        lvn_dataset *d = job->streams[i].dataset;
        bool again = d == job->train || d == job->val;
        for (int k = 0; k < i; k++) {
            again = again || d == job->streams[k].dataset;
        }
        lvn_dataset_destroy(again ? NULL : d);
    }
}
