import { AppError } from "@heddle/base/errors";
import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type { IntroductionReply } from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type { MemberProgress } from "../control-group.ts";

/** What answers the other masters' calls; the port is there once the group is found. */
export interface RaftHandlers {
  /** Where this master's transport listens. */
  readonly port?: number;
  introduce(from: Introduction__Output): IntroductionReply | Promise<IntroductionReply>;
  /** Rejects with `unavailable` on a master that does not lead. */
  progress?(): Promise<readonly MemberProgress[]>;
}

/** Answers the other masters' calls, also while this master still looks for its group. */
export class RaftService {
  #handlers: RaftHandlers | undefined;

  /** Replaces the previous handlers. */
  serve(handlers: RaftHandlers): void {
    this.#handlers = handlers;
  }

  /** The port of this master's transport. */
  get port(): number {
    const port = this.#handlers?.port;
    if (port === undefined) throw starting();
    return port;
  }

  async introduce(from: Introduction__Output): Promise<IntroductionReply> {
    if (!this.#handlers) throw starting();
    return this.#handlers.introduce(from);
  }

  async progress(): Promise<readonly MemberProgress[]> {
    return (await this.#handlers?.progress?.()) ?? [];
  }
}

export function starting(): AppError {
  return new AppError("unavailable", "this master is still starting");
}
