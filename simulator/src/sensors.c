#include "sensors.h"

#include <math.h>
#include <stddef.h>

#include "power.h"

#define NS_PER_MS 1e6
/* Refreshes of different boards do not fall together. */
#define PHASE_PER_BOARD_NS 13000000ll

enum { REASON_IDLE = 0x1, REASON_SW_POWER_CAP = 0x4, REASON_SW_THERMAL = 0x20 };

static int64_t refresh_before(unsigned int board, int64_t t_ns, double period_ms) {
    int64_t period = (int64_t)(period_ms * NS_PER_MS);
    if (period <= 0) return t_ns;
    int64_t phase = (int64_t)board * PHASE_PER_BOARD_NS % period;
    return (t_ns - phase) / period * period + phase;
}

static double reported(unsigned int board, double true_w) {
    const double *o = ws_state()->board[board].option;
    double w = true_w * o[WS_SENSOR_GAIN] + o[WS_SENSOR_OFFSET_W];
    return w > 0 ? w : 0;
}

static double mean_w(unsigned int board, int64_t end_ns, double window_ms) {
    int64_t start = end_ns - (int64_t)(window_ms * NS_PER_MS);
    if (start >= end_ns) return reported(board, ws_power_at(board, end_ns));
    return reported(board, ws_energy_between(board, start, end_ns) /
                               ((double)(end_ns - start) * 1e-9));
}

double ws_sensor_instant_w(unsigned int board, int64_t t_ns, int64_t *at_ns) {
    const double *o = ws_state()->board[board].option;
    int64_t at = refresh_before(board, t_ns, o[WS_SENSOR_PERIOD_MS]);
    if (at_ns) *at_ns = at;
    return mean_w(board, at, o[WS_SENSOR_WINDOW_MS]);
}

double ws_sensor_average_w(unsigned int board, int64_t t_ns, int64_t *at_ns) {
    const double *o = ws_state()->board[board].option;
    int64_t at = refresh_before(board, t_ns, o[WS_SENSOR_PERIOD_MS]);
    if (at_ns) *at_ns = at;
    return mean_w(board, at, o[WS_AVERAGE_WINDOW_MS]);
}

double ws_sensor_plain_w(unsigned int board, int64_t t_ns) {
    return ws_model_of(&ws_state()->board[board])->has_average
               ? ws_sensor_average_w(board, t_ns, NULL)
               : ws_sensor_instant_w(board, t_ns, NULL);
}

unsigned long long ws_sensor_energy_mj(unsigned int board, int64_t t_ns, int64_t *at_ns) {
    const double *o = ws_state()->board[board].option;
    int64_t reset = (int64_t)(o[WS_COUNTER_RESET_S] * 1e9),
            freeze = (int64_t)(o[WS_COUNTER_FREEZE_S] * 1e9);
    if (freeze > 0 && t_ns > freeze) t_ns = freeze;
    int64_t at = refresh_before(board, t_ns, o[WS_COUNTER_PERIOD_MS]);
    if (at_ns) *at_ns = at;
    double j = ws_energy_at(board, at);
    double s = (double)(at - ws_state()->created_ns) * 1e-9 + WS_UPTIME_S;
    if (reset > 0 && t_ns >= reset) {
        if (at < reset) return 0; /* not refreshed since */
        j -= ws_energy_at(board, reset);
        s = (double)(at - reset) * 1e-9;
    }
    double mj = (j * o[WS_SENSOR_GAIN] + o[WS_SENSOR_OFFSET_W] * s) * o[WS_COUNTER_GAIN] * 1e3;
    return mj > 0 ? (unsigned long long)mj : 0;
}

int ws_board_busy(unsigned int board, int64_t t_ns) {
    const struct ws_board *b = &ws_state()->board[board];
    double idle = b->option[b->mig_current ? WS_IDLE_MIG_W : WS_IDLE_W];
    return ws_demand_at(board, t_ns) > idle + 0.005 * (b->option[WS_PEAK_W] - idle);
}

/* Dynamic power goes roughly with the cube of the clock, so a cap costs its cube root. */
unsigned int ws_sm_clock_mhz(unsigned int board, int64_t t_ns) {
    const struct ws_board *b = &ws_state()->board[board];
    const struct ws_model *m = ws_model_of(b);
    if (!ws_board_busy(board, t_ns)) return m->idle_mhz;
    double idle = b->option[b->mig_current ? WS_IDLE_MIG_W : WS_IDLE_W];
    double demand = ws_demand_at(board, t_ns), power = ws_power_at(board, t_ns);
    double mhz = m->sm_mhz;
    if (demand > power && power > idle) mhz *= cbrt((power - idle) / (demand - idle));
    mhz = floor(mhz / 15) * 15; /* clocks come in steps of 15 MHz */
    return mhz < m->idle_mhz ? m->idle_mhz : (unsigned int)mhz;
}

unsigned long long ws_event_reasons(unsigned int board, int64_t t_ns) {
    const struct ws_board *b = &ws_state()->board[board];
    unsigned long long reasons = (unsigned long long)b->option[WS_EVENT_REASONS];
    if (!ws_board_busy(board, t_ns)) reasons |= REASON_IDLE;
    if (ws_demand_at(board, t_ns) > ws_power_at(board, t_ns)) reasons |= REASON_SW_POWER_CAP;
    if (ws_temperature_at(board, t_ns) >= ws_model_of(b)->slowdown_c)
        reasons |= REASON_SW_THERMAL;
    return reasons;
}
