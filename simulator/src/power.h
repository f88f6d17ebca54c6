/*
 * True power of a board over time, kept as a log of segments with closed-form integrals. Nothing
 * here samples: the energy of any interval is exact up to floating point.
 */
#ifndef WATTSIM_POWER_H
#define WATTSIM_POWER_H

#include "state.h"

/* First entry of a new board's log: idle from t_ns on. */
void ws_power_first(struct ws_board *board, struct ws_segment *log, int64_t t_ns);
/* Recomputes activity and demand from the workers and appends an entry if something changed. */
void ws_power_update(unsigned int board, int64_t now_ns);
/* Brings the activity integrals up to now without changing anything else. */
void ws_activity_integrate(struct ws_board *board, int64_t now_ns);
/* A scripted segment from now on (kind as in struct ws_segment), or back to activity. */
void ws_power_script(unsigned int board, int64_t now_ns, unsigned int kind, double low_w,
                     double high_w, double period_s, double duty);
void ws_power_trace(unsigned int board, int64_t now_ns, unsigned int count,
                    const double *offset_s, const double *power_w);
void ws_power_unscript(unsigned int board, int64_t now_ns);
/* The limit has changed: later power is cut at the new one. */
void ws_power_relimit(unsigned int board, int64_t now_ns);

double ws_energy_between(unsigned int board, int64_t t0_ns, int64_t t1_ns); /* J, or NaN */
double ws_energy_at(unsigned int board, int64_t t_ns);                      /* J since boot */
double ws_power_at(unsigned int board, int64_t t_ns);                       /* W, after the limit */
double ws_demand_at(unsigned int board, int64_t t_ns);                      /* W, before it */
double ws_temperature_at(unsigned int board, int64_t t_ns);                 /* degrees Celsius */
double ws_capped_seconds_at(unsigned int board, int64_t t_ns);

#endif
