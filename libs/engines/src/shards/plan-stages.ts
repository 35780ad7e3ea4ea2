import { type CuttableModel, numberValue } from "./cut-rules.ts";
import { type BlockRange, holeBytes } from "./shard-cut.ts";
import type { StageOverhead } from "./stage-overhead.ts";

/** A worker that may take a shard. */
export interface ShardWorker {
  readonly id: string;
  /** The name that users see. */
  readonly name: string;
  /** Memory that the shard may take. */
  readonly memoryBytes: number;
  /** Where it is; those that do not say so are taken for neighbours. */
  readonly rack?: string | undefined;
  readonly fabric?: string | undefined;
}

/** What is asked of a model that is divided. */
export interface ShardDemand {
  /** Tokens of all sequences together, whose keys and values every shard keeps for its blocks. */
  readonly kvTokens: number;
  readonly overhead: StageOverhead;
  /** 1 if absent. */
  readonly minStages?: number | undefined;
  readonly maxStages: number;
}

/** A shard, and the worker that it is for. */
export interface PlannedStage extends BlockRange {
  readonly workerId: string;
  readonly weightsBytes: number;
  readonly kvBytes: number;
  /** All that it takes. */
  readonly memoryBytes: number;
}

/** Workers that are considered: a plan is computed in milliseconds. */
const MAX_SHARD_WORKERS = 16;
/** Bytes of a key's or value's element. */
const F16_BYTES = 2;
/** The output matrix costs half of what blocks of its bytes do: not every row is asked for. */
const OUTPUT_COST = 0.5;

/**
 * Divides a model between workers, of which the first 16 are considered; undefined where no plan
 * fits. The same input gives the same plan, in which one stage is the whole model.
 *
 * - The fewest stages that fit; of those plans the ones within one rack, else within one fabric.
 * - Of these the plan whose slowest stage reads the fewest bytes.
 * - Workers keep their order, so that neighbours in the list are neighbours in the pipeline; some
 *   may be left out.
 */
export function planStages(
  model: CuttableModel,
  workers: readonly ShardWorker[],
  demand: ShardDemand,
): PlannedStage[] | undefined {
  const sizes = sizesOf(model);
  const considered = workers.slice(0, MAX_SHARD_WORKERS);
  const best = bestChain(model, sizes, considered, demand);
  if (!best) return undefined;
  const count = stagesOf(best).length;
  const as = { ...demand, minStages: count, maxStages: count };
  for (const placeOf of [rackOf, fabricOf]) {
    const groups = [...Map.groupBy(considered, placeOf).values()];
    if (groups.length === 1) break;
    const near = groups.flatMap((group) => bestChain(model, sizes, group, as) ?? []);
    const [first, ...others] = near;
    if (first) return stagesOf(others.reduce((a, b) => (b.cost < a.cost ? b : a), first));
  }
  return stagesOf(best);
}

function rackOf({ fabric = "", rack = "" }: ShardWorker): string {
  return `${fabric}\n${rack}`;
}

function fabricOf({ fabric = "" }: ShardWorker): string {
  return fabric;
}

/** The stages of the best plan, wherever the workers are. */
function bestChain(
  model: CuttableModel,
  sizes: PartSizes,
  workers: readonly ShardWorker[],
  demand: ShardDemand,
): Chain | undefined {
  const none: Chain = { cost: 0 };
  /** Keyed by the number of stages: the best by the block at which they end. */
  const best = Array.from({ length: demand.maxStages + 1 }, () => new Map<number, Chain>());
  best[0]?.set(0, none);
  for (const worker of workers) {
    // From many stages to few, so that a worker gets one of them.
    for (let stages = demand.maxStages; stages >= 1; stages--) {
      for (const [from, before] of best[stages - 1]!) {
        for (const stage of stagesFrom(from, { model, sizes, worker, demand })) {
          const cost = Math.max(before.cost, costOf(sizes, stage));
          const known = best[stages]!.get(stage.to);
          if (!known || cost < known.cost) best[stages]!.set(stage.to, { cost, stage, before });
        }
      }
    }
  }
  const { minStages = 1 } = demand;
  return best
    .find((reached, stages) => stages >= minStages && reached.has(model.blocks))
    ?.get(model.blocks);
}

/** The stages that begin at the block and fit the worker. */
function* stagesFrom(
  from: number,
  { model, sizes, worker, demand }: StageChoices,
): Generator<PlannedStage> {
  let isFull = false;
  for (const to of [...model.cuts, model.blocks]) {
    // The last stage may take less than one that ends before it.
    if (to <= from || (isFull && to < model.blocks)) continue;
    const stage = stageOf(sizes, { from, to }, worker, demand);
    isFull = stage.memoryBytes > worker.memoryBytes;
    if (!isFull) yield stage;
  }
}

