import { leafHash } from "@heddle/event-store/merkle/hash";
import { TileTree } from "@heddle/event-store/merkle/proofs";
import { isConsistent, isIncluded } from "@heddle/event-store/merkle/verify-proof";
import { benchRandom, type Summary, summarizeSamples } from "../support/statistics.ts";
import type { MemoryTree } from "./memory-tree.ts";

/** Milliseconds a proof, each with a reader of its own. */
export interface ProofTimes {
  readonly proof: "inclusion" | "consistency";
  readonly produceMs: Summary;
  readonly verifyMs: Summary;
}

export function benchEntry(index: number): Uint8Array {
  return Buffer.from(`event ${index}`);
}

export async function measureProofs(
  { root, readTile }: MemoryTree,
  size: number,
  count: number,
): Promise<ProofTimes[]> {
  const random = benchRandom(1);
  const head = { size, root };
  const inclusion = { produce: [] as number[], verify: [] as number[] };
  const consistency = { produce: [] as number[], verify: [] as number[] };
  for (let run = 0; run < count; run++) {
    const index = Math.floor(random() * size);
    const leaf = leafHash(benchEntry(index));
    const proof = await timed(inclusion.produce, () =>
      new TileTree(size, readTile).inclusionProof(index),
    );
    await timed(inclusion.verify, () => must(isIncluded(leaf, index, head, proof)));
    const old = { size: index + 1, root: await new TileTree(index + 1, readTile).root() };
    const prefix = await timed(consistency.produce, () =>
      new TileTree(size, readTile).consistencyProof(old.size),
    );
    await timed(consistency.verify, () => must(isConsistent(old, head, prefix)));
  }
  return [
    { proof: "inclusion", ...summaries(inclusion) },
    { proof: "consistency", ...summaries(consistency) },
  ];
}

function summaries({ produce, verify }: { produce: number[]; verify: number[] }) {
  return { produceMs: summarizeSamples(produce), verifyMs: summarizeSamples(verify) };
}

async function timed<T>(times: number[], work: () => T | Promise<T>): Promise<T> {
  const began = performance.now();
  const result = await work();
  times.push(performance.now() - began);
  return result;
}

function must(holds: boolean): void {
  if (!holds) throw new Error("a proof of the benchmark does not verify");
}
