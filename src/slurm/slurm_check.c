/* Reads a job script and looks for what goes wrong (slurm_check.h). */
#include "slurm/slurm_check.h"

#include "core/alloc.h"
#include "core/error.h"
#include "launch/env_vars.h"
#include "slurm/slurm_cluster_check.h"
#include "slurm/slurm_directives.h"
#include "slurm/slurm_grammar.h"
#include "slurm/slurm_options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { WHERE = 320, NAME = 64 };

typedef struct script {
    const char *path;
    lvni_slurm_findings *f;
    lvni_slurm_directives directives;
    int line;           /* the one that is read, from 1 */
    int first;          /* that of the first command; 0: not yet */
    int step;           /* the first that starts ranks; 0: none */
    bool step_has_cpus; /* its srun is given them */
    bool exports_cpus;
    int port;          /* line with a fixed MASTER_PORT */
    int nested;        /* line where srun starts what starts tasks; 0: none */
    int background;    /* line where srun is left behind; 0: none */
    bool traps, waits; /* there is a trap, a wait */
    bool exports_all;  /* srun gets the script's variables */
    bool parts;        /* behind `#SBATCH hetjob` */
    char here[NAME];   /* the word that ends a here-document; "": in none */
} script;

static const char *where(const script *s, int line, char out[WHERE])
{
    snprintf(out, WHERE, "%.290s:%d", s->path, line);
    return out;
}

/* ---- options of sbatch ---- */

/* Those that no row of a job's options has. */
static const struct {
    const char *name;
    char letter;
    bool alone; /* takes no value, or none behind a blank */
} others[] = {{"ntasks", 'n', false},
              {"gres", 0, false},
              {"gpus-per-task", 0, false},
              {"gpus-per-socket", 0, false},
              {"cpus-per-gpu", 0, false},
              {"open-mode", 0, false},
              {"no-requeue", 0, true},
              {"no-kill", 'k', true},
              {"hold", 'H', true},
              {"immediate", 'I', true},
              {"oversubscribe", 's', true},
              {"overcommit", 'O', true},
              {"quiet", 'Q', true},
              {"verbose", 'v', true},
              {"wait", 'W', true},
              {"parsable", 0, true},
              {"test-only", 0, true},
              {"propagate", 0, true},
              {"get-user-env", 0, true},
              {"ignore-pbs", 0, true},
              {"spread-job", 0, true},
              {"use-min-nodes", 0, true},
              {"reboot", 0, true},
              {"input", 'i', false},
              {"wrap", 0, false},
              {"clusters", 'M', false},
              {"cluster-constraint", 0, false},
              {"core-spec", 'S', false},
              {"thread-spec", 0, false},
              {"ntasks-per-core", 0, false},
              {"ntasks-per-socket", 0, false},
              {"ntasks-per-gpu", 0, false},
              {"sockets-per-node", 0, false},
              {"cores-per-socket", 0, false},
              {"threads-per-core", 0, false},
              {"extra-node-info", 'B', false},
              {"mincpus", 0, false},
              {"nodefile", 'F', false},
              {"mem-bind", 0, false},
              {"cpu-freq", 0, false},
              {"gpu-freq", 0, false},
              {"gpu-bind", 0, false},
              {"tmp", 0, false},
              {"uid", 0, false},
              {"gid", 0, false},
              {"priority", 0, false},
              {"power", 0, false},
              {"network", 0, false},
              {"container", 0, false},
              {"container-id", 0, false},
              {"bb", 0, false},
              {"bbf", 0, false},
              {"acctg-freq", 0, false},
              {"delay-boot", 0, false},
              {"export-file", 0, false},
              {"profile", 0, false},
              {"prefer", 0, false},
              {"tres-bind", 0, false},
              {"tres-per-task", 0, false},
              {"mcs-label", 0, false},
              {"comment", 0, false},
              {"workdir", 0, false},
              {"gres-flags", 0, false},
              {"wait-all-nodes", 0, false},
              {"batch", 0, false},
              {"con", 0, false},
              {"extra", 0, false},
              {"segment", 0, false},
              {"resv-ports", 0, true},
              {"stepmgr", 0, true},
              {"oom-kill-step", 0, true},
              {"external", 0, true},
              {"consolidate-segments", 0, true},
              {"spread-segments", 0, true},
              {"exclusive-topo", 0, true},
              {"help", 'h', true},
              {"usage", 0, true},
              {"version", 'V', true}};
