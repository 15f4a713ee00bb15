/* A run's metrics.jsonl as a chart: rows of any bytes. */
#include "fuzz.h"

#include "core/alloc.h"
#include "core/str.h"
#include "report/chart.h"
#include "report/series.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    lvni_report_metrics metrics = {.n = 0};
    lvni_core_str out = {0};
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        const size_t n = end != NULL ? (size_t)(end - data) - at : size - at;
        CHECK(lvni_report_metrics_add(&metrics, (const char *)data + at, n) == LVN_OK);
        at += n + 1;
    }
    for (int i = 0; i < metrics.n; i++) {
        const lvni_report_chart c = {
            .title = metrics.series[i]->name, .log = i % 2, .line = {metrics.series[i]}, .n = 1};
        lvni_report_chart_write(&c, &out);
        CHECK(metrics.series[i]->n >= 0 && metrics.series[i]->width >= 1);
    }
    CHECK(strstr(lvni_core_str_text(&out), "=nan") == NULL);
    lvni_core_str_free(&out);
    lvni_report_metrics_free(&metrics);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
