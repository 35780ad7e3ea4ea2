import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Backoff } from "@heddle/base/backoff";
import { AppError, toAppError } from "@heddle/base/errors";
import type { PluginTraining, TrainingConfig } from "@heddle/contracts/training";
import { joinNode, type NodeClient, type NodeGroup } from "@heddle/parameters/node-group";
import {
  checkpointShards,
  closeShards,
  listCheckpoints,
  openShards,
  restoreShards,
  type ShardSetAccess,
  shardStatuses,
} from "@heddle/parameters/shard-set";
import type { ShardSetSpec } from "@heddle/parameters/shard-spec";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { Parameters } from "@heddle/training/parameter-client";
import { checkpointName, earlierCheckpoints } from "./checkpoint-names.ts";
import type { TrainerOrders } from "./trainer-orders.ts";
import type { TrainingPlan } from "./training-plan.ts";

/** How long a task waits for rank 0 to open or restore the shards. */
const OPEN_PATIENCE_MS = 900_000;
/** How long a server may be away before the job is told, as for pushes and pulls. */
const AWAY_MS = 30_000;

/** A task's place on its node, and the node's among the job's. */
export interface NodePlace {
  /** Of all nodes, in the order of their first ranks. */
  readonly node: number;
  readonly nodes: number;
  readonly member: number;
  readonly members: number;
}

/** Where a task stands, given the node ids by rank; without them each is on a node of its own. */
export function nodePlace(nodes: readonly string[], rank: number, tasks: number): NodePlace {
  if (nodes.length === 0) return { node: rank, nodes: tasks, member: 0, members: 1 };
  const own = nodes[rank] ?? "";
  const distinct = [...new Set(nodes)];
  return {
    node: distinct.indexOf(own),
    nodes: distinct.length,
    member: nodes.slice(0, rank).filter((id) => id === own).length,
    members: nodes.filter((id) => id === own).length,
  };
}

/** What a job's shards are made by. */
export interface JobShardsOptions {
  readonly orders: TrainerOrders;
  readonly config: TrainingConfig | PluginTraining;
  readonly plan: Pick<TrainingPlan, "parameters" | "servers" | "pushesPerRound" | "tokenizer">;
  readonly credentials: NodeCredentials;
  readonly signal: AbortSignal;
  /** A line for the job's log. */
  readonly say: (line: string) => void;
}

/** The job's parameters on its servers, as the task of one attempt sees them. */
export class JobShards {
  readonly #options: JobShardsOptions;
  readonly #access: ShardSetAccess;
  readonly #place: NodePlace;

  constructor(options: JobShardsOptions) {
    const { orders, credentials, signal } = options;
    this.#options = options;
    this.#place = nodePlace(orders.nodes, orders.rank, orders.tasks);
    const holders = orders.readyServers;
    this.#access = { spec: specOf(options, this.#place), credentials, signal, holders };
  }

