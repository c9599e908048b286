#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cluster/cluster.h"
#include "io/json.h"
#include "model/lora.h"

static const char where[] = "setup message";

static hop_status get_int32(const json_t *object, const char *key, int32_t *out,
                            struct hop_error *err)
{
    int64_t value;
    *out = 0;
    HOP_TRY(hop_json_get_int(object, key, where, 0, &value, err));
    if (value < INT32_MIN || value > INT32_MAX)
        return hop_fail(err, HOP_PEER, "%s: %s: %lld is out of range", where, key,
                        (long long)value);
    *out = (int32_t)value;
    return HOP_OK;
}

static hop_status read_limits(const json_t *array, struct hop_batch_limits *out,
                              struct hop_error *err)
{
    int32_t *const fields[] = {&out->sequences, &out->tokens, &out->labels};
    for (size_t i = 0; i < 3; i++) {
        const json_int_t value = json_integer_value(json_array_get(array, i));
        if (value < 1 || value > INT32_MAX)
            return hop_fail(err, HOP_PEER, "%s: limits: %lld is out of range", where,
                            (long long)value);
        *fields[i] = (int32_t)value;
    }
    return HOP_OK;
}

static hop_status read_numbers(struct hop_session *session, struct hop_error *err)
{
    const json_t *const setup = session->setup;
    struct hop_executor_config *const config = &session->config;
    double epsilon, decay;
    int64_t seed;
    const char *dtype, *distribution;
    HOP_TRY(hop_json_get_real(setup, "epsilon", where, 0, &epsilon, err));
    HOP_TRY(hop_json_get_real(setup, "weight_decay", where, 0, &decay, err));
    HOP_TRY(hop_json_get_real(setup, "timeout", where, 600, &session->transport->timeout, err));
    HOP_TRY(hop_json_get_int(setup, "seed", where, 0, &seed, err));
    HOP_TRY(hop_json_get_int(setup, "trace_steps", where, 0, &config->trace_steps, err));
    HOP_TRY(hop_json_get_string(setup, "dtype", where, "f32", &dtype, err));
    HOP_TRY(hop_json_get_string(setup, "distribution", where, "gaussian", &distribution, err));
    HOP_TRY(get_int32(setup, "micro_batches", &session->batch_count, err));
    HOP_TRY(get_int32(setup, "window", &config->window, err));
    HOP_TRY(get_int32(setup, "cache", &config->cache, err));
    HOP_TRY(get_int32(setup, "cache_sequences", &config->cache_sequences, err));
    config->epsilon = (float)epsilon;
    config->weight_decay = (float)decay;
    config->seed = (uint64_t)seed;
    config->dtype = strcmp(dtype, "bf16") == 0 ? HOP_BF16 : HOP_F32;
    config->distribution = strcmp(distribution, hop_distribution_names[HOP_RADEMACHER]) == 0
                               ? HOP_RADEMACHER
                               : HOP_GAUSSIAN;
    return HOP_OK;
}

/* Rank, name and (for this rank) backend and threads of every device. */
static hop_status read_device(struct hop_session *session, int32_t index, const json_t *device,
                              struct hop_error *err)
{
    int32_t rank;
    HOP_TRY(get_int32(device, "rank", &rank, err));
    HOP_TRY(hop_json_get_string(device, "name", where, "?", &session->device_names[index], err));
    session->rank_of[index] = rank;
    if (rank < 0)
        return HOP_OK;
    if (rank >= session->transport->size || session->device_of[rank] >= 0)
        return hop_fail(err, HOP_PEER, "%s: rank %d of device %s is out of range or taken", where,
                        rank, session->device_names[index]);
    session->device_of[rank] = index;
    session->rank_names[rank] = session->device_names[index];
    if (rank != session->transport->rank)
        return HOP_OK;
    session->device = index;
    session->config.device = index;
    HOP_TRY(hop_json_get_string(device, "backend", where, "cpu", &session->config.backend, err));
    HOP_TRY(hop_json_get_bool(device, "bp", where, true, &session->config.bp, err));
    HOP_TRY(get_int32(device, "threads", &session->config.threads, err));
    if (session->config.threads > 0)
        return HOP_OK;
    /* The device's share of its machine's cores. */
    int32_t peers;
    HOP_TRY(get_int32(device, "peers", &peers, err));
    session->config.threads = hop_machine_cores() / (peers > 0 ? peers : 1);
    if (session->config.threads < 1)
        session->config.threads = 1;
    return HOP_OK;
}

