"""Random configurations of `levin train pose`: networks, losses with and without clips of videos,
augmentation, batches and groups (random_configs.py draws the layouts)."""

from random_configs import chance, draw_group

UNSUPERVISED = ("temporal", "pca_singleview", "temporal_heatmap_mse", "temporal_heatmap_kl")


def draw_network(r):
    """Its kind, and what the labels become."""
    kind = r.choice(["heatmap", "heatmap", "heatmap_mhcrnn", "regression"])
    keys = [f"model.model_type={kind}", f"data.downsample_factor={r.choice([2, 2, 3])}"]
    if kind == "heatmap_mhcrnn":
        keys[-1] = "data.downsample_factor=2"
    if kind == "regression":
        return kind, keys[:1]
    keys += [f"model.heatmap_loss_type={r.choice(['mse', 'kl', 'js'])}"]
    keys += [f"training.uniform_heatmaps_for_nan_keypoints={r.choice(['true', 'false'])}"]
    return kind, keys


def draw_clips(r, kind, micro_batches):
    """Losses of frames without labels, and how many frames: two with a result in every clip."""
    losses = [x for x in UNSUPERVISED if chance(r, 0.5)]
    if kind == "regression":
        losses = [x for x in losses if "heatmap" not in x]
    if not losses:
        return []
    keys = [f"model.losses_to_use=[{','.join(losses)}]", "callbacks.anneal_weight.init_val=0.3"]
    keys += ["losses.pca_singleview.components_to_keep=2"]
    keys += [f"losses.{loss}.epsilon={r.choice([0, 0.5])}" for loss in losses]
    keys += [f"dali.general.seed={r.randint(0, 9)}"]
    frames = 2 * micro_batches + r.randint(0, 3)
    if kind == "heatmap_mhcrnn":
        return [*keys, f"dali.context.train.batch_size={frames + 4}"]
    return [*keys, f"dali.base.train.sequence_length={frames}"]


def draw_training(r):
    keys = [f"training.optimizer={r.choice(['Adam', 'AdamW'])}"]
    keys += [f"training.imgaug={r.choice(['dlc', 'dlc-lr', 'dlc-top-down', 'default'])}"]
    keys += [f"training.imgaug_hflip={'true' if chance(r, 0.3) else 'false'}"]
    keys += [f"training.unfreezing_epoch={r.choice([0, 0, 1])}"]
    keys += [f"precision={r.choice(['32-true', '32-true', '16-mixed'])}"]
    return keys


def draw_pose(r, config, videos):
    """The arguments of one configuration of the project whose file is `config`; videos: it has
    some."""
    micro_batches = r.choice([1, 2, 2, 3, 4])
    kind, network = draw_network(r)
    clips = draw_clips(r, kind, micro_batches) if videos and chance(r, 0.6) else []
    group = []
    if chance(r, 0.25) and not clips:
        group = [f"group={draw_group(r, micro_batches)}"]
    return [
        "pose",
        f"config={config}",
        *network,
        *clips,
        *draw_training(r),
        f"training.train_batch_size={r.randint(micro_batches, micro_batches + 3)}",
        f"micro_batches={micro_batches}",
        *group,
        f"wgrad_threads={r.choice([1, 1, 2])}",
        f"eval_batch_size={r.randint(2, 9)}",
        f"training.rng_seed_data_pt={r.randint(0, 99)}",
        f"seed={r.randint(0, 99)}",
        f"max_steps={r.randint(3, 5)}",
    ]
