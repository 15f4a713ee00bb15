/* Processes of ddp_rank (ddp_layout.h). */
#include "ddp_layout.h"

#include "ddp_rank.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const ddp_layout ddp_layouts[DDP_LEVINS] = {
    [DDP_TOGETHER] = {"2 ranks x 1 core", "ranks", 2, 2, 2, 1, false, true},
    [DDP_WHOLE] = {"1 process x 2 cores, 2 micro-batches", "process", 1, 1, 2, 2, false, true},
    [DDP_WHOLE_ONE] = {"1 process x 2 cores, 1 micro-batch", "process_one_micro_batch", 1, 1, 1, 2,
                       false, false},
    /* a sum of two has no order: other bits would be a mistake */
    [DDP_FREE] = {"2 ranks, free order", "free", 2, 2, 2, 1, true, true},
    [DDP_APART] = {"2 processes, nothing added", "apart", 2, 1, 1, 1, false, false},
};

static bool start_rank(const ddp_duel *d, const ddp_layout *l, int rank, int fd, bench_child *c)
{
    char self[256] = "", program[300], arg[8][24];
    (void)!readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = strrchr(self, '/');
    const int64_t batch = d->batch / (l->processes / l->world);
    snprintf(program, sizeof program, "%.*s/ddp_rank%s", slash == NULL ? 0 : (int)(slash - self),
             self, l->free_order ? "_free" : "");
    const int64_t number[8] = {d->side,  batch,    l->micro_batches, l->world > 1 ? rank : 0,
                               l->world, l->cores, d->bucket_bytes,  fd};
    char net[24], *argv[11] = {program, net};
    snprintf(net, sizeof net, "%s", d->net);
    for (int i = 0; i < 8; i++) {
        snprintf(arg[i], sizeof arg[i], "%lld", (long long)number[i]);
        argv[i + 2] = arg[i];
    }
    return bench_child_start(c, argv, NULL);
}

static bool is_ready(bench_child *c)
{
    char line[32];
    return fgets(line, sizeof line, c->from) != NULL && strcmp(line, "ready\n") == 0;
}

bool ddp_layout_start(const ddp_layout *l, const ddp_duel *d, bench_child child[BENCH_DDP_RANKS])
{
    const int fd = memfd_create("bench_ddp", 0); /* the ranks inherit it */
    bool good = fd >= 0 && ftruncate(fd, sizeof(bench_group_sync)) == 0;
    for (int i = 0; i < l->processes && good; i++) {
        good = start_rank(d, l, i, fd, &child[i]);
    }
    for (int i = 0; i < l->processes && good; i++) {
        good = is_ready(&child[i]);
    }
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

static bool read_turn(bench_child *c, int steps, ddp_turn *t)
{
    *t = (ddp_turn){0};
    bool good = fscanf(c->from, "%lf %lf %lf %lf %lf %lf %19s", &t->seconds, &t->core_s, &t->pieces,
                       &t->early, &t->adding_s, &t->waiting_s, t->hash) == 7;
    for (int i = 0; i < steps && good; i++) {
        good = fscanf(c->from, "%lf", &t->loss[i]) == 1;
    }
    return good;
}

bool ddp_layout_steps(const ddp_layout *l, bench_child child[BENCH_DDP_RANKS], int steps,
                      ddp_turn *t)
{
    ddp_turn one;
    bool good = true;
    for (int i = 0; i < l->processes; i++) {
        good = good && fprintf(child[i].to, "%d\n", steps) > 0 && fflush(child[i].to) == 0;
    }
    for (int i = 0; i < l->processes && good; i++) {
        good = read_turn(&child[i], steps, &one);
        const double core_s = one.core_s + (i > 0 ? t->core_s : 0),
                     seconds = i > 0 && t->seconds > one.seconds ? t->seconds : one.seconds;
        if (i == 0 || one.waiting_s > t->waiting_s) {
            *t = one;
        }
        t->core_s = core_s;
        t->seconds = seconds;
    }
    return good;
}
