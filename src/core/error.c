/* Exit codes, numbered errors and error records (error.h). The half of the records that signal
 * handlers run touches only static buffers and async-signal-safe system calls; all that could need
 * memory is prepared by lvni_core_error_record_begin. */
#include "core/error.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "core/machine.h"
#include "core/thread.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { LINE = 1024, RECORD_MAX = 1 << 20 }; /* bytes; a longer line is cut */

/* ---- exit codes ---- */

lvni_core_exit_code lvni_core_exit_of_status(lvn_status status)
{
    switch (status) {
    case LVN_OK: return LVNI_EXIT_OK;
    case LVN_ERR_USAGE: return LVNI_EXIT_USAGE;
    case LVN_ERR_MEMORY:
    case LVN_ERR_DEVICE_MEMORY:
    case LVN_ERR_RESOURCE: return LVNI_EXIT_RESOURCE;
    case LVN_ERR_TIMEOUT: return LVNI_EXIT_RENDEZVOUS;
    case LVN_ERR_PEER: return LVNI_EXIT_PEER;
    default: return LVNI_EXIT_FAILURE;
    }
}

int lvni_core_exit_of_signal(int signal_number)
{
    return 128 + signal_number;
}

/* ---- numbered errors and warnings ---- */

/* Errors of resources and of time leave with a code of their own; all others are usage. */
static const struct kind {
    int code;
    lvn_status status;
    lvni_core_exit_code exit;
} kinds[] = {
    {105, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE}, {106, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE},
    {110, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE}, {113, LVN_ERR_TIMEOUT, LVNI_EXIT_RENDEZVOUS},
    {114, LVN_ERR_TIMEOUT, LVNI_EXIT_RENDEZVOUS}, {120, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE},
};

static const struct kind *kind_of(int code)
{
    static const struct kind usage = {0, LVN_ERR_USAGE, LVNI_EXIT_USAGE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].code == code) {
            return &kinds[i];
        }
    }
    return &usage;
}

/* The name of a callback, with what it returned. */
static void set_unexplained(lvn_status status, const char *returned, const char *format,
                            va_list args)
{
    char name[LINE];
    lvni_core_escape_format(name, sizeof name, format, args);
    (void)lvn_error_set(status, __FILE__, __LINE__,
                        "%s returned %s without a message: lvn_error_set gives it one", name,
                        returned);
}

lvn_status lvni_core_error_of_callback(lvn_status status, uint64_t before, const char *format, ...)
{
    if (status != LVN_OK && lvn_last_error()->serial == before) {
        char returned[64];
        snprintf(returned, sizeof returned, "%s (%d)", lvn_status_name(status), (int)status);
        va_list args;
        va_start(args, format);
        set_unexplained(status, returned, format, args);
        va_end(args);
    }
    return status;
}

void lvni_core_error_of_null(uint64_t before, const char *format, ...)
{
    if (lvn_last_error()->serial == before) {
        va_list args;
        va_start(args, format);
        set_unexplained(LVN_ERR_INVALID, "NULL", format, args);
        va_end(args);
    }
}

const lvn_error *lvni_core_error_since(uint64_t before)
{
    static const lvn_error none;
    return lvn_last_error()->serial == before ? &none : lvn_last_error();
}

lvn_status lvni_core_error_collect(lvn_status status, const lvn_error *error, const char *who)
{
    const lvn_status known = status != LVN_OK ? status : error->code;
    if (error->code != LVN_OK) {
        (void)lvn_error_adopt(error);
        return known;
    }
    LVN_FAIL(known != LVN_OK ? known : LVN_ERR_INTERNAL, "%s failed with %s (%d) and no message",
             who, lvn_status_name(known), (int)known);
}

static void add_line(lvni_core_str *out, const char *before, const char *fmt, va_list args)
{
    char line[LINE];
    lvni_core_escape_format(line, sizeof line, fmt, args);
    lvni_core_str_append(out, before);
    lvni_core_str_append(out, line);
    lvni_core_str_char(out, '\n');
}

lvn_status lvni_core_notice_error(lvni_core_notices *n, int code, const char *fmt, ...)
{
    char line[LINE], head[40];
    va_list args;
    va_start(args, fmt);
    lvni_core_escape_format(line, sizeof line, fmt, args);
    va_end(args);
    snprintf(head, sizeof head, "levin: error E%d: ", code);
    lvni_core_str_clear(&n->text);
    lvni_core_str_append(&n->text, head);
    lvni_core_str_append(&n->text, line);
    lvni_core_str_char(&n->text, '\n');
    n->error = code;
    n->own = false;
    lvn_error_set(kind_of(code)->status, __FILE__, __LINE__, "E%d: %s", code, line);
    return lvni_core_error_number(code);
}

