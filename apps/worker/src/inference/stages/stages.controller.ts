import type { ServerDuplexStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type {
  StageBytes,
  StageBytes__Output,
} from "@heddle/contracts/generated/heddle/v1/StageBytes";
import { callerOf } from "@heddle/rpc/credentials";
import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { workerStagesService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { ReplicaSet } from "../replica-set.ts";
import { firstMessage, frameStream } from "./frame-stream.ts";

const OPEN_MS = 10_000;

/** WorkerStages of proto/worker.proto: the stages that other workers drive. */
@Controller()
export class StagesController {
  readonly #replicas: ReplicaSet;

  constructor(@Inject(ReplicaSet) replicas: ReplicaSet) {
    this.#replicas = replicas;
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
}
