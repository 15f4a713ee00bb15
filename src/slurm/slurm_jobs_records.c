/* What levin itself knows of a job (slurm_jobs_records.h). */
#include "slurm/slurm_jobs_records.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SENT_MOST = 64 << 20 }; /* bytes of a jobs.tsv */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- jobs.tsv ---- */

lvn_status lvni_slurm_sent_read(const char *folder, lvni_slurm_table *out)
{
    lvni_core_str path = {0};
    char *text = NULL;
    size_t bytes;
    lvn_status s;
    *out = (lvni_slurm_table){.n = 0};
    lvni_core_str_printf(&path, "%s/jobs.tsv", folder);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (lvni_core_path_exists(lvni_core_str_text(&path))) {
        LVNI_TRY_DONE(s, lvni_core_file_read(lvni_core_str_text(&path), SENT_MOST, &text, &bytes));
        s = lvni_slurm_table_read(text, '\t', LVNI_SLURM_SENT_FIELDS, out);
    }
done:
    lvni_core_free(text);
    lvni_core_str_free(&path);
    return s;
}

void lvni_slurm_sent_id(const lvni_slurm_table *sent, size_t row, char id[LVNI_SLURM_ID_TEXT])
{
    const char *job = lvni_slurm_table_at(sent, row, LVNI_SLURM_SENT_JOB);
    const size_t n = strspn(job, "0123456789");
    id[0] = '\0';
    if (n < LVNI_SLURM_ID_TEXT) {
        memcpy(id, job, n);
        id[n] = '\0';
    }
}

bool lvni_slurm_sent_find(const lvni_slurm_table *sent, const char *word, size_t *row)
{
    const size_t digits = lvni_slurm_id_read(word) ? strspn(word, "0123456789") : 0;
    for (size_t i = sent->n; i-- > 0;) {
        char id[LVNI_SLURM_ID_TEXT];
        lvni_slurm_sent_id(sent, i, id);
        const char *name = lvni_slurm_table_at(sent, i, LVNI_SLURM_SENT_NAME);
        const bool it = digits > 0 ? strlen(id) == digits && strncmp(id, word, digits) == 0
                                   : strcmp(word, "last") == 0 || strcmp(word, name) == 0;
        if (id[0] != '\0' && it) {
            *row = i;
            return true;
        }
    }
    return false;
}

/* ---- scripts ---- */

/* A word as a shell reads it, behind its quotes; what it ends at. `$` and "`" are of the job. */
static const char *read_word(const char *p, lvni_core_str *out, bool *open)
{
    char quote = '\0';
    for (; *p != '\0' && (quote != '\0' || strchr(" \t\n;&|<>", *p) == NULL); p++) {
        if (quote == '\0' ? *p == '"' || *p == '\'' : *p == quote) {
            quote = quote == '\0' ? *p : '\0';
            continue;
        }
        if (*p == '\\' && quote != '\'' && p[1] != '\0') {
            p++;
        } else {
            *open = *open || (quote != '\'' && (*p == '$' || *p == '`'));
        }
        lvni_core_str_char(out, *p);
    }
    return p;
}

bool lvni_slurm_script_directive(const char *script, const char *name, lvni_core_str *out)
{
    const size_t n = strlen(name);
    for (const char *line = script; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n'), *option = line + strlen("#SBATCH --");
        if (begins(line, "#SBATCH --") && strncmp(option, name, n) == 0 && option[n] == '=') {
            bool open = false;
            (void)read_word(option + n + 1, out, &open);
            return true;
        }
        line = end == NULL ? NULL : end + 1;
    }
    return false;
}

bool lvni_slurm_script_run_dir(const char *script, lvni_core_str *out)
{
    lvni_core_str word = {0};
    bool found = false;
    for (const char *line = script; *line != '\0'; line += *line == '\n') {
        const size_t comment = *line == '#' ? strcspn(line, "\n") : 0;
        line += comment;
        while (*line != '\0' && *line != '\n') {
            bool open = false;
            lvni_core_str_clear(&word);
            const char *next = read_word(line, &word, &open);
            const char *text = lvni_core_str_text(&word);
            text += begins(text, "--") ? 2 : 0;
            if (begins(text, "out=") && text[4] != '\0' && !open) {
                lvni_core_str_clear(out);
                lvni_core_str_append(out, text + 4);
                found = true;
            }
            line = next == line ? next + 1 : next;
        }
    }
    lvni_core_str_free(&word);
    return found;
}

/* The digits of `%5j` are its least width. */
static void add_number(lvni_core_str *out, const char *digits, size_t n, long width)
{
    for (long i = (long)n; i < width; i++) {
        lvni_core_str_char(out, '0');
    }
    lvni_core_str_append_n(out, digits, n);
}

