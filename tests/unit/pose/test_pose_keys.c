/* Keys of the recipe pose: what a configuration of Lightning Pose becomes, and the rules that all
 * are reported together. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "recipes/pose/pose_keys.h"
#include "recipes/pose/pose_rules.h"
#include "recipes/pose/pose_settings.h"
#include "run/options.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const lvni_core_option_table *const tables[] = {
    &lvni_pose_data_options, &lvni_pose_training_options,  &lvni_pose_model_options,
    &lvni_pose_loss_options, &lvni_pose_eval_options,      &lvni_pose_unused_options,
    &lvni_run_options,       &lvni_run_batch_options,      &lvni_run_optim_table,
    &lvni_run_loop_options,  &lvni_run_checkpoint_options, NULL};

/* A project of two frames, in which every test runs. */
static char project[] = "/tmp/levin-pose-keys-XXXXXX";

static const char labels[] = "scorer,r,r,r,r\nbodyparts,paw_left,paw_left,nose,nose\n"
                             "coords,x,y,x,y\na.png,1,2,3,4\nb.png,,,5,6\n";

BEFORE_ALL()
{
    assert_non_null(mkdtemp(project));
    assert_int_equal(chdir(project), 0);
    assert_int_equal(lvni_core_file_write("CollectedData.csv", labels, sizeof labels - 1), LVN_OK);
    assert_int_equal(lvni_core_file_write("a.png", "", 0), LVN_OK);
    assert_int_equal(lvni_core_file_write("b.png", "", 0), LVN_OK);
    return 0;
}

AFTER_ALL()
{
    static const char *const files[] = {"CollectedData.csv", "a.png", "b.png"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)unlink(files[i]);
    }
    return chdir("/") == 0 && rmdir(project) == 0 ? 0 : 1;
}
static lvn_status load(lvni_core_config *c, const char *yaml, int n, const char *const *args)
{
    lvni_core_config_collect(c);
    LVN_TRY(lvni_core_config_load_job(c, lvni_pose_job));
    LVN_TRY(lvni_core_config_load_yaml(c, LVNI_LAYER_FILE, "c.yaml", yaml, strlen(yaml)));
    LVN_TRY(lvni_core_config_load_arguments(c, n, args));
    LVN_TRY(lvni_pose_prepare(c));
    return lvni_core_config_check(c);
}

static lvn_status read_config(const char *yaml, int n, const char *const *args,
                              lvni_core_config **out)
{
    assert_int_equal(lvni_core_config_create(tables, out), LVN_OK);
    return load(*out, yaml, n, args);
}

static const char good[] = "data:\n  image_resize_dims: {height: 128, width: 256}\n"
                           "  data_dir: .\n  num_keypoints: 2\n";

