#include "oracle.h"

hop_status oracle_dapple(int argc, char **argv, struct hop_error *err)
{
    (void)argc;
    (void)argv;
    return oracle_usage("dapple FILE PROFILE_BATCH GLOBAL_BATCH MICRO_BATCH SEPS [bi]", err);
}
