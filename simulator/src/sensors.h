/*
 * What the board's sensors report, which is not the true power: readings are refreshed
 * periodically, see only a part of each period, and have gain and offset errors.
 */
#ifndef WATTSIM_SENSORS_H
#define WATTSIM_SENSORS_H

#include "state.h"

/* Reported power in W of the latest refresh before t_ns; *at_ns: when that was. */
double ws_sensor_instant_w(unsigned int board, int64_t t_ns, int64_t *at_ns);
double ws_sensor_average_w(unsigned int board, int64_t t_ns, int64_t *at_ns);
/* The plain power call: instantaneous on GA100, a one-second average later. */
double ws_sensor_plain_w(unsigned int board, int64_t t_ns);
/* Energy counter in mJ since the driver was loaded. */
unsigned long long ws_sensor_energy_mj(unsigned int board, int64_t t_ns, int64_t *at_ns);

int ws_board_busy(unsigned int board, int64_t t_ns);
unsigned int ws_sm_clock_mhz(unsigned int board, int64_t t_ns);
unsigned long long ws_event_reasons(unsigned int board, int64_t t_ns);

#endif
