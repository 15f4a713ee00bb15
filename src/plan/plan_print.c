/* The batch plan in words: what the start block of a run and `levin plan` show. */
#include "plan/plan.h"

#include "plan/tree.h"

static void append_sizes(const lvni_plan *p, lvni_core_str *out)
{
    const int64_t large = lvni_plan_largest_micro_batch(p),
                  small = p->effective_batch / p->micro_batches;
    lvni_core_str_printf(out, "effective batch %lld = %d micro-batch%s x %lld",
                         (long long)p->effective_batch, p->micro_batches,
                         lvni_core_plural(p->micro_batches, "", "es"), (long long)large);
    if (small != large) {
        lvni_core_str_printf(out, " or %lld (the first %lld have %lld)", (long long)small,
                             (long long)(p->effective_batch % p->micro_batches), (long long)large);
    }
}

static void append_owner(const lvni_plan *p, int rank, lvni_core_str *out)
{
    const lvni_plan_range own = lvni_plan_micro_batches_of(p, rank);
    const long long first = (long long)own.start, last = (long long)(own.start + own.count - 1);
    if (own.count == 1) {
        lvni_core_str_printf(out, "rank %d owns micro-batch %lld", rank, first);
    } else {
        lvni_core_str_printf(out, "rank %d owns micro-batches %lld-%lld", rank, first, last);
    }
}

/* Up to four ranks by name, of more the first two and the last. */
static void append_owners(const lvni_plan *p, lvni_core_str *out)
{
    if (p->staged) {
        lvni_core_str_printf(out, "; each of %d ranks works on all of them with its stage",
                             p->devices);
        return;
    }
    for (int rank = 0; rank < p->devices; rank++) {
        if (p->devices > 4 && rank == 2) {
            lvni_core_str_append(out, ", ...");
            rank = p->devices - 1;
        }
        lvni_core_str_append(out, rank == 0 ? "; " : ", ");
        append_owner(p, rank, out);
    }
}

/* Epochs of each factor. */
static void append_factors(const lvni_plan *p, lvni_core_str *out)
{
    lvni_core_str_printf(out, "an epoch of %lld sample%s is ", (long long)p->n_samples,
                         lvni_core_plural(p->n_samples, "", "s"));
    for (int i = 0; i < p->n_factors; i++) {
        const lvni_plan_factor *f = &p->factor[i];
        const int64_t batch = p->effective_batch / p->accumulate * f->factor;
        if (i > 0) {
            lvni_core_str_printf(out, ", from epoch %lld on ", (long long)f->epoch + 1);
        }
        lvni_core_str_printf(out, "%lld step%s of %lld", (long long)f->steps,
                             lvni_core_plural(f->steps, "", "s"), (long long)batch);
    }
    lvni_core_str_printf(out, "; evaluation in chunks of %lld\n", (long long)p->eval_batch_size);
}

static void append_epoch(const lvni_plan *p, lvni_core_str *out)
{
    if (p->cycles) {
        lvni_core_str_printf(
            out, "an epoch is %lld step%s of %lld, ", (long long)p->steps_per_epoch,
            lvni_core_plural(p->steps_per_epoch, "", "s"), (long long)p->effective_batch);
        if (p->n_samples == LVNI_PLAN_ENDLESS) {
            lvni_core_str_append(out, "of samples without end");
        } else {
            lvni_core_str_printf(out, "pass after pass through %lld sample%s",
                                 (long long)p->n_samples, lvni_core_plural(p->n_samples, "", "s"));
        }
        lvni_core_str_printf(out, "; evaluation in chunks of %lld\n",
                             (long long)p->eval_batch_size);
        return;
    }
    if (p->n_factors > 0) {
        append_factors(p, out);
        return;
    }
    lvni_core_str_printf(out, "an epoch of %lld sample%s is %lld step%s", (long long)p->n_samples,
                         lvni_core_plural(p->n_samples, "", "s"), (long long)p->steps_per_epoch,
                         lvni_core_plural(p->steps_per_epoch, "", "s"));
    const int64_t used = (p->steps_per_epoch - 1) * p->effective_batch + p->last_step;
    if (p->last_step != p->effective_batch) {
        lvni_core_str_printf(out, ", the last of %lld", (long long)p->last_step);
    } else if (used < p->n_samples) {
        lvni_core_str_printf(out, ", %lld left out each time (drop_last)",
                             (long long)(p->n_samples - used));
    }
    lvni_core_str_printf(out, "; evaluation in chunks of %lld\n", (long long)p->eval_batch_size);
}

