/* Power, energy, limits, clocks, temperature, utilisation: all of the board, none of an instance. */
#include <math.h>

#include "entry.h"
#include "power.h"
#include "sensors.h"

/* ---- power --------------------------------------------------------------------------------- */

GETTER(nvmlDeviceGetPowerUsage, WS_WANT_METER, unsigned int,
              ws_sensor_plain_w(c.index, c.now_ns) * 1e3 + 0.5)
GETTER(nvmlDeviceGetPowerManagementLimit, WS_WANT_METER, unsigned int, c.board->limit_w * 1e3 + 0.5)
GETTER(nvmlDeviceGetEnforcedPowerLimit, WS_WANT_METER, unsigned int, c.board->limit_w * 1e3 + 0.5)
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, WS_WANT_METER, unsigned int,
              c.model->default_limit_w * 1e3 + 0.5)
GETTER(nvmlDeviceGetPowerManagementMode, WS_WANT_METER, unsigned int, 1)
GETTER(nvmlDeviceGetPowerState, WS_WANT_METER, unsigned int, 0)
GETTER(nvmlDeviceGetPerformanceState, WS_WANT_METER, unsigned int, 0)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                                      unsigned int *low,
                                                                      unsigned int *high) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(low);
    NOT_NULL(high);
    *low = (unsigned int)(c.model->min_limit_w * 1e3);
    *high = (unsigned int)(c.model->max_limit_w * 1e3);
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device,
                                                           unsigned int limit_mw) {
    ENTER(device, WS_WANT_GPU);
    REQUIRE(c.board->option[WS_PERMISSION] >= 2, NVML_ERROR_NO_PERMISSION);
    REQUIRE(limit_mw >= c.model->min_limit_w * 1e3 && limit_mw <= c.model->max_limit_w * 1e3,
            NVML_ERROR_INVALID_ARGUMENT);
    ws_change_begin(c.index);
    c.board->limit_w = limit_mw * 1e-3;
    ws_power_relimit(c.index, c.now_ns);
    ws_change_end(c.index);
    LEAVE(NVML_SUCCESS);
}

GETTER(nvmlDeviceGetTotalEnergyConsumption, WS_WANT_METER, unsigned long long,
       ws_sensor_energy_mj(c.index, c.now_ns, NULL))

/* The driver keeps the last readings in a ring; 120 of them at the sensor's period here. */
#define RING 120

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type,
                                              unsigned long long last_seen,
                                              unsigned int *value_type, unsigned int *count,
                                              nvmlSample_t *samples) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(value_type);
    NOT_NULL(count);
    REQUIRE(type <= 9, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(type == 0, NVML_ERROR_NOT_SUPPORTED); /* board power only */
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) { /* asks how many there may be */
        *count = RING;
        LEAVE(NVML_SUCCESS);
    }
    int64_t period = (int64_t)(c.board->option[WS_SENSOR_PERIOD_MS] * 1e6), at;
    if (period < 1000000) period = 1000000;
    int64_t to_realtime = c.state->created_realtime_ns - c.state->created_ns;
    unsigned int n = 0, room = *count;
    ws_sensor_instant_w(c.index, c.now_ns, &at);
    for (int i = RING - 1; i >= 0; i--) {
        int64_t t = at - i * period;
        unsigned long long stamp = (unsigned long long)((t + to_realtime) / 1000);
        if (stamp <= last_seen) continue;
        if (n == room) LEAVE(NVML_ERROR_INSUFFICIENT_SIZE);
        samples[n].timeStamp = stamp;
        samples[n].sampleValue.ullVal = 0;
        samples[n++].sampleValue.uiVal =
            (unsigned int)(ws_sensor_instant_w(c.index, t, NULL) * 1e3 + 0.5);
    }
    *count = n;
    LEAVE(n ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy,
                                                      nvmlViolationTime_t *time) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(time);
    REQUIRE(policy <= 5 || policy == 10 || policy == 11, NVML_ERROR_INVALID_ARGUMENT);
    time->referenceTime =
        (unsigned long long)((c.now_ns + c.state->created_realtime_ns - c.state->created_ns) /
                             1000);
    time->violationTime =
        policy == 0 ? (unsigned long long)(ws_capped_seconds_at(c.index, c.now_ns) * 1e9) : 0;
    LEAVE(NVML_SUCCESS);
}

/* ---- clocks -------------------------------------------------------------------------------- */

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO, CLOCK_TYPES };

static unsigned int clock_now(const struct ws_call *c, unsigned int type) {
    return type == CLOCK_MEMORY ? c->model->mem_mhz : ws_sm_clock_mhz(c->index, c->now_ns);
}

static unsigned int clock_max(const struct ws_call *c, unsigned int type) {
    return type == CLOCK_MEMORY ? c->model->mem_mhz : c->model->sm_mhz;
}

