/* GPU and compute instances of a board: what fits where, creating, destroying, finding. */
#ifndef WATTSIM_INSTANCES_H
#define WATTSIM_INSTANCES_H

#include "state.h"

/* Whether one more instance of the profile may be at `start` beside those that exist. */
int ws_gi_fits(const struct ws_board *board, unsigned int profile, unsigned int start);
/* How many more instances of the profile can be made now. */
unsigned int ws_gi_capacity(const struct ws_board *board, unsigned int profile);
/* start -1: at the place that the driver would choose. Within a change. */
nvmlReturn_t ws_gi_create(struct ws_board *board, unsigned int profile, int start,
                          struct ws_gi **out);
nvmlReturn_t ws_gi_destroy(struct ws_board *board, struct ws_gi *gi);
struct ws_gi *ws_gi_by_serial(struct ws_board *board, uint64_t serial);
struct ws_gi *ws_gi_by_id(struct ws_board *board, unsigned int id);
unsigned int ws_gi_count(const struct ws_board *board);
void ws_gi_destroy_all(struct ws_board *board);

unsigned int ws_ci_capacity(const struct ws_board *board, const struct ws_gi *gi,
                            const struct ws_ci_profile *profile);
nvmlReturn_t ws_ci_create(struct ws_board *board, struct ws_gi *gi,
                          const struct ws_ci_profile *profile, int start, int size,
                          struct ws_ci **out);
nvmlReturn_t ws_ci_destroy(struct ws_board *board, struct ws_gi *gi, struct ws_ci *ci);
struct ws_ci *ws_ci_by_serial(struct ws_gi *gi, uint64_t serial);
struct ws_ci *ws_ci_by_id(struct ws_gi *gi, unsigned int id);
/* The MIG device with this index; 0 when the index is a hole. */
int ws_mig_device(struct ws_board *board, unsigned int index, struct ws_gi **gi,
                  struct ws_ci **ci);

const struct ws_profile *ws_gi_profile(const struct ws_board *board, const struct ws_gi *gi);
/* Printed names: "MIG 3g.40gb"; a compute instance smaller than its GPU instance has "1c." in
 * front of the profile. */
void ws_gi_profile_name(const struct ws_board *board, const struct ws_profile *profile,
                        char name[96]);
void ws_ci_profile_name(const struct ws_board *board, const struct ws_profile *profile,
                        const struct ws_ci_profile *ci, char name[96]);

#endif
