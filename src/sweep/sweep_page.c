/* The page of a sweep (sweep_page.h). */
#include "sweep/sweep_page.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "report/axis.h"
#include "report/page.h"
#include "report/parallel.h"
#include "report/series.h"
#include "sweep/sweep_outcome.h"
#include "sweep/sweep_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POINTS = 48, NUMBER = 32, DAMAGED = 8 };

typedef struct point {
    double step, value;
} point;

/* A trial's values of the metric, a mean for each of at most POINTS stretches of its steps. */
typedef struct curve {
    point at[POINTS];
    int n;
} curve;

typedef struct page {
    lvni_sweep_plan plan;
    lvni_sweep_table table;
    int64_t n;                     /* that are shown */
    curve *curves;                 /* (n) */
    lvni_core_str damage[DAMAGED]; /* sentences about what cannot be read */
    int64_t n_damaged;
} page;

bool lvni_sweep_is_sweep(const char *dir)
{
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/sweep.json", dir);
    const bool found =
        lvni_core_str_status(&path) == LVN_OK && lvni_core_path_exists(lvni_core_str_text(&path));
    lvni_core_str_free(&path);
    return found;
}

/* ---- reading ---- */

/* What cannot be read of one trial must not cost the page. */
static lvn_status forgive(page *p, lvn_status s)
{
    if (s == LVN_OK || s == LVN_ERR_MEMORY) {
        return s;
    }
    if (p->n_damaged < DAMAGED) {
        lvni_core_str_append(&p->damage[p->n_damaged], lvn_last_error()->message);
    }
    p->n_damaged++;
    lvn_clear_error();
    return LVN_OK;
}

static lvn_status read_rows(page *p)
{
    lvni_sweep_table *t = &p->table;
    lvni_sweep_reader *reader = NULL;
    lvn_status s;
    *t = (lvni_sweep_table){.plan = &p->plan, .n = p->plan.n_trials};
    t->rows = lvni_core_calloc(LVNI_TAG_CORE, (size_t)t->n + 1, sizeof *t->rows);
    LVNI_TRY_DONE(s, t->rows == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, lvni_sweep_reader_create(&p->plan, lvni_sweep_ask_host, NULL, NULL, &reader));
    for (int64_t i = 0; i < t->n; i++) {
        lvni_sweep_row *row = &t->rows[i];
        LVNI_TRY_DONE(s, forgive(p, lvni_sweep_trial_read(&p->plan, i, &row->trial)));
        row->trial.index = i;
        LVNI_TRY_DONE(s, forgive(p, lvni_sweep_reader_look(reader, i, &row->look)));
        t->counts[row->look.state]++;
    }
    lvni_sweep_table_sort(t);
done:
    lvni_sweep_reader_destroy(reader);
    return s;
}

static void take_series(const lvni_report_series *series, curve *out)
{
    int filled = 0, seen = 0, members = 0;
    double weight = 0.0;
    for (int i = 0; i < LVNI_REPORT_BUCKETS; i++) {
        filled += series->bucket[i].n > 0;
    }
    const int join = (filled + POINTS - 1) / POINTS;
    for (int i = 0; i < LVNI_REPORT_BUCKETS && out->n < POINTS; i++) {
        const lvni_report_bucket *b = &series->bucket[i];
        if (b->n == 0) {
            continue;
        }
        out->at[out->n].step += b->step;
        out->at[out->n].value += b->value;
        weight += b->n;
        seen++;
        if (++members == join || seen == filled) {
            out->at[out->n].step /= weight;
            out->at[out->n].value /= weight;
            out->n++;
            members = 0;
            weight = 0.0;
        }
    }
}

/* `val_loss` is another name of `val/loss`. A trial that has not begun has no such file. */
static void read_curve(const page *p, int64_t trial, curve *out)
{
    lvni_report_metrics metrics = {.n = 0};
    lvni_core_str path = {0}, other = {0};
    lvni_sweep_trial_path(&p->plan, trial, &path);
    lvni_core_str_append(&path, "/" LVNI_SWEEP_RUN "/metrics.jsonl");
    lvni_core_str_append(&other, p->plan.metric);
    char *under =
        strchr(p->plan.metric, '/') == NULL && other.data != NULL ? strchr(other.data, '_') : NULL;
    if (under != NULL) {
        *under = '/';
    }
    if (lvni_core_str_status(&path) == LVN_OK && lvni_core_str_status(&other) == LVN_OK &&
        lvni_report_metrics_read(path.data, &metrics) == LVN_OK) {
        const lvni_report_series *series = lvni_report_metrics_find(&metrics, p->plan.metric);
        series = series != NULL ? series : lvni_report_metrics_find(&metrics, other.data);
        if (series != NULL && series->n > 0) {
            take_series(series, out);
        }
    } else {
        lvn_clear_error();
    }
    lvni_report_metrics_free(&metrics);
    lvni_core_str_free(&path);
    lvni_core_str_free(&other);
}

