/* What the trainer's tests share: a dataset in memory, a network small enough to be worked out in
 * double precision, and a trainer with its loader, ready to step. */
#ifndef LEVIN_TESTS_TRAINER_SUPPORT_H
#define LEVIN_TESTS_TRAINER_SUPPORT_H

#include "trainer/trainer.h"
#include "support/test.h"

enum { FEATURES = 6, CLASSES = 3, MEMORY_MAX = 256 };

/* Sample i: standard normal features of the stream i (a vector, or an image of side x side x 3),
 * label i % CLASSES. */
typedef struct memory {
    lvn_dataset base; /* first */
    int64_t n;
    int side;                    /* 0: vectors of FEATURES */
    bool unreadable[MEMORY_MAX]; /* LVN_ERR_CORRUPT */
    bool nan[MEMORY_MAX];        /* feature 0 is NaN */
    unsigned late_us;            /* each sample takes so long */
} memory;

void memory_init(memory *m, int64_t n, int side);
void memory_features(int64_t sample, double out[FEATURES]); /* as the f32 of the dataset */

/* logits = x w^T + b; mean cross entropy. Writes down which samples it saw in which step. */
extern const lvn_module_class softmax_regression;
enum { SEEN_STEPS = 64 };
extern struct seen {
    int n;
    int64_t sample[MEMORY_MAX];
} seen[SEEN_STEPS]; /* in the order of micro-batches when there is one lane */

/* A model, a trainer, its loader. */
typedef struct bench {
    lvni_nn_model *model;
    lvni_trainer *trainer;
} bench;

typedef struct setting {
    /* NULL: softmax_regression; else given lvni_nn_zoo_arguments of the dataset */
    const lvn_module_class *cls;
    const void *arguments;                    /* of its build(), in place of those */
    int64_t batch_size;                       /* E */
    int micro_batches, group, lanes, workers; /* group 0: the default of the plan */
    lvni_optim_options optim;                 /* kind sgd with lr 0 means sgd with lr 1 */
    lvni_optim_rules rules;
    lvni_optim_ema_options ema;
    lvni_optim_schedule schedule;
    lvni_optim_plateau_options plateau;
    lvni_optim_curve weight_decay;
    lvni_trainer_phase_options phase[LVNI_PHASES];
    double clip;
    lvni_trainer_precision precision;
    lvni_trainer_graph_mode graph;
    bool skip, headers_read;
    const lvn_dataset *val;
    lvni_trainer_bad_batch on_bad_batch;
    const char *out;
    bool sync;            /* sync_batchnorm */
    lvni_dist_comm *comm; /* one rank of several: `rank` of `devices`; NULL: alone */
    int devices, rank;
    int64_t bucket_bytes;
    int sharded_stage;
    const lvn_stream *stream; /* one, with a batch; NULL: none */
} setting;

void bench_open(bench *b, const memory *data, const setting *s);
void bench_close(bench *b);
void bench_start_loader(bench *b); /* at the trainer's position; bench_open did it once */
void bench_steps(bench *b, int n); /* the test fails when a step does */
lvn_status bench_save(lvni_trainer *trainer, bool best); /* start and wait */
/* One number for weights, buffers, optimizer state and the epoch's metrics, bit for bit. */
uint64_t bench_hash(const bench *b);

#endif
