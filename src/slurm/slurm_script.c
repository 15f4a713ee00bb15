/* Writes the script of a job (slurm_script.h). */
#include "slurm/slurm_script.h"

#include "core/error.h"
#include "core/escape.h"

#include <levin/version.h>
#include <string.h>

/* Bytes of the $(...) at `p`, or of what there is of it: quotes and parentheses within count. */
static size_t substitution(const char *p)
{
    size_t n = 2, depth = 1;
    bool quoted = false;
    while (p[n] != '\0' && depth > 0) {
        if (p[n] == '\\' && p[n + 1] != '\0') {
            n += 2;
        } else if (strncmp(p + n, "$(", 2) == 0) {
            n += substitution(p + n);
        } else if (p[n] == '\'' && !quoted) {
            const char *end = strchr(p + n + 1, '\'');
            n = end != NULL ? (size_t)(end - p) + 1 : n + strlen(p + n);
        } else {
            quoted = quoted != (p[n] == '"');
            depth += !quoted && p[n] == '(';
            depth -= !quoted && p[n] == ')';
            n++;
        }
    }
    return n;
}

/* Between double quotes; $(...) and \$, which is a dollar, stay as they are. */
static void put_open(lvni_core_str *out, const char *text)
{
    lvni_core_str_char(out, '"');
    while (*text != '\0') {
        const size_t n = strncmp(text, "$(", 2) == 0    ? substitution(text)
                         : strncmp(text, "\\$", 2) == 0 ? 2
                                                        : 1;
        if (n == 1 && strchr("\"\\`", *text) != NULL) {
            lvni_core_str_char(out, '\\');
        }
        lvni_core_str_append_n(out, text, n);
        text += n;
    }
    lvni_core_str_char(out, '"');
}

void lvni_slurm_word(lvni_core_str *out, const char *text, bool expands)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:=@%+,-";
    if (text[0] != '\0' && text[strspn(text, plain)] == '\0') {
        lvni_core_str_append(out, text);
        return;
    }
    if (expands && strchr(text, '$') != NULL) {
        put_open(out, text);
        return;
    }
    lvni_core_str_char(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            lvni_core_str_append(out, "'\\''");
        } else {
            lvni_core_str_char(out, *text);
        }
    }
    lvni_core_str_char(out, '\'');
}

/* ---- lines ---- */

/* A line of the script, or a comment where `text` begins with `?`: each of its lines is one then.
 * Ends and frees `line`. */
static void put_line(lvni_core_str *out, lvni_core_str *line, bool comment)
{
    lvni_core_str_append(out, comment ? "# " : "");
    for (const char *p = lvni_core_str_text(line); *p != '\0'; p++) {
        lvni_core_str_char(out, *p);
        lvni_core_str_append(out, comment && *p == '\n' ? "# " : "");
    }
    lvni_core_str_char(out, '\n');
    out->failed = out->failed || line->failed;
    lvni_core_str_free(line);
}

/* "FRONT WORD", with `back` behind the word; that is given with or without `?`. The job ends where
 * the line fails, so that the program does not run in another environment; `module` of old versions
 * has no exit code. */
static void put_word(lvni_core_str *out, const char *front, const char *word, const char *back,
                     bool raw)
{
    lvni_core_str line = {0}, joined = {0};
    const bool comment = word[0] == '?';
    lvni_core_str_printf(&joined, "%s%s", word + comment, back);
    lvni_core_str_append(&line, front);
    lvni_slurm_word(&line, lvni_core_str_text(&joined), raw);
    lvni_core_str_append(&line, strncmp(front, "module", 6) == 0 ? "" : " || exit");
    line.failed = line.failed || joined.failed;
    lvni_core_str_free(&joined);
    put_line(out, &line, comment);
}

/* A text that is given as it is. */
static void put_code(lvni_core_str *out, const char *text)
{
    lvni_core_str line = {0};
    const bool comment = text[0] == '?';
    lvni_core_str_append(&line, text + comment);
    put_line(out, &line, comment);
}

