import { setTimeout as delay } from "node:timers/promises";
import type { ServerDuplexStream } from "@grpc/grpc-js";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import type { InferenceCommand__Output } from "@heddle/contracts/generated/heddle/v1/InferenceCommand";
import type { InferenceEvents } from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { workerInferenceService } from "@heddle/rpc/proto";
import { type BeforeApplicationShutdown, Controller, Inject } from "@nestjs/common";
import { InferenceSession } from "./inference-session.ts";
import { ReplicaSet } from "./replica-set.ts";

/** A master that does not read the ends of its answers within this time is disconnected. */
const TAKEN_MS = 1_000;

/** WorkerInference of proto/worker.proto: one session of requests for each master. */
@Controller()
export class InferenceController implements BeforeApplicationShutdown {
  readonly #replicas: ReplicaSet;
  readonly #node: NodeAgent;
  readonly #sessions = new Set<InferenceSession>();

  constructor(@Inject(ReplicaSet) replicas: ReplicaSet, @Inject(NodeAgent) node: NodeAgent) {
    this.#replicas = replicas;
    this.#node = node;
  }

  @GrpcCall(workerInferenceService, "Session")
  session(stream: ServerDuplexStream<InferenceCommand__Output, InferenceEvents>): void {
    const session = new InferenceSession(stream, this.#replicas);
    this.#sessions.add(session);
    stream.once("close", () => this.#sessions.delete(session));
  }

  /** A master sends nothing more to a node that has left, but reads its remaining answers. */
  async beforeApplicationShutdown(): Promise<void> {
    await this.#node.leave();
    await this.#drained();
    await this.#replicas.close();
    await this.#finished();
  }

  /** Resolves when the engines are done, and the readers of their answers have caught up. */
  async #drained(): Promise<void> {
    const end = performance.now() + this.#node.drainMs;
    const isBusy = () =>
      this.#replicas.openRequests > 0 ||
      [...this.#sessions].some(({ openRequests }) => openRequests > 0);
    while (performance.now() < end && isBusy()) await delay(20);
  }

  /** Resolves when the masters have read the last answers, which end with the process. */
  async #finished(): Promise<void> {
    const all = Promise.allSettled([...this.#sessions].map((session) => session.finish()));
    await resolvesWithin(all, TAKEN_MS);
  }
}
