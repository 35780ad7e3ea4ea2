import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { workerTasksService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { type TaskSessionStream, TaskSessions } from "./task-sessions.ts";

/** WorkerTasks of proto/tasks.proto: a leader's stream of commands. */
@Controller()
export class TasksController {
  readonly #sessions: TaskSessions;

  constructor(@Inject(TaskSessions) sessions: TaskSessions) {
    this.#sessions = sessions;
  }

  @GrpcCall(workerTasksService, "Session")
  session(stream: TaskSessionStream): void {
    this.#sessions.serve(stream);
  }
}
