#include "oracle.h"

hop_status oracle_asteroid(int argc, char **argv, struct hop_error *err)
{
    (void)argc;
    (void)argv;
    return oracle_usage("asteroid CASES.json", err);
}