void lvni_core_notice_found(lvni_core_notices *n, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_line(&n->text, "  found: ", fmt, args);
    va_end(args);
}

void lvni_core_notice_fix(lvni_core_notices *n, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_line(&n->text, "  fix: ", fmt, args);
    va_end(args);
}

void lvni_core_notice_warn(lvni_core_notices *n, int code, const char *fmt, ...)
{
    char head[40];
    va_list args;
    snprintf(head, sizeof head, LVNI_WARNING_PREFIX "W%d: ", code);
    va_start(args, fmt);
    add_line(&n->warnings, head, fmt, args);
    va_end(args);
    n->first_warning = n->n_warnings == 0 ? code : n->first_warning;
    n->n_warnings++;
}

lvn_status lvni_core_notices_refuse_warnings(lvni_core_notices *n)
{
    const size_t skip = sizeof LVNI_WARNING_PREFIX - 1;
    LVN_TRY(lvni_core_notices_status(n));
    if (n->n_warnings == 0) {
        return LVN_OK;
    }
    const char *line = lvni_core_str_text(&n->warnings);
    char first[LINE];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(line + skip, "\n"), line + skip);
    lvni_core_str_clear(&n->text);
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        lvni_core_str_append(&n->text, "levin: error ");
        lvni_core_str_append_n(&n->text, line + skip, (size_t)(end + 1 - line) - skip);
    }
    lvni_core_notice_fix(n, "warnings are errors here (strict=true, or LEVIN_STRICT=1): fix what "
                            "they report, or set strict=false");
    n->error = n->first_warning;
    n->own = false;
    n->n_warnings = 0;
    lvni_core_str_clear(&n->warnings);
    LVN_TRY(lvni_core_str_status(&n->text));
    lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s (warnings are errors: strict)", first);
    return lvni_core_error_number(n->error);
}

lvni_core_exit_code lvni_core_notices_exit(const lvni_core_notices *n)
{
    return n->error == 0 ? LVNI_EXIT_OK : kind_of(n->error)->exit;
}

lvni_core_exit_code lvni_core_exit_of_error(const lvn_error *error)
{
    return error->number != 0 ? kind_of(error->number)->exit
                              : lvni_core_exit_of_status(error->code);
}

const char *lvni_core_error_prefix(const lvn_error *error)
{
    return error->number != 0 ? "levin: error " : "error: ";
}

bool lvni_core_notices_should_print(const lvni_core_notices *n)
{
    return n->error != 0 && (n->own || n->by_hand || n->rank <= 0);
}

lvn_status lvni_core_notices_status(const lvni_core_notices *n)
{
    LVN_TRY(lvni_core_str_status(&n->text));
    return lvni_core_str_status(&n->warnings);
}

void lvni_core_notices_free(lvni_core_notices *n)
{
    lvni_core_str_free(&n->text);
    lvni_core_str_free(&n->warnings);
    memset(n, 0, sizeof *n);
}

/* ---- error records ---- */

/* the file, and the name it has while it is written */
static char record_path[PATH_MAX], record_part[PATH_MAX];
/* {"rank": 3, "host": "n08", "pid": 4711 */
static char record_head[1024];
static atomic_bool written = true; /* nowhere to write counts as written */

const char *lvni_core_error_record_kind(lvn_status status)
{
    switch (status) {
    case LVN_ERR_NON_FINITE: return "nan";
    case LVN_ERR_MEMORY:
    case LVN_ERR_DEVICE_MEMORY: return "oom";
    case LVN_ERR_PEER: return "peer";
    default: return "error";
    }
}

static uint64_t wall_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

lvn_status lvni_core_error_record_begin(const char *path, int rank)
{
    atomic_store(&written, true);
    if (path == NULL || path[0] == '\0') {
        return LVN_OK;
    }
    char host[256];
    lvni_core_host_name(host, sizeof host);
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "{\"rank\": %d, \"host\": ", rank);
    lvni_core_str_json(&s, host);
    lvni_core_str_printf(&s, ", \"pid\": %ld", (long)getpid());
    const lvn_status status = lvni_core_str_status(&s);
    const int n = snprintf(record_head, sizeof record_head, "%s", lvni_core_str_text(&s));
    lvni_core_str_free(&s);
    LVN_TRY(status);
    const int m = snprintf(record_part, sizeof record_part, "%s.tmp-%ld", path, (long)getpid());
    if (n >= (int)sizeof record_head || m >= (int)sizeof record_part) {
        LVN_FAIL(LVN_ERR_INVALID, "the path of the error record is too long (%d bytes): %.80s...",
                 m, path);
    }
    snprintf(record_path, sizeof record_path, "%s", path);
    atomic_store(&written, false);
    return LVN_OK;
}

