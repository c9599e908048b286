/* A measured profile as a file. */
#include <math.h>
#include <stdio.h>

#include "base/string.h"
#include "cluster/measure.h"
#include "io/file.h"
#include "io/yaml.h"

/* The profile that is being put together: a figure and where it is from go in together. */
struct draft {
    const struct hop_measurement *m;
    json_t *figures, *sources;
    char work[256]; /* "micro-batches of 1, 2 and 4 samples of 64 tokens" */
};

static hop_status no_memory(struct hop_error *err)
{
    return hop_fail(err, HOP_MEMORY, "out of memory while writing a profile");
}

/* Takes `value`. */
static hop_status add(struct draft *draft, const char *figure, json_t *value,
                      struct hop_string *source, struct hop_error *err)
{
    const int failed =
        json_object_set_new(draft->figures, figure, value) ||
        json_object_set_new(draft->sources, figure, json_string(hop_string_text(source)));
    source->length = 0;
    return failed ? no_memory(err) : HOP_OK;
}

static void describe_work(struct draft *draft)
{
    const struct hop_measure_request *const request = &draft->m->request;
    size_t at = 0;
    int32_t left = draft->m->rate.points;
    const bool only_one = left == 1 && hop_measured_chosen(draft->m)->rows == 1;
    for (int32_t r = 0; r < request->row_count; r++) {
        if (draft->m->points[r].block.forward.repetitions == 0)
            continue;
        left--;
        const int n = snprintf(draft->work + at, sizeof draft->work - at, "%d%s", request->rows[r],
                               left > 1    ? ", "
                               : left == 1 ? " and "
                                           : "");
        at += n > 0 ? (size_t)n : 0;
    }
    snprintf(draft->work + at, sizeof draft->work - at, " sample%s of %d tokens",
             only_one ? "" : "s", request->tokens);
}

static hop_status add_bp(struct draft *draft, struct hop_string *s, struct hop_error *err)
{
    if (draft->m->bp)
        HOP_TRY(hop_string_printf(s, err, "measured, backend %s ran backward",
                                  draft->m->request.ops->name));
    else
        HOP_TRY(hop_string_printf(s, err, "assumed, it was measured forward only"));
    return add(draft, "bp", json_boolean(draft->m->bp), s, err);
}

static hop_status add_rate(struct draft *draft, struct hop_string *s, struct hop_error *err)
{
    const struct hop_measurement *const m = draft->m;
    HOP_TRY(hop_string_printf(s, err,
                              "measured, fit of the forward time of a block over micro-batches of "
                              "%s in %s, R2 %.4f; %s",
                              draft->work, hop_dtype_name(m->request.dtype), m->rate.r2,
                              m->backend));
    HOP_TRY(add(draft, "rate", json_real(m->rate.rate), s, err));
    if (m->rate.points > 1)
        HOP_TRY(hop_string_printf(s, err, "measured, the constant of the same fit"));
    else
        HOP_TRY(hop_string_printf(s, err,
                                  "assumed, one micro-batch size does not tell it from the rate"));
    return add(draft, "overhead", json_real(m->rate.overhead), s, err);
}

static hop_status add_ratios(struct draft *draft, struct hop_string *s, struct hop_error *err)
{
    const struct hop_measured_rate *const rate = &draft->m->rate;
    if (isfinite(rate->backward_ratio)) {
        HOP_TRY(hop_string_printf(s, err, "measured, mean over micro-batches of %s", draft->work));
        HOP_TRY(add(draft, "backward_ratio", json_real(rate->backward_ratio), s, err));
    }
    if (isfinite(rate->probe_ratio)) {
        const int32_t most = draft->m->request.probes[draft->m->request.probe_count - 1];
        HOP_TRY(hop_string_printf(s, err, "measured, calls of up to %d probe%s", most,
                                  most == 1 ? "" : "s"));
        HOP_TRY(add(draft, "probe_ratio", json_real(rate->probe_ratio), s, err));
    }
    return HOP_OK;
}

static hop_status add_machine(struct draft *draft, struct hop_string *s, struct hop_error *err)
{
    const struct hop_measurement *const m = draft->m;
    if (isfinite(m->available)) {
        HOP_TRY(hop_string_printf(
            s, err, "measured, what the machine (or its control group) had to spare before"));
        HOP_TRY(add(draft, "memory", json_integer((json_int_t)m->available), s, err));
    }
    HOP_TRY(hop_string_printf(s, err, "measured, triad beyond the caches with %d thread%s",
                              m->request.threads, m->request.threads == 1 ? "" : "s"));
    return add(draft, "bandwidth", json_integer((json_int_t)m->bandwidth), s, err);
}

static hop_status fill(struct draft *draft, const char *name, struct hop_error *err)
{
    struct hop_string text = {0};
    hop_status status;
    HOP_TRY_DONE(hop_string_printf(&text, err, "%s as measured by hybridop profile", name));
    if (json_object_set_new(draft->figures, "description", json_string(text.data)) != 0)
        HOP_TRY_DONE(no_memory(err));
    text.length = 0;
    describe_work(draft);
    HOP_TRY_DONE(add_bp(draft, &text, err));
    HOP_TRY_DONE(add_rate(draft, &text, err));
    HOP_TRY_DONE(add_ratios(draft, &text, err));
    HOP_TRY_DONE(add_machine(draft, &text, err));
    if (json_object_set(draft->figures, "sources", draft->sources) != 0)
        status = no_memory(err);
done:
    hop_string_free(&text);
    return status;
}

hop_status hop_profile_write(const char *path, const struct hop_measurement *m, const char *name,
                             struct hop_error *err)
{
    struct draft draft = {.m = m, .figures = json_object(), .sources = json_object()};
    struct hop_string text = {0};
    hop_status status;
    HOP_TRY_DONE(fill(&draft, name, err));
    HOP_TRY_DONE(hop_yaml_write(draft.figures, &text, err));
    HOP_TRY_DONE(hop_file_write(path, text.data, text.length, err));
done:
    json_decref(draft.figures);
    json_decref(draft.sources);
    hop_string_free(&text);
    return status;
}
