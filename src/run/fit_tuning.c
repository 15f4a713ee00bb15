/* autotune=true: rank 0 measures which algorithms are the quickest before there is a trainer, and
 * all ranks compute with its choices (fit_impl.h). A run that has choices, such as a resumed one,
 * measures nothing. Called by fit.c. */
#include "run/fit_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "log/run_log.h"
#include "run/options.h"
#include "tensor/device.h"
#include "trainer/identity.h"
#include "trainer/memory.h"

#include <stdio.h>
#include <string.h>

static lvni_tensor_device *device_of(const lvni_run_fit_run *r)
{
    return lvni_tensor_device_of(r->model->weights);
}

/* Also in the checkpoint, whose choices the run has once it is restored. */
static bool has_choices(const lvni_run_fit_run *r)
{
    lvni_core_pin_entries *saved;
    if (lvni_tensor_tuning_of(r->rank.pins, device_of(r)) != NULL) {
        return true;
    }
    if (r->saved == NULL || lvni_core_pin_entries_create(&saved) != LVN_OK) {
        return false;
    }
    const char *text = lvni_ckpt_st_meta_get(r->saved->file, LVNI_IDENTITY_PINS);
    char entry[2 * LVNI_PIN_TEXT];
    while (text != NULL && lvni_core_pin_entries_next(&text, entry)) {
        if (lvni_core_pin_entries_read(saved, entry) != LVN_OK) {
            lvn_clear_error(); /* the restore refuses it */
        }
    }
    const bool has = lvni_tensor_tuning_of(saved, device_of(r)) != NULL;
    lvni_core_pin_entries_destroy(saved);
    return has;
}

/* What cannot be measured is computed as without autotune, by this run and those that resume it. */
static lvn_status measure(lvni_run_fit_run *r)
{
    lvni_trainer_options o;
    int problems, others;
    const uint64_t begin = lvni_core_now_ns();
    LVN_TRY(lvni_run_fit_options(r, &o));
    LVN_TRY(lvni_tensor_tuning_begin(r->rank.pins, device_of(r)));
    const lvn_status s = lvni_trainer_measure_choices(&o, &problems, &others);
    lvni_core_str_clear(&r->json);
    lvni_core_str_clear(&r->card);
    if (s == LVN_ERR_DEVICE_MEMORY || s == LVN_ERR_MEMORY) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "autotune=true: there is no memory to measure a micro-batch of zeros; what "
                      "was not measured by then has the first algorithm, in this run and those "
                      "that resume it; more micro_batches need less: %s",
                      lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    LVN_TRY(s);
    if (problems == 0) {
        lvni_log_line(LVNI_LOG_INFO,
                      "autotune=true has no effect: %s has one algorithm for each problem of this "
                      "run",
                      lvni_tensor_device_name(device_of(r)));
        return LVN_OK;
    }
    lvni_log_line(
        LVNI_LOG_INFO,
        "autotune=true: on %s, %d problem%s measured in %.1f s, %d with another algorithm "
        "than the first; the same bits elsewhere: with the pins of config.yaml, too",
        lvni_tensor_device_name(device_of(r)), problems, lvni_core_plural(problems, "", "s"),
        lvni_core_seconds_since(begin), others);
    return LVN_OK;
}

/* Checkpoints of this start, and config.yaml, have them from the beginning. */
static lvn_status keep(const lvni_run_fit_run *r, const char *text)
{
    lvni_core_str list = {0};
    lvni_core_str_append(&list, "[");
    for (const char *at = text; *at != '\0'; at++) {
        lvni_core_str_append_n(&list, *at == ' ' ? "," : at, 1);
    }
    lvni_core_str_append(&list, "]");
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&list));
    s = lvni_core_config_set(r->request->config, "pins", lvni_core_str_text(&list),
                             "measured at start");
done:
    lvni_core_str_free(&list);
    return s;
}

