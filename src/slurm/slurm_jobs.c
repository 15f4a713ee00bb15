/* Jobs as Slurm's tools print them (slurm_jobs.h). */
#include "slurm/slurm_jobs.h"

#include "core/alloc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char lvni_slurm_squeue_format[] =
    "--format=%i\037%A\037%T\037%M\037%l\037%D\037%u\037%r\037%N\037%Z\037\037%j";
const char lvni_slurm_sacct_format[] =
    "--format=JobID,JobIDRaw,State,Elapsed,Timelimit,NNodes,User,Reason,NodeList,WorkDir,"
    "ExitCode,JobName";

/* ---- lines of fields ---- */

/* Cuts one line into its fields; false: they are too few. */
static bool cut(char *line, char separator, const char **field, size_t fields)
{
    for (size_t i = 0; i < fields; i++) {
        char *end = i + 1 < fields ? strchr(line, separator) : line + strlen(line);
        if (end == NULL) {
            return false;
        }
        char *next = i + 1 < fields ? end + 1 : end;
        while (*line == ' ') {
            line++;
        }
        *end = '\0';
        while (end > line && (end[-1] == ' ' || end[-1] == '\r' || end[-1] == separator)) {
            *--end = '\0';
        }
        field[i] = line;
        line = next;
    }
    return true;
}

lvn_status lvni_slurm_table_read(const char *text, char separator, size_t fields,
                                 lvni_slurm_table *out)
{
    size_t lines = 1;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++) {
        lines++;
    }
    *out = (lvni_slurm_table){.fields = fields};
    out->text = lvni_core_strdup(LVNI_TAG_CORE, text);
    out->field = lvni_core_calloc(LVNI_TAG_CORE, lines * fields, sizeof *out->field);
    if (out->text == NULL || out->field == NULL) {
        lvni_slurm_table_free(out);
        return LVN_ERR_MEMORY;
    }
    for (char *line = out->text, *next; line != NULL; line = next) {
        char *end = strchr(line, '\n');
        next = end == NULL ? NULL : end + 1;
        if (end != NULL) {
            *end = '\0';
        }
        out->n += cut(line, separator, out->field + out->n * fields, fields);
    }
    return LVN_OK;
}

void lvni_slurm_table_free(lvni_slurm_table *table)
{
    lvni_core_free(table->text);
    lvni_core_free(table->field);
    *table = (lvni_slurm_table){.n = 0};
}

const char *lvni_slurm_table_at(const lvni_slurm_table *table, size_t row, int field)
{
    return table->field[row * table->fields + (size_t)field];
}

/* ---- states and reasons ---- */

lvni_slurm_phase lvni_slurm_state_read(const char *state, char word[LVNI_SLURM_STATE_TEXT])
{
    static const struct {
        const char *state, *word;
        lvni_slurm_phase phase;
    } all[] = {
        {"PENDING", "waiting", LVNI_SLURM_WAITS},
        {"CONFIGURING", "starting", LVNI_SLURM_RUNS},
        {"RUNNING", "running", LVNI_SLURM_RUNS},
        {"SUSPENDED", "suspended", LVNI_SLURM_RUNS},
        {"STOPPED", "stopped", LVNI_SLURM_RUNS},
        {"SIGNALING", "running", LVNI_SLURM_RUNS},
        {"RESIZING", "running", LVNI_SLURM_RUNS},
        {"STAGE_OUT", "copying its results", LVNI_SLURM_RUNS},
        {"COMPLETING", "ending", LVNI_SLURM_RUNS},
        {"REQUEUED", "requeued", LVNI_SLURM_WAITS},
        {"REQUEUE_FED", "requeued", LVNI_SLURM_WAITS},
        {"REQUEUE_HOLD", "requeued, held", LVNI_SLURM_WAITS},
        {"SPECIAL_EXIT", "requeued, held", LVNI_SLURM_WAITS},
        {"RESV_DEL_HOLD", "held", LVNI_SLURM_WAITS},
        {"COMPLETED", "finished", LVNI_SLURM_FINISHED},
        {"FAILED", "failed", LVNI_SLURM_FAILED},
        {"CANCELLED", "cancelled", LVNI_SLURM_FAILED},
        {"TIMEOUT", "out of time", LVNI_SLURM_FAILED},
        {"OUT_OF_MEMORY", "out of memory", LVNI_SLURM_FAILED},
        {"NODE_FAIL", "its node failed", LVNI_SLURM_FAILED},
        {"BOOT_FAIL", "its node failed to boot", LVNI_SLURM_FAILED},
        {"PREEMPTED", "preempted", LVNI_SLURM_FAILED},
        {"DEADLINE", "past its deadline", LVNI_SLURM_FAILED},
        {"REVOKED", "moved to another cluster", LVNI_SLURM_FAILED},
    };
    const size_t n = strspn(state, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    size_t used = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strlen(all[i].state) == n && strncmp(state, all[i].state, n) == 0) {
            memcpy(word, all[i].word, strlen(all[i].word) + 1);
            return all[i].phase;
        }
    }
    for (; state[used] != '\0' && used + 1 < LVNI_SLURM_STATE_TEXT; used++) {
        word[used] = (char)(state[used] == '_' ? ' ' : tolower((unsigned char)state[used]));
    }
    word[lvni_core_utf8_cut(word, used)] = '\0';
    return LVNI_SLURM_UNKNOWN;
}

