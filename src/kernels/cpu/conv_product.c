/* Convolutions as matrix products (conv_product.h). Which shapes gain was measured conv by conv
 * (docs/performance.md). */
#include "kernels/cpu/conv_product.h"

#include "kernels/cpu/conv_columns.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

/* Elements of columns at a time: as many images as fit, at least one. Fixed: results depend on it,
 * since it cuts the product. Few channels, whose sums are short, stay in the caches of a few cores.
 * A weight gradient has its columns all at once. */
enum {
    BLOCK = 1 << 22,
    FEW_BLOCK = 1 << 20,
    WEIGHT_COLUMNS = 1 << 24,
    FEW_CHANNELS = 4,
    MANY_CHANNELS = 32
};

static lvni_cpu_conv_columns columns_of(const lvni_cpu_conv_call *c)
{
    return (lvni_cpu_conv_columns){.attr = c->attr,
                                   .h = c->x->shape[1],
                                   .w = c->x->shape[2],
                                   .c = c->x->shape[3],
                                   .oh = c->y->shape[1],
                                   .ow = c->y->shape[2],
                                   .kh = c->w->shape[1],
                                   .kw = c->w->shape[2]};
}

static bool strided(const lvn_conv_attr *a)
{
    return a->stride[0] > 1 || a->stride[1] > 1;
}

/* One pixel under each window: its column is the pixel. */
static bool pointwise(const lvni_cpu_conv_call *c)
{
    return c->w->shape[1] == 1 && c->w->shape[2] == 1 && c->attr->padding[0] == 0 &&
           c->attr->padding[1] == 0;
}

/* The images are the columns. */
static bool is_view(const lvni_cpu_conv_call *c)
{
    return pointwise(c) && !strided(c->attr);
}

static bool low(const lvni_cpu_conv_call *c)
{
    return c->x->dtype == LVN_BF16;
}

static int64_t windows_of(const lvni_cpu_conv_call *c)
{
    return c->y->shape[1] * c->y->shape[2];
}

static int64_t width_of(const lvni_cpu_conv_call *c)
{
    return c->w->shape[1] * c->w->shape[2] * c->w->shape[3];
}

/* The products know bf16 with weights in bf16 or f32 that become it, and all in f32; columns want
 * windows without holes in a row. */
static bool possible(const lvni_cpu_conv_call *c)
{
    return c->attr->groups == 1 && c->attr->dilation[1] == 1 && (low(c) || c->x->dtype == LVN_F32);
}

static bool many_channels(const lvni_cpu_conv_call *c)
{
    return possible(c) && c->x->shape[3] >= MANY_CHANNELS && c->y->shape[3] >= MANY_CHANNELS;
}

bool lvni_cpu_conv_product_forward_pays(const lvni_cpu_conv_call *c)
{
    return many_channels(c) && windows_of(c) <= 16;
}

bool lvni_cpu_conv_product_grad_input_pays(const lvni_cpu_conv_call *c)
{
    if (possible(c) && !low(c) && c->x->shape[3] <= FEW_CHANNELS &&
        c->w->shape[1] * c->w->shape[2] > 1) {
        return true;
    }
    if (!many_channels(c) || pointwise(c)) {
        return many_channels(c);
    }
    return strided(c->attr) ? windows_of(c) <= (low(c) ? 256 : 16) : low(c) && windows_of(c) <= 16;
}

bool lvni_cpu_conv_product_grad_weight_pays(const lvni_cpu_conv_call *c)
{
    if (!many_channels(c) || c->y->shape[0] * windows_of(c) * width_of(c) > WEIGHT_COLUMNS) {
        return false;
    }
    if (low(c)) {
        return pointwise(c) || windows_of(c) <= 64 || (strided(c->attr) && windows_of(c) <= 256);
    }
    return pointwise(c) ? strided(c->attr) || windows_of(c) <= 256
                        : windows_of(c) <= (strided(c->attr) ? 16 : 4);
}

