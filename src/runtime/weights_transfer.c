/* Frozen tensors on their way to the ranks. A rank that finds the very same files under the same
 * path (same machine, or a copy) maps them, so that ranks of one machine share the page cache; any
 * other gets its blocks streamed by the coordinator, tensor by tensor, in chunks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/session.h"
#include "schedule/estimator.h"

enum { CHUNK = 8 << 20 };

static const json_t *files_of(const struct hop_session *session)
{
    return json_object_get(session->setup, "files");
}

static bool same_files(const struct hop_weights *weights, const json_t *fingerprints)
{
    const struct hop_safetensors *const set = hop_weights_files(weights);
    if (hop_safetensors_files(set) != json_array_size(fingerprints))
        return false;
    for (size_t i = 0; i < hop_safetensors_files(set); i++) {
        char text[32];
        snprintf(text, sizeof text, "%016" PRIx64, hop_safetensors_fingerprint(set, i));
        const char *const expected = json_string_value(json_array_get(fingerprints, i));
        if (!expected || strcmp(text, expected) != 0)
            return false;
    }
    return true;
}

/* Not finding the files is no error: they are then streamed. */
hop_status hop_session_map_weights(struct hop_session *session, bool *mapped, struct hop_error *err)
{
    (void)err;
    const json_t *const files = files_of(session);
    const char *const directory = json_string_value(json_object_get(files, "directory"));
    struct hop_error ignored = {0};
    struct hop_weights *weights = NULL;
    *mapped = false;
    if (!json_is_true(json_object_get(files, "share")) || !directory ||
        hop_weights_open(directory, &session->config.model, &weights, &ignored) != HOP_OK)
        return HOP_OK;
    if (!same_files(weights, json_object_get(files, "fingerprints"))) {
        hop_weights_free(weights);
        return HOP_OK;
    }
    session->weights = weights;
    *mapped = true;
    return HOP_OK;
}

/* What a device needs, over all its parts; calls `each` for every tensor once. */
struct walk {
    struct hop_session *session;
    int rank;
    struct hop_weights *received;
    hop_status (*each)(struct walk *walk, const struct hop_tensor_want *want,
                       struct hop_error *err);
};

static hop_status walk_part(struct walk *walk, int32_t part, struct hop_error *err)
{
    hop_status status = HOP_OK;
    const struct hop_plan *const plan = &walk->session->plan;
    struct hop_tensor_want *wants = NULL;
    size_t count = 0;
    const bool output = hop_plan_next(plan, part) < 0 || hop_plan_part_exits(plan, part);
    HOP_TRY(hop_weights_list(&walk->session->config.model, plan->parts[part].lo,
                             plan->parts[part].hi, hop_plan_previous(plan, part) < 0, output,
                             &wants, &count, err));
    for (size_t i = 0; i < count; i++)
        HOP_TRY_DONE(walk->each(walk, &wants[i], err));
done:
    free(wants);
    return status;
}

static hop_status walk_device(struct walk *walk, struct hop_error *err)
{
    const struct hop_session *const session = walk->session;
    for (int32_t part = 0; part < session->plan.part_count; part++)
        if (session->rank_of[session->plan.parts[part].device] == walk->rank)
            HOP_TRY(walk_part(walk, part, err));
    return HOP_OK;
}

static hop_status send_tensor(struct walk *walk, const struct hop_tensor_want *want,
                              struct hop_error *err)
{
    struct hop_transport *const transport = walk->session->transport;
    const struct hop_tensor *const tensor = hop_weights_find(walk->session->weights, want->name);
    if (!tensor)
        return hop_fail(err, HOP_INPUT, "tensor %s is missing in the model", want->name);
    const int32_t dtype = (int32_t)tensor->dtype;
    HOP_TRY(hop_send(transport, HOP_CHANNEL_CONTROL, walk->rank, HOP_TAG_TENSOR, &dtype,
                     sizeof dtype, err));
    for (size_t at = 0; at < tensor->bytes; at += CHUNK) {
        const size_t left = tensor->bytes - at, n = left < CHUNK ? left : CHUNK;
        HOP_TRY(hop_send(transport, HOP_CHANNEL_CONTROL, walk->rank, HOP_TAG_TENSOR,
                         (const unsigned char *)tensor->data + at, n, err));
    }
    return HOP_OK;
}

static size_t tensor_bytes(const struct hop_tensor_want *want, enum hop_dtype dtype)
{
    size_t bytes = hop_dtype_size(dtype);
    for (int i = 0; i < want->rank; i++)
        bytes *= (size_t)want->shape[i];
    return bytes;
}

static hop_status receive_tensor(struct walk *walk, const struct hop_tensor_want *want,
                                 struct hop_error *err)
{
    struct hop_transport *const transport = walk->session->transport;
    int32_t dtype;
    void *data;
    HOP_TRY(hop_receive(transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_TENSOR, &dtype, sizeof dtype,
                        want->name, err));
    if (dtype < HOP_F32 || dtype > HOP_F16)
        return hop_fail(err, HOP_PEER, "tensor %s arrives with unknown type %d", want->name, dtype);
    HOP_TRY(hop_weights_add(walk->received, want, (enum hop_dtype)dtype, &data, err));
    const size_t bytes = tensor_bytes(want, (enum hop_dtype)dtype);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        const size_t left = bytes - at, n = left < CHUNK ? left : CHUNK;
        HOP_TRY(hop_receive(transport, HOP_CHANNEL_CONTROL, 0, HOP_TAG_TENSOR,
                            (unsigned char *)data + at, n, want->name, err));
    }
    return HOP_OK;
}

/* Two parts of one device may both need a tensor (a tied embedding): it is kept once. */
static hop_status receive_once(struct walk *walk, const struct hop_tensor_want *want,
                               struct hop_error *err)
{
    return hop_weights_find(walk->received, want->name) ? HOP_OK : receive_tensor(walk, want, err);
}

/* The sender must leave out the same repetitions: it marks what it has sent in a set without data.
 */
static hop_status send_once(struct walk *walk, const struct hop_tensor_want *want,
                            struct hop_error *err)
{
    void *data;
    if (hop_weights_find(walk->received, want->name))
        return HOP_OK;
    HOP_TRY(send_tensor(walk, want, err));
    const struct hop_tensor_want mark = {.rank = 1, .shape = {1}};
    struct hop_tensor_want named = mark;
    memcpy(named.name, want->name, sizeof named.name);
    return hop_weights_add(walk->received, &named, HOP_F32, &data, err);
}

hop_status hop_session_send_weights(struct hop_session *session, int rank, struct hop_error *err)
{
    struct walk walk = {.session = session, .rank = rank, .each = send_once};
    HOP_TRY(hop_weights_create(&walk.received, err));
    const hop_status status = walk_device(&walk, err);
    hop_weights_free(walk.received);
    return status;
}

hop_status hop_session_receive_weights(struct hop_session *session, struct hop_error *err)
{
    struct walk walk = {.session = session, .rank = session->transport->rank, .each = receive_once};
    HOP_TRY(hop_weights_create(&walk.received, err));
    const hop_status status = walk_device(&walk, err);
    if (status != HOP_OK)
        hop_weights_free(walk.received);
    else
        session->weights = walk.received;
    return status;
}