#define CLOCK_GETTER(function, clock) \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int type, unsigned int *mhz) { \
        ENTER(device, WS_WANT_METER); \
        NOT_NULL(mhz); \
        REQUIRE(type < CLOCK_TYPES, NVML_ERROR_INVALID_ARGUMENT); \
        *mhz = clock(&c, type); \
        LEAVE(NVML_SUCCESS); \
    }
CLOCK_GETTER(nvmlDeviceGetClockInfo, clock_now)
CLOCK_GETTER(nvmlDeviceGetMaxClockInfo, clock_max)
CLOCK_GETTER(nvmlDeviceGetApplicationsClock, clock_max)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type,
                                            unsigned int id, unsigned int *mhz) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(mhz);
    REQUIRE(type < CLOCK_TYPES && id <= 3, NVML_ERROR_INVALID_ARGUMENT);
    *mhz = id == 0 ? clock_now(&c, type) : clock_max(&c, type);
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            unsigned int *mhz) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(count);
    if (*count < 1 || !mhz) {
        *count = 1;
        LEAVE(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    *count = 1;
    mhz[0] = c.model->mem_mhz;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device,
                                                              unsigned int memory_mhz,
                                                              unsigned int *count,
                                                              unsigned int *mhz) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(count);
    REQUIRE(memory_mhz == c.model->mem_mhz, NVML_ERROR_NOT_FOUND);
    unsigned int n = (c.model->sm_mhz - c.model->idle_mhz) / 15 + 1;
    if (*count < n || !mhz) {
        *count = n;
        LEAVE(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    *count = n;
    for (unsigned int i = 0; i < n; i++) mhz[i] = c.model->sm_mhz - 15 * i;
    LEAVE(NVML_SUCCESS);
}

GETTER(nvmlDeviceGetCurrentClocksEventReasons, WS_WANT_METER, unsigned long long,
       ws_event_reasons(c.index, c.now_ns))
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, WS_WANT_METER, unsigned long long,
       ws_event_reasons(c.index, c.now_ns))
GETTER(nvmlDeviceGetSupportedClocksEventReasons, WS_WANT_METER, unsigned long long, 0x1ff)
GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, WS_WANT_METER, unsigned long long, 0x1ff)

/* ---- temperature, fan ---------------------------------------------------------------------- */

GETTER(nvmlDeviceGetNumFans, WS_WANT_METER, unsigned int, c.model->fan)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor,
                                                  unsigned int *celsius) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(celsius);
    REQUIRE(sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    *celsius = (unsigned int)lround(ws_temperature_at(c.index, c.now_ns));
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device,
                                                   nvmlTemperature_v1_t *temperature) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(temperature);
    REQUIRE(temperature->version == NVML_VERSION_WORD(nvmlTemperature_v1_t, 1),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(temperature->sensorType == 0, NVML_ERROR_INVALID_ARGUMENT);
    temperature->temperature = (int)lround(ws_temperature_at(c.index, c.now_ns));
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int type,
                                                           unsigned int *celsius) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(celsius);
    REQUIRE(type <= 7, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(type <= 3, NVML_ERROR_NOT_SUPPORTED);
    static const int above_slowdown[] = { 5, 0, 5, -5 }; /* shutdown, slowdown, memory, GPU max */
    *celsius = (unsigned int)((int)c.model->slowdown_c + above_slowdown[type]);
    LEAVE(NVML_SUCCESS);
}

/* ---- utilisation --------------------------------------------------------------------------- */

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                                       nvmlUtilization_t *utilization) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(utilization);
    REQUIRE(!c.is_mig && !c.board->mig_current, NVML_ERROR_NOT_SUPPORTED);
    utilization->gpu = (unsigned int)lround(c.board->activity * 100);
    utilization->memory = (unsigned int)lround(c.board->activity * 50);
    LEAVE(NVML_SUCCESS);
}

#define ENGINE_UTILIZATION(function) \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *percent, \
                                      unsigned int *period_us) { \
        ENTER(device, WS_WANT_BOARD); \
        NOT_NULL(percent); \
        NOT_NULL(period_us); \
        REQUIRE(!c.is_mig && !c.board->mig_current, NVML_ERROR_NOT_SUPPORTED); \
        *percent = 0; \
        *period_us = 200000; \
        LEAVE(NVML_SUCCESS); \
    }
ENGINE_UTILIZATION(nvmlDeviceGetEncoderUtilization)
ENGINE_UTILIZATION(nvmlDeviceGetDecoderUtilization)
ENGINE_UTILIZATION(nvmlDeviceGetJpgUtilization)
ENGINE_UTILIZATION(nvmlDeviceGetOfaUtilization)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter,
                                                     unsigned int *kib_per_s) {
    ENTER(device, WS_WANT_METER);
    NOT_NULL(kib_per_s);
    REQUIRE(counter <= 1, NVML_ERROR_INVALID_ARGUMENT);
    *kib_per_s = (unsigned int)lround(c.board->activity * 1e5);
    LEAVE(NVML_SUCCESS);
}