enum { OTHERS = sizeof others / sizeof *others };

static bool is_alone(const char *name)
{
    const lvni_slurm_row *row = lvni_slurm_row_of_directive(name);
    for (size_t i = 0; i < OTHERS; i++) {
        if (strcmp(others[i].name, name) == 0) {
            return others[i].alone;
        }
    }
    return row != NULL && (row->emission == LVNI_SLURM_SWITCH ||
                           row->emission == LVNI_SLURM_OPTIONAL || row->type == LVNI_OPT_BOOL);
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < OTHERS; i++) {
        if (strcmp(others[i].name, name) == 0) {
            return true;
        }
    }
    return lvni_slurm_row_of_directive(name) != NULL;
}

static void nearer(const char *name, const char *other, const char **near, size_t *distance)
{
    const size_t d = lvni_core_edit_distance(name, other);
    if (d <= lvni_core_edit_limit(name, other) && (*near == NULL || d < *distance)) {
        *near = other;
        *distance = d;
    }
}

static const char *nearest(const char *name)
{
    const char *near = NULL;
    size_t distance = 0;
    for (size_t i = 0; i < OTHERS; i++) {
        nearer(name, others[i].name, &near, &distance);
    }
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *row = &lvni_slurm_rows[i];
        if (row->name != NULL && lvni_slurm_row_of_directive(row->name) == row) {
            nearer(name, row->name, &near, &distance);
        }
    }
    return near;
}

bool lvni_slurm_sbatch_knows(const char *name, const char **near)
{
    const bool known = is_known(name);
    *near = known ? NULL : nearest(name);
    return known;
}

static const char *name_of_letter(char letter)
{
    const lvni_slurm_row *row = lvni_slurm_row_of_letter(letter);
    for (size_t i = 0; row == NULL && i < OTHERS; i++) {
        if (others[i].letter == letter) {
            return others[i].name;
        }
    }
    return row != NULL ? row->name : NULL;
}

/* ---- a #SBATCH line ---- */

/* The next word at *p, without its quotes, as sbatch takes it; false: the line or what counts of it
 * ends. */
static bool next_word(const char **p, lvni_core_str *out)
{
    const char *at = *p + strspn(*p, " \t");
    char quote = '\0';
    bool any = false;
    lvni_core_str_clear(out);
    for (; *at != '\0' && *at != '\n'; at++) {
        const bool blank = *at == ' ' || *at == '\t' || *at == '\r';
        if (quote == '\0' && (blank || (*at == '#' && !any))) {
            break;
        }
        any = true;
        if (*at == '\\' && at[1] != '\0' && at[1] != '\n') {
            lvni_core_str_char(out, *++at);
        } else if (quote == '\0' && (*at == '"' || *at == '\'')) {
            quote = *at;
        } else if (*at == quote) {
            quote = '\0';
        } else {
            lvni_core_str_char(out, *at);
        }
    }
    *p = at;
    return any;
}

static void add(script *s, const char *name, const char *value)
{
    char place[WHERE];
    where(s, s->line, place);
    const char *near;
    if (!lvni_slurm_sbatch_knows(name, &near)) {
        lvni_slurm_error(s->f, "V01", "sbatch has no option --%.60s%s%s%s  (%s)", name,
                         near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
                         near != NULL ? "?" : "", place);
        return;
    }
    if (!s->parts) {
        lvni_slurm_directive_add(&s->directives, name, value, place, false);
    }
}

/* --name=value, --name value, -x value, -xvalue; more words of the line are at *rest. */
static void read_option(script *s, const char *word, const char **rest, lvni_core_str *value)
{
    char name[NAME], place[WHERE];
    const bool two = strncmp(word, "--", 2) == 0;
    const size_t n = strcspn(word + 2, "=");
    const char *own = word[0] == '-' && !two && word[1] != '\0' ? name_of_letter(word[1]) : NULL,
               *text = two ? word[2 + n] == '=' ? word + 3 + n : NULL
                       : word[1] != '\0' && word[2] != '\0' ? word + 2 + (word[2] == '=')
                                                            : NULL;
    if ((two && (n == 0 || n >= sizeof name)) || (!two && own == NULL)) {
        lvni_slurm_error(s->f, "V01", "`%.80s` is not an option of sbatch  (%s)", word,
                         where(s, s->line, place));
        return;
    }
    snprintf(name, sizeof name, "%.*s", two ? (int)n : NAME - 1, two ? word + 2 : own);
    if (text == NULL && !is_alone(name) && next_word(rest, value)) {
        text = lvni_core_str_text(value);
    }
    add(s, name, text);
}

