import { readFileSync } from "node:fs";
import type { KernelMemory } from "@heddle/kernels/kernels";
import { type Segment, shardLayouts } from "@heddle/parameters/shards/shard-layout";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import type { Checker } from "../checker.ts";
import { areEqual, attemptCell, CELLS, describeCells, isNear, NODE_CELLS, sumOf } from "./cells.ts";

/** How long a shard makes no progress before a checkpoint takes it as it is, less a clock's skew. */
const LAG_US = 1_900_000;
const PREFIX_BYTES = 12;

interface Version {
  readonly atUs: number;
  readonly cells: Float32Array;
}

/** One shard of an attempt, as its memory shows it. */
export class ShardRecord {
  spec: ShardSpec;
  /** The version with which the attempt began, and the content of each version since. */
  begun = 0;
  versions: Version[] = [];
  readonly #checker: Checker;
  readonly #nowUs: () => number;
  readonly #memory: KernelMemory;
  readonly #segments: readonly Segment[];
  /** Indexed by node: its pushes in the parameters since the attempt began. */
  #applied: number[] = [];

  constructor(
    spec: ShardSpec,
    memory: KernelMemory,
    parts: { readonly checker: Checker; readonly nowUs: () => number },
  ) {
    this.spec = spec;
    this.#memory = memory;
    this.#checker = parts.checker;
    this.#nowUs = parts.nowUs;
    const layout = shardLayouts(spec.parameters, spec.servers.length)[spec.shard];
    this.#segments = layout?.segments ?? [];
    this.begin(spec, 0);
  }

  get name(): string {
    const { jobId, attempt, shard } = this.spec;
    return `shard ${shard} of ${jobId}/${attempt}`;
  }

  get tensors(): readonly string[] {
    return this.#segments.map(({ parameter }) => parameter);
  }

  get cells(): Float32Array {
    return this.versions.at(-1)?.cells ?? new Float32Array(CELLS);
  }

  applied(node: number): number {
    return this.#applied[node] ?? 0;
  }

  /** An attempt begins with what is in the memory. */
  begin(spec: ShardSpec, version: number): void {
    this.spec = spec;
    this.begun = version;
    this.versions = [this.#now()];
    this.#applied = [];
  }

  /** An update was made; `begunPushes` are those that each node has begun in this attempt. */
  updated(begunPushes: (node: number) => number): void {
    const before = this.cells;
    const version = this.#now();
    this.versions.push(version);
    const added = version.cells.map((each, at) => each - (before[at] ?? 0));
    const own = attemptCell(this.spec.attempt);
    const detail = () => `${this.name} took ${describeCells(added)}`;
    const foreign = added.some((each, at) => at >= NODE_CELLS && at !== own && each !== 0);
    this.#checker.demand(!foreign, "no push of another attempt is applied", detail);
    const nodes = added.subarray(0, NODE_CELLS);
    const isOne = isNear(added[own] ?? 0, 1) && isNear(sumOf(nodes), 1);
    const isWhole = this.spec.consistency.kind === "bsp" || nodes.some((each) => isNear(each, 1));
    this.#checker.demand(isOne && isWhole, "a push is applied once", detail);
    for (const [node, each] of nodes.entries()) {
      if (each === 0) continue;
      const count = this.applied(node) + 1;
      this.#applied[node] = count;
      this.#checker.demand(
        count <= begunPushes(node),
        "a push is applied once",
        () => `${this.name}: ${count} of node ${node}, which has made ${begunPushes(node)}`,
      );
    }
  }

  /** The first version from `from` on with this content; undefined where there is none. */
  find(cells: Float32Array, from: number): number | undefined {
    for (let at = from; at < this.versions.length; at++) {
      if (areEqual(cells, this.versions[at]?.cells ?? cells)) return at;
    }
    return undefined;
  }

  /** Reads a piece of a checkpoint that is said to have that version; returns its content. */
  checkPiece(path: string, version: number): Float32Array {
    const bytes = readFileSync(path);
    const begin = PREFIX_BYTES + bytes.readUInt32LE(PREFIX_BYTES - 4);
    const header = JSON.parse(bytes.toString("utf8", PREFIX_BYTES, begin)) as { version: number };
    const cells = this.#cellsOf((at) => bytes.readFloatLE(begin + at * 4));
    const at = this.find(cells, 0);
    const wanted = version - this.begun;
    this.#checker.demand(
      header.version === version && at !== undefined && (at === wanted || this.#lagged(at, wanted)),
      "a checkpoint has the version that it says",
      () => {
        const found = at === undefined ? "none" : this.begun + at;
        return `${path}: ${describeCells(cells)} is version ${found} and not ${version}`;
      },
    );
    return cells;
  }

  /** Where each part is an update by itself, a shard that was stopped is taken as it is. */
  #lagged(at: number, wanted: number): boolean {
    const next = this.versions[at + 1]?.atUs ?? this.#nowUs();
    const stoodUs = next - (this.versions[at]?.atUs ?? next);
    return this.spec.consistency.kind !== "bsp" && at < wanted && stoodUs >= LAG_US;
  }

  #now(): Version {
    const values = new Float32Array(this.#memory.buffer);
    return { atUs: this.#nowUs(), cells: this.#cellsOf((at) => values[at] ?? Number.NaN) };
  }

  /** The content, which is the same in all tensors. */
  #cellsOf(value: (at: number) => number): Float32Array {
    const [first, ...others] = this.#segments.map(({ offset }) =>
      Float32Array.from({ length: CELLS }, (_, at) => value(offset + at)),
    );
    if (!first) throw new Error(`${this.name} has no parameters`);
    this.#checker.demand(
      others.every((each) => areEqual(each, first)),
      "a push is applied as a whole",
      () => this.name,
    );
    return first;
  }
}