/* ---- values ---- */

static bool value_of(const lvni_sweep_row *row, double *value)
{
    *value = row->look.result.value;
    return (row->look.state == LVNI_SWEEP_DONE || row->look.state == LVNI_SWEEP_PRUNED) &&
           row->look.result.has_value && isfinite(*value);
}

static const char *parameter_of(const lvni_sweep_row *row, const char *name)
{
    for (size_t i = 0; row->trial.names != NULL && row->trial.names[i] != NULL; i++) {
        if (strcmp(row->trial.names[i], name) == 0) {
            return row->trial.values[i];
        }
    }
    return NULL;
}

/* "sample", "lr=loguniform(...)" or "range", "lr=1:100:log". */
static bool is_drawn_log(const lvni_sweep_plan *plan, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; plan->space != NULL && plan->space[i] != NULL && plan->space[i + 1] != NULL;
         i += 2) {
        const char *text = plan->space[i + 1], *at = strstr(text, name);
        if (at != NULL && (at == text || at[-1] == ' ') && at[n] == '=' &&
            (strncmp(at + n + 1, "loguniform(", 11) == 0 ||
             (strcmp(plan->space[i], "range") == 0 && strstr(at + n, ":log") != NULL))) {
            return true;
        }
    }
    return false;
}

/* ---- sections ---- */

static void write_head(const page *p, lvni_core_str *out)
{
    const lvni_sweep_table *t = &p->table;
    const char *mark = ": ";
    lvni_core_str_printf(out, "<p>%lld trial%s", (long long)t->n, lvni_core_plural(t->n, "", "s"));
    for (int i = LVNI_SWEEP_STATES - 1; i >= 0; i--) {
        if (t->counts[i] > 0) {
            lvni_core_str_printf(out, "%s%lld %s", mark, (long long)t->counts[i],
                                 lvni_sweep_state_name((lvni_sweep_state)i));
            mark = ", ";
        }
    }
    lvni_core_str_append(out, lvni_sweep_is_stopped(&p->plan, -1) ? "; stopped" : "");
    lvni_core_str_append(out, "</p>\n<p class=soft>strategy ");
    lvni_report_escape(out, p->plan.strategy);
    lvni_core_str_append(out, ", the best has the ");
    lvni_core_str_append(out, p->plan.maximize ? "greatest " : "least ");
    lvni_report_escape(out, p->plan.metric);
    lvni_core_str_append(out, "</p>\n");
    if (p->n < t->n) {
        lvni_core_str_printf(out, "<p class=soft>The best %lld are on this page.</p>\n",
                             (long long)p->n);
    }
    for (int64_t i = 0; i < p->n_damaged && i < DAMAGED; i++) {
        lvni_core_str_append(out, "<p class=bad>damaged: ");
        lvni_report_escape(out, lvni_core_str_text(&p->damage[i]));
        lvni_core_str_append(out, "</p>\n");
    }
    if (p->n_damaged > DAMAGED) {
        lvni_core_str_printf(out, "<p class=bad>%lld more that cannot be read</p>\n",
                             (long long)p->n_damaged - DAMAGED);
    }
}

static void write_best(const page *p, lvni_core_str *out)
{
    const lvni_sweep_row *best = lvni_sweep_table_best(&p->table);
    lvni_core_str line = {0};
    if (best == NULL) {
        lvni_core_str_append(out, "<p class=soft>No trial has ended with a value.</p>\n");
        return;
    }
    lvni_report_heading(out, "Best trial");
    lvni_sweep_row_line(&p->plan, best, &line);
    lvni_core_str_append(out, "<p>");
    lvni_report_escape(out, lvni_core_str_text(&line));
    lvni_core_str_append(out, "</p>\n<pre>");
    lvni_core_str_clear(&line);
    for (size_t i = 0; best->trial.argv != NULL && best->trial.argv[i] != NULL; i++) {
        lvni_core_str_append(&line, i > 0 ? " " : "");
        lvni_core_shell_quote(&line, best->trial.argv[i]);
    }
    lvni_report_escape(out, lvni_core_str_text(&line));
    lvni_core_str_append(out, "</pre>\n");
    lvni_core_str_free(&line);
}

