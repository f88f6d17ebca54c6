/* nvmlDeviceGetFieldValues: many values in one call, each with its own return code. */
#include <math.h>
#include <stdio.h>

#include "entry.h"
#include "power.h"
#include "sensors.h"

enum {
    FI_PERF_POLICY_POWER = 74,
    FI_PERF_POLICY_THERMAL = 75,
    FI_PERF_POLICY_LAST = 81,
    FI_MEMORY_TEMP = 82,
    FI_TOTAL_ENERGY = 83,
    FI_IS_RESETLESS_MIG_SUPPORTED = 184,
    FI_POWER_AVERAGE = 185,
    FI_POWER_INSTANT = 186,
    FI_POWER_MIN_LIMIT = 187,
    FI_POWER_MAX_LIMIT = 188,
    FI_POWER_DEFAULT_LIMIT = 189,
    FI_POWER_CURRENT_LIMIT = 190,
    FI_ENERGY = 191,
    FI_POWER_REQUESTED_LIMIT = 192,
    FI_INDEPENDENT_MIG_QUERY = 199,
    FI_SW_THERM_SLOWDOWN = 269,
    FI_HW_THERM_SLOWDOWN = 270,
    FI_HW_POWER_BRAKE = 271,
};
enum { SCOPE_GPU, SCOPE_MODULE, SCOPE_MEMORY };

static void set_uint(nvmlFieldValue_t *v, double value) {
    v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    v->value.ullVal = 0;
    v->value.uiVal = (unsigned int)value;
}

static void set_ull(nvmlFieldValue_t *v, unsigned long long value) {
    v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    v->value.ullVal = value;
}

/* The meter of a Grace-Hopper module answers for the module, all others for the GPU. */
static int scope_answers(const struct ws_call *c, unsigned int scope) {
    if (scope == SCOPE_GPU) return c->board->option[WS_GPU_SCOPE] != 0;
    return scope == SCOPE_MODULE && c->model->module_scope;
}

static nvmlReturn_t power_field(const struct ws_call *c, nvmlFieldValue_t *v, int64_t *at_ns) {
    if (!scope_answers(c, v->scopeId)) return NVML_ERROR_NOT_SUPPORTED;
    switch (v->fieldId) {
    case FI_POWER_AVERAGE:
        if (!c->model->has_average) return NVML_ERROR_NOT_SUPPORTED;
        set_uint(v, ws_sensor_average_w(c->index, c->now_ns, at_ns) * 1e3 + 0.5);
        break;
    case FI_POWER_INSTANT:
        set_uint(v, ws_sensor_instant_w(c->index, c->now_ns, at_ns) * 1e3 + 0.5);
        break;
    case FI_POWER_MIN_LIMIT: set_uint(v, c->model->min_limit_w * 1e3 + 0.5); break;
    case FI_POWER_MAX_LIMIT: set_uint(v, c->model->max_limit_w * 1e3 + 0.5); break;
    case FI_POWER_DEFAULT_LIMIT: set_uint(v, c->model->default_limit_w * 1e3 + 0.5); break;
    case FI_POWER_CURRENT_LIMIT:
    case FI_POWER_REQUESTED_LIMIT: set_uint(v, c->board->limit_w * 1e3 + 0.5); break;
    case FI_ENERGY: set_ull(v, ws_sensor_energy_mj(c->index, c->now_ns, at_ns)); break;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t field(const struct ws_call *c, nvmlFieldValue_t *v, int64_t *at_ns) {
    char name[32];
    snprintf(name, sizeof name, "field:%u", v->fieldId);
    nvmlReturn_t code = ws_value_fault(c, name);
    if (code != NVML_SUCCESS) return code;
    unsigned int f = v->fieldId;
    if (f >= FI_POWER_AVERAGE && f <= FI_POWER_REQUESTED_LIMIT) return power_field(c, v, at_ns);
    if (f >= FI_PERF_POLICY_POWER && f <= FI_PERF_POLICY_LAST) {
        /* Time in violation, in ns */
        set_ull(v, f == FI_PERF_POLICY_POWER
                       ? (unsigned long long)(ws_capped_seconds_at(c->index, c->now_ns) * 1e9)
                       : 0);
        return NVML_SUCCESS;
    }
    switch (f) {
    case FI_TOTAL_ENERGY:
        set_ull(v, ws_sensor_energy_mj(c->index, c->now_ns, at_ns));
        return NVML_SUCCESS;
    case FI_MEMORY_TEMP:
        /* Memory runs a little warmer than the GPU: a plausible number, not a measured one. */
        set_uint(v, lround(ws_temperature_at(c->index, c->now_ns)) + 4);
        return NVML_SUCCESS;
    case FI_IS_RESETLESS_MIG_SUPPORTED:
        set_uint(v, c->model->resetless);
        return NVML_SUCCESS;
    case FI_INDEPENDENT_MIG_QUERY:
        set_uint(v, c->board->option[WS_INDEPENDENT_QUERY]);
        return NVML_SUCCESS;
    case FI_SW_THERM_SLOWDOWN:
    case FI_HW_THERM_SLOWDOWN:
    case FI_HW_POWER_BRAKE:
        set_ull(v, 0);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                                  nvmlFieldValue_t *values) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(values);
    REQUIRE(count > 0, NVML_ERROR_INVALID_ARGUMENT);
    int64_t to_realtime = c.state->created_realtime_ns - c.state->created_ns;
    for (int i = 0; i < count; i++) {
        int64_t at_ns = c.now_ns;
        nvmlFieldValue_t *v = &values[i];
        v->value.ullVal = 0;
        v->latencyUsec = 0;
        v->nvmlReturn = c.is_mig && c.board->option[WS_MIG_POWER] != 1
                            ? NVML_ERROR_NOT_SUPPORTED
                            : field(&c, v, &at_ns);
        v->timestamp = (at_ns + to_realtime) / 1000; /* us since the epoch */
    }
    LEAVE(NVML_SUCCESS);
}
