/* The command line's words and the defaults of a job (config.h). */
#include "core/config_impl.h"

#include "core/alloc.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { WORDS_MAX = 4096, KEY_MAX = 128 };
static const char command_line[] = "command line";

/* One word, or two for "--key value". */
typedef struct word_pair {
    char key[KEY_MAX];
    const char *text;
    bool back;
    int used; /* words eaten */
} word_pair;

static bool is_flag(const lvni_core_config *config, const char *key)
{
    const lvni_core_slot *slot = lvni_core_config_target(config, key);
    return slot != NULL && slot->row->type == LVNI_OPT_BOOL;
}

static bool is_bool_word(const char *word)
{
    static const char words[] = "true|false|yes|no|on|off|1|0";
    return lvni_core_option_choice_index(words, word, strlen(word)) >= 0;
}

/* ---- the parts of a word ---- */

typedef struct word_parts {
    const char *key;
    size_t n;         /* bytes of the key */
    const char *text; /* behind `=`; NULL: there is none */
    bool dashes;      /* "--key": the value may be the next word */
    bool back;        /* "~key" */
} word_parts;

/* "-b", "-b=64", "-b64": short options of other trainers. */
static bool split_short(const lvni_core_config *config, const char *word, word_parts *out)
{
    char name[KEY_MAX];
    const char *equals = strchr(word, '=');
    if (word[0] != '-' || !isalpha((unsigned char)word[1])) {
        return false;
    }
    *out = (word_parts){.key = word, .dashes = true, .text = equals != NULL ? equals + 1 : NULL};
    out->n = equals != NULL ? (size_t)(equals - word) : strlen(word);
    snprintf(name, sizeof name, "%.*s", (int)out->n, word);
    if (out->n < sizeof name && lvni_core_config_foreign(config, name) != NULL) {
        return true;
    }
    snprintf(name, sizeof name, "%.2s", word);
    out->n = 2;
    out->text = word + 2;
    return isdigit((unsigned char)word[2]) && lvni_core_config_foreign(config, name) != NULL;
}

static void split_parts(const lvni_core_config *config, const char *word, word_parts *out)
{
    if (split_short(config, word, out)) {
        return;
    }
    *out = (word_parts){.key = word, .dashes = strncmp(word, "--", 2) == 0, .back = *word == '~'};
    const bool two = out->dashes || strncmp(word, "++", 2) == 0;
    out->key += two ? 2 : *word == '+' || *word == '~' ? 1 : 0;
    const char *equals = strchr(out->key, '=');
    out->n = equals != NULL ? (size_t)(equals - out->key) : strlen(out->key);
    out->text = equals != NULL ? equals + 1 : NULL;
}

/* "--key value" and "--flag". */
static lvn_status split_dashes(const lvni_core_config *config, int left, const char *const *words,
                               const char *origin, word_pair *out)
{
    const char *next = left > 1 ? words[1] : NULL;
    if (is_flag(config, out->key) && (next == NULL || !is_bool_word(next))) {
        out->text = "true";
        return LVN_OK;
    }
    if (lvni_core_config_target(config, out->key) == NULL) {
        return lvni_core_config_unknown(config, out->key, origin);
    }
    if (next == NULL || strncmp(next, "--", 2) == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s` needs a value: %.80s=VALUE  (%s)", words[0], out->key,
                 origin);
    }
    out->text = next;
    out->used = 2;
    return LVN_OK;
}

static lvn_status split_word(const lvni_core_config *config, int left, const char *const *words,
                             const char *origin, word_pair *out)
{
    word_parts p;
    split_parts(config, words[0], &p);
    *out = (word_pair){.back = p.back, .used = 1, .text = ""};
    if (p.n == 0 || (p.text == NULL && !p.dashes && !p.back)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%.80s` is not understood: words are key=value or --key value  (%s)", words[0],
                 origin);
    }
    if (p.n >= KEY_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "the key of `%.80s...` is longer than any known one  (%s)",
                 words[0], origin);
    }
    memcpy(out->key, p.key, p.n);
    if (p.text != NULL) {
        out->text = p.text;
        return LVN_OK;
    }
    return out->back ? LVN_OK : split_dashes(config, left, words, origin, out);
}

