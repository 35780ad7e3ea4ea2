import { Module } from "@nestjs/common";
import { TaskTableModule } from "../tasks/task-table.module.ts";
import { LogShipping } from "./log-shipping.ts";
import { LogsController } from "./logs.controller.ts";

/** The logs of tasks: shipped to all masters, and read by those that lack a part. */
@Module({
  imports: [TaskTableModule],
  controllers: [LogsController],
  providers: [LogShipping],
})
export class LogsModule {}