static lvni_core_config *read_good(const char *yaml, int n, const char *const *args)
{
    char text[2048];
    lvni_core_config *c = NULL;
    snprintf(text, sizeof text, "%s%s", good, yaml);
    if (read_config(text, n, args, &c) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return c;
}

TEST(what_holds_where_nothing_is_given)
{
    lvni_pose_settings s;
    lvni_core_config *c = read_good("", 0, NULL);
    assert_int_equal(lvni_pose_settings_read(c, &s), LVN_OK);
    assert_string_equal(s.csv_file, "./CollectedData.csv");
    assert_true(s.height == 128 && s.width == 256 && s.keypoints == 2 && s.downsample == 2);
    assert_true(s.names == NULL && s.match == NULL && s.pca_columns == NULL && s.split == NULL);
    assert_string_equal(s.imgaug, "dlc");
    assert_true(s.train_prob == 0.95 && s.val_prob == 0.05 && s.train_frames == 1);
    assert_true(s.unfreezing == 20 && !s.unfreezing_in_steps && !s.uniform_for_nan && !s.hflip);
    assert_string_equal(s.backbone, "resnet50_animal_ap10k");
    assert_string_equal(s.zoo_model, "resnet50");
    assert_true(s.type == LVNI_POSE_HEATMAP && s.loss == 0 && s.pretrained);
    assert_true(s.clip == 32 && s.predict_clip == 96 && s.context_clip == 16);
    const lvni_pose_unsupervised_settings *u = &s.unsupervised[LVNI_POSE_PCA_SINGLEVIEW];
    assert_true(!u->used && u->log_weight == 0 && u->components == 0.95 && !u->components_counted);
    assert_true(u->epsilon_percentile == 99 && !u->has_epsilon);
    assert_true(s.unsupervised[LVNI_POSE_PCA_MULTIVIEW].components_counted);
    assert_true(s.anneal_from_epoch == 60 && s.anneal_increase == 0.01 && s.predict_videos);
    assert_true(lvni_core_config_float(c, "optim.weight_decay") == 0);
    assert_int_equal(lvni_core_config_int(c, "batch_size"), 16);
    assert_int_equal(lvni_core_config_int(c, "eval_batch_size"), 32);
    assert_int_equal(lvni_core_config_int(c, "max_epochs"), 300);
    assert_int_equal(lvni_core_config_int(c, "check_val_every_n_epoch"), 5);
    lvni_pose_settings_free(&s);
    lvni_core_config_destroy(c);
}

TEST(names_of_the_file_are_those_of_every_training)
{
    lvni_pose_settings s;
    static const char *const args[] = {"training.max_epochs=40", "++training.train_batch_size=4",
                                       "+training.min_epochs=40"};
    lvni_core_config *c =
        read_good("training:\n  train_batch_size: 8\n  num_gpus: 0\n  optimizer: AdamW\n"
                  "  optimizer_params: {learning_rate: 5e-5}\n  rng_seed_data_pt: 42\n"
                  "  rng_seed_model_pt: 44\n  early_stopping: true\n  early_stop_patience: 7\n"
                  "  min_epochs: 300\n  max_epochs: 300\n  lr_scheduler: multistep_lr\n"
                  "  lr_scheduler_params:\n    multisteplr: {milestones: [150, 200], gamma: 0.25}\n"
                  "  check_val_every_n_epoch: 50\n  profiler: null\n"
                  "model: {losses_to_use: [''], checkpoint: null}\n"
                  "eval: {hydra_paths: [' ']}\ncreation_datetime: 2026-01-01T00:00:00\n",
                  3, args);
    assert_int_equal(lvni_pose_settings_read(c, &s), LVN_OK);
    assert_int_equal(lvni_core_config_int(c, "batch_size"), 4);
    assert_int_equal(lvni_core_config_int(c, "max_epochs"), 40);
    assert_int_equal(lvni_core_config_int(c, "min_epochs"), 40);
    assert_int_equal(lvni_core_config_int(c, "check_val_every_n_epoch"), 40);
    assert_int_equal(lvni_core_config_int(c, "early_stopping.patience"), 7);
    assert_string_equal(lvni_core_config_str(c, "early_stopping.monitor"), "val/supervised_loss");
    assert_string_equal(lvni_core_config_str(c, "devices"), "1");
    assert_string_equal(lvni_core_config_str(c, "optim.name"), "adamw");
    assert_true(lvni_core_config_float(c, "optim.lr") == 5e-5);
    assert_true(lvni_core_config_float(c, "optim.weight_decay") == 0.01);
    assert_true(lvni_core_config_float(c, "scheduler.gamma") == 0.25);
    assert_true(s.seed_data == 42 && s.seed_model == 44);
    assert_int_equal(lvni_core_config_int(c, "seed"), 42);
    lvni_core_str unused = {0};
    lvni_pose_unused_keys(c, &unused);
    assert_string_equal(lvni_core_str_text(&unused), "creation_datetime, eval.hydra_paths");
    lvni_core_str_free(&unused);
    lvni_pose_settings_free(&s);
    lvni_core_config_destroy(c);
}

TEST(a_training_in_steps)
{
    lvni_pose_settings s;
    size_t n;
    lvni_core_config *c =
        read_good("training:\n  max_steps: 13\n  min_steps: 13\n  unfreezing_step: 4\n"
                  "  lr_scheduler_params: {multisteplr: {milestone_steps: [6, 9]}}\n",
                  0, NULL);
    assert_int_equal(lvni_pose_settings_read(c, &s), LVN_OK);
    assert_true(s.unfreezing == 4 && s.unfreezing_in_steps);
    assert_int_equal(lvni_core_config_int(c, "max_epochs"), -1);
    assert_int_equal(lvni_core_config_choice(c, "scheduler.interval"), 1);
    assert_int_equal(lvni_core_config_int_list(c, "scheduler.milestones", &n)[1], 9);
    lvni_pose_settings_free(&s);
    lvni_core_config_destroy(c);
}

/* null, and ~KEY on the command line: no key has to be there. */
TEST(every_key_may_be_left_out)
{
    for (size_t t = 0; tables[t] != NULL; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            char null[128], back[128];
            const char *name = tables[t]->rows[i].name, *const args[] = {null, back};
            snprintf(null, sizeof null, "%s=null", name);
            snprintf(back, sizeof back, "~%s", name);
            for (int k = 0; k < 2; k++) {
                lvni_core_config *c = NULL;
                const lvn_status status = read_config(good, 1, &args[k], &c);
                assert_true(status == LVN_OK || status == LVN_ERR_USAGE);
                lvni_core_config_destroy(c);
            }
        }
    }
}

