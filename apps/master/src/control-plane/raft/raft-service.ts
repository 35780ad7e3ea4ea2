import type { Server, ServerUnaryCall, sendUnaryData } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type { IntroductionReply } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { LocateReply } from "@heddle/contracts/generated/heddle/v1/LocateReply";
import type { ProgressReply } from "@heddle/contracts/generated/heddle/v1/ProgressReply";
import { raftService } from "@heddle/rpc/proto";
import { toStatus } from "@heddle/rpc/status";
import type { MemberProgress } from "../control-group.ts";

/** What answers the other masters' calls; the port is there once the group is found. */
export interface RaftHandlers {
  /** Where this master's transport listens. */
  readonly port?: number;
  introduce(from: Introduction__Output): IntroductionReply | Promise<IntroductionReply>;
  /** Rejects with `unavailable` on a master that does not lead. */
  progress?(): Promise<readonly MemberProgress[]>;
}

/** The masters' calls to each other, on the server that the cluster's nodes use too. */
export class RaftService {
  #handlers: RaftHandlers | undefined;

  constructor(server: Server) {
    server.addService(raftService, {
      locate: (_call: unknown, reply: sendUnaryData<LocateReply>) => {
        const port = this.#handlers?.port;
        if (port === undefined) reply(toStatus(starting()));
        else reply(null, { port });
      },
      introduce: (
        call: ServerUnaryCall<Introduction__Output, IntroductionReply>,
        reply: sendUnaryData<IntroductionReply>,
      ) => {
        this.#introduce(call.request).then(
          (answer) => reply(null, answer),
          (error: unknown) => reply(toStatus(error)),
        );
      },
      progress: (_call: unknown, reply: sendUnaryData<ProgressReply>) => {
        this.#progress().then(
          (members) => reply(null, { members: [...members] }),
          (error: unknown) => reply(toStatus(error)),
        );
      },
    });
  }

  /** Puts handlers in place of those before. */
  serve(handlers: RaftHandlers): void {
    this.#handlers = handlers;
  }

  async #progress(): Promise<readonly MemberProgress[]> {
    return (await this.#handlers?.progress?.()) ?? [];
  }

  async #introduce(from: Introduction__Output): Promise<IntroductionReply> {
    if (!this.#handlers) throw starting();
    return this.#handlers.introduce(from);
  }
}

function starting(): AppError {
  return new AppError("unavailable", "this master is still starting");
}