static lvn_status read_directives(script *s, const char *line)
{
    lvni_core_str word = {0}, value = {0};
    char place[WHERE], first[WHERE];
    if (s->first > 0) {
        lvni_slurm_error(s->f, "V17",
                         "Slurm ignores this #SBATCH line: it stands behind the first command, at "
                         "%s  (%s)",
                         where(s, s->first, first), where(s, s->line, place));
        return LVN_OK;
    }
    while (next_word(&line, &word)) {
        const bool parts = strcmp(lvni_core_str_text(&word), "hetjob") == 0 ||
                           strcmp(lvni_core_str_text(&word), "packjob") == 0;
        if (parts) {
            if (!s->parts) {
                lvni_slurm_note(s->f, "hetjob",
                                "the rules look at the options of the first part alone; of the "
                                "others they look at the names  (%s)",
                                where(s, s->line, place));
            }
            s->parts = true;
            continue;
        }
        read_option(s, lvni_core_str_text(&word), &line, &value);
    }
    const lvn_status status = word.failed || value.failed ? LVN_ERR_MEMORY : LVN_OK;
    lvni_core_str_free(&word);
    lvni_core_str_free(&value);
    return status;
}

/* ---- a command ---- */

static bool is_part(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Where the word stands in the line as one of its own, also behind a path; NULL: nowhere. */
static const char *find_word(const char *line, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = line; (p = strstr(p, word)) != NULL; p += n) {
        const bool begins = p == line || (!is_part(p[-1]) && p[-1] != '-' && p[-1] != '$' &&
                                          p[-1] != '{' && p[-1] != '.'),
                   ends = !is_part(p[n]) && p[n] != '-' && p[n] != '.';
        if (begins && ends) {
            return p;
        }
    }
    return NULL;
}

/* The value behind NAME= in the line; NULL: it is not set there. */
static const char *find_value(const char *line, const char *name)
{
    const char *p = find_word(line, name);
    const size_t n = strlen(name);
    return p != NULL && p[n] == '=' ? p + n + 1 : NULL;
}

static void look_for_start(script *s, const char *line)
{
    static const char *const starters[] = {"mpirun", "mpiexec", "torchrun", "ibrun"};
    char place[WHERE];
    const char *srun = find_word(line, "srun");
    bool starts = srun != NULL || strstr(line, "levin launch") != NULL;
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++) {
        const bool other = find_word(line, starters[i]) != NULL;
        s->nested = s->nested == 0 && srun != NULL && other ? s->line : s->nested;
        starts = starts || other;
    }
    if (!starts) {
        return;
    }
    size_t end = strlen(line);
    while (end > 0 && isspace((unsigned char)line[end - 1])) {
        end--;
    }
    const bool left = srun != NULL && end > 1 && line[end - 1] == '&' && line[end - 2] != '&';
    s->background = left && s->background == 0 ? s->line : s->background;
    s->exports_all = s->exports_all || (srun != NULL && strstr(srun, "--export") != NULL);
    if (srun != NULL && strstr(srun, "RANDOM") != NULL) {
        lvni_slurm_warn(s->f, "V14",
                        "RANDOM in a command of srun: each rank may draw another number; set it in "
                        "a line of its own before  (%s)",
                        where(s, s->line, place));
    }
    s->step = s->step == 0 ? s->line : s->step;
    s->step_has_cpus = s->step_has_cpus || srun == NULL || strstr(srun, " -c") != NULL ||
                       strstr(srun, "--cpus-per-task") != NULL;
}

/* The word behind `<<`, which ends the lines that follow; they are a text of the script. */
static void look_for_document(script *s, const char *line)
{
    for (const char *p = line; (p = strstr(p, "<<")) != NULL; p += 2) {
        if (p[2] == '<') {
            p++;
            continue;
        }
        p += 2 + (p[2] == '-');
        p += strspn(p, " \t'\"\\");
        size_t n = 0;
        while (is_part(p[n]) && n < sizeof s->here - 1) {
            n++;
        }
        if (n > 0 && !isdigit((unsigned char)*p)) {
            snprintf(s->here, sizeof s->here, "%.*s", (int)n, p);
            return;
        }
        p -= 2;
    }
}