TEST(what_is_taken_back_is_what_the_recipe_has)
{
    static const char *const args[] = {"~training.max_epochs", "~training.unfreezing_epoch",
                                       "~training.train_batch_size"};
    lvni_core_config *c = read_good("training: {max_epochs: 9, unfreezing_epoch: 3, "
                                    "train_batch_size: 4}\n",
                                    3, args);
    assert_int_equal(lvni_core_config_int(c, "max_epochs"), 300);
    assert_int_equal(lvni_core_config_int(c, "batch_size"), 16);
    assert_string_equal(lvni_core_config_origin(c, "lr_zero_until"),
                        "training.unfreezing_epoch=20");
    lvni_core_config_destroy(c);
    c = read_good("training: {max_epochs: 9, unfreezing_epoch: 3, max_steps: 13, "
                  "unfreezing_step: 4, "
                  "lr_scheduler_params: {multisteplr: {milestone_steps: [6, 9]}}}\n",
                  2, args);
    assert_int_equal(lvni_core_config_int(c, "max_epochs"), -1);
    lvni_core_config_destroy(c);
}

TEST(mirrored_views)
{
    lvni_pose_settings s;
    static const char *const args[] = {"data.mirrored_column_matches=[[1], [0]]"};
    lvni_core_config *c = read_good("data.mirrored_column_matches:\n- [0]\n- [1]\n", 1, args);
    assert_int_equal(lvni_pose_settings_read(c, &s), LVN_OK);
    assert_true(s.views == 2 && s.matched == 1 && s.match[0] == 1 && s.match[1] == 0);
    lvni_pose_settings_free(&s);
    lvni_core_config_destroy(c);
    c = read_good("data.mirrored_column_matches:\n- [0]\n- [1]\n", 0, NULL);
    assert_int_equal(lvni_pose_settings_read(c, &s), LVN_OK);
    assert_true(s.views == 2 && s.matched == 1 && s.match[0] == 0 && s.match[1] == 1);
    lvni_pose_settings_free(&s);
    lvni_core_config_destroy(c);
}

