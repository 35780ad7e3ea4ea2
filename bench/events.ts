import { leafHash } from "@heddle/event-store/merkle/hash";
import { buildMemoryTree } from "./events/memory-tree.ts";
import { benchEntry, measureProofs } from "./events/proof-times.ts";
import { readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { atMost, printTable, printVerdicts } from "./support/table.ts";

// The event store: proofs over its tree.

const usage = "npm run bench:events -- [--entries N] [--proofs N]";
const options = readOptions(usage, ["entries", "proofs"]);
const entries = Number(options["entries"] ?? 1_000_000);
const proofs = Number(options["proofs"] ?? 1_000);

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
printTable("Building the tree", ["from", "leaves/s"], [["entries", tree.leavesPerSecond]]);
printVerdicts(
  times.flatMap(({ proof, produceMs, verifyMs }) => [
    atMost(`${proof} proof at ${entries} entries, ms, p50`, produceMs.p50, 5),
    atMost(`${proof} proof verified, ms, p50`, verifyMs.p50, 1),
  ]),
);
writeReport(options, "events", { entries, times, leavesPerSecond: tree.leavesPerSecond });
