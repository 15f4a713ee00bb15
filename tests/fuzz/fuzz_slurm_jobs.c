/* What Slurm's commands print about jobs and nodes, jobs.tsv, scripts and logs: each reader over
 * each text. What is borrowed lies in the text. */
#include "fuzz.h"

#include "core/alloc.h"
#include "slurm/slurm_jobs.h"
#include "slurm/slurm_jobs_nodes.h"
#include "slurm/slurm_jobs_records.h"

#include <string.h>

static void check_part(const char *text, const char *part, size_t n)
{
    CHECK(part == NULL || (part >= text && n <= strlen(part)));
}

static void read_jobs(const char *text)
{
    static const char *const asked[] = {"7", "7_3", "7+1"};
    lvni_slurm_table t;
    char word[LVNI_SLURM_STATE_TEXT];
    const char *advice;
    CHECK(lvni_slurm_table_read(text, LVNI_SLURM_SEPARATOR, LVNI_SLURM_JOB_FIELDS, &t) == LVN_OK);
    for (size_t row = 0; row < t.n; row++) {
        for (int i = 0; i < LVNI_SLURM_JOB_FIELDS; i++) {
            CHECK(lvni_slurm_table_at(&t, row, i) != NULL);
        }
        const char *id = lvni_slurm_table_at(&t, row, LVNI_SLURM_JOB_ID);
        CHECK(!lvni_slurm_id_read(id) || lvni_slurm_id_covers(id, id, ""));
        for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
            (void)lvni_slurm_id_covers(asked[i], id,
                                       lvni_slurm_table_at(&t, row, LVNI_SLURM_JOB_RAW));
        }
        (void)lvni_slurm_state_read(lvni_slurm_table_at(&t, row, LVNI_SLURM_JOB_STATE), word);
        (void)lvni_slurm_reason_text(lvni_slurm_table_at(&t, row, LVNI_SLURM_JOB_REASON), &advice);
    }
    lvni_slurm_table_free(&t);
    (void)lvni_slurm_state_read(text, word);
    CHECK(strlen(word) < sizeof word);
}

static void read_show(const char *text)
{
    static const char *const keys[] = {"JobState", "StdOut", "ExitCode", "WorkDir"};
    for (const char *job = text; job != NULL; job = lvni_slurm_show_next(job)) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            size_t n = 0;
            const char *value = lvni_slurm_show_value(job, keys[i], &n);
            check_part(text, value, n);
        }
    }
}

static void read_nodes(const char *text)
{
    lvni_slurm_partitions c;
    CHECK(lvni_slurm_partitions_read(text, NULL, false, &c) == LVN_OK);
    for (size_t i = 0; i < c.n; i++) {
        CHECK(c.list[i].n > 0 && c.list[i].n_gpus <= LVNI_SLURM_GPU_TYPES);
        CHECK(c.list[i].usable || (c.list[i].cpus_free == 0 && c.list[i].memory_free == 0));
    }
    lvni_slurm_partitions_free(&c);
}

static void read_records(const char *text)
{
    static const char *const words[] = {"last", "7", "name"};
    lvni_slurm_table t;
    lvni_core_str out = {0};
    size_t n = 0, row;
    CHECK(lvni_slurm_table_read(text, '\t', LVNI_SLURM_SENT_FIELDS, &t) == LVN_OK);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char id[LVNI_SLURM_ID_TEXT];
        if (lvni_slurm_sent_find(&t, words[i], &row)) {
            CHECK(row < t.n);
            lvni_slurm_sent_id(&t, row, id);
            CHECK(id[0] != '\0');
        }
    }
    lvni_slurm_table_free(&t);
    (void)lvni_slurm_script_directive(text, "output", &out);
    (void)lvni_slurm_script_run_dir(text, &out);
    lvni_core_str_clear(&out);
    (void)lvni_slurm_log_name(text, "7_3", "name", "me", &out);
    CHECK(lvni_core_str_status(&out) == LVN_OK);
    lvni_core_str_free(&out);
    const char *part = lvni_slurm_log_cause(text, &n);
    check_part(text, part, n);
    part = lvni_slurm_log_run_dir(text, &n);
    check_part(text, part, n);
    part = lvni_slurm_train_log_error(text, &n);
    check_part(text, part, n);
    for (int lines = 0; lines < 4; lines++) {
        CHECK(lvni_slurm_last_lines(text, strlen(text), lines) <= strlen(text));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    char *text = lvni_core_alloc(LVNI_TAG_CORE, size + 1);
    CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    read_jobs(text);
    read_show(text);
    read_nodes(text);
    read_records(text);
    lvni_core_free(text);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
