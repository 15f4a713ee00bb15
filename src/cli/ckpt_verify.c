/* levin ckpt verify FILE|RUN...: is every file complete? Its form, the checksums of header and
 * tensors, and of a checkpoint the position. Called by people and by job scripts, which look at the
 * exit code. */
#include "cli/ckpt.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "run/error_record.h"

#include <stdio.h>

/* Of the tensors, those whose elements nothing here reads. */
static void list_unread(const lvni_ckpt_st_file *f)
{
    enum { SHOWN = 8 };
    const int64_t n = lvni_ckpt_st_count_others(f);
    for (int64_t i = 0; i < n && i < SHOWN; i++) {
        const lvni_ckpt_st_other *t = lvni_ckpt_st_other_at(f, i);
        lvni_core_print(stdout, "%s%s (%s)", i == 0 ? "; levin does not read " : ", ", t->name,
                        t->what);
    }
    if (n > SHOWN) {
        printf(" and %lld more", (long long)(n - SHOWN));
    }
}

/* The file is whole. */
static void describe(const char *name, const lvni_ckpt_st_file *f, const lvni_ckpt *c)
{
    char bytes[LVNI_BYTES_TEXT];
    const int64_t n = lvni_cli_ckpt_count(f);
    lvni_core_print(stdout, "%s: complete: ", name);
    if (c != NULL) {
        printf("step %lld, %lld epoch%s done%s, ", (long long)c->at.step, (long long)c->at.epoch,
               lvni_core_plural(c->at.epoch, "", "s"), c->at.finished ? ", finished" : "");
    } else {
        fputs("weights, ", stdout);
    }
    printf("%lld tensor%s, %s%s", (long long)n, lvni_core_plural(n, "", "s"),
           lvni_core_bytes_text(lvni_cli_ckpt_bytes(f), bytes),
           lvni_ckpt_st_meta_get(f, LVNI_ST_CHECKSUMS) == NULL
               ? "; it has no checksums, only its form was checked"
               : "");
    list_unread(f);
    putchar('\n');
}

static lvn_status describe_json(const char *name, const lvni_ckpt_st_file *f, const lvni_ckpt *c)
{
    lvni_core_str line = {0};
    lvni_core_str_append(&line, "{\"file\": ");
    lvni_core_str_json(&line, name);
    lvni_core_str_printf(&line, ", \"complete\": true, \"kind\": \"%s\", \"checksums\": %s",
                         c != NULL ? "checkpoint" : "weights",
                         lvni_ckpt_st_meta_get(f, LVNI_ST_CHECKSUMS) != NULL ? "true" : "false");
    if (c != NULL) {
        lvni_core_str_printf(&line, ", \"step\": %lld, \"epochs_done\": %lld, \"finished\": %s",
                             (long long)c->at.step, (long long)c->at.epoch,
                             c->at.finished ? "true" : "false");
    }
    lvni_core_str_printf(&line, ", \"tensors\": %lld, \"bytes\": %llu, \"unread\": %lld}",
                         (long long)lvni_cli_ckpt_count(f),
                         (unsigned long long)lvni_cli_ckpt_bytes(f),
                         (long long)lvni_ckpt_st_count_others(f));
    return lvni_cli_ckpt_print_line(&line);
}

static lvn_status describe_incomplete(const char *name, bool json)
{
    lvni_core_str line = {0};
    if (!json) {
        return LVN_OK; /* the errors are printed */
    }
    lvni_core_str_append(&line, "{\"file\": ");
    lvni_core_str_json(&line, name);
    lvni_core_str_append(&line, ", \"complete\": false}");
    return lvni_cli_ckpt_print_line(&line);
}

static lvn_status verify_opened(const char *name, const lvni_ckpt_st_file *f, bool json, int *code)
{
    lvni_ckpt *c = NULL;
    if (lvni_cli_ckpt_print_damage(f, name) > 0) {
        *code = LVNI_EXIT_FAILURE;
        return describe_incomplete(name, json);
    }
    if (lvni_cli_ckpt_is_checkpoint(f)) {
        LVN_TRY(lvni_ckpt_peek(name, &c)); /* the position can be read, too */
    }
    lvn_status s = LVN_OK;
    if (json) {
        s = describe_json(name, f, c);
    } else {
        describe(name, f, c);
    }
    lvni_ckpt_free(c);
    return s;
}

/* Returns an exit code. */
static int verify_file(const char *name, bool json)
{
    lvni_ckpt_st_file *f;
    int code = LVNI_EXIT_OK;
    lvn_status s = lvni_ckpt_st_open(name, 0, &f);
    if (s == LVN_OK) {
        s = verify_opened(name, f, json, &code);
        lvni_ckpt_st_close(f);
    }
    if (s != LVN_OK) {
        code = lvni_run_report_status(s);
        describe_incomplete(name, json);
    }
    return code;
}

static int verify_path(const char *path, bool json)
{
    char **files;
    int64_t n;
    const lvn_status s = lvni_ckpt_files_of(path, &files, &n);
    if (s != LVN_OK) {
        const int code = lvni_run_report_status(s);
        describe_incomplete(path, json);
        return code;
    }
    int code = LVNI_EXIT_OK;
    for (int64_t i = 0; i < n; i++) {
        const int one = verify_file(files[i], json);
        code = code == LVNI_EXIT_OK ? one : code;
    }
    lvni_ckpt_files_free(files, n);
    return code;
}

int lvni_cli_ckpt_verify(const lvni_cli_ckpt_args *args)
{
    int code = LVNI_EXIT_OK; /* of the first that is not complete */
    for (int i = 0; i < args->n_paths; i++) {
        const int one = verify_path(args->paths[i], args->json);
        code = code == LVNI_EXIT_OK ? one : code;
    }
    return code;
}