static void *at(const lvn_tensor *t, int64_t element)
{
    return (char *)t->data + element * (int64_t)lvn_dtype_size(t->dtype);
}

static lvn_tensor matrix(void *data, lvn_dtype type, int64_t rows, int64_t columns)
{
    return (lvn_tensor){
        .dtype = type, .ndim = 2, .param = -1, .shape = {rows, columns}, .data = data};
}

/* w (O, KH KW I): the parameter it was, so that its copies are shared. Field by field: another lane
 * may be counting references to it. */
static lvn_tensor weight_matrix(const lvni_cpu_conv_call *c)
{
    const lvn_tensor *w = c->w;
    return (lvn_tensor){.dtype = w->dtype,
                        .ndim = 2,
                        .param = w->param,
                        .shape = {w->shape[0], width_of(c)},
                        .data = w->data,
                        .storage = w->storage,
                        .id = w->id,
                        .version = w->version};
}

/* How many images at a time. */
static int64_t block_of(const lvni_cpu_conv_call *c)
{
    const int64_t image = windows_of(c) * width_of(c), all = c->y->shape[0];
    const int64_t fit = (c->x->shape[3] <= FEW_CHANNELS ? FEW_BLOCK : BLOCK) / image;
    return fit < 1 ? 1 : fit < all ? fit : all;
}

static lvn_status forward_block(const lvni_cpu_conv_call *c, int64_t first, int64_t images,
                                void *columns)
{
    const lvni_cpu_conv_columns shape = columns_of(c);
    const int64_t rows = images * windows_of(c), pixels = shape.h * shape.w * shape.c;
    void *x = at(c->x, first * pixels);
    if (!is_view(c)) {
        lvni_cpu_conv_columns_cut(&shape, x, columns, images, (int64_t)lvn_dtype_size(c->x->dtype));
    }
    const lvn_tensor a = matrix(is_view(c) ? x : columns, c->x->dtype, rows, width_of(c)),
                     w = weight_matrix(c);
    lvn_tensor y =
        matrix(at(c->y, first * windows_of(c) * c->y->shape[3]), c->y->dtype, rows, c->y->shape[3]);
    return lvni_cpu_linear(&(lvn_kernel_args){.in = {&a, &w, c->b}, .out = {&y}});
}

lvn_status lvni_cpu_conv_product_forward(const lvni_cpu_conv_call *c)
{
    const int64_t block = is_view(c) ? c->y->shape[0] : block_of(c);
    void *columns = NULL;
    if (!is_view(c)) {
        columns =
            lvni_cpu_scratch(LVNI_SCRATCH_COLUMNS, (size_t)(block * windows_of(c) * width_of(c)) *
                                                       lvn_dtype_size(c->x->dtype));
        if (columns == NULL) {
            return lvn_last_error()->code;
        }
    }
    for (int64_t first = 0; first < c->y->shape[0]; first += block) {
        const int64_t left = c->y->shape[0] - first;
        LVN_TRY(forward_block(c, first, left < block ? left : block, columns));
    }
    return LVN_OK;
}

/* out (rows, KH KW I) = dy (rows, O) w (O, KH KW I) for the images from `first` on */
static lvn_status columns_of_gradient(const lvni_cpu_conv_call *c, int64_t first, int64_t images,
                                      lvn_dtype type, void *out)
{
    const int64_t rows = images * windows_of(c), o = c->y->shape[3];
    const lvn_tensor dy = matrix(at(c->y, first * windows_of(c) * o), c->y->dtype, rows, o),
                     w = weight_matrix(c);
    lvn_tensor columns = matrix(out, type, rows, width_of(c));
    return lvni_cpu_matmul(&(lvn_kernel_args){
        .in = {&dy, &w}, .out = {&columns}, .attr = &(lvn_matmul_attr){.trans_a = false}});
}

