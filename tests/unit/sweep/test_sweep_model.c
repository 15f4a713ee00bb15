/* Two workers and one trial, stopped between any two of their system calls: every order of these
 * calls is tried, with kills, time that passes, and answers of link(2) that are lost on the way.
 *
 * The workers are coroutines that call the real code of claims, beats, take-overs and results on a
 * file system in memory; each call first gives way to the scheduler below. Two orders that have led
 * to the same files, and to the same answers to both workers, go on in the same way, so only one of
 * them is followed: that makes "every order" a few thousand runs.
 *
 * What must hold: an attempt has one owner; an owner that is alive is taken over only after it was
 * silent for dead_after; a trial ends once; and after everything that can happen a worker that
 * comes later finds it ended, or ends it. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "sweep/sweep_records_impl.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    WORKERS = 3, /* two, and the one that comes later */
    FILES = 40,
    NAME = 96,
    CONTENT = 640,
    OPEN_FILES = 16,
    FIRST_FD = 1 << 20, /* none that the system has */
    FOLDER_FD = FIRST_FD - 1,
    STACK = 256 << 10,
    LOOKS = 4,
    DEAD_AFTER_S = 10,
    ATTEMPTS = 16,
    DEPTH = 2000,
    SEEN = 1 << 22
};

/* ---- the file system ---- */

typedef struct inode {
    char content[CONTENT];
    size_t size;
    int links;
} inode;

typedef struct name {
    char path[NAME];
    int inode; /* -1: removed */
} name;

typedef struct world {
    inode inodes[FILES];
    int n_inodes;
    name names[FILES];
    int n_names;
    struct {
        int inode; /* -1: closed */
        size_t at;
    } files[OPEN_FILES];
    uint64_t clock_s;
    /* what the rules are checked with */
    int owner[ATTEMPTS], ends; /* of each attempt, -1: none; how many have ended the trial */
    uint64_t life_s[ATTEMPTS]; /* last sign of life of its owner */
    int kills, ticks, lost;    /* so many are left */
} world;

static world w;

/* ---- coroutines ---- */

typedef enum call { CALL_NONE, CALL_LINK, CALL_OTHER } call;

typedef struct worker {
    ucontext_t context;
    char *stack;
    bool done, dead, lies_low;
    bool answer_lost; /* of the call that comes */
    call next;
    uint64_t history;  /* of all answers that it got */
    uint64_t silent_s; /* how long the owner was silent when it last looked at its beat */
} worker;

static worker workers[WORKERS];
static ucontext_t scheduler;
static int running; /* -1: the scheduler */
static bool truth;  /* what is asked for owners is answered as it is; else every one is gone */

