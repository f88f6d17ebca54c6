#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "power.h"

static struct ws_state *state;
static int state_fd = -1;
static char state_path[4096];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000ll + t.tv_nsec;
}

int64_t ws_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

struct ws_state *ws_state(void) { return state; }

const struct ws_model *ws_model_of(const struct ws_board *board) {
    return ws_model_at(board->model);
}

/* A child of fork() has no record lock, and the mutex may belong to a thread it lacks. */
static void reset_mutex_in_child(void) { pthread_mutex_init(&mutex, NULL); }

__attribute__((constructor)) static void register_fork_handler(void) {
    pthread_atfork(NULL, NULL, reset_mutex_in_child);
}

static nvmlReturn_t map(int fd, uint64_t size) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return NVML_ERROR_MEMORY;
    state = p;
    state_fd = fd;
    return NVML_SUCCESS;
}

/* Both clocks at one moment: time stamps of readings are converted with their difference. */
static void read_clocks(int64_t *monotonic_ns, int64_t *realtime_ns) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 20; i++) { /* the tightest pair; the others were interrupted */
        int64_t before = clock_ns(CLOCK_MONOTONIC), real = clock_ns(CLOCK_REALTIME),
                after = clock_ns(CLOCK_MONOTONIC);
        if (after - before >= best) continue;
        best = after - before;
        *monotonic_ns = before + best / 2;
        *realtime_ns = real;
    }
}

nvmlReturn_t ws_state_create(const char *path, const unsigned int *models, unsigned int count,
                             int mig_on) {
    if (!path || count == 0 || count > WS_MAX_BOARDS) return NVML_ERROR_INVALID_ARGUMENT;
    char temporary[sizeof state_path];
    if (snprintf(temporary, sizeof temporary, "%s.%ld.new", path, (long)getpid()) >=
        (int)sizeof temporary)
        return NVML_ERROR_INVALID_ARGUMENT;
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_UNKNOWN;
    uint64_t size = sizeof(struct ws_state) + (uint64_t)count * sizeof(state->log[0]);
    if (ftruncate(fd, (off_t)size) != 0) {
        close(fd);
        unlink(temporary);
        return NVML_ERROR_MEMORY;
    }
    struct ws_state *s = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED) {
        close(fd);
        unlink(temporary);
        return NVML_ERROR_MEMORY;
    }
    s->magic = WS_MAGIC;
    s->version = WS_STATE_VERSION;
    s->size = size;
    s->board_count = count;
    read_clocks(&s->created_ns, &s->created_realtime_ns);
    s->next_serial = 1;
    s->next_fault = 1;
    s->cuda_version = 13000;
    /* The form of real versions, with a minor number that no release has. */
    snprintf(s->driver_version, sizeof s->driver_version, "580.999.01");
    snprintf(s->nvml_version, sizeof s->nvml_version, "13.580.999.01");
    for (unsigned int i = 0; i < count; i++) {
        struct ws_board *b = &s->board[i];
        const struct ws_model *m = ws_model_at(models[i]);
        b->model = models[i];
        snprintf(b->model_name, sizeof b->model_name, "%s", m->model);
        b->mig_current = b->mig_pending = mig_on != 0;
        b->limit_w = m->default_limit_w;
        ws_default_options(m, b->option);
        b->activity_ns = s->created_ns;
        ws_power_first(b, s->log[i], s->created_ns - WS_UPTIME_S * 1000000000ll);
    }
    munmap(s, size);
    close(fd);
    /* link() does not replace an existing file; the state appears complete or not at all. */
    nvmlReturn_t rc = NVML_SUCCESS;
    if (link(temporary, path) != 0)
        rc = errno == EEXIST ? NVML_ERROR_IN_USE : NVML_ERROR_UNKNOWN;
    unlink(temporary);
    return rc;
}

nvmlReturn_t ws_state_open(const char *path) {
    if (!path) path = getenv("WATTSIM_STATE");
    if (!path || !*path) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (state) return strcmp(path, state_path) == 0 ? NVML_SUCCESS : NVML_ERROR_IN_USE;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
    struct stat st;
    struct ws_state head;
    if (fstat(fd, &st) != 0 || pread(fd, &head, 64, 0) != 64 || head.magic != WS_MAGIC ||
        head.version != WS_STATE_VERSION || head.size != (uint64_t)st.st_size ||
        head.size != sizeof(struct ws_state) + head.board_count * sizeof(state->log[0])) {
        close(fd);
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    nvmlReturn_t rc = map(fd, head.size);
    if (rc != NVML_SUCCESS) {
        close(fd);
        return rc;
    }
    for (unsigned int i = 0; i < state->board_count; i++) {
        const struct ws_model *m = ws_model_at(state->board[i].model);
        if (!m || strcmp(m->model, state->board[i].model_name) != 0) {
            munmap(state, head.size);
            state = NULL;
            close(fd);
            return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
        }
    }
    snprintf(state_path, sizeof state_path, "%s", path);
    return NVML_SUCCESS;
}

void ws_state_close(void) {
    if (!state) return;
    munmap(state, state->size);
    close(state_fd);
    state = NULL;
    state_fd = -1;
}

void ws_lock(void) {
    pthread_mutex_lock(&mutex);
    struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
    while (fcntl(state_fd, F_SETLKW, &l) != 0 && errno == EINTR) {
    }
    for (unsigned int i = 0; i < state->board_count; i++)
        if (state->changing[i]) {
            state->board[i] = state->before[i];
            state->changing[i] = 0;
        }
}

void ws_unlock(void) {
    struct flock l = { .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
    fcntl(state_fd, F_SETLK, &l);
    pthread_mutex_unlock(&mutex);
}

void ws_change_begin(unsigned int board) {
    if (state->changing[board]) return;
    state->before[board] = state->board[board];
    __atomic_store_n(&state->changing[board], 1, __ATOMIC_SEQ_CST);
}

void ws_change_end(unsigned int board) {
    __atomic_store_n(&state->changing[board], 0, __ATOMIC_SEQ_CST);
}

void ws_post_event(struct ws_board *board, unsigned int type, unsigned int data) {
    uint64_t n = ++board->event_count;
    board->event[n % WS_MAX_EVENTS] = (struct ws_board_event){ n, type, data };
}
