import { join } from "node:path";
import { leafHash } from "@heddle/event-store/merkle/hash";
import { measureAppends } from "./events/append-rate.ts";
import { buildMemoryTree } from "./events/memory-tree.ts";
import { benchEntry, measureProofs } from "./events/proof-times.ts";
import { benchFolder, readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { atLeast, atMost, printTable, printVerdicts } from "./support/table.ts";

// The event store: appends beside SQLite and beside a file without a tree, and proofs.

const usage = "npm run bench:events -- [--entries N] [--proofs N] [--rounds N] [--seconds N]";
const options = readOptions(usage, ["entries", "proofs", "rounds", "seconds"]);
const entries = Number(options["entries"] ?? 10_000_000);
const proofs = Number(options["proofs"] ?? 1_000);
const rounds = Number(options["rounds"] ?? 15);
const seconds = Number(options["seconds"] ?? 0.5);
const batches = [1, 100, 1_000];

const appends = await measureAppends(join(benchFolder, "events"), batches, { rounds, seconds });
printTable(
  "Entries of 300 bytes, each append durable before the next: entries a second, medians",
  ["entries an append", "with tree", "without", "ratio", "file alone", "SQLite", "to SQLite"],
  appends.map(({ batch, treeRatio, ours, withoutTree, fileAlone, sqlite }) => [
    String(batch),
    ours.perSecond,
    withoutTree.perSecond,
    treeRatio,
    fileAlone.perSecond,
    sqlite.perSecond,
    ours.perSecond / sqlite.perSecond,
  ]),
);
printTable(
  "The same: CPU an entry, us",
  ["entries an append", "with tree", "without", "ratio", "file alone", "SQLite"],
  appends.map(({ batch, treeCpuRatio, ours, withoutTree, fileAlone, sqlite }) => [
    String(batch),
    ours.cpuMicros,
    withoutTree.cpuMicros,
    treeCpuRatio,
    fileAlone.cpuMicros,
    sqlite.cpuMicros,
  ]),
);

const tree = buildMemoryTree(entries, (index) => leafHash(benchEntry(index)));
const times = await measureProofs(tree, entries, proofs);
printTable(
  `Proofs in a tree of ${entries} entries, ms`,
  ["proof", "produce p50", "produce p99", "verify p50", "verify p99"],
  times.map(({ proof, produceMs, verifyMs }) => [
    proof,
    produceMs.p50,
    produceMs.p99,
    verifyMs.p50,
    verifyMs.p99,
  ]),
);
printTable(
  "Building the tree in memory",
  ["from", "leaves/s"],
  [["entries", tree.leavesPerSecond]],
);
printVerdicts([
  ...appends.map(({ batch, treeRatio }) =>
    atLeast(`append with tree against without, ${batch} at once`, treeRatio, 0.85, "x"),
  ),
  ...appends
    .filter(({ batch }) => batch >= 100)
    .map(({ batch, ours }) => atLeast(`events/s, ${batch} at once`, ours.perSecond, 20_000)),
  ...times.flatMap(({ proof, produceMs, verifyMs }) => [
    atMost(`${proof} proof at ${entries} entries, ms, p50`, produceMs.p50, 5),
    atMost(`${proof} proof verified, ms, p50`, verifyMs.p50, 1),
  ]),
]);
writeReport(options, "events", { entries, appends, times, leavesPerSecond: tree.leavesPerSecond });