  /**
   * Rank 0 opens the shards, or restores them from the newest checkpoint that is whole; the others
   * wait for that. Gives the task's way to them and the rounds that they have behind them.
   */
  async join(initial: () => Parameters): Promise<{ client: NodeClient; done: number }> {
    const { orders } = this.#options;
    if (orders.rank === 0) await this.#open();
    else await this.#await(({ ready }) => ready);
    const { spec, credentials, signal } = this.#access;
    const client = await joinNode(
      { spec, credentials, signal, rank: this.#place.node, host: orders.host },
      this.#group(),
    );
    if (orders.rank === 0) await client.servers?.initialize(initial());
    return { client, done: await this.#roundsBegun() };
  }

  /** Writes a checkpoint of all shards under the round's name. */
  async checkpoint(round: number): Promise<string> {
    const { orders, say } = this.#options;
    const name = this.nameAt(round);
    const { uncopied } = await checkpointShards(this.#access, name, orders.keepCheckpoints);
    for (const why of uncopied) say(why);
    return name;
  }

  /** The name that a checkpoint of this attempt has after so many rounds. */
  nameAt(round: number): string {
    const { attempt, servers } = this.#access.spec;
    return checkpointName({ attempt, round, pieces: servers.length });
  }

  /** The rounds that all shards contain now. */
  async rounds(): Promise<number> {
    const statuses = await this.#persist(() => shardStatuses(this.#access));
    const versions = statuses.map(({ version }) => version);
    return this.#roundsOf(Math.min(...versions));
  }

  /** Ends the job: whoever still asks for its parameters is told that it is over. */
  close(): Promise<void> {
    return this.#persist(() => closeShards(this.#access));
  }

  async #open(): Promise<void> {
    const { orders, say } = this.#options;
    // What an earlier attempt has left is behind its checkpoint, or never had one.
    await closeShards(this.#access);
    if (orders.resumeFrom === "") {
      await openShards(this.#access);
      return;
    }
    const found = await listCheckpoints(this.#access);
    const names = earlierCheckpoints([...found.keys()], orders.resumeFrom);
    const candidates = names.map(({ name, pieces }) => ({
      name,
      pieces,
      servers: found.get(name) ?? [],
    }));
    const { used, refused } = await restoreShards(this.#access, candidates).catch((cause) => {
      const { tokenizer } = this.#options.plan;
      if (tokenizer?.type !== "bpe") throw cause;
      const { code, message } = toAppError(cause);
      const hint = "tokens are learned from the data, which must be what it was when the job began";
      throw new AppError(code, `${message}; ${hint}`, { cause });
    });
    for (const why of refused) say(`a checkpoint was passed over: ${why}`);
    say(`resumed from checkpoint ${used.name}`);
  }

  async #roundsBegun(): Promise<number> {
    const statuses = await this.#await(({ ready }) => ready);
    return this.#roundsOf(Math.min(...statuses.map(({ begunVersion }) => begunVersion)));
  }

  /** Under bsp an update has the parts of all nodes, else of one. */
  #roundsOf(version: number): number {
    const { consistency } = this.#access.spec;
    const parts = consistency.kind === "bsp" ? 1 : this.#place.nodes;
    return Math.floor(version / parts / this.#options.plan.pushesPerRound);
  }

  /** A server that is away for a moment is asked again, as pushes and pulls ask it. */
  async #persist<Result>(work: () => Promise<Result>): Promise<Result> {
    const backoff = new Backoff({ baseMs: 20, maxMs: 1_000 });
    for (const sinceMs = performance.now(); ; ) {
      try {
        return await work();
      } catch (cause) {
        const { signal } = this.#access;
        signal.throwIfAborted();
        if (!isAway(cause)) throw cause;
        if (performance.now() - sinceMs > AWAY_MS) {
          const message = `a parameter server is away for ${AWAY_MS} ms`;
          const { message: told } = toAppError(cause);
          throw new AppError("unavailable", `${message}: ${told}`, { cause });
        }
        await delay(backoff.nextMs(), undefined, { signal });
      }
    }
  }

  async #await(isSo: (status: { readonly ready: boolean }) => boolean) {
    const backoff = new Backoff({ baseMs: 20, maxMs: 1_000 });
    const deadline = performance.now() + OPEN_PATIENCE_MS;
    for (let last = "rank 0 has not opened them"; ; ) {
      try {
        const statuses = await shardStatuses(this.#access);
        if (statuses.every(isSo)) return statuses;
      } catch (error) {
        const { code, message, retryable } = toAppError(error);
        if (code !== "shard_unavailable" && !retryable) throw error;
        last = message;
      }
      if (performance.now() > deadline) {
        throw new AppError("shard_unavailable", `the job's shards are not there: ${last}`);
      }
      await delay(backoff.nextMs(), undefined, { signal: this.#access.signal });
    }
  }

  /** A socket's path is short, and nobody else's: it follows from job, attempt and node. */
  #group(): NodeGroup {
    const { orders } = this.#options;
    const { member, members, node } = this.#place;
    const id = createHash("sha256").update(
      `${orders.jobId}/${orders.attempt}/${orders.nodes[orders.rank] ?? node}`,
    );
    const socketPath = join(tmpdir(), `heddle-${id.digest("hex").slice(0, 20)}.sock`);
    return { member, members, socketPath };
  }
}

/** Whether what was asked could not be reached, however that was told on. */
function isAway(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause)
    if (toAppError(at).retryable) return true;
  return false;
}

function specOf({ orders, config, plan }: JobShardsOptions, { nodes }: NodePlace): ShardSetSpec {
  const { jobId, attempt, parameterServers } = orders;
  const { consistency: kind, staleness } = config;
  return {
    ...{ jobId, attempt, servers: parameterServers, workers: nodes, ...plan.servers },
    parameters: plan.parameters.map(({ name, shape }) => ({ name, shape, type: "f32" })),
    consistency: kind === "ssp" ? { kind, staleness } : { kind },
    stragglerMs: config.straggler_ms,
    compression: config.compression,
    pullCompression: config.pull_compression ?? "none",
    jobToken: Buffer.from(orders.jobToken, "hex"),
  };
}