/* text: those of rank 0 alone at first. */
static lvn_status share(const lvni_run_fit_run *r, lvni_core_str *text)
{
    uint64_t n = text->len;
    LVN_TRY(lvni_dist_comm_broadcast(r->rank.comm, &n, sizeof n, 0));
    char *all = n == 0 ? NULL : lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)n + 1, 1);
    if (n == 0 || all == NULL) {
        return n == 0 ? LVN_OK : LVN_ERR_MEMORY;
    }
    memcpy(all, lvni_core_str_text(text), r->rank.rank == 0 ? (size_t)n : 0);
    lvn_status s;
    const char *at = all;
    char entry[2 * LVNI_PIN_TEXT];
    LVNI_TRY_DONE(s, lvni_dist_comm_broadcast(r->rank.comm, all, (size_t)n, 0));
    while (lvni_core_pin_entries_next(&at, entry)) {
        LVNI_TRY_DONE(s, lvni_core_pin_entries_read(r->rank.pins, entry));
    }
done:
    lvni_core_free(all);
    return s;
}

static lvn_status measure_and_print(lvni_run_fit_run *r, lvni_core_str *text)
{
    if (has_choices(r)) {
        lvni_log_line(LVNI_LOG_INFO, "autotune=true: the %s has choices, so nothing is measured%s",
                      r->saved != NULL ? "run" : "configuration",
                      r->saved != NULL ? "" : "; pins=null measures again");
        return LVN_OK;
    }
    LVN_TRY(measure(r));
    lvni_core_pin_entries_print(r->rank.pins, " ", text);
    LVN_TRY(lvni_core_str_status(text));
    return keep(r, lvni_core_str_text(text));
}

lvn_status lvni_run_fit_autotune(lvni_run_fit_run *r)
{
    if (!lvni_core_config_bool(r->request->config, "autotune")) {
        return LVN_OK;
    }
    if (device_of(r) == NULL) {
        if (r->rank.rank == 0) {
            lvni_log_line(LVNI_LOG_INFO, "autotune=true has no effect on the CPU");
        }
        return LVN_OK;
    }
    lvni_core_str text = {0};
    /* until all wait, others read the configuration */
    lvn_status s;
    LVNI_TRY_DONE(s, r->rank.world > 1 ? lvni_dist_comm_barrier(r->rank.comm) : LVN_OK);
    LVNI_TRY_DONE(s, r->rank.rank == 0 ? measure_and_print(r, &text) : LVN_OK);
    s = r->rank.world > 1 ? share(r, &text) : LVN_OK;
done:
    lvni_core_str_free(&text);
    return s;
}

void lvni_run_fit_print_tuning(const lvni_run_fit_run *r)
{
    if (lvni_core_config_bool(r->request->config, "autotune") && device_of(r) != NULL &&
        !has_choices(r)) {
        printf("autotune=true: the run measures algorithms before its first step and records them "
               "as pins; reproducing it needs these pins\n");
    }
}

/* What any backend's choices were measured on, by their entry; false: there are none. */
static bool find_origin(lvni_core_pin_entries *pins, char origin[2 * LVNI_PIN_TEXT])
{
    static const char key[] = ".autotune=";
    lvni_core_str list = {0};
    char entry[2 * LVNI_PIN_TEXT];
    bool found = false;
    lvni_core_pin_entries_print(pins, " ", &list);
    const char *at = lvni_core_str_text(&list);
    while (!found && lvni_core_pin_entries_next(&at, entry)) {
        const char *value = strstr(entry, key);
        found = value != NULL;
        snprintf(origin, 2 * LVNI_PIN_TEXT, "%s", found ? value + sizeof key - 1 : "");
    }
    lvni_core_str_free(&list);
    return found;
}

void lvni_run_fit_check_choices(const lvni_run_fit_run *r)
{
    lvni_core_pin_entries *pins = r->rank.pins;
    char origin[2 * LVNI_PIN_TEXT];
    if (r->rank.rank > 0) {
        return;
    }
    if (device_of(r) == NULL && find_origin(pins, origin)) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "reproducibility off: the choices of autotune are those of %s, and this run "
                      "computes on the CPU, without them",
                      origin);
    }
    if (lvni_tensor_tuning_foreign(pins, device_of(r))) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "reproducibility off: the choices of autotune are those of %s, and %s is %s: "
                      "each problem is computed with its first algorithm",
                      lvni_tensor_tuning_of(pins, device_of(r)),
                      lvni_tensor_device_name(device_of(r)),
                      lvni_tensor_device_info(device_of(r))->fingerprint);
    }
}
