/* Counter-based random numbers (Philox4x32-10 of Random123, Salmon et al. 2011).
 *
 * A number depends only on its key and its index, never on what was drawn before: any device can
 * rebuild any slice of a perturbation direction, nothing is stored or sent, and a resumed run draws
 * the same numbers. */
#ifndef HOP_BASE_RANDOM_H
#define HOP_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Separate domains never share numbers even where the other fields agree. */
enum hop_random_domain {
    HOP_RANDOM_DIRECTION, /* z of a zeroth-order probe */
    HOP_RANDOM_INIT,      /* adapter and weight initialisation */
    HOP_RANDOM_SHUFFLE,   /* order of the rows of an epoch */
    HOP_RANDOM_SAMPLE     /* text generation */
};

struct hop_random_key {
    uint64_t seed;
    enum hop_random_domain domain;
    uint32_t step;        /* optimizer step, or epoch for HOP_RANDOM_SHUFFLE */
    uint16_t micro_batch; /* index inside the mini-batch */
    uint16_t probe;       /* index inside the micro-batch */
    uint16_t sample;      /* of the micro-batch, where every sample has its own numbers */
    uint32_t parameter;   /* which tensor: see hop_parameter_id() */
};

/* out[i] = element begin+i of the key's stream, i < n. */
void hop_random_normal(const struct hop_random_key *key, size_t begin, size_t n, float *out);
/* Uniform in [0, 1). */
void hop_random_uniform(const struct hop_random_key *key, size_t begin, size_t n, float *out);
/* -1 or 1, each with probability one half. */
void hop_random_sign(const struct hop_random_key *key, size_t begin, size_t n, float *out);

/* Fisher-Yates over order[0..n). */
void hop_random_shuffle(const struct hop_random_key *key, uint32_t *order, size_t n);

#endif
