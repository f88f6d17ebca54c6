/* MIG mode, GPU instances, compute instances and MIG devices. */
#include <string.h>

#include "entry.h"
#include "instances.h"
#include "power.h"
#include "workers.h"

#define EVENT_MIG_CONFIG_CHANGE 0x100u

/* The three privilege levels of option "permission". */
#define MAY_LIST(c) ((c).board->option[WS_PERMISSION] >= 1)
#define MAY_CHANGE(c) ((c).board->option[WS_PERMISSION] >= 2)

static int profile_index(const struct ws_call *c, unsigned int id, const struct ws_profile **p) {
    int i = ws_profile_by_id(c->model, id);
    *p = i < 0 ? NULL : ws_profile_at(c->model, (unsigned int)i);
    return i;
}

/* Around every change of a board's instances; the end returns its argument. */
static void begin_change(const struct ws_call *c) {
    ws_change_begin(c->index);
    ws_activity_integrate(c->board, c->now_ns);
}

static nvmlReturn_t end_change(const struct ws_call *c, nvmlReturn_t code) {
    if (code == NVML_SUCCESS) ws_post_event(c->board, EVENT_MIG_CONFIG_CHANGE, 0);
    ws_change_end(c->index);
    return code;
}

/* ---- mode ---------------------------------------------------------------------------------- */

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                              unsigned int *pending) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(current);
    NOT_NULL(pending);
    *current = c.board->mig_current;
    *pending = c.board->mig_pending;
    LEAVE(NVML_SUCCESS);
}

/*
 * Ampere resets the board to switch, which clients prevent; Hopper and later switch at once. In
 * both cases a client keeps the new mode pending (activation status 19). Switching off with
 * instances left: the reset sweeps them away on Ampere, without a reset they are in use.
 */
NVML_EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                              nvmlReturn_t *activation) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(activation);
    REQUIRE(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(MAY_CHANGE(c), NVML_ERROR_NO_PERMISSION);
    struct ws_board *b = c.board;
    *activation = NVML_SUCCESS;
    ws_change_begin(c.index);
    b->mig_pending = mode;
    if (mode != b->mig_current) {
        int in_use = ws_workers_on(b, 0, 0) > 0 || (c.model->resetless && ws_gi_count(b) > 0);
        if (b->option[WS_MIG_SWITCH] != 0) *activation = (nvmlReturn_t)b->option[WS_MIG_SWITCH];
        else if (in_use) *activation = NVML_ERROR_IN_USE;
        else {
            ws_activity_integrate(b, c.now_ns);
            ws_gi_destroy_all(b);
            b->mig_current = mode;
            ws_power_update(c.index, c.now_ns);
            ws_post_event(b, EVENT_MIG_CONFIG_CHANGE, 0);
        }
    }
    ws_change_end(c.index);
    LEAVE(NVML_SUCCESS);
}

/* ---- GPU instance profiles ----------------------------------------------------------------- */

static nvmlGpuInstanceProfileInfo_t gi_profile_v1(const struct ws_profile *p) {
    return (nvmlGpuInstanceProfileInfo_t){
        .id = p->id, .sliceCount = p->slices, .instanceCount = p->max_count,
        .multiprocessorCount = p->sms, .copyEngineCount = p->copy_engines,
        .decoderCount = p->decoders, .encoderCount = p->encoders, .jpegCount = p->jpeg,
        .ofaCount = p->ofa, .memorySizeMB = p->memory_mib,
    };
}