/* Line i is that of the i-th row; it is grey and ends before the metric where there is no value. */
static lvn_status write_parallel(const page *p, lvni_core_str *out)
{
    const int axes = (int)lvni_sweep_texts_count(p->plan.parameters) + 1;
    const size_t n = (size_t)p->n, k = (size_t)axes;
    const char **text = lvni_core_calloc(LVNI_TAG_CORE, n * k + k + 1, sizeof *text);
    char(*numbers)[NUMBER] = lvni_core_calloc(LVNI_TAG_CORE, n + 1, sizeof *numbers);
    bool *log = lvni_core_calloc(LVNI_TAG_CORE, k, sizeof *log);
    if (text != NULL && numbers != NULL && log != NULL) {
        const char **names = text + n * k;
        double value;
        for (size_t a = 0; a < k; a++) {
            names[a] = a + 1 < k ? p->plan.parameters[a] : p->plan.metric;
            log[a] = a + 1 < k && is_drawn_log(&p->plan, names[a]);
        }
        for (size_t i = 0; i < n; i++) {
            const lvni_sweep_row *row = &p->table.rows[i];
            for (size_t a = 0; a + 1 < k; a++) {
                text[i * k + a] = parameter_of(row, names[a]);
            }
            if (value_of(row, &value)) {
                lvni_core_format(numbers[i], NUMBER, "%.9g", value);
                text[i * k + k - 1] = numbers[i];
            }
        }
        const lvni_report_parallel of = {.title = "Parameters and their results",
                                         .n = (int)p->n,
                                         .n_axes = axes,
                                         .axis = names,
                                         .log = log,
                                         .text = text,
                                         .least_is_best = !p->plan.maximize};
        lvni_report_parallel_write(&of, out);
    } else {
        out->failed = true;
    }
    lvni_core_free(log);
    lvni_core_free(numbers);
    lvni_core_free((void *)text);
    return lvni_core_str_status(out);
}

/* The drawing of curves in units of its view box. */
enum { WIDTH = 640, LEFT = 64, RIGHT = 12, TOP = 10, HEIGHT = 280, BOTTOM = 36 };

static double place(const lvni_report_axis *axis, double value, double from, double to)
{
    const double at = lvni_report_axis_place(axis, value);
    return from + (at - axis->low) / (axis->high - axis->low) * (to - from);
}

static void write_ticks(const lvni_report_axis *x, const lvni_report_axis *y, lvni_core_str *out)
{
    for (int i = 0; i < x->n_ticks; i++) {
        const double at =
            LEFT + (x->tick[i].at - x->low) / (x->high - x->low) * (WIDTH - RIGHT - LEFT);
        lvni_core_str_printf(out, "<text x=%.1f y=%d text-anchor=middle>%s</text>", at,
                             TOP + HEIGHT + 16, x->tick[i].text);
    }
    for (int i = 0; i < y->n_ticks; i++) {
        const double at = TOP + HEIGHT - (y->tick[i].at - y->low) / (y->high - y->low) * HEIGHT;
        lvni_core_str_printf(out, "<line class=g x1=%d x2=%d y1=%.1f y2=%.1f />", LEFT,
                             WIDTH - RIGHT, at, at);
        lvni_core_str_printf(out, "<text x=%d y=%.1f text-anchor=end>%s</text>", LEFT - 6, at + 4.0,
                             y->tick[i].text);
    }
    lvni_core_str_printf(out, "<text x=%d y=%d text-anchor=end>step%s</text>\n", WIDTH - RIGHT,
                         TOP + HEIGHT + 32, x->note);
}

/* Done, pruned, others: also their colours. */
static int layer_of(const lvni_sweep_row *row)
{
    const lvni_sweep_state state = row->look.state;
    return state == LVNI_SWEEP_DONE ? 0 : state == LVNI_SWEEP_PRUNED ? 1 : 2;
}

static void write_curve(const page *p, int64_t i, int layer, const lvni_report_axis *x,
                        const lvni_report_axis *y, lvni_core_str *out)
{
    const curve *c = &p->curves[i];
    double px = 0.0, py = 0.0;
    lvni_core_str_printf(out, "<g data-r=%lld class=\"c%d\"><path class=\"l%s\" d=\"", (long long)i,
                         layer, layer < 2 ? " s" : "");
    for (int k = 0; k < c->n; k++) {
        px = place(x, c->at[k].step, LEFT, WIDTH - RIGHT);
        py = place(y, c->at[k].value, TOP + HEIGHT, TOP);
        if (isfinite(px) && isfinite(py)) {
            lvni_core_str_printf(out, "%s%.0f %.0f", k == 0 ? "M" : "L", px, py);
        }
    }
    lvni_core_str_append(out, "\"/>");
    if ((layer > 0 || c->n == 1) && isfinite(px) && isfinite(py)) {
        lvni_core_str_printf(out, "<circle class=p r=2.5 cx=%.0f cy=%.0f />", px, py);
    }
    lvni_core_str_append(out, "</g>\n");
}

