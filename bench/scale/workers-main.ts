import { createInterface } from "node:readline";
import type { WorkersReport, WorkersSettings } from "./settings.ts";
import { SimulatedWorker } from "./simulated-worker.ts";

// A process of simulated workers. Prints `ready`, and a report as JSON for each input line.
// usage: node workers-main.ts SETTINGS-AS-JSON

const settings = JSON.parse(process.argv[2] ?? "{}") as WorkersSettings;
const attempts = { all: 0, second: 0, inSecond: 0, most: 0 };
const workers: SimulatedWorker[] = [];
for (let at = 0; at < settings.count; at++) {
  workers.push(await SimulatedWorker.start(settings, settings.first + at, countAttempt));
}
console.log("ready");
createInterface({ input: process.stdin })
  .on("line", () => console.log(JSON.stringify(report())))
  .on("close", () => process.exit(0));

function countAttempt(): void {
  const second = Math.floor(Date.now() / 1_000);
  attempts.all += 1;
  attempts.inSecond = second === attempts.second ? attempts.inSecond + 1 : 1;
  attempts.second = second;
  attempts.most = Math.max(attempts.most, attempts.inSecond);
}

function report(): WorkersReport {
  const { user, system } = process.cpuUsage();
  return {
    attachedMs: Object.fromEntries(
      settings.masters.map((master) => [
        master,
        workers.flatMap(({ attachedMs }) => attachedMs.get(master) ?? []),
      ]),
    ),
    sessions: workers.flatMap(({ sessions }) => sessions.session ?? []),
    tasks: workers.flatMap(({ sessions }) => sessions.takeFinished()),
    attempts: attempts.all,
    mostAttemptsInSecond: attempts.most,
    cpuMs: (user + system) / 1_000,
  };
}
