#include "power.h"

#include <math.h>
#include <stddef.h>

#include "tables.h"

#define NS 1e-9

/* Part of the dynamic range that is not in proportion to the busy SMs (caches, memory system,
 * interconnect wake up with the first busy slice), and how fast it saturates with the load.
 * Chosen so that one busy slice costs more than its share, as published MIG traces show; not a
 * measurement. */
#define WHOLE_BOARD_PART 0.15
#define SATURATION_LOAD 0.20

/* ---- demand from activity ------------------------------------------------------------------ */

static double clip01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

static double ci_activity(const struct ws_board *b, const struct ws_gi *gi,
                          const struct ws_ci *ci) {
    double a = 0;
    for (unsigned int w = 0; w < WS_MAX_WORKERS; w++)
        if ((b->worker[w].flags & WS_WORKER_USED) && b->worker[w].gi_serial == gi->serial &&
            b->worker[w].ci_serial == ci->serial)
            a += b->worker[w].activity;
    return clip01(a);
}

/* Sets the activities of the board and of its instances; returns the demanded power. */
static double demand(struct ws_board *b) {
    const struct ws_model *m = ws_model_of(b);
    double load = 0;
    if (!b->mig_current) {
        for (unsigned int w = 0; w < WS_MAX_WORKERS; w++)
            if (b->worker[w].flags & WS_WORKER_USED) load += b->worker[w].activity;
        load = clip01(load);
    } else {
        for (unsigned int g = 0; g < WS_MAX_GI; g++) {
            struct ws_gi *gi = &b->gi[g];
            gi->activity = 0;
            if (!gi->serial) continue;
            double busy_sms = 0;
            for (unsigned int c = 0; c < WS_MAX_CI; c++)
                if (gi->ci[c].serial) busy_sms += ci_activity(b, gi, &gi->ci[c]) * gi->ci[c].sms;
            gi->activity = clip01(busy_sms / ws_profile_at(m, gi->profile)->sms);
            load += busy_sms / m->sms;
        }
        load = clip01(load);
    }
    b->activity = load;
    double idle = b->option[b->mig_current ? WS_IDLE_MIG_W : WS_IDLE_W];
    double dynamic = b->option[WS_PEAK_W] - idle;
    double saturation = (1 - exp(-load / SATURATION_LOAD)) / (1 - exp(-1 / SATURATION_LOAD));
    return idle + dynamic * ((1 - WHOLE_BOARD_PART) * load + WHOLE_BOARD_PART * saturation);
}

void ws_activity_integrate(struct ws_board *b, int64_t now_ns) {
    double dt = (double)(now_ns - b->activity_ns) * NS;
    if (dt <= 0) return;
    b->activity_integral += b->activity * dt;
    for (unsigned int g = 0; g < WS_MAX_GI; g++)
        if (b->gi[g].serial) b->gi[g].activity_integral += b->gi[g].activity * dt;
    b->activity_ns = now_ns;
}

/* ---- one segment --------------------------------------------------------------------------- */

static double cut(double w, double limit_w) { return w < limit_w ? w : limit_w; }

/* Demanded power of the segment at x ns after its origin. */
static double segment_demand(const struct ws_segment *s, double x) {
    if (s->kind == WS_CONSTANT) return s->low_w;
    double phase = fmod(x, (double)s->period_ns) / (double)s->period_ns;
    if (s->kind == WS_SQUARE) return phase < s->duty ? s->high_w : s->low_w;
    return s->low_w + (s->high_w - s->low_w) * phase;
}

/* Integral (W x periods) of the limited wave over the first `phase` (0..1) of one period. */
static double wave_integral(const struct ws_segment *s, double phase) {
    if (s->kind == WS_SQUARE) {
        double high = phase < s->duty ? phase : s->duty;
        return cut(s->high_w, s->limit_w) * high + cut(s->low_w, s->limit_w) * (phase - high);
    }
    double slope = s->high_w - s->low_w;
    double reach = slope > 0 ? clip01((s->limit_w - s->low_w) / slope) : (s->low_w <= s->limit_w);
    double free_part = phase < reach ? phase : reach;
    return s->low_w * free_part + slope * free_part * free_part / 2 +
           s->limit_w * (phase - free_part);
}