static void write_curves(const page *p, lvni_core_str *out)
{
    static const char *const legend[] = {"done", "pruned", "others: running, lost, failed"};
    lvni_report_axis x, y;
    double least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < p->n; i++) {
        for (int k = 0; k < p->curves[i].n; k++) {
            least = fmin(least, p->curves[i].at[k].value);
            most = fmax(most, p->curves[i].at[k].value);
        }
    }
    if (!(least <= most)) {
        lvni_core_str_append(out, "<p class=soft>No trial has logged the metric yet.</p>\n");
        return;
    }
    lvni_report_axis_begin(&x, false);
    lvni_report_axis_begin(&y, least > 0.0 && most / least > 100.0);
    x.whole = true;
    lvni_report_axis_widen(&x, 0.0);
    for (int64_t i = 0; i < p->n; i++) {
        for (int k = 0; k < p->curves[i].n; k++) {
            lvni_report_axis_widen(&x, p->curves[i].at[k].step);
            lvni_report_axis_widen(&y, p->curves[i].at[k].value);
        }
    }
    lvni_report_axis_end(&x, 0.0, 5);
    lvni_report_axis_end(&y, 0.02, 6);
    lvni_core_str_append(out, "<figure><figcaption>");
    lvni_report_escape(out, p->plan.metric);
    lvni_core_str_append(out, y.note);
    lvni_report_legend(out, legend, 3);
    lvni_core_str_printf(out, "</figcaption><svg viewBox=\"0 0 %d %d\" role=img aria-label=\"",
                         WIDTH, TOP + HEIGHT + BOTTOM);
    lvni_report_escape(out, p->plan.metric);
    lvni_core_str_append(out, "\">\n");
    write_ticks(&x, &y, out);
    for (int layer = 0; layer < 3; layer++) { /* those that go on are on top */
        for (int64_t i = p->n - 1; i >= 0; i--) {
            if (p->curves[i].n > 0 && layer_of(&p->table.rows[i]) == layer) {
                write_curve(p, i, layer, &x, &y, out);
            }
        }
    }
    lvni_core_str_append(out, "</svg></figure>\n");
}

static void write_cell(const char *text, lvni_core_str *out)
{
    lvni_core_str_append(out, "<td>");
    lvni_report_escape(out, text != NULL ? text : "");
}

static void write_row(const page *p, int64_t i, lvni_core_str *out)
{
    const lvni_sweep_row *row = &p->table.rows[i];
    const lvni_sweep_result *r = &row->look.result;
    const bool end = lvni_sweep_state_is_end(row->look.state);
    lvni_core_str_printf(out, "<tr data-r=%lld><td>%lld", (long long)i,
                         (long long)row->trial.index);
    write_cell(lvni_sweep_state_name(row->look.state), out);
    for (char *const *name = p->plan.parameters; name != NULL && *name != NULL; name++) {
        write_cell(parameter_of(row, *name), out);
    }
    if (end && r->has_value) {
        lvni_core_str_printf(out, "<td>%.6g<td>%lld<td>%.6g", r->value, (long long)r->step,
                             r->last);
    } else {
        lvni_core_str_append(out, "<td><td><td>");
    }
    if (end) {
        lvni_core_str_printf(out, "<td>%lld<td data-v=%.0f>", (long long)r->epochs, r->seconds);
        lvni_sweep_time_print(r->seconds, out);
    } else {
        lvni_core_str_append(out, "<td><td>");
    }
    write_cell(end ? r->error : "", out);
    lvni_core_str_char(out, '\n');
}

static void write_table(const page *p, lvni_core_str *out)
{
    static const char *const behind[] = {"step", "last", "epochs", "time", "error"};
    lvni_report_heading(out, "Trials");
    lvni_core_str_append(out, "<div class=\"wide w\"><table id=t><thead><tr><th>trial<th>state");
    for (char *const *name = p->plan.parameters; name != NULL && *name != NULL; name++) {
        lvni_core_str_append(out, "<th>");
        lvni_report_escape(out, *name);
    }
    lvni_core_str_append(out, "<th>");
    lvni_report_escape(out, p->plan.metric);
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        lvni_core_str_printf(out, "<th>%s", behind[i]);
    }
    lvni_core_str_append(out, "</thead><tbody>\n");
    for (int64_t i = 0; i < p->n; i++) {
        write_row(p, i, out);
    }
    lvni_core_str_append(out, "</tbody></table></div>\n");
}

