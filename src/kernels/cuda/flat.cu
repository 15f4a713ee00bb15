/* The table's functions of flat buffers. */
#include "flat.cuh"

static lvn_backend_flat make(void)
{
    lvn_backend_flat f = {};
    f.add = lvnc_flat_add;
    f.lerp = lvnc_flat_lerp;
    f.block_sumsq = lvnc_flat_block_sumsq;
    f.sgd = lvnc_flat_sgd;
    f.trust = lvnc_flat_trust;
    f.adamw = lvnc_flat_adamw;
    f.rmsprop = lvnc_flat_rmsprop;
    f.lion = lvnc_flat_lion;
    f.lamb_moments = lvnc_flat_lamb_moments;
    f.lamb = lvnc_flat_lamb;
    f.adafactor = lvnc_flat_adafactor;
    f.round_bf16 = lvnc_flat_round_bf16;
    f.record = lvnc_flat_record;
    f.apply_record = lvnc_flat_apply_record;
    f.append = lvnc_flat_append;
    f.number = lvnc_flat_number;
    f.seed = lvnc_flat_seed;
    f.decide = lvnc_flat_decide;
    f.finish = lvnc_flat_finish;
    return f;
}

extern const lvn_backend_flat lvnc_flat;
const lvn_backend_flat lvnc_flat = make();
