/* The strategies, one file each; a new one is a line here and one in registry.c. Private to
 * src/strategy. */
#ifndef HOP_STRATEGY_SYSTEMS_H
#define HOP_STRATEGY_SYSTEMS_H

#include "strategy/strategy.h"

extern const struct hop_strategy hop_strategy_accpar;
extern const struct hop_strategy hop_strategy_accpar_full;
extern const struct hop_strategy hop_strategy_asteroid;
extern const struct hop_strategy hop_strategy_chimera;
extern const struct hop_strategy hop_strategy_dapple;
extern const struct hop_strategy hop_strategy_frozen;
extern const struct hop_strategy hop_strategy_gpipe;
extern const struct hop_strategy hop_strategy_hdp;
extern const struct hop_strategy hop_strategy_hybridop;
extern const struct hop_strategy hop_strategy_pipedream;
extern const struct hop_strategy hop_strategy_single;

#endif