lvn_status lvni_core_error_record_write(const lvn_error *error, int code)
{
    if (atomic_exchange(&written, true)) {
        return LVN_OK;
    }
    const char *message = error->message[0] != '\0' ? error->message : lvn_status_text(error->code);
    lvni_core_str s = {0};
    lvni_core_str_printf(
        &s, "%s, \"time_ns\": %llu, \"kind\": \"%s\", \"code\": %d, \"message\": ", record_head,
        (unsigned long long)wall_clock_ns(), lvni_core_error_record_kind(error->code), code);
    lvni_core_str_json(&s, message);
    char where[320] = "";
    if (error->file != NULL) {
        snprintf(where, sizeof where, "%s:%d", error->file, error->line);
    }
    lvni_core_str_append(&s, ", \"where\": ");
    lvni_core_str_json(&s, where);
    lvni_core_str_append(&s, ", \"stack\": [");
    for (int i = 0; i < error->n_frames && i < LVN_ERROR_FRAMES; i++) {
        lvni_core_str_append(&s, i > 0 ? ", " : "");
        lvni_core_str_json(&s, error->frames[i]);
    }
    lvni_core_str_append(&s, "]}\n");
    lvn_status status = lvni_core_str_status(&s);
    if (status == LVN_OK) {
        status = lvni_core_file_write(record_path, lvni_core_str_text(&s), s.len);
    }
    lvni_core_str_free(&s);
    return status;
}

/* ---- in signal handlers ---- */

static const struct fatal {
    int number;
    const char *name, *meaning;
} fatal[] = {
    {SIGSEGV, "SIGSEGV", "invalid memory access"},
    {SIGBUS, "SIGBUS",
     "memory that is not there: a full disk or /dev/shm under a mapping, a file that was cut"},
    {SIGFPE, "SIGFPE", "impossible integer arithmetic"},
    {SIGILL, "SIGILL", "an instruction this processor does not have"},
    {SIGABRT, "SIGABRT", "the program called abort()"}};
enum { FATAL = sizeof fatal / sizeof *fatal };
static struct sigaction before[FATAL];

typedef struct text {
    char bytes[2049]; /* with a zero where it is printed */
    size_t n;
} text;

static void put(text *t, const char *s)
{
    while (*s != '\0' && t->n + 1 < sizeof t->bytes) {
        t->bytes[t->n++] = *s++;
    }
}

static void put_number(text *t, uint64_t value, unsigned base)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value > 0);
    put(t, digits + at);
}

static void put_file(const text *t)
{
    unlink(record_part); /* of a dead process with our number, or a trap */
    const int fd = open(record_part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        return;
    }
    const bool whole = write(fd, t->bytes, t->n) == (ssize_t)t->n;
    close(fd);
    if (!whole || rename(record_part, record_path) != 0) {
        unlink(record_part);
    }
}

/* Of a user's code; "": there is none. */
static char object_name[256];
static uintptr_t object_from, object_to;