static hop_status read_devices(struct hop_session *session, struct hop_error *err)
{
    const json_t *const devices = json_object_get(session->setup, "devices");
    const size_t count = json_array_size(devices), ranks = (size_t)session->transport->size;
    HOP_TRY(hop_calloc(&session->device_names, count, sizeof *session->device_names, err));
    HOP_TRY(hop_calloc(&session->rank_of, count, sizeof *session->rank_of, err));
    HOP_TRY(hop_calloc(&session->rank_names, ranks, sizeof *session->rank_names, err));
    HOP_TRY(hop_calloc(&session->device_of, ranks, sizeof *session->device_of, err));
    for (size_t r = 0; r < ranks; r++)
        session->device_of[r] = -1;
    for (size_t i = 0; i < count; i++)
        HOP_TRY(read_device(session, (int32_t)i, json_array_get(devices, i), err));
    session->config.rank_of = session->rank_of;
    session->transport->names = session->rank_names;
    return HOP_OK;
}

/* Machines */

static hop_status get_device(const struct hop_session *session, int32_t device, int32_t *machine,
                             bool *emulate, struct hop_error *err)
{
    const json_t *const object =
        json_array_get(json_object_get(session->setup, "devices"), (size_t)device);
    HOP_TRY(get_int32(object, "machine", machine, err));
    return hop_json_get_bool(object, "emulate", where, false, emulate, err);
}

/* timed (devices): those that are emulated and on the machine of this one; remote (ranks): those on
 * other machines. */
static hop_status read_machines(const struct hop_session *session, bool *timed, bool *remote,
                                bool *any_remote, struct hop_error *err)
{
    int32_t here, machine;
    bool emulate;
    HOP_TRY(get_device(session, session->device, &here, &emulate, err));
    *any_remote = false;
    for (int32_t d = 0; d < session->plan.devices; d++) {
        const int32_t rank = session->rank_of[d];
        HOP_TRY(get_device(session, d, &machine, &emulate, err));
        timed[d] = emulate && machine == here;
        if (rank < 0 || machine == here)
            continue;
        remote[rank] = *any_remote = true;
    }
    return HOP_OK;
}

static hop_status create_emulation(struct hop_session *session, const bool *timed,
                                   struct hop_error *err)
{
    const json_t *const emulation = json_object_get(session->setup, "emulation");
    if (!emulation || !timed[session->device])
        return HOP_OK;
    HOP_TRY(hop_emulation_create(emulation, &session->plan, session->device, timed,
                                 &session->emulation, err));
    session->config.emulation = session->emulation;
    return HOP_OK;
}

/* Messages of a real network take turns; an emulated device, which counts from when it sees them,
 * has to see them early. */
static hop_status use_network(struct hop_session *session, const bool *remote,
                              struct hop_error *err)
{
    static const double precise_poll = 200e-6;
    if (session->emulation)
        session->transport->longest_poll = precise_poll;
    return hop_transport_take_turns(session->transport, remote, err);
}

static hop_status place(struct hop_session *session, struct hop_error *err)
{
    hop_status status = HOP_OK;
    bool *timed = NULL, *remote = NULL, any_remote;
    HOP_TRY_DONE(hop_calloc(&timed, (size_t)session->plan.devices, sizeof *timed, err));
    HOP_TRY_DONE(hop_calloc(&remote, (size_t)session->transport->size, sizeof *remote, err));
    HOP_TRY_DONE(read_machines(session, timed, remote, &any_remote, err));
    HOP_TRY_DONE(create_emulation(session, timed, err));
    if (any_remote)
        HOP_TRY_DONE(use_network(session, remote, err));
done:
    free(timed);
    free(remote);
    return status;
}