static void put_export(lvni_core_str *out, const char *name, const char *value, bool comment,
                       bool expands)
{
    lvni_core_str line = {0};
    lvni_core_str_printf(&line, "export %s=", name);
    if (value[0] == '^' && strchr(value, ' ') == NULL &&
        strpbrk(value, "'\"\\$`;&|<>()\n") == NULL) {
        lvni_core_str_append(&line, value); /* ^docker0,lo is a word of bash as it is */
    } else {
        lvni_slurm_word(&line, value, expands);
    }
    put_line(out, &line, comment);
}

/* The value of an option as given, with its `?`; NULL: unset. */
static const char *given(const lvni_slurm_job *job, const char *key)
{
    return lvni_slurm_given(job->options, key);
}

/* ---- set-up ---- */

static void put_setup(const lvni_slurm_job *job, lvni_core_str *out)
{
    const lvni_slurm_options *o = job->options;
    const char *text, *base = given(job, "conda_base"), *conda = given(job, "conda"),
                      *venv = given(job, "venv");
    const bool raw = lvni_slurm_is_on(o, "raw");
    if (lvni_slurm_is_on(o, "module_purge")) {
        lvni_core_str_append(out, "module purge\n");
    }
    for (size_t i = 0; (text = lvni_slurm_item_at(o, "module", i)) != NULL; i++) {
        put_word(out, "module load ", text, "", false);
    }
    if (base != NULL) {
        put_word(out, "source ", base, "/etc/profile.d/conda.sh", raw);
    }
    if (conda != NULL) {
        put_word(out, "conda activate ", conda, "", raw);
    }
    if (venv != NULL) {
        put_word(out, "source ", venv, "/bin/activate", raw);
    }
    for (size_t i = 0; (text = lvni_slurm_item_at(o, "setup", i)) != NULL; i++) {
        put_code(out, text);
    }
}

/* ---- variables ---- */

/* NAME=VALUE of export and nccl. */
static void put_variable(const lvni_slurm_job *job, const char *text, const char *prefix,
                         lvni_core_str *out)
{
    lvni_core_str name = {0};
    const bool comment = text[0] == '?';
    const char *equals = strchr(text += comment, '=');
    lvni_core_str_append(&name, strncmp(text, prefix, strlen(prefix)) == 0 ? "" : prefix);
    lvni_core_str_append_n(&name, text, (size_t)(equals - text));
    put_export(out, lvni_core_str_text(&name), equals + 1, comment,
               lvni_slurm_is_on(job->options, "raw"));
    out->failed = out->failed || name.failed;
    lvni_core_str_free(&name);
}

/* Of rows that are a variable each. */
static void put_named(const lvni_slurm_job *job, lvni_core_str *out)
{
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *row = &lvni_slurm_rows[i];
        const char *text = row->emission == LVNI_SLURM_EXPORT ? given(job, row->key) : NULL;
        if (text != NULL) {
            put_export(out, row->name, text + (text[0] == '?'), text[0] == '?', false);
        }
    }
}

static void put_debug(const lvni_slurm_job *job, lvni_core_str *out)
{
    const char *folder = lvni_slurm_text(job->options, "log_dir");
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/nccl.%%h.%%p.log", folder != NULL ? folder : ".");
    put_export(out, "CUDA_LAUNCH_BLOCKING", "1", false, false);
    if (given(job, "nccl_debug") == NULL) {
        put_export(out, "NCCL_DEBUG", "INFO", false, false);
    }
    put_export(out, "NCCL_DEBUG_FILE", lvni_core_str_text(&path), false, false);
    out->failed = out->failed || path.failed;
    lvni_core_str_free(&path);
}

