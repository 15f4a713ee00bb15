/* The batch plan in words: what the start block of a run and `levin plan` show. */
#include "plan/plan.h"

#include "plan/tree.h"

static void append_sizes(const lvni_plan *p, lvni_str *out)
{
    const int64_t large = lvni_plan_largest_shard(p), small = p->effective_batch / p->shards;
    lvni_str_printf(out, "effective batch %lld = %d shard%s x %lld", (long long)p->effective_batch,
                    p->shards, lvni_plural(p->shards, "", "s"), (long long)large);
    if (small != large) {
        lvni_str_printf(out, " or %lld (the first %lld have %lld)", (long long)small,
                        (long long)(p->effective_batch % p->shards), (long long)large);
    }
}

static void append_owner(const lvni_plan *p, int rank, lvni_str *out)
{
    const lvni_range own = lvni_plan_shards_of(p, rank);
    const long long first = (long long)own.start, last = (long long)(own.start + own.count - 1);
    if (own.count == 1) {
        lvni_str_printf(out, "rank %d owns shard %lld", rank, first);
    } else {
        lvni_str_printf(out, "rank %d owns shards %lld-%lld", rank, first, last);
    }
}

/* Up to four ranks by name, of more the first two and the last. */
static void append_owners(const lvni_plan *p, lvni_str *out)
{
    for (int rank = 0; rank < p->devices; rank++) {
        if (p->devices > 4 && rank == 2) {
            lvni_str_append(out, ", ...");
            rank = p->devices - 1;
        }
        lvni_str_append(out, rank == 0 ? "; " : ", ");
        append_owner(p, rank, out);
    }
}

static void append_epoch(const lvni_plan *p, lvni_str *out)
{
    lvni_str_printf(out, "an epoch of %lld sample%s is %lld step%s", (long long)p->n_samples,
                    lvni_plural(p->n_samples, "", "s"), (long long)p->steps_per_epoch,
                    lvni_plural(p->steps_per_epoch, "", "s"));
    const int64_t used = (p->steps_per_epoch - 1) * p->effective_batch + p->last_step;
    if (p->last_step != p->effective_batch) {
        lvni_str_printf(out, ", the last of %lld", (long long)p->last_step);
    } else if (used < p->n_samples) {
        lvni_str_printf(out, ", %lld left out each time (drop_last)",
                        (long long)(p->n_samples - used));
    }
    lvni_str_printf(out, "; evaluation in chunks of %lld\n", (long long)p->eval_batch_size);
}

static void append_work(const lvni_plan *p, lvni_str *out)
{
    lvni_str_printf(out, "rank %d works on %d shard%s at once (lanes=%d) with %d core%s", p->rank,
                    p->lanes, lvni_plural(p->lanes, "", "s"), p->lanes, p->cores,
                    lvni_plural(p->cores, "", "s"));
    if (p->lanes_raised) {
        lvni_str_append(
            out, ", raised because the shards of a group wait for each other and share cores");
    }
    lvni_str_printf(out, "; %d gradient set%s: %d waiting in the tree, %d in work",
                    p->waiting_sets + p->lanes, lvni_plural(p->waiting_sets + p->lanes, "", "s"),
                    p->waiting_sets, p->lanes);
    if (p->devices > 1) {
        int most = 0;
        for (int rank = 0; rank < p->devices; rank++) {
            const lvni_range own = lvni_plan_shards_of(p, rank);
            const int owed =
                lvni_tree_owed(p->shards, (int)own.start, (int)(own.start + own.count));
            most = owed > most ? owed : most;
        }
        lvni_str_printf(out, "; a rank exchanges %s%d sub-tree%s", most > 1 ? "up to " : "", most,
                        lvni_plural(most, "", "s"));
    }
}

void lvni_plan_describe_batch(const lvni_plan *p, lvni_str *out)
{
    append_sizes(p, out);
    append_owners(p, out);
}

void lvni_plan_describe_work(const lvni_plan *p, lvni_str *out)
{
    append_epoch(p, out);
    if (p->coupled) {
        lvni_str_printf(
            out, "coupled shards: group=%d, %s\n", p->group,
            lvni_plural(p->group, "each alone", "which run at once and see each other's values"));
    }
    append_work(p, out);
}

void lvni_plan_describe_pin(const lvni_plan *p, lvni_str *out)
{
    lvni_str_printf(
        out, "the same bits elsewhere: shards=%d wgrad_threads=%d group=%d eval_batch_size=%lld",
        p->shards, p->wgrad_threads, p->group, (long long)p->eval_batch_size);
}

lvn_status lvni_plan_print(const lvni_plan *p, FILE *file)
{
    lvni_str text = {0};
    lvni_plan_describe_batch(p, &text);
    lvni_str_char(&text, '\n');
    lvni_plan_describe_work(p, &text);
    lvni_str_char(&text, '\n');
    lvni_plan_describe_pin(p, &text);
    lvni_str_char(&text, '\n');
    const lvn_status status = lvni_str_status(&text);
    if (status == LVN_OK) {
        fputs(lvni_str_text(&text), file);
    }
    lvni_str_free(&text);
    return status;
}