/* W214, of each NCCL_NAME= of the line. */
static void look_for_nccl(const script *s, const char *line)
{
    char name[NAME], place[WHERE];
    for (const char *p = line, *near; (p = strstr(p, "NCCL_")) != NULL; p += 5) {
        size_t n = 0;
        while (is_part(p[n])) {
            n++;
        }
        const bool begins = p == line || (!is_part(p[-1]) && p[-1] != '$' && p[-1] != '{');
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (begins && p[n] == '=' && n < sizeof name && lvni_launch_nccl_is_unknown(name, &near)) {
            lvni_slurm_warn(s->f, "W214", "%s is not a known variable of NCCL%s%s%s  (%s)", name,
                            near != NULL ? ": did you mean NCCL_" : "", near != NULL ? near : "",
                            near != NULL ? "?" : "", where(s, s->line, place));
        }
    }
}

static bool is_fixed(const char *port)
{
    port += strspn(port, "\"'");
    if (strncmp(port, "${", 2) == 0) { /* ${MASTER_PORT:-29500} */
        port += 2 + strcspn(port + 2, "}:");
        port += strspn(port, ":-=");
    }
    return isdigit((unsigned char)port[0]);
}

static void read_command(script *s, const char *line)
{
    char place[WHERE];
    s->first = s->first == 0 ? s->line : s->first;
    s->traps = s->traps || find_word(line, "trap") != NULL;
    s->waits = s->waits || find_word(line, "wait") != NULL;
    s->exports_all = s->exports_all || find_value(line, "SLURM_EXPORT_ENV") != NULL;
    look_for_document(s, line);
    look_for_nccl(s, line);
    const char *port = find_value(line, "MASTER_PORT");
    if (port != NULL && is_fixed(port) && s->port == 0) {
        s->port = s->line;
    }
    if (find_value(line, "CUDA_VISIBLE_DEVICES") != NULL) {
        lvni_slurm_warn(s->f, "V15",
                        "CUDA_VISIBLE_DEVICES is set: Slurm sets it for each task; remove it  (%s)",
                        where(s, s->line, place));
    }
    s->exports_cpus = s->exports_cpus || find_value(line, "SRUN_CPUS_PER_TASK") != NULL;
    look_for_start(s, line);
}

/* ---- the lines ---- */

/* The line that begins at text[*at], with those that a backslash continues; *at moves behind it.
 * *lines: how many. */
static void take_line(const char *text, size_t bytes, size_t *at, lvni_core_str *out, int *lines)
{
    lvni_core_str_clear(out);
    *lines = 0;
    for (bool more = true; more && *at < bytes;) {
        const char *begin = text + *at, *end = memchr(begin, '\n', bytes - *at);
        size_t n = end != NULL ? (size_t)(end - begin) : bytes - *at;
        *at += n + 1;
        ++*lines;
        more = n > 0 && begin[n - 1] == '\\' && *begin != '#';
        lvni_core_str_append_n(out, begin, more ? n - 1 : n);
    }
}

/* V17, of a line that was meant to be #SBATCH: sbatch passes such a comment over. */
static void look_at_comment(const script *s, const char *line, bool indented)
{
    char word[NAME], place[WHERE];
    const char *p = line + 1 + strspn(line + 1, " \t");
    const size_t n = strcspn(p, " \t\r");
    const char *option = p + n + strspn(p + n, " \t");
    if (n == 0 || n > 8 || option[0] != '-' || s->first > 0) {
        return;
    }
    for (size_t i = 0; i <= n; i++) {
        word[i] = (char)toupper((unsigned char)(i < n ? p[i] : '\0'));
    }
    /* not "# sbatch --mem=4G job.sh", by which the script is submitted */
    const bool upper = strncmp(word, p, n) == 0,
               near = upper ? lvni_core_edit_distance(word, "SBATCH") <= 2
                            : p == line + 1 && strcmp(word, "SBATCH") == 0,
               same = strncmp(line, "#SBATCH", 7) == 0;
    if (near && (!same || indented)) {
        lvni_slurm_warn(s->f, "V17",
                        "Slurm ignores this line, which does not begin with `#SBATCH `: `%.60s`; "
                        "an option that is switched off is ##SBATCH  (%s)",
                        line, where(s, s->line, place));
    }
}