bool lvni_slurm_log_name(const char *pattern, const char *id, const char *name, const char *user,
                         lvni_core_str *out)
{
    const size_t base = strspn(id, "0123456789");
    const char *element = id[base] == '_' ? id + base + 1 : NULL;
    for (const char *p = pattern; *p != '\0'; p++) {
        if (*p != '%') {
            lvni_core_str_char(out, *p);
            continue;
        }
        char *end = NULL;
        const bool digits = p[1] >= '0' && p[1] <= '9';
        const long width = digits ? strtol(p + 1, &end, 10) : 0;
        p = end != NULL ? end : p + 1;
        if (width > 10 || *p == '\0' || strchr("jAaxu%", *p) == NULL ||
            (*p == 'a' && element == NULL) || (*p == 'j' && element != NULL)) {
            return false; /* an element's own number is not known here */
        }
        switch (*p) {
        case 'x': lvni_core_str_append(out, name); break;
        case 'u': lvni_core_str_append(out, user); break;
        case '%': lvni_core_str_char(out, '%'); break;
        case 'a': add_number(out, element, strlen(element), width); break;
        default: add_number(out, id, base, width); break;
        }
    }
    return true;
}

/* ---- run directories ---- */

bool lvni_slurm_run_job(const char *run_dir, char id[LVNI_SLURM_ID_TEXT])
{
    lvni_core_str path = {0};
    char *text = NULL;
    size_t bytes = 0;
    bool found = false;
    lvni_core_str_printf(&path, "%s/job_id", run_dir);
    if (lvni_core_str_status(&path) == LVN_OK && lvni_core_path_exists(lvni_core_str_text(&path)) &&
        lvni_core_file_read(lvni_core_str_text(&path), 4096, &text, &bytes) == LVN_OK) {
        const char *blank = strchr(text, ' '); /* behind the number of its starts */
        const size_t n = blank == NULL ? 0 : strspn(blank + 1, "0123456789_");
        if (n > 0 && n < LVNI_SLURM_ID_TEXT) {
            memcpy(id, blank + 1, n);
            id[n] = '\0';
            found = lvni_slurm_id_read(id);
        }
        lvni_core_free(text);
    }
    lvn_clear_error();
    lvni_core_str_free(&path);
    return found;
}

/* "attempt_1_rank_12.json": 1; below 0: another file. */
static int64_t attempt_of(const char *name)
{
    char *end;
    if (!begins(name, "attempt_") || name[8] < '0' || name[8] > '9') {
        return -1;
    }
    const int64_t attempt = strtoll(name + 8, &end, 10);
    const size_t digits = begins(end, "_rank_") ? strspn(end + 6, "0123456789") : 0;
    return digits > 0 && strcmp(end + 6 + digits, ".json") == 0 ? attempt : -1;
}

/* Does `one` explain the failure better? */
static bool explains(const lvni_core_error_record *one, const lvni_core_error_record *best)
{
    const bool peer = strcmp(one->kind, "peer") == 0, best_peer = strcmp(best->kind, "peer") == 0;
    return peer != best_peer ? best_peer : one->time_ns < best->time_ns;
}

