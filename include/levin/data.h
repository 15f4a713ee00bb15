/* Datasets: a length and a way to get sample i. A user's own dataset fills a lvn_dataset_class, as
 * the built-in ones do. */
#ifndef LEVIN_DATA_H
#define LEVIN_DATA_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LVN_MAX_FIELDS = 8 };
enum { LVN_MAX_STREAMS = 4 };
enum { LVN_ENDLESS = -1 }; /* the length of a dataset without end */

/* One field of a sample: `image` f32 (H, W, 3), `label` i64 (), or whatever a user's dataset
 * has. */
typedef struct lvn_field {
    const char *name; /* borrowed from the dataset */
    lvn_dtype dtype;
    int ndim;
    int64_t shape[LVN_MAX_NDIM]; /* of one sample; a batch has one axis more in front */
} lvn_field;

/* What the random part of a sample may depend on (never the worker, never the clock:
 * docs/reproducibility.md). */
typedef struct lvn_sample_key {
    uint64_t seed;
    uint32_t epoch;
    int64_t sample; /* index in the dataset's whole sorted list */
    bool training;  /* augment */
} lvn_sample_key;

typedef struct lvn_dataset lvn_dataset;

typedef struct lvn_dataset_class {
    const char *name;
    /* Describe the fields; return how many. Field 0 is the input, field 1 (if any) the target. */
    int (*fields)(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS]);
    /* Samples; LVN_ENDLESS: no length, any sample number from 0 on can be asked for. */
    int64_t (*length)(const lvn_dataset *dataset);
    /* Write field i of sample key->sample to field[i] (the field's bytes). Called from several
     * threads at once. A sample that cannot be read is LVN_ERR_CORRUPT, LVN_ERR_IO,
     * LVN_ERR_NOT_FOUND or LVN_ERR_UNSUPPORTED (an image of a kind that cannot be decoded):
     * `on_error` decides; any other error stops the run. NULL: worker_get is there. */
    lvn_status (*get)(const lvn_dataset *dataset, const lvn_sample_key *key, void *const field[]);
    void (*destroy)(lvn_dataset *dataset);
    /* Optional: what to call sample i in messages and prediction files (a path); NULL: its
     * number. */
    const char *(*sample_name)(const lvn_dataset *dataset, int64_t sample);
    /* Optional: the label of sample i without decoding it (class splits); NULL: unknown. */
    int64_t (*label)(const lvn_dataset *dataset, int64_t sample);
    /* Optional: the whole-list index of position 0 <= i < length, for a dataset that shows a part
     * of a list (the key's `sample`, and what sample_name and label take, is always the index in
     * the whole list); NULL: position i is sample i. */
    int64_t (*index)(const lvn_dataset *dataset, int64_t position);
    /* Optional, all three or none: a state for each loader thread (an open decoder, a buffer),
     * which makes reading faster; what a sample holds must not depend on it, nor on the samples
     * that were read with it before. worker_get is called in place of get, never twice at a time
     * with the same state. The states are made before the loader's threads start and closed after
     * they ended; training and validation have their own. An error of worker_open ends the run. */
    lvn_status (*worker_open)(const lvn_dataset *dataset, void **state);
    void (*worker_close)(const lvn_dataset *dataset, void *state);
    lvn_status (*worker_get)(const lvn_dataset *dataset, void *state, const lvn_sample_key *key,
                             void *const field[]);
} lvn_dataset_class;

/* For what is random in a sample: a number in [0, 1) that depends on the key's seed, epoch and
 * sample, and on `operation` (a number you give each use) and `element` (0, 1, 2, ... within it),
 * on nothing else: not on the thread, not on what was drawn before. With epoch 0 in a copy of the
 * key a sample is the same in every epoch. Thread-safe. */
LVN_API double lvn_sample_uniform(const lvn_sample_key *key, uint32_t operation, uint64_t element);

/* First member of every dataset. */
struct lvn_dataset {
    const lvn_dataset_class *cls;
    int n_classes;                  /* 0: no classification data */
    const char *const *class_names; /* n_classes names, borrowed from the dataset */
    void *reserved[4];
};

/* Destroy any dataset; NULL is fine. */
LVN_API void lvn_dataset_destroy(lvn_dataset *dataset);

/* Which samples of a folder. */
typedef enum lvn_image_part {
    LVN_IMAGES_ALL,   /* of train/ and val/, or of all classes; not those of test/ */
    LVN_IMAGES_TRAIN, /* those of train/; without val/, or flat, four fifths (of each class) */
    LVN_IMAGES_VAL    /* those of val/; else the other fifth, always the same one */
} lvn_image_part;