/* What other programs alone read is saved as it is, and named in one line. */
TEST(maps_and_values_of_other_keys)
{
    lvni_pose_settings s;
    lvni_core_str unused = {0};
    lvni_core_config *c = read_good(
        "  video_dir: ${data.data_dir}/videos\n"
        "training:\n  imgaug:\n    Rotate: {p: 0.5, kwargs: {rotate: [-10, 10]}}\n"
        "eval:\n  test_videos_directory: ${data.video_dir}\n"
        "  fiftyone: {dataset_name: x, model_display_names: [a], port: 5151}\n"
        "hydra:\n  run:\n    dir: outputs/${now:%Y-%m-%d}\n  sweep: {subdir: '${hydra.job.num}'}\n",
        0, NULL);
    assert_int_equal(lvni_pose_settings_read(c, &s), LVN_OK);
    assert_string_equal(s.imgaug, "{\"Rotate\":{\"p\":0.5,\"kwargs\":{\"rotate\":[-10,10]}}}");
    assert_true(s.video_dir[0] == '/' && strcmp(s.video_dir, s.test_videos) == 0);
    lvni_pose_unused_keys(c, &unused);
    assert_string_equal(lvni_core_str_text(&unused), "eval.fiftyone, hydra");
    assert_string_equal(lvni_core_config_notes(c),
                        "note: of Lightning Pose, without effect here: eval.fiftyone, hydra\n");
    assert_string_equal(lvni_core_config_str(c, "hydra"),
                        "{\"run\":{\"dir\":\"outputs/${now:%Y-%m-%d}\"},"
                        "\"sweep\":{\"subdir\":\"${hydra.job.num}\"}}");
    lvni_core_str_free(&unused);
    lvni_pose_settings_free(&s);
    lvni_core_config_destroy(c);
}

static void assert_refused(const char *yaml, const char *message)
{
    char text[2048];
    lvni_core_config *c = NULL;
    snprintf(text, sizeof text, "%s%s", good, yaml);
    assert_int_equal(read_config(text, 0, NULL, &c), LVN_ERR_USAGE);
    if (strstr(lvn_last_error()->message, message) == NULL) {
        fail_msg("`%s` is not in `%s`", message, lvn_last_error()->message);
    }
    lvni_core_config_destroy(c);
}

