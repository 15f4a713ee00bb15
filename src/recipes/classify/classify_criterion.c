/* Keys of the loss and of the sampler, and the loss itself (classify_criterion.h). */
#include "recipes/classify/classify_criterion.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/option_list.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/sampler.h"

#include <levin/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 20 }; /* classes whose weights the note lists */
#define FILE_LIMIT ((size_t)16 << 20)

static const lvni_core_option rows[] = {
    {.name = "label_smoothing",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .help = "This share of the target goes to all classes alike, in training; validation takes "
             "plain cross entropy."},
    {.name = "class_weights",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_TEXT_LIST,
     .fallback = "none",
     .help = "Weights of the classes in the training loss, a weighted mean as in PyTorch: auto "
             "(training samples / (classes x samples of the "
             "class)), a list in the order of the class names ([1,2.5]), or a file with a line "
             "`NAME: WEIGHT` for each class."},
    {.name = "sampler",
     .type = LVNI_OPT_CHOICE,
     .choices = "shuffle|balanced",
     .fallback = "shuffle",
     .help = "Training samples of an epoch: shuffle, each once; balanced, as many drawn with "
             "replacement, every class equally often."},
};
const lvni_core_option_table lvni_classify_criterion_options =
    LVNI_OPTION_TABLE("loss and sampling", rows);

/* Where the weights come from and go to. */
typedef struct reading {
    const lvni_core_config *config;
    const lvn_dataset *train;
    const lvni_data_class_lists *lists;
    const char *given; /* class_weights= */
    double *weight;    /* one per class; NAN: not given yet */
} reading;

static lvn_status check_weight(const reading *r, int k, double weight)
{
    if (!(weight > 0.0 && weight <= 1e30)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "class_weights=%.80s: the weight of the class %s is %g, it must be above 0 and "
                 "finite  (%s)",
                 r->given, r->train->class_names[k], weight,
                 lvni_core_config_origin(r->config, "class_weights"));
    }
    return LVN_OK;
}

static lvn_status balance(const reading *r)
{
    for (int k = 0; k < r->lists->n_classes; k++) {
        const double count = (double)lvni_data_class_count(r->lists, k);
        if (count == 0.0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "class_weights=auto: the class %s has no training sample, and so no weight; "
                     "remove the class, or give "
                     "class_weights=[...]",
                     r->train->class_names[k]);
        }
        r->weight[k] = (double)r->lists->n / ((double)r->lists->n_classes * count);
    }
    return LVN_OK;
}

/* "[1, 2.5]" */
static lvn_status read_list(const reading *r)
{
    int n = 0;
    const char *at = r->given + 1;
    bool good = true;
    for (char *end; good && *at != ']'; n++) {
        const double weight = lvni_core_strtod(at, &end);
        good = end != at;
        if (good && n < r->lists->n_classes) {
            r->weight[n] = weight;
        }
        at = end + strspn(end, " ");
        good = good && (*at == ',' || *at == ']');
        at += *at == ',' ? 1 : 0;
    }
    if (!good || at[1] != '\0') {
        LVN_FAIL(LVN_ERR_USAGE, "class_weights=%.80s is not a list of numbers like [1,2.5]  (%s)",
                 r->given, lvni_core_config_origin(r->config, "class_weights"));
    }
    if (n != r->lists->n_classes) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "class_weights=%.80s has %d weight%s, but there %s %d class%s; give one for each, "
                 "in the order of their names  (%s)",
                 r->given, n, lvni_core_plural(n, "", "s"),
                 lvni_core_plural(r->lists->n_classes, "is", "are"), r->lists->n_classes,
                 lvni_core_plural(r->lists->n_classes, "", "es"),
                 lvni_core_config_origin(r->config, "class_weights"));
    }
    return LVN_OK;
}

static int class_of(const lvn_dataset *d, const char *name, size_t length)
{
    for (int k = 0; k < d->n_classes; k++) {
        if (strlen(d->class_names[k]) == length && memcmp(d->class_names[k], name, length) == 0) {
            return k;
        }
    }
    return -1;
}

