import type { LoadReply } from "@heddle/contracts/generated/heddle/v1/LoadReply";
import type { LoadRequest__Output } from "@heddle/contracts/generated/heddle/v1/LoadRequest";
import type { ModelSize } from "@heddle/contracts/generated/heddle/v1/ModelSize";
import type { PlanStagesRequest__Output } from "@heddle/contracts/generated/heddle/v1/PlanStagesRequest";
import type { PullProgress } from "@heddle/contracts/generated/heddle/v1/PullProgress";
import type { PullRequest__Output } from "@heddle/contracts/generated/heddle/v1/PullRequest";
import type { SizeModelRequest__Output } from "@heddle/contracts/generated/heddle/v1/SizeModelRequest";
import type { StagePlan } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type { UnloadReply } from "@heddle/contracts/generated/heddle/v1/UnloadReply";
import type { UnloadRequest__Output } from "@heddle/contracts/generated/heddle/v1/UnloadRequest";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { decodeDeployment, decodeOptions, decodeWeights } from "@heddle/rpc/node-codec";
import { workerModelsService } from "@heddle/rpc/proto";
import { Controller, Inject, type OnApplicationShutdown } from "@nestjs/common";
import { ENGINES, type EnginePorts, type WeightsPuller } from "./engine-ports.ts";
import { ReplicaSet } from "./replica-set.ts";
import { StagePlans } from "./stages/stage-plans.ts";

/** Workers that are asked for parts of weights. */
const MAX_HOLDERS = 16;
/** The shortest time between two progress messages. */
const PROGRESS_INTERVAL_MS = 100;

/** WorkerModels of proto/worker.proto. */
@Controller()
export class ReplicasController implements OnApplicationShutdown {
  readonly #replicas: ReplicaSet;
  readonly #pullWeights: WeightsPuller;
  readonly #plans: StagePlans;

  constructor(@Inject(ReplicaSet) replicas: ReplicaSet, @Inject(ENGINES) ports: EnginePorts) {
    this.#replicas = replicas;
    this.#pullWeights = ports.pullWeights;
    this.#plans = new StagePlans(ports);
  }

  onApplicationShutdown(): void {
    this.#plans.close();
  }

  @GrpcCall(workerModelsService, "Load")
  async load({ deployment, holders }: LoadRequest__Output): Promise<LoadReply> {
    await this.#replicas.load(decodeDeployment(deployment), holders.slice(0, MAX_HOLDERS));
    return {};
  }

  @GrpcCall(workerModelsService, "Unload")
  async unload({ deployment, graceMs }: UnloadRequest__Output): Promise<UnloadReply> {
    await this.#replicas.release(deployment, graceMs);
    return {};
  }

  @GrpcCall(workerModelsService, "PlanStages")
  async planStages(request: PlanStagesRequest__Output): Promise<StagePlan> {
    const workers = request.workers.map(({ node: id, name, ...worker }) => {
      return { id, name: name || id, ...worker };
    });
    const weights = decodeWeights(request.weights);
    const options = request.options ? decodeOptions(request.options) : {};
    const plan = await this.#plans.plan(weights, options, workers, request.maxStages);
    const stages = plan.stages.map(({ workerId: node, from, to, memoryBytes }) => {
      return { node, from, to, memoryBytes };
    });
    return { ...plan, stages };
  }

  @GrpcCall(workerModelsService, "SizeModel")
  async sizeModel({ weights, options, whole }: SizeModelRequest__Output): Promise<ModelSize> {
    const given = options ? decodeOptions(options) : {};
    return { memoryBytes: await this.#plans.wholeBytes(decodeWeights(weights), given, whole) };
  }

  @GrpcCall(workerModelsService, "Pull")
  async pull(
    request: PullRequest__Output,
    { call, signal }: StreamContext<PullRequest__Output, PullProgress>,
  ): Promise<void> {
    const weights = decodeWeights(request.weights);
    let last = { pulledBytes: 0, totalBytes: 0, source: "" };
    const onProgress = (progress: typeof last) => {
      last = progress;
    };
    const timer = setInterval(() => call.write({ ...last, done: false }), PROGRESS_INTERVAL_MS);
    try {
      await this.#pullWeights(weights, { signal, onProgress });
      await this.#replicas.retry(weights);
      call.write({ ...last, done: true });
    } finally {
      clearInterval(timer);
    }
  }
}
