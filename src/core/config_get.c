/* Asking a configuration for its values (config.h): what cannot be answered is a mistake of levin,
 * and ends it. */
#include "core/config_impl.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn static void mistake(const char *name, const char *what)
{
    fprintf(stderr, "levin: internal error: configuration key `%s`: %s\n", name, what);
    abort();
}

static const lvni_core_slot *own_slot(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = lvni_core_config_find(config, name);
    if (slot == NULL) {
        mistake(name, "no table of this command declares it");
    }
    if (slot->row->alias_of != NULL) {
        mistake(name, "is an alias; ask for the row itself");
    }
    return slot;
}

static const lvni_core_value *typed(const lvni_core_config *config, const char *name,
                                    lvni_core_option_type type)
{
    const lvni_core_slot *slot = own_slot(config, name);
    if (slot->row->type != type) {
        mistake(name, "has another type");
    }
    return &slot->value;
}

static const lvni_core_value *set_value(const lvni_core_config *config, const char *name,
                                        lvni_core_option_type type)
{
    const lvni_core_value *value = typed(config, name, type);
    if (!value->set || value->later) {
        mistake(name, "is unset; ask lvni_core_config_is_set first");
    }
    return value;
}

bool lvni_core_config_bool(const lvni_core_config *config, const char *name)
{
    return set_value(config, name, LVNI_OPT_BOOL)->b;
}

int64_t lvni_core_config_int(const lvni_core_config *config, const char *name)
{
    return set_value(config, name, LVNI_OPT_INT)->i;
}

double lvni_core_config_float(const lvni_core_config *config, const char *name)
{
    if (own_slot(config, name)->row->type == LVNI_OPT_INT) {
        return (double)lvni_core_config_int(config, name);
    }
    return set_value(config, name, LVNI_OPT_FLOAT)->f;
}

const char *lvni_core_config_str(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = own_slot(config, name);
    if (slot->row->type != LVNI_OPT_STRING && slot->row->type != LVNI_OPT_PATH &&
        slot->row->type != LVNI_OPT_CHOICE) {
        mistake(name, "has another type");
    }
    return slot->value.text;
}

int lvni_core_config_choice(const lvni_core_config *config, const char *name)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_CHOICE);
    return value->set ? value->choice : -1;
}

const int64_t *lvni_core_config_int_list(const lvni_core_config *config, const char *name,
                                         size_t *n)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_INT_LIST);
    *n = value->n;
    return value->ints;
}

const double *lvni_core_config_float_list(const lvni_core_config *config, const char *name,
                                          size_t *n)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_FLOAT_LIST);
    *n = value->n;
    return value->floats;
}

const char *const *lvni_core_config_str_list(const lvni_core_config *config, const char *name,
                                             size_t *n)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_STRING_LIST);
    *n = value->n;
    return (const char *const *)value->strings;
}

bool lvni_core_config_has(const lvni_core_config *config, const char *name)
{
    return lvni_core_config_find(config, name) != NULL;
}

bool lvni_core_config_is_on(const lvni_core_config *config, const char *name)
{
    return lvni_core_config_has(config, name) && lvni_core_config_bool(config, name);
}

int lvni_core_config_switch(const lvni_core_config *config, const char *name)
{
    return !lvni_core_config_has(config, name) ||
                   lvni_core_config_layer(config, name) == LVNI_LAYER_DEFAULT
               ? -1
               : lvni_core_config_bool(config, name);
}

bool lvni_core_config_is_set(const lvni_core_config *config, const char *name)
{
    return own_slot(config, name)->value.set;
}

lvni_core_layer lvni_core_config_layer(const lvni_core_config *config, const char *name)
{
    return own_slot(config, name)->layer;
}

const char *lvni_core_config_origin(const lvni_core_config *config, const char *name)
{
    return own_slot(config, name)->origin;
}

const char *lvni_core_config_spelled(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = own_slot(config, name);
    return slot->spelled != NULL ? slot->spelled : slot->row->name;
}
