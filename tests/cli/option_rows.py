"""Rows of test_option_effects.py: for every key of every command another value, and its effect.

row(value, sees, rest): the command with `rest` is run without the key and with key=value.
    first    the key's value in the first run, where it cannot be left out
    instead  in place of the command's own arguments; tail: of what stands behind the keys
    before   a run of levin before both; env: variables of all
    fails    the second run may end with an error: the key refuses something
What is seen: weights and state (of the last model and checkpoint), metrics, log (train.log),
stdout, stderr, code, files (names that were made), content (of files in the folder), arrays (.npy
and .png below it), tables (.csv below it), saved (config.yaml), threads (their names) and processes
(most at once).
"""

from collections import namedtuple

Row = namedtuple("Row", "value sees rest first instead tail before env fails")
Elsewhere = namedtuple("Elsewhere", "file text")  # what shows it takes a test of its own
# shared: keys whose rows stand at another command, of which they are.
Command = namedtuple("Command", "help line rows tail shared", defaults=[()])


def row(value, sees="weights", rest="", first=None, instead=None, tail=None, before="", **how):
    return Row(
        value,
        sees.split(),
        rest,
        first,
        instead,
        tail,
        before,
        how.get("env", {}),
        how.get("fails", False),
    )


def refusal(value, rest="", **how):
    """The run ends with an error, and without the key it does not."""
    return row(value, "code", rest, fails=True, **how)


TRAIN = (
    "train classify data=builtin:shapes data.count=30 data.classes=3 image_size=8 max_epochs=2"
    " batch_size=8 model.name=mlp num_workers=0 out=run"
)
PHOTOS = TRAIN.replace("builtin:shapes data.count=30 data.classes=3", "photos")
TINY = "model=vit_tiny_patch16_224"
VIT = TRAIN.replace("image_size=8", "image_size=16 max_steps=1").replace("model.name=mlp", TINY)
SGD = "optim=sgd optim.lr=0.05"
ADAFACTOR = "optim=adafactor"
JITTER = "augment.brightness=0.5 augment.contrast=0.5"
PLATEAU = "scheduler=plateau scheduler.patience=0 max_epochs=5 scheduler.monitor=train/loss"
FALLS = PLATEAU + " scheduler.mode=max"  # the loss gets no larger
CNN = "model.name=cnn micro_batches=4"
# The loss falls: that ends a run where more is better, and no other.
LASTS = "early_stopping.monitor=train/loss early_stopping.patience=1 max_epochs=5"
STOPS = LASTS + " early_stopping.mode=max"
TOP = "checkpoint.save_top_k=1 checkpoint.monitor=train/loss"
PEER = Elsewhere("test_rank_failures.py", "peer_timeout_s=1")
TF32 = Elsewhere("../cuda/test_cuda_host.py", "def test_tf32")
HANG = Elsewhere("test_watchdog.py", "collective_timeout=")
SIM = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}
TASK = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "LEVIN_RDZV_TIMEOUT": "1",
}

