import { AppError } from "@heddle/base/errors";
import type { ArtifactChunk } from "@heddle/contracts/generated/heddle/v1/ArtifactChunk";
import type { ArtifactRange__Output } from "@heddle/contracts/generated/heddle/v1/ArtifactRange";
import { parseWeightsSource } from "@heddle/contracts/weights-source";
import type { ControlState } from "@heddle/control/state";
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
  readonly #control: Pick<ControlPlane, "state">;
  #relays = 0;

  constructor(
    @Inject(ArtifactReader) artifacts: ArtifactReader,
    @Inject(CONTROL_PLANE) control: Pick<ControlPlane, "state">,
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
    checkMayRead(this.#control.state, callerOf(call), range);
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

/** A worker may read only the artifacts that deployments use. */
function checkMayRead(
  { deployments }: ControlState,
  { role, name: worker }: NodeClaim,
  { task, name }: ArtifactRange__Output,
): void {
  if (role === "master") return;
  const isAsked = (text: string) => {
    const source = text.startsWith("artifact:") ? parseWeightsSource(text) : undefined;
    if (source?.kind !== "artifact" || source.jobId !== task?.jobId) return false;
    return source.attempt === task.attempt && source.rank === task.rank && source.name === name;
  };
  for (const { spec } of deployments.values()) {
    if (spec.weights?.sources.some(isAsked)) return;
  }
  throw new AppError(
    "permission_denied",
    `no model is made of the artifact ${name} of ${task?.jobId}, so ${worker} may not have it`,
  );
}
