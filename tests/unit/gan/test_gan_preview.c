/* The image of a validation's first measurement: what the hook of previews gives the trainer, and
 * what the ranks of a process share of it. */
#include "recipes/gan/gan_preview.h"

#include "support/test.h"
#include "tensor/tensor.h"

#include <levin/tensor.h>
#include <pthread.h>

enum { SIDE = 4 };

typedef struct shared {
    lvni_gan_preview *preview;
    lvn_tensor *image;
    int64_t sample;
} shared;

static void *take(void *user)
{
    shared *s = user;
    const lvn_batch batch = {.size = 1, .sample = &s->sample};
    lvni_gan_preview_take(s->preview, &batch, s->image, s->image);
    return NULL;
}

static shared make(int64_t sample)
{
    shared s = {.sample = sample, .image = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, SIDE, SIDE, 1))};
    assert_non_null(s.image);
    assert_int_equal(lvni_gan_preview_create(SIDE, &s.preview), LVN_OK);
    return s;
}

static void unmake(const shared *s)
{
    lvni_gan_preview_destroy(s->preview);
    lvn_release(s->image);
}

/* As with an op, the scope has the only reference; without the first sample there is no image. */
TEST(belongs_to_the_scope)
{
    for (int64_t sample = 0; sample < 2; sample++) {
        shared s = make(sample);
        lvni_gan_preview_begin(s.preview);
        (void)take(&s);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *y = lvn_keep(lvni_gan_preview_images(s.preview));
        assert_int_equal(lvn_scope_close(), LVN_OK);
        assert_true((y != NULL) == (sample == 0));
        if (y != NULL) {
            assert_int_equal(atomic_load(&y->refs), 1);
        }
        lvn_release(y);
        unmake(&s);
    }
}

/* Rank 0 begins while another one of its process validates: TSan finds what they share. */
TEST(begins_beside_other_ranks)
{
    shared s = make(5);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, take, &s), 0);
    lvni_gan_preview_begin(s.preview);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_null(lvni_gan_preview_images(s.preview));
    unmake(&s);
}