/* "NAME: WEIGHT", with blanks around both; the name may hold colons. */
static lvn_status read_line(const reading *r, const char *line, size_t length, int number)
{
    size_t colon = length, from = strspn(line, " \t");
    while (colon > from && line[colon - 1] != ':') {
        colon--;
    }
    size_t name_end = colon > from ? colon - 1 : from;
    while (name_end > from && (line[name_end - 1] == ' ' || line[name_end - 1] == '\t')) {
        name_end--;
    }
    char *end = NULL;
    const double weight = colon > from ? lvni_core_strtod(line + colon, &end) : 0.0;
    const bool is_number = end != NULL && end != line + colon && end <= line + length &&
                           end + strspn(end, " \t\r") >= line + length;
    const int k = class_of(r->train, line + from, name_end - from);
    if (!is_number || k < 0) {
        LVN_FAIL(
            LVN_ERR_USAGE, "%s:%d: %s; a line must be `NAME: WEIGHT` with one of the %d classes",
            r->given, number,
            is_number ? "there is no such class" : "this is not a class name, a colon and a number",
            r->lists->n_classes);
    }
    if (!isnan(r->weight[k])) {
        LVN_FAIL(LVN_ERR_USAGE, "%s:%d: the class %s has a weight already", r->given, number,
                 r->train->class_names[k]);
    }
    r->weight[k] = weight;
    return check_weight(r, k, weight);
}

static lvn_status read_lines(const reading *r, const char *text)
{
    int number = 1;
    for (const char *line = text; *line != '\0'; number++) {
        const size_t length = strcspn(line, "\n");
        if (strspn(line, " \t\r") < length) {
            LVN_TRY(read_line(r, line, length, number));
        }
        line += length + (line[length] == '\n' ? 1 : 0);
    }
    for (int k = 0; k < r->lists->n_classes; k++) {
        if (isnan(r->weight[k])) {
            LVN_FAIL(LVN_ERR_USAGE, "class_weights=%s: the file has no weight for the class %s",
                     r->given, r->train->class_names[k]);
        }
    }
    return LVN_OK;
}

static lvn_status read_file(const reading *r)
{
    char *text;
    size_t size;
    lvn_status s = lvni_core_file_read(r->given, FILE_LIMIT, &text, &size);
    if (s != LVN_OK) {
        lvn_error_frame("class_weights= must be none, auto, a list like [1,2.5], or a file");
        return s;
    }
    s = read_lines(r, text);
    lvni_core_free(text);
    return s;
}

/* The mean over the training samples becomes 1: a weighted mean stays as it is, and a micro-batch's
 * weight is about its samples. */
static lvn_status scale(const reading *r)
{
    double sum = 0.0;
    for (int k = 0; k < r->lists->n_classes; k++) {
        LVN_TRY(check_weight(r, k, r->weight[k]));
        sum += r->weight[k] * (double)lvni_data_class_count(r->lists, k);
    }
    for (int k = 0; k < r->lists->n_classes; k++) {
        r->weight[k] *= (double)r->lists->n / sum;
    }
    return LVN_OK;
}

static void describe(const reading *r, lvni_core_str *note)
{
    int least = 0, most = 0;
    lvni_core_str_printf(note, "; class weights");
    for (int k = 0; k < r->lists->n_classes; k++) {
        least = r->weight[k] < r->weight[least] ? k : least;
        most = r->weight[k] > r->weight[most] ? k : most;
        if (r->lists->n_classes <= SHOWN) {
            lvni_core_str_printf(note, "%s %s %.4g", k > 0 ? "," : "", r->train->class_names[k],
                                 r->weight[k]);
        }
    }
    if (r->lists->n_classes > SHOWN) {
        lvni_core_str_printf(note, " from %s %.4g to %s %.4g", r->train->class_names[least],
                             r->weight[least], r->train->class_names[most], r->weight[most]);
    }
}

