#!/usr/bin/python3
"""The tables of docs/reproduction.md: the paper's clusters, simulated.

    tools/reproduce.py [--hybridop build/hybridop] [--check FILE] [TABLE...]

TABLE: systems, claims, utilization, variations, energy, chimera, dapple;
default: all of these.  more-variations: those the page has no room for.  estimators: that of
docs/planning.md.  Run it in the project's folder.  Only `hybridop simulate` is
asked, and for dapple `build/planner-oracle` on the authors' profiles below
$HYBRIDOP_TESTDATA (default ../shared/testdata), where they are there.  With
--check nothing is printed but the rows that FILE lacks.
"""

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
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
# The same of utilization, in points.
POINTS = {"accpar": "+26.6 to +42.7", "gpipe": "+29.0 to +44.7",
          "pipedream-flush": "+25.7 to +46.9", "chimera": "+18.4 to +36.5",
          "hdp": "+10.3 to +18.2", "dapple": "no figure", "asteroid": "+8.9 to +27.7"}

# What the paper leaves open: network, micro-batches, backward / forward of GPUs and NPUs, rates.
BASE = {"bandwidth": "1Gbps", "micro_batches": 8, "ratios": None, "rates": "achieved",
        "npu": "atlas-200i-a2-20t, mode: 20T"}
