/* Runs a fuzz target where libFuzzer is not to be had: every file of the corpus, then changed
 * copies of them, from a seed.
 *
 * usage: TARGET [-runs=N] [-max_total_time=SECONDS] [-seed=N] CORPUS_DIR... The flags are
 * libFuzzer's. Without coverage nothing is learnt on the way: it is a cheap guard, not a search.
 * The work is done in a child, whose input lies in shared memory: when it dies the input is written
 * to crash-TARGET, which may be given as CORPUS_DIR. */
#include "fuzz.h"

#include "core/rng.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 16, SEEDS = 256, HANG_S = 30 };

typedef struct input {
    size_t size;
    uint8_t bytes[ROOM];
} input;

static struct {
    long long runs, seconds;
    uint64_t seed;
} flags = {.runs = -1, .seconds = 0, .seed = 1};

static input *seeds[SEEDS];
static int n_seeds;
static input *shared; /* what the child runs with */
static lvni_core_rng rng;
static uint64_t drawn;

static uint32_t below(size_t n)
{
    return lvni_core_rng_u32(&rng, drawn++) % (uint32_t)n;
}

static void take_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    input *s = malloc(sizeof *s);
    if (f == NULL || s == NULL || n_seeds == SEEDS) {
        fprintf(stderr, "%s: cannot be taken into the corpus\n", path);
        exit(1);
    }
    s->size = fread(s->bytes, 1, ROOM, f);
    fclose(f);
    seeds[n_seeds++] = s;
}

/* In byte order of the names, so that a seed means the same everywhere. */
static void take_corpus(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        take_file(path);
        return;
    }
    struct dirent **list;
    const int n = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char name[1024];
        snprintf(name, sizeof name, "%s/%s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.') {
            take_file(name);
        }
        free(list[i]);
    }
    if (n < 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    free(list);
}

static void insert(input *s, size_t at, const uint8_t *bytes, size_t n)
{
    if (s->size + n <= ROOM) {
        memmove(s->bytes + at + n, s->bytes + at, s->size - at);
        memmove(s->bytes + at, bytes, n);
        s->size += n;
    }
}

/* One change: of a bit, a byte, a number, a stretch. */
static void change(input *s)
{
    static const uint8_t special[] = {0,   1,   0x7f, 0x80, 0xff, '0', '9', '-', '"',
                                      '{', '[', ':',  ',',  '\n', ' ', '/', '.'};
    static const uint32_t numbers[] = {0,      1,       0x7fffffff, 0x80000000, 0xffffffff,
                                       0xffff, 0x10000, 255,        256};
    if (s->size == 0) {
        s->bytes[s->size++] = special[below(sizeof special)];
        return;
    }
    const size_t at = below(s->size), length = 1 + below(s->size - at < 64 ? s->size - at : 64);
    const input *other = seeds[below((size_t)n_seeds)];
    const uint32_t number = numbers[below(sizeof numbers / sizeof *numbers)];
    switch (below(9)) {
    case 0: s->bytes[at] ^= (uint8_t)(1u << below(8)); break;
    case 1: s->bytes[at] = (uint8_t)below(256); break;
    case 2: s->bytes[at] = special[below(sizeof special)]; break;
    case 3: memcpy(s->bytes + at, &number, s->size - at < 4 ? s->size - at : 4); break;
    case 4: /* away with it */
        memmove(s->bytes + at, s->bytes + at + length, s->size - at - length);
        s->size -= length;
        break;
    case 5: insert(s, at, s->bytes + at, length); break;
    case 6: insert(s, at, &special[below(sizeof special)], 1); break;
    case 7: /* a piece of another one */
        if (other->size > 0) {
            const size_t from = below(other->size),
                         n = 1 + below(other->size - from < 64 ? other->size - from : 64);
            insert(s, at, other->bytes + from, n);
        }
        break;
    default: s->size = below(16) == 0 ? at : s->size; break;
    }
}

static void run_shared(void)
{
    /* a block of its own: reading past its end shows */
    uint8_t *exact = malloc(shared->size > 0 ? shared->size : 1);
    if (exact == NULL) {
        abort();
    }
    memcpy(exact, shared->bytes, shared->size);
    (void)LLVMFuzzerTestOneInput(exact, shared->size);
    free(exact);
}

static void work(void)
{
    const time_t start = time(NULL);
    rng.key = lvni_core_rng_make_key(flags.seed, 1);
    for (long long run = 0; flags.runs < 0 || run < flags.runs; run++) {
        alarm(HANG_S); /* an input that takes longer hangs */
        const bool as_it_is = run < n_seeds;
        *shared = *seeds[as_it_is ? (size_t)run : below((size_t)n_seeds)];
        for (uint32_t i = as_it_is ? 0 : 1 + below(6); i > 0; i--) {
            change(shared);
        }
        run_shared();
        if (flags.seconds > 0 && time(NULL) - start >= flags.seconds) {
            printf("%lld inputs in %lld s, seed %llu\n", run + 1, flags.seconds,
                   (unsigned long long)flags.seed);
            return;
        }
    }
    printf("%lld inputs, seed %llu\n", flags.runs, (unsigned long long)flags.seed);
}

static int report_end(const char *program, int how)
{
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) {
        return 0;
    }
    const char *slash = strrchr(program, '/');
    char name[256];
    snprintf(name, sizeof name, "crash-%s", slash == NULL ? program : slash + 1);
    FILE *f = fopen(name, "wb");
    if (f != NULL) {
        fwrite(shared->bytes, 1, shared->size, f);
        fclose(f);
    }
    fprintf(stderr, "%s: %s; the input (%zu bytes) is in %s\n", program,
            WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM ? "hangs" : "died", shared->size, name);
    return 1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (sscanf(argv[i], "-runs=%lld", &flags.runs) != 1 &&
            sscanf(argv[i], "-max_total_time=%lld", &flags.seconds) != 1 &&
            sscanf(argv[i], "-seed=%llu", (unsigned long long *)&flags.seed) != 1) {
            take_corpus(argv[i]);
        }
    }
    if (n_seeds == 0) {
        fprintf(stderr, "usage: %s [-runs=N] [-max_total_time=SECONDS] [-seed=N] CORPUS_DIR...\n",
                argv[0]);
        return 64;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = shared == MAP_FAILED ? -1 : fork();
    if (child == 0) {
        work();
        for (int i = 0; i < n_seeds; i++) {
            free(seeds[i]);
        }
        exit(0); /* with the leak check */
    }
    int how = 1;
    if (child > 0) {
        waitpid(child, &how, 0);
    }
    return report_end(argv[0], how);
}