train_rows = {
    "data": row("photos", first="x.npy", instead=PHOTOS),
    "data.labels": row("other.npy", rest="data=x.npy", instead=PHOTOS),
    "data.layout": row("classes", "stdout", "data=parts", instead=PHOTOS),
    "data.index": row("list", "files", instead=PHOTOS),
    "data.exif": row("ignore", instead=PHOTOS.replace("photos", "turned")),
    "data.max_pixels": refusal("100", instead=PHOTOS),
    "data.count": row("36"),
    "data.classes": row("4"),
    "data.seed": row("1"),
    "model.name": row("cnn", "stdout metrics", first="mlp"),
    "model.dropout": row("0.5"),
    "model.drop_path": row("0.5", instead=VIT),
    "config": row("seed.yaml"),
    "out": row("other", "files", first="run"),
    "overwrite": row("true", "code", before=TRAIN),
    "resume": row(
        "true", "code stdout", "max_epochs=3", instead="train classify out=run", before=TRAIN
    ),
    "resume_epoch": Elsewhere("test_gan.py", "resume_epoch="),
    "recipe": refusal("gan"),
    "weights": row("model", instead=PHOTOS),
    "weights.key": row("two", rest="weights=both.safetensors", first="one", instead=PHOTOS),
    "reset_head": row("true", rest="weights=model", instead=PHOTOS),
    "seed": row("1"),
    "max_epochs": row("1"),
    "max_steps": row("2"),
    "steps_per_epoch": row("2", "weights metrics"),
    "num_workers": row("6", "threads", "data.count=6000 max_epochs=1", first="0"),
    "on_error": row("skip", "code stderr", "data=broken", instead=PHOTOS),
    "precision": row("bf16-mixed"),
    "tf32": TF32,
    "accelerator": row("sim", "stdout", env=SIM),
    "devices": row("2", "stdout weights", "accelerator=cpu"),
    "allow_shared_device": row("true", "code", "accelerator=sim devices=[0,0]", env=SIM),
    "strategy": row("dp", "stdout", "devices=2 accelerator=cpu verbose=true", first="ddp"),
    "data_changed": Elsewhere("test_bad_resume.py", "data_changed="),
    "memory_check": Elsewhere("test_memory_estimate.py", "memory_check="),
    "collective_timeout": HANG,
    "peer_timeout_s": PEER,
    "rdzv": row("file:seed.yaml", "stderr", env=TASK, fails=True),
    "max_restarts": row("1", "files", "devices=2 accelerator=cpu optim.lr=1e30", fails=True),
    "num_nodes": refusal("2"),
    "deterministic": Elsewhere("test_foreign_arguments.py", "deterministic=false"),
    "checkpoint.every_n_steps": row("1", "files", "optim=sgd optim.lr=1e38", fails=True),
    "checkpoint.every_n_epochs": row("2", "files", "checkpoint.save_top_k=-1"),
    "checkpoint.every_n_minutes": Elsewhere("test_keep.py", "checkpoint.every_n_minutes="),
    "checkpoint.monitor": row("val/none", "code", fails=True),
    "checkpoint.mode": row("max", "files", TOP + " checkpoint.filename={step}", first="min"),
    "checkpoint.save_top_k": row("1", "files"),
    "checkpoint.keep_every_n_epochs": row("1", "files"),
    "checkpoint.filename": row("{step}", "files", TOP),
    "checkpoint.auto_insert_metric_name": row("false", "files", TOP),
    "log_every_n_steps": row("1", "metrics"),
    "peak_flops": Elsewhere("test_loop.py", "peak_flops=1e12"),
    "profiler": row("simple", "stdout"),
    "log_histograms": Elsewhere("test_loggers.py", "log_histograms=true"),
    "logger": row("csv", "files"),
    "report": row("true", "files stdout"),
    "quiet": row("true", "stdout"),
    "verbose": row("true", "stdout"),
    "strict": refusal("true", "devices=2"),
    "limit_train_batches": row("2"),
    "limit_val_batches": row("1", "metrics", "eval_batch_size=2"),
    "val_drop_last": row("true", "metrics", "eval_batch_size=4"),
    "overfit_batches": row("1"),
    "fast_dev_run": row("true", "files metrics"),
    "detect_anomaly": row("true", "stderr", "optim=sgd optim.lr=1e38", fails=True),
    "recompute": Elsewhere("test_recompute.py", "recompute="),
    "on_bad_batch": Elsewhere("test_anomaly.py", "on_bad_batch="),
    "min_epochs": row("3", "metrics", STOPS),
    "min_steps": row("9", "metrics", STOPS),
    "max_time": Elsewhere("test_loop.py", "max_time="),
    "auto_requeue": Elsewhere("test_requeue.py", "auto_requeue="),
    "max_requeues": Elsewhere("test_requeue.py", "max_requeues="),
    "stop_before_limit": Elsewhere("test_requeue.py", "stop_before_limit="),
    "check_val_every_n_epoch": row("2", "metrics"),
    "val_check_interval": row("2", "metrics"),
    "num_sanity_val_steps": Elsewhere("test_loop.py", "num_sanity_val_steps="),
    "early_stopping.monitor": row("train/loss", "metrics", STOPS.replace("train/loss", "val/loss")),
    "early_stopping.mode": row("min", "metrics", STOPS, first="max"),
    "early_stopping.patience": row("2", "metrics", STOPS, first="1"),
    "early_stopping.min_delta": row("100", "metrics", LASTS),
    "early_stopping.stopping_threshold": row("1000", "metrics", LASTS),
    "early_stopping.divergence_threshold": row("0.001", "metrics", LASTS),
    "batch_size": row("5"),
    "batch_size_per_device": row("5", instead=TRAIN.replace("batch_size=8", "")),
    "eval_batch_size": row("3", "stdout", "verbose=true"),
    "accumulate_grad_batches": row("2"),
    "micro_batches": row("2"),
    "group": row("2", rest=CNN + " sync_batchnorm=true"),
    "wgrad_threads": row("1", "stdout", first="2"),
    "pins": row("[cpu.conv=1]", "stdout"),
    "autotune": Elsewhere("test_autotune.py", "autotune=true"),
    "bucket_bytes": row("16384", "stdout", "devices=2 accelerator=cpu verbose=true"),
    "sharded_stage": Elsewhere("test_sharded.py", "sharded_stage=1"),
    "transport": row("net", "stdout", "devices=2 accelerator=cpu verbose=true"),
    "balance_ranks": Elsewhere("test_balance.py", "balance_ranks=["),
    "balance.cuts": Elsewhere("test_stages.py", "balance.cuts=["),
    "same_hardware": Elsewhere("test_hardware.py", "same_hardware=require"),
    "lanes": row("2", "stdout", "micro_batches=2 verbose=true", first="1"),
    "cuda_graph": row("off", "stdout", "accelerator=sim verbose=true", env=SIM),
    "sync_batchnorm": row("true", rest=CNN),
    "drop_last": row("true", rest="batch_size=10"),
    "optim.name": row("adam"),
    "optim.lr": row("0.01"),
    "optim.reference_batch_size": row("16"),
    "optim.lr_scale_method": row("sqrt", rest="optim.reference_batch_size=16"),
    "optim.momentum": row("0.5", rest=SGD),
    "optim.dampening": row("0.5", rest=SGD),
    "optim.nesterov": row("true", rest=SGD),
    "optim.trust_coefficient": row("0.01", rest="optim=lars optim.lr=0.5"),
    "optim.weight_decay": row("0.3"),
    "optim.weight_decay_end": row("0.5", rest="optim.weight_decay_schedule=linear"),
    "optim.weight_decay_schedule": row("linear", rest="optim.weight_decay_end=0.5"),
    "optim.decay_norm_bias": row("false", rest="optim.weight_decay=0.3"),
    "optim.decay_of": row("matrices", rest="optim.weight_decay=0.3"),
    "freeze": row("[fc1]"),
    "freeze_until": row("[fc1=2]"),
    "lr_zero_until": row("[fc1=2]"),
    "optim.groups": row("[fc1:lr=0.01]"),
    "optim.layer_decay": row("0.5"),
    "optim.phases": Elsewhere("test_examples.py", "optim.phases=["),
    "lr_scale": row("[fc1=0.1]"),
    "optim.betas": row("[0.5,0.9]"),
    "optim.alpha": row("0.5", rest="optim=rmsprop"),
    "optim.centered": row("true", rest="optim=rmsprop"),
    "optim.eps": row("0.01"),
    "optim.eps2": row("10", rest=ADAFACTOR),
    "optim.beta2_decay": row("-0.5", rest=ADAFACTOR),
    "optim.d": row("3", rest=ADAFACTOR),
    "gradient_clip_val": row("0.01", rest=SGD),
    "gradient_clip_algorithm": row("value", rest=SGD + " gradient_clip_val=0.01"),
    "scheduler.name": row("cosine"),
    "scheduler.warmup_steps": row("3"),
    "scheduler.warmup_epochs": row("1"),
    "scheduler.interval": row("step", rest="scheduler=step scheduler.step_size=1"),
    "scheduler.step_size": row("1", rest="scheduler=step"),
    "scheduler.milestones": row("[1]", rest="scheduler=multistep", first="[9]"),
    "scheduler.gamma": row("0.5", rest="scheduler=step scheduler.step_size=1"),
    "scheduler.end_factor": row("0.5", rest="scheduler=cosine"),
    "scheduler.power": row("2", rest="scheduler=polynomial"),
    "scheduler.period": row("1", rest="scheduler=restarts"),
    "scheduler.period_factor": row("3", rest="scheduler=restarts scheduler.period=1 max_epochs=3"),
    "scheduler.pct_start": row("0.5", rest="scheduler=onecycle"),
    "scheduler.anneal": row("linear", rest="scheduler=onecycle"),
    "scheduler.div_factor": row("5", rest="scheduler=onecycle"),
    "scheduler.final_div_factor": row("5", rest="scheduler=onecycle"),
    "scheduler.three_phase": row("true", rest="scheduler=onecycle"),
    "scheduler.cycle_momentum": row("false", rest="scheduler=onecycle"),
    "scheduler.base_momentum": row("0.5", rest="scheduler=onecycle"),
    "scheduler.max_momentum": row("0.99", rest="scheduler=onecycle"),
    "scheduler.monitor": row("train/acc", rest=FALLS),
    "scheduler.mode": row("min", rest=FALLS, first="max"),
    "scheduler.factor": row("0.5", rest=FALLS),
    "scheduler.patience": row("3", rest=FALLS, first="0"),
    "scheduler.threshold": row("0.9", rest=PLATEAU),
    "scheduler.threshold_mode": row("abs", rest=PLATEAU + " scheduler.threshold=0.2"),
    "scheduler.cooldown": row("3", rest=FALLS),
    "scheduler.min_lr": row("0.0005", rest=FALLS),
    "ema.decay": row("0.5", "weights state metrics"),
    "ema.warmup": row("false", rest="ema.decay=0.9"),
    "use_ema": row("false", "weights metrics", "ema.decay=0.5"),
    "image_size": row("12", "metrics"),
    "val_split": row("0.5", "weights metrics"),
    "augment.crop": row("true"),
    "augment.scale": row("[0.1,0.2]", rest="augment.crop=true"),
    "augment.ratio": row("[0.3,0.4]", rest="augment.crop=true"),
    "augment.hflip": row("1"),
    "augment.vflip": row("1"),
    "augment.brightness": row("0.5"),
    "augment.contrast": row("0.5"),
    "augment.saturation": row("0.5"),
    "augment.hue": row("0.3"),
    "augment.jitter": row("0", rest=JITTER),
    "augment.grey": row("1"),
    "augment.blur": row("1"),
    "augment.blur_sigma": row("[3,4]", rest="augment.blur=1"),
    "augment.blur_kernel": row("3", rest="augment.blur=1 augment.blur_sigma=[3,4]"),
    "augment.solarize": row("1"),
    "augment.solarize_from": row("0.1", rest="augment.solarize=1"),
    "augment.mixup_alpha": row("1"),
    "augment.cutmix_alpha": row("1"),
    "label_smoothing": row("0.1"),
    "class_weights": row("[1,2,3]"),
    "sampler": row("balanced"),
    "eval.preset": row("augreg", "metrics", instead=PHOTOS),
    "eval.resize": row("16", "metrics", instead=PHOTOS),
    "eval.crop": row("6", "metrics", "model.name=cnn", instead=PHOTOS),
    "eval.crop_pct": row("0.5", "metrics", instead=PHOTOS),
    "eval.filter": row("nearest", "metrics", instead=PHOTOS),
    "normalize.mean": row("[0,0,0]"),
    "normalize.std": row("[1,1,1]"),
}

