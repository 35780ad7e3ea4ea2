import { AppError } from "@heddle/base/errors";
import type { LogChunk } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import type { LogRange__Output } from "@heddle/contracts/generated/heddle/v1/LogRange";
import { GrpcCall, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { taskLogsService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { TASK_STREAMS } from "../records/task-directory.ts";
import { checkedId } from "../records/task-plan.ts";
import { LOGGED_TASKS, type LoggedTasks } from "./logged-tasks.ts";

const CHUNK_BYTES = 64 * 1024;
/** The most bytes of one call of Read. */
const MAX_READ_BYTES = 4 * 1024 * 1024;

/** TaskLogs of proto/tasks.proto, for masters that lack a part of a log. */
@Controller()
export class LogsController {
  readonly #tasks: LoggedTasks;

  constructor(@Inject(LOGGED_TASKS) tasks: LoggedTasks) {
    this.#tasks = tasks;
  }

  @GrpcCall(taskLogsService, "Ship")
  ship(): never {
    throw new AppError("invalid_value", "a worker takes no logs: ship them to a master");
  }

  @GrpcCall(taskLogsService, "Read")
  async read(
    { file, offset, maxBytes }: LogRange__Output,
    { call }: StreamContext<LogRange__Output, LogChunk>,
  ): Promise<void> {
    const id = checkedId(file?.task);
    const name = TASK_STREAMS.find((each) => each === file?.stream);
    const log = name && this.#tasks.find(id)?.streams.logs[name];
    if (!log) throw new AppError("not_found", "this worker has no such log");
    let at = offset;
    for (let left = Math.min(maxBytes, MAX_READ_BYTES); left > 0 && !call.cancelled; ) {
      const piece = await log.read(at, Math.min(left, CHUNK_BYTES));
      const first = piece.offset > at ? piece.offset : 0;
      if (piece.data.byteLength === 0 && !piece.complete && first === 0) break;
      const { data, complete } = piece;
      call.write({ file: { task: id, stream: name }, ...piece, times: [...piece.times], first });
      at = piece.offset + data.byteLength;
      left -= Math.max(1, data.byteLength);
      if (complete) break;
    }
  }
}
