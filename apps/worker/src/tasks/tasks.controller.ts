import { AppError } from "@heddle/base/errors";
import type { ArtifactChunk } from "@heddle/contracts/generated/heddle/v1/ArtifactChunk";
import type { ArtifactRange__Output } from "@heddle/contracts/generated/heddle/v1/ArtifactRange";
import type { LogChunk } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import type { LogRange__Output } from "@heddle/contracts/generated/heddle/v1/LogRange";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { taskArtifactsService, taskLogsService, workerTasksService } from "@heddle/rpc/proto";
import { Controller, Inject, type OnModuleDestroy } from "@nestjs/common";
import { sendArtifact } from "../artifacts/artifact-service.ts";
import { ArtifactStore } from "../artifacts/artifact-store.ts";
import { TaskService } from "./task-service.ts";
import type { TaskSessionStream } from "./task-sessions.ts";

/** The grace of tasks where the caller that ends this process does not wait. */
const MAX_TASK_GRACE_MS = 3_000;

/** The services of a worker's tasks: WorkerTasks, TaskLogs and TaskArtifacts. */
@Controller()
export class TasksController implements OnModuleDestroy {
  readonly #tasks: TaskService;
  readonly #artifacts: ArtifactStore;
  readonly #node: NodeAgent;

  constructor(
    @Inject(TaskService) tasks: TaskService,
    @Inject(ArtifactStore) artifacts: ArtifactStore,
    @Inject(NodeAgent) node: NodeAgent,
  ) {
    this.#tasks = tasks;
    this.#artifacts = artifacts;
    this.#node = node;
  }

  /** Tasks end while the masters are still reachable for their reports. */
  onModuleDestroy(): Promise<void> {
    return this.#tasks.close(Math.min(this.#node.drainMs, MAX_TASK_GRACE_MS));
  }

  @GrpcCall(workerTasksService, "Session")
  session(stream: TaskSessionStream): void {
    this.#tasks.serveSession(stream);
  }

  @GrpcCall(taskArtifactsService, "Read")
  readArtifact(
    _request: ArtifactRange__Output,
    { call }: StreamContext<ArtifactRange__Output, ArtifactChunk>,
  ): Promise<void> {
    return sendArtifact(call, this.#artifacts);
  }

  @GrpcCall(taskLogsService, "Ship")
  shipLogs(): never {
    throw new AppError("invalid_value", "a worker takes no logs: ship them to a master");
  }

  @GrpcCall(taskLogsService, "Read")
  readLog(
    _request: LogRange__Output,
    { call }: StreamContext<LogRange__Output, LogChunk>,
  ): Promise<void> {
    return this.#tasks.readLog(call);
  }
}
