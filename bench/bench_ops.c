/* Rates of the operations of a backend on the shapes of three models, each beside the time that
 * bare matrix products of the same size take. One JSON line a case.
 *
 * bench_ops [threads [backend [model [f32|bf16 [processor]]]]] */
#include <math.h>
#include <string.h>

#include "gemm_rate.h"
#include "ops/ops.h"

enum { RANK = 8, TANGENTS = 3, REPEATS_MIN = 3 };
static const double seconds = 0.3; /* a case */

struct model {
    const char *name;
    int64_t dim, blocks, heads, kv_heads, ffn, words, batch, length;
};

static const struct model models[] = {
    {"tiny", 288, 6, 6, 6, 768, 32000, 8, 256},
    {"small", 576, 30, 9, 3, 1536, 49152, 4, 256},
    {"L1b4", 2048, 4, 32, 8, 8192, 32000, 2, 384},
};

struct bench {
    const struct hop_ops *ops;
    struct hop_backend *backend;
    const struct model *model;
    enum hop_dtype dtype;
    int threads;
    int64_t rows;
    struct hop_error err;
    double forward, backward;           /* seconds of one step of the whole model so far */
    double bare_forward, bare_backward; /* the same for its matrix products alone */
};

static void check(const struct bench *b, hop_status status)
{
    gemm_rate_check(status, &b->err);
}

static void *activation(const struct bench *b, int64_t n)
{
    return gemm_rate_matrix(b->dtype, n);
}

static void report(const struct bench *b, const char *op, double took, double gflop, double bare)
{
    printf("{\"bench\":\"ops\",\"backend\":\"%s\",\"threads\":%d,\"model\":\"%s\",\"dtype\":\"%s\","
           "\"op\":\"%s\",\"rows\":%lld,\"ms\":%.3f",
           b->ops->name, b->threads, b->model->name, hop_dtype_name(b->dtype), op,
           (long long)b->rows, took * 1e3);
    if (gflop > 0)
        printf(",\"gflops\":%.1f", gflop / took);
    if (bare > 0)
        printf(",\"of_bare_gemm\":%.3f", bare / took);
    printf("}\n");
    fflush(stdout);
}

/* Best time of a statement that returns a status. */
#define BEST(b, best, call)                                                                        \
    do {                                                                                           \
        double best_spent = 0.0;                                                                   \
        best = 1e30;                                                                               \
        for (int run = 0; run < REPEATS_MIN || best_spent < seconds; run++) {                      \
            const double best_start = gemm_rate_now((b)->threads);                                 \
            check(b, call);                                                                        \
            const double best_took = gemm_rate_now((b)->threads) - best_start;                     \
            best = best_took < best ? best_took : best;                                            \
            best_spent += best_took;                                                               \
        }                                                                                          \
    } while (0)

/* Seconds of the bare product forward and backward of one weight. */
static void bare(const struct bench *b, int64_t out, int64_t in, double *forward, double *backward)
{
    const double work = 2e-9 * (double)b->rows * (double)out * (double)in;
    *forward = work / gemm_rate(b->threads, b->dtype, true, b->rows, out, in, seconds);
    *backward = work / gemm_rate(b->threads, b->dtype, false, b->rows, in, out, seconds);
    printf("{\"bench\":\"gemm\",\"library\":\"%s\",\"threads\":%d,\"model\":\"%s\","
           "\"dtype\":\"%s\",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"forward_gflops\":%.1f,"
           "\"backward_gflops\":%.1f}\n",
           hop_gemm_library(), b->threads, b->model->name, hop_dtype_name(b->dtype),
           (long long)b->rows, (long long)out, (long long)in, work / *forward, work / *backward);
    fflush(stdout);
}

/* The time of `count` tangents, and of each beside the forward call it follows. */
static void report_tangent(const struct bench *b, const char *name, int count, double took,
                           double gflop, double forward)
{
    printf("{\"bench\":\"ops\",\"backend\":\"%s\",\"threads\":%d,\"model\":\"%s\",\"dtype\":\"%s\","
           "\"op\":\"%s tangent, %d at once\",\"rows\":%lld,\"ms\":%.3f,\"gflops\":%.1f,"
           "\"each_of_forward\":%.3f}\n",
           b->ops->name, b->threads, b->model->name, hop_dtype_name(b->dtype), name, count,
           (long long)b->rows, took * 1e3, gflop / took, took / count / forward);
    fflush(stdout);
}

