import { join } from "node:path";
import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import type { PluginTraining, TrainingConfig } from "@heddle/contracts/training";
import type { Log } from "@heddle/observability/logger";
import { joinNodeGroup, type NodeClient } from "@heddle/parameters/node-group/join-node-group";
import type { NodeGroup } from "@heddle/parameters/node-group/node-group";
import { ThreadedExchange } from "@heddle/parameters/node-group/threaded-exchange";
import type { ParameterTraffic } from "@heddle/parameters/parameter-server-client";
import {
  checkpointShards,
  closeShards,
  listCheckpoints,
  openShards,
  restoreShards,
  type ShardSetAccess,
  shardStatuses,
} from "@heddle/parameters/shards/shard-set";
import { fragmentsOf, type ShardSetSpec } from "@heddle/parameters/shards/shard-spec";
import type { JobCredentials } from "@heddle/rpc/job-ticket";
import type { ParameterClient, Parameters } from "@heddle/training/parameter-client";
import type { FragmentExchange } from "@heddle/training/weave/fragment-exchange";
import { checkpointChoices, checkpointName } from "../checkpoints/checkpoint-names.ts";
import type { TrainingPlan } from "../plans/training-plan.ts";
import { DamagedCheckpoints } from "../trainer-errors.ts";

/** How long a task waits for rank 0 to open or restore the shards. */
const OPEN_TIMEOUT_MS = 900_000;
/** How long a server may be unreachable before a call fails, as for pushes and pulls. */
const AWAY_MS = 30_000;

const BACKOFF = { baseMs: 20, maxMs: 1_000 };

/** A task's place on its node, and the node's among the job's. */
export interface NodePlace {
  /** The node's index among all nodes, in the order of their first ranks. */
  readonly node: number;
  readonly nodes: number;
  readonly member: number;
  readonly members: number;
}

/** The place of a task, given the node ids by rank; without them each is on a node of its own. */
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

/** A task's client of its job's parameters. */
export interface JobClient extends ParameterClient {
  /** Where the plan has fragments. */
  readonly exchange: FragmentExchange | undefined;
  /** Indexed by fragment: the number of pushes of its rank when it joined. */
  readonly clocks: readonly (number | undefined)[];
  /** Where this task leads its node. */
  traffic(): ParameterTraffic | undefined;
  initialize(parameters: Parameters): Promise<void>;
  /** Indexed by fragment, the rounds that the shards contain. */
  beginAt(rounds: readonly number[]): void;
  /** Like `pull`, for rank 0 when the other tasks of its node are done. */
  pullAlone(into: Parameters): Promise<void>;
  /** Notifies the other tasks of the node that the job has ended. */
  dismiss(): Promise<void>;
  close(): Promise<void>;
}

function onThisThread(client: NodeClient): JobClient {
  const { servers } = client;
  return {
    exchange: undefined,
    clocks: [servers?.clock],
    push: (part, terms) => client.push(part, terms),
    pull: (into) => client.pull(into),
    traffic: () => servers?.traffic,
    initialize: async (parameters) => servers?.initialize(parameters),
    beginAt: () => undefined,
    pullAlone: async (into) => void (await servers?.pull(into)),
    dismiss: () => client.dismiss(),
    close: () => client.close(),
  };
}

function onItsThread(exchange: ThreadedExchange): JobClient {
  return {
    exchange,
    clocks: exchange.clocks,
    push: (part, terms) => exchange.push(part, terms),
    pull: (into) => exchange.pull(into),
    traffic: () => exchange.traffic,
    initialize: (parameters) => exchange.initialize(parameters),
    beginAt: (rounds) => exchange.beginAt(rounds),
    pullAlone: (into) => exchange.pullAlone(into),
    dismiss: () => exchange.dismiss(),
    close: () => exchange.close(),
  };
}

/** Skips the first pushes of a round, which its rank has made already. */
function withoutFirst(client: JobClient, count: number): JobClient {
  let left = count;
  const push: JobClient["push"] = async (part, terms) => {
    if (left === 0) await client.push(part, terms);
    else left--;
  };
  return { ...client, push };
}

/** The dependencies of a job's shards. */
export interface JobShardsOptions {
  readonly orders: TrainerOrders;
  readonly config: TrainingConfig | PluginTraining;
  readonly plan: Pick<
    TrainingPlan,
    "parameters" | "servers" | "pushesPerRound" | "fragments" | "tokenizer" | "data"
  >;
  readonly credentials: JobCredentials;
  readonly signal: AbortSignal;
  /** A line for the job's log. */
  readonly log: Log;
}