static void put_variables(const lvni_slurm_job *job, lvni_core_str *out)
{
    const lvni_slurm_options *o = job->options;
    const char *text, *port = lvni_slurm_text(o, "master_port"),
                      *hidden = lvni_slurm_comment(o, "master_port");
    const lvni_slurm_directive *propagate = lvni_slurm_directive_find(&job->directives, "export");
    if (job->cpus > 0) { /* since 22.05 srun does not take it from the job */
        lvni_core_str_append(out, "export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n");
    }
    if (propagate != NULL && propagate->value != NULL && strcmp(propagate->value, "ALL") != 0) {
        /* what the script exports is not in the list, which srun would follow */
        lvni_core_str_append(out, "export SLURM_EXPORT_ENV=ALL\n");
    }
    for (size_t i = 0; (text = lvni_slurm_item_at(o, "export", i)) != NULL; i++) {
        put_variable(job, text, "", out);
    }
    put_named(job, out);
    for (size_t i = 0; (text = lvni_slurm_item_at(o, "nccl", i)) != NULL; i++) {
        put_variable(job, text, "NCCL_", out);
    }
    if (lvni_slurm_is_on(o, "debug")) {
        put_debug(job, out);
    }
    const char *value = hidden != NULL ? hidden : port;
    if (value != NULL && strcmp(value, "auto") != 0) {
        const bool random = strcmp(value, "random") == 0;
        lvni_core_str_printf(out, "%sexport MASTER_PORT=%s\n", hidden != NULL ? "# " : "",
                             random ? "$((12000 + RANDOM % 20000))" : value);
    }
}

/* ---- the program ---- */

static void put_banner(const lvni_slurm_job *job, lvni_core_str *out)
{
    const lvni_slurm_directive *time = lvni_slurm_directive_find(&job->directives, "time");
    const int64_t independent = lvni_slurm_number(job->options, "independent_tasks", 0),
                  per_node = lvni_slurm_job_node_is_task(job) && job->devices > 0 ? job->devices
                                                                                  : job->per_node;
    lvni_core_str_append(out, "echo \"levin: job $SLURM_JOB_ID restart ${SLURM_RESTART_COUNT:-0} "
                              "nodes $SLURM_JOB_NODELIST");
    if (independent > 0) {
        lvni_core_str_printf(out, " tasks %lld", (long long)independent);
    } else if (per_node > 0 && (job->trains || !lvni_slurm_is_on(job->options, "no_srun"))) {
        lvni_core_str_printf(out, " ranks %lld", (long long)job->nodes * per_node);
    }
    if (time != NULL && time->value != NULL) {
        lvni_core_str_printf(out, " limit %s", time->value);
    }
    lvni_core_str_append(out, "\"\n");
}

static void add_srun(const lvni_slurm_job *job, lvni_core_str *line)
{
    const lvni_slurm_options *o = job->options;
    const char *text;
    const bool one_group = lvni_slurm_text(o, "independent_tasks") == NULL;
    lvni_core_str_printf(line, "srun%s --unbuffered", one_group ? " --kill-on-bad-exit=1" : "");
    if (job->cpus > 0) {
        lvni_core_str_printf(line, " --cpus-per-task=%lld", (long long)job->cpus);
    }
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *row = &lvni_slurm_rows[i];
        text = row->emission == LVNI_SLURM_SRUN ? lvni_slurm_text(o, row->key) : NULL;
        if (text != NULL) {
            lvni_core_str_printf(line, " --%s=", row->name);
            lvni_slurm_word(line, text, false);
        }
    }
    for (size_t i = 0; (text = lvni_slurm_item_at(o, "srun_arg", i)) != NULL; i++) {
        lvni_core_str_char(line, ' ');
        lvni_slurm_word(line, text, false);
    }
    lvni_core_str_char(line, ' ');
}

static void add_program(const lvni_slurm_job *job, lvni_core_str *line)
{
    const lvni_slurm_options *o = job->options;
    const char *image = lvni_slurm_text(o, "container"), *mode = lvni_slurm_text(o, "mode");
    if (image != NULL) {
        lvni_core_str_printf(line, "%s ", lvni_slurm_text(o, "container_cmd"));
        lvni_slurm_word(line, image, false);
        lvni_core_str_char(line, ' ');
    }
    if (mode != NULL && strcmp(mode, "launcher") == 0) {
        lvni_core_str_append(line, "levin launch");
        if (job->devices > 0) {
            lvni_core_str_printf(line, " -n %lld", (long long)job->devices);
        }
        lvni_core_str_append(line, " -- ");
    }
    for (int i = 0; i < job->n_words; i++) {
        lvni_core_str_append(line, i > 0 ? " " : "");
        lvni_slurm_word(line, job->words[i], lvni_slurm_is_on(o, "raw"));
    }
}