/* Where the thread was; 0: unknown. */
static uintptr_t instruction_of(const void *context)
{
    const ucontext_t *c = context;
#if defined __x86_64__
    return (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
    return (uintptr_t)c->uc_mcontext.pc;
#else
    (void)c;
    return 0;
#endif
}

static void put_signal(text *t, const struct fatal *f, const siginfo_t *info, const void *context)
{
    put(t, f->name);
    put(t, " (");
    put(t, f->meaning);
    put(t, ")");
    if (info->si_code > 0 && f->number != SIGABRT) {
        put(t, f->number == SIGFPE || f->number == SIGILL ? " in the instruction at 0x"
                                                          : " at address 0x");
        put_number(t, (uint64_t)(uintptr_t)info->si_addr, 16);
    }
    const uintptr_t at = instruction_of(context);
    if (object_name[0] != '\0' && (info->si_code > 0 || f->number == SIGABRT)) {
        put(t, at >= object_from && at < object_to ? ", in the code of "
                                                   : ", in levin or a library, with the code of ");
        put(t, object_name);
        put(t, at >= object_from && at < object_to ? "" : " loaded");
    }
}

/* Of a process without a launcher. One that was sent by another process is not a crash. */
static void report_crash(const struct fatal *f, const siginfo_t *info, const void *context)
{
    if (object_name[0] == '\0' || (info->si_code <= 0 && f->number != SIGABRT)) {
        return;
    }
    text t;
    t.n = 0;
    put(&t, "error: killed by ");
    put_signal(&t, f, info, context);
    put(&t, "; gdb --args and this command show the line (levin cc -g -O0 keeps it)\n");
    t.bytes[t.n] = '\0';
    lvni_core_terminal_print_from_signal(false, t.bytes);
}

static void record_signal(const struct fatal *f, const siginfo_t *info, const void *context)
{
    text t;
    t.n = 0;
    put(&t, record_head);
    put(&t, ", \"time_ns\": ");
    put_number(&t, wall_clock_ns(), 10);
    put(&t, ", \"kind\": \"signal\", \"code\": ");
    put_number(&t, (uint64_t)lvni_core_exit_of_signal(f->number), 10);
    put(&t, ", \"message\": \"");
    put_signal(&t, f, info, context);
    put(&t, "\", \"where\": \"\", \"stack\": []}\n");
    put_file(&t);
}

/* Whatever was set before takes over: the instruction is repeated on return, a signal that was sent
 * is sent again. */
static void on_fatal(int number, siginfo_t *info, void *context)
{
    const int saved = errno;
    for (int i = 0; i < FATAL; i++) {
        if (fatal[i].number == number) {
            if (record_path[0] == '\0') {
                report_crash(&fatal[i], info, context);
            } else if (!atomic_exchange(&written, true)) {
                record_signal(&fatal[i], info, context);
            }
            sigaction(number, &before[i], NULL);
        }
    }
    if (info->si_code <= 0) {
        raise(number);
    }
    errno = saved;
}

lvn_status lvni_core_error_record_catch_signals(void)
{
    /* of this thread; others get theirs where they start */
    static char alternative[LVNI_SIGNAL_STACK];
    const stack_t stack = {.ss_sp = alternative, .ss_size = sizeof alternative};
    stack_t old;
    if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE) != 0) {
        sigaltstack(&stack, NULL);
    }
    struct sigaction a = {.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&a.sa_mask);
    for (int i = 0; i < FATAL; i++) {
        struct sigaction was;
        if (sigaction(fatal[i].number, &a, &was) != 0) {
            LVN_FAIL(LVN_ERR_INTERNAL, "no handler for %s: %s", fatal[i].name, strerror(errno));
        }
        if ((was.sa_flags & SA_SIGINFO) == 0 || was.sa_sigaction != on_fatal) {
            before[i] = was;
        }
    }
    return LVN_OK;
}

lvn_status lvni_core_error_report_crashes(const char *object, const void *from, const void *to)
{
    object_from = (uintptr_t)from;
    object_to = (uintptr_t)to;
    lvni_core_escape(object_name, sizeof object_name, object, strlen(object), LVNI_ESCAPE_TEXT);
    for (char *c = object_name; *c != '\0'; c++) {
        *c = *c == '"' || *c == '\\' ? '\'' : *c; /* as it stands in a record */
    }
    return lvni_core_error_record_catch_signals();
}

/* ---- reading ---- */

static void copy_text(const json_t *from, char *to, size_t room)
{
    const char *value = json_string_value(from);
    snprintf(to, room, "%s", value != NULL ? value : "");
}

static void take(const json_t *root, lvni_core_error_record *out)
{
    out->rank = (int)json_integer_value(json_object_get(root, "rank"));
    out->code = (int)json_integer_value(json_object_get(root, "code"));
    out->pid = json_integer_value(json_object_get(root, "pid"));
    const json_int_t time_ns = json_integer_value(json_object_get(root, "time_ns"));
    out->time_ns = time_ns > 0 ? (uint64_t)time_ns : 0;
    copy_text(json_object_get(root, "kind"), out->kind, sizeof out->kind);
    copy_text(json_object_get(root, "host"), out->host, sizeof out->host);
    copy_text(json_object_get(root, "message"), out->message, sizeof out->message);
    copy_text(json_object_get(root, "where"), out->where, sizeof out->where);
    const json_t *stack = json_object_get(root, "stack");
    for (size_t i = 0; i < json_array_size(stack) && i < LVNI_ERROR_STACK; i++) {
        copy_text(json_array_get(stack, i), out->stack[out->n_stack++], sizeof out->stack[0]);
    }
}

lvn_status lvni_core_error_record_read(const char *path, lvni_core_error_record *out)
{
    *out = (lvni_core_error_record){0};
    char *data;
    size_t bytes;
    LVN_TRY(lvni_core_file_read(path, RECORD_MAX, &data, &bytes));
    json_t *root = lvni_core_json_try(data, LVNI_JSON_FILE);
    lvni_core_free(data);
    const bool good = json_is_object(root) && json_is_string(json_object_get(root, "message"));
    if (good) {
        take(root, out);
    }
    json_decref(root);
    if (!good) {
        LVN_FAIL(
            LVN_ERR_CORRUPT,
            "%s is not an error record (a JSON object with rank, time_ns, kind, code and message)",
            path);
    }
    return LVN_OK;
}
