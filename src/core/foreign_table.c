/* The table of foreign names (config_impl.h): one row each. Where a name has several rows, the
 * first whose keys the command has is the answer. Names of option rows need no entry. amp_level:
 * the levels of apex, of which O1 and O2 have weights in f32 beside those in f16, as 16-mixed has,
 * and O3 has not; with use_amp=false they do nothing. */
#include "core/config_impl.h"

/* clang-format off */
#define SAME(names, key) {names, key, NULL, false, NULL, 0}
#define VALUES(names, key, values, yields) {names, key, values, yields, NULL, 0}
#define HINT(names, hint) {names, NULL, NULL, false, hint, 0}
/* true, or false, is what is done here anyhow */
#define ON(names, hint) {names, NULL, NULL, false, hint, LVNI_CORE_HARMLESS_ON}
#define OFF(names, hint) {names, NULL, NULL, false, hint, LVNI_CORE_HARMLESS_OFF}
/* nothing depends on it: never a mistake */
#define NOTE(names, hint) {names, NULL, NULL, false, hint, LVNI_CORE_HARMLESS_ANY}
#define NO_NEED "leave it out"

const lvni_core_foreign lvni_core_foreign_table[] = {
    /* ---- sections of other configuration files ---- */
    HINT("trainer|model_params|hparams|training|run_config|fit",
         "keys stand at the top level: {max_epochs}=3, {optim.lr}=0.001, without this section"),

    /* ---- data ---- */
    SAME("data_dir|data_path|data_root|dataset_dir|dataset_path|train_dir|train_data|"
         "dataset|folder|root|images|image_dir", "data"),
    SAME("label|label_file|targets", "data.labels"),
    SAME("validation_split|val_ratio|val_size|val_frac|valid_split|test_size", "val_split"),
    SAME("img_size|imgsz|imsize|image_sz|resolution|crop_size|size", "image_size"),
    HINT("input_size", "images are square with 3 channels: use {image_size}=224"),
    HINT("in_chans|input_channels|input_img_mode", "images have 3 channels; " NO_NEED),
    HINT("num_classes|n_classes|nclass|classes|class_map|classes_file",
         "the classes are the sub-folders of {data}=DIR; " NO_NEED),
    HINT("x|y|train_dataloaders|val_dataloaders|datamodule|train_dataloader|"
         "val_dataloader|dataloader", "use {data}=DIR, a folder with one sub-folder per class"),
    HINT("validation_data|val_data|val_dir|valid_dir|val_path|test_dir",
         "use {data}=DIR with the folders train and val in it, or {val_split}=0.2"),
    HINT("val_split=validation|val_split=val|val_split=valid|val_split=test",
         "a validation folder in {data}=DIR is found by its name; {val_split}=0.2 "
         "takes a part of each class"),
    HINT("experience=mass_mapping_from_hdf5",
         "its maps are in one HDF5 file, and its generator, an SUNet, is of a package beside "
         "rcGAN. Write the maps of path_to_train_val_dataset as .npy files into kappa_train and "
         "kappa_val of a folder, and use experience=mass_mapping {data}=DIR, which trains "
         "rcGAN's own generator"),
    HINT("train_split|split",
         "a train folder in {data}=DIR is found by its name; {val_split}=0.2 takes a "
         "part of each class"),
    HINT("train_num_samples|val_num_samples|limit_predict_batches",
         "all images of {data}=DIR are used; for a part use {limit_train_batches}=0.25 or "
         "{limit_val_batches}=0.25, for a short run {max_steps}=100"),
    OFF("dataset_download|download|dataset_trust_remote_code",
         "nothing is downloaded: use {data}=DIR with your own images"),
    HINT("input_key|target_key|target_format",
         "classes come from the sub-folders of {data}=DIR; " NO_NEED),
    ON("shuffle|worker_seeding",
         "every epoch has an order of its own, which follows from {seed}; " NO_NEED),
    HINT("balanced_mode|balanced_*", "use {sampler}=balanced"),
    HINT("labelmix*", "use {augment.mixup_alpha}=0.2"),
    HINT("sample_weight|sample_weights", "samples are weighed by class: use {class_weights}=auto"),
    SAME("class_weight|classweights|loss_weight", "class_weights"),
    SAME("smoothing|label_smooth|smooth|ls", "label_smoothing"),
    OFF("weighted_sampler|balanced|class_balanced|oversample", "use {sampler}=balanced"),
    NOTE("pin_mem|pin_memory|no_prefetcher|prefetch_factor|loader_prefetch_factor|"
         "persistent_workers|use_multi_epochs_loader|"
         "reload_dataloaders_every_n_epochs|use_distributed_sampler|"
         "replace_sampler_ddp", "loading is set by {num_workers} alone; " NO_NEED),
    SAME("workers|num_loader_workers|dataloader_num_workers|loader_workers|n_workers|"
         "nworkers|-j", "num_workers"),

    /* ---- model ---- */
    SAME("arch|architecture|net|network|backbone|model_name|model_type", "model.name"),
    HINT("layers|num_layers", "the name of the network sets its layers: {model.name}=resnet34"),
    SAME("drop|dropout|drop_rate|dropout_rate", "model.dropout"),
    SAME("initial_checkpoint|pretrained_path|pretrained_weights|init_checkpoint|"
         "finetune|finetune_from|load_weights|weight|model_checkpoint", "weights"),
    OFF("pretrained|weights_only",
         "nothing is downloaded: fetch the network's file (docs/weights.md has the addresses) for "
         "{weights}=FILE, and {reset_head}=true for classes of your own"),
    HINT("model_kwargs|gp|fast_norm|bn_momentum|bn_eps|head_init_scale|head_init_bias|"
         "model_registry",
         "the networks are those of {model.name}, as torchvision has them; " NO_NEED),
    SAME("drop_path|drop_path_rate|stochastic_depth|stochastic_depth_prob", "model.drop_path"),
    OFF("drop_connect|drop_block",
         "not for these networks: use {model.dropout}=0.1"),
    OFF("grad_checkpointing|gradient_checkpointing|activation_checkpointing",
         "use a smaller {batch_size} with {accumulate_grad_batches}=4"),
    NOTE("torchscript|torchcompile|torchcompile_mode|compile|jit_compile|fuser|"
         "aot_autograd|run_eagerly|steps_per_execution|channels_last|benchmark|"
         "inference_mode|synchronize_step|cudnn_benchmark",
         "there is nothing to compile or to tune; " NO_NEED),
    OFF("allow_tf32", "use {tf32}=true"),
    HINT("layer_decay_min_scale|layer_decay_no_opt_scale",
         "{optim.layer_decay}=0.7 has no smallest scale; {lr_scale}=[layer1.*=0.1,fc=10] gives "
         "patterns of names a scale each"),
    HINT("freeze_backbone|freeze_layers|linear_probe|feature_extract",
         "use {freeze}=backbone, all but the last layer, or patterns over the names of "
         "parameters"),
    HINT("kd_*|distill_loss_weight|task_loss_weight|teacher|teacher_model|distill*",
         "levin pretrain method=distillation has method_args.teacher; {weights}=FILE starts from "
         "another model"),
    HINT("naflex*", "images have one size, {image_size}"),

    /* ---- optimizer ---- */
    SAME("optimizer|opt|optim_name|optimizer_name", "optim.name"),
    SAME("optim_args.lr|learningrate|base_lr|lr0|init_lr|initial_lr|max_lr|start_lr|eta",
         "optim.lr"),
    HINT("lr_base|lr_base_size|lr_base_scale|blr|scale_lr",
         "the rate does not depend on the batch: use {optim.lr}=LR*batch/256"),
    OFF("auto_scale_batch_size|scale_batch_size|batch_size_finder",
         "levin tune batch-size with the same arguments finds it: give {batch_size_per_device} its "
         "answer"),
    OFF("auto_lr_find|lr_find",
         "levin tune lr with the same arguments finds it: give {optim.lr} its answer"),
    SAME("wd|w_decay|weightdecay|decay|l2", "optim.weight_decay"),
    SAME("momentum|mom", "optim.momentum"),
    SAME("nesterov", "optim.nesterov"),
    SAME("betas|opt_betas|adam_betas", "optim.betas"),
    HINT("beta1|beta2|beta_1|beta_2|adam_beta1|adam_beta2|opt_beta",
         "use {optim.betas}=[0.9,0.999]"),
    SAME("eps|opt_eps|epsilon|adam_eps|adam_epsilon", "optim.eps"),
    HINT("opt_kwargs|optimizer_kwargs|optimizer_params",
         "each has a key of its own: {optim.momentum}, {optim.betas}, {optim.eps}, "
         "{optim.weight_decay}, {optim.nesterov}"),
    SAME("clip_grad|clip_grad_norm|grad_clip|max_grad_norm|gradient_clip|clip|"
         "clipnorm|grad_norm_clip", "gradient_clip_val"),
    SAME("clip_mode", "gradient_clip_algorithm"),
    HINT("clipvalue|clip_grad_value",
         "use {gradient_clip_val}=0.5 {gradient_clip_algorithm}=value"),
    SAME("grad_accum_steps|gradient_accumulation_steps|grad_accum|accum_iter|"
         "accumulate|accumulation_steps|grad_accumulation|update_freq", "accumulate_grad_batches"),
    SAME("sched|lr_scheduler|lr_schedule|lr_sched|schedule|scheduler_name|"
         "lr_scheduler_type", "scheduler.name"),
    SAME("warmup|warmup_iters|num_warmup_steps|lr_warmup_steps|warmup_steps",
         "scheduler.warmup_steps"),
    SAME("warmup_epochs|lr_warmup_epochs", "scheduler.warmup_epochs"),
    HINT("warmup_lr|warmup_ratio|warmup_prefix|lr_warmup_decay|lr_warmup_method",
         "the warm-up rises in a line from 0: use {scheduler.warmup_steps} or "
         "{scheduler.warmup_epochs}"),
    SAME("decay_rate|dr|gamma|lr_gamma|lr_decay|lr_drop_rate", "scheduler.gamma"),
    SAME("decay_milestones|milestones|lr_milestones|lr_steps", "scheduler.milestones"),
    SAME("step_size|lr_step_size|decay_epochs|lr_drop", "scheduler.step_size"),
    HINT("decay_steps|sched_on_updates|lr_interval",
         "use {scheduler.interval}=step with {scheduler.step_size} or "
         "{scheduler.milestones}"),
    HINT("min_lr|lr_min|eta_min|final_lr|lrf|end_lr",
         "use {scheduler.end_factor}=F, the rate at the end as a part of {optim.lr}, or "
         "{scheduler.min_lr}=LR with {scheduler.name}=plateau"),
    SAME("layer_decay", "optim.layer_decay"),
    SAME("pct_start", "scheduler.pct_start"),
    SAME("div_factor", "scheduler.div_factor"),
    SAME("final_div_factor", "scheduler.final_div_factor"),
    SAME("cooldown_epochs", "scheduler.cooldown"),
    SAME("patience_epochs", "scheduler.patience"),
    HINT("reduce_lr_on_plateau|plateau",
         "use {scheduler.name}=plateau with {scheduler.monitor}=val/loss and "
         "{scheduler.patience}=3"),
    HINT("one_cycle|onecycle|one_cycle_lr|use_onecycle",
         "use {scheduler.name}=onecycle; {optim.lr} is its largest rate"),
    HINT("lr_cycle*|t_0|t_mult",
         "use {scheduler.name}=restarts with {scheduler.period} and {scheduler.period_factor}"),
    HINT("t_max", "the cosine goes to the end of the run, {max_epochs} or {max_steps}; " NO_NEED),
    HINT("lr_noise*|lr_k_decay|lr_stable_timescale|lr_decay_fn",
         "the schedules are those of {scheduler.name}: constant, step, multistep, cosine, linear, "
         "exponential, polynomial, restarts, onecycle, plateau"),
    SAME("model_ema_decay|ema_decay", "ema.decay"),
    HINT("model_ema|ema", "use {ema.decay}=0.9998"),
    HINT("model_ema_warmup|ema_warmup", "{ema.warmup} is on; " NO_NEED),
    HINT("model_ema_force_cpu|model_ema_steps|ema_steps",
         "the average is kept where the weights are, after each step; " NO_NEED),

    /* ---- loss and augmentation ---- */
    SAME("scale|crop_scale", "augment.scale"),
    SAME("ratio|crop_ratio|aspect_ratio", "augment.ratio"),
    SAME("hflip|horizontal_flip|fliplr|flip", "augment.hflip"),
    SAME("vflip|vertical_flip|flipud", "augment.vflip"),
    HINT("color_jitter|colour_jitter|cj",
         "use {augment.brightness}=0.4 {augment.contrast}=0.4 {augment.saturation}=0.4"),
    SAME("color_jitter_prob", "augment.jitter"),
    SAME("grayscale_prob|grayscale|gray", "augment.grey"),
    SAME("gaussian_blur_prob|blur", "augment.blur"),
    SAME("mixup", "augment.mixup_alpha"),
    SAME("cutmix", "augment.cutmix_alpha"),
    HINT("cutmix_minmax|mixup_prob|mixup_switch_prob|mixup_mode|mixup_off_epoch|"
         "mixup_off_step", "every step mixes: {augment.mixup_alpha}, {augment.cutmix_alpha}"),
    HINT("no_aug|no_augment", "use {augment.crop}=false {augment.hflip}=0"),
    HINT("augment|aug|augmentation|transform|transforms",
         "each has a key of its own, such as {augment.crop}, {augment.hflip}, "
         "{augment.mixup_alpha}"),
    HINT("aa|auto_augment|autoaugment|randaugment|rand_augment|ra_magnitude|"
         "trivial_augment|augmix|aug_repeats|aug_splits|resplit|split_bn|ra_sampler",
         "use {augment.mixup_alpha}, {augment.cutmix_alpha}, {augment.brightness} and "
         "{augment.blur}"),
    HINT("reprob|remode|recount|random_erase|random_erasing|erasing",
         "there is no random erasing; {augment.cutmix_alpha}=1 is the nearest"),
    HINT("train_crop_mode|train_interpolation|interpolation_train",
         "random crops are resized bilinearly: {augment.crop}, {augment.scale}; " NO_NEED),
    SAME("resize|resize_size|val_resize|eval_resize", "eval.resize"),
    SAME("filter|resample|val_interpolation|eval_filter", "eval.filter"),
    SAME("normalize_mean|img_mean|pixel_mean", "normalize.mean"),
    SAME("normalize_std|img_std|pixel_std", "normalize.std"),
    HINT("loss|criterion|task|loss_fn|jsd_loss|bce_loss|bce_sum|bce_target_thresh|"
         "bce_pos_weight|loss_weights|multilabel_threshold|metrics|weighted_metrics|"
         "eval_metric",
         "the loss is cross-entropy (see {label_smoothing}), and accuracy is measured; " NO_NEED),

    /* ---- length, batch, validation ---- */
    SAME("num_epochs|n_epochs|epoch|nb_epochs|num_train_epochs|total_epochs", "max_epochs"),
    SAME("max_iters|num_steps|n_steps|iterations|max_iterations|total_steps|num_iters|"
         "train_steps|num_train_steps", "max_steps"),
    SAME("batch|bs|train_batch_size|batchsize|mini_batch_size|total_batch_size|"
         "global_batch_size|-b", "batch_size"),
    SAME("per_device_train_batch_size|device_batch_size|batch_size_per_gpu|"
         "per_gpu_batch_size|local_batch_size", "batch_size_per_device"),
    SAME("training.train_batch_size", "batch_size"),
    SAME("training.val_batch_size", "eval_batch_size"),
    HINT("dali.*", "no video is read in this version, every batch has labels: use {batch_size}=N"),
    SAME("validation_batch_size|val_batch_size|test_batch_size|eval_bs|"
         "per_device_eval_batch_size|-vb", "eval_batch_size"),
    SAME("epoch_length|iters_per_epoch", "steps_per_epoch"),
    HINT("epoch_repeats",
         "an epoch is all images of {data}=DIR once; for a length in steps use "
         "{steps_per_epoch}"),
    VALUES("early_stopping|early_stop|early_stop_callback", "early_stopping.monitor",
           "true=val/loss|yes=val/loss|on=val/loss|1=val/loss|false=null|no=null|off=null|0=null",
           true),
    NOTE("early_stopping.check_finite|check_finite",
         "a metric that is not finite ends the run; " NO_NEED),
    SAME("patience", "early_stopping.patience"),
    HINT("stop_epoch|save_epochs",
         "a run goes to its end, {max_epochs} or {max_steps}; the best model is kept"),
    SAME("time_limit", "max_time"),
    HINT("timeout_minutes", "use {max_time}=90m"),
    HINT("start_epoch|initial_epoch|start_step|last_epoch|check_resume*",
         "use {resume}=true with {out}=DIR, which goes on where the run stopped"),
    SAME("validation_freq", "check_val_every_n_epoch"),
    HINT("val_interval|val_every|val_freq|eval_interval|eval_every|eval_freq",
         "it counts epochs in some systems and steps in others: use {check_val_every_n_epoch}=N "
         "for epochs, {val_check_interval}=N for batches"),
    SAME("validation_steps", "limit_val_batches"),
    HINT("limit_test_batches|num_evals",
         "all of the validation part is measured; {limit_val_batches}=0.1 takes a part"),
    SAME("drop_remainder", "drop_last"),
    SAME("random_seed|manual_seed|seed_everything|rng_seed", "seed"),

    /* ---- devices and precision ---- */
    SAME("training.num_gpus|ngpus|ngpu|n_gpu|n_gpus|num_devices|n_devices", "devices"),
    VALUES("gpu|gpu_id|gpu_ids|device_id|device_ids", "devices", LVNI_CORE_FOREIGN_LIST, false),
    SAME("device", "accelerator"),
    OFF("cpu|no_cuda|use_cpu|no_gpu", "use {accelerator}=cpu"),
    HINT("cuda|use_cuda|use_gpu", "use {accelerator}=gpu"),
    OFF("tpu_cores|ipus|hpus|device_modules", "use {accelerator}=cpu and {devices}=N"),
    VALUES("use_amp", "precision", "true=16-mixed|false=32-true", false),
    VALUES("amp_level", "precision", "O0=32-true|O1=16-mixed|O2=16-mixed|O3=16-mixed", true),
    OFF("amp|mixed_precision|fp16|half|amp_dtype|bf16|amp_impl|model_dtype|"
         "dtype|auto_scale_loss",
         "use {precision}=bf16-mixed or {precision}=16-mixed"),
    NOTE("amp_backend|apex_amp", "{precision} alone decides; " NO_NEED),
    HINT("precision=fp16|precision=float16|precision=half|precision=amp|"
         "precision=mixed|precision=16-true", "use {precision}=16-mixed"),
    HINT("precision=bfloat16|precision=bf16_mixed|precision=mixed_bfloat16",
         "use {precision}=bf16-mixed"),
    HINT("precision=fp32|precision=float32|precision=float|precision=single|"
         "precision=full", "use {precision}=32-true"),
    HINT("precision=tf32", "use {precision}=32-true tf32=true"),
    HINT("precision=64|precision=64-true|precision=double|precision=float64|"
         "precision=transformer-engine|precision=transformer-engine-float16|"
         "precision=fp8|precision=8",
         "use {precision}=32-true, bf16-mixed, 16-mixed or bf16-true"),
    HINT("accelerator=tpu|accelerator=mps|accelerator=hpu|accelerator=ipu|"
         "accelerator=xpu|accelerator=npu|accelerator=xla|accelerator=rocm",
         "use {accelerator}=cpu"),
    HINT("accelerator=cuda:*|accelerator=gpu:*",
         "use {accelerator}=gpu {devices}=[N], the numbers of the devices"),
    HINT("accelerator=0*|accelerator=1*|accelerator=2*|accelerator=3*|accelerator=4*|"
         "accelerator=5*|accelerator=6*|accelerator=7*|accelerator=8*|accelerator=9*",
         "use {accelerator}=gpu {devices}=[N], the numbers of the devices"),
    HINT("accelerator=ddp|accelerator=dp|accelerator=ddp_spawn", "use {strategy}=ddp"),
    HINT("strategy=ddp_cpu|strategy=horovod|strategy=nccl|strategy=gloo|strategy=mpi|"
         "strategy=mirrored|strategy=ddp_*",
         "use {strategy}=ddp"),
    HINT("strategy=no", "use {strategy}=single"),
    HINT("strategy=fsdp|strategy=fsdp2|strategy=fsdp_*|strategy=deepspeed_*|strategy=zero*",
         "every device "
         "holds the whole model, and a part of the optimizer's state: use {strategy}=sharded"),
    HINT("strategy=model_parallel|strategy=xla*|strategy=tensor_parallel|"
         "strategy=colossalai", "every device holds the whole model: use {strategy}=ddp"),
    SAME("nnodes|nodes|n_nodes|nb_nodes", "num_nodes"),
    HINT("per_experiment_nb_nodes", "use {num_nodes}=N, and --nodes=N in the job script"),
    HINT("per_experiment_nb_gpus|ntasks_per_node",
         "use {devices}=N, the devices of each node"),
    /* test-tube's search; of a sweep, of job scripts, of all others */
    SAME("nb_trials|max_nb_trials|n_trials|num_trials", "trials"),
    HINT("opt_list", "use {list}=NAME=v1,v2, with :float behind it for a type"),
    HINT("opt_range|nb_samples|log_base",
         "use {range}=NAME=LOW:HIGH:N, with :log10 behind it for log_base=10"),
    HINT("tunable|hyperparam_optimizer",
         "what has {list}, {range} or {sample} differs between trials; " NO_NEED),
    HINT("job_name", "use {name}=NAME, of the sweep's folder and of its jobs, and {dir}=DIR"),
    HINT("log_path", "use {dir}=DIR, where the sweep's folder, {name}, is made"),
    HINT("nb_trials|max_nb_trials|hyperparam_optimizer|tunable|opt_list|opt_range",
         "a run has one value of each key: levin sweep train with lists, optim.lr=[0.1,0.01], "
         "runs each combination"),
    SAME("load_modules", "module"),
    SAME("add_command", "setup"),
    SAME("log_path", "log_dir"),
    SAME("per_experiment_nb_cpus", "cpus_per_task"),
    SAME("memory_mb_per_node", "mem"),
    HINT("job_time", "use {time}=LIMIT; a number alone is minutes, as Slurm has it"),
    HINT("minutes_to_checkpoint_before_walltime", "use {signal}=USR1@SECONDS"),
    HINT("add_slurm_cmd",
         "use {sbatch}='NAME=VALUE # comment', which replaces the line of that name"),
    HINT("notify_job_status", "use {mail_user}=ADDRESS {mail_type}=END,FAIL"),
    HINT("load_modules", "levin sweep submit has module=NAME"),
    HINT("add_command", "levin sweep submit has setup=COMMAND"),
    HINT("add_slurm_cmd", "levin sweep submit has sbatch='NAME=VALUE # comment'"),
    HINT("notify_job_status", "levin sweep submit has mail_user=ADDRESS mail_type=END,FAIL"),
    HINT("per_experiment_nb_gpus", "levin sweep submit has devices=N"),
    HINT("per_experiment_nb_nodes", "levin sweep submit has nodes=N"),
    HINT("per_experiment_nb_cpus", "levin sweep submit has cpus_per_task=N"),
    HINT("memory_mb_per_node", "levin sweep submit has mem=SIZE"),
    HINT("job_time", "levin sweep submit has time=LIMIT"),
    HINT("optimize_parallel_cluster_gpu|optimize_parallel_cluster_cpu",
         "levin sweep plan and levin sweep submit DIR are that, with as=jobs a job for each trial"),
    HINT("optimize_parallel_gpu|optimize_parallel_cpu|optimize_parallel",
         "levin sweep run DIR is that, with gpu_sets='0;1,3' or parallel=N"),
    HINT("job_name|log_path", "use {out}=DIR, the folder of the run"),
    HINT("world_size|nproc|nproc_per_node|num_processes|local_world_size|n_proc",
         "use {devices}=N"),
    HINT("local_rank|rank|node_rank|dist_url|dist_backend|dist|distributed|ddp|"
         "init_method|master_addr|master_port|no_ddp_bb|plugins|dist_bn",
         "ranks find each other: use {devices}=N, or start them with srun, mpirun or "
         "torchrun"),
    SAME("batch_norm_sync|syncbn|use_sync_bn|convert_syncbn", "sync_batchnorm"),
    SAME("print_nan_grads", "detect_anomaly"),
    NOTE("log_gpu_memory",
         "the most memory of process and device is in metrics.jsonl; " NO_NEED),
    OFF("auto_select_gpus", "use {devices}=N, or [N], the numbers of the devices"),
    OFF("stochastic_weight_avg|swa_lrs|swa_epoch_start",
         "use {ema.decay}=0.999, an average over all steps; levin ckpt average makes the mean of "
         "checkpoints"),
    NOTE("terminate_on_nan|track_grad_norm",
         "numbers that are not finite end the run, and the gradient's norm is in "
         "metrics.jsonl; " NO_NEED),

    /* ---- the run, what it writes ---- */
    SAME("output_dir|out_dir|outdir|save_dir|work_dir|workdir|run_dir|save_path|"
         "logdir|exp_dir|result_dir|results_dir|output|-o", "out"),
    HINT("default_root_dir|experiment|exp_name|experiment_name|run_name|name|project|"
         "log_dir", "use {out}=DIR, the folder of the run"),
    SAME("configs|cfg|config_file|conf|-c", "config"),
    OFF("ckpt_path|resume_from_checkpoint|resume_from|auto_resume|restart|continue|"
         "load|restore|checkpoint|ckpt|load_checkpoint|-r",
         "use {resume}=true with {out}=DIR, the folder of the run"),
    HINT("resume=*", "use {resume}=true with {out}=DIR, the folder of the run"),
    HINT("no_resume_opt|reset_optimizer|load_optimizer",
         "use {weights}=DIR of the run, which takes its weights alone"),
    ON("enable_checkpointing|num_saves|checkpoint_callback|save_best|save_last|save_strategy|"
         "checkpoint.save_last|checkpoint.enable_version_counter|enable_version_counter",
         "the last and the best checkpoint are kept; {checkpoint.every_n_steps}=N saves the last "
         "one more often, {checkpoint.save_top_k}=N keeps more of them"),
    HINT("save_weights_only|checkpoint.save_weights_only",
         "checkpoints hold what {resume}=true needs; levin export model=RUN writes the weights "
         "alone"),
    HINT("dirpath|checkpoint.dirpath|checkpoint_dir|ckpt_dir",
         "use {out}=DIR, the folder of the run: checkpoints stand in DIR/checkpoints"),
    NOTE("save_on_train_epoch_end|checkpoint.save_on_train_epoch_end",
         "a checkpoint follows each epoch, and each validation that is the best so far; " NO_NEED),
    HINT("train_time_interval|checkpoint.train_time_interval",
         "use {checkpoint.every_n_minutes}=30"),
    SAME("checkpoint.every_n_train_steps", "checkpoint.every_n_steps"),
    SAME("filename", "checkpoint.filename"),
    SAME("auto_insert_metric_name", "checkpoint.auto_insert_metric_name"),
    HINT("monitor", "use {checkpoint.monitor}=val/loss for the best checkpoint, "
         "{early_stopping.monitor}=val/loss for the end of the run"),
    SAME("checkpoint_hist|save_total_limit", "checkpoint.save_top_k"),
    SAME("recovery_interval|save_every|save_interval|save_steps|save_freq|"
         "checkpoint_interval", "checkpoint.every_n_steps"),
    SAME("log_interval|print_freq|logging_steps|log_every|log_freq|log_steps", "log_every_n_steps"),
    HINT("num_logs", "use {log_every_n_steps}=N"),
    SAME("loggers|report_to", "logger"),
    OFF("tensorboard|log_tensorboard|tb|loggers.tensorboard*", "use {logger}=tensorboard"),
    HINT("csv_logger", "use {logger}=csv"),
    HINT("loggers.wandb*|loggers.mlflow*",
         "use {logger}=exec:COMMAND, a program that gets all that is logged; examples/12_loggers "
         "has those for W&B and MLflow"),
    NOTE("log_wandb|use_wandb|wandb*|mlflow*|comet*|neptune*",
         "use {logger}=exec:COMMAND, a program that gets all that is logged; examples/12_loggers "
         "has those for W&B and MLflow"),
    NOTE("log_save_interval|flush_logs_every_n_steps|flush_secs|log_flush_every",
         "every line is written at once; " NO_NEED),
    NOTE("enable_autolog_hparams|log_hyperparams",
         "loggers get the configuration, and it is in config.yaml of {out}=DIR; " NO_NEED),
    OFF("callbacks|barebones|save_images|vis|visualize|hooks",
         "there is nothing to plug in from the command line; metrics.jsonl has "
         "losses, times and memory; " NO_NEED),
    NOTE("enable_progress_bar|progress_bar|no_progress|progress_bar_refresh_rate|process_position|"
         "show_progress_bar|disable_tqdm|enable_model_summary|model_summary|weights_summary",
         "progress is one line on a terminal and one a minute elsewhere, and the model another; "
         "{quiet}=true prints "
         "none"),
    HINT("silent|-q", "use {quiet}=true"),
    SAME("verbosity|-v", "verbose"),
    HINT("verbose=2", "use {verbose}=true for more, {quiet}=true for less"),
    HINT("deterministic=warn", "use {deterministic}=true"),
    HINT("force|force_overwrite|overwrite_output_dir|exist_ok|-f", "use {overwrite}=true"),
    OFF("eval|evaluate|test|test_only|eval_only|do_eval|validate|evaluate_only",
         "levin eval {model}=RUN {data}=DIR measures a trained model"),
    OFF("do_predict|inference|infer", "levin predict {model}=RUN {data}=DIR labels images"),
    HINT("do_train|train|mode", "levin train classify {data}=DIR trains; " NO_NEED),
    OFF("tta", "one centre crop of each image is evaluated; " NO_NEED),

    /* ---- predict, eval, export ---- */
    SAME("output_file|out|output_path|output_csv|results_file|result|dest|to|-o", "output"),
    SAME("weights_path|ckpt|model_path|run|run_dir|model_dir", "model"),
    SAME("batch_size|bs|batch|-b", "eval_batch_size"),
    SAME("topk|k", "top_k"),
    SAME("probs|include_probs|all_probabilities|proba", "probabilities"),
    SAME("confusion_matrix", "confusion"),
    HINT("weights|weights.key",
         "levin export RECIPE weights=FILE output=W.safetensors, with the keys of a training, makes "
         "a model of them for {model}=W.safetensors"),
    HINT("exp_name|experiment_name|run_name|checkpoint_dir|ckpt_dir",
         "use {model}=DIR, the folder of the run: of rcGAN's keys checkpoint_dir and exp_name "
         "together"),
    HINT("format|output_format",
         "a model is {output}=FILE.safetensors, with {card}=false its tensors alone, and levin ckpt "
         "convert FILE.safetensors FILE.pt writes it for torch.load"),
    HINT("format|output_format", "the ending of {output}=FILE sets it"),
    HINT("epochs|max_epochs|lr|optim|learning_rate",
         "this command trains nothing, it uses {model}; " NO_NEED),

    /* ---- torchrun (levin launch) ---- */
    SAME("rdzv_id|job_id", "run_id"),
    SAME("shutdown_timeout|kill_after|termination_grace_time_s", "grace"),
    SAME("np|num_procs|n|ranks|num_ranks|nprocs|n_procs|ngpus_per_node|gpus_per_node|"
         "procs_per_node", "nproc"),
    SAME("join_timeout|start_timeout", "rdzv_timeout"),
    HINT("local_ranks_filter", "use {show}=0,1, ranks of the whole run"),
    HINT("log_line_prefix_template",
         "use {prefix}='%h:%r: ' with the codes %r rank, %l local rank, %h host"),
    HINT("rdzv_conf", "how long ranks wait for each other is {rdzv_timeout}=SECONDS; " NO_NEED),
    HINT("rdzv_backend=etcd|rdzv_backend=etcd-v2|rdzv_backend=zeus",
         "use {rdzv_backend}=static {master_addr}=HOST {master_port}=PORT {node_rank}=K"),
    HINT("numa_binding", "use {bind}=numa or {bind}=cores"),
    HINT("duplicate_stdout_filters|duplicate_stderr_filters|logs_specs|"
         "event_log_handler", "each rank has files of its own in {run_dir}=DIR; " NO_NEED),
    HINT("signals_to_handle",
         "all signals that end or stop a program, SIGUSR1 and SIGUSR2 are passed on; " NO_NEED),
    HINT("monitor_interval", "the end of a rank is noticed at once; " NO_NEED),
    HINT("start_method", "ranks are processes, started by exec; " NO_NEED),
    HINT("run_path", "the script is started by python3 -u; " NO_NEED),
    HINT("virtual_local_rank",
         "every rank sees the devices of the node and takes the one of its "
         "LOCAL_RANK; " NO_NEED),
    HINT("local_addr",
         "this node's own address is not needed: rank 0 listens at {master_addr}; " NO_NEED),
    HINT("use_env", "LOCAL_RANK is in the environment; " NO_NEED),
    HINT("print_completion", "levin help launch lists all options"),
    HINT("hostfile|hosts|host|include|exclude",
         "run the same command on each node: {nodes}=N {node_rank}=K "
         "{master_addr}=HOST {master_port}=PORT"),
};
const size_t lvni_core_foreign_table_n =
    sizeof lvni_core_foreign_table / sizeof *lvni_core_foreign_table;
