import type { Deployment__Output } from "@heddle/contracts/generated/heddle/v1/Deployment";
import type { LoadReply } from "@heddle/contracts/generated/heddle/v1/LoadReply";
import type { PullProgress } from "@heddle/contracts/generated/heddle/v1/PullProgress";
import type { UnloadReply } from "@heddle/contracts/generated/heddle/v1/UnloadReply";
import type { Weights__Output } from "@heddle/contracts/generated/heddle/v1/Weights";
import { decodeDeployment, decodeWeights } from "@heddle/rpc/node-codec";
import { toStatus } from "@heddle/rpc/status";
import {
  type ArgumentsHost,
  Catch,
  Controller,
  Inject,
  type RpcExceptionFilter,
  UseFilters,
} from "@nestjs/common";
import { GrpcMethod } from "@nestjs/microservices";
import { Observable, throwError } from "rxjs";
import type { WeightsPuller } from "./engine-ports.ts";
import type { ReplicaSet } from "./replica-set.ts";

/** The providers' tokens: worker.ts makes the objects. */
export const REPLICAS = Symbol("ReplicaSet");
export const PULL_WEIGHTS = Symbol("WeightsPuller");

/** The shortest time between two progress messages. */
const progressIntervalMs = 100;

/** Converts any error of a handler to the status that libs/rpc reads on the caller's side. */
@Catch()
class StatusFilter implements RpcExceptionFilter {
  catch(error: unknown, _host: ArgumentsHost): Observable<never> {
    return throwError(() => toStatus(error));
  }
}

/** WorkerModels of proto/worker.proto. */
@Controller()
@UseFilters(StatusFilter)
export class ReplicasController {
  readonly #replicas: ReplicaSet;
  readonly #pullWeights: WeightsPuller;

  constructor(
    @Inject(REPLICAS) replicas: ReplicaSet,
    @Inject(PULL_WEIGHTS) pullWeights: WeightsPuller,
  ) {
    this.#replicas = replicas;
    this.#pullWeights = pullWeights;
  }

  @GrpcMethod("WorkerModels", "Load")
  async load(request: { deployment: Deployment__Output | null }): Promise<LoadReply> {
    await this.#replicas.load(decodeDeployment(request.deployment));
    return {};
  }

  @GrpcMethod("WorkerModels", "Unload")
  async unload(request: { deployment: string }): Promise<UnloadReply> {
    await this.#replicas.unload(request.deployment);
    return {};
  }

  @GrpcMethod("WorkerModels", "Pull")
  pull(request: { weights: Weights__Output | null }): Observable<PullProgress> {
    const weights = decodeWeights(request.weights);
    return new Observable((subscriber) => {
      const abort = new AbortController();
      let last = { pulledBytes: 0, totalBytes: 0, source: "" };
      const timer = setInterval(
        () => subscriber.next({ ...last, done: false }),
        progressIntervalMs,
      );
      this.#pullWeights(weights, {
        signal: abort.signal,
        onProgress: (progress) => {
          last = progress;
        },
      })
        .then(async () => {
          await this.#replicas.retry(weights);
          subscriber.next({ ...last, done: true });
          subscriber.complete();
        })
        .catch((error: unknown) => subscriber.error(error))
        .finally(() => clearInterval(timer));
      return () => {
        clearInterval(timer);
        abort.abort();
      };
    });
  }
}
