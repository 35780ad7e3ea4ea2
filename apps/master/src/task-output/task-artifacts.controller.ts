import { AppError } from "@heddle/base/errors";
import type { ArtifactChunk } from "@heddle/contracts/generated/heddle/v1/ArtifactChunk";
import type { ArtifactRange__Output } from "@heddle/contracts/generated/heddle/v1/ArtifactRange";
import { parseWeightsSource } from "@heddle/contracts/weights-source";
import type { NodeClaim } from "@heddle/pki/node-name";
import { callerOf } from "@heddle/rpc/credentials";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { taskArtifactsService } from "@heddle/rpc/proto";
import { writeAll } from "@heddle/rpc/write-all";
import { Controller, Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { ArtifactReader } from "./artifact-reader.ts";

/** Concurrent relays on one master; further ones are refused and retried by the caller. */
const MAX_RELAYS = 64;

/**
 * TaskArtifacts of proto/tasks.proto on a master: relays the bytes from the worker that has them.
 */
@Controller()
export class TaskArtifactsController {
  readonly #artifacts: ArtifactReader;
  readonly #control: Pick<ControlPlane, "state" | "jobs">;
  #relays = 0;

  constructor(
    @Inject(ArtifactReader) artifacts: ArtifactReader,
    @Inject(CONTROL_PLANE) control: Pick<ControlPlane, "state" | "jobs">,
  ) {
    this.#artifacts = artifacts;
    this.#control = control;
  }

  @GrpcCall(taskArtifactsService, "Read")
  async read(
    range: ArtifactRange__Output,
    { call, signal }: StreamContext<ArtifactRange__Output, ArtifactChunk>,
  ): Promise<void> {
    if (this.#relays >= MAX_RELAYS) {
      throw new AppError("overloaded", `this master passes on ${MAX_RELAYS} artifacts already`);
    }
    checkMayRead(this.#control, callerOf(call), range);
    this.#relays += 1;
    try {
      await writeAll(call, this.#chunks(range, signal));
    } finally {
      this.#relays -= 1;
    }
  }

  async *#chunks(
    { task, name, offset, maxBytes }: ArtifactRange__Output,
    signal: AbortSignal,
  ): AsyncGenerator<ArtifactChunk, void> {
    const { jobId = "", attempt, rank } = task ?? {};
    const known = this.#artifacts.find(jobId, name, rank);
    if (known.task.attempt !== attempt) {
      throw new AppError("not_found", `attempt ${attempt} of job ${jobId} is not its latest`);
    }
    for await (const data of this.#artifacts.read(known, { offset, maxBytes }, signal)) {
      yield { data };
    }
  }
}

/** A worker may read only the artifacts that deployments use, and the inputs of its own tasks. */
function checkMayRead(
  control: Pick<ControlPlane, "state" | "jobs">,
  { role, name: worker }: NodeClaim,
  range: ArtifactRange__Output,
): void {
  if (role === "master") return;
  const { task, name } = range;
  const isAsked = (text: string) => {
    const source = text.startsWith("artifact:") ? parseWeightsSource(text) : undefined;
    if (source?.kind !== "artifact" || source.jobId !== task?.jobId) return false;
    return source.attempt === task.attempt && source.rank === task.rank && source.name === name;
  };
  for (const { spec } of control.state.deployments.values()) {
    if (spec.weights?.sources.some(isAsked)) return;
  }
  if (isInput(control, worker, range)) return;
  throw new AppError(
    "permission_denied",
    `no model is made of the artifact ${name} of ${task?.jobId}, and no task of ${worker} needs it`,
  );
}

/** Whether a task of the worker starts with the artifact. */
function isInput(
  { state, jobs }: Pick<ControlPlane, "state" | "jobs">,
  worker: string,
  { task, name }: ArtifactRange__Output,
): boolean {
  for (const [nodeId, keys] of jobs.tasksByNode) {
    if (state.nodes.get(nodeId)?.offer.name !== worker) continue;
    for (const key of keys) {
      const { inputs = [] } = state.specs.get(state.tasks.get(key)?.jobId ?? "") ?? {};
      if (inputs.some(({ job, artifact }) => job === task?.jobId && artifact === name)) return true;
    }
  }
  return false;
}