# Of predict and of eval.
MANY = "data=builtin:shapes data.classes=2 data.count=20000"
use_rows = {
    "data": row("parts", "stdout", first="photos"),
    "data.labels": row("other.npy", "stdout", instead="eval model=of_array data=x.npy split=all"),
    "data.layout": refusal("classes", "data=parts"),
    "data.index": row("list", "files"),
    "data.exif": row("ignore", "stdout", "data=turned"),
    "data.max_pixels": refusal("100"),
    "data.count": row("36", "stdout", "data=builtin:shapes data.classes=2", first="20"),
    "data.classes": row("3", "code", "data=builtin:shapes data.count=30", first="2", fails=True),
    "data.seed": row("1", "stdout", "data=builtin:shapes data.count=60 data.classes=2"),
    "config": row("table.yaml", "stdout"),
    "model": row("second", "stdout", first="model"),
    "checkpoint": row("last", "stdout", first="best"),
    "eval_batch_size": row(
        "4000",
        "code",
        MANY + " accelerator=sim",
        env={**SIM, "LEVIN_SIM_MEMORY": "8MiB"},
        fails=True,
    ),
    "lanes": row("4", "threads", MANY + " num_workers=0", first="1"),
    "num_workers": row("6", "threads", MANY + " lanes=1", first="0"),
    "tf32": TF32,
    "accelerator": refusal("sim"),
    "devices": row("2", "stderr"),
    "allow_shared_device": row("true", "code", "accelerator=sim devices=[0,0]", env=SIM),
    "strategy": row("dp", "processes", MANY + " devices=2 accelerator=cpu", first="ddp"),
    "collective_timeout": HANG,
    "peer_timeout_s": PEER,
    "strict": refusal("true", "devices=2"),
    "on_error": refusal("stop", "data=broken"),
    "use_ema": row("false", "stdout", "checkpoint=last"),
    "json": row("true", "stdout"),
    "eval.preset": row("augreg", "stdout"),
    "eval.resize": row("16", "stdout"),
    "eval.crop": refusal("6"),
    "eval.crop_pct": row("0.5", "stdout"),
    "eval.filter": row("nearest", "stdout"),
    "normalize.mean": row("[0,0,0]", "stdout"),
    "normalize.std": row("[1,1,1]", "stdout"),
}
predict_rows = {
    **use_rows,
    "data.classes": row("3", "stdout", "data=builtin:shapes data.count=30", first="2"),
    "weights": row(
        "second", "content", first="model", instead="predict model=mlp data=x.npy output=logits.npy"
    ),
    "weights.key": row(
        "two",
        "content",
        first="one",
        instead="predict model=mlp data=x.npy output=logits.npy weights=both.safetensors",
    ),
    "output": row("table.csv", "files", first="-"),
    "top_k": row("2", "stdout"),
    "probabilities": row("true", "stdout"),
    "sheet": row("page.png", "files"),
}
KEEPS = (
    "train classify data=photos image_size=8 model=mlp max_epochs=2 num_workers=0 out=kept"
    " checkpoint.save_top_k=2"
)
CHOOSE_EPOCH = "eval model=kept data=photos"
eval_rows = {
    **use_rows,
    "config": row("split.yaml", "stdout"),
    "split": row("train", "stdout"),
    "confusion": row("table.csv", "files"),
    "sheet": row("page.png", "files"),
    "choose": row("acc", "stdout", instead=CHOOSE_EPOCH, before=KEEPS),
    "choose.mode": row("max", "stdout", instead=CHOOSE_EPOCH + " choose=loss", before=KEEPS),
    "prune": row("true", "files", instead=CHOOSE_EPOCH + " choose=loss", before=KEEPS),
}
export_rows = {
    "config": row("card.yaml", "content"),
    "model": row("of_array", "content", first="model"),
    "checkpoint": row("last", "content"),
    "use_ema": row("false", "content"),
    "output": row("other.safetensors", "files", first="w.safetensors"),
    "card": row("false", "content"),
    "weights": Elsewhere("test_gan_files.py", "weights="),
}