static lvn_status make_tensor(const reading *r, lvn_tensor **out)
{
    *out = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){r->lists->n_classes});
    for (int k = 0; *out != NULL && k < r->lists->n_classes; k++) {
        ((float *)(*out)->data)[k] = (float)r->weight[k];
    }
    return *out == NULL ? lvn_last_error()->code : LVN_OK;
}

/* `list`: the weights of a file as they were given. */
static lvn_status read_weights(const reading *r, lvn_tensor **out, lvni_core_str *list,
                               lvni_core_str *note)
{
    const bool automatic = strcmp(r->given, "auto") == 0 || strcmp(r->given, "balanced") == 0;
    const bool file = !automatic && r->given[0] != '[';
    for (int k = 0; k < r->lists->n_classes; k++) {
        r->weight[k] = (double)NAN;
    }
    LVN_TRY(automatic ? balance(r) : file ? read_file(r) : read_list(r));
    for (int k = 0; file && k < r->lists->n_classes; k++) {
        lvni_core_str_printf(list, "%s%.17g", k == 0 ? "[" : ",", r->weight[k]);
    }
    lvni_core_str_append(list, file ? "]" : "");
    LVN_TRY(lvni_core_str_status(list));
    LVN_TRY(scale(r));
    describe(r, note);
    return make_tensor(r, out);
}

lvn_status lvni_classify_criterion_read(lvni_core_config *c, const lvn_dataset *train,
                                        lvni_classify_criterion *out, lvni_core_str *note)
{
    *out = (lvni_classify_criterion){
        .label_smoothing = lvni_core_config_float(c, "label_smoothing"),
        .balanced = strcmp(lvni_core_config_str(c, "sampler"), "balanced") == 0};
    const char *given = lvni_core_config_str(c, "class_weights");
    if (out->label_smoothing > 0.0) {
        lvni_core_str_printf(note, "; label smoothing %.4g", out->label_smoothing);
    }
    lvni_core_str_append(note,
                         out->balanced ? "; classes drawn equally often (sampler=balanced)" : "");
    if (given == NULL || strcmp(given, "none") == 0) {
        return LVN_OK;
    }
    lvni_data_class_lists *lists;
    LVN_TRY(lvni_data_class_lists_create(train, &lists));
    double *weight = lvni_core_calloc(LVNI_TAG_DATA, (size_t)lists->n_classes, sizeof *weight);
    const reading r = {
        .config = c, .train = train, .lists = lists, .given = given, .weight = weight};
    lvni_core_str list = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, weight == NULL ? LVN_ERR_MEMORY
                                    : read_weights(&r, &out->class_weight, &list, note));
    if (list.len > 0) { /* config.yaml keeps the numbers: a resumed run need not have the file */
        s = lvni_core_config_set(c, "class_weights", lvni_core_str_text(&list),
                                 "resolved at start");
    }
done:
    lvni_core_str_free(&list);
    lvni_core_free(weight);
    lvni_data_class_lists_destroy(lists);
    return s;
}

void lvni_classify_criterion_free(lvni_classify_criterion *c)
{
    lvn_release(c->class_weight);
    *c = (lvni_classify_criterion){0};
}

bool lvni_classify_criterion_is_plain(const lvni_classify_criterion *c)
{
    return c->label_smoothing == 0.0 && c->class_weight == NULL;
}

lvn_tensor *lvni_classify_criterion_loss(const lvni_classify_criterion *c, lvn_tensor *logits,
                                         lvn_tensor *labels)
{
    return lvn_cross_entropy(logits, labels, .class_weight = c->class_weight,
                             .label_smoothing = c->label_smoothing);
}

double lvni_classify_criterion_weight(const lvni_classify_criterion *c, lvn_tensor *labels)
{
    if (c->class_weight == NULL) {
        return labels == NULL ? 0.0 : (double)lvn_numel(labels);
    }
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    struct lvni_tensor_device *device = ctx->device;
    ctx->device = NULL; /* computed where the labels are */
    const double sum = lvn_item(lvn_sum(lvn_gather(c->class_weight, 0, labels)));
    ctx->device = device;
    return sum;
}