static void append_work(const lvni_plan *p, lvni_core_str *out)
{
    lvni_core_str_printf(out, "rank %d computes %d micro-batch%s at once (lanes=%d) with %d core%s",
                         p->rank, p->lanes, lvni_core_plural(p->lanes, "", "es"), p->lanes,
                         p->cores, lvni_core_plural(p->cores, "", "s"));
    if (p->lanes_raised) {
        lvni_core_str_append(
            out,
            ", raised because the micro-batches of a group wait for each other and share cores");
    }
    lvni_core_str_printf(
        out, "; %d gradient set%s: %d waiting in the tree, %d active", p->waiting_sets + p->lanes,
        lvni_core_plural(p->waiting_sets + p->lanes, "", "s"), p->waiting_sets, p->lanes);
    if (p->devices > 1) {
        int most = 0;
        for (int rank = 0; rank < p->devices; rank++) {
            const lvni_plan_range own = lvni_plan_micro_batches_of(p, rank);
            const int owed =
                lvni_plan_tree_owed(p->micro_batches, (int)own.start, (int)(own.start + own.count));
            most = owed > most ? owed : most;
        }
        lvni_core_str_printf(out, "; a rank exchanges %s%d sub-tree%s", most > 1 ? "up to " : "",
                             most, lvni_core_plural(most, "", "s"));
    }
}

void lvni_plan_describe_batch(const lvni_plan *p, lvni_core_str *out)
{
    append_sizes(p, out);
    append_owners(p, out);
}

static void append_stream(const lvni_plan *p, int i, lvni_core_str *out)
{
    static const char *const rules[] = {
        [LVNI_PLAN_CYCLE] = "pass after pass",
        [LVNI_PLAN_ONCE] = "one pass in an epoch",
        [LVNI_PLAN_SHORTENS] = "an epoch has no more steps than a pass",
        [LVNI_PLAN_LENGTHENS] = "an epoch has no fewer steps than a pass"};
    const lvni_plan_stream *s = &p->stream[i];
    const int64_t large = lvni_plan_stream_largest(p, i), small = s->batch / p->micro_batches;
    lvni_core_str_printf(out, "stream %s: %lld sample%s in a step, %lld", s->name,
                         (long long)s->batch, lvni_core_plural(s->batch, "", "s"),
                         (long long)large);
    if (small != large) {
        lvni_core_str_printf(out, " or %lld", (long long)small);
    }
    lvni_core_str_append(out, " in a micro-batch, ");
    if (s->n_samples == LVNI_PLAN_ENDLESS) {
        lvni_core_str_append(out, "without end, in sequence");
        return;
    }
    const int64_t pass = (s->n_samples + s->batch - 1) / s->batch;
    lvni_core_str_printf(out, "of %lld, %s; %s (%lld step%s)", (long long)s->n_samples, s->order,
                         rules[s->rule], (long long)pass, lvni_core_plural(pass, "", "s"));
}

void lvni_plan_describe_streams(const lvni_plan *p, lvni_core_str *out)
{
    for (int i = 0; i < p->n_streams; i++) {
        lvni_core_str_append(out, i > 0 ? "\n" : "");
        append_stream(p, i, out);
    }
}

void lvni_plan_describe_work(const lvni_plan *p, lvni_core_str *out)
{
    append_epoch(p, out);
    if (p->coupled) {
        lvni_core_str_printf(out, "coupled micro-batches: group=%d, %s\n", p->group,
                             lvni_core_plural(p->group, "each alone",
                                              "which run at once and see each other's values"));
    }
    append_work(p, out);
}

enum { MOST_ENTRIES = 4 }; /* in a line; autotune records some for each layer */

static void append_entries(lvni_core_pin_entries *entries, lvni_core_str *out)
{
    lvni_core_str pins = {0};
    char entry[2 * LVNI_PIN_TEXT];
    int n = 0;
    lvni_core_pin_entries_print(entries, " ", &pins);
    const char *at = lvni_core_str_text(&pins);
    while (lvni_core_pin_entries_next(&at, entry)) {
        n++;
    }
    if (n > MOST_ENTRIES) {
        lvni_core_str_printf(out, " and %d pins", n);
    }
    at = lvni_core_str_text(&pins);
    for (int i = 0; n <= MOST_ENTRIES && lvni_core_pin_entries_next(&at, entry); i++) {
        lvni_core_str_printf(out, "%s%s%s", i == 0 ? " pins=[" : ",", entry, i + 1 == n ? "]" : "");
    }
    lvni_core_str_free(&pins);
}

void lvni_plan_describe_pin(const lvni_plan *p, lvni_core_str *out)
{
    lvni_core_str_printf(out, "the same bits elsewhere: micro_batches=%d", p->micro_batches);
    lvni_core_pins_print(&p->pins, out);
    lvni_core_str_printf(out, " group=%d eval_batch_size=%lld", p->group,
                         (long long)p->eval_batch_size);
    append_entries(p->pins.entries, out);
}

lvn_status lvni_plan_print(const lvni_plan *p, FILE *file)
{
    lvni_core_str text = {0};
    lvni_plan_describe_batch(p, &text);
    lvni_core_str_char(&text, '\n');
    lvni_plan_describe_streams(p, &text);
    lvni_core_str_append(&text, p->n_streams > 0 ? "\n" : "");
    lvni_plan_describe_work(p, &text);
    lvni_core_str_char(&text, '\n');
    lvni_plan_describe_pin(p, &text);
    lvni_core_str_char(&text, '\n');
    const lvn_status status = lvni_core_str_status(&text);
    if (status == LVN_OK) {
        fputs(lvni_core_str_text(&text), file);
    }
    lvni_core_str_free(&text);
    return status;
}