GAN = (
    "train gan data=builtin:mass data.count=16 im_size=16 gen_channels=2 gen_levels=1"
    " disc_channels=2 disc_stages=1 num_z_valid=2 batch_size=8 max_epochs=1 num_workers=0 out=run"
    " image_every_n_epochs=0"  # drawing takes longer than all the rest
)
GAN_WITHOUT_OUT = GAN.replace(" out=run", "")
ONE_CHANNEL = "in_chans=4 out_chans=1"  # of mass: with the inversion of Kaiser and Squires
COILS = "data=scans experience=mri in_chans=4 out_chans=4"
GAN_BEFORE = GAN + " psnr_gain_tol=99 max_epochs=2"
CHOOSE = "eval model=run choose=rmse num_samples=2"

gan_rows = {
    "experience": refusal("mri"),
    "data": row("maps", rest="experience=mass_mapping", first="builtin:mass"),
    "data.count": row("24", first="16"),
    "data.sigma": row("0.3"),
    "data.mask": row("random"),
    "cosmo_dir_path": row("cosmos"),
    "sense_maps_path": refusal("cosmos", COILS),
    "volumes": refusal("rcgan", COILS),
    "calib_width": row("4", "metrics", COILS),
    "acceleration": row("4", rest="data=builtin:mri"),
    "norm": row("none", rest="data=builtin:radio in_chans=2 out_chans=1"),
    "mass_norm": row("constants"),
    "kappa_mean": row("0.1", rest=ONE_CHANNEL),
    "kappa_std": row("0.1", rest=ONE_CHANNEL),
    "in_chans": refusal("3"),
    "out_chans": refusal("1"),
    "im_size": row("24", first="16"),
    "num_z_train": row("3"),
    "num_z_valid": row("3", "metrics", first="2"),
    "gp_weight": row("1"),
    "image_every_n_epochs": row("1", "files", first="0"),
    "drift_weight": row("1"),
    "adv_schedule": row("0:1"),
    "adv_reduce": row("mean"),
    "std_mult_init": row("3"),
    "std_mult_step": row("1", "metrics"),
    "psnr_gain_target": row("auto", "metrics", first="9"),
    "psnr_gain_tol": row("99", "metrics"),
    "gen_channels": row("4", first="2"),
    "gen_levels": row("2", first="1"),
    "disc_channels": row("4", first="2"),
    "disc_stages": row("2", first="1"),
    "alt_upsample": row("true"),
    "unused_layers": row("true"),
    "gradient": refusal("true"),
    "checkpoint_dir": row("there", "files", "exp_name=a", instead=GAN_WITHOUT_OUT),
    "exp_name": row("b", "files", "checkpoint_dir=there", first="a", instead=GAN_WITHOUT_OUT),
    "beta_1": row("0.5"),
    "beta_2": row("0.5"),
}
gan_use_rows = {
    "data": row("maps", "arrays", first="builtin:mass"),
    "cosmo_dir_path": row("cosmos", "arrays"),
    "sense_maps_path": refusal("cosmos", "split=val model=run", before=GAN + " " + COILS),
    "data.count": row("3", "arrays"),
    "split": row("val", "arrays"),
    "num_samples": row("3", "arrays"),
    "output": row("other", "files", first="page"),
}
gan_predict_rows = {**gan_use_rows, "keep_samples": row("false", "files")}
gan_eval_rows = {
    **gan_use_rows,
    "data.count": row("3", "stdout"),
    "num_figs": row("2", "files", first="1"),
    "seed": row("7", "arrays"),
    "choose": row("cfid", "stdout", instead=CHOOSE, before=GAN_BEFORE),
    "prune": row("true", "files", instead=CHOOSE, before=GAN_BEFORE),
}