TEST(each_rule_names_key_value_and_place)
{
    static const char *const rules[][2] = {
        {"data.keypoint_names: [a, b, c]\n", "data.num_keypoints 2: data.keypoint_names has 3 "
                                             "names; give one per keypoint  (c.yaml:4)"},
        {"data.columns_for_singleview_pca: [0, 2]\n",
         "data.columns_for_singleview_pca 2: there are 2 keypoints, from 0 to 1"},
        {"data.columns_for_singleview_pca: [0, 1, 0]\n",
         "data.columns_for_singleview_pca 0: the keypoint stands twice"},
        {"data.mirrored_column_matches: [[0],[0]]\n",
         "data.mirrored_column_matches 0: the keypoint stands twice"},
        {"data.mirrored_column_matches: [[0],[2]]\n", "data.mirrored_column_matches 2: there"},
        {"data.mirrored_column_matches: '[[0,1],[1]]'\n", "expected lists of equal lengths"},
        {"data.mirrored_column_matches: '[0, 1]'\n", "expected a list of keypoints per view"},
        {"training: {train_prob: 0.9, val_prob: 0.2}\n",
         "training.train_prob 0.9: with training.val_prob 0.2 more than all labelled frames"},
        {"training: {ckpt_every_n_epochs: 7}\n",
         "training.ckpt_every_n_epochs 7: not a multiple of check_val_every_n_epoch 5; use 10"},
        {"training: {max_epochs: 100, lr_scheduler_params: {multisteplr: {milestones: [150]}}}\n",
         "training.lr_scheduler_params.multisteplr.milestones 150: behind the end, "
         "training.max_epochs 100"},
        {"training: {max_steps: 9, unfreezing_step: 1, max_epochs: 2, "
         "lr_scheduler_params: {multisteplr: {milestone_steps: [3]}}}\n",
         "training.max_epochs: a training in steps has no keys of epochs"},
        {"training: {max_steps: 9, unfreezing_step: 1}\n", "milestone_steps` is missing"},
        {"training: {unfreezing_step: 1, "
         "lr_scheduler_params: {multisteplr: {milestone_steps: [3]}}}\n",
         "`training.max_steps` is missing"},
        {"training: {max_steps: 9, unfreezing_step: 1, "
         "lr_scheduler_params: {multisteplr: {milestone_steps: [13]}}}\n",
         "milestone_steps 13: behind the end, training.max_steps 9"},
        {"training: {max_epochs: 2, check_val_every_n_epoch: 3}\n",
         "training.check_val_every_n_epoch 3: there is no validation in 2 epochs"},
        {"limit_val_batches: 0\n", "limit_val_batches 0: there is no validation"},
        {"training: {lr_scheduler: cosine}\n", "training.lr_scheduler `cosine`"},
        {"training: {optimizer: Adagrad2}\n", "optim.name `Adagrad2`: expected one of"},
        {"model: {backbone: resnet52}\n", "model.backbone `resnet52`"},
        {"model: {backbone: vits_dino}\n", "data.image_resize_dims.height 128: vits_dino takes"},
        {"model: {backbone: vitb_dino}\ndata.downsample_factor: 3\n",
         "data.downsample_factor 3: vitb_dino takes 1 or 2"},
        {"model: {backbone: vitb_imagenet, model_type: regression}\n",
         "model.backbone vitb_imagenet: model.model_type regression takes networks"},
        {"model: {model_type: heat}\n", "model.model_type `heat`"},
        {"model: {losses_to_use: [temporal], model_type: heatmap_mhcrnn}\n"
         "dali: {context: {train: {batch_size: 4}}}\n",
         "dali.context.train.batch_size 4: a clip has 4 frames without a result"},
        {"model: {model_type: heatmap_mhcrnn}\ndata.downsample_factor: 3\n",
         "data.downsample_factor 3: heatmap_mhcrnn takes 2 alone"},
        {"model: {losses_to_use: [pca_multiview]}\n",
         "model.losses_to_use pca_multiview: it needs data.mirrored_column_matches"},
        {"model: {losses_to_use: [temporal_heatmap_kl], model_type: regression}\n",
         "model.losses_to_use temporal_heatmap_kl: it compares maps"},
        {"model: {losses_to_use: [pca]}\n", "model.losses_to_use pca: expected pca_singleview"},
        {"losses: {temporal: {log_weight: heavy}}\n", "losses.temporal.log_weight `heavy`"},
        {"losses: {temporal: {epsilon: [1, 2, 3]}}\nmodel: {losses_to_use: [temporal]}\n",
         "losses.temporal.epsilon 3: numbers for 2 keypoints"},
        {"losses: {pca_singleview: {components_to_keep: 1.5}}\n", "1.5: expected a count"},
        {"losses: {pca_singleview: {components_to_keep: 99999999999}}\n",
         "99999999999: expected a count"},
        {"training: {imgaug: {Blurr: {p: 1}}}\n", "there is no operation Blurr"},
        {"training: {imgaug_hflip: true}\n", "the other side of `paw_left` is not labelled"},
        {"data.split: b.png\n", "the file is empty"},
        {"data.keypoint_names: [paw_left, tail]\n",
         "data.keypoint_names tail: keypoint 1 of the labels is `nose`"},
        {"data.csv_file: none.csv\n", "./none.csv: there is no such file"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        assert_refused(rules[i][0], rules[i][1]);
    }
}

TEST(all_violations_are_reported_together)
{
    lvni_core_config *c = NULL;
    static const char yaml[] = "data:\n  image_resize_dims: {height: 200, width: 20}\n"
                               "  data_dir: .\n  num_keypoints: 4\n"
                               "training: {train_probs: 1}\n";
    assert_int_equal(read_config(yaml, 0, NULL, &c), LVN_ERR_USAGE);
    const char *message = lvn_last_error()->message;
    static const char *const parts[] = {
        "4 mistakes:", "`training.train_probs`",
        "data.image_resize_dims.height 200: not a multiple of 128; use 128 or 256  (c.yaml:2)",
        "data.image_resize_dims.width 20: not a multiple of 128; use 128  (c.yaml:2)",
        "which counts x and y; a keypoint is one pair of them; use data.num_keypoints=2"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(message, parts[i]) == NULL) {
            fail_msg("`%s` is not in `%s`", parts[i], message);
        }
    }
    lvni_core_config_destroy(c);
}