static hop_status read_part_limits(struct hop_session *session, struct hop_error *err)
{
    const json_t *const list = json_object_get(session->setup, "part_limits");
    const size_t parts = (size_t)session->plan.part_count;
    if (json_array_size(list) != parts)
        return hop_fail(err, HOP_PEER, "%s: part_limits: %zu of them for %zu parts", where,
                        json_array_size(list), parts);
    HOP_TRY(hop_calloc(&session->part_limits, parts, sizeof *session->part_limits, err));
    for (size_t p = 0; p < parts; p++)
        HOP_TRY(read_limits(json_array_get(list, p), &session->part_limits[p], err));
    session->config.part_limits = session->part_limits;
    return HOP_OK;
}

static hop_status create_batches(struct hop_session *session, struct hop_error *err)
{
    if (session->batch_count < 1 || session->batch_count > 1 << 15)
        return hop_fail(err, HOP_PEER, "%s: %d micro-batches", where, session->batch_count);
    HOP_TRY(
        hop_calloc(&session->batches, (size_t)session->batch_count, sizeof *session->batches, err));
    for (int32_t m = 0; m < session->batch_count; m++)
        HOP_TRY(hop_batch_create(&session->config.limits, &session->batches[m], err));
    const size_t places = (size_t)session->batch_count * (size_t)session->config.limits.sequences;
    HOP_TRY(hop_calloc(&session->past, places, sizeof *session->past, err));
    return hop_calloc(&session->place, places, sizeof *session->place, err);
}

static hop_status read_setup(struct hop_session *session, struct hop_error *err)
{
    const json_t *const setup = session->setup;
    int32_t protocol;
    HOP_TRY(get_int32(setup, "protocol", &protocol, err));
    if (protocol != HOP_PROTOCOL)
        return hop_fail(err, HOP_PEER,
                        "%s: protocol %d, this build speaks %d; install one version everywhere",
                        where, protocol, HOP_PROTOCOL);
    HOP_TRY(hop_model_config_parse(json_object_get(setup, "model"), where, &session->config.model,
                                   err));
    HOP_TRY(hop_lora_parse(json_object_get(setup, "lora"), where, &session->config.lora, err));
    HOP_TRY(read_limits(json_object_get(setup, "limits"), &session->config.limits, err));
    HOP_TRY(read_numbers(session, err));
    HOP_TRY(read_devices(session, err));
    HOP_TRY(hop_plan_parse(json_object_get(setup, "plan"), where, session->device_names,
                           (int32_t)json_array_size(json_object_get(setup, "devices")),
                           &session->plan, err));
    HOP_TRY(read_part_limits(session, err));
    return create_batches(session, err);
}

hop_status hop_session_create(json_t *setup, struct hop_transport *transport,
                              struct hop_session *out, struct hop_error *err)
{
    struct hop_session session = {
        .transport = transport, .setup = json_incref(setup), .device = -1};
    const hop_status status = read_setup(&session, err);
    if (status != HOP_OK) {
        hop_session_free(&session);
        return status;
    }
    *out = session;
    return HOP_OK;
}

hop_status hop_session_start(struct hop_session *session, struct hop_schedule *schedules,
                             int32_t count, struct hop_error *err)
{
    if (session->device < 0)
        return HOP_OK;
    HOP_TRY(place(session, err));
    return hop_executor_create(&session->config, &session->plan, schedules, count, session->weights,
                               session->transport, &session->executor, err);
}

void hop_session_free(struct hop_session *session)
{
    if (!session)
        return;
    hop_executor_free(session->executor);
    hop_emulation_free(session->emulation);
    hop_weights_free(session->weights);
    for (int32_t m = 0; session->batches && m < session->batch_count; m++)
        hop_batch_free(&session->batches[m]);
    free(session->batches);
    free(session->part_limits);
    free(session->past);
    free(session->place);
    hop_plan_free(&session->plan);
    free(session->device_names);
    free(session->rank_names);
    free(session->rank_of);
    free(session->device_of);
    if (session->transport)
        session->transport->names = NULL;
    json_decref(session->setup);
    *session = (struct hop_session){0};
}

const char *hop_session_device_name(const struct hop_session *session)
{
    return session->device >= 0 && session->device_names ? session->device_names[session->device]
                                                         : NULL;
}