PRETRAIN = (
    "train pretrain data=photos image_size=8 model=cnn method_args.hidden_dim=8"
    " method_args.output_dim=4 batch_size=8 max_epochs=1 num_workers=0 out=run"
)
DINO = (
    PRETRAIN + " method=dino method_args.bottleneck_dim=4 max_epochs=2"
    " transform_args.local_view.view_size=8 transform_args.local_view.num_views=2"
)
TEMPERED = DINO + " method_args.warmup_teacher_temp=0.5 method_args.teacher_temp=0.1"
DINOV2 = (
    "train pretrain data=photos transform_args.image_size=56 model=_vittest14 method=dinov2"
    " method_args.hidden_dim=8 method_args.output_dim=8 method_args.bottleneck_dim=4 batch_size=8"
    " max_epochs=2 num_workers=0 out=run transform_args.local_view.num_views=0"
)
DINO_BLURRED = DINO + " transform_args.global_view_1.gaussian_blur.prob=1"
DINO_SOLARIZED = DINO + " transform_args.global_view_1.solarize.prob=1"
DISTILL = (
    "train pretrain data=photos image_size=32 model=cnn batch_size=8 max_epochs=1 num_workers=0"
    " out=run method=distillation method_args.teacher=cnn method_args.teacher_weights=backbone"
)
WIDE_HEAD = "method=distillationv2 method_args.n_projection_layers=2"
HELD = "knn.data=builtin:shapes knn.count=80 knn.val_split=0.5"
ROTATED = "transform_args.random_rotation.prob=1 transform_args.random_rotation.degrees=20"
BLURRED = "transform_args.gaussian_blur.prob=1"
SOLARIZED = "transform_args.solarize.prob=1"
DROP = "transform_args.channel_drop."
DROPPED = f"{DROP}num_channels_keep=2 {DROP}weight_drop=[1,1,1]"


def transforms(rows):
    return {f"transform_args.{key}": of for key, of in rows.items()}