/* Does the line end the here-document that it stands in? */
static bool ends_document(const script *s, const char *line)
{
    const size_t n = strlen(s->here);
    return strncmp(line, s->here, n) == 0 && line[n + strspn(line + n, " \t\r")] == '\0';
}

static lvn_status read_lines(script *s, const char *text, size_t bytes)
{
    lvni_core_str line = {0};
    lvn_status status = LVN_OK;
    int lines = 0;
    s->line = 1;
    for (size_t at = 0; at < bytes && status == LVN_OK; s->line += lines) {
        take_line(text, bytes, &at, &line, &lines);
        const char *all = lvni_core_str_text(&line), *p = all + strspn(all, " \t\r");
        if (s->here[0] != '\0') {
            if (ends_document(s, p)) {
                s->here[0] = '\0';
            } else { /* it may be the input of a shell */
                look_for_start(s, p);
            }
        } else if (strncmp(all, "#SBATCH", 7) == 0 && isspace((unsigned char)all[7])) {
            status = read_directives(s, all + 7);
        } else if (*p != '\0' && *p != '#') {
            read_command(s, p);
        } else if (*p == '#' && p[1] != '#' && p[1] != '!') {
            look_at_comment(s, p, p > all);
        }
    }
    status = status == LVN_OK ? lvni_core_str_status(&line) : status;
    lvni_core_str_free(&line);
    return status;
}

/* V20: as bash gets it, the end of each word would be a carriage return. */
static void check_form(const script *s, const char *text, size_t bytes)
{
    char place[WHERE];
    const char *cr = memchr(text, '\r', bytes);
    if (strncmp(text, "#!", 2) != 0) {
        lvni_slurm_error(
            s->f, "V20",
            "the first line is not #!: sbatch refuses the script; #!/bin/bash -l  (%s)",
            where(s, 1, place));
    }
    if (cr != NULL) {
        int line = 1;
        for (const char *p = text; p < cr; p++) {
            line += *p == '\n';
        }
        lvni_slurm_error(s->f, "V20",
                         "lines end with a carriage return, as of a DOS file, and sbatch refuses "
                         "them: sed -i 's/\\r$//' %s  (%s)",
                         s->path, where(s, line, place));
    }
}

/* V02, R04 of docs/launch.md: as a warning, as a task may have several devices on purpose. */
static void check_devices(const script *s)
{
    const lvni_slurm_directives *d = &s->directives;
    const lvni_slurm_directive *gpus = lvni_slurm_directive_find(d, "gpus-per-node"),
                               *gres = lvni_slurm_directive_find(d, "gres"),
                               *tasks = lvni_slurm_directive_find(d, "ntasks-per-node");
    const char *text = gpus != NULL                           ? gpus->value
                       : gres == NULL || !gres->value         ? NULL
                       : strncmp(gres->value, "gpu:", 4) == 0 ? gres->value + 4
                                                              : NULL,
               *type;
    size_t n_type;
    int64_t devices;
    const int64_t per_node = lvni_slurm_directive_number(d, "ntasks-per-node", 0);
    if (tasks == NULL || text == NULL || per_node <= 1 || s->step == 0 ||
        !lvni_slurm_gpus_read(text, &devices, &type, &n_type) || devices == per_node) {
        return;
    }
    lvni_slurm_warn(s->f, "V02",
                    "ntasks-per-node=%lld beside %lld GPUs of each node: programs with a rank for "
                    "each device need as many tasks  (%s)",
                    (long long)per_node, (long long)devices, tasks->where);
}

