/* The U-Net: sizes of its result, widths, what it refuses; and the layer that goes up. Values are
 * compared with PyTorch in tests/golden. */
#include "kernels/kernels.h"
#include "nn/model.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct arguments {
    int in, out;
    lvn_nn_unet_options options;
} arguments;

typedef struct net {
    lvn_module base;
    lvn_module *unet;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    const arguments *a = lvn_builder_arguments(b);
    ((net *)module)->unet = lvn_nn_unet_with(b, "unet", a->in, a->out, &a->options);
    return lvn_builder_status(b);
}

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_forward(((const net *)module)->unet, x);
}

static const lvn_module_class net_class = {
    .name = "net", .size = sizeof(net), .build = net_build, .forward = net_forward};

static lvni_nn_model *make(int in, int out, lvn_nn_unet_options options)
{
    lvni_nn_model *m;
    options.struct_size = sizeof options;
    const arguments a = {.in = in, .out = out, .options = options};
    assert_int_equal(lvni_nn_model_build_empty(&net_class, &a, &m), LVN_OK);
    return m;
}

static const lvni_nn_parameter *find(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return &m->parameters[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

TEST(result_has_the_images_size)
{
    static const struct {
        bool bilinear;
        int depth, height, width;
    } cases[] = {{false, 1, 6, 4}, {false, 3, 8, 24}, {true, 2, 7, 9}, {true, 3, 8, 13}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lvni_nn_model *m =
            make(2, 5,
                 (lvn_nn_unet_options){
                     .width = 4, .depth = cases[i].depth, .bilinear = cases[i].bilinear});
        lvn_tensor *x =
            lvn_tensor_create(LVN_F32, LVN_SHAPE(3, cases[i].height, cases[i].width, 2));
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const lvn_tensor *y = lvn_forward(m->root, x);
        assert_int_equal(lvn_ndim(y), 4);
        assert_int_equal(lvn_size(y, 0), 3);
        assert_int_equal(lvn_size(y, 1), cases[i].height);
        assert_int_equal(lvn_size(y, 2), cases[i].width);
        assert_int_equal(lvn_size(y, 3), 5);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(x);
        lvni_nn_model_destroy(m);
    }
}

TEST(widths_are_those_of_the_paper)
{
    lvni_nn_model *m = make(1, 2, (lvn_nn_unet_options){0});
    assert_int_equal(find(m, "unet.down0.conv1.weight")->tensor->shape[0], 64);
    assert_int_equal(find(m, "unet.down4.conv2.weight")->tensor->shape[0], 1024);
    /* (1024, 2, 2, 512) here, (1024, 512, 2, 2) in files */
    const lvni_nn_parameter *up = find(m, "unet.up3.weight");
    int64_t shape[LVN_MAX_NDIM];
    assert_int_equal(lvni_nn_parameter_file_shape(up, shape), 4);
    assert_memory_equal(shape, ((const int64_t[]){1024, 512, 2, 2}), 4 * sizeof *shape);
    /* PyTorch's fan in */
    assert_true(up->init == LVN_INIT_UNIFORM && fabs(up->bound - 1.0 / sqrt(512.0 * 4)) < 1e-12);
    assert_int_equal(lvni_nn_model_count(m),
                     31036546); /* 31030658 of Ronneberger's with batch norm and padding, in which
                                 * the 18 convolutions have no bias (-5888) and a weight and bias
                                 * per channel of batch norm (+11776) */
    static const char *const blocks[] = {"down0", "down1", "down2", "down3", "down4",
                                         "up3",   "up2",   "up1",   "up0",   "head"};
    assert_int_equal(m->n_blocks, 10);
    for (int i = 0; i < 10; i++) { /* an up and its merge are one */
        const lvni_nn_block *have = &m->blocks[i];
        assert_string_equal(have->name + strlen("unet."), blocks[i]);
        assert_memory_equal(m->parameters[have->first].name, have->name, strlen(have->name));
    }
    lvni_nn_model_destroy(m);
}

TEST(what_is_refused)
{
    lvni_nn_model *m;
    const arguments wrong[] = {{0, 1, {0}},
                               {3, 0, {0}},
                               {3, 1, {.depth = 8}},
                               {3, 1, {.depth = -1}},
                               {3, 1, {.width = -4}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        arguments a = wrong[i];
        a.options.struct_size = sizeof a.options;
        assert_int_equal(lvni_nn_model_build_empty(&net_class, &a, &m), LVN_ERR_INVALID);
        assert_non_null(strstr(lvn_last_error()->message, "unet: a U-Net from"));
    }
    m = make(3, 1, (lvn_nn_unet_options){.width = 2, .depth = 2});
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, 8, 10, 3));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_forward(m->root, x));
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_non_null(
        strstr(lvn_last_error()->message,
               "8 x 10 cannot be halved 2 times: height and width must be multiples of 4"));
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
