#include "instances.h"

#include <stdio.h>
#include <string.h>

#include "workers.h"

const struct ws_profile *ws_gi_profile(const struct ws_board *b, const struct ws_gi *gi) {
    return ws_profile_at(ws_model_of(b), gi->profile);
}

static int overlap(unsigned int a, unsigned int a_size, unsigned int b, unsigned int b_size) {
    return a < b + b_size && b < a + a_size;
}

/* ---- GPU instances ------------------------------------------------------------------------- */

/* Number limits that are not geometry: per profile, and the media engines (there is one set with
 * JPEG and OFA units: one +me kind at most, and +me.all leaves nothing but -me profiles). */
static int allowed_beside(const struct ws_board *b, const struct ws_profile *p) {
    unsigned int same = 0;
    for (unsigned int g = 0; g < WS_MAX_GI; g++) {
        if (!b->gi[g].serial) continue;
        const struct ws_profile *q = ws_gi_profile(b, &b->gi[g]);
        if (q == p) same++;
        if (p->media == WS_MEDIA_ME && q->media == WS_MEDIA_ME) return 0;
        if (p->media == WS_MEDIA_ME_ALL && q->media != WS_MEDIA_NO_ME) return 0;
        if (q->media == WS_MEDIA_ME_ALL && p->media != WS_MEDIA_NO_ME) return 0;
    }
    return same < p->max_count;
}

static int is_start(const struct ws_profile *p, unsigned int start) {
    for (unsigned int i = 0; i < p->start_count; i++)
        if (p->starts[i] == start) return 1;
    return 0;
}

static int is_free(const struct ws_board *b, unsigned int start, unsigned int size) {
    for (unsigned int g = 0; g < WS_MAX_GI; g++)
        if (b->gi[g].serial && overlap(start, size, b->gi[g].start, b->gi[g].size)) return 0;
    return 1;
}

int ws_gi_fits(const struct ws_board *b, unsigned int profile, unsigned int start) {
    const struct ws_profile *p = ws_profile_at(ws_model_of(b), profile);
    return is_start(p, start) && allowed_beside(b, p) && is_free(b, start, p->memory_slices);
}

unsigned int ws_gi_capacity(const struct ws_board *b, unsigned int profile) {
    const struct ws_profile *p = ws_profile_at(ws_model_of(b), profile);
    if (!allowed_beside(b, p)) return 0;
    unsigned int same = 0, room = 0;
    for (unsigned int g = 0; g < WS_MAX_GI; g++)
        if (b->gi[g].serial && b->gi[g].profile == profile) same++;
    /* The places of one profile do not overlap each other. */
    for (unsigned int i = 0; i < p->start_count; i++)
        room += (unsigned int)is_free(b, p->starts[i], p->memory_slices);
    if (p->media == WS_MEDIA_ME || p->media == WS_MEDIA_ME_ALL) return room > 0;
    return room < p->max_count - same ? room : p->max_count - same;
}

/*
 * The driver's own choice: the place that takes away the fewest places of other instances, the
 * lowest of equals. Inferred from captured sequences, all of which it reproduces: ids 19,14,5
 * come to 6, 4, 0; 14,19,19,19,19,19 to 4, 6, 0..3; 9,19,14,19 to 4, 0, 2, 1; and after 19,19,14
 * a 9 does not fit any more.
 */
static int chosen_start(const struct ws_board *b, const struct ws_profile *p) {
    const struct ws_model *m = ws_model_of(b);
    int best = -1;
    unsigned int best_cost = 0;
    for (unsigned int i = 0; i < p->start_count; i++) {
        unsigned int start = p->starts[i], cost = 0;
        if (!is_free(b, start, p->memory_slices)) continue;
        const struct ws_profile *q;
        for (unsigned int k = 0; (q = ws_profile_at(m, k)); k++)
            for (unsigned int s = 0; s < q->start_count; s++)
                cost += (unsigned int)(is_free(b, q->starts[s], q->memory_slices) &&
                                       overlap(start, p->memory_slices, q->starts[s],
                                               q->memory_slices));
        if (best < 0 || cost < best_cost) {
            best = (int)start;
            best_cost = cost;
        }
    }
    return best;
}

