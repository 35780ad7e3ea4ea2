import { AppError } from "@heddle/base/errors";
import type { ResponseProgress } from "@heddle/contracts/generated/heddle/v1/ResponseProgress";
import type { ResponseToFollow__Output } from "@heddle/contracts/generated/heddle/v1/ResponseToFollow";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { runningResponsesService } from "@heddle/rpc/proto";
import { writeAll } from "@heddle/rpc/write-all";
import { Controller, Inject } from "@nestjs/common";
import { BackgroundResponses, type RunningResponse } from "./background-responses.ts";
import { ResponseStore } from "./response-store.ts";

/** Streams to other masters. */
const MAX_FOLLOWERS = 1_024;

/** RunningResponses of proto/responses.proto: what other masters follow of what runs here. */
@Controller()
export class ResponseRelayController {
  readonly #background: BackgroundResponses;
  readonly #store: ResponseStore;
  #followers = 0;

  constructor(
    @Inject(BackgroundResponses) background: BackgroundResponses,
    @Inject(ResponseStore) store: ResponseStore,
  ) {
    this.#background = background;
    this.#store = store;
  }

  @GrpcCall(runningResponsesService, "Follow")
  async follow(
    { id, owner, from }: ResponseToFollow__Output,
    { call, signal }: StreamContext<ResponseToFollow__Output, ResponseProgress>,
  ): Promise<void> {
    const running = this.#background.find(id, { owner });
    if (!running) throw this.#absent(id);
    if (this.#followers >= MAX_FOLLOWERS) {
      const message = `other masters follow ${MAX_FOLLOWERS} responses here already`;
      throw new AppError("overloaded", message);
    }
    this.#followers++;
    try {
      await writeAll(call, messagesOf(running, from, signal));
    } finally {
      this.#followers--;
    }
  }

  /** One that is about to run is stored already. */
  #absent(id: string): AppError {
    if (this.#store.running.has(id)) return new AppError("unavailable", "it has not begun yet");
    return new AppError("not_found", "this master does not run that response");
  }
}

async function* messagesOf(
  running: RunningResponse,
  from: number,
  signal: AbortSignal,
): AsyncGenerator<ResponseProgress, void> {
  for await (const { isCurrent, ...progress } of running.progress(signal, from)) {
    yield { json: Buffer.from(JSON.stringify(progress)), isCurrent };
  }
}
