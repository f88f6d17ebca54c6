/* Names and default values of the numbers that a simulation can set on a board. */
#include <string.h>

#include "state.h"

static const char *const names[WS_OPTION_COUNT] = {
    [WS_IDLE_W] = "idle_w",
    [WS_IDLE_MIG_W] = "idle_mig_w",
    [WS_PEAK_W] = "peak_w",
    [WS_SENSOR_GAIN] = "sensor_gain",
    [WS_SENSOR_OFFSET_W] = "sensor_offset_w",
    [WS_SENSOR_PERIOD_MS] = "sensor_period_ms",
    [WS_SENSOR_WINDOW_MS] = "sensor_window_ms",
    [WS_AVERAGE_WINDOW_MS] = "average_window_ms",
    [WS_COUNTER_PERIOD_MS] = "counter_period_ms",
    [WS_COUNTER_GAIN] = "counter_gain",
    [WS_COUNTER_RESET_S] = "counter_reset_s",
    [WS_COUNTER_FREEZE_S] = "counter_freeze_s",
    [WS_LOST_S] = "lost_s",
    [WS_PERMISSION] = "permission",
    [WS_MIG_SWITCH] = "mig_switch",
    [WS_SPARSE_INDICES] = "sparse_indices",
    [WS_GI_ID_MODE] = "gi_id_mode",
    [WS_MIG_POWER] = "mig_power",
    [WS_GPU_SCOPE] = "gpu_scope",
    [WS_INDEPENDENT_QUERY] = "independent_query",
    [WS_NAME_DRIFT_GB] = "name_drift_gb",
    [WS_AMBIENT_C] = "ambient_c",
    [WS_HEAT_C_PER_W] = "heat_c_per_w",
    [WS_HEAT_TAU_S] = "heat_tau_s",
    [WS_EVENT_REASONS] = "event_reasons",
};

const char *ws_option_name(unsigned int option) {
    return option < WS_OPTION_COUNT ? names[option] : NULL;
}

int ws_option_index(const char *name) {
    for (unsigned int i = 0; i < WS_OPTION_COUNT; i++)
        if (strcmp(names[i], name) == 0) return (int)i;
    return -1;
}

void ws_default_options(const struct ws_model *m, double *option) {
    for (unsigned int i = 0; i < WS_OPTION_COUNT; i++) option[i] = 0;
    option[WS_IDLE_W] = m->idle_w;
    option[WS_IDLE_MIG_W] = m->idle_mig_w;
    option[WS_PEAK_W] = m->peak_w;
    option[WS_SENSOR_GAIN] = 1;
    option[WS_SENSOR_PERIOD_MS] = m->update_ms;
    option[WS_SENSOR_WINDOW_MS] = m->window_ms;
    option[WS_AVERAGE_WINDOW_MS] = 1000;
    option[WS_COUNTER_PERIOD_MS] = 100;
    option[WS_COUNTER_GAIN] = 1;
    option[WS_PERMISSION] = 2;
    option[WS_GPU_SCOPE] = !m->module_scope;
    option[WS_INDEPENDENT_QUERY] = 1;
    option[WS_AMBIENT_C] = 30;
    /* About 75 degrees at the default limit, reached with a minute's time constant: plausible
     * for air-cooled boards, not a measurement. */
    option[WS_HEAT_C_PER_W] = 45.0 / m->default_limit_w;
    option[WS_HEAT_TAU_S] = 60;
}
