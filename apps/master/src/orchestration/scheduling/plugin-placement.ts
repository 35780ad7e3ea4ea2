import type { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import type { NodesAnswer } from "@heddle/plugin-kit/host/plugin-calls";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { CandidateNode, WaitingJob } from "@heddle/plugin-kit/points/jobs";
import type { QueuedJob, TaskRequest } from "@heddle/scheduler/model";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

/** Jobs of one question to the plugins, first in the queue. */
const MAX_JOBS = 64;
/** With more nodes than these, plugins are not asked. */
const MAX_NODES = 2_000;
const ANSWER_MS = 1_000;
/** How long a job waits for the plugins' answer; then it is placed without it. */
const HOLD_MS = 5_000;
/** After which a plugin is asked about a job again. */
const STALE_MS = 10_000;
const RETRY_MS = 500;

/** What filters and scores said of one job. */
interface Answer {
  readonly atMs: number;
  /** A plugin did not answer. */
  readonly isPartial: boolean;
  /** Ids of the nodes that were asked about. */
  readonly known: ReadonlySet<string>;
  readonly excluded: readonly string[];
  readonly ranks: TaskRequest["nodeRanks"];
}

interface Asked {
  readonly firstMs: number;
  answer?: Answer;
  /** The request with the answer, as long as neither changes. */
  made?: {
    readonly of: TaskRequest;
    readonly on: readonly CandidateNode[];
    readonly request: TaskRequest;
  };
}

/**
 * Asks the filters and scores of plugins about waiting jobs, between the leader's plans and never
 * during one. A plan uses the answers that are there; jobs without one wait a bounded time.
 */
export class PluginPlacement {
  readonly #plugins: Pick<PluginSet, "usable">;
  readonly #control: ControlPlane;
  readonly #asked = new Map<string, Asked>();
  #nodes: readonly CandidateNode[] = [];
  #nodesText = "";
  #isAsking = false;
  #nextAskMs = 0;
  /** Called when there are new answers. */
  onAnswer: () => void = () => undefined;

  constructor(plugins: Pick<PluginSet, "usable">, control: ControlPlane) {
    this.#plugins = plugins;
    this.#control = control;
  }

  /** The queue with what plugins said of it; asks about what they have not. */
  applied(queue: readonly QueuedJob[], nowMs: number): readonly QueuedJob[] {
    const plugins = this.#askable();
    if (plugins.length === 0) return queue;
    this.#readNodes();
    if (this.#nodes.length > MAX_NODES) return queue;
    const wanted: QueuedJob[] = [];
    const live = new Set<string>();
    const made = queue.map((job) => {
      if (job.entry.kind === "replica") return job;
      const { jobId } = job.entry;
      live.add(jobId);
      const asked = this.#asked.get(jobId) ?? { firstMs: nowMs };
      this.#asked.set(jobId, asked);
      if (this.#isWanted(asked, nowMs) && wanted.length < MAX_JOBS) wanted.push(job);
      return this.#withAnswer(job, asked, nowMs);
    });
    for (const id of this.#asked.keys()) if (!live.has(id)) this.#asked.delete(id);
    if (wanted.length > 0) void this.#ask(plugins, wanted, nowMs);
    return made;
  }

  /** The queue with the answers that are there, of which nothing is asked. */
  known(queue: readonly QueuedJob[], nowMs: number): readonly QueuedJob[] {
    if (this.#asked.size === 0) return queue;
    return queue.map((job) => {
      const asked = job.entry.kind === "replica" ? undefined : this.#asked.get(job.entry.jobId);
      return asked ? this.#withAnswer(job, asked, nowMs) : job;
    });
  }

  #askable(): HostedPlugin[] {
    return this.#plugins.usable.filter(({ description }) => {
      return description && description.filters.length + description.scores.length > 0;
    });
  }

  /** Nodes whose properties are unchanged keep their list. */
  #readNodes(): void {
    const nodes = [...this.#control.state.nodes.values()].map(({ offer }): CandidateNode => {
      const { id, name, labels, gpuType, gpuCount, rack } = offer;
      return { id, name, labels, gpuType, gpus: gpuCount, rack };
    });
    const text = JSON.stringify(nodes);
    if (text === this.#nodesText) return;
    this.#nodesText = text;
    this.#nodes = nodes;
  }

  #isWanted({ answer }: Asked, nowMs: number): boolean {
    if (!answer || answer.isPartial || nowMs - answer.atMs > STALE_MS) return true;
    return this.#nodes.some(({ id }) => !answer.known.has(id));
  }

  #withAnswer(job: QueuedJob, asked: Asked, nowMs: number): QueuedJob {
    const { answer, firstMs } = asked;
    const holdUntilMs = firstMs + HOLD_MS;
    if (!answer || (answer.isPartial && nowMs < holdUntilMs)) {
      return nowMs < holdUntilMs && job.notBeforeMs < holdUntilMs
        ? { ...job, notBeforeMs: holdUntilMs }
        : job;
    }
    if (asked.made?.of !== job.request || asked.made.on !== this.#nodes) {
      const unknown = this.#nodes.filter(({ id }) => !answer.known.has(id)).map(({ id }) => id);
      const excludedNodes = [...answer.excluded, ...unknown].sort();
      const request = { ...job.request, excludedNodes, nodeRanks: answer.ranks };
      asked.made = { of: job.request, on: this.#nodes, request };
    }
    return { ...job, request: asked.made.request };
  }

  async #ask(
    plugins: readonly HostedPlugin[],
    jobs: readonly QueuedJob[],
    nowMs: number,
  ): Promise<void> {
    if (this.#isAsking || nowMs < this.#nextAskMs) return;
    this.#isAsking = true;
    const nodes = this.#nodes;
    const call = { point: "nodes" as const, jobs: jobs.map((job) => this.#view(job)), nodes };
    const replies = await Promise.allSettled(
      plugins.map((plugin) => plugin.call(call, { timeoutMs: ANSWER_MS })),
    );
    this.#isAsking = false;
    const answers = replies.flatMap((reply) =>
      reply.status === "fulfilled" && isAnswer(reply.value, jobs.length) ? [reply.value] : [],
    );
    const isPartial = answers.length < plugins.length;
    if (isPartial) this.#nextAskMs = nowMs + RETRY_MS;
    for (const [at, job] of jobs.entries()) {
      const asked = job.entry.kind === "replica" ? undefined : this.#asked.get(job.entry.jobId);
      if (!asked || (isPartial && asked.answer)) continue;
      asked.answer = answerOf(
        nodes,
        answers.map((each) => each[at]!),
        { atMs: nowMs, isPartial },
      );
      delete asked.made;
    }
    this.onAnswer();
  }

  #view({ entry, project, queue, tasks, request }: QueuedJob): WaitingJob {
    const id = entry.kind === "replica" ? "" : entry.jobId;
    const { name = "", labels = {} } = this.#control.state.specs.get(id) ?? {};
    const gpusPerTask = (request.gpus * request.gpuMilli) / 1_000;
    return { id, name, project, queue, tasks, gpusPerTask, labels };
  }
}

function answerOf(
  nodes: readonly CandidateNode[],
  answers: readonly NodesAnswer[number][],
  rest: Pick<Answer, "atMs" | "isPartial">,
): Answer {
  const excluded = new Set(answers.flatMap((each) => each.excluded));
  const sums = nodes.map((_node, at) => {
    let sum = 0;
    for (const { scores } of answers) sum += scores[at] ?? 0;
    return sum;
  });
  const distinct = [...new Set(sums)].sort((a, b) => a - b);
  const rankOf = new Map(distinct.map((sum, rank) => [sum, rank]));
  const ranks = nodes.map(({ id: nodeId }, at) => ({ nodeId, rank: rankOf.get(sums[at]!) ?? 0 }));
  return {
    ...rest,
    known: new Set(nodes.map(({ id }) => id)),
    excluded: nodes.filter((_node, at) => excluded.has(at)).map(({ id }) => id),
    ranks: distinct.length > 1 ? ranks : undefined,
  };
}

/** A plugin's process may answer anything. */
function isAnswer(value: unknown, jobs: number): value is NodesAnswer {
  if (!Array.isArray(value) || value.length !== jobs) return false;
  return value.every((each: Partial<NodesAnswer[number]> | null) => {
    const lists = [each?.excluded, each?.scores];
    return lists.every((list) => Array.isArray(list) && list.every(Number.isFinite));
  });
}