static uint64_t mix(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

static void learn(int64_t answer)
{
    workers[running].history = mix(workers[running].history, &answer, sizeof answer);
}

/* Before each call. false: this worker is dead, and its calls do nothing. */
static bool may_call(call kind)
{
    worker *me = &workers[running];
    if (!me->dead) {
        me->next = kind;
        const int i = running;
        running = -1;
        swapcontext(&me->context, &scheduler);
        running = i;
    }
    errno = EIO;
    return !me->dead;
}

static int find(const char *path)
{
    for (int i = 0; i < w.n_names; i++) {
        if (w.names[i].inode >= 0 && strcmp(w.names[i].path, path) == 0) {
            return i;
        }
    }
    return -1;
}

static int add_name(const char *path, int to)
{
    assert_true(w.n_names < FILES && strlen(path) < NAME);
    w.names[w.n_names].inode = to;
    snprintf(w.names[w.n_names].path, NAME, "%s", path);
    w.inodes[to].links++;
    return w.n_names++;
}

static int answer(int result, int error)
{
    learn(result >= 0 ? 0 : -error);
    errno = error;
    return result;
}

static int sim_open(const char *path, int flags, mode_t mode)
{
    (void)mode;
    if (!may_call(CALL_OTHER)) {
        return -1;
    }
    if ((flags & O_DIRECTORY) != 0) {
        return answer(FOLDER_FD, 0); /* to be synced */
    }
    int i = find(path);
    if (i >= 0 && (flags & O_EXCL) != 0) {
        return answer(-1, EEXIST);
    }
    if (i < 0 && (flags & O_CREAT) == 0) {
        return answer(-1, ENOENT);
    }
    if (i < 0) {
        assert_true(w.n_inodes < FILES);
        w.inodes[w.n_inodes] = (inode){.size = 0};
        i = add_name(path, w.n_inodes++);
    }
    for (int f = 0; f < OPEN_FILES; f++) {
        if (w.files[f].inode < 0) {
            w.files[f].inode = w.names[i].inode;
            w.files[f].at = 0;
            return answer(FIRST_FD + f, 0);
        }
    }
    fail_msg("too many open files");
    return -1;
}

/* All appends; the time in a record is not to make two states differ. */
static ssize_t sim_write(int fd, const void *data, size_t n)
{
    if (!may_call(CALL_OTHER)) {
        return -1;
    }
    inode *to = &w.inodes[w.files[fd - FIRST_FD].inode];
    assert_true(to->size + n < CONTENT);
    memcpy(to->content + to->size, data, n);
    to->size += n;
    to->content[to->size] = '\0';
    char *time = strstr(to->content, "\"time\":\"");
    if (time != NULL) {
        memset(time + 8, '0', strcspn(time + 8, "\""));
    }
    learn((int64_t)n);
    return (ssize_t)n;
}

static ssize_t sim_read(int fd, void *data, size_t n)
{
    if (!may_call(CALL_OTHER)) {
        return -1;
    }
    const inode *from = &w.inodes[w.files[fd - FIRST_FD].inode];
    const size_t at = w.files[fd - FIRST_FD].at;
    const size_t got = from->size - at < n ? from->size - at : n;
    memcpy(data, from->content + at, got);
    w.files[fd - FIRST_FD].at += got;
    workers[running].history = mix(workers[running].history, data, got);
    learn((int64_t)got);
    return (ssize_t)got;
}

static int sim_close(int fd)
{
    if (fd != FOLDER_FD) { /* what a dead one holds is closed by the system */
        w.files[fd - FIRST_FD].inode = -1;
    }
    return 0;
}

static int sim_fsync(int fd)
{
    (void)fd;
    return 0; /* nothing is lost here but by kills */
}

static int sim_unlink(const char *path)
{
    if (!may_call(CALL_OTHER)) {
        return -1;
    }
    const int i = find(path);
    if (i < 0) {
        return answer(-1, ENOENT);
    }
    w.inodes[w.names[i].inode].links--;
    w.names[i].inode = -1;
    return answer(0, 0);
}

static int sim_link(const char *from, const char *to)
{
    if (!may_call(CALL_LINK)) {
        return -1;
    }
    const int i = find(from);
    assert_true(i >= 0);
    const bool lost = workers[running].answer_lost;
    workers[running].answer_lost = false;
    if (find(to) >= 0) {
        return answer(-1, EEXIST);
    }
    (void)add_name(to, w.names[i].inode);
    return lost ? answer(-1, EEXIST) : answer(0, 0); /* it was done, asked for again, and refused */
}

static int attempt_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? 0 : atoi(dot + 1);
}

static int sim_stat(const char *path, int64_t *links, int64_t *bytes)
{
    if (!may_call(CALL_OTHER)) {
        return -1;
    }
    const int i = find(path);
    if (strstr(path, "/beat.") != NULL) {
        workers[running].silent_s = w.clock_s - w.life_s[attempt_of(path)];
        learn((int64_t)workers[running].silent_s);
    }
    if (i < 0) {
        return answer(-1, ENOENT);
    }
    *links = w.inodes[w.names[i].inode].links;
    *bytes = (int64_t)w.inodes[w.names[i].inode].size;
    learn(*links);
    learn(*bytes);
    return answer(0, 0);
}

static uint64_t sim_now(void)
{
    learn((int64_t)w.clock_s);
    return w.clock_s * 1000000000u;
}

/* ---- what a worker does ---- */

