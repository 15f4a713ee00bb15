/* What the networks of the zoo share: zoo.c has them and their table, zoo_vit.c the vision
 * transformers, zoo_convnext.c and zoo_efficientnet.c the networks of these names. */
#ifndef LEVIN_NN_ZOO_IMPL_H
#define LEVIN_NN_ZOO_IMPL_H

#include "nn/builder_impl.h"

/* A network in front of its classifier. */
typedef struct lvni_nn_zoo_body {
    lvn_tensor *(*forward)(const lvn_module *m, lvn_tensor *x);
    /* the same with patches masked (lvni_nn_zoo_masked_features), as it is called; NULL: it has no
     * masks */
    lvn_tensor *(*masked)(const lvn_module *m, lvn_tensor *x, lvn_tensor *mask);
    /* of what forward returned: (N, C), and (N, h, w, C); map NULL: there is none */
    lvn_tensor *(*pooled)(const lvn_module *m, lvn_tensor *y);
    lvn_tensor *(*map)(const lvn_module *m, lvn_tensor *y, const lvn_tensor *image);
    /* (N, h, w, n C): the maps of the last n layers, the last one behind; NULL: n is 1 */
    lvn_tensor *(*deep_map)(const lvn_module *m, lvn_tensor *image, int n);
} lvni_nn_zoo_body;

/* What every network begins with. */
typedef struct lvni_nn_zoo_network {
    lvn_module base;
    const lvni_nn_zoo_body *body;
    /* NULL without classes; head_norm, which stands in front of both, in most networks */
    lvn_module *head_norm, *dropout, *head;
} lvni_nn_zoo_network;

/* In build(): dropout and the linear layer `name` behind what is pooled. */
void lvni_nn_zoo_make_head(lvni_nn_zoo_network *m, lvn_builder *b, const char *name,
                           int64_t features);
int lvni_nn_zoo_channels(const lvn_builder *b); /* of the images */
/* Of a body: the mean over positions of a map (N, h, w, C), and the map as it is. */
lvn_tensor *lvni_nn_zoo_mean(const lvn_module *module, lvn_tensor *y);
lvn_tensor *lvni_nn_zoo_last_map(const lvn_module *module, lvn_tensor *y, const lvn_tensor *image);
/* What a layer adds to its input, y (N, ...), times `scale` (NULL: 1), and in training times 0 or 1
 * / (1 - drop) for each image (Huang et al. 2016, "Deep networks with stochastic depth"): a draw of
 * dropout for its row, which follows from seed, step, micro-batch and this layer, wherever it is
 * computed. A module that follows another has all paths. */
lvn_tensor *lvni_nn_zoo_branch(const lvn_module *layer, lvn_tensor *y, lvn_tensor *scale,
                               double drop);
/* The functions of every class: images (N, S, S, 3) -> logits; the mean cross entropy. */
lvn_tensor *lvni_nn_zoo_forward(const lvn_module *module, lvn_tensor *x);
lvn_tensor *lvni_nn_zoo_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step);

/* ---- zoo_vit.c ---- */

/* Whose names, positions and initial values a vision transformer has. */
typedef struct lvni_nn_vit_family {
    const char *class_token, *positions, *patches, *layer;
    const char *norm_1, *qkv_weight, *qkv_bias, *out, *norm_2, *mlp_in, *mlp_out;
    const char *norm, *head;
    int patch;   /* pixels of a side */
    bool glorot; /* initial weights, and zeros in the head; else normal ones */
    bool layer_scale, mask_token;
    double eps;         /* of norms; 0: 1e-6 */
    double token;       /* deviation of the class token's initial values; 0: 1e-6 */
    bool uniform_drop;  /* all layers drop paths alike; else more the deeper they are */
    bool no_classifier; /* in the authors' files */
} lvni_nn_vit_family;

/* A class, as the first member of what its build() needs. */
typedef struct lvni_nn_zoo_vit {
    lvn_module_class base; /* name NULL: behind the last */
    const lvni_nn_vit_family *family;
    int width, heads, registers;
    int layers, mlp_ratio; /* 0: LVNI_ZOO_LAYERS, 4 */
    int grid;              /* patches a side that positions are for; 0: those of image_size */
    bool antialias;        /* positions of other sizes are filtered where they become fewer */
    double offset;         /* of patches, in their scale; 0: the scale of the sizes */
    double drop_path;      /* what model.drop_path=auto means */
    bool published;        /* the name is of weights, which are in a file */
} lvni_nn_zoo_vit;
extern const lvni_nn_zoo_vit lvni_nn_zoo_vits[];

/* ---- zoo_convnext.c ---- */

enum { LVNI_CONVNEXT_STAGES = 4, LVNI_CONVNEXTS = 4 };
enum { LVNI_CONVNEXT_LEAST = 32 }; /* pixels of a side: a stride of 4 and three of 2 */

/* A class, as the first member of what its build() needs. */
typedef struct lvni_nn_zoo_convnext {
    lvn_module_class base;
    int width; /* of the first stage; doubled in each */
    int blocks[LVNI_CONVNEXT_STAGES];
    double drop_path; /* what model.drop_path=auto means */
} lvni_nn_zoo_convnext;
extern const lvni_nn_zoo_convnext lvni_nn_zoo_convnexts[LVNI_CONVNEXTS];

/* ---- zoo_efficientnet.c ---- */

enum { LVNI_EFFICIENTNETS = 3 };

/* A class, as the first member of what its build() needs. */
typedef struct lvni_nn_zoo_efficientnet {
    lvn_module_class base;
    double width, depth; /* factors on the channels and the blocks of b0 */
} lvni_nn_zoo_efficientnet;
extern const lvni_nn_zoo_efficientnet lvni_nn_zoo_efficientnets[LVNI_EFFICIENTNETS];

#endif
