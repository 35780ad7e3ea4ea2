import type { AccessCommand, ServiceCommand, SessionCommand } from "../../access/records.ts";
import type { AuditCommand } from "../../audit/records.ts";
import type { WebhookCommand } from "../../audit/webhook-records.ts";
import { STANDARD_TERMS } from "../../cluster-version.ts";
import type { CatalogCommand, ControlCommand, LoggedCommand } from "../../command.ts";
import type { DocumentsCommand } from "../../documents/records.ts";
import type { SecretCommand } from "../../secrets/records.ts";
import type {
  EarlierConfirmation,
  EarlierReport,
  EarlierResume,
  LoggedJobsCommand,
  ReportTasksCommand,
  ResumeNodeCommand,
} from "./commands.ts";
import { logPlan, readPlan } from "./logged-plan.ts";

/**
 * Commands in the log. Proposers make and apply takes the present form; logs of earlier versions have
 * other names.
 */

/** The command for the log of a cluster of that version. */
export function logCommand(command: ControlCommand, version: number): LoggedCommand {
  if (command.type === "plan.commit") return logPlan(command, version);
  if (version >= STANDARD_TERMS) return command;
  switch (command.type) {
    case "tasks.report":
      return earlierReport(command);
    case "jobs.confirmFailures":
      return { ...command, type: "jobs.judge" };
    case "node.resume":
      return earlierResume(command);
    default:
      return command;
  }
}

/** The present form of a command of any version. */
export function readCommand(logged: LoggedCommand): ControlCommand {
  switch (logged.type) {
    case "plan.commit":
      return readPlan(logged);
    case "tasks.report":
      return readReport(logged);
    case "jobs.judge":
      return { ...logged, type: "jobs.confirmFailures" };
    case "node.resume":
      return readResume(logged);
    default:
      return logged satisfies
        | Exclude<LoggedJobsCommand, EarlierConfirmation>
        | AccessCommand
        | AuditCommand
        | CatalogCommand
        | DocumentsCommand
        | SecretCommand
        | ServiceCommand
        | SessionCommand
        | WebhookCommand;
  }
}

function earlierReport({ statusTimeoutMs, ...rest }: ReportTasksCommand): EarlierReport {
  return { ...rest, wordMs: statusTimeoutMs };
}

function readReport(logged: ReportTasksCommand | EarlierReport): ReportTasksCommand {
  if (!("wordMs" in logged)) return logged;
  const { wordMs: statusTimeoutMs, ...rest } = logged;
  return { ...rest, statusTimeoutMs };
}

function earlierResume(command: ResumeNodeCommand): EarlierResume {
  const { healthyDevices: wellDevices, healthyAsOf: wellAsOf, ...rest } = command;
  return { ...rest, wellDevices, wellAsOf };
}

function readResume(logged: ResumeNodeCommand | EarlierResume): ResumeNodeCommand {
  if (!("wellDevices" in logged)) return logged;
  const { wellDevices: healthyDevices, wellAsOf: healthyAsOf, ...rest } = logged;
  return { ...rest, healthyDevices, healthyAsOf };
}