bool lvni_slurm_run_error(const char *run_dir, lvni_core_error_record *out)
{
    lvni_core_str path = {0};
    int64_t last = -1;
    lvni_core_str_printf(&path, "%s/errors", run_dir);
    DIR *d = lvni_core_str_status(&path) == LVN_OK ? opendir(lvni_core_str_text(&path)) : NULL;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        const int64_t attempt = attempt_of(e->d_name);
        lvni_core_error_record one;
        lvni_core_str_clear(&path);
        lvni_core_str_printf(&path, "%s/errors/%s", run_dir, e->d_name);
        if (attempt >= 0 && attempt >= last && lvni_core_str_status(&path) == LVN_OK &&
            lvni_core_error_record_read(lvni_core_str_text(&path), &one) == LVN_OK &&
            (attempt > last || explains(&one, out))) {
            *out = one;
            last = attempt;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    lvn_clear_error();
    lvni_core_str_free(&path);
    return last >= 0;
}

bool lvni_slurm_tail_read(const char *path, size_t most, lvni_core_str *out)
{
    int fd;
    uint64_t bytes;
    if (lvni_core_regular_open(path, &fd, &bytes) != LVN_OK) {
        lvn_clear_error();
        return false;
    }
    const uint64_t from = bytes > most ? bytes - most : 0;
    const size_t n = (size_t)(bytes - from), before = out->len;
    char *room = lvni_core_str_room(out, n);
    const ssize_t got = room == NULL ? -1 : pread(fd, room, n, (off_t)from);
    close(fd);
    if (got < 0) {
        out->len = room == NULL ? out->len : before;
        return false;
    }
    out->len = before + (size_t)got;
    out->data[out->len] = '\0';
    for (size_t i = before; i < out->len; i++) { /* a zero would end the text */
        out->data[i] = out->data[i] == '\0' ? ' ' : out->data[i];
    }
    const char *end = from > 0 ? strchr(out->data + before, '\n') : NULL;
    if (end != NULL) {
        const size_t cut = (size_t)(end + 1 - (out->data + before));
        memmove(out->data + before, end + 1, out->len - before - cut + 1);
        out->len -= cut;
    }
    return true;
}

size_t lvni_slurm_last_lines(const char *text, size_t n, int64_t lines)
{
    size_t at = n;
    if (at > 0 && lines > 0 && text[at - 1] == '\n') {
        at--;
    }
    while (at > 0 && lines > 0) {
        lines -= text[at - 1] == '\n';
        at -= lines > 0;
    }
    return at;
}

const char *lvni_slurm_train_log_error(const char *text, size_t *n)
{
    static const char mark[] = "][ERROR] ";
    const char *found = NULL;
    bool fresh = true; /* the next ERROR line begins a block */
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        const char *at = line[0] == '[' ? strstr(line, mark) : NULL;
        if (at == NULL || at >= line + length) {
            fresh = true;
            found = line[0] == '[' ? NULL : found; /* it went on; a line of no level goes with its
                                                      error */
        } else if (fresh) {
            found = at + sizeof mark - 1;
            *n = (size_t)(line + length - found);
            fresh = false;
        }
        line += length + (line[length] == '\n');
    }
    return found;
}

/* ---- the end of a log ---- */

/* How well the line explains an end; 0: not at all. */
static int weight(const char *line, size_t n)
{
    static const struct {
        const char *piece;
        int weight;
        bool first; /* the line begins so */
    } all[] = {
        {" failed first", 9, false},
        {"levin: error ", 8, true},
        {"error: ", 8, true},
        {"stopped: ", 7, true},
        {"oom_kill event", 6, false},
        {"oom-kill event", 6, false},
        {"DUE TO TIME LIMIT", 6, false},
        {"DUE TO PREEMPTION", 6, false},
        {"DUE TO NODE FAILURE", 6, false},
        {"DUE TO JOB REQUEUE", 6, false},
        {" CANCELLED AT ", 6, false},
        {"srun: error: ", 4, true},
        {"slurmstepd: error: ", 4, true},
        {"Error: ", 5, false},     /* of Python */
        {"Exception: ", 5, false}, /* the same */
        {": command not found", 5, false},
        {": No such file or directory", 5, false},
    };
    int best = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const size_t bytes = strlen(all[i].piece);
        const char *at = n < bytes      ? NULL
                         : all[i].first ? (strncmp(line, all[i].piece, bytes) == 0 ? line : NULL)
                                        : memmem(line, n, all[i].piece, bytes);
        best = at != NULL && all[i].weight > best ? all[i].weight : best;
    }
    return best;
}

const char *lvni_slurm_log_cause(const char *text, size_t *n)
{
    const char *found = NULL;
    int best = -1;
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        const char *next = line + length + (line[length] == '\n');
        for (const char *cr; (cr = memchr(line, '\r', length)) != NULL && cr + 1 < line + length;) {
            length -= (size_t)(cr + 1 - line); /* a progress line: its last state */
            line = cr + 1;
        }
        while (length > 0 && (line[length - 1] == '\r' || line[length - 1] == ' ')) {
            length--;
        }
        if (begins(line, "levin: job ") && memmem(line, length, " restart ", 9) != NULL) {
            best = -1; /* a script's first line: the job began again */
        }
        /* of several of one weight the first one is the cause; without any, the last one */
        const int one = length == 0 ? -1 : weight(line, length);
        if (one > best || (one == best && one == 0)) {
            best = one;
            found = line;
            *n = length;
        }
        line = next;
    }
    return found;
}

const char *lvni_slurm_log_run_dir(const char *text, size_t *n)
{
    static const char *const marks[] = {"run directory: ", "levin report "};
    const char *found = NULL;
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
            if (begins(line, marks[i]) && length > strlen(marks[i])) {
                found = line + strlen(marks[i]);
                *n = length - strlen(marks[i]);
            }
        }
        line += length + (line[length] == '\n');
    }
    return found;
}
