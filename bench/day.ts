import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Heddle } from "@heddle/client/heddle";
import { auditJobs, tasksLeft, verifyLog } from "./day/audit.ts";
import { chatLoad } from "./day/chat-load.ts";
import { drainLoad } from "./day/drain-load.ts";
import { FaultMaker, mountSmallDisk, unmountSmallDisk } from "./day/faults.ts";
import { plot, printFigures } from "./day/figures.ts";
import { JobLoad } from "./day/job-load.ts";
import { LogFollower } from "./day/log-follower.ts";
import { roleTrends } from "./day/trends.ts";
import { judge } from "./day/verdicts.ts";
import { withCleanup } from "./support/child-process.ts";
import { benchFolder, readOptions } from "./support/command-line.ts";
import {
  heddleUp,
  newDataDirectory,
  type RunningHeddle,
  serveTinyModel,
} from "./support/heddle-up.ts";
import { ProcessSampler } from "./support/process-sampler.ts";
import { writeReport } from "./support/result.ts";
import { benchRandom } from "./support/statistics.ts";
import { printVerdicts } from "./support/table.ts";

// A day in an hour: a cluster under mixed load, where every few seconds a process is killed or
// frozen, or its disk fills. Nothing that was accepted may be lost.

const usage = "npm run soak -- [--hours H | --minutes M] [--seed N] [--fault-seconds N]";
const options = readOptions(usage, ["hours", "minutes", "seed", "fault-seconds"]);
const minutes = Number(options["minutes"] ?? Number(options["hours"] ?? 1) * 60);
const runMs = minutes * 60_000;
const seed = Number(options["seed"] ?? Date.now() % 1_000_000);
const faultMs = Number(options["fault-seconds"] ?? 20) * 1_000;
/** In a shorter run all processes still grow. */
const TREND_MS = 600_000;
/** The name of the run, and where its report is. */
const RUN = `day-${seed}`;
const FOLDER = join(benchFolder, "soak", RUN);
const FLAGS = ["--profile", "tiny", "--masters", "3", "--workers", "4", "--parameter-servers", "2"];
const CHAT_CLIENTS = 4;
const LIVE_COMMANDS = 6;
const LIVE_TRAINING = 1;
const CALM_MS = 20_000;
/** They end by themselves. */
const ENDING_ROLES: ReadonlySet<string> = new Set(["task", "trainer"]);

await withCleanup(async () => {
  console.log(`seed ${seed} (repeat with --seed ${seed})`);
  const dataDirectory = newDataDirectory();
  const whyNoDisk = mountSmallDisk(dataDirectory);
  if (whyNoDisk !== undefined) console.log(whyNoDisk);
  console.log("no clock jumps: all processes of one machine share its clock");
  try {
    await liveThrough(dataDirectory, whyNoDisk === undefined);
  } finally {
    if (whyNoDisk === undefined) unmountSmallDisk(dataDirectory);
  }
});

async function liveThrough(dataDirectory: string, fillsDisk: boolean): Promise<void> {
  const cluster = await heddleUp(FLAGS, dataDirectory);
  const { endpoints, api } = cluster;
  const heddle = new Heddle({ endpoint: endpoints, auth_token: api.key, maxRetries: 8 });
  const lasting = () => cluster.processes().filter(({ role }) => !ENDING_ROLES.has(role));
  const sampler = new ProcessSampler(lasting, 2_000);
  const [watch, calm] = [new LogFollower(), new AbortController()];
  const watching = watch.run(heddle, calm.signal);
  const model = await serveTinyModel(cluster);
  await heddle.models.scale(model, { replicas: 2 });
  sampler.resume();
  const lived = await underLoad(cluster, heddle, model, fillsDisk);
  const { jobs, faults, chats, startedAt, endedAt } = lived;
  const audit = await auditJobs(heddle, RUN, jobs.accepted);
  const left = await tasksLeft(heddle);
  await sleep(CALM_MS);
  const log = await verifyLog(heddle, FOLDER);
  await untilSeen(watch, log.events);
  calm.abort();
  sampler.pause();
  await watching;
  await cluster.stop();
  const series = sampler.series();
  const trends = roleTrends(series, startedAt, endedAt);
  printFigures({ ...lived, audit, trends });
  const plots = join(FOLDER, "soak.svg");
  writeFileSync(plots, plot({ series, chats, faults, startedAt }));
  console.log(`\nThe plots are in ${plots}.`);
  for (const line of [...audit.lost, ...audit.wrongLogs, ...jobs.refused, ...left]) {
    console.log(line);
  }
  const isShort = runMs < TREND_MS;
  if (isShort) console.log(`memory is judged in runs of ${TREND_MS / 60_000} minutes or more`);
  const judged = { audit, jobs, left, chats, log, watch };
  printVerdicts(judge({ ...judged, trends: isShort ? undefined : trends }));
  writeReport(options, "day", { seed, faults, audit, trends, chats });
}

/** All loads and faults for the time of the run, until the last call has ended. */
async function underLoad(
  cluster: RunningHeddle,
  heddle: Heddle,
  model: string,
  fillsDisk: boolean,
) {
  const [randomOf, load] = [randoms(), new AbortController()];
  const plan = { run: RUN, liveCommands: LIVE_COMMANDS, liveTraining: LIVE_TRAINING };
  const jobs = new JobLoad(heddle, plan, randomOf());
  const faults = new FaultMaker(cluster, randomOf(), fillsDisk);
  const startedAt = performance.now();
  const loads = Promise.all([
    chatLoad(heddle, model, CHAT_CLIENTS, randomOf(), load.signal),
    drainLoad(heddle, randomOf(), load.signal),
    jobs.run(load.signal),
    faults.run(faultMs, load.signal),
  ]);
  await Promise.race([timePassed(startedAt, jobs, faults), loads]);
  load.abort();
  const [chats, drains] = await loads;
  return { jobs, faults: faults.made, chats, drains, startedAt, endedAt: performance.now() };
}

/** A generator for each part, so that none changes the numbers of another. */
function randoms(): () => () => number {
  let part = 0;
  return () => benchRandom(seed * 31 + ++part);
}

/** Prints its progress each minute. */
async function timePassed(startedAt: number, jobs: JobLoad, faults: FaultMaker): Promise<void> {
  for (let minute = 1; performance.now() - startedAt < runMs; minute++) {
    await sleep(Math.min(60_000, runMs - (performance.now() - startedAt)));
    console.log(
      `minute ${minute}: ${jobs.accepted.length} jobs accepted, ${faults.made.length} faults`,
    );
  }
}

/** Gives the follower time to get the newest events. */
async function untilSeen(watch: LogFollower, events: number): Promise<void> {
  for (let second = 0; second < 60 && watch.count < events; second++) await sleep(1_000);
}