pretrain_rows = {
    "method": row("dino", instead=PRETRAIN.replace("size=8", "size=20", 1)),
    "model.name": row("resnet18", instead=PRETRAIN.replace("model=cnn", ""), first="cnn"),
    "model.drop_path": row("0.5", instead=PRETRAIN.replace("size=8 model=cnn", f"size=16 {TINY}")),
    "embed_dim": row("16"),
    "method_args.hidden_dim": row("16", first="8"),
    "method_args.output_dim": row("8", first="4"),
    "method_args.num_layers": row("3"),
    "method_args.batch_norm": row("false"),
    "method_args.temperature": row("0.5"),
    **{
        key: of._replace(instead=of.instead or DINO)
        for key, of in {
            "method_args.bottleneck_dim": row("8"),
            "method_args.norm_last_layer": row("false"),
            "method_args.student_temp": row("0.5"),
            "method_args.teacher_temp": row("0.5"),
            "method_args.warmup_teacher_temp": row("0.5", rest="method_args.teacher_temp=0.6"),
            "method_args.warmup_teacher_temp_steps": row("4", instead=TEMPERED, first="1"),
            "method_args.warmup_teacher_temp_max_steps_fraction": row("0.9", instead=TEMPERED),
            "method_args.center_momentum": row("0.1"),
            "method_args.momentum_start": row("0.5"),
            "method_args.momentum_end": row("0.9"),
            "method_args.student_freeze_last_layer_steps": row("3", first="0"),
            "method_args.warmup_steps": row(
                "1", rest="method_args.warmup_max_steps_fraction=1", first="4"
            ),
            "method_args.warmup_max_steps_fraction": row("0.9"),
            "exact": row("true", instead=TEMPERED),
        }.items()
    },
    **{
        f"method_args.{key}": of._replace(instead=DINOV2)
        for key, of in {
            "ibot_separate_head": row("true"),
            "ibot_bottleneck_dim": row("8", rest="method_args.ibot_separate_head=true"),
            "dino_loss_weight": row("0.5"),
            "ibot_loss_weight": row("0.5"),
            "koleo_loss_weight": row("1"),
            "center_method": row("sinkhorn_knopp"),
            "mask_probability": row("1"),
            "mask_ratio_min": row("0.4"),
            "mask_ratio_max": row("0.9"),
            "student_freeze_backbone_steps": row("2"),
            "patch_embed_lr_multiplier": row("1"),
            "min_lr": row("1e-4", rest="method_args.warmup_steps=1"),
        }.items()
    },
    **{
        f"method_args.{key}": of._replace(instead=of.instead or DISTILL)
        for key, of in {
            "teacher": refusal("resnet18"),
            "teacher_weights": row("backbone2"),
            "teacher_sha256": refusal("00"),
            "queue_size": row("4"),
            "temperature_global": row("0.5"),
            "temperature_local": row("0.5"),
            "loss_local_weight": row("0"),
            "n_teacher_blocks": refusal("2", "method=distillationv2"),
            "n_projection_layers": row("3", rest="method=distillationv2"),
            "projection_hidden_dim": row("16", rest=WIDE_HEAD, first="8"),
        }.items()
    },
    "knn.data": row("builtin:shapes", "metrics", "knn.count=40", instead=PRETRAIN),
    "knn.k": row("1", "metrics", HELD),
    "knn.temperature": row("100", "metrics", HELD, first="0.001"),
    "knn.val_split": row("0.3", "metrics", HELD),
    "knn.count": row("90", "metrics", HELD),
    "knn.seed": row("5", "metrics", HELD),
    **transforms(
        {
            "image_size": row("12", instead=PRETRAIN.replace("image_size=8", ""), first="8"),
            "num_channels": row("1"),
            "channel_drop": row("null", rest=DROPPED),
            "channel_drop.num_channels_keep": row("1", rest=DROPPED.split()[1], first="2"),
            "channel_drop.weight_drop": row("[0,1,1]", rest=DROPPED.split()[0], first="[1,1,1]"),
            "random_resize": row("null"),
            "random_resize.min_scale": row("0.9"),
            "random_resize.max_scale": row("0.1"),
            "random_resize.min_ratio": row("1.2"),
            "random_resize.max_ratio": row("0.8"),
            "random_flip": row("null"),
            "random_flip.horizontal_prob": row("1"),
            "random_flip.vertical_prob": row("1"),
            "random_rotation": row("null", rest=ROTATED),
            "random_rotation.prob": row("1", rest="transform_args.random_rotation.degrees=20"),
            "random_rotation.degrees": row("20", rest="transform_args.random_rotation.prob=1"),
            "color_jitter": row("null"),
            "color_jitter.prob": row("0"),
            "color_jitter.strength": row("0.1"),
            "color_jitter.brightness": row("0.1"),
            "color_jitter.contrast": row("0.1"),
            "color_jitter.saturation": row("0.1"),
            "color_jitter.hue": row("0"),
            "random_gray_scale": row("1"),
            "gaussian_blur": row("null", rest=BLURRED),
            "gaussian_blur.prob": row("0", first="1"),
            "gaussian_blur.sigmas": row("[3,4]", rest=BLURRED),
            "gaussian_blur.blur_limit": row("5", rest=BLURRED),
            "solarize": row("null", rest=SOLARIZED),
            "solarize.prob": row("1"),
            "solarize.threshold": row("0.1", rest=SOLARIZED),
            "global_view_1.gaussian_blur": row("null", instead=DINO_BLURRED),
            "global_view_1.gaussian_blur.prob": row("1", instead=DINO),
            "global_view_1.gaussian_blur.sigmas": row("[3,4]", instead=DINO_BLURRED),
            "global_view_1.gaussian_blur.blur_limit": row("5", instead=DINO_BLURRED),
            "global_view_1.solarize": row("null", instead=DINO_SOLARIZED),
            "global_view_1.solarize.prob": row("1", instead=DINO),
            "global_view_1.solarize.threshold": row("0.1", instead=DINO_SOLARIZED),
            "local_view": row("null", instead=DINO),
            "local_view.num_views": row("1", instead=DINO),
            "local_view.view_size": row("[8,10]", instead=DINO),
            "local_view.random_resize": row("null", instead=DINO),
            "local_view.random_resize.min_scale": row("0.13", instead=DINO),
            "local_view.random_resize.max_scale": row("0.9", instead=DINO),
            "local_view.random_resize.min_ratio": row("1.2", instead=DINO),
            "local_view.random_resize.max_ratio": row("0.8", instead=DINO),
            "local_view.gaussian_blur": row("null", instead=DINO),
            "local_view.gaussian_blur.prob": row("1", instead=DINO),
            "local_view.gaussian_blur.sigmas": row("[3,4]", instead=DINO),
            "local_view.gaussian_blur.blur_limit": row("5", instead=DINO),
            "normalize.mean": row("[0,0,0]"),
            "normalize.std": row("[1,1,1]"),
        }
    ),
}
EMBED_NPY = "predict model=backbone data=photos output=features.npy"
embed_rows = {
    "image_size": row("12", "stdout"),
    "output": row("table.csv", "files", first="-"),
    "overwrite": row("true", "code", instead=EMBED_NPY, before=EMBED_NPY),
    "format": row("lightly_csv", "stdout"),
    "features": row("patches", "stdout", instead=EMBED_NPY),
}
knn_rows = {
    "image_size": row("6", "stdout", "val_split=0.5 k=3", first="40"),
    "k": row("1", "stdout"),
    "temperature": row("100", "stdout", "val_split=0.5", first="0.001"),
    "val_split": row("0.5", "stdout"),
}
linear_rows = {
    "epochs": row("2", "stdout", first="5"),
    "batch_size": row("3", "stdout"),
    "lr": row("1", "stdout"),
    "momentum": row("0.5", "stdout"),
    "weight_decay": row("0.5", "stdout"),
    "standardize": row("true", "stdout"),
    "seed": row("1", "stdout", "batch_size=3"),
}

report_rows = {
    "format": row("svg", "stdout"),
    "output": row("page.html", "stdout"),
}

# A project as Lightning Pose has them (pose_case.py); what shows before the first step costs least.
POSE_PLAN = "plan train pose config=project/config.yaml"
POSE = (
    "train pose config=project/config.yaml training.train_batch_size=4 training.num_workers=0"
    " fast_dev_run=true out=run"
)
POSE_ENDS = POSE.replace("fast_dev_run=true", "training.max_epochs=0")  # with predictions
POSE_STEPS = POSE.replace("config.yaml", "steps.yaml").replace("fast_dev_run=true", "max_steps=2")
POSE_STOPS = (
    POSE.replace("fast_dev_run=true", "training.max_epochs=4 training.min_epochs=1")
    + " limit_train_batches=1 optim.lr=10 quiet=true"
)


