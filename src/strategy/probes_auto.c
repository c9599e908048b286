#include "strategy/probes_auto.h"

hop_status hop_probes_largest(hop_probes_question question, void *context, int32_t *probes,
                              struct hop_error *err)
{
    int32_t yes = 0, no = 1;
    bool answer = true;
    while (answer && no <= HOP_PROBES_MOST) {
        HOP_TRY(question(context, no, &answer, err));
        if (answer) {
            yes = no;
            no *= 2;
        }
    }
    while (no - yes > 1 && yes < HOP_PROBES_MOST) {
        const int32_t middle = yes + (no - yes) / 2;
        HOP_TRY(question(context, middle, &answer, err));
        *(answer ? &yes : &no) = middle;
    }
    *probes = yes > 1 ? yes : 1;
    return HOP_OK;
}
