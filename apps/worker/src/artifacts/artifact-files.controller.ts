import type { ArtifactChunk } from "@heddle/contracts/generated/heddle/v1/ArtifactChunk";
import type { ArtifactRange__Output } from "@heddle/contracts/generated/heddle/v1/ArtifactRange";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { taskArtifactsService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { sendArtifact } from "./artifact-service.ts";
import { ArtifactStore } from "./artifact-store.ts";

/** TaskArtifacts of proto/tasks.proto: what this worker's tasks have left. */
@Controller()
export class ArtifactFilesController {
  readonly #artifacts: ArtifactStore;

  constructor(@Inject(ArtifactStore) artifacts: ArtifactStore) {
    this.#artifacts = artifacts;
  }

  @GrpcCall(taskArtifactsService, "Read")
  read(
    _request: ArtifactRange__Output,
    { call }: StreamContext<ArtifactRange__Output, ArtifactChunk>,
  ): Promise<void> {
    return sendArtifact(call, this.#artifacts);
  }
}