def unread(*keys):
    """Of videos, and without effect beside them: a value that is none is refused."""
    return {key: refusal("none of its values", instead=POSE_PLAN) for key in keys}


def planned(value, **how):
    return row(value, "stdout", instead=POSE_PLAN, **how)


pose_rows = {
    "data.data_dir": refusal("nowhere", instead=POSE_PLAN),
    "data.csv_file": planned("fewer.csv"),
    "data.split": planned("sets.csv"),
    "data.image_resize_dims.height": planned("256"),
    "data.image_resize_dims.width": planned("256"),
    "data.num_keypoints": refusal("4", instead=POSE_PLAN),
    "data.keypoint_names": refusal("[nose,ear]", instead=POSE_PLAN),
    "data.mirrored_column_matches": row("[[0],[1]]", "files", instead=POSE_ENDS),
    "data.columns_for_singleview_pca": row("[0,2]", "tables", instead=POSE_ENDS),
    "data.downsample_factor": planned("3"),
    "training.imgaug": row("none", "stdout"),
    "training.imgaug_hflip": row("true", "stdout"),
    "training.train_prob": planned("0.7"),
    "training.val_prob": planned("0.4"),
    "training.train_frames": planned("2"),
    "seed_data": row("5", "stdout"),
    "seed_model": row("5", "stdout"),
    "training.unfreezing_epoch": row("0", "stderr"),
    "training.unfreezing_step": row("0", "stderr", instead=POSE_STEPS, first="9"),
    "training.ckpt_every_n_epochs": refusal("3", "check_val_every_n_epoch=2", instead=POSE_PLAN),
    "training.early_stopping": row(
        "true", "metrics", "training.early_stop_patience=1", instead=POSE_STOPS
    ),
    "training.early_stop_patience": row(
        "1", "metrics", "training.early_stopping=true", instead=POSE_STOPS
    ),
    "training.lr_scheduler": refusal("cosine", instead=POSE_PLAN),
    "training.lr_scheduler_params.multisteplr.milestone_steps": row(
        "[1]", "metrics", instead=POSE_STEPS, first="[2]"
    ),
    "training.uniform_heatmaps_for_nan_keypoints": row("true", "stdout"),
    "model.model_type": planned("regression"),
    "model.backbone": planned("resnet34"),
    "model.backbone_pretrained": refusal("true", "strict=true", env={"TORCH_HOME": "/nowhere"}),
    "model.heatmap_loss_type": row("kl", "stdout"),
    "losses.pca_singleview.components_to_keep": row("1", "tables", instead=POSE_ENDS),
    "losses.pca_singleview.centering_method": row("mean", "tables", instead=POSE_ENDS),
    **{
        key: row("other", "saved", instead=POSE_ENDS)  # of videos, too
        for key in ("eval.test_videos_directory",)
    },
    **{
        key: refusal("other", "eval.save_vids_after_training=true", instead=POSE_PLAN)
        for key in ("eval.colormap", "eval.frames")
    },
    **{
        key: Elsewhere("test_pose_clips.py", f'"{key}=')
        for key in (
            "data.video_dir",
            "model.losses_to_use",
            "dali.base.train.sequence_length",
            "dali.context.train.batch_size",
            "dali.general.seed",
        )
    },
    **{
        f"losses.{loss}.{key}": Elsewhere("test_pose_clips.py", f'{key}=')  # test_keys_of_losses
        for losses, keys in (
            (
                ("pca_multiview", "pca_singleview"),
                (
                    "log_weight",
                    "epsilon",
                    "empirical_epsilon_percentile",
                    "empirical_epsilon_multiplier",
                ),
            ),
            (
                ("temporal", "temporal_heatmap_mse", "temporal_heatmap_kl"),
                ("log_weight", "epsilon", "prob_threshold"),
            ),
        )
        for loss in losses
        for key in keys
    },
    **{
        f"callbacks.anneal_weight.{key}": Elsewhere("test_pose_clips.py", f'"{key}=')
        for key in ("init_val", "increase_factor", "final_val", "freeze_until_epoch")
    },
    **unread(
        "dali.base.predict.sequence_length",
        "dali.context.predict.sequence_length",
        "losses.pca_multiview.components_to_keep",
        "losses.pca_multiview.centering_method",
        "eval.predict_vids_after_training",
        "eval.save_vids_after_training",
        "eval.confidence_thresh_for_vid",
    ),
}
pose_used_rows = {
    "data": row("project/fewer.csv", "stdout", first="project/CollectedData.csv"),
    "data.data_dir": row("project", "code", "data=frames.csv"),
}
POSE_PREDICT = "predict pose model=pose data=project/CollectedData.csv output=points.csv"
pose_predict_rows = {
    **pose_used_rows,
    "data": row("project/fewer.csv", "content", first="project/CollectedData.csv"),
    "output": row("other.csv", "files", first="points.csv"),
    "overwrite": row("true", "stderr", before=POSE_PREDICT),
    "precision": row("bf16-mixed", "content"),
    "labeled_video": refusal("true"),  # of a label file
    "skip_viz": refusal("false"),
    "eval.frames": refusal("3"),
    "eval.colormap": refusal("other"),
    "eval.confidence_thresh_for_vid": refusal("none of its values"),
}

SPEAK = "-- sh speak.sh"
GPUS = {"CUDA_VISIBLE_DEVICES": "0,1,2"}


def elsewhere(name, text):
    return Elsewhere(f"test_launch_{name}.py", text)


def real(value, sees, rest="", **how):
    """Starts the ranks; else the row looks at what they would get (dry_run)."""
    return row(value, sees, rest, instead="launch -n 2 run_id=run run_dir=run", tail=SPEAK, **how)