/* Captured ids number the nodes of a binary tree: 0 the whole, 1-2 halves, 3-6 quarters, 7-14
 * eighths. On some boards the halves are counted the other way round. */
static unsigned int new_gi_id(struct ws_board *b, unsigned int start, unsigned int size) {
    unsigned int nodes = ws_model_of(b)->mem_axis / size, position = start / size;
    int mode = (int)b->option[WS_GI_ID_MODE];
    if (mode == 1 && nodes > 1) position = (position + nodes / 2) % nodes;
    unsigned int id = nodes - 1 + position;
    if (mode == 2) id = 1;
    while (ws_gi_by_id(b, id)) id++; /* only when numbering does not follow the tree */
    return id;
}

nvmlReturn_t ws_gi_create(struct ws_board *b, unsigned int profile, int start,
                          struct ws_gi **out) {
    const struct ws_profile *p = ws_profile_at(ws_model_of(b), profile);
    if (start >= 0 && !is_start(p, (unsigned int)start)) return NVML_ERROR_INVALID_ARGUMENT;
    if (!allowed_beside(b, p)) return NVML_ERROR_INSUFFICIENT_RESOURCES;
    if (start < 0) start = chosen_start(b, p);
    if (start < 0 || !is_free(b, (unsigned int)start, p->memory_slices))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    for (unsigned int g = 0; g < WS_MAX_GI; g++) {
        if (b->gi[g].serial) continue;
        unsigned int id = new_gi_id(b, (unsigned int)start, p->memory_slices);
        b->gi[g] = (struct ws_gi){ .serial = ws_state()->next_serial++, .id = id,
                                   .profile = profile, .start = (unsigned int)start,
                                   .size = p->memory_slices };
        *out = &b->gi[g];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static int has_ci(const struct ws_gi *gi) {
    for (unsigned int c = 0; c < WS_MAX_CI; c++)
        if (gi->ci[c].serial) return 1;
    return 0;
}

nvmlReturn_t ws_gi_destroy(struct ws_board *b, struct ws_gi *gi) {
    if (has_ci(gi) || ws_workers_on(b, gi->serial, 0)) return NVML_ERROR_IN_USE;
    *gi = (struct ws_gi){ 0 };
    return NVML_SUCCESS;
}

void ws_gi_destroy_all(struct ws_board *b) { memset(b->gi, 0, sizeof b->gi); }

struct ws_gi *ws_gi_by_serial(struct ws_board *b, uint64_t serial) {
    for (unsigned int g = 0; g < WS_MAX_GI; g++)
        if (serial && b->gi[g].serial == serial) return &b->gi[g];
    return NULL;
}

struct ws_gi *ws_gi_by_id(struct ws_board *b, unsigned int id) {
    for (unsigned int g = 0; g < WS_MAX_GI; g++)
        if (b->gi[g].serial && b->gi[g].id == id) return &b->gi[g];
    return NULL;
}

unsigned int ws_gi_count(const struct ws_board *b) {
    unsigned int n = 0;
    for (unsigned int g = 0; g < WS_MAX_GI; g++) n += b->gi[g].serial != 0;
    return n;
}

/* ---- compute instances --------------------------------------------------------------------- */

static int ci_is_free(const struct ws_gi *gi, unsigned int start, unsigned int size) {
    for (unsigned int c = 0; c < WS_MAX_CI; c++)
        if (gi->ci[c].serial && overlap(start, size, gi->ci[c].start, gi->ci[c].size)) return 0;
    return 1;
}

unsigned int ws_ci_capacity(const struct ws_board *b, const struct ws_gi *gi,
                            const struct ws_ci_profile *p) {
    unsigned int slices = ws_gi_profile(b, gi)->slices, n = 0;
    for (unsigned int s = 0; s + p->size <= slices; s += p->stride)
        n += (unsigned int)ci_is_free(gi, s, p->size);
    return n;
}

static int mig_index_used(struct ws_board *b, unsigned int index) {
    struct ws_gi *gi;
    struct ws_ci *ci;
    return ws_mig_device(b, index, &gi, &ci);
}

static unsigned int new_mig_index(struct ws_board *b, const struct ws_gi *gi, unsigned int start) {
    unsigned int index = 0;
    if (b->option[WS_SPARSE_INDICES] != 0) {
        /* Memory places in units of the smallest instance: 3 of 12 on one board family. */
        const struct ws_model *m = ws_model_of(b);
        unsigned int unit = m->mem_axis / (m->max_mig == 4 ? 4 : 8);
        index = gi->start / unit + start;
        if (index < m->max_mig && !mig_index_used(b, index)) return index;
        index = 0;
    }
    while (mig_index_used(b, index)) index++;
    return index;
}

nvmlReturn_t ws_ci_create(struct ws_board *b, struct ws_gi *gi, const struct ws_ci_profile *p,
                          int start, int size, struct ws_ci **out) {
    unsigned int slices = ws_gi_profile(b, gi)->slices;
    if (start >= 0 && ((unsigned int)start % p->stride != 0 ||
                       (unsigned int)start + p->size > slices || (unsigned int)size != p->size))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (start < 0)
        for (unsigned int s = 0; start < 0 && s + p->size <= slices; s += p->stride)
            if (ci_is_free(gi, s, p->size)) start = (int)s;
    if (start < 0 || !ci_is_free(gi, (unsigned int)start, p->size))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    unsigned int id = 0;
    while (ws_ci_by_id(gi, id)) id++;
    for (unsigned int c = 0; c < WS_MAX_CI; c++) {
        if (gi->ci[c].serial) continue;
        unsigned int index = new_mig_index(b, gi, (unsigned int)start);
        gi->ci[c] = (struct ws_ci){ .serial = ws_state()->next_serial++, .id = id,
                                    .profile_constant = p->constant,
                                    .start = (unsigned int)start, .size = p->size,
                                    .sms = p->sms, .slices = p->slices, .mig_index = index };
        *out = &gi->ci[c];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t ws_ci_destroy(struct ws_board *b, struct ws_gi *gi, struct ws_ci *ci) {
    if (ws_workers_on(b, gi->serial, ci->serial)) return NVML_ERROR_IN_USE;
    *ci = (struct ws_ci){ 0 };
    return NVML_SUCCESS;
}

struct ws_ci *ws_ci_by_serial(struct ws_gi *gi, uint64_t serial) {
    for (unsigned int c = 0; c < WS_MAX_CI; c++)
        if (serial && gi->ci[c].serial == serial) return &gi->ci[c];
    return NULL;
}

struct ws_ci *ws_ci_by_id(struct ws_gi *gi, unsigned int id) {
    for (unsigned int c = 0; c < WS_MAX_CI; c++)
        if (gi->ci[c].serial && gi->ci[c].id == id) return &gi->ci[c];
    return NULL;
}

int ws_mig_device(struct ws_board *b, unsigned int index, struct ws_gi **gi, struct ws_ci **ci) {
    for (unsigned int g = 0; g < WS_MAX_GI; g++)
        for (unsigned int c = 0; b->gi[g].serial && c < WS_MAX_CI; c++)
            if (b->gi[g].ci[c].serial && b->gi[g].ci[c].mig_index == index) {
                *gi = &b->gi[g];
                *ci = &b->gi[g].ci[c];
                return 1;
            }
    return 0;
}

/* ---- names --------------------------------------------------------------------------------- */

static void drifted(const struct ws_board *b, const struct ws_profile *p, char out[64]) {
    unsigned int slices, gb;
    int used = 0, drift = (int)b->option[WS_NAME_DRIFT_GB];
    if (drift && (p->slices == 3 || p->slices == 4) &&
        sscanf(p->name, "%ug.%ugb%n", &slices, &gb, &used) == 2)
        snprintf(out, 64, "%ug.%dgb%.20s", slices, (int)gb + drift, p->name + used);
    else
        snprintf(out, 64, "%s", p->name);
}

void ws_gi_profile_name(const struct ws_board *b, const struct ws_profile *p, char name[96]) {
    char text[64];
    drifted(b, p, text);
    snprintf(name, 96, "MIG %s", text);
}

void ws_ci_profile_name(const struct ws_board *b, const struct ws_profile *p,
                        const struct ws_ci_profile *ci, char name[96]) {
    char text[64];
    drifted(b, p, text);
    if (ci->slices < p->slices)
        snprintf(name, 96, "MIG %uc.%s", ci->slices, text);
    else
        snprintf(name, 96, "MIG %s", text);
}
