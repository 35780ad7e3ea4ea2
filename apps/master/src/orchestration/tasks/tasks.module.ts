import type { Logger } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Inject, Module, type OnApplicationShutdown } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { CREDENTIALS } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { LogClock } from "../../control-plane/log-clock.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../../nodes/node-directory.ts";
import { ProgressModule } from "../../nodes/progress/progress.module.ts";
import { ProgressBook } from "../../nodes/progress/progress-book.ts";
import { TaskOutputModule } from "../../task-output/task-output.module.ts";
import { TaskSecrets } from "../../task-output/task-secrets.ts";
import { LeaderLoops } from "../leader-loops.ts";
import { TaskDispatch } from "./task-dispatch.ts";
import { TaskLoops } from "./task-loops.ts";

/** The leader's side of running tasks: sessions with workers, and what tasks leave behind. */
@Module({
  imports: [ProgressModule, TaskOutputModule],
  providers: [
    LeaderLoops,
    TaskLoops,
    {
      provide: TaskDispatch,
      inject: [
        MASTER_CONFIG,
        CONTROL_PLANE,
        NODE_DIRECTORY,
        CREDENTIALS,
        TaskSecrets,
        ProgressBook,
        LOGGER,
      ],
      useFactory: openDispatch,
    },
  ],
})
export class TasksModule implements OnApplicationShutdown {
  readonly #dispatch: TaskDispatch;

  constructor(@Inject(TaskDispatch) dispatch: TaskDispatch) {
    this.#dispatch = dispatch;
  }

  onApplicationShutdown(): void {
    this.#dispatch.close();
  }
}

function openDispatch(
  { masterId, jobTimes }: MasterConfig,
  control: ControlPlane,
  directory: NodeDirectory,
  credentials: NodeCredentials,
  secrets: TaskSecrets,
  progress: ProgressBook,
  log: Logger,
): TaskDispatch {
  const settings = { masterId, leaseMs: jobTimes.leaseMs, clock: new LogClock(control), log };
  return new TaskDispatch(settings, control, directory, credentials, secrets, progress);
}