int lvni_core_config_arguments_of(const lvni_core_config *config, int n, const char *const *words,
                                  const char **name, const char **text)
{
    word_parts p;
    char key[KEY_MAX];
    split_parts(config, words[0], &p);
    snprintf(key, sizeof key, "%.*s", (int)p.n, p.key);
    const lvni_core_slot *slot =
        p.n > 0 && p.n < sizeof key ? lvni_core_config_target(config, key) : NULL;
    *name = slot != NULL ? slot->row->name : NULL;
    *text = p.text;
    if (slot == NULL || (p.text == NULL && !p.dashes && !p.back)) {
        return 0;
    }
    const char *next = n > 1 ? words[1] : NULL;
    const bool two = p.text == NULL && p.dashes && next != NULL &&
                     (slot->row->type != LVNI_OPT_BOOL || is_bool_word(next));
    *text = two ? next : p.text;
    return two ? 2 : 1;
}

static lvn_status load_all(lvni_core_config *config, lvni_core_layer layer, int n,
                           const char *const *words, const char *origin)
{
    const int source = ++config->sources;
    for (int i = 0; i < n;) {
        word_pair pair;
        LVN_TRY(split_word(config, n - i, words + i, origin, &pair));
        i += pair.used;
        LVN_TRY(lvni_core_config_assign(config, &(lvni_core_assignment){.key = pair.key,
                                                                        .text = pair.text,
                                                                        .back = pair.back,
                                                                        .layer = layer,
                                                                        .source = source,
                                                                        .origin = origin}));
    }
    return LVN_OK;
}

/* The files first: their layer is below the words, so only the order among files matters. */
static lvn_status load_files(lvni_core_config *config, int n, const char *const *words)
{
    for (int i = 0; i < n;) {
        word_pair pair;
        LVN_TRY(split_word(config, n - i, words + i, command_line, &pair));
        i += pair.used;
        const lvni_core_slot *slot = lvni_core_config_target(config, pair.key);
        const bool given = !pair.back && pair.text[0] != '\0';
        if (slot != NULL && strcmp(slot->row->name, "config") == 0 && given) {
            LVN_TRY(lvni_core_config_load_file(config, LVNI_LAYER_FILE, pair.text));
        }
    }
    return LVN_OK;
}

lvn_status lvni_core_config_load_arguments(lvni_core_config *config, int n,
                                           const char *const *words)
{
    if (n > WORDS_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "%d words are more than the %d a command takes", n, WORDS_MAX);
    }
    LVN_TRY(load_files(config, n, words));
    return load_all(config, LVNI_LAYER_ARGUMENTS, n, words, command_line);
}

/* The end of the word that begins at p: blanks inside quotes and brackets belong to it. */
static char *word_end(char *p)
{
    char quote = '\0';
    int depth = 0;
    for (; *p != '\0'; p++) {
        if (quote != '\0') {
            quote = *p == quote ? '\0' : quote;
        } else if (*p == '\'' || *p == '"') {
            quote = *p;
        } else if (*p == '[') {
            depth++;
        } else if (*p == ']') {
            depth--;
        } else if (depth <= 0 && strchr(" \t\r\n", *p) != NULL) {
            break;
        }
    }
    return p;
}

lvn_status lvni_core_config_load_job(lvni_core_config *config, const char *job)
{
    if (job == NULL) {
        return LVN_OK;
    }
    char *copy = lvni_core_strdup(LVNI_TAG_CONFIG, job);
    const char **words = lvni_core_calloc(LVNI_TAG_CONFIG, strlen(job) / 2 + 1, sizeof *words);
    lvn_status status = copy == NULL || words == NULL ? LVN_ERR_MEMORY : LVN_OK;
    int n = 0;
    for (char *p = copy; status == LVN_OK && *p != '\0';) {
        p += strspn(p, " \t\r\n");
        if (*p != '\0') {
            char *end = word_end(p);
            words[n++] = p;
            p = *end != '\0' ? end + 1 : end;
            *end = '\0';
        }
    }
    if (status == LVN_OK) {
        status = load_all(config, LVNI_LAYER_JOB, n, words, "job");
    }
    lvni_core_free(words);
    lvni_core_free(copy);
    return status;
}