static lvni_sweep_alive ask(const lvni_sweep_owner *owner, void *user)
{
    (void)user;
    const bool dead = workers[owner->pid].dead || workers[owner->pid].done;
    return !truth ? LVNI_SWEEP_GONE : dead ? LVNI_SWEEP_DEAD : LVNI_SWEEP_THERE;
}

static char folder[] = "D", metric[] = "loss";
static const lvni_sweep_plan plan = {
    .dir = folder, .n_trials = 1, .metric = metric, .dead_after_s = DEAD_AFTER_S};
static const char trial[] = "D/trials/000000";

static void take_over(int me, const lvni_sweep_owner *self, const lvni_sweep_look *look)
{
    bool won = false;
    const uint64_t silent_s = workers[me].silent_s;
    (void)lvni_sweep_leave(trial, look->attempt, LVNI_SWEEP_END_LOST, self, NULL, &won);
    const int owner = w.owner[look->attempt];
    if (won && owner >= 0 && !workers[owner].dead && !workers[owner].done) {
        assert_false(truth);
        assert_true(silent_s >= DEAD_AFTER_S);
    }
}

/* An attempt without an owner, or a result that is refused though it counts, would be as bad as
 * two: the name that was not won is another worker's. */
static void check_other(int me, const char *record, int64_t attempt)
{
    char path[NAME], own[32];
    snprintf(path, sizeof path, "%s/%s.%" PRId64, trial, record, attempt);
    snprintf(own, sizeof own, "\"host\":\"%c\"", 'a' + me);
    const int i = find(path);
    assert_true(i >= 0);
    assert_null(strstr(w.inodes[w.names[i].inode].content, own));
}

static void run_trial(int me, const lvni_sweep_owner *self, int64_t attempt)
{
    bool left = false, won = false;
    const lvni_sweep_result result = {.state = LVNI_SWEEP_DONE, .attempt = attempt, .exit_code = 0};
    const lvn_status s = lvni_sweep_beat(trial, attempt, &left);
    if (s == LVN_OK) {
        w.life_s[attempt] = w.clock_s;
    }
    if (left || workers[me].dead) {
        return; /* taken over: it stops its trial */
    }
    const lvn_status end =
        lvni_sweep_leave(trial, attempt, LVNI_SWEEP_END_ENDED, self, &result, &won);
    w.ends += won;
    if (end == LVN_OK && !won && !workers[me].dead) {
        check_other(me, "left", attempt);
    }
}

static void work(int me)
{
    lvni_sweep_reader *reader = NULL;
    lvni_sweep_owner self = {.pid = me};
    snprintf(self.host, sizeof self.host, "%c", 'a' + me);
    assert_int_equal(lvni_sweep_reader_create(&plan, ask, NULL, sim_now, &reader), LVN_OK);
    for (int i = 0; i < LOOKS * (me == 2 ? 4 : 1) && !workers[me].dead; i++) {
        lvni_sweep_look look;
        bool won = false;
        if (lvni_sweep_reader_look(reader, 0, &look) != LVN_OK ||
            lvni_sweep_state_is_end(look.state)) {
            break;
        }
        if (look.state == LVNI_SWEEP_RUNNING) {
            (void)may_call(CALL_OTHER); /* it waits */
        } else if (look.state == LVNI_SWEEP_LOST) {
            take_over(me, &self, &look);
        } else {
            const int64_t k = look.attempt + 1;
            const lvn_status s = lvni_sweep_claim(trial, k, &self, &won);
            if (!won && s == LVN_OK && !workers[me].dead) {
                check_other(me, "claim", k);
            }
            if (won) {
                assert_int_equal(w.owner[k], -1);
                w.owner[k] = me;
                run_trial(me, &self, k);
                break;
            }
        }
    }
    lvni_sweep_reader_destroy(reader);
}

static void begin_coroutine(int me)
{
    running = me;
    work(me);
    workers[me].done = true;
    running = -1;
    swapcontext(&workers[me].context, &scheduler);
}