static nvmlReturn_t gi_profile_versioned(const struct ws_call *c, const struct ws_profile *p,
                                         void *info) {
    unsigned int version = *(unsigned int *)info;
    nvmlGpuInstanceProfileInfo_t v1 = gi_profile_v1(p);
    if (version == NVML_VERSION_WORD(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        nvmlGpuInstanceProfileInfo_v2_t v2 = {
            version, v1.id, 0, v1.sliceCount, v1.instanceCount, v1.multiprocessorCount,
            v1.copyEngineCount, v1.decoderCount, v1.encoderCount, v1.jpegCount, v1.ofaCount,
            v1.memorySizeMB, "" };
        ws_gi_profile_name(c->board, p, v2.name);
        memcpy(info, &v2, sizeof v2);
        return NVML_SUCCESS;
    }
    if (version == NVML_VERSION_WORD(nvmlGpuInstanceProfileInfo_v3_t, 3)) {
        nvmlGpuInstanceProfileInfo_v3_t v3 = {
            version, v1.id, v1.sliceCount, v1.instanceCount, v1.multiprocessorCount,
            v1.copyEngineCount, v1.decoderCount, v1.encoderCount, v1.jpegCount, v1.ofaCount,
            v1.memorySizeMB, "", 0 };
        ws_gi_profile_name(c->board, p, v3.name);
        memcpy(info, &v3, sizeof v3);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

/* Unknown constants are invalid, known ones that the board lacks are not supported. */
static nvmlReturn_t gi_profile_of_constant(const struct ws_call *c, unsigned int constant,
                                           const struct ws_profile **p) {
    if (constant >= WS_GI_PROFILE_CONSTANTS) return NVML_ERROR_INVALID_ARGUMENT;
    int i = ws_profile_by_constant(c->model, constant);
    if (i < 0) return NVML_ERROR_NOT_SUPPORTED;
    if (!c->board->mig_current && c->board->option[WS_INDEPENDENT_QUERY] == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *p = ws_profile_at(c->model, (unsigned int)i);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device,
                                                             unsigned int profile,
                                                             nvmlGpuInstanceProfileInfo_t *info) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(info);
    const struct ws_profile *p;
    nvmlReturn_t code = gi_profile_of_constant(&c, profile, &p);
    if (code == NVML_SUCCESS) *info = gi_profile_v1(p);
    LEAVE(code);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device,
                                                              unsigned int profile, void *info) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(info);
    const struct ws_profile *p;
    nvmlReturn_t code = gi_profile_of_constant(&c, profile, &p);
    LEAVE(code == NVML_SUCCESS ? gi_profile_versioned(&c, p, info) : code);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device,
                                                                  unsigned int profile_id,
                                                                  void *info) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(info);
    const struct ws_profile *p;
    REQUIRE(profile_index(&c, profile_id, &p) >= 0, NVML_ERROR_INVALID_ARGUMENT);
    LEAVE(gi_profile_versioned(&c, p, info));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device,
                                                                   unsigned int profile_id,
                                                                   unsigned int *count) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(count);
    REQUIRE(MAY_LIST(c), NVML_ERROR_NO_PERMISSION);
    REQUIRE(c.board->mig_current, NVML_ERROR_NOT_SUPPORTED);
    const struct ws_profile *p;
    int i = profile_index(&c, profile_id, &p);
    REQUIRE(i >= 0, NVML_ERROR_INVALID_ARGUMENT);
    *count = ws_gi_capacity(c.board, (unsigned int)i);
    LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t gi_placements(const char *function, nvmlDevice_t device,
                                  unsigned int profile_id, nvmlGpuInstancePlacement_t *placements,
                                  unsigned int *count) {
    ENTER_AS(function, device, WS_WANT_GPU);
    NOT_NULL(count);
    REQUIRE(MAY_LIST(c), NVML_ERROR_NO_PERMISSION);
    REQUIRE(c.board->mig_current || c.board->option[WS_INDEPENDENT_QUERY] != 0,
            NVML_ERROR_NOT_SUPPORTED);
    const struct ws_profile *p;
    REQUIRE(profile_index(&c, profile_id, &p) >= 0, NVML_ERROR_INVALID_ARGUMENT);
    /* NULL asks for the number only; the array's length is not told to the library. */
    for (unsigned int i = 0; placements && i < p->start_count; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){ p->starts[i], p->memory_slices };
    *count = p->start_count;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstancePlacement_t *placements,
    unsigned int *count) {
    return gi_placements(__func__, device, profile_id, placements, count);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(
    nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstancePlacement_t *placements,
    unsigned int *count) {
    return gi_placements(__func__, device, profile_id, placements, count);
}

/* ---- GPU instances ------------------------------------------------------------------------- */

static nvmlReturn_t create_gi(const char *function, nvmlDevice_t device, unsigned int profile_id,
                              const nvmlGpuInstancePlacement_t *placement, int placed,
                              nvmlGpuInstance_t *out) {
    ENTER_AS(function, device, WS_WANT_GPU);
    NOT_NULL(out);
    REQUIRE(!placed || placement, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(c.board->mig_current, NVML_ERROR_NOT_SUPPORTED);
    const struct ws_profile *p;
    int i = profile_index(&c, profile_id, &p);
    REQUIRE(i >= 0, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!placed || placement->size == p->memory_slices, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(MAY_CHANGE(c), NVML_ERROR_NO_PERMISSION);
    /* A process on the undivided board is in the way of any division. */
    for (unsigned int w = 0; w < WS_MAX_WORKERS; w++)
        REQUIRE(!(c.board->worker[w].flags & WS_WORKER_USED) || c.board->worker[w].gi_serial,
                NVML_ERROR_IN_USE);
    struct ws_gi *gi = NULL;
    begin_change(&c);
    int start = placed ? (int)placement->start : -1;
    nvmlReturn_t code = end_change(&c, ws_gi_create(c.board, (unsigned int)i, start, &gi));
    REQUIRE(code == NVML_SUCCESS, code);
    *out = ws_handle_for(WS_HANDLE_GI, c.index, gi->serial, 0);
    LEAVE(*out ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id,
                                                     nvmlGpuInstance_t *instance) {
    return create_gi(__func__, device, profile_id, NULL, 0, instance);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t device, unsigned int profile_id, const nvmlGpuInstancePlacement_t *placement,
    nvmlGpuInstance_t *instance) {
    return create_gi(__func__, device, profile_id, placement, 1, instance);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    ENTER(instance, WS_WANT_GI);
    REQUIRE(MAY_CHANGE(c), NVML_ERROR_NO_PERMISSION);
    begin_change(&c);
    LEAVE(end_change(&c, ws_gi_destroy(c.board, c.gi)));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
                                                   nvmlGpuInstance_t *instances,
                                                   unsigned int *count) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(instances); /* a NULL probe fails on real boards */
    NOT_NULL(count);
    REQUIRE(MAY_LIST(c), NVML_ERROR_NO_PERMISSION);
    REQUIRE(c.board->mig_current, NVML_ERROR_NOT_SUPPORTED);
    const struct ws_profile *p;
    int i = profile_index(&c, profile_id, &p);
    REQUIRE(i >= 0, NVML_ERROR_INVALID_ARGUMENT);
    unsigned int n = 0;
    for (unsigned int g = 0; g < WS_MAX_GI; g++)
        if (c.board->gi[g].serial && c.board->gi[g].profile == (unsigned int)i)
            instances[n++] = ws_handle_for(WS_HANDLE_GI, c.index, c.board->gi[g].serial, 0);
    *count = n;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                      nvmlGpuInstance_t *instance) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(instance);
    REQUIRE(MAY_LIST(c), NVML_ERROR_NO_PERMISSION);
    REQUIRE(c.board->mig_current, NVML_ERROR_NOT_SUPPORTED);
    struct ws_gi *gi = ws_gi_by_id(c.board, id);
    REQUIRE(gi, NVML_ERROR_NOT_FOUND);
    *instance = ws_handle_for(WS_HANDLE_GI, c.index, gi->serial, 0);
    LEAVE(*instance ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance,
                                                nvmlGpuInstanceInfo_t *info) {
    ENTER(instance, WS_WANT_GI);
    NOT_NULL(info);
    *info = (nvmlGpuInstanceInfo_t){ ws_handle_for(WS_HANDLE_GPU, c.index, 0, 0), c.gi->id,
                                     ws_gi_profile(c.board, c.gi)->id,
                                     { c.gi->start, c.gi->size } };
    LEAVE(NVML_SUCCESS);
}

/* ---- compute instances --------------------------------------------------------------------- */

/* A compute instance's profile id equals its profile constant in all captures. */
static nvmlReturn_t ci_profile(const struct ws_call *c, unsigned int constant,
                               struct ws_ci_profile *out) {
    if (constant >= WS_CI_PROFILE_CONSTANTS) return NVML_ERROR_INVALID_ARGUMENT;
    return ws_ci_profile(c->model, ws_gi_profile(c->board, c->gi), constant, out)
               ? NVML_SUCCESS
               : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlComputeInstanceProfileInfo_t ci_profile_v1(const struct ws_profile *p,
                                                      const struct ws_ci_profile *ci) {
    return (nvmlComputeInstanceProfileInfo_t){
        ci->constant, ci->slices, ci->max_count, ci->sms, p->copy_engines, p->decoders,
        p->encoders, p->jpeg, p->ofa };
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine_profile,
    nvmlComputeInstanceProfileInfo_t *info) {
    ENTER(instance, WS_WANT_GI);
    NOT_NULL(info);
    REQUIRE(engine_profile == 0, NVML_ERROR_INVALID_ARGUMENT);
    struct ws_ci_profile ci;
    nvmlReturn_t code = ci_profile(&c, profile, &ci);
    if (code == NVML_SUCCESS) *info = ci_profile_v1(ws_gi_profile(c.board, c.gi), &ci);
    LEAVE(code);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine_profile, void *info) {
    ENTER(instance, WS_WANT_GI);
    NOT_NULL(info);
    REQUIRE(engine_profile == 0, NVML_ERROR_INVALID_ARGUMENT);
    struct ws_ci_profile ci;
    nvmlReturn_t code = ci_profile(&c, profile, &ci);
    REQUIRE(code == NVML_SUCCESS, code);
    const struct ws_profile *p = ws_gi_profile(c.board, c.gi);
    nvmlComputeInstanceProfileInfo_t v1 = ci_profile_v1(p, &ci);
    unsigned int version = *(unsigned int *)info;
    nvmlComputeInstanceProfileInfo_v3_t v3 = {
        version, v1.id, v1.sliceCount, v1.instanceCount, v1.multiprocessorCount,
        v1.sharedCopyEngineCount, v1.sharedDecoderCount, v1.sharedEncoderCount,
        v1.sharedJpegCount, v1.sharedOfaCount, "", 0 };
    ws_ci_profile_name(c.board, p, &ci, v3.name);
    /* Version 2 is version 3 without its last member. */
    if (version == NVML_VERSION_WORD(nvmlComputeInstanceProfileInfo_v2_t, 2))
        memcpy(info, &v3, sizeof(nvmlComputeInstanceProfileInfo_v2_t));
    else if (version == NVML_VERSION_WORD(nvmlComputeInstanceProfileInfo_v3_t, 3))
        memcpy(info, &v3, sizeof v3);
    else
        code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    LEAVE(code);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
    nvmlGpuInstance_t instance, unsigned int profile_id, unsigned int *count) {
    ENTER(instance, WS_WANT_GI);
    NOT_NULL(count);
    REQUIRE(MAY_LIST(c), NVML_ERROR_NO_PERMISSION);
    struct ws_ci_profile ci;
    nvmlReturn_t code = ci_profile(&c, profile_id, &ci);
    REQUIRE(code == NVML_SUCCESS, NVML_ERROR_INVALID_ARGUMENT);
    *count = ws_ci_capacity(c.board, c.gi, &ci);
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t instance, unsigned int profile_id,
    nvmlComputeInstancePlacement_t *placements, unsigned int *count) {
    ENTER(instance, WS_WANT_GI);
    NOT_NULL(count);
    REQUIRE(MAY_LIST(c), NVML_ERROR_NO_PERMISSION);
    struct ws_ci_profile ci;
    nvmlReturn_t code = ci_profile(&c, profile_id, &ci);
    REQUIRE(code == NVML_SUCCESS, NVML_ERROR_INVALID_ARGUMENT);
    unsigned int n = 0, slices = ws_gi_profile(c.board, c.gi)->slices;
    for (unsigned int s = 0; s + ci.size <= slices; s += ci.stride, n++)
        if (placements) placements[n] = (nvmlComputeInstancePlacement_t){ s, ci.size };
    *count = n;
    LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t create_ci(const char *function, nvmlGpuInstance_t instance,
                              unsigned int profile_id,
                              const nvmlComputeInstancePlacement_t *placement, int placed,
                              nvmlComputeInstance_t *out) {
    ENTER_AS(function, instance, WS_WANT_GI);
    NOT_NULL(out);
    REQUIRE(!placed || placement, NVML_ERROR_INVALID_ARGUMENT);
    struct ws_ci_profile profile;
    REQUIRE(ci_profile(&c, profile_id, &profile) == NVML_SUCCESS, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(MAY_CHANGE(c), NVML_ERROR_NO_PERMISSION);
    struct ws_ci *ci = NULL;
    begin_change(&c);
    int start = placed ? (int)placement->start : -1, size = placed ? (int)placement->size : 0;
    nvmlReturn_t code = end_change(&c, ws_ci_create(c.board, c.gi, &profile, start, size, &ci));
    REQUIRE(code == NVML_SUCCESS, code);
    *out = ws_handle_for(WS_HANDLE_CI, c.index, c.gi->serial, ci->serial);
    LEAVE(*out ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
                                                              unsigned int profile_id,
                                                              nvmlComputeInstance_t *out) {
    return create_ci(__func__, instance, profile_id, NULL, 0, out);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t instance, unsigned int profile_id,
    const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *out) {
    return create_ci(__func__, instance, profile_id, placement, 1, out);
}

NVML_EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance) {
    ENTER(instance, WS_WANT_CI);
    REQUIRE(MAY_CHANGE(c), NVML_ERROR_NO_PERMISSION);
    begin_change(&c);
    nvmlReturn_t code = ws_ci_destroy(c.board, c.gi, c.ci);
    if (code == NVML_SUCCESS) ws_power_update(c.index, c.now_ns);
    LEAVE(end_change(&c, code));
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance,
                                                            unsigned int profile_id,
                                                            nvmlComputeInstance_t *instances,
                                                            unsigned int *count) {
    ENTER(instance, WS_WANT_GI);
    NOT_NULL(instances);
    NOT_NULL(count);
    REQUIRE(MAY_LIST(c), NVML_ERROR_NO_PERMISSION);
    struct ws_ci_profile profile;
    REQUIRE(ci_profile(&c, profile_id, &profile) == NVML_SUCCESS, NVML_ERROR_INVALID_ARGUMENT);
    unsigned int n = 0;
    for (unsigned int i = 0; i < WS_MAX_CI; i++)
        if (c.gi->ci[i].serial && c.gi->ci[i].profile_constant == profile_id)
            instances[n++] =
                ws_handle_for(WS_HANDLE_CI, c.index, c.gi->serial, c.gi->ci[i].serial);
    *count = n;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance,
                                                               unsigned int id,
                                                               nvmlComputeInstance_t *out) {
    ENTER(instance, WS_WANT_GI);
    NOT_NULL(out);
    struct ws_ci *ci = ws_ci_by_id(c.gi, id);
    REQUIRE(ci, NVML_ERROR_NOT_FOUND);
    *out = ws_handle_for(WS_HANDLE_CI, c.index, c.gi->serial, ci->serial);
    LEAVE(*out ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance,
                                                       nvmlComputeInstanceInfo_t *info) {
    ENTER(instance, WS_WANT_CI);
    NOT_NULL(info);
    *info = (nvmlComputeInstanceInfo_t){
        ws_handle_for(WS_HANDLE_GPU, c.index, 0, 0),
        ws_handle_for(WS_HANDLE_GI, c.index, c.gi->serial, 0), c.ci->id,
        c.ci->profile_constant, { c.ci->start, c.ci->size } };
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t instance,
                                                    nvmlComputeInstanceInfo_v1_t *info) {
    ENTER(instance, WS_WANT_CI);
    NOT_NULL(info);
    *info = (nvmlComputeInstanceInfo_v1_t){ ws_handle_for(WS_HANDLE_GPU, c.index, 0, 0),
                                            ws_handle_for(WS_HANDLE_GI, c.index, c.gi->serial, 0),
                                            c.ci->id, c.ci->profile_constant };
    LEAVE(NVML_SUCCESS);
}

/* ---- MIG devices --------------------------------------------------------------------------- */

GETTER(nvmlDeviceIsMigDeviceHandle, WS_WANT_BOARD, unsigned int, c.is_mig)
GETTER(nvmlDeviceGetMaxMigDeviceCount, WS_WANT_GPU, unsigned int, c.model->max_mig)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device,
                                                             unsigned int index,
                                                             nvmlDevice_t *mig) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(mig);
    REQUIRE(index < c.model->max_mig, NVML_ERROR_INVALID_ARGUMENT);
    struct ws_gi *gi;
    struct ws_ci *ci;
    REQUIRE(c.board->mig_current && ws_mig_device(c.board, index, &gi, &ci), NVML_ERROR_NOT_FOUND);
    *mig = ws_handle_for(WS_HANDLE_MIG, c.index, gi->serial, ci->serial);
    LEAVE(*mig ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                      nvmlDevice_t *device) {
    ENTER(mig, WS_WANT_MIG);
    NOT_NULL(device);
    *device = ws_handle_for(WS_HANDLE_GPU, c.index, 0, 0);
    LEAVE(NVML_SUCCESS);
}

GETTER(nvmlDeviceGetGpuInstanceId, WS_WANT_MIG, unsigned int, c.gi->id)
GETTER(nvmlDeviceGetComputeInstanceId, WS_WANT_MIG, unsigned int, c.ci->id)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
                                                    nvmlDeviceAttributes_t *attributes) {
    ENTER(device, WS_WANT_MIG);
    NOT_NULL(attributes);
    const struct ws_profile *p = ws_gi_profile(c.board, c.gi);
    *attributes = (nvmlDeviceAttributes_t){
        c.ci->sms, p->copy_engines, p->decoders, p->encoders, p->jpeg, p->ofa, p->slices,
        c.ci->slices, p->memory_mib };
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device,
                                                 nvmlDeviceAttributes_t *attributes) {
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