interface StageChoices {
  readonly model: CuttableModel;
  readonly sizes: PartSizes;
  readonly worker: ShardWorker;
  readonly demand: ShardDemand;
}

/** Stages up to a block, from the last to the first; of none the cost is 0. */
interface Chain {
  /** Bytes that the slowest of the stages reads in a step. */
  readonly cost: number;
  readonly stage?: PlannedStage;
  readonly before?: Chain;
}

function stagesOf(chain: Chain): PlannedStage[] {
  const stages: PlannedStage[] = [];
  for (let at: Chain | undefined = chain; at?.stage; at = at.before) stages.unshift(at.stage);
  return stages;
}

/** Bytes of a model's parts. */
interface PartSizes {
  readonly blocks: number;
  /** Indexed by block: the bytes of all blocks before it. */
  readonly before: readonly number[];
  /** Indexed by block: bytes of keys and values per token of all blocks before it. */
  readonly kvBefore: readonly number[];
  /** Zeros in place of the largest block, which each shard but the last has behind its own. */
  readonly blockHole: number;
  readonly embedding: number;
  /** Zeros in place of the embedding. */
  readonly embeddingHole: number;
  readonly output: number;
  /** Whether the output is computed with the embedding's matrix. */
  readonly isTied: boolean;
  /** What every shard has. */
  readonly shared: number;
}

/** What the parts of a model take. */
export function sizesOf({ file, architecture, blocks }: CuttableModel): PartSizes {
  const ofBlocks = new Array<number>(blocks).fill(0);
  const holes = new Array<number>(blocks).fill(0);
  let [embedding, embeddingHole, output, shared] = [0, 0, 0, 0];
  for (const tensor of file.tensors) {
    const { name, sizeBytes = 0 } = tensor;
    const block = /^blk\.(\d+)\./.exec(name)?.[1];
    if (block !== undefined) {
      ofBlocks[Number(block)]! += sizeBytes;
      holes[Number(block)]! += holeBytes(tensor);
    } else if (name === "token_embd.weight") {
      embedding = sizeBytes;
      embeddingHole = holeBytes(tensor);
    } else if (name.startsWith("output")) output += sizeBytes;
    else shared += sizeBytes;
  }
  const isTied = !file.tensors.some(({ name }) => name === "output.weight");
  const number = (name: string) => numberValue(file.metadata.get(`${architecture}.${name}`));
  const heads = number("attention.head_count");
  const length = number("embedding_length") / heads;
  const perHead =
    orElse(number("attention.key_length"), length) +
    orElse(number("attention.value_length"), length);
  const kvHeads = file.metadata.get(`${architecture}.attention.head_count_kv`);
  const kvOf = (block: number) => {
    const own = kvHeads?.type === "array" ? Number(kvHeads.value[block]) : numberValue(kvHeads);
    return F16_BYTES * perHead * orElse(own, heads);
  };
  return {
    blocks,
    before: sumsBefore(ofBlocks),
    kvBefore: sumsBefore(ofBlocks.map((_, block) => kvOf(block))),
    blockHole: Math.max(...holes),
    embedding,
    embeddingHole,
    output,
    isTied,
    shared,
  };
}

const orElse = (value: number, other: number) => (Number.isFinite(value) ? value : other);

/** Indexed by place, and one past the last: the sum of all values before it. */
function sumsBefore(values: readonly number[]): number[] {
  const sums = [0];
  for (const value of values) sums.push(sums.at(-1)! + value);
  return sums;
}

function stageOf(
  sizes: PartSizes,
  { from, to }: BlockRange,
  worker: ShardWorker,
  { kvTokens, overhead }: ShardDemand,
): PlannedStage {
  const isLast = to === sizes.blocks;
  const hasEmbedding = from === 0 || (isLast && sizes.isTied);
  const weightsBytes =
    sizes.before[to]! -
    sizes.before[from]! +
    sizes.shared +
    (hasEmbedding ? sizes.embedding : 0) +
    (isLast ? sizes.output : 0);
  const kvBytes = (sizes.kvBefore[to]! - sizes.kvBefore[from]!) * kvTokens;
  const lastHole = hasEmbedding ? 0 : sizes.embeddingHole;
  const zeros = isLast ? lastHole : sizes.blockHole;
  const processBytes = isLast ? overhead.last : overhead.earlier;
  const memoryBytes = weightsBytes + kvBytes + zeros + processBytes;
  return { workerId: worker.id, from, to, weightsBytes, kvBytes, memoryBytes };
}

/** Bytes of weights that a step reads. */
function costOf(sizes: PartSizes, { from, to }: BlockRange): number {
  const blocks = sizes.before[to]! - sizes.before[from]!;
  if (to < sizes.blocks) return blocks;
  return blocks + OUTPUT_COST * (sizes.isTied ? sizes.embedding : sizes.output);
}