/* Of the line that starts the ranks: V12, V13. */
static void check_step(const script *s)
{
    char place[WHERE];
    const lvni_slurm_directive *export = lvni_slurm_directive_find(&s->directives, "export");
    const int64_t per_node = lvni_slurm_directive_number(&s->directives, "ntasks-per-node", 1);
    if (s->nested > 0 && per_node > 1) {
        lvni_slurm_warn(s->f, "V12",
                        "each of %lld tasks of a node starts tasks itself: --ntasks-per-node=1, or "
                        "the program alone behind srun  (%s)",
                        (long long)per_node, where(s, s->nested, place));
    }
    if (s->background > 0 && !s->waits) {
        lvni_slurm_warn(
            s->f, "V12",
            "srun runs in the background, and the job ends with the script: wait at its "
            "end  (%s)",
            where(s, s->background, place));
    }
    if (export != NULL && export->value != NULL && strcmp(export->value, "ALL") != 0 &&
        s->step > 0 && !s->exports_all) {
        lvni_slurm_warn(
            s->f, "V13",
            "export=%s (%s): srun follows it, and does not pass on what the script sets: "
            "export SLURM_EXPORT_ENV=ALL before it  (%s)",
            export->value, export->where, where(s, s->step, place));
    }
}

/* V07: a shell without a trap ends of the signal. */
static void check_signal(const script *s)
{
    const lvni_slurm_directive *one = lvni_slurm_directive_find(&s->directives, "signal");
    lvni_slurm_signal signal;
    if (one != NULL && one->value != NULL && lvni_slurm_signal_read(one->value, &signal) &&
        signal.batch && !s->traps) {
        lvni_slurm_warn(
            s->f, "V07",
            "signal %s goes to the script, which has no trap and ends of it: remove B:, "
            "or trap it and pass it on  (%s)",
            one->value, one->where);
    }
}

static void check_start(const script *s)
{
    char place[WHERE];
    const lvni_slurm_directives *d = &s->directives;
    const int64_t per_node = lvni_slurm_directive_number(d, "ntasks-per-node", 1),
                  nodes = lvni_slurm_directive_number(d, "nodes", 1),
                  tasks = lvni_slurm_directive_number(d, "ntasks", nodes * per_node);
    if (s->step == 0 && tasks > 1) {
        lvni_slurm_error(s->f, "V12",
                         "%lld tasks are asked for and none is started: the script itself runs "
                         "once; put srun in front of the program  (%s)",
                         (long long)tasks, where(s, s->first > 0 ? s->first : 1, place));
    }
    const lvni_slurm_directive *cpus = lvni_slurm_directive_find(d, "cpus-per-task");
    if (cpus != NULL && s->step > 0 && !s->step_has_cpus && !s->exports_cpus) {
        lvni_slurm_warn(s->f, "V13",
                        "cpus-per-task=%s (%s) is not passed to srun since Slurm 22.05: export "
                        "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before it  (%s)",
                        cpus->value == NULL ? "" : cpus->value, cpus->where,
                        where(s, s->step, place));
    }
    if (s->port > 0 && lvni_slurm_directive_find(d, "exclusive") == NULL) {
        lvni_slurm_warn(s->f, "V14",
                        "MASTER_PORT is fixed, and another job on the same node may have it: "
                        "--exclusive, or $((12000 + RANDOM %% 20000))  (%s)",
                        where(s, s->port, place));
    }
    if (lvni_slurm_directive_find(d, "requeue") != NULL &&
        lvni_slurm_directive_find(d, "signal") == NULL) {
        lvni_slurm_warn(s->f, "V16",
                        "requeue without signal: the job ends at its time limit without a "
                        "checkpoint; --signal=USR1@90  (%s)",
                        lvni_slurm_directive_find(d, "requeue")->where);
    }
}

lvn_status lvni_slurm_check(const char *path, const char *text, size_t bytes,
                            const lvni_slurm_cluster *cluster, lvni_slurm_findings *f,
                            int *directives)
{
    script s = {.path = path, .f = f};
    lvn_status status;
    check_form(&s, text, bytes);
    LVNI_TRY_DONE(status, read_lines(&s, text, bytes));
    LVNI_TRY_DONE(status, lvni_slurm_directives_status(&s.directives));
    lvni_slurm_directives_check(&s.directives, false, cluster != NULL ? cluster->array_size : 0, f);
    lvni_slurm_output_check(&s.directives, false, f);
    check_start(&s);
    check_devices(&s);
    check_signal(&s);
    check_step(&s);
    if (cluster != NULL) {
        LVNI_TRY_DONE(status, lvni_slurm_cluster_check(cluster, &s.directives, f));
    }
    *directives = (int)s.directives.n;
    status = lvni_core_str_status(&f->text);
done:
    lvni_slurm_directives_free(&s.directives);
    return status;
}