TEST(what_is_needed)
{
    lvni_core_config *c = NULL;
    assert_int_equal(read_config("", 0, NULL, &c), LVN_ERR_USAGE);
    static const char *const keys[] = {"`data.num_keypoints` is", "`data.data_dir` is",
                                       "`data.image_resize_dims.height` is",
                                       "`data.image_resize_dims.width` is"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        assert_non_null(strstr(lvn_last_error()->message, keys[i]));
    }
    lvni_core_config_destroy(c);
}

/* The example's own file plans for 300 epochs. */
TEST(an_end_on_the_command_line_may_lie_before_the_plan_of_the_file)
{
    static const char *const args[] = {"training.max_epochs=2"};
    lvni_core_config *c =
        read_good("training:\n  max_epochs: 300\n  check_val_every_n_epoch: 10\n"
                  "  lr_scheduler_params: {multisteplr: {milestones: [150, 200, 250]}}\n",
                  1, args);
    assert_int_equal(lvni_core_config_int(c, "check_val_every_n_epoch"), 2);
    lvni_core_config_destroy(c);
}

/* config=DIR/config.yaml repeats a run. */
TEST(what_a_run_saves_holds_the_rules)
{
    static const char *const given[] = {
        "training: {max_epochs: 300, check_val_every_n_epoch: 10, early_stopping: true, "
        "lr_scheduler_params: {multisteplr: {milestones: [150, 200]}}}\n",
        "training: {max_steps: 13, min_steps: 13, unfreezing_step: 4, "
        "lr_scheduler_params: {multisteplr: {milestone_steps: [6, 9]}}}\n"};
    static const char *const args[] = {"training.max_epochs=2"};
    for (int i = 0; i < 2; i++) {
        lvni_core_str text = {0}, twice = {0};
        lvni_core_config *again = NULL, *c = read_good(given[i], 1 - i, args);
        assert_int_equal(lvni_core_config_write_yaml(c, &text), LVN_OK);
        if (read_config(lvni_core_str_text(&text), 0, NULL, &again) != LVN_OK) {
            fail_msg("%s", lvn_last_error()->message);
        }
        assert_int_equal(lvni_core_config_write_yaml(again, &twice), LVN_OK);
        assert_string_equal(lvni_core_str_text(&text), lvni_core_str_text(&twice));
        lvni_core_config_destroy(c);
        lvni_core_config_destroy(again);
        lvni_core_str_free(&text);
        lvni_core_str_free(&twice);
    }
}

TEST(allocations_may_fail)
{
    enum { STEP = 7 };
    char text[1024];
    snprintf(text, sizeof text,
             "%s  keypoint_names: [paw_left, nose]\n  mirrored_column_matches: [[0], [1]]\n"
             "training: {imgaug: {Rotate: &r {p: 0.5}, MotionBlur: *r}}\n"
             "eval: {test_videos_directory: '${data.data_dir}/x'}\n",
             good);
    for (int64_t k = 0;; k += STEP) {
        lvni_core_config *c = NULL;
        assert_int_equal(lvni_core_config_create(tables, &c), LVN_OK);
        (void)lvni_core_alloc_fail_at(k + 1);
        const lvn_status status = load(c, text, 0, NULL);
        const int64_t left = lvni_core_alloc_fail_at(0);
        lvni_core_config_destroy(c);
        if (left > 0) {
            assert_int_equal(status, LVN_OK);
            assert_int_in_range(k, 100, 10000);
            return;
        }
        assert_int_equal(status, LVN_ERR_MEMORY);
    }
}