/* Tangents of projections whose forward call took `forward` seconds. */
static void bench_projection_tangent(struct bench *b, const char *name, const void *x, int64_t in,
                                     const struct hop_projection *p, const int64_t *out, int n,
                                     bool residual, double work, double forward)
{
    for (int count = 1; count <= TANGENTS; count += TANGENTS - 1) {
        struct hop_projection_tangent t[3];
        const int64_t rows = count * b->rows;
        void *const dx = activation(b, rows * in);
        float *const da = gemm_rate_matrix(HOP_F32, count * RANK * in), *db[3];
        double took;
        for (int i = 0; i < n; i++) {
            db[i] = gemm_rate_matrix(HOP_F32, count * RANK * out[i]);
            t[i] = (struct hop_projection_tangent){.weight = p[i].weight,
                                                   .lora = p[i].lora,
                                                   .u = p[i].u,
                                                   .groups = count,
                                                   .da = da,
                                                   .db = db[i],
                                                   .dy = activation(b, rows * out[i])};
        }
        BEST(b, took,
             b->ops->project_tangent(b->backend, b->dtype, count, b->rows, x, dx, t, n,
                                     residual ? t[0].dy : NULL, &b->err));
        report_tangent(b, name, count, took, count * work, forward);
        for (int i = 0; i < n; i++) {
            free(t[i].dy);
            free(db[i]);
        }
        free(da);
        free(dx);
    }
}

/* n projections of the same input with these widths. */
static void bench_projection(struct bench *b, const char *name, int64_t in, const int64_t *out,
                             int n, bool residual)
{
    struct hop_projection p[3];
    struct hop_lora lora[3];
    void *host[3];
    void *const x = activation(b, b->rows * in), *const dx = activation(b, b->rows * in);
    double work = 0.0, bare_forward = 0.0, bare_backward = 0.0, took;
    char op[64];
    for (int i = 0; i < n; i++) {
        struct hop_weight *weight;
        double forward, backward;
        bare(b, out[i], in, &forward, &backward);
        bare_forward += forward;
        bare_backward += backward;
        host[i] = activation(b, out[i] * in);
        check(b, b->ops->weight_create(b->backend, host[i], b->dtype, out[i], in, b->dtype,
                                       HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &weight, &b->err));
        lora[i] = (struct hop_lora){.rank = RANK,
                                    .groups = 1,
                                    .scale = 2.0f,
                                    .a = gemm_rate_matrix(HOP_F32, RANK * in),
                                    .b = gemm_rate_matrix(HOP_F32, RANK * out[i])};
        p[i] = (struct hop_projection){.weight = weight,
                                       .lora = &lora[i],
                                       .y = activation(b, b->rows * out[i]),
                                       .u = gemm_rate_matrix(HOP_F32, b->rows * RANK),
                                       .dy = activation(b, b->rows * out[i]),
                                       .da = gemm_rate_matrix(HOP_F32, RANK * in),
                                       .db = gemm_rate_matrix(HOP_F32, RANK * out[i])};
        work += 2e-9 * (double)(b->rows * out[i] * in);
    }
    void *const add = residual ? p[0].y : NULL;
    BEST(b, took, b->ops->project_forward(b->backend, b->dtype, b->rows, x, p, n, add, &b->err));
    snprintf(op, sizeof op, "%s forward, r=%d", name, RANK);
    report(b, op, took, work, bare_forward);
    b->forward += took * (double)b->model->blocks;
    b->bare_forward += bare_forward * (double)b->model->blocks;
    bench_projection_tangent(b, name, x, in, p, out, n, residual, work, took);
    BEST(b, took, b->ops->project_backward(b->backend, b->dtype, b->rows, x, p, n, dx, &b->err));
    snprintf(op, sizeof op, "%s backward, r=%d", name, RANK);
    report(b, op, took, work, bare_backward);
    b->backward += took * (double)b->model->blocks;
    b->bare_backward += bare_backward * (double)b->model->blocks;
    for (int i = 0; i < n; i++)
        p[i].lora = NULL;
    BEST(b, took, b->ops->project_forward(b->backend, b->dtype, b->rows, x, p, n, add, &b->err));
    snprintf(op, sizeof op, "%s forward, no adapter", name);
    report(b, op, took, work, bare_forward);
    BEST(b, took, b->ops->project_backward(b->backend, b->dtype, b->rows, x, p, n, dx, &b->err));
    snprintf(op, sizeof op, "%s backward, no adapter", name);
    report(b, op, took, work, bare_backward);
    for (int i = 0; i < n; i++) {
        struct hop_weight *own;
        const void *const dy = p[i].dy, *const a = lora[i].a, *const up = lora[i].b;
        void *free_me[3];
        memcpy(&own, &p[i].weight, sizeof own);
        b->ops->weight_free(b->backend, own);
        memcpy(&free_me[0], &dy, sizeof dy);
        memcpy(&free_me[1], &a, sizeof a);
        memcpy(&free_me[2], &up, sizeof up);
        for (int j = 0; j < 3; j++)
            free(free_me[j]);
        free(p[i].y);
        free(p[i].u);
        free(p[i].da);
        free(p[i].db);
        free(host[i]);
    }
    free(x);
    free(dx);
}

