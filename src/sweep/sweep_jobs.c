/* Jobs of a sweep (sweep_jobs.h). */
#include "sweep/sweep_jobs.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void lvni_sweep_list_print(const int64_t *numbers, int64_t n, lvni_core_str *out)
{
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && numbers[end] == numbers[end - 1] + 1; end++) {
        }
        lvni_core_str_printf(out, "%s%lld", i > 0 ? "," : "", (long long)numbers[i]);
        if (end - i > 1) {
            lvni_core_str_printf(out, "-%lld", (long long)numbers[end - 1]);
        }
    }
}

/* ---- jobs.tsv ---- */

enum { FILE_MOST = 256 << 20, COLUMNS = 6, MOST_TRIAL = 100000000 };

/* Of digits; -1: it is not such a number. *end: what follows. */
static int64_t number_of(const char *text, const char **end)
{
    int64_t n = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p) && n <= MOST_TRIAL; p++) {
        n = n * 10 + (*p - '0');
    }
    *end = p;
    return p == text || n > MOST_TRIAL ? -1 : n;
}

/* The line's columns, in place; how many there are. */
static int cut(char *line, char *columns[COLUMNS])
{
    int n = 0;
    for (char *p = line; p != NULL && n < COLUMNS; n++) {
        columns[n] = p;
        p = strchr(p, '\t');
        if (p != NULL) {
            *p++ = '\0';
        }
    }
    return n;
}

static lvn_status add_job(lvni_sweep_jobs *jobs, char *line)
{
    char *columns[COLUMNS];
    const char *end;
    if (cut(line, columns) < COLUMNS || !isdigit((unsigned char)columns[0][0])) {
        return LVN_OK;
    }
    lvni_sweep_job *job = &jobs->list[jobs->n];
    const size_t n = strcspn(columns[0], ";");
    if (n >= sizeof job->id) {
        return LVN_OK;
    }
    memcpy(job->id, columns[0], n);
    job->id[n] = '\0';
    job->array = columns[5][0] != '\0';
    job->offset = job->array ? number_of(columns[5], &end) : 0;
    job->trials = lvni_core_strdup(LVNI_TAG_CORE, columns[4]);
    if (job->trials == NULL) {
        return LVN_ERR_MEMORY;
    }
    jobs->n++;
    return LVN_OK;
}

static int64_t count_lines(const char *text)
{
    int64_t n = 0;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++) {
        n++;
    }
    return n;
}

lvn_status lvni_sweep_jobs_read(const lvni_sweep_plan *plan, lvni_sweep_jobs *out)
{
    lvni_core_str path = {0};
    char *text = NULL;
    size_t bytes;
    lvn_status s;
    *out = (lvni_sweep_jobs){0};
    lvni_core_str_printf(&path, "%s/jobs.tsv", plan->dir);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (!lvni_core_path_exists(lvni_core_str_text(&path))) {
        goto done;
    }
    LVNI_TRY_DONE(s, lvni_core_regular_read(lvni_core_str_text(&path), FILE_MOST, &text, &bytes));
    out->list = lvni_core_calloc(LVNI_TAG_CORE, (size_t)count_lines(text) + 1, sizeof *out->list);
    LVNI_TRY_DONE(s, out->list == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        LVNI_TRY_DONE(s, add_job(out, line));
    }
done:
    if (s != LVN_OK) {
        lvni_sweep_jobs_free(out);
    }
    lvni_core_free(text);
    lvni_core_str_free(&path);
    return s;
}

void lvni_sweep_jobs_free(lvni_sweep_jobs *jobs)
{
    for (int64_t i = 0; i < jobs->n; i++) {
        lvni_core_free(jobs->list[i].trials);
    }
    lvni_core_free(jobs->list);
    *jobs = (lvni_sweep_jobs){0};
}

/* ---- the queue ---- */

/* "123" is element -1 of its job. */
typedef struct element {
    int64_t job, element;
} element;

typedef struct queue {
    element *list;
    int64_t n;
} queue;

static int compare(const void *a, const void *b)
{
    const element *x = a, *y = b;
    return x->job != y->job ? (x->job < y->job ? -1 : 1)
                            : (x->element > y->element) - (x->element < y->element);
}

