import type { Server, ServerUnaryCall, sendUnaryData } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type { IntroductionReply } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { MemberProgress } from "@heddle/contracts/generated/heddle/v1/MemberProgress";
import type { ProgressReply } from "@heddle/contracts/generated/heddle/v1/ProgressReply";
import type { SnapshotReply } from "@heddle/contracts/generated/heddle/v1/SnapshotReply";
import { raftService } from "@heddle/rpc/proto";
import { toStatus } from "@heddle/rpc/status";
import type { ExchangeStream, RaftTransport, SnapshotStream } from "./raft-transport.ts";

/** What answers the other masters' calls; the transport is there once the group is found. */
export interface RaftHandlers {
  readonly transport?: RaftTransport;
  introduce(from: Introduction__Output): IntroductionReply | Promise<IntroductionReply>;
  /** Throws `unavailable` on a master that does not lead. */
  progress?(): readonly MemberProgress[];
}

/** The masters' calls to each other, on the server that the cluster's nodes use too. */
export class RaftService {
  #handlers: RaftHandlers | undefined;

  constructor(server: Server) {
    server.addService(raftService, {
      exchange: (stream: ExchangeStream) => {
        const transport = this.#handlers?.transport;
        if (transport) transport.serveExchange(stream);
        else stream.emit("error", toStatus(starting()));
      },
      installSnapshot: (stream: SnapshotStream, reply: sendUnaryData<SnapshotReply>) => {
        this.#installSnapshot(stream).then(
          () => reply(null, {}),
          (error: unknown) => reply(toStatus(error)),
        );
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
        try {
          reply(null, { members: [...(this.#handlers?.progress?.() ?? [])] });
        } catch (error) {
          reply(toStatus(error));
        }
      },
    });
  }

  /** Puts handlers in place of those before. */
  serve(handlers: RaftHandlers): void {
    this.#handlers = handlers;
  }

  async #installSnapshot(stream: SnapshotStream): Promise<void> {
    const transport = this.#handlers?.transport;
    if (!transport) throw starting();
    await transport.serveSnapshot(stream);
  }

  async #introduce(from: Introduction__Output): Promise<IntroductionReply> {
    if (!this.#handlers) throw starting();
    return this.#handlers.introduce(from);
  }
}

function starting(): AppError {
  return new AppError("unavailable", "this master is still starting");
}
