import type { ServerDuplexStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type {
  StageBytes,
  StageBytes__Output,
} from "@heddle/contracts/generated/heddle/v1/StageBytes";
import type { WeightsBytes } from "@heddle/contracts/generated/heddle/v1/WeightsBytes";
import type { WeightsRange__Output } from "@heddle/contracts/generated/heddle/v1/WeightsRange";
import { callerOf } from "@heddle/rpc/credentials";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { workerStagesService } from "@heddle/rpc/proto";
import { writeAll } from "@heddle/rpc/write-all";
import { Controller, Inject } from "@nestjs/common";
import { ENGINES, type EnginePorts, type StagePorts } from "../engine-ports.ts";
import { ReplicaSet } from "../replica-set.ts";
import { firstMessage, frameStream } from "./frame-stream.ts";

const OPEN_MS = 10_000;
/** Other workers that read weights at a time. */
const MAX_READS = 16;
/** The longest message; an index is one text. */
const MESSAGE_BYTES = 1024 * 1024;

/** WorkerStages of proto/worker.proto: the stages that other workers drive, and their weights. */
@Controller()
export class StagesController {
  readonly #replicas: ReplicaSet;
  readonly #stages: StagePorts | undefined;
  /** Reads of weights that have not ended. */
  #reads = 0;

  constructor(@Inject(ReplicaSet) replicas: ReplicaSet, @Inject(ENGINES) ports: EnginePorts) {
    this.#replicas = replicas;
    this.#stages = ports.stages;
  }

  @GrpcCall(workerStagesService, "Join")
  async join(call: ServerDuplexStream<StageBytes__Output, StageBytes>): Promise<void> {
    const { open } = await firstMessage(call, OPEN_MS);
    if (!open) throw new AppError("invalid_value", "a stream of stages begins with `open`");
    const { driver, host } = this.#replicas.stage(open.deployment);
    const { name } = callerOf(call);
    if (name !== driver) {
      throw new AppError("permission_denied", `${driver} drives this stage, and not ${name}`);
    }
    if (open.build !== host.build) {
      const message = `all stages of a model must have the same library, weights and cache: this one has ${host.build}, the last one ${open.build}`;
      throw new AppError("precondition_failed", message);
    }
    call.write({ opened: {} });
    await host.join(frameStream(call));
  }

  @GrpcCall(workerStagesService, "ReadWeights")
  async readWeights(
    { index, offset, bytes }: WeightsRange__Output,
    { call }: StreamContext<WeightsRange__Output, WeightsBytes>,
  ): Promise<void> {
    if (!this.#stages) throw new AppError("not_found", "this worker's engines divide no model");
    if (this.#reads >= MAX_READS) {
      throw new AppError("overloaded", `${MAX_READS} workers read weights of this one already`);
    }
    this.#reads += 1;
    try {
      const range =
        bytes === 0 ? textOf(this.#stages, index) : this.#stages.heldRange(index, offset, bytes);
      await writeAll(call, messagesOf(range));
    } finally {
      this.#reads -= 1;
    }
  }
}

async function* textOf(stages: StagePorts, index: string): AsyncGenerator<Uint8Array, void> {
  yield Buffer.from(await stages.heldIndex(index));
}

async function* messagesOf(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<{ data: Uint8Array }, void> {
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length; at += MESSAGE_BYTES) {
      yield { data: chunk.subarray(at, at + MESSAGE_BYTES) };
    }
  }
}
