/* A rank of bench_ddp, which starts it: training steps of a ResNet over noise. Linked twice: as
 * ddp_rank with levin's own reduction, and as ddp_rank_free with the one of free_reduction.c in its
 * place.
 *
 * usage: ddp_rank NET SIDE BATCH MICRO-BATCHES RANK WORLD CORES BUCKET_BYTES FD      FD: the memory
 *   (a bench_group_sync) in which ranks find each other
 *
 * Prints "ready", and for every number n on a line of its input takes n steps and answers with one
 * line: seconds per step, seconds of all cores per step, pieces of the reduction, those added
 * before the backward pass was over, seconds of adding, seconds of waiting (all of this rank, per
 * step), a number that stands for all weights, the n losses. */
#include "bench_resnet.h"
#include "bench_support.h"
#include "ddp_rank.h"

#include "core/machine.h"
#include "kernels/kernels.h"
#include "tensor/ctx.h"
#include "trainer/trainer.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST_STEPS = 64 };

typedef struct rank {
    const char *net;
    int side, micro_batches, number, world, cores;
    int64_t batch, bucket_bytes;
    bench_group_sync *group_sync;
    int round;
    bench_noise noise;
    lvni_dist_comm *comm;
    lvni_nn_model *model;
    lvni_trainer *trainer;
} rank;

static lvn_status meet(void *user, const void *mine, size_t bytes, void *all)
{
    rank *r = user;
    char *cards = r->group_sync->card[r->round];
    if (r->round == BENCH_GROUP_SYNC_ROUNDS || bytes * (size_t)r->world > BENCH_GROUP_SYNC_CARDS) {
        LVN_FAIL(LVN_ERR_INTERNAL, "ranks exchange more than there is room for");
    }
    memcpy(cards + (size_t)r->number * bytes, mine, bytes);
    atomic_fetch_add(&r->group_sync->there[r->round], 1);
    while (atomic_load(&r->group_sync->there[r->round]) < r->world) {
        usleep(1000);
    }
    memcpy(all, cards, bytes * (size_t)r->world);
    r->round++;
    return LVN_OK;
}

static lvn_status open_rank(rank *r)
{
    LVN_TRY(bench_noise_open(&r->noise, r->side, r->batch, BENCH_CLASSES));
    LVN_TRY(bench_resnet_build(r->net, r->side, &r->model));
    const lvni_dist_comm_options comm = {
        .rank = r->number, .world = r->world, .exchange = meet, .user = r};
    LVN_TRY(r->world > 1 ? lvni_dist_comm_shm(&comm, &r->comm) : LVN_OK);
    lvni_trainer_options o = {.model = r->model,
                              .train = &r->noise.base,
                              .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.001, .momentum = 0.9},
                              .seed = BENCH_DDP_SEED,
                              .max_epochs = -1,
                              .max_steps = -1,
                              .comm = r->comm,
                              .bucket_bytes = r->bucket_bytes,
                              .log_every_n_steps = 1000,
                              .quiet = true,
                              .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = r->batch,
                                    .batch_size = r->batch,
                                    .devices = r->world,
                                    .rank = r->number,
                                    .micro_batches = r->micro_batches,
                                    .cores = r->cores,
                                    .cores_all = r->cores * r->world};
    LVN_TRY(lvni_plan_make(&plan, &o.plan));
    LVN_TRY(lvni_trainer_create(&o, &r->trainer));
    const lvni_data_loader_options loader = {
        .dataset = &r->noise.base, .plan = &o.plan, .training = true, .seed = BENCH_DDP_SEED};
    return lvni_data_loader_create(&loader, &r->trainer->loader);
}

static void close_rank(rank *r)
{
    lvni_trainer_destroy(r->trainer);
    lvni_dist_comm_destroy(r->comm);
    lvni_nn_model_destroy(r->model);
    bench_noise_close(&r->noise);
}

/* FNV-1a over the weights' bits. */
static uint64_t hash_of(const lvni_nn_model *m)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < m->n_weights; i++) {
        uint32_t bits;
        memcpy(&bits, &m->weights[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    return hash;
}

static lvn_status take_steps(rank *r, int n)
{
    double losses[MOST_STEPS] = {0};
    lvni_dist_reduction_times sum = {0};
    const double used = bench_used_by_us_s();
    const uint64_t start = lvni_core_now_ns();
    for (int i = 0; i < n; i++) {
        lvni_trainer_step_result result;
        LVN_TRY(lvni_trainer_step(r->trainer, &result));
        losses[i] = lvni_trainer_metric_mean(&result.metrics, "loss");
        if (r->comm != NULL) {
            const lvni_dist_reduction_times t =
                lvni_trainer_gradient_sync_times(r->trainer->engine->gradient_sync);
            sum.pieces += t.pieces;
            sum.pieces_early += t.pieces_early;
            sum.added_ns += t.added_ns;
            sum.waited_ns += t.waited_ns;
        }
    }
    const double seconds = lvni_core_seconds_since(start) / n,
                 core_s = (bench_used_by_us_s() - used) / n;
    printf("%.6f %.6f %.1f %.1f %.6f %.6f %016" PRIx64, seconds, core_s, (double)sum.pieces / n,
           (double)sum.pieces_early / n, (double)sum.added_ns * 1e-9 / n,
           (double)sum.waited_ns * 1e-9 / n, hash_of(r->model));
    for (int i = 0; i < n; i++) {
        printf(" %.9g", losses[i]);
    }
    printf("\n");
    fflush(stdout);
    return LVN_OK;
}

static lvn_status run(rank *r)
{
    char line[32];
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(open_rank(r));
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        const int n = atoi(line);
        LVN_ARG(n >= 1 && n <= MOST_STEPS, "%d steps at once, 1 to %d", n, MOST_STEPS);
        LVN_TRY(take_steps(r, n));
    }
    return LVN_OK;
}

int main(int argc, char **argv)
{
    lvni_cpu_clean_environment(argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 10) {
        fprintf(stderr, "ddp_rank is started by bench_ddp\n");
        return 2;
    }
    rank r = {.net = argv[1],
              .side = atoi(argv[2]),
              .batch = atol(argv[3]),
              .micro_batches = atoi(argv[4]),
              .number = atoi(argv[5]),
              .world = atoi(argv[6]),
              .cores = atoi(argv[7]),
              .bucket_bytes = atol(argv[8])};
    void *shared =
        mmap(NULL, sizeof *r.group_sync, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[9]), 0);
    if (shared == MAP_FAILED) {
        perror("ddp_rank: the memory to meet in");
        return 1;
    }
    r.group_sync = shared;
    lvni_tensor_thread_set_ftz();
    const lvn_status s = run(&r);
    if (s != LVN_OK) {
        fprintf(stderr, "ddp_rank %d of %d: %s\n", r.number, r.world, lvn_last_error()->message);
    }
    close_rank(&r);
    return s == LVN_OK ? 0 : 1;
}
