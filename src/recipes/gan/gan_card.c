/* gan's part of the model card (exported.h): the keys of the training. */
#include "recipes/gan/gan.h"

#include "core/alloc.h"

void lvni_gan_card_write(const lvni_run_card *general, const void *own, lvni_core_str *out)
{
    (void)general;
    const lvni_gan_card *card = own;
    lvni_core_str config = {0};
    if (lvni_core_config_to_model_json(card->keys, &config) != LVN_OK) {
        out->failed = true;
    }
    lvni_core_str_printf(out, ",\"config\":%s", lvni_core_str_text(&config));
    lvni_core_str_free(&config);
}

static lvn_status read_keys(const json_t *config, lvni_core_config **out)
{
    LVN_TRY(lvni_run_card_keys(lvni_gan_train_keys, lvni_gan_recipe.defaults.job, config, out));
    return lvni_core_config_finish(*out);
}

lvn_status lvni_gan_card_read(lvni_run_exported *e, const json_t *json)
{
    lvni_gan_card *card = e->own = LVNI_NEW(LVNI_TAG_CONFIG, lvni_gan_card);
    if (card == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(read_keys(json_object_get(json, "config"), &card->own_keys));
    card->keys = card->own_keys;
    LVN_TRY(lvni_gan_read_settings(card->own_keys, &card->settings));
    e->cls = &lvni_gan_class;
    e->arguments = &card->settings;
    return LVN_OK;
}

void lvni_gan_card_free(void *own)
{
    lvni_gan_card *card = own;
    lvni_core_config_destroy(card->own_keys);
    lvni_core_free(card);
}

void lvni_gan_card_summary(const void *own, lvni_core_str *out)
{
    const lvni_nn_rcgan_sizes *s = &((const lvni_gan_card *)own)->settings.sizes;
    lvni_core_str_printf(out, " of %d x %d pixels, %d to %d channels", s->im_size, s->im_size,
                         s->in_chans, s->out_chans);
}
