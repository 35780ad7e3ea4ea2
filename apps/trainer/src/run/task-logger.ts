import { createLogger, type Logger, logLevelOf } from "@heddle/observability/logger";
import { plainLines } from "@heddle/observability/plain-lines";

/** The logger of a trainer's process: its lines are part of the task's log, which people read. */
export function createTaskLogger(): Logger {
  return createLogger({
    service: "trainer",
    level: logLevelOf(process.env),
    destination: plainLines(process.stdout),
  });
}
