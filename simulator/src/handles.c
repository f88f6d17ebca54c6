#include "handles.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instances.h"

/* Handles live as long as the process: a client may keep one for ever, and a block never moves. */
#define BLOCK 1024
#define MAX_BLOCKS 4096
static struct ws_handle *block[MAX_BLOCKS];
static unsigned int used;
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;

/* After fork() the mutex may belong to a thread that the child lacks. */
static void reset_mutex_in_child(void) { pthread_mutex_init(&table_mutex, NULL); }

__attribute__((constructor)) static void register_fork_handler(void) {
    pthread_atfork(NULL, NULL, reset_mutex_in_child);
}

struct ws_handle *ws_handle_for(enum ws_handle_kind kind, unsigned int board, uint64_t gi_serial,
                                uint64_t ci_serial) {
    struct ws_handle *h = NULL;
    pthread_mutex_lock(&table_mutex);
    for (unsigned int i = used; i-- > 0 && !h;) {
        struct ws_handle *k = &block[i / BLOCK][i % BLOCK];
        if (k->kind == kind && k->board == board && k->gi_serial == gi_serial &&
            k->ci_serial == ci_serial)
            h = k;
    }
    if (!h && used < BLOCK * MAX_BLOCKS) {
        struct ws_handle **b = &block[used / BLOCK];
        if (!*b) *b = calloc(BLOCK, sizeof **b);
        if (*b) {
            h = &(*b)[used++ % BLOCK];
            *h = (struct ws_handle){ kind, board, gi_serial, ci_serial };
        }
    }
    pthread_mutex_unlock(&table_mutex);
    return h;
}

int ws_handle_valid(const struct ws_handle *handle) {
    uintptr_t p = (uintptr_t)handle;
    int valid = 0;
    pthread_mutex_lock(&table_mutex);
    for (unsigned int i = 0; i * BLOCK < used && !valid; i++) {
        uintptr_t start = (uintptr_t)block[i];
        unsigned int n = used - i * BLOCK < BLOCK ? used - i * BLOCK : BLOCK;
        valid = p >= start && p < start + n * sizeof *handle && (p - start) % sizeof *handle == 0;
    }
    pthread_mutex_unlock(&table_mutex);
    return valid;
}

/* ---- UUIDs --------------------------------------------------------------------------------- */

/* 64-bit FNV-1a with a final mixing step, so that near inputs give unlike outputs. */
static uint64_t hash(const char *text, uint64_t seed) {
    uint64_t h = 0xcbf29ce484222325ull ^ seed;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
    h ^= h >> 30;
    h *= 0xbf58476d1ce4e5b9ull;
    h ^= h >> 27;
    h *= 0x94d049bb133111ebull;
    return h ^ (h >> 31);
}

static void format_uuid(const char *prefix, const char *text, unsigned int version,
                        char out[64]) {
    uint64_t a = hash(text, 1), b = hash(text, 2);
    snprintf(out, 64, "%s-%08x-%04x-%x%03x-%04x-%012llx", prefix, (unsigned int)(a >> 32),
             (unsigned int)(a >> 16) & 0xffff, version, (unsigned int)a & 0xfff,
             0x8000u | ((unsigned int)(b >> 48) & 0x3fff),
             (unsigned long long)(b & 0xffffffffffffull));
}

void ws_board_uuid(unsigned int board, char text[64]) {
    char seed[96];
    snprintf(seed, sizeof seed, "wattsim board %u %s", board,
             ws_state()->board[board].model_name);
    format_uuid("GPU", seed, 4, text);
    /* Every simulated board begins like this; no generated UUID is likely to. */
    memcpy(text, "GPU-51a7ed51", 12);
}

/* The same again for the same shape at the same place, as observed on real boards. */
void ws_mig_uuid(unsigned int board, const struct ws_gi *gi, const struct ws_ci *ci,
                 char text[64]) {
    char parent[64], seed[192];
    ws_board_uuid(board, parent);
    snprintf(seed, sizeof seed, "%s gi %u@%u+%u ci %u@%u+%u", parent, gi->profile, gi->start,
             gi->size, ci->profile_constant, ci->start, ci->size);
    format_uuid("MIG", seed, 5, text);
}

static nvmlReturn_t old_form(const char *uuid, struct ws_handle **out) {
    struct ws_state *s = ws_state();
    for (unsigned int i = 0; i < s->board_count; i++) {
        char text[64];
        unsigned int gi_id, ci_id;
        int end = 0;
        ws_board_uuid(i, text);
        size_t n = strlen(text);
        if (strncmp(uuid + 4, text, n) != 0) continue;
        if (sscanf(uuid + 4 + n, "/%u/%u%n", &gi_id, &ci_id, &end) != 2 || uuid[4 + n + (size_t)end])
            return NVML_ERROR_INVALID_ARGUMENT;
        struct ws_gi *gi = ws_gi_by_id(&s->board[i], gi_id);
        struct ws_ci *ci = gi ? ws_ci_by_id(gi, ci_id) : NULL;
        if (!ci) return NVML_ERROR_NOT_FOUND;
        *out = ws_handle_for(WS_HANDLE_MIG, i, gi->serial, ci->serial);
        return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t ws_handle_by_uuid(const char *uuid, struct ws_handle **out) {
    struct ws_state *s = ws_state();
    if (strncmp(uuid, "MIG-GPU-", 8) == 0) return old_form(uuid, out);
    for (unsigned int i = 0; i < s->board_count; i++) {
        char text[64];
        struct ws_board *b = &s->board[i];
        ws_board_uuid(i, text);
        if (strcmp(text, uuid) == 0) {
            *out = ws_handle_for(WS_HANDLE_GPU, i, 0, 0);
            return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
        }
        for (unsigned int g = 0; g < WS_MAX_GI; g++)
            for (unsigned int c = 0; b->gi[g].serial && c < WS_MAX_CI; c++) {
                if (!b->gi[g].ci[c].serial) continue;
                ws_mig_uuid(i, &b->gi[g], &b->gi[g].ci[c], text);
                if (strcmp(text, uuid) != 0) continue;
                *out = ws_handle_for(WS_HANDLE_MIG, i, b->gi[g].serial, b->gi[g].ci[c].serial);
                return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}