VARIATIONS = [
    ("as above", {}),
    ("3 Gb/s", {"bandwidth": "3Gbps"}),
    ("10 Gb/s", {"bandwidth": "10Gbps"}),
    ("M = 4", {"micro_batches": 4}),
    ("M = 4, 3 Gb/s", {"micro_batches": 4, "bandwidth": "3Gbps"}),
    ("M = 16", {"micro_batches": 16}),
    ("M = 12 (3B), 20 (8B)", {"micro_batches": {"3b": 12, "8b": 20}}),
    ("backward 2 forwards", {"ratios": (2, 2 * 20 / 2.4)}),
    ("Atlas of the kit: 4 GB, 8 TOPS", {"npu": "atlas-200i-dk-a2"}),
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
        text = text.replace(BASE["npu"], case["npu"])
        if case["ratios"]:
            for pattern, ratio in zip(("jetson", "atlas"), case["ratios"]):
                text = re.sub(rf"(profile: {pattern}[^,]*),", rf"\1, backward_ratio: {ratio:.4f},",
                              text)
        path = os.path.join(self.folder, f"cluster-{len(self.seen)}.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def ask(self, setting, variation, strategies, probes, devices="all", more=()):
        """{(strategy, "all" or "bp-only"): entry}"""
        case = dict(BASE, **variation)
        key = (setting, repr(case), strategies, probes, devices, more)
        if key not in self.seen:
            model, tokens, rows = setting
            micro_batches = case["micro_batches"]
            if isinstance(micro_batches, dict):
                micro_batches = micro_batches[model]
            done = subprocess.run(
                [self.program, "simulate", JOBS[model], "--json", "--strategy", strategies,
                 "--probes", str(probes), "--devices", devices, *more,
                 "--set", "cluster=" + self.cluster(model, case),
                 "--set", f"data.max_length={tokens}", "--set", f"train.micro_batch={rows}",
                 "--set", f"train.batch_size={rows * micro_batches}"],
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


def table_utilization(simulator):
    print("\nUtilization of HybridOP less that of the system, points, range of the settings:\n")
    head("over", "the paper says", *[f"{who}, Q = {probes}" for who in ("with NPUs", "GPUs alone")
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
        row(system, POINTS[system], *line)


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


def print_variations(simulator, probes, devices):
    who = "with NPUs" if devices == "all" else "on the GPUs alone"
    print(f"\nHybridOP at Q = {probes} over each {who}, range of the settings:\n")
    head("", *SYSTEMS)
    row("the paper", *[claimed(system) for system in SYSTEMS])
    for label, variation in VARIATIONS:
        line = []
        for system in SYSTEMS:
            values = ratios(simulator, variation, system, devices, probes)
            line.append(f"{span(values)} ({verdict(values, system)})" if values else span(values))
        row(label, *line)


def table_variations(simulator):
    print_variations(simulator, 1, "all")
    print_variations(simulator, 1, "bp-only")
    print_variations(simulator, 3, "all")


def table_more_variations(simulator):
    print_variations(simulator, 3, "bp-only")
    print_variations(simulator, 12, "all")
    print_variations(simulator, 12, "bp-only")


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


class Published:
    """Two or more equal devices, a stage each, as a cost table."""

    def __init__(self, simulator):
        self.simulator = simulator

    def play(self, devices, strategy, micro_batches, forward, backward, state, kept, memory=1e18):
        table = {"micro_batch_samples": 1, "blocks": devices, "devices": [
            {"name": f"gpu{d}", "bp": True, "forward": [forward] * devices,
             "backward": [backward] * devices, "memory": memory,
             "state_bytes": [state] * devices, "activation_bytes": [kept] * devices}
            for d in range(devices)]}
        path = os.path.join(self.simulator.folder, "published.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(table, file)
        done = subprocess.run([self.simulator.program, "simulate", "--cost", path, "--json",
                               "--strategy", strategy, "--micro-batches", str(micro_batches)],
                              check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)[0]


def table_chimera(simulator):
    """Tables 2 and 3 of Chimera: bubbles and kept micro-batches, of D equal stages."""
    published = Published(simulator)
    state = 1000
    print("\nBubbles with backward = forward, kept micro-batches a device:\n")
    head("D", "N", "pipelines", "system", "bubble: published", "simulated",
         "kept: published", "simulated", "weights a device")
    for devices, batches, pipelines in ((4, 4, 2), (4, 8, 2), (6, 6, 2), (8, 8, 2), (8, 16, 2),
                                        (8, 8, 4)):
        cases = [("chimera", pipelines)]
        if pipelines == 2:
            cases = [("gpipe", 1), ("pipedream-flush", 1)] + cases
        for system, copies in cases:
            # Room for that many copies of the weights and not for more.
            entry = published.play(devices, system, batches, 1, 1, state, 1,
                                   memory=(copies + 0.5) * state)
            kept = [bytes - copies * state for bytes in entry["peak_memory"].values()]
            if system == "chimera":
                bubble = (devices - copies) / (copies * batches + devices - copies)
                least = f"{devices - devices // copies + 1} to {devices}"
            else:
                bubble = (devices - 1) / (batches + devices - 1)
                least = str(batches) if system == "gpipe" else f"1 to {devices}"
            low, high = f"{min(kept):g}", f"{max(kept):g}"
            row(str(devices), str(batches), str(copies), system, f"{bubble:.4f}",
                f"{1 - entry['utilization']:.4f}", least,
                low if low == high else f"{low} to {high}", str(copies))


def dapple_pipelines(simulator):
    """Table 5 of DAPPLE: BERT-48 on two stages, 2 rows a micro-batch.  One time and two memory
    figures are taken from it, the others follow."""
    published = Published(simulator)
    rows, stage = 2, 2 * 8 / 7.60 / (8 + 1)     # seconds of a stage, from the 7.60 at M = 8
    recompute = 2 * 8 / 6.23 / (8 + 1)
    lines = [("GPipe", 2, "5.10, 12.1"), ("GPipe", 3, "out of memory"), ("DAPPLE", 2, "5.10, 10.6"),
             ("DAPPLE", 8, "7.60, 10.6"), ("DAPPLE", 16, "8.18, 10.6"),
             ("GPipe, recomputing", 2, "4.00, 9.9"), ("GPipe, recomputing", 5, "5.53, 13.2"),
             ("GPipe, recomputing", 8, "out of memory"), ("DAPPLE, recomputing", 2, "4.24, 8.5"),
             ("DAPPLE, recomputing", 8, "6.23, 8.5"), ("DAPPLE, recomputing", 16, "6.77, 8.5")]
    print("\nSamples/s and mean peak memory, GB:\n")
    head("system", "M", "published", "simulated")
    for system, batches, figures in lines:
        again = "recomputing" in system
        seconds = recompute if again else stage
        # s + 2 a = 12.1 and s + 1.5 a = 10.6; recomputing s + 2 a = 9.9 and s + 5 a = 13.2.
        state, kept = (7.7, 1.1) if again else (6.1, 3.0)
        entry = published.play(2, "gpipe" if "GPipe" in system else "pipedream-flush", batches,
                               seconds / 3, seconds * 2 / 3, state * 1e9, kept * 1e9)
        memory = sum(entry["peak_memory"].values()) / 2e9
        row(system, str(batches), figures,
            f"{rows * entry['samples_per_second']:.2f}, {memory:.1f}")


def dapple_plans(oracle):
    """Table 6 of DAPPLE: two machines of 8 GPUs."""
    data = os.path.join(os.environ.get("HYBRIDOP_TESTDATA", "../shared/testdata"),
                        "planners/dapple")
    if not os.path.isdir(data):
        print(f"\nPlans of Table 6: skipped, {data} is not there")
        return
    print("\nPlans of Table 6, two machines of 8 GPUs:\n")
    head("model", "mini-batch", "planner-oracle", "speedup", "data parallel alone")
    for model, dump, words in (("VGG-19", "vgg19.dump", "32 1024 32"),
                               ("XLNet-36", "xlnet36.dump", "1 128 1"),
                               ("BERT-Large", "bert_large.dump", "2 128 2"),
                               ("BERT-48", "bert-48-pbs-2.dump", "2 64 2")):
        done = subprocess.run([oracle, "dapple", os.path.join(data, dump), *words.split(), "8,16",
                               "bi"], check=True, stdout=subprocess.PIPE, text=True)
        alone = re.search(r"dp_speedup (\S+)", done.stdout).group(1)
        speedup = re.search(r"bipartition speedup (\S+)", done.stdout).group(1)
        stages = re.findall(r"\((\d+), (\d+), (\d+),", done.stdout)
        row(model, words.split()[1], ", ".join(f"layers {lo} to {hi} on {count}"
                                               for lo, hi, count in stages),
            f"{float(speedup):.2f}", f"{float(alone):.2f}")


def table_dapple(simulator):
    dapple_pipelines(simulator)
    dapple_plans(os.path.join(os.path.dirname(simulator.program), "planner-oracle"))


# Strategy, probes, further options: how BP-free devices learn about their gradient.
ESTIMATORS = [
    ("frozen", "frozen", 1, ()),
    ("difference, Q = 1", "hybridop", 1, ()),
    ("difference, Q = 1, Q' = auto", "hybridop", 1, ("--exit-probes", "auto")),
    ("difference, Q = 1, Q' = 1", "hybridop", 1, ("--exit-probes", "1")),
    ("difference, Q = 3", "hybridop", 3, ()),
    ("difference, Q = 3, Q' = auto", "hybridop", 3, ("--exit-probes", "auto")),
    ("difference, Q = 3, Q' = 1", "hybridop", 3, ("--exit-probes", "1")),
    ("central, Q = 1", "hybridop", 1, ("--estimator", "central")),
    ("boundary, Q = 1", "hybridop", 1, ("--estimator", "boundary")),
    ("boundary, Q = 2", "hybridop", 2, ("--estimator", "boundary")),
    ("boundary, Q = 3", "hybridop", 3, ("--estimator", "boundary")),
    ("boundary, Q = auto", "hybridop", "auto", ("--estimator", "boundary")),
    ("feedback", "hybridop", 1, ("--estimator", "feedback")),
]


def estimator_cell(entry, what):
    """What was found with auto goes behind it."""
    found = ""
    if "auto" in what:
        key, letter = ("exit_probes", "Q'") if "Q' = auto" in what else ("probes", "Q")
        found = f", {letter} = {entry[key]}"
    return f"{digits(entry['iteration_seconds'])} s, {100 * entry['utilization']:.0f} %{found}"


def table_estimators(simulator):
    """Of docs/planning.md."""
    targets = ("--set", "lora.targets=[q_proj, v_proj, o_proj, down_proj]")
    print()
    row("", *(name(setting) for setting in SETTINGS))
    row(*["---"] * (1 + len(SETTINGS)))
    for what, strategy, probes, more in ESTIMATORS:
        entries = [simulator.ask(setting, {}, strategy, probes, more=more + targets)
                   [(strategy, "all")] for setting in SETTINGS]
        row(what, *(estimator_cell(entry, what) for entry in entries))


TABLES = {"systems": table_systems, "claims": table_claims, "utilization": table_utilization,
          "variations": table_variations, "energy": table_energy,
          "chimera": table_chimera, "dapple": table_dapple}
MORE = {"more-variations": table_more_variations, "estimators": table_estimators}


NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def close(a, b):
    """The same row up to 3 % of its numbers: another compiler's rounding may break ties of plans
    another way, and a verdict beside a number may tip over with it."""
    if a == b:
        return True
    verdict = re.compile(r"\((?:yes|no|more|partly)\)")
    a, b = verdict.sub("", a), verdict.sub("", b)
    if a.split("|")[1] != b.split("|")[1] or NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    return all(abs(float(x) - float(y)) <= 0.03 * max(float(x), float(y))
               for x, y in zip(NUMBER.findall(a), NUMBER.findall(b)))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hybridop", default="build/hybridop")
    parser.add_argument("--check", metavar="FILE")
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    options = parser.parse_args()
    for table in options.tables:
        if table not in TABLES and table not in MORE:
            parser.error(f"there is no table '{table}'; choose of {', '.join([*TABLES, *MORE])}")
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(printed if options.check else sys.stdout):
        simulator = Simulator(options.hybridop, folder)
        for table in options.tables or TABLES:
            {**TABLES, **MORE}[table](simulator)
    if options.check:
        with open(options.check, encoding="utf-8") as file:
            known = [line for line in file.read().splitlines() if line.startswith("|")]
        missing = [line for line in printed.getvalue().splitlines()
                   if line.startswith("|") and not any(close(line, row) for row in known)]
        if missing:
            raise SystemExit("\n".join([f"{options.check} lacks these rows:"] + missing))


if __name__ == "__main__":
    main()
