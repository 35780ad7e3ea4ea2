import type { ServerDuplexStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { LogAck } from "@heddle/contracts/generated/heddle/v1/LogAck";
import type { LogChunk, LogChunk__Output } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import type { LogRange__Output } from "@heddle/contracts/generated/heddle/v1/LogRange";
import { taskKey } from "@heddle/control/jobs/records/records";
import type { NodeClaim } from "@heddle/pki/node-name";
import { callerOf } from "@heddle/rpc/credentials";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { taskLogsService } from "@heddle/rpc/proto";
import { toStatus } from "@heddle/rpc/status";
import { Controller, Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { checkOwnsNode } from "../nodes/ownership.ts";
import { type LogName, logFileOf, logNameOf } from "./log-name.ts";
import { LogStore } from "./log-store.ts";
import type { LogStorePort } from "./log-thread/log-store-api.ts";
import { TaskSecrets } from "./task-secrets.ts";

type ShipStream = ServerDuplexStream<LogChunk__Output, LogAck>;

/** Bytes of one stream that are not on disk yet; beyond them it is not read (back-pressure). */
const MAX_PENDING_BYTES = 4 * 1024 * 1024;
const MAX_CHUNK_BYTES = 1024 * 1024;
const READ_CHUNK_BYTES = 64 * 1024;
/** Maximum bytes of one Read call. */
const MAX_READ_BYTES = 4 * 1024 * 1024;

/** TaskLogs of proto/tasks.proto on a master. */
@Controller()
export class TaskLogsController {
  readonly #store: LogStorePort;
  readonly #secrets: TaskSecrets;
  readonly #control: Pick<ControlPlane, "state">;
  /** Chunks refused because their task belongs to another node. */
  fenced = 0;

  constructor(
    @Inject(LogStore) store: LogStorePort,
    @Inject(TaskSecrets) secrets: TaskSecrets,
    @Inject(CONTROL_PLANE) control: Pick<ControlPlane, "state">,
  ) {
    this.#store = store;
    this.#secrets = secrets;
    this.#control = control;
  }

  @GrpcCall(taskLogsService, "Ship")
  ship(stream: ShipStream): void {
    let pendingBytes = 0;
    let ended = false;
    const caller = callerOf(stream);
    const fail = (error: unknown) => {
      if (!ended) stream.emit("error", toStatus(error));
      ended = true;
    };
    stream.on("data", (chunk: LogChunk__Output) => {
      pendingBytes += chunk.data.byteLength;
      if (pendingBytes > MAX_PENDING_BYTES) stream.pause();
      this.#take(chunk, caller)
        .then((ack) => {
          pendingBytes -= chunk.data.byteLength;
          if (pendingBytes <= MAX_PENDING_BYTES) stream.resume();
          if (!ended) stream.write(ack);
        })
        .catch(fail);
    });
    const leave = () => {
      ended = true;
    };
    stream.once("end", () => {
      leave();
      stream.end();
    });
    stream.once("cancelled", leave);
    stream.once("error", leave);
  }

  async #take(chunk: LogChunk__Output, caller: NodeClaim): Promise<LogAck> {
    const name = logNameOf(chunk.file);
    const file = logFileOf(name);
    if (chunk.data.byteLength > MAX_CHUNK_BYTES) {
      throw new AppError("request_too_large", `a chunk has at most ${MAX_CHUNK_BYTES} bytes`);
    }
    checkOwnsNode(this.#control.state, caller, chunk.nodeId);
    if (!this.#mayWrite(name, chunk)) {
      this.fenced += 1;
      return { file, durable: 0, fenced: true };
    }
    const { offset, data, times, complete, first } = chunk;
    const { end, complete: isComplete } = await this.#store.append(name, {
      offset,
      data,
      times,
      complete,
      first,
    });
    return { file, durable: end, complete: isComplete };
  }

  /** The owner of a future task is unknown, so no node may write its log yet. */
  #checkIsKnown({ jobId, attempt, rank, incarnation = 0 }: LogName): void {
    const { jobs, tasks } = this.#control.state;
    const job = jobs.get(jobId);
    if (!job) return;
    if (attempt > job.attempt) {
      throw new AppError("unavailable", `this master does not know attempt ${attempt} yet`);
    }
    const task = tasks.get(taskKey(jobId, attempt, rank));
    if (!task || incarnation <= (task.incarnation ?? 0)) return;
    const message = `this master does not know incarnation ${incarnation} of rank ${rank} yet`;
    throw new AppError("unavailable", message);
  }

  /**
   * Only a task's node may write its log. For a task that the state has dropped, replaced or not
   * applied yet, the node presents the grant from its lease.
   */
  #mayWrite(name: LogName, { nodeId, grant }: LogChunk__Output): boolean {
    const { jobId, attempt, rank, incarnation = 0 } = name;
    const task = this.#control.state.tasks.get(taskKey(jobId, attempt, rank));
    if (task && (task.incarnation ?? 0) === incarnation) return task.nodeId === nodeId;
    if (this.#secrets.isLogGrant(grant, name, nodeId)) return true;
    this.#checkIsKnown(name);
    return false;
  }

  @GrpcCall(taskLogsService, "Read")
  async read(
    { file, offset, maxBytes }: LogRange__Output,
    { call: stream }: StreamContext<LogRange__Output, LogChunk>,
  ): Promise<void> {
    const name = logNameOf(file);
    let at = offset;
    for (let left = Math.min(maxBytes, MAX_READ_BYTES); left > 0 && !stream.cancelled; ) {
      const piece = await this.#store.read(name, at, Math.min(left, READ_CHUNK_BYTES));
      if (!piece) throw new AppError("not_found", "this master has no such log");
      const first = piece.offset > at ? piece.offset : 0;
      if (piece.data.byteLength === 0 && !piece.complete && first === 0) break;
      stream.write({ file: logFileOf(name), ...piece, times: [...piece.times], first });
      at = piece.offset + piece.data.byteLength;
      left -= Math.max(1, piece.data.byteLength);
      if (piece.complete) break;
    }
  }
}