/* Integral (J) of the limited power from the origin to x ns after it. */
static double primitive(const struct ws_segment *s, double x) {
    if (s->kind == WS_CONSTANT) return cut(s->low_w, s->limit_w) * x * NS;
    double periods = floor(x / (double)s->period_ns);
    double phase = x / (double)s->period_ns - periods;
    return (periods * wave_integral(s, 1) + wave_integral(s, phase)) * (double)s->period_ns * NS;
}

static double segment_energy(const struct ws_segment *s, int64_t t_ns) {
    if (s->kind == WS_CONSTANT) return cut(s->low_w, s->limit_w) * (double)(t_ns - s->t_ns) * NS;
    return primitive(s, (double)(t_ns - s->origin_ns)) -
           primitive(s, (double)(s->t_ns - s->origin_ns));
}

static double segment_temperature(const struct ws_board *b, const struct ws_segment *s,
                                  int64_t t_ns) {
    double dt = (double)(t_ns - s->t_ns) * NS;
    if (dt <= 0) return s->temperature_c;
    double mean_w = segment_energy(s, t_ns) / dt;
    double target = b->option[WS_AMBIENT_C] + b->option[WS_HEAT_C_PER_W] * mean_w;
    return target + (s->temperature_c - target) * exp(-dt / b->option[WS_HEAT_TAU_S]);
}

/* Time at the limit counts for constant segments only; waves are a meter test. */
static double segment_capped_s(const struct ws_segment *s, int64_t t_ns) {
    return s->kind == WS_CONSTANT && s->low_w > s->limit_w ? (double)(t_ns - s->t_ns) * NS : 0;
}

/* ---- the log ------------------------------------------------------------------------------- */

static struct ws_segment *entry(unsigned int board, uint64_t i) {
    return &ws_state()->log[board][i % WS_LOG_LENGTH];
}

static uint64_t oldest(const struct ws_board *b) {
    return b->log_count > WS_LOG_LENGTH ? b->log_count - WS_LOG_LENGTH : 0;
}

/* Number of the entry that holds at t_ns, or -1 when that is before the log. */
static int64_t find(unsigned int board, int64_t t_ns) {
    const struct ws_board *b = &ws_state()->board[board];
    uint64_t low = oldest(b), high = b->log_count;
    if (entry(board, low)->t_ns > t_ns) return -1;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (entry(board, middle)->t_ns <= t_ns) low = middle;
        else high = middle;
    }
    return (int64_t)low;
}

/* Entries later than t_ns (a trace's future) are dropped before anything is appended. */
static void truncate_after(unsigned int board, int64_t t_ns) {
    struct ws_board *b = &ws_state()->board[board];
    while (b->log_count > oldest(b) + 1 && entry(board, b->log_count - 1)->t_ns > t_ns)
        b->log_count--;
}

static void append(unsigned int board, struct ws_segment s) {
    struct ws_board *b = &ws_state()->board[board];
    const struct ws_segment *last = entry(board, b->log_count - 1);
    s.energy_j = last->energy_j + segment_energy(last, s.t_ns);
    s.temperature_c = segment_temperature(b, last, s.t_ns);
    s.capped_s = last->capped_s + segment_capped_s(last, s.t_ns);
    *entry(board, b->log_count) = s;
    __atomic_store_n(&b->log_count, b->log_count + 1, __ATOMIC_SEQ_CST);
}

static struct ws_segment constant(const struct ws_board *b, int64_t t_ns, double w,
                                  unsigned int scripted) {
    return (struct ws_segment){ .t_ns = t_ns, .origin_ns = t_ns, .low_w = w, .high_w = w,
                                .limit_w = b->limit_w, .kind = WS_CONSTANT,
                                .scripted = scripted };
}

void ws_power_first(struct ws_board *b, struct ws_segment *log, int64_t t_ns) {
    struct ws_segment s = constant(b, t_ns, demand(b), 0);
    s.temperature_c = b->option[WS_AMBIENT_C] + b->option[WS_HEAT_C_PER_W] * s.low_w;
    log[0] = s;
    b->log_count = 1;
}