static void bench_attention_tangent(struct bench *b, const struct hop_attention *shape,
                                    const void *q, const void *k, const void *v, const void *out,
                                    const float *lse, double work, double forward)
{
    for (int count = 1; count <= TANGENTS; count += TANGENTS - 1) {
        const int64_t rows = count * b->rows;
        void *const dq = activation(b, rows * shape->q_stride);
        void *const dk = activation(b, rows * shape->kv_stride);
        void *const dv = activation(b, rows * shape->kv_stride);
        void *const dout = activation(b, rows * shape->q_stride);
        double took;
        BEST(b, took,
             b->ops->attention_tangent(b->backend, b->dtype, shape, count, q, k, v, out, lse, dq,
                                       dk, dv, dout, &b->err));
        report_tangent(b, "attention", count, took, (2 * count + 0.5) * work, forward);
        free(dq);
        free(dk);
        free(dv);
        free(dout);
    }
}

static void bench_attention(struct bench *b)
{
    const struct model *const m = b->model;
    const int64_t d = m->dim / m->heads, q_width = m->dim, kv_width = m->kv_heads * d;
    int32_t offset[65] = {0};
    for (int64_t s = 0; s < m->batch; s++)
        offset[s + 1] = offset[s] + (int32_t)m->length;
    const struct hop_attention shape = {.sequences = (int32_t)m->batch,
                                        .heads = (int32_t)m->heads,
                                        .kv_heads = (int32_t)m->kv_heads,
                                        .head_dim = (int32_t)d,
                                        .q_offset = offset,
                                        .kv_offset = offset,
                                        .q_stride = q_width,
                                        .kv_stride = kv_width,
                                        .scale = 1.0f / sqrtf((float)d)};
    void *const q = activation(b, b->rows * q_width), *const k = activation(b, b->rows * kv_width);
    void *const v = activation(b, b->rows * kv_width), *const out =
                                                           activation(b, b->rows * q_width);
    void *const dout = activation(b, b->rows * q_width), *const dq =
                                                             activation(b, b->rows * q_width);
    void *const dk = activation(b, b->rows * kv_width), *const dv =
                                                            activation(b, b->rows * kv_width);
    float *const lse = gemm_rate_matrix(HOP_F32, b->rows * m->heads);
    /* Two products of the causal half. */
    const double work = 2e-9 * (double)(b->rows * m->length * q_width);
    double took;
    BEST(b, took,
         b->ops->attention_forward(b->backend, b->dtype, &shape, q, k, v, out, lse, &b->err));
    report(b, "attention forward", took, work, 0.0);
    bench_attention_tangent(b, &shape, q, k, v, out, lse, work, took);
    b->forward += took * (double)m->blocks;
    BEST(b, took,
         b->ops->attention_backward(b->backend, b->dtype, &shape, q, k, v, out, lse, dout, dq, dk,
                                    dv, &b->err));
    report(b, "attention backward", took, 2.5 * work, 0.0);
    b->backward += took * (double)m->blocks;
    void *const all[] = {q, k, v, out, dout, dq, dk, dv, lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void bench_elementwise(struct bench *b)
{
    const struct model *const m = b->model;
    const int64_t n = b->rows * m->ffn, d = m->dim / m->heads;
    void *const gate = activation(b, n), *const up = activation(b, n), *const y = activation(b, n);
    float *const gain = gemm_rate_matrix(HOP_F32, m->dim);
    float *const rstd = gemm_rate_matrix(HOP_F32, b->rows);
    float *const table = gemm_rate_matrix(HOP_F32, b->rows * d / 2);
    int32_t *const position = gemm_rate_matrix(HOP_F32, b->rows);
    const double blocks = (double)m->blocks;
    double took;
    for (int64_t r = 0; r < b->rows; r++)
        position[r] = (int32_t)(r % m->length);
    BEST(b, took, b->ops->swiglu_forward(b->backend, b->dtype, n, gate, up, y, &b->err));
    report(b, "swiglu forward", took, 0, 0);
    b->forward += took * blocks;
    BEST(b, took, b->ops->swiglu_backward(b->backend, b->dtype, n, gate, up, y, gate, up, &b->err));
    report(b, "swiglu backward", took, 0, 0);
    b->backward += took * blocks;
    BEST(b, took,
         b->ops->rmsnorm_forward(b->backend, b->dtype, b->rows, m->dim, gate, gain, 1e-5f, y, rstd,
                                 &b->err));
    report(b, "rmsnorm forward", took, 0, 0);
    b->forward += 2 * took * blocks;
    BEST(b, took,
         b->ops->rmsnorm_backward(b->backend, b->dtype, b->rows, m->dim, gate, gain, rstd, y, up,
                                  &b->err));
    report(b, "rmsnorm backward", took, 0, 0);
    b->backward += 2 * took * blocks;
    BEST(b, took,
         b->ops->rope_forward(b->backend, b->dtype, b->rows, (int32_t)m->heads, (int32_t)d, m->dim,
                              position, table, table, y, &b->err));
    report(b, "rope forward", took, 0, 0);
    b->forward += took * blocks * (double)(m->heads + m->kv_heads) / (double)m->heads;
    b->backward += took * blocks * (double)(m->heads + m->kv_heads) / (double)m->heads;
    void *const all[] = {gate, up, y, gain, rstd, table, position};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void bench_loss(struct bench *b)
{
    const struct model *const m = b->model;
    double forward, backward, took;
    bare(b, m->words, m->dim, &forward, &backward);
    void *const x = activation(b, b->rows * m->dim), *const dx = activation(b, b->rows * m->dim);
    void *const host = activation(b, m->words * m->dim);
    float *const logprob = gemm_rate_matrix(HOP_F32, b->rows);
    int32_t *const row = gemm_rate_matrix(HOP_F32, b->rows), *const id =
                                                                 gemm_rate_matrix(HOP_F32, b->rows);
    for (int64_t r = 0; r < b->rows; r++) {
        row[r] = (int32_t)r;
        id[r] = (int32_t)(r * 31 % m->words);
    }
    struct hop_weight *head;
    check(b, b->ops->weight_create(b->backend, host, b->dtype, m->words, m->dim, b->dtype,
                                   HOP_WEIGHT_FORWARD | HOP_WEIGHT_BACKWARD, &head, &b->err));
    const double work = 2e-9 * (double)(b->rows * m->words * m->dim);
    BEST(b, took,
         b->ops->loss_forward(b->backend, b->dtype, b->rows, x, head, (int32_t)b->rows, row, id,
                              logprob, &b->err));
    report(b, "loss forward", took, work, forward);
    const double loss_forward = took;
    BEST(b, took,
         b->ops->loss_backward(b->backend, b->dtype, b->rows, x, head, (int32_t)b->rows, row, id,
                               1.0f, logprob, dx, &b->err));
    report(b, "loss backward", took, 2 * work, forward + backward);
    b->forward += loss_forward;
    b->backward += took - loss_forward; /* training computes both in one pass */
    b->bare_forward += forward;
    b->bare_backward += backward;
    b->ops->weight_free(b->backend, head);
    void *const all[] = {x, dx, host, logprob, row, id};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void bench_model(struct bench *b)
{
    const struct model *const m = b->model;
    const int64_t kv = m->kv_heads * (m->dim / m->heads);
    const int64_t qkv[] = {m->dim, kv, kv}, wide[] = {m->ffn, m->ffn};
    b->rows = m->batch * m->length;
    b->forward = b->backward = b->bare_forward = b->bare_backward = 0.0;
    bench_projection(b, "q k v", m->dim, qkv, 3, false);
    bench_projection(b, "o", m->dim, qkv, 1, true);
    bench_projection(b, "gate up", m->dim, wide, 2, false);
    bench_projection(b, "down", m->ffn, qkv, 1, true);
    bench_attention(b);
    bench_elementwise(b);
    bench_loss(b);
    const double train = b->forward + b->backward, products = b->bare_forward + b->bare_backward;
    printf("{\"bench\":\"sum of ops\",\"backend\":\"%s\",\"threads\":%d,\"model\":\"%s\","
           "\"dtype\":\"%s\",\"forward_tokens_per_s\":%.0f,\"train_tokens_per_s\":%.0f,"
           "\"forward_of_bare_gemm\":%.3f,\"train_of_bare_gemm\":%.3f}\n",
           b->ops->name, b->threads, m->name, hop_dtype_name(b->dtype),
           (double)b->rows / b->forward, (double)b->rows / train, b->bare_forward / b->forward,
           products / train);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : omp_get_num_procs();
    struct bench b = {.ops = hop_backend_find(argc > 2 ? argv[2] : "cpu"), .threads = threads};
    if (!b.ops || threads < 1 || threads > GEMM_RATE_THREADS_MAX) {
        fprintf(stderr, "usage: bench_ops [threads [backend [model [f32|bf16 [processor]]]]]\n");
        return 2;
    }
    gemm_rate_processor_time = argc > 5;
    check(&b, b.ops->open(threads, &b.backend, &b.err));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int t = 0; t < 2; t++) {
            b.model = &models[i];
            b.dtype = t ? HOP_BF16 : HOP_F32;
            if ((argc > 3 && *argv[3] && strcmp(argv[3], b.model->name) != 0) ||
                (argc > 4 && *argv[4] && strcmp(argv[4], hop_dtype_name(b.dtype)) != 0))
                continue;
            bench_model(&b);
        }
    b.ops->close(b.backend);
    return 0;
}
