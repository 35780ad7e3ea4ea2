import { AppError } from "@heddle/base/errors";
import {
  type ArtifactRecord,
  type TaskRecord,
  taskKey,
} from "@heddle/control/jobs/records/records";
import { streamArtifact } from "@heddle/rpc/artifact-stream";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import type { NodeDirectory } from "../nodes/node-directory.ts";
import { type ByteRange, checkedBytes, type RawRead } from "./checked-bytes.ts";

export interface ArtifactReaderOptions {
  readonly control: Pick<ControlPlane, "state">;
  readonly directory: Pick<NodeDirectory, "nodes">;
  readonly credentials: NodeCredentials;
}

/** An artifact and the task that left it. */
export interface KnownArtifact {
  readonly task: TaskRecord;
  readonly artifact: ArtifactRecord;
}

/** Workers that are tried for a second copy if the task's worker is unreachable. */
const MAX_ASKED = 8;

/** Reads the artifacts of tasks: the state lists them, workers have the bytes. */
export class ArtifactReader {
  readonly #options: ArtifactReaderOptions;

  constructor(options: ArtifactReaderOptions) {
    this.#options = options;
  }

  /** The artifacts of the job's latest attempt, by rank and name. Throws `not_found` for an unknown job. */
  list(jobId: string): KnownArtifact[] {
    const { state } = this.#options.control;
    const job = state.jobs.get(jobId);
    if (!job) throw new AppError("not_found", `No job has the id ${jobId}.`);
    const known: KnownArtifact[] = [];
    for (let rank = 0; rank < job.tasks; rank++) {
      const task = state.tasks.get(taskKey(jobId, job.attempt, rank));
      for (const artifact of task?.exit?.artifacts ?? []) known.push({ task: task!, artifact });
    }
    return known;
  }

  /** The artifact of that name, of the given rank or else the lowest rank with one. */
  find(jobId: string, name: string, rank?: number): KnownArtifact {
    const known = this.list(jobId);
    const found = known.find(
      ({ task, artifact }) => artifact.name === name && (rank === undefined || task.rank === rank),
    );
    if (found) return found;
    const state = this.#options.control.state.jobs.get(jobId)?.state;
    const of = rank === undefined ? "" : ` of rank ${rank}`;
    const names = [...new Set(known.map(({ artifact }) => artifact.name))].slice(0, 16);
    const there =
      names.length > 0
        ? `There are ${names.join(", ")}.`
        : `It has none: it is ${state}, and a task's artifacts are there once it has ended well.`;
    throw new AppError("not_found", `The job ${jobId} has no artifact ${name}${of}. ${there}`);
  }

  /**
   * The bytes as the task left them, with back-pressure; see `checkedBytes`. Throws `unavailable`
   * with the worker's name if it is detached, and `not_found` if it has deleted the file.
   */
  read(known: KnownArtifact, range: ByteRange, signal: AbortSignal): AsyncGenerator<Buffer, void> {
    return checkedBytes(known.artifact, range, (asked) => this.#readRaw(known, asked, signal));
  }

  async *#readRaw(
    { task, artifact }: KnownArtifact,
    asked: Parameters<RawRead>[0],
    signal: AbortSignal,
  ): AsyncGenerator<Buffer, void> {
    const request = {
      task: { jobId: task.jobId, attempt: task.attempt, rank: task.rank },
      name: artifact.name,
      ...asked,
    };
    for (const address of this.#others(task)) {
      const holder = { address, role: "worker" } as const;
      let isBegun = false;
      try {
        const bytes = streamArtifact(holder, this.#options.credentials, request, signal);
        for await (const data of bytes) {
          isBegun = true;
          yield data;
        }
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (isBegun) throw error;
      }
    }
    const holder = { address: this.#addressOf(task, artifact), role: "worker" } as const;
    yield* streamArtifact(holder, this.#options.credentials, request, signal);
  }

  /** Workers that may have a second copy. */
  #others({ nodeId }: TaskRecord): string[] {
    const nodes = this.#options.directory.nodes();
    if (nodes.some(({ id, state }) => id === nodeId && state === "ready")) return [];
    const others = nodes.filter(({ kind, state }) => kind === "worker" && state === "ready");
    return others.slice(0, MAX_ASKED).map(({ address }) => address);
  }

  #addressOf({ nodeId }: TaskRecord, { name }: ArtifactRecord): string {
    const { control, directory } = this.#options;
    const node = directory.nodes().find(({ id }) => id === nodeId);
    if (node) return node.address;
    const record = control.state.nodes.get(nodeId);
    const who = record ? `${record.offer.name} (${nodeId})` : nodeId;
    const message = `The artifact ${name} lies on the worker ${who}, which is not attached (${record?.state ?? "forgotten"}). Start that worker again on its data directory.`;
    throw new AppError("unavailable", message);
  }
}