/* In the background, so that the shell can pass its signal on; srun gives it to all tasks. A wait
 * that a signal ends is repeated, and of a srun that ended meanwhile the shell still knows the
 * code. */
static void put_background(const lvni_slurm_job *job, const char *line, lvni_core_str *out)
{
    const char *name = job->signal.name;
    lvni_core_str_printf(out,
                         "%s &\n"
                         "step=$!\n"
                         "trap 'again=1; kill -%s \"$step\"' %s\n"
                         "again=1\n"
                         "rc=127\n"
                         "while [ \"$again\" -eq 1 ]; do\n"
                         "    again=0\n"
                         "    wait \"$step\"\n"
                         "    code=$?\n"
                         "    [ \"$code\" -eq 127 ] || rc=$code\n"
                         "done\n",
                         line, name, name);
}

static void put_run(const lvni_slurm_job *job, lvni_core_str *out)
{
    lvni_core_str line = {0};
    if (job->front != NULL) {
        lvni_core_str_printf(&line, "%s ", job->front);
    }
    if (!lvni_slurm_is_on(job->options, "no_srun")) {
        add_srun(job, &line);
    }
    add_program(job, &line);
    if (job->has_signal && job->signal.batch) {
        put_background(job, lvni_core_str_text(&line), out);
    } else {
        lvni_core_str_printf(out, "%s\nrc=$?\n", lvni_core_str_text(&line));
    }
    out->failed = out->failed || line.failed;
    lvni_core_str_free(&line);
}

/* A training that was queued again has not failed. Where levin is in the container alone, or not
 * found, the code stays what it is. */
static void put_finish(const lvni_slurm_job *job, lvni_core_str *out)
{
    const bool own = job->words[0][0] == '/'; /* the path of this levin */
    lvni_slurm_word(out, own ? job->words[0] : "levin", false);
    lvni_core_str_append(out, " slurm finish \"$rc\"");
    if (job->run_dir != NULL) {
        lvni_core_str_char(out, ' ');
        lvni_slurm_word(out, job->run_dir, lvni_slurm_is_on(job->options, "raw"));
    }
    lvni_core_str_append(out, " && rc=0\n");
}

lvn_status lvni_slurm_script_write(const lvni_slurm_job *job, int n_args, const char *const *args,
                                   lvni_core_str *out)
{
    const lvni_slurm_options *o = job->options;
    const char *text, *made_by = job->made_by != NULL ? job->made_by : "levin slurm script";
    lvni_core_str_printf(out, "%s\n# generated by %s %s: %s", lvni_slurm_text(o, "shebang"),
                         made_by, lvn_version(), made_by);
    for (int i = 0; i < n_args; i++) {
        lvni_core_str_char(out, ' ');
        lvni_core_shell_quote(out, args[i]);
    }
    lvni_core_str_char(out, '\n');
    lvni_slurm_directives_print(&job->directives, out);
    lvni_core_str_char(out, '\n');
    put_setup(job, out);
    put_variables(job, out);
    if (lvni_slurm_is_on(o, "shell_trace")) {
        lvni_core_str_append(out, "set -x\n");
    }
    put_banner(job, out);
    put_run(job, out);
    for (size_t i = 0; (text = lvni_slurm_item_at(o, "teardown", i)) != NULL; i++) {
        put_code(out, text);
    }
    if (job->trains && job->front == NULL) { /* a sweep's worker marks no run directory */
        put_finish(job, out);
    }
    lvni_core_str_append(out, "exit \"$rc\"\n");
    return lvni_core_str_status(out);
}