static int64_t job_number(const char *text, const char **end)
{
    char *stop;
    const long long n = isdigit((unsigned char)*text) ? strtoll(text, &stop, 10) : -1;
    *end = n < 0 ? text : stop;
    return n;
}

/* Sorted; lines that are none are passed over. */
static lvn_status read_queue(const char *text, queue *out)
{
    *out = (queue){0};
    out->list = lvni_core_calloc(LVNI_TAG_CORE, (size_t)count_lines(text) + 1, sizeof *out->list);
    if (out->list == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (const char *line = text; *line != '\0';) {
        const char *end;
        element one = {.job = job_number(line + strspn(line, " "), &end), .element = -1};
        if (one.job >= 0 && *end == '_') {
            one.element = number_of(end + 1, &end);
        }
        if (one.job >= 0) {
            out->list[out->n++] = one;
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    qsort(out->list, (size_t)out->n, sizeof *out->list, compare);
    return LVN_OK;
}

static bool is_there(const queue *q, int64_t job, int64_t element_number)
{
    const element one = {.job = job, .element = element_number};
    return q->n > 0 && bsearch(&one, q->list, (size_t)q->n, sizeof one, compare) != NULL;
}

/* Calls `use` for each number of "2,5-8", those below n. */
static void each(const char *list, int64_t n, void (*use)(int64_t number, void *user), void *user)
{
    while (*list != '\0') {
        const int64_t from = number_of(list, &list);
        const int64_t to = *list == '-' ? number_of(list + 1, &list) : from;
        if (from < 0 || to < 0) {
            return;
        }
        for (int64_t i = from; i <= to && i < n; i++) {
            use(i, user);
        }
        list += *list == ',';
    }
}

typedef struct marking {
    const queue *queue;
    const lvni_sweep_job *job;
    int64_t id;
    bool *queued;
} marking;

static void mark(int64_t trial, void *user)
{
    const marking *m = user;
    const int64_t number = m->job->array ? trial - m->job->offset : -1;
    m->queued[trial] = m->queued[trial] || is_there(m->queue, m->id, number);
}

lvn_status lvni_sweep_jobs_match(const lvni_sweep_jobs *jobs, const char *text, int64_t n,
                                 bool *queued, const lvni_sweep_job **workers)
{
    queue q;
    *workers = NULL;
    memset(queued, 0, (size_t)n * sizeof *queued);
    LVN_TRY(read_queue(text, &q));
    for (int64_t i = 0; i < jobs->n; i++) {
        const lvni_sweep_job *job = &jobs->list[i];
        const char *end;
        marking m = {.queue = &q, .job = job, .id = job_number(job->id, &end), .queued = queued};
        if (strcmp(job->trials, "*") != 0) {
            each(job->trials, n, mark, &m);
        } else if (*workers == NULL && is_there(&q, m.id, -1)) {
            *workers = job;
        }
    }
    lvni_core_free(q.list);
    return LVN_OK;
}

lvn_status lvni_sweep_jobs_there(const lvni_sweep_jobs *jobs, const char *text, char ***ids)
{
    queue q;
    lvn_status s = read_queue(text, &q);
    for (int64_t i = 0; s == LVN_OK && i < jobs->n; i++) {
        const char *end;
        const int64_t number = job_number(jobs->list[i].id, &end);
        int64_t low = 0, high = q.n; /* the first that is not before the job */
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            low = q.list[middle].job < number ? middle + 1 : low;
            high = q.list[middle].job < number ? high : middle;
        }
        if (low < q.n && q.list[low].job == number) {
            s = lvni_sweep_texts_add(ids, jobs->list[i].id, strlen(jobs->list[i].id));
        }
    }
    lvni_core_free(q.list);
    return s;
}

bool lvni_sweep_queue_has(const char *text, const char *job)
{
    const size_t n = strlen(job);
    for (const char *p = text; n > 0 && (p = strstr(p, job)) != NULL; p++) {
        if ((p == text || strchr("\n ", p[-1]) != NULL) && strchr("\n ", p[n]) != NULL) {
            return true; /* the zero at the end is one of these for strchr */
        }
    }
    return false;
}
