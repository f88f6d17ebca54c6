/*
 * GPU performance monitoring (Hopper and later): utilisation between two samples, of the board or
 * of one GPU instance.
 */
#include <stdlib.h>

#include "entry.h"
#include "instances.h"

struct ws_gpm_sample {
    int valid;
    unsigned int board;
    uint64_t gi_serial; /* 0: the whole board */
    int64_t t_ns;
    double activity_s;
};

enum { METRIC_GRAPHICS_UTIL = 1, METRIC_SM_UTIL = 2, METRIC_SM_OCCUPANCY = 3,
       METRIC_ANY_TENSOR_UTIL = 5, METRIC_DRAM_BW_UTIL = 10, METRIC_PCIE_TX = 20,
       METRIC_PCIE_RX = 21, METRIC_MAX = 477 };

#define GPM_VERSION 1u /* these structures carry a plain number, not a version word */

NVML_EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(support);
    REQUIRE(support->version == GPM_VERSION, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    support->isSupportedDevice = c.model->gpm;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    ENTER_SYSTEM();
    NOT_NULL(sample);
    *sample = calloc(1, sizeof **sample);
    LEAVE(*sample ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    ENTER_SYSTEM();
    NOT_NULL(sample);
    free(sample);
    LEAVE(NVML_SUCCESS);
}

static void take(const struct ws_call *c, const struct ws_gi *gi, nvmlGpmSample_t sample) {
    double integral = gi ? gi->activity_integral : c->board->activity_integral;
    double activity = gi ? gi->activity : c->board->activity;
    *sample = (struct ws_gpm_sample){
        1, c->index, gi ? gi->serial : 0, c->now_ns,
        integral + activity * (double)(c->now_ns - c->board->activity_ns) * 1e-9 };
}

NVML_EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(sample);
    REQUIRE(c.model->gpm, NVML_ERROR_NOT_SUPPORTED);
    take(&c, c.is_mig ? c.gi : NULL, sample);
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi_id,
                                             nvmlGpmSample_t sample) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(sample);
    REQUIRE(c.model->gpm && c.board->mig_current, NVML_ERROR_NOT_SUPPORTED);
    struct ws_gi *gi = ws_gi_by_id(c.board, gi_id);
    REQUIRE(gi, NVML_ERROR_NOT_FOUND);
    int has_ci = 0;
    for (unsigned int i = 0; i < WS_MAX_CI; i++) has_ci |= gi->ci[i].serial != 0;
    REQUIRE(has_ci, NVML_ERROR_NO_DATA);
    take(&c, gi, sample);
    LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t metric(unsigned int id, double activity, nvmlGpmMetric_t *m) {
    static const struct { unsigned int id; double scale; char *name, *unit; } known[] = {
        /* Only the first two follow from the simulated activity; the rest are fixed shares. */
        { METRIC_GRAPHICS_UTIL, 100, "graphics_util", "%" },
        { METRIC_SM_UTIL, 100, "sm_util", "%" },
        { METRIC_SM_OCCUPANCY, 50, "sm_occupancy", "%" },
        { METRIC_ANY_TENSOR_UTIL, 40, "any_tensor_util", "%" },
        { METRIC_DRAM_BW_UTIL, 50, "dram_bw_util", "%" },
        { METRIC_PCIE_TX, 100, "pcie_tx_per_sec", "MiB/s" },
        { METRIC_PCIE_RX, 100, "pcie_rx_per_sec", "MiB/s" },
    };
    m->value = 0;
    for (unsigned int i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].id == id) {
            m->value = activity * known[i].scale;
            m->metricInfo.shortName = m->metricInfo.longName = known[i].name;
            m->metricInfo.unit = known[i].unit;
            return NVML_SUCCESS;
        }
    return id >= 1 && id < METRIC_MAX ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    ENTER_SYSTEM();
    NOT_NULL(get);
    REQUIRE(get->version == GPM_VERSION, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(get->sample1 && get->sample2 && get->numMetrics > 0 && get->numMetrics <= METRIC_MAX,
            NVML_ERROR_INVALID_ARGUMENT);
    const struct ws_gpm_sample *a = get->sample1, *b = get->sample2;
    REQUIRE(a->valid && b->valid && b->t_ns > a->t_ns && a->board == b->board &&
                a->gi_serial == b->gi_serial,
            NVML_ERROR_INVALID_ARGUMENT);
    double dt_s = (double)(b->t_ns - a->t_ns) * 1e-9;
    /* Documented: samples at least 100 ms apart. */
    for (unsigned int i = 0; i < get->numMetrics; i++)
        get->metrics[i].nvmlReturn =
            dt_s < 0.1 ? NVML_ERROR_NO_DATA
                       : metric(get->metrics[i].metricId, (b->activity_s - a->activity_s) / dt_s,
                                &get->metrics[i]);
    LEAVE(NVML_SUCCESS);
}