bool lvni_slurm_phase_is_end(lvni_slurm_phase phase)
{
    return phase == LVNI_SLURM_FINISHED || phase == LVNI_SLURM_FAILED;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

const char *lvni_slurm_reason_text(const char *reason, const char **advice)
{
    static const char limits[] = "levin slurm nodes shows what there is";
    static const struct {
        const char *reason, *text, *advice;
    } all[] = {
        {"Priority", "other jobs come first", NULL},
        {"Resources", "what it asks for is in use", limits},
        {"DependencyNeverSatisfied", "its dependency can never be met",
         "cancel it, and submit it without that dependency"},
        {"Dependency", "it waits for other jobs", NULL},
        {"BeginTime", "its time to begin has not come (a requeued job waits about two minutes)",
         NULL},
        {"JobArrayTaskLimit", "as many elements of its array run as its %N allows", NULL},
        {"JobHeldUser", "it is held", "scontrol release lets it go on"},
        {"JobHeldAdmin", "an administrator holds it", "ask the administrators of the cluster"},
        {"PartitionTimeLimit", "its time limit is above that of the partition", limits},
        {"PartitionNodeLimit", "it asks for more nodes than the partition allows", limits},
        {"PartitionDown", "its partition is down", limits},
        {"PartitionInactive", "its partition takes no jobs now", limits},
        {"ReqNodeNotAvail", "nodes that it asks for are down, drained or reserved", limits},
        {"BadConstraints", "no node has all that it asks for", limits},
        {"Licenses", "licenses that it asks for are in use", NULL},
        {"Reservation", "its reservation has not begun", NULL},
        {"InvalidAccount", "its account is not valid", "submit it with another account"},
        {"InvalidQOS", "its quality of service is not valid", "submit it with another qos"},
        {"QOS", "a limit of its quality of service is reached", NULL},
        {"Assoc", "a limit of its account is reached", NULL},
        {"MaxMemPerLimit", "it asks for more memory than is allowed", "submit it with less mem"},
        {"launch failed requeued held", "its start failed, and Slurm holds it",
         "scontrol release starts it again"},
        {"job requeued in held state", "it was requeued to be held",
         "scontrol release starts it again"},
    };
    *advice = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (begins(reason, all[i].reason)) {
            *advice = all[i].advice;
            return all[i].text;
        }
    }
    return NULL;
}

/* ---- numbers of jobs ---- */

bool lvni_slurm_id_read(const char *text)
{
    const size_t n = strspn(text, "0123456789");
    const char *rest = text + n;
    if (n == 0 || n > 18 || *rest == '\0') {
        return n > 0 && n <= 18;
    }
    const size_t more = *rest == '_' || *rest == '+' ? strspn(rest + 1, "0123456789") : 0;
    return more > 0 && more <= 18 && rest[1 + more] == '\0';
}

/* Is the number in "5-8,10,20-30:5%2]"? Slurm cuts a long list with "...", which may hold it. */
static bool list_has(const char *list, long number)
{
    while (*list >= '0' && *list <= '9') {
        char *end;
        const long first = strtol(list, &end, 10),
                   last = *end == '-' ? strtol(end + 1, &end, 10) : first,
                   step = *end == ':' ? strtol(end + 1, &end, 10) : 1;
        if (number >= first && number <= last && step > 0 && (number - first) % step == 0) {
            return true;
        }
        list = *end == ',' ? end + 1 : end;
    }
    return begins(list, "...");
}

bool lvni_slurm_id_covers(const char *asked, const char *id, const char *raw)
{
    const size_t base = strspn(asked, "0123456789"), n = strlen(asked);
    if (strcmp(asked, id) == 0 || (raw[0] != '\0' && strcmp(asked, raw) == 0)) {
        return true;
    }
    if (base == 0 || strncmp(asked, id, base) != 0 || (id[base] != '_' && id[base] != '+')) {
        return false;
    }
    return n == base || (asked[base] == '_' && id[base] == '_' && id[base + 1] == '[' &&
                         list_has(id + base + 2, strtol(asked + base + 1, NULL, 10)));
}

/* ---- scontrol show job ---- */

const char *lvni_slurm_show_next(const char *job)
{
    const char *end = strstr(job, "\n\n");
    end = end == NULL ? NULL : end + strspn(end, "\n");
    return end == NULL || *end == '\0' ? NULL : end;
}

const char *lvni_slurm_show_value(const char *job, const char *key, size_t *n)
{
    static const char *const whole[] = {"Command", "WorkDir", "StdErr", "StdIn", "StdOut"};
    const size_t bytes = strlen(key);
    const char *end = strstr(job, "\n\n");
    bool is_line = false;
    end = end == NULL ? job + strlen(job) : end;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        is_line = is_line || strcmp(key, whole[i]) == 0;
    }
    for (const char *line = job; line < end;) {
        const size_t length = strcspn(line, "\n");
        for (const char *p = line; p < line + length; p++) {
            const bool first = p == line + strspn(line, " "), word = p > line && p[-1] == ' ';
            if ((first || (word && !is_line)) && strncmp(p, key, bytes) == 0 && p[bytes] == '=') {
                const char *value = p + bytes + 1;
                *n = is_line ? strcspn(value, "\n") : strcspn(value, " \n");
                return *n == 0 || begins(value, "(null)") ? NULL : value;
            }
        }
        line += length + (line[length] == '\n');
    }
    return NULL;
}
