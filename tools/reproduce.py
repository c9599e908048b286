#!/usr/bin/python3
"""The tables of docs/reproduction.md: the paper's clusters, simulated.

    tools/reproduce.py [--hybridop build/hybridop] [TABLE...]

TABLE: systems, claims, probes, variations, energy; default: all.  Run it in
the project's folder.  Nothing but `hybridop simulate` is asked.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile

# Model, tokens of a row, rows of a micro-batch.
SETTINGS = [("3b", 384, 2), ("3b", 1024, 1), ("8b", 384, 2), ("8b", 1024, 1)]
JOBS = {"3b": "examples/cost/llama-3.2-3b.yaml", "8b": "examples/cost/llama-3.1-8b.yaml"}
SYSTEMS = ["gpipe", "pipedream-flush", "chimera", "hdp", "dapple", "asteroid", "accpar"]
PROBES = [1, 3, 12]

# What the paper claims HybridOP has more than each, as ratios of throughput.  An upper end alone:
# the paper says "up to".
CLAIMS = {
    "accpar": (2.17, 4.50, "+117 to +350 %"),
    "gpipe": (1.8, 4.0, "0.8x to 3.0x more"),
    "pipedream-flush": (1.6, 3.3, "0.6x to 2.3x more"),
    "chimera": (None, 3.3, "up to 2.3x more"),
    "hdp": (1.385, 1.67, "+38.5 to +67.0 %"),
    "dapple": (None, 3.2, "up to 2.2x more"),
    "asteroid": (None, 1.8, "up to 0.8x more"),
}

# What the paper leaves open: network, micro-batches, backward / forward of GPUs and NPUs, rates.
BASE = {"bandwidth": "1Gbps", "micro_batches": 8, "ratios": None, "rates": "achieved"}
VARIATIONS = [
    ("as above", {}),
    ("10 Gb/s", {"bandwidth": "10Gbps"}),
    ("M = 4", {"micro_batches": 4}),
    ("M = 16", {"micro_batches": 16}),
    ("backward 2 forwards", {"ratios": (2, 2 * 20 / 2.4)}),
    ("advertised TOPS", {"rates": "nominal"}),
    ("advertised TOPS, 10 Gb/s", {"rates": "nominal", "bandwidth": "10Gbps"}),
    ("advertised TOPS, 10 Gb/s, backward 2, M = 16",
     {"rates": "nominal", "bandwidth": "10Gbps", "ratios": (2, 2 * 20 / 2.4),
      "micro_batches": 16}),
]


class Simulator:
    def __init__(self, program, folder):
        self.program, self.folder, self.seen = program, folder, {}

    def cluster(self, model, case):
        """A cluster file of the variation."""
        suffix = "-nominal" if case["rates"] == "nominal" else ""
        with open(f"examples/clusters/paper-{model}{suffix}.yaml", encoding="utf-8") as file:
            text = file.read()
        text = text.replace("bandwidth: 1Gbps", "bandwidth: " + case["bandwidth"])
        if case["ratios"]:
            for pattern, ratio in zip(("jetson", "atlas"), case["ratios"]):
                text = re.sub(rf"(profile: {pattern}[^,]*),", rf"\1, backward_ratio: {ratio:.4f},",
                              text)
        path = os.path.join(self.folder, f"cluster-{len(self.seen)}.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def ask(self, setting, variation, strategies, probes, devices="all"):
        """{(strategy, "all" or "bp-only"): entry}"""
        case = dict(BASE, **variation)
        key = (setting, repr(case), strategies, probes, devices)
        if key not in self.seen:
            model, tokens, rows = setting
            done = subprocess.run(
                [self.program, "simulate", JOBS[model], "--json", "--strategy", strategies,
                 "--probes", str(probes), "--devices", devices,
                 "--set", "cluster=" + self.cluster(model, case),
                 "--set", f"data.max_length={tokens}", "--set", f"train.micro_batch={rows}",
                 "--set", f"train.batch_size={rows * case['micro_batches']}"],
                check=False, stdout=subprocess.PIPE, text=True)
            if done.returncode not in (0, 1) or not done.stdout:
                raise SystemExit(f"{self.program} simulate {JOBS[model]} failed")
            self.seen[key] = {(entry["strategy"], entry["devices"]): entry
                              for entry in json.loads(done.stdout)}
        return self.seen[key]


def name(setting):
    return f"{setting[0].upper()}, {setting[1]:,}"


def digits(value):
    """Three of them."""
    if value is None:
        return "-"
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e" in text or value >= 100 else text


def cells(entry):
    if not entry["feasible"]:
        return ["does not fit", "", "", ""]
    return [digits(entry["samples_per_second"]), f"{100 * entry['utilization']:.0f} %",
            digits(max(entry["peak_memory"].values()) / 1e9) + " GB",
            digits(entry["energy_joules_per_sample"])]


def row(*columns):
    print("| " + " | ".join(columns) + " |")


def head(*columns):
    row(*columns)
    row(*["---"] * len(columns))


def table_systems(simulator):
    for setting in SETTINGS:
        print(f"\n{name(setting)} tokens:\n")
        head("", "with NPUs: samples/s", "utilization", "memory", "J", "GPUs alone: samples/s",
             "utilization", "memory", "J")
        seen = simulator.ask(setting, {}, ",".join(SYSTEMS + ["frozen"]), 1)
        for system in SYSTEMS:
            row(system, *cells(seen[system, "all"]), *cells(seen[system, "bp-only"]))
        for probes in PROBES:
            both = simulator.ask(setting, {}, "hybridop", probes)
            row(f"hybridop, Q = {probes}", *cells(both["hybridop", "all"]),
                *(cells(both["hybridop", "bp-only"]) if probes == 1 else ["as above"] + [""] * 3))
        row("frozen", *cells(seen["frozen", "all"]), *["as hybridop"] + [""] * 3)


def ratios(simulator, variation, system, devices, probes):
    """HybridOP's throughput over the system's in every setting where both fit."""
    found = []
    for setting in SETTINGS:
        ours = simulator.ask(setting, variation, "hybridop", probes)["hybridop", "all"]
        theirs = simulator.ask(setting, variation, ",".join(SYSTEMS), 1)[system, devices]
        if ours["feasible"] and theirs["feasible"]:
            found.append(ours["samples_per_second"] / theirs["samples_per_second"])
    return found


def span(values):
    if not values:
        return "does not fit"
    low, high = digits(min(values)), digits(max(values))
    return low if low == high else f"{low} to {high}"


def claimed(system):
    low, high, _ = CLAIMS[system]
    return f"up to {high:g}" if low is None else f"{low:g} to {high:g}"


def table_claims(simulator):
    print("\nThroughput of HybridOP (all boards) over each, range of the four settings:\n")
    head("over", "the paper says", "as a ratio",
         *[f"{who}, Q = {probes}" for who in ("with NPUs", "GPUs alone") for probes in PROBES])
    for system in SYSTEMS:
        row(system, CLAIMS[system][2], claimed(system),
            *[span(ratios(simulator, {}, system, devices, probes))
              for devices in ("all", "bp-only") for probes in PROBES])


def table_probes(simulator):
    print("\nUtilization of HybridOP less that of the system, points, range of the settings:\n")
    head("over", *[f"{who}, Q = {probes}" for who in ("with NPUs", "GPUs alone")
                   for probes in PROBES])
    for system in SYSTEMS:
        line = []
        for devices in ("all", "bp-only"):
            for probes in PROBES:
                points = []
                for setting in SETTINGS:
                    ours = simulator.ask(setting, {}, "hybridop", probes)["hybridop", "all"]
                    theirs = simulator.ask(setting, {}, ",".join(SYSTEMS), 1)[system, devices]
                    if ours["feasible"] and theirs["feasible"]:
                        points.append(100 * (ours["utilization"] - theirs["utilization"]))
                line.append(f"{min(points):+.0f} to {max(points):+.0f}" if points
                            else "does not fit")
        row(system, *line)


def verdict(values, system):
    """How much of the claim the ratios bear out."""
    low, high, _ = CLAIMS[system]
    if not values:
        return "-"
    if low is None:
        return "more" if max(values) >= high else "yes" if max(values) > 1 else "no"
    if min(values) >= low:
        return "yes" if min(values) <= high else "more"
    return "partly" if max(values) >= low else "no"


def table_variations(simulator):
    for probes in (1, 3, 12):
        print(f"\nQ = {probes}: HybridOP over each, range of the settings\n")
        for devices, who in (("all", "with NPUs"), ("bp-only", "on the GPUs alone")):
            print(f"\nthe system {who}:\n")
            head("", *SYSTEMS)
            row("the paper", *[claimed(system) for system in SYSTEMS])
            for label, variation in VARIATIONS:
                line = []
                for system in SYSTEMS:
                    values = ratios(simulator, variation, system, devices, probes)
                    line.append(f"{span(values)} ({verdict(values, system)})" if values
                                else span(values))
                row(label, *line)


def table_energy(simulator):
    print("\nJ a sample, 384 tokens; in brackets, over HybridOP at Q = 1:\n")
    head("", *[f"{model.upper()}, {who}" for model in JOBS for who in ("with NPUs", "GPUs alone")])
    settings = [setting for setting in SETTINGS if setting[1] == 384]
    for system in SYSTEMS + ["frozen"]:
        line = []
        for setting in settings:
            ours = simulator.ask(setting, {}, "hybridop", 1)["hybridop", "all"]
            seen = simulator.ask(setting, {}, ",".join(SYSTEMS + ["frozen"]), 1)
            for devices in ("all", "bp-only"):
                joules = seen[system, devices]["energy_joules_per_sample"]
                line.append("does not fit" if joules is None else
                            f"{digits(joules)} ({joules / ours['energy_joules_per_sample']:.2f})")
        row(system, *line)
    for probes in PROBES:
        row(f"hybridop, Q = {probes}", *[
            digits(simulator.ask(setting, {}, "hybridop", probes)["hybridop", devices]
                   ["energy_joules_per_sample"])
            for setting in settings for devices in ("all", "bp-only")])


TABLES = {"systems": table_systems, "claims": table_claims, "probes": table_probes,
          "variations": table_variations, "energy": table_energy}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hybridop", default="build/hybridop")
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    options = parser.parse_args()
    for table in options.tables:
        if table not in TABLES:
            parser.error(f"there is no table '{table}'; choose of {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(options.hybridop, folder)
        for table in options.tables or TABLES:
            TABLES[table](simulator)


if __name__ == "__main__":
    main()
