/* Messages of a step or an evaluation as bytes (step_message.h). Ranks run the same program on the
 * same kind of machine: structs go as they lie in memory. */
#include "trainer/step_message.h"

#include "core/alloc.h"

#include <string.h>

size_t lvni_trainer_message_limit(int64_t n_parts)
{
    return sizeof(lvni_trainer_message_head) +
           (size_t)n_parts *
               (sizeof(lvni_trainer_message_part) + LVNI_METRICS * sizeof(lvni_nn_step_metric));
}

lvn_status lvni_trainer_message_create(lvni_trainer_message *m, int64_t n_parts)
{
    *m = (lvni_trainer_message){.capacity = lvni_trainer_message_limit(n_parts)};
    m->data = lvni_core_calloc(LVNI_TAG_TRAINER, 1, m->capacity);
    return m->data == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_trainer_message_free(lvni_trainer_message *m)
{
    lvni_core_free(m->data);
    *m = (lvni_trainer_message){0};
}

lvni_trainer_message_head *lvni_trainer_message_begin(lvni_trainer_message *m)
{
    lvni_trainer_message_head *head = (void *)m->data;
    *head = (lvni_trainer_message_head){0};
    m->size = sizeof *head;
    return head;
}

lvn_status lvni_trainer_message_room(unsigned char **data, size_t size, size_t *capacity,
                                     size_t bytes)
{
    if (size + bytes <= *capacity) {
        return LVN_OK;
    }
    const size_t more = 2 * *capacity + bytes;
    unsigned char *moved = lvni_core_realloc(LVNI_TAG_TRAINER, *data, more);
    if (moved == NULL) {
        return LVN_ERR_MEMORY;
    }
    *data = moved;
    *capacity = more;
    return LVN_OK;
}

static lvn_status add_part(lvni_trainer_message *m, const lvni_trainer_message_part *part,
                           const lvni_nn_step_metric *metric)
{
    const size_t bytes = (size_t)part->n_metrics * sizeof *metric;
    LVN_TRY(lvni_trainer_message_room(&m->data, m->size, &m->capacity, sizeof *part + bytes));
    memcpy(m->data + m->size, part, sizeof *part);
    if (metric != NULL) {
        memcpy(m->data + m->size + sizeof *part, metric, bytes);
    }
    m->size += sizeof *part + bytes;
    ((lvni_trainer_message_head *)(void *)m->data)->n_parts++;
    return LVN_OK;
}

lvn_status lvni_trainer_message_add(lvni_trainer_message *m, const lvni_nn_step *metrics,
                                    int64_t samples)
{
    const lvni_trainer_message_part part = {
        .weight = metrics->weight, .samples = samples, .n_metrics = metrics->n_metrics};
    return add_part(m, &part, metrics->metric);
}

lvn_status lvni_trainer_message_add_weight(lvni_trainer_message *m, double weight, int64_t samples)
{
    const lvni_trainer_message_part part = {.weight = weight, .samples = samples};
    return add_part(m, &part, NULL);
}

lvn_status lvni_trainer_message_add_marks(lvni_trainer_message *m, const bool *marks, int64_t n)
{
    LVN_TRY(lvni_trainer_message_room(&m->data, m->size, &m->capacity, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        m->data[m->size++] = marks[i] ? 1 : 0;
    }
    ((lvni_trainer_message_head *)(void *)m->data)->n_marks = n;
    return LVN_OK;
}

lvn_status lvni_trainer_message_read_marks(const void *data, size_t size,
                                           const lvni_trainer_message_head *head, bool *marks,
                                           int64_t n)
{
    if (head->n_marks != n) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "a rank's message has marks for parameters: %lld, not %lld; start all ranks with "
                 "one version of levin",
                 (long long)head->n_marks, (long long)n);
    }
    const unsigned char *theirs = (const unsigned char *)data + size - n;
    for (int64_t i = 0; i < n; i++) {
        marks[i] = marks[i] || theirs[i] != 0;
    }
    return LVN_OK;
}

lvn_status lvni_trainer_message_read(const void *data, size_t size, lvni_trainer_message_head *head,
                                     lvni_trainer_message_part_fn give, void *user)
{
    const unsigned char *at = data, *end = at + size;
    lvni_trainer_message_head h = {0};
    lvni_trainer_message_part part;
    if (size >= sizeof h) {
        memcpy(&h, at, sizeof h);
        at += sizeof h;
    }
    int64_t read = 0;
    lvni_nn_step metrics;
    lvni_nn_step_begin(&metrics, 0.0);
    for (; read < h.n_parts && (size_t)(end - at) >= sizeof part; read++) {
        memcpy(&part, at, sizeof part);
        at += sizeof part;
        const bool fits = part.n_metrics >= 0 && part.n_metrics <= LVNI_METRICS &&
                          (size_t)(end - at) >= (size_t)part.n_metrics * sizeof *metrics.metric;
        if (!fits) {
            break;
        }
        metrics.weight = part.weight;
        metrics.n_metrics = (int)part.n_metrics;
        memcpy(metrics.metric, at, (size_t)part.n_metrics * sizeof *metrics.metric);
        at += (size_t)part.n_metrics * sizeof *metrics.metric;
        LVN_TRY(give(user, &part, &metrics));
    }
    if (h.n_marks < 0 || end - at != h.n_marks || read != h.n_parts || size < sizeof h) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "a rank's message of %zu bytes does not hold the %lld parts that it names: ranks "
                 "of different versions?",
                 size, (long long)h.n_parts);
    }
    if (head != NULL) {
        *head = h;
    }
    return LVN_OK;
}