/* A folder of images (JPEG, PNG) with one sub-folder per class; fields `image` (resize, resize,
 * 3) f32, normalised with the mean and standard deviation of ImageNet, and `label`. Samples are in
 * byte order of their paths, classes in byte order of their names. Sub-folders without an image are
 * no classes. Folders that may be parts or classes are refused (docs/data.md). A training reads the
 * header of each image before its first step and refuses damaged ones (on_error=stop).
 *
 * With `views` a sample is shown several times, each time with random crop, flip and colours of its
 * own: in the fields `image`, `label`, `image2`, `image3`, ... The path builtin:shapes stands for
 * 2000 small images in 6 classes that levin draws itself. */
typedef struct lvn_image_folder_options {
    size_t struct_size; /* sizeof(lvn_image_folder_options) */
    int resize;         /* side of the square images in pixels; 0: 224, of builtin:shapes 32 */
    /* images anywhere below the folder (or one image), whatever its sub-folders are called, also
     * test; no classes, no label */
    bool flat;
    bool no_augment;  /* training samples come as evaluation samples do (docs/data.md); else random
                         resized crop and horizontal flip */
    double min_scale; /* smallest part of an image's area that a random crop keeps; 0: 0.08 */
    /* brightness, contrast and saturation vary by this factor (0.4: between 0.6 and 1.4); 0: not at
     * all */
    double color_jitter;
    double hue;      /* colours turn by up to this part of the circle, at most 0.5; 0: not at all */
    double jitter;   /* probability of what color_jitter and hue do; 0: 1 */
    double grey;     /* probability of an image without colours */
    double blur;     /* probability of a Gaussian blur, deviation 0.1 to 2 pixels */
    double solarize; /* probability that values of the upper half are inverted */
    int views;       /* of each sample, 1 to 7 (without labels 8); 0: 1 */
    lvn_image_part part;
    void *reserved[4];
} lvn_image_folder_options;

/* A new dataset, owned by the caller (lvn_dataset_destroy). NULL, with the thread's error, when the
 * folder is missing, empty, has fewer than two classes, or an option is out of range. options may
 * be NULL. */
LVN_API lvn_dataset *lvn_image_folder_open_with(const char *path,
                                                const lvn_image_folder_options *options);
/* LVN_IMAGE_FOLDER("photos/train", .resize = 32) */
#define LVN_IMAGE_FOLDER(path, ...)                                                                \
    lvn_image_folder_open_with(                                                                    \
        (path),                                                                                    \
        &(lvn_image_folder_options){.struct_size = sizeof(lvn_image_folder_options), __VA_ARGS__})

/* A batch: field i has shape (size, fields[i].shape...). Borrowed until the step function returns.
 * The fields lie on the device that the run computes on: ops read them, the host may not unless it
 * is the CPU (lvn_to_device(t, LVN_CPU) copies). */
typedef struct lvn_batch {
    /* samples; may be smaller than asked when unreadable ones were skipped */
    int64_t size;
    lvn_tensor *image; /* field 0 */
    lvn_tensor *label; /* field 1, or NULL */
    int n_fields;
    lvn_tensor *field[LVN_MAX_FIELDS];
    const int64_t *sample; /* size indices in the whole sorted list */
    /* of the same micro-batch: lvn_batch_stream of levin/nn.h */
    const struct lvn_batch_streams *streams;
} lvn_batch;

/* ---- streams: samples that a training step takes beside those of the training set ---- */

typedef enum lvn_order {
    LVN_ORDER_SHUFFLE,    /* every sample once in a pass, each pass in another order */
    LVN_ORDER_SEQUENCE,   /* by index; the only one of a dataset without length */
    LVN_ORDER_REPLACEMENT /* a pass draws as many samples as there are, each from all of them */
} lvn_order;

/* What an epoch, a pass through the training set, is for the stream. Lightning's CombinedLoader has
 * ONCE as max_size, SHORTENS as min_size, and LENGTHENS for all sets as max_size_cycle. */
typedef enum lvn_stream_rule {
    /* pass after pass, going on in an epoch where the one before left off */
    LVN_STREAM_CYCLE,
    /* a pass in each epoch; steps after its end have no samples of it */
    LVN_STREAM_ONCE,
    /* as CYCLE, and an epoch has no more steps than a pass of the stream */
    LVN_STREAM_SHORTENS,
    /* as CYCLE, and an epoch has no fewer: the training set is passed through again and again */
    LVN_STREAM_LENGTHENS
} lvn_stream_rule;

typedef struct lvn_stream {
    const char *name; /* "clips": lower case letters, digits and '_', at most 23; not twice */
    lvn_dataset *dataset;
    /* Samples of an optimizer step, over all devices and accumulated batches; 0: `ratio` for each
     * sample of the training set's. At least one for each micro-batch: they are cut as the step's
     * other samples are. */
    int64_t batch;
    double ratio; /* 0: 1 */
    lvn_order order;
    lvn_stream_rule rule;
    void *reserved[4];
} lvn_stream;

#ifdef __cplusplus
}
#endif
#endif