lvn_status lvni_cpu_conv_product_grad_input(const lvni_cpu_conv_call *c)
{
    if (is_view(c)) {
        return columns_of_gradient(c, 0, c->y->shape[0], c->x->dtype, c->x->data);
    }
    const lvni_cpu_conv_columns shape = columns_of(c);
    const int64_t block = block_of(c), cut = block * windows_of(c) * width_of(c),
                  pixels = shape.h * shape.w * shape.c;
    float *columns = lvni_cpu_scratch(
        LVNI_SCRATCH_COLUMNS, (size_t)(cut + (low(c) ? block * pixels : 0)) * sizeof *columns);
    if (columns == NULL) {
        return lvn_last_error()->code;
    }
    for (int64_t first = 0; first < c->y->shape[0]; first += block) {
        const int64_t left = c->y->shape[0] - first, images = left < block ? left : block;
        LVN_TRY(columns_of_gradient(c, first, images, LVN_F32, columns));
        lvni_cpu_conv_columns_add(&shape, columns, at(c->x, first * pixels), images, low(c),
                                  columns + cut);
    }
    return LVN_OK;
}

/* dw of the images from `first` on; columns: room for their windows, unless the images are that. */
static lvn_status grad_weight_block(const lvni_cpu_conv_call *c, int64_t first, int64_t images,
                                    void *columns, lvn_tensor *dw)
{
    const int64_t rows = images * windows_of(c), o = c->y->shape[3];
    const lvni_cpu_conv_columns shape = columns_of(c);
    void *x = at(c->x, first * shape.h * shape.w * shape.c);
    if (!is_view(c)) {
        lvni_cpu_conv_columns_cut(&shape, x, columns, images, (int64_t)lvn_dtype_size(c->x->dtype));
    }
    const lvn_tensor dy = matrix(at(c->y, first * windows_of(c) * o), c->y->dtype, rows, o),
                     cut = matrix(is_view(c) ? x : columns, c->x->dtype, rows, width_of(c));
    return lvni_cpu_matmul(&(lvn_kernel_args){
        .in = {&dy, &cut}, .out = {dw}, .attr = &(lvn_matmul_attr){.trans_a = true}});
}

lvn_status lvni_cpu_conv_product_grad_weight(const lvni_cpu_conv_call *c)
{
    const int64_t images = c->y->shape[0];
    void *columns = NULL;
    if (!is_view(c)) {
        columns =
            lvni_cpu_scratch(LVNI_SCRATCH_COLUMNS, (size_t)(images * windows_of(c) * width_of(c)) *
                                                       lvn_dtype_size(c->x->dtype));
        if (columns == NULL) {
            return lvn_last_error()->code;
        }
    }
    lvn_tensor dw = weight_matrix(c);
    return grad_weight_block(c, 0, images, columns, &dw);
}

/* Part sums of blocks of images are added in their order. */
lvn_status lvni_cpu_conv_product_grad_weight_in_blocks(const lvni_cpu_conv_call *c)
{
    const int64_t block = block_of(c), images = c->y->shape[0], cut = windows_of(c) * width_of(c),
                  weights = lvn_numel(c->w);
    if (block >= images) {
        return lvni_cpu_conv_product_grad_weight(c);
    }
    float *columns =
        lvni_cpu_scratch(LVNI_SCRATCH_COLUMNS, (size_t)(block * cut + weights) * sizeof *columns);
    if (columns == NULL) {
        return lvn_last_error()->code;
    }
    lvn_tensor dw = weight_matrix(c), part = dw;
    part.data = columns + block * cut;
    for (int64_t first = 0; first < images; first += block) {
        const int64_t left = images - first;
        LVN_TRY(grad_weight_block(c, first, left < block ? left : block, columns,
                                  first == 0 ? &dw : &part));
        if (first > 0 && !lvni_tensor_device_dry_run()) {
            lvni_cpu_isa()->accumulate(c->w->data, part.data, weights);
        }
    }
    return LVN_OK;
}
