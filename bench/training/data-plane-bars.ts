import { atLeast, printTable, type Verdict } from "../support/table.ts";
import { type DataPlaneFigure, pairedRatio } from "./data-plane.ts";

/** What our data plane must reach beside others', at 64 MiB. */
const BARS = [
  { direction: "push", peer: "gRPC C++", wanted: 1.5 },
  { direction: "push", peer: "grpc-js", wanted: 3 },
  { direction: "push", peer: "ps-lite", wanted: 1 },
  { direction: "pull", peer: "ps-lite", wanted: 1.2 },
  // Both over unix sockets.
  { direction: "push", peer: "ps-lite, 4 MiB, unix", wanted: 1 },
  { direction: "pull", peer: "ps-lite, 4 MiB, unix", wanted: 1.2 },
] as const;

/** Prints the figures and the ratios of each way to each peer, and judges the bars of 64 MiB. */
export function judgeDataPlane(figures: readonly DataPlaneFigure[]): Verdict[] {
  printFigures(figures);
  const large = figures.filter(({ megabytes }) => megabytes === 64);
  return BARS.flatMap(({ direction, peer, wanted }) => {
    const others = large.filter(
      ({ name }) => name === peer || (name.startsWith(peer) && !name.endsWith("unix")),
    );
    if (others.length === 0) {
      const option = peer === "gRPC C++" ? "--grpc-cpp" : "--ps-lite";
      const how = `name its program with ${option} (bench/training/peers says how it is built)`;
      console.log(`\n${peer} was not run, ${direction} is not compared: ${how}`);
      return [];
    }
    // The way that a worker on the same machine takes by itself.
    const own = large.find(({ name }) => name === "ours, unix");
    if (!own) throw new Error("our data plane was not measured");
    const ratio = Math.min(...others.map((one) => pairedRatio(own[direction], one[direction])));
    const what = direction === "push" ? "push + add" : "pull";
    return [atLeast(`${what} at 64 MiB, to ${peer}`, ratio, wanted, "x")];
  });
}

function printFigures(figures: readonly DataPlaneFigure[]): void {
  printTable(
    "Parameters between two processes (GB/s, medians; CPU of both ends, ms a GB; all but grpc-js add)",
    ["way", "MiB", "push", "CPU", "pull", "CPU"],
    figures.map(({ name, megabytes, push, pull }) => [
      name,
      String(megabytes),
      push.rate,
      push.cpuMsPerGb,
      pull.rate,
      pull.cpuMsPerGb,
    ]),
  );
  const ours = figures.filter(({ name }) => name.startsWith("ours"));
  const peers = figures.filter((one) => !ours.includes(one));
  printTable(
    "Ours to others (medians of the rounds' ratios)",
    ["ours", "to", "MiB", "push", "pull"],
    ours.flatMap((own) =>
      peers
        .filter(({ megabytes }) => megabytes === own.megabytes)
        .map((peer) => [
          own.name,
          peer.name,
          String(own.megabytes),
          pairedRatio(own.push, peer.push),
          pairedRatio(own.pull, peer.pull),
        ]),
    ),
  );
}
