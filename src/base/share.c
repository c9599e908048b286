#include "base/share.h"

#include <math.h>

struct hop_range hop_share_range(double lo, double hi, int32_t n)
{
    return (struct hop_range){(int32_t)lround(lo * n), (int32_t)lround(hi * n)};
}