static void prepare(int me)
{
    worker *it = &workers[me];
    char *stack = it->stack;
    *it = (worker){.stack = stack, .history = 14695981039346656037u};
    assert_int_equal(getcontext(&it->context), 0);
    it->context.uc_stack.ss_sp = stack;
    it->context.uc_stack.ss_size = STACK;
    it->context.uc_link = NULL;
    makecontext(&it->context, (void (*)(void))begin_coroutine, 1, me);
}

static void step(int me)
{
    swapcontext(&scheduler, &workers[me].context);
}

static void finish(int me)
{
    workers[me].dead = workers[me].dead || !workers[me].done;
    while (!workers[me].done) {
        step(me);
    }
}

/* ---- all orders ---- */

typedef enum action { STEP, STEP_LOST, KILL, TICK } action;

typedef struct choice {
    action what;
    int who;
} choice;

static int choices(choice out[])
{
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const worker *it = &workers[i];
        if (it->done || it->dead) {
            continue;
        }
        out[n++] = (choice){STEP, i};
        if (it->next == CALL_LINK && w.lost > 0) {
            out[n++] = (choice){STEP_LOST, i};
        }
        if (w.kills > 0) {
            out[n++] = (choice){KILL, i};
        }
    }
    if (n > 0 && w.ticks > 0) {
        out[n++] = (choice){TICK, 0};
    }
    return n;
}

static void act(choice c)
{
    worker *it = &workers[c.who];
    switch (c.what) {
    case STEP_LOST:
        it->answer_lost = true;
        w.lost--;
        step(c.who);
        break;
    case STEP: step(c.who); break;
    case KILL:
        w.kills--;
        it->dead = true;
        break;
    case TICK:
        w.ticks--;
        w.clock_s += DEAD_AFTER_S + 1;
        break;
    }
}

/* Names of own files have numbers that go on from run to run. */
static uint64_t fingerprint(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < w.n_names; i++) {
        const name *n = &w.names[i];
        if (n->inode >= 0) {
            const char *path = strstr(n->path, "/own.") != NULL ? "own" : n->path;
            const inode *to = &w.inodes[n->inode];
            uint64_t hash = mix(14695981039346656037u, path, strlen(path));
            hash = mix(hash, to->content, to->size);
            sum += mix(hash, &to->links, sizeof to->links);
        }
    }
    uint64_t hash = mix(14695981039346656037u, &sum, sizeof sum);
    for (int i = 0; i < 2; i++) {
        const uint64_t own[] = {workers[i].history, (uint64_t)workers[i].done,
                                (uint64_t)workers[i].dead, (uint64_t)workers[i].next};
        hash = mix(hash, own, sizeof own);
    }
    hash = mix(hash, w.owner, sizeof w.owner);
    hash = mix(hash, w.life_s, sizeof w.life_s);
    const int64_t rest[] = {(int64_t)w.clock_s, w.ends, w.kills, w.ticks, w.lost};
    return mix(hash, rest, sizeof rest);
}

static uint64_t *seen;
static int64_t n_seen;

/* false: it was there. */
static bool add_seen(uint64_t hash)
{
    hash += hash == 0;
    size_t at = (size_t)(hash % SEEN);
    while (seen[at] != 0 && seen[at] != hash) {
        at = (at + 1) % SEEN;
    }
    if (seen[at] == hash) {
        return false;
    }
    assert_true(++n_seen < SEEN / 2);
    seen[at] = hash;
    return true;
}

static void begin_world(int kills, int ticks, int lost)
{
    memset(&w, 0, sizeof w);
    for (int i = 0; i < OPEN_FILES; i++) {
        w.files[i].inode = -1;
    }
    for (int i = 0; i < ATTEMPTS; i++) {
        w.owner[i] = -1;
    }
    w.kills = kills;
    w.ticks = ticks;
    w.lost = lost;
    running = -1;
    for (int i = 0; i < WORKERS; i++) {
        prepare(i);
    }
    step(0); /* each to its first call */
    step(1);
}

