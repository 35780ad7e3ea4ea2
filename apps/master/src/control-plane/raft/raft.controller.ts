import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type { IntroductionReply } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { LocateReply } from "@heddle/contracts/generated/heddle/v1/LocateReply";
import type { ProgressReply } from "@heddle/contracts/generated/heddle/v1/ProgressReply";
import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { raftService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { RaftService } from "./raft-service.ts";

/** The masters' calls to each other, on the server that the cluster's nodes use too. */
@Controller()
export class RaftController {
  readonly #service: RaftService;

  constructor(@Inject(RaftService) service: RaftService) {
    this.#service = service;
  }

  @GrpcCall(raftService, "Locate")
  locate(): LocateReply {
    return { port: this.#service.port };
  }

  @GrpcCall(raftService, "Introduce")
  introduce(from: Introduction__Output): Promise<IntroductionReply> {
    return this.#service.introduce(from);
  }

  @GrpcCall(raftService, "Progress")
  async progress(): Promise<ProgressReply> {
    return { members: [...(await this.#service.progress())] };
  }
}