/** The job's parameters on its servers, for the task of one attempt. */
export class JobShards {
  readonly #options: JobShardsOptions;
  readonly #access: ShardSetAccess;
  readonly #place: NodePlace;

  constructor(options: JobShardsOptions) {
    const { orders, credentials, signal } = options;
    this.#options = options;
    this.#place = nodePlace(orders.nodes, orders.rank, orders.tasks);
    const { readyServers: holders, lostServers: lost } = orders;
    this.#access = { spec: specOf(options, this.#place), credentials, signal, holders, lost };
  }

  /**
   * Rank 0 opens the shards, or restores them from the newest undamaged checkpoint; the others wait
   * for that. Returns the task's client and the rounds that the shards contain.
   */
  async join(initial: () => Parameters): Promise<{ client: JobClient; done: number }> {
    const { orders, plan } = this.#options;
    if (orders.rank === 0) await this.#openOnce();
    else await this.#awaitReady();
    const { spec, credentials, signal } = this.#access;
    const { host, incarnation, socketDirectory } = orders;
    const place = { rank: this.#place.node, incarnation, host, socketDirectory };
    const options = { spec, credentials, signal, ...place };
    const groups = Array.from({ length: fragmentsOf(spec) }, (_, i) => this.#group(i));
    const [group] = groups;
    if (!group) throw new Error("a job has no fragment");
    const client =
      plan.fragments === undefined
        ? onThisThread(await joinNodeGroup(options, group))
        : onItsThread(await ThreadedExchange.start(options, groups));
    if (orders.rank === 0) await client.initialize(initial());
    const begun = await this.#versionsBegun();
    if ((orders.failureTolerance ?? 0) === 0) {
      const done = begun.map((version) => this.#roundsOf(version));
      client.beginAt(done);
      return { client, done: Math.min(...done) };
    }
    // A lost task of its rank may have pushed already.
    const { pushesPerRound } = plan;
    const pushed = begun.map((version, fragment) => {
      const own = (client.clocks[fragment] ?? version) - version;
      return this.#roundsOf(version) * pushesPerRound + Math.max(0, own);
    });
    const rounds = pushed.map((count) => Math.floor(count / pushesPerRound));
    client.beginAt(rounds);
    const done = Math.min(...rounds);
    const first = Math.max(0, Math.min(...pushed) - done * pushesPerRound);
    if (this.#isReplacement)
      this.#options.log.info({}, `takes the place of a lost task after round ${done}`);
    return { client: client.exchange ? client : withoutFirst(client, first), done };
  }

  get #isReplacement(): boolean {
    return (this.#options.orders.incarnation ?? 0) > 0;
  }

  /** A replacement of rank 0 continues with the shards that it opened. */
  async #openOnce(): Promise<void> {
    if (this.#isReplacement) {
      try {
        const statuses = await shardStatuses(this.#access);
        if (statuses.every(({ ready }) => ready)) return;
      } catch (error) {
        if (toAppError(error).code !== "shard_unavailable") throw error;
      }
    }
    await this.#open();
  }

  /** Writes a checkpoint of all shards under the round's name. */
  async checkpoint(round: number): Promise<string> {
    const { orders, log } = this.#options;
    const name = this.nameAt(round);
    const { uncopied } = await checkpointShards(this.#access, name, orders.keepCheckpoints);
    for (const why of uncopied) log.warn({}, why);
    return name;
  }

  /** The name of this attempt's checkpoint after `round` rounds. */
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

  /** Ends the job: later calls for its parameters are rejected with `gone`. */
  close(): Promise<void> {
    return this.#persist(() => closeShards(this.#access));
  }

  async #open(): Promise<void> {
    const { orders, log } = this.#options;
    // What an earlier attempt left is in its checkpoint, or was never saved. Each step is retried
    // by itself, since to close this attempt's own shards again would end it.
    await this.#persist(() => closeShards(this.#access));
    if (orders.resumeFrom === "") {
      await this.#persist(() => openShards(this.#access));
      return;
    }
    const found = await this.#persist(() => listCheckpoints(this.#access));
    const names = checkpointChoices([...found.keys()], orders.resumeFrom);
    const candidates = names.map(({ name, pieces }) => ({
      name,
      pieces,
      servers: found.get(name) ?? [],
    }));
    const restored = restoreShards(this.#access, candidates, (restore) =>
      this.#persist(restore, isShardAway),
    );
    const { used, refused } = await restored.catch((cause) => {
      throw this.#restoreFault(cause);
    });
    for (const why of refused) log.warn({}, `a checkpoint was passed over: ${why}`);
    log.info({}, `resumed from checkpoint ${used.name}`);
  }

  /** Distinguishes what to correct: the data, or nothing. */
  #restoreFault(cause: unknown): unknown {
    const { code, message } = toAppError(cause);
    if (code === "invalid_value") {
      const hint = "submit the job again to start from the beginning";
      return new DamagedCheckpoints(code, `${message}; ${hint}`, { cause });
    }
    if (code !== "unprocessable") return cause;
    const { tokenizer, data } = this.#options.plan;
    const what =
      tokenizer?.type === "bpe"
        ? "the training data has changed since the job began, and its byte pairs are learned from it"
        : "the training data, or the plugin, has changed since the job began";
    const digest = data === undefined ? "" : ` (its SHA-256 is ${data.sha256} now)`;
    const hint = "put back what was there, or submit the job again to start from the beginning";
    return new AppError("invalid_value", `${what}${digest}: ${message}; ${hint}`, { cause });
  }

  /** Indexed by fragment: the version with which this attempt began. */
  async #versionsBegun(): Promise<number[]> {
    const statuses = await this.#awaitReady();
    const versions = statuses.map(({ begunVersion }) => begunVersion);
    const each = versions.length / fragmentsOf(this.#access.spec);
    return Array.from({ length: versions.length / each }, (_, fragment) =>
      Math.min(...versions.slice(fragment * each, (fragment + 1) * each)),
    );
  }

  /** Under bsp an update has the parts of all nodes, else of one. */
  #roundsOf(version: number): number {
    const { consistency } = this.#access.spec;
    const parts = consistency.kind === "bsp" ? 1 : this.#place.nodes;
    return Math.floor(version / parts / this.#options.plan.pushesPerRound);
  }

  /** Retries while a server is unreachable, as pushes and pulls do. */
  #persist<Result>(work: () => Promise<Result>, isPassing = isAway): Promise<Result> {
    return retry(work, {
      backoff: BACKOFF,
      deadlineMs: AWAY_MS,
      signal: this.#access.signal,
      isPassing,
      lateError: (cause) => {
        const message = `a parameter server has been unreachable for ${AWAY_MS} ms`;
        const why = `${message}: ${toAppError(cause).message}`;
        return new AppError("shard_unavailable", why, { cause });
      },
    });
  }

  /** The statuses of the shards, once rank 0 has opened all of them. */
  #awaitReady() {
    const poll = async () => {
      const statuses = await shardStatuses(this.#access);
      if (statuses.every(({ ready }) => ready)) return statuses;
      throw new AppError("shard_unavailable", "rank 0 has not opened them");
    };
    return retry(poll, {
      backoff: BACKOFF,
      deadlineMs: OPEN_TIMEOUT_MS,
      signal: this.#access.signal,
      isPassing: (error) => {
        const { code, retryable } = toAppError(error);
        return code === "shard_unavailable" || retryable;
      },
      lateError: (error) => {
        const why = toAppError(error).message;
        return new AppError("shard_unavailable", `the job's shards are not there: ${why}`);
      },
    });
  }

  #group(fragment: number): NodeGroup {
    const { member, members, node } = this.#place;
    const socketPath = join(this.#options.orders.socketDirectory, `${node}-${fragment}`);
    return { member, members, socketPath };
  }
}

/** Whether the target of a call was unreachable, however deep that error is nested. */
function isAway(error: unknown): boolean {
  // The cause is an error of gRPC, whatever the server answered.
  for (let at = error; at instanceof AppError; at = at.cause) if (at.retryable) return true;
  return false;
}

/** Also where a server waits for another's piece of a checkpoint. */
function isShardAway(error: unknown): boolean {
  return isAway(error) || toAppError(error).code === "shard_unavailable";
}

function specOf({ orders, config, plan }: JobShardsOptions, { nodes }: NodePlace): ShardSetSpec {
  const { jobId, attempt, parameterServers } = orders;
  const { consistency: kind, staleness } = config;
  const fragments = plan.fragments ?? 1;
  return {
    jobId,
    attempt,
    workers: nodes,
    ...plan.servers,
    // Each fragment has a shard on each of them.
    servers: Array.from({ length: fragments }, () => parameterServers).flat(),
    fragments,
    parameters: plan.parameters.map(({ name, shape }) => ({ name, shape, type: "f32" })),
    consistency: kind === "ssp" ? { kind, staleness } : { kind },
    stragglerMs: config.straggler_ms,
    compression: config.compression,
    pullCompression: config.pull_compression ?? "none",
    jobToken: Buffer.from(orders.jobToken, "hex"),
  };
}