/* Shown where the script runs: without it all trials are there, in the order of their results. */
static const char control[] =
    "<style>.v{--c:var(--soft)}.bad{color:var(--c1)}th button{font:inherit;color:inherit;"
    "background:none;border:0;padding:0;cursor:pointer}.hot .l,.l.hot{stroke-width:4;opacity:1}"
    ".wide svg text{paint-order:stroke;stroke:var(--paper);stroke-width:3px}"
    "#t td{overflow-wrap:normal;white-space:nowrap}"
    "#t td:last-child{white-space:normal;min-width:12rem}"
    "tbody tr:hover{background:var(--rule)}#c input{width:6rem;font:inherit}</style>\n"
    "<p id=c hidden><label>Only the best <input id=k type=number min=1></label></p>\n";

/* Columns sort by number, then by text, empty ones last; data-r is a trial's place in the order of
 * results. */
static const char script[] =
    "<script>\n"
    "(()=>{const $=q=>[...document.querySelectorAll(q)],t=document.getElementById('t'),"
    "k=document.getElementById('k');\n"
    "const all=$('[data-r]');k.max=t.tBodies[0].rows.length;"
    "document.getElementById('c').hidden=false;\n"
    "k.oninput=()=>{const n=+k.value||Infinity;"
    "for(const e of all)e.style.display=+e.dataset.r<n?'':'none'};\n"
    "const v=(r,i)=>r.cells[i].dataset.v||r.cells[i].textContent.trim();\n"
    "$('#t th').forEach((h,i)=>{const b=document.createElement('button');"
    "b.textContent=h.textContent;h.replaceChildren(b);\n"
    "b.onclick=()=>{const d=h.ariaSort=='ascending'?-1:1;"
    "$('#t th').forEach(o=>o.ariaSort=null);h.ariaSort=d>0?'ascending':'descending';\n"
    "t.tBodies[0].append(...[...t.tBodies[0].rows].sort((p,q)=>{const a=v(p,i),c=v(q,i);"
    "if(!a||!c)return!a-!c;\n"
    "const x=+a,y=+c;return d*(isNaN(x)||isNaN(y)?a.localeCompare(c):x-y)||"
    "p.dataset.r-q.dataset.r}))}});\n"
    "const hot=(e,on)=>{const r=e.target.closest('[data-r]');"
    "if(r)for(const o of all)if(o.dataset.r==r.dataset.r)o.classList.toggle('hot',on)};\n"
    "document.addEventListener('mouseover',e=>hot(e,true));"
    "document.addEventListener('mouseout',e=>hot(e,false))})()\n"
    "</script>\n";

static lvn_status write_all(page *p, lvni_core_str *out)
{
    lvni_core_str title = {0};
    lvni_core_str_printf(&title, "%s, a sweep", p->plan.name);
    lvni_report_page_begin(out, lvni_core_str_text(&title));
    lvni_core_str_free(&title);
    write_head(p, out);
    write_best(p, out);
    lvni_core_str_append(out, control);
    lvni_report_heading(out, "Parameters");
    LVN_TRY(write_parallel(p, out));
    lvni_report_heading(out, "Curves");
    write_curves(p, out);
    write_table(p, out);
    lvni_core_str_append(out, script);
    lvni_report_page_end(out);
    return lvni_core_str_status(out);
}

lvn_status lvni_sweep_page(const char *dir, lvni_core_str *out)
{
    page p = {.n = 0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_sweep_plan_read(dir, &p.plan));
    LVNI_TRY_DONE(s, read_rows(&p));
    p.n = p.table.n < LVNI_SWEEP_PAGE_TRIALS ? p.table.n : LVNI_SWEEP_PAGE_TRIALS;
    p.curves = lvni_core_calloc(LVNI_TAG_CORE, (size_t)p.n + 1, sizeof *p.curves);
    LVNI_TRY_DONE(s, p.curves == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int64_t i = 0; i < p.n; i++) {
        read_curve(&p, p.table.rows[i].trial.index, &p.curves[i]);
    }
    s = write_all(&p, out);
done:
    lvni_core_free(p.curves);
    lvni_sweep_table_free(&p.table);
    lvni_sweep_plan_free(&p.plan);
    for (int i = 0; i < DAMAGED; i++) {
        lvni_core_str_free(&p.damage[i]);
    }
    return s;
}