launch_rows = {
    "config": row("launch.yaml", "stdout"),
    "nproc": row("3", "stdout", instead="launch dry_run=true run_id=run run_dir=run"),
    "devices": row("2", "stdout", instead="launch dry_run=true run_id=run run_dir=run", env=GPUS),
    "gpus": refusal("2", instead="launch dry_run=true", env=GPUS),
    "accelerator": row("cpu", "stderr", "devices=2", instead="launch dry_run=true", env=GPUS),
    "strategy": row(
        "dp", "stdout", "devices=2", instead="launch dry_run=true run_id=run run_dir=run", env=GPUS
    ),
    "allow_shared_device": row(
        "true", "code", "devices=[0,0] accelerator=sim", instead="launch dry_run=true", env=SIM
    ),
    "nodes": row("2", "stdout", "node_rank=0 master_addr=a master_port=12000"),
    "node_rank": row("1", "stdout", "nodes=2 master_addr=a master_port=12000"),
    "master_addr": row("b", "stdout", "nodes=2 node_rank=0 master_port=12000", first="a"),
    "master_port": row("12345", "stdout"),
    "run_id": row("other", "stdout", first="one"),
    "rdzv_timeout": row("7", "stdout"),
    "standalone": refusal("true", "nodes=2 node_rank=0 master_addr=a master_port=12000"),
    "rdzv_backend": row("c10d", "stdout", "rdzv_endpoint=a:12000"),
    "rdzv_endpoint": row("a:12000", "stdout", "nodes=2 node_rank=0 master_addr=a", fails=True),
    "role": row("reader", "stdout"),
    "module": row("true", "stdout", tail="speak"),
    "no_python": refusal("true", tail="speak.py"),
    "max_restarts": row("3", "stdout"),
    "min_ranks": refusal("2", "max_restarts=3"),
    "crash_loop": row(
        "0",
        "files",
        "max_restarts=3",
        instead="launch -n 1 run_id=run run_dir=run",
        tail="-- sh fail.sh",
        fails=True,
    ),
    "grace": elsewhere("failure", "--grace"),
    "stop_grace": elsewhere("signals", "--stop-grace"),
    "timeout": row("0.3", "code", tail="-- sleep 2", fails=True, instead="launch -n 1"),
    "straggler_timeout": row(
        "0.2", "code", tail="-- sh last.sh", fails=True, instead="launch -n 2"
    ),
    "srun": elsewhere("arguments", "--srun"),
    "dry_run": row("true", "stdout", instead="launch -n 2 run_id=run run_dir=run", tail=SPEAK),
    "run_dir": real("other", "files", first="run"),
    "log_dir": row("folder", "files", instead="launch -n 2 run_id=run", tail=SPEAK),
    "keep_logs": real("failure", "files"),
    "output": real("out-%r", "files"),
    "error": real("err-%r", "files"),
    "output_append_shared": real("true", "code", "output=one"),
    "tee": real("false", "stdout"),
    "redirects": real("3", "stdout"),
    "redirect": real("true", "stdout"),
    "show": real("none", "stdout"),
    "prefix": real("rank", "stdout", "show=0"),
    "no_prefix": real("true", "stdout", "show=0"),
    "pty": elsewhere("output", "--pty"),
    "tail": row("1", "stderr", tail="-- sh fail.sh", fails=True, instead="launch -n 1"),
    "stdin": elsewhere("output", "--stdin"),
    "quiet": row("true", "stderr", "nodes=2 node_rank=0 master_addr=a master_port=80"),
    "strict": refusal("true", "nodes=2 node_rank=0 master_addr=a master_port=80"),
    "verbose": real("true", "stderr"),
    "bind": row(
        "cores",
        "stdout",
        "show=0",
        instead="launch -n 2 run_id=run run_dir=run",
        tail="-- grep Cpus_allowed_list /proc/self/status",
    ),
    "omp": row("3", "stdout"),
    "env": row("A=1", "stdout"),
    "env_file": row("env", "stdout"),
    "unset": real("HOME", "stdout", "show=0"),
    "nccl_debug": row("INFO", "stdout"),
    "ifname": row("eth0", "stdout"),
    "debug": row("true", "stdout"),
}

COMMANDS = [
    Command("train.classify", TRAIN, train_rows, ""),
    Command("predict", "predict model=model data=photos output=-", predict_rows, ""),
    Command("eval", "eval model=model data=photos", eval_rows, ""),
    Command("train.gan", GAN, gan_rows, "", train_rows),
    Command("predict.gan", "predict model=gan output=page", gan_predict_rows, "", use_rows),
    Command("eval.gan", "eval model=gan output=page num_figs=1", gan_eval_rows, "", use_rows),
    Command("train.pretrain", PRETRAIN, pretrain_rows, "", train_rows),
    Command(
        "predict.pretrain", "predict model=backbone data=photos output=-", embed_rows, "", use_rows
    ),
    Command("eval.pretrain", "eval model=backbone data=photos", knn_rows, "", use_rows),
    Command(
        "eval.linear",
        "eval linear model=backbone data=photos",
        linear_rows,
        "",
        {**use_rows, **knn_rows},
    ),
    Command("train.pose", POSE, pose_rows, "", train_rows),
    Command("predict.pose", POSE_PREDICT, pose_predict_rows, "", use_rows),
    Command(
        "eval.pose",
        "eval pose model=pose data=project/CollectedData.csv",
        pose_used_rows,
        "",
        use_rows,
    ),
    Command("export", "export model=model output=w.safetensors", export_rows, ""),
    Command("report", "report model", report_rows, ""),
    Command("launch", "launch -n 2 dry_run=true run_id=run run_dir=run", launch_rows, "-- true"),
]