void ws_power_update(unsigned int board, int64_t now_ns) {
    struct ws_board *b = &ws_state()->board[board];
    ws_activity_integrate(b, now_ns);
    double w = demand(b);
    int64_t i = find(board, now_ns);
    const struct ws_segment *now = entry(board, (uint64_t)i);
    if (now->scripted || (now->low_w == w && now->limit_w == b->limit_w)) return;
    truncate_after(board, now_ns);
    append(board, constant(b, now_ns, w, 0));
}

void ws_power_script(unsigned int board, int64_t now_ns, unsigned int kind, double low_w,
                     double high_w, double period_s, double duty) {
    struct ws_board *b = &ws_state()->board[board];
    struct ws_segment s = constant(b, now_ns, low_w, 1);
    s.kind = kind;
    s.high_w = high_w;
    s.duty = duty;
    s.period_ns = (int64_t)llround(period_s * 1e9);
    truncate_after(board, now_ns);
    append(board, s);
}

void ws_power_trace(unsigned int board, int64_t now_ns, unsigned int count,
                    const double *offset_s, const double *power_w) {
    truncate_after(board, now_ns);
    for (unsigned int i = 0; i < count; i++)
        append(board, constant(&ws_state()->board[board],
                               now_ns + (int64_t)llround(offset_s[i] * 1e9), power_w[i], 1));
}

void ws_power_unscript(unsigned int board, int64_t now_ns) {
    struct ws_board *b = &ws_state()->board[board];
    ws_activity_integrate(b, now_ns);
    truncate_after(board, now_ns);
    append(board, constant(b, now_ns, demand(b), 0));
}

void ws_power_relimit(unsigned int board, int64_t now_ns) {
    struct ws_board *b = &ws_state()->board[board];
    uint64_t i = (uint64_t)find(board, now_ns), end = b->log_count;
    struct ws_segment now = *entry(board, i);
    if (end - i == 1) { /* nothing lies ahead */
        now.t_ns = now_ns;
        now.limit_w = b->limit_w;
        append(board, now);
        return;
    }
    /* A trace lies ahead: write its rest again behind the new entry. */
    b->log_count = i + 1;
    struct ws_segment next = *entry(board, i + 1);
    now.t_ns = now_ns;
    now.limit_w = b->limit_w;
    append(board, now);
    for (uint64_t k = i + 1; k < end; k++) {
        struct ws_segment current = next;
        if (k + 1 < end) next = *entry(board, k + 1);
        /* append() writes slot k + 1, which `next` has already saved */
        current.limit_w = b->limit_w;
        append(board, current);
    }
}

double ws_energy_at(unsigned int board, int64_t t_ns) {
    int64_t i = find(board, t_ns);
    if (i < 0) return NAN;
    const struct ws_segment *s = entry(board, (uint64_t)i);
    return s->energy_j + segment_energy(s, t_ns);
}

double ws_energy_between(unsigned int board, int64_t t0_ns, int64_t t1_ns) {
    return ws_energy_at(board, t1_ns) - ws_energy_at(board, t0_ns);
}

double ws_demand_at(unsigned int board, int64_t t_ns) {
    int64_t i = find(board, t_ns);
    if (i < 0) return NAN;
    const struct ws_segment *s = entry(board, (uint64_t)i);
    return segment_demand(s, (double)(t_ns - s->origin_ns));
}

double ws_power_at(unsigned int board, int64_t t_ns) {
    int64_t i = find(board, t_ns);
    if (i < 0) return NAN;
    return cut(ws_demand_at(board, t_ns), entry(board, (uint64_t)i)->limit_w);
}

double ws_temperature_at(unsigned int board, int64_t t_ns) {
    int64_t i = find(board, t_ns);
    if (i < 0) return ws_state()->board[board].option[WS_AMBIENT_C];
    return segment_temperature(&ws_state()->board[board], entry(board, (uint64_t)i), t_ns);
}

double ws_capped_seconds_at(unsigned int board, int64_t t_ns) {
    int64_t i = find(board, t_ns);
    if (i < 0) return 0;
    const struct ws_segment *s = entry(board, (uint64_t)i);
    return s->capped_s + segment_capped_s(s, t_ns);
}