/* Both are over: a worker that comes later finds the trial ended, or ends it. */
static void check_end(void)
{
    const bool lied = !truth;
    truth = true; /* none is left that could be taken for dead wrongly */
    step(2);
    while (!workers[2].done) {
        w.clock_s += DEAD_AFTER_S + 1;
        step(2);
    }
    truth = !lied;
    int ended = 0, results = 0;
    for (int i = 0; i < w.n_names; i++) {
        const bool is = w.names[i].inode >= 0;
        const char *content = is ? w.inodes[w.names[i].inode].content : "";
        ended +=
            is && strstr(w.names[i].path, "/left.") != NULL && strstr(content, "\"ended\"") != NULL;
        results += is && strstr(w.names[i].path, "/result") != NULL;
    }
    assert_int_equal(ended, 1);
    assert_true(results <=
                1); /* none: its owner was killed before it came to that; left.K counts */
}

/* One run along the path, and on by first choices to its end, or to a state that was there. Returns
 * its length. */
static int run(int path[], int widths[], int fixed)
{
    int depth = 0;
    for (;; depth++) {
        choice all[8];
        const int n = choices(all);
        if (n == 0) {
            check_end();
            return depth;
        }
        assert_true(depth < DEPTH);
        if (depth >= fixed) {
            if (!add_seen(fingerprint())) {
                return depth;
            }
            path[depth] = 0;
        }
        widths[depth] = n;
        act(all[path[depth]]);
    }
}

static void explore(bool truthful, int kills, int ticks, int lost)
{
    static int path[DEPTH], widths[DEPTH];
    int fixed = 0;
    int64_t runs = 0;
    truth = truthful;
    seen = calloc(SEEN, sizeof *seen);
    n_seen = 0;
    do {
        begin_world(kills, ticks, lost);
        int depth = run(path, widths, fixed);
        for (int i = 0; i < WORKERS; i++) {
            finish(i);
        }
        runs++;
        while (depth > 0 && path[depth - 1] + 1 == widths[depth - 1]) {
            depth--;
        }
        if (depth > 0) {
            path[depth - 1]++;
        }
        fixed = depth;
    } while (fixed > 0);
    print_message("kills %d, ticks %d, lost answers %d: %" PRId64 " states, %" PRId64 " runs\n",
                  kills, ticks, lost, n_seen, runs);
    assert_true(n_seen > 100);
    free(seen);
}

static const lvni_sweep_calls sim_calls = {.stat = sim_stat};
static lvni_core_vfs sim_vfs;

static int begin(void **state)
{
    (void)state;
    sim_vfs = *lvni_core_vfs_get();
    sim_vfs.open = sim_open;
    sim_vfs.read = sim_read;
    sim_vfs.write = sim_write;
    sim_vfs.close = sim_close;
    sim_vfs.fsync = sim_fsync;
    sim_vfs.unlink = sim_unlink;
    sim_vfs.link = sim_link;
    for (int i = 0; i < WORKERS; i++) {
        workers[i].stack = lvni_core_alloc(LVNI_TAG_CORE, STACK);
    }
    lvni_core_vfs_set(&sim_vfs);
    lvni_sweep_calls_set(&sim_calls);
    return 0;
}

static int end(void **state)
{
    (void)state;
    lvni_core_vfs_set(NULL);
    lvni_sweep_calls_set(NULL);
    for (int i = 0; i < WORKERS; i++) {
        lvni_core_free(workers[i].stack);
    }
    return 0;
}

TEST_EACH(begin, end);

TEST(two_workers_in_every_order)
{
    explore(true, 0, 0, 0);
}

TEST(one_is_killed_between_any_two_calls)
{
    explore(true, 1, 0, 0);
}

TEST(answers_of_link_are_lost)
{
    explore(true, 0, 0, 1);
}

/* The table of processes answers that a live owner is gone: only its beats protect it. */
TEST(a_slow_owner_is_taken_over_and_its_result_is_refused)
{
    explore(false, 0, 2, 0);
}

TEST(all_of_it)
{
    if (getenv("LEVIN_TEST_SLOW") == NULL) {
        explore(false, 1, 1, 0);
    } else {
        explore(false, 2, 3, 1);
    }
}
